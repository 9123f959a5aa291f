/* Fails, tears or kills at the k-th call that changes or syncs a regular file. Preloaded; armed by the test through shim_arm. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FAIL_EIO, FAIL_ENOSPC, KILL, TEAR };
static long target = -1, calls = 0;
static int action = 0, syncs_only = 0;

void shim_arm(long k, int what, int only_syncs) { target = k; calls = 0; action = what; syncs_only = only_syncs; }
long shim_calls(void) { return calls; }

/* 1: this call must fail with errno set. */
static int struck(int fd, int is_sync) {
  struct stat s;
  if (target < 0 || (syncs_only && !is_sync)) return 0;
  if (fd >= 0 && (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode))) return 0;
  if (++calls != target) return 0;
  if (action == KILL || (action == TEAR && is_sync)) kill(getpid(), SIGKILL);
  if (action == TEAR) return 2;
  errno = action == FAIL_EIO ? EIO : ENOSPC;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
int fsync(int fd) { return struck(fd, 1) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return struck(fd, 1) ? -1 : REAL(fdatasync)(fd); }
int unlink(const char *path) { return struck(-1, 0) == 1 ? -1 : REAL(unlink)(path); }
int ftruncate(int fd, off_t n) { return struck(fd, 0) == 1 ? -1 : REAL(ftruncate)(fd, n); }
int ftruncate64(int fd, off64_t n) { return struck(fd, 0) == 1 ? -1 : REAL(ftruncate64)(fd, n); }
ssize_t write(int fd, const void *p, size_t n) {
  int hit = struck(fd, 0);
  if (hit == 1) return -1;
  if (hit == 2) { REAL(write)(fd, p, n / 2); kill(getpid(), SIGKILL); }
  return REAL(write)(fd, p, n);
}
#define PWRITE(name, type)                                                                   \
  ssize_t name(int fd, const void *p, size_t n, type at) {                                   \
    int hit = struck(fd, 0);                                                                 \
    if (hit == 1) return -1;                                                                 \
    if (hit == 2) { REAL(name)(fd, p, n / 2, at); kill(getpid(), SIGKILL); }                 \
    return REAL(name)(fd, p, n, at);                                                         \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
