"""The file beside a ledger: the queue for its writers, and a record of the newest entry ever made.

**Queue.** SQLite's own locks are polled with growing naps, so under 64 writers some starve. Those who wait for a
``flock`` are woken by the kernel, in the order in which they came; whoever asks just then may still slip in
before them. The kernel drops it when its holder dies, however it dies.

**Record** (HOSTILE R5). After each commit, and before the caller hears of it, (seq, hash) of the head is written here
and synced. A ledger restored from an old copy lacks that entry and is refused. Written *after* the commit, a crash
between the two leaves a record one entry behind a good ledger, which is harmless: the ledger still contains the
recorded entry. Written *before*, the same crash would leave a record of an entry that never was, and a good ledger
refused. Two slots of a disk sector each are overwritten in turn: a write torn by a crash leaves the other slot whole,
one entry behind, and no disk space is needed that could run out.

Limits: ``flock`` needs a local file system; who deletes or restores both files together is seen only by holders of
receipts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from pathlib import Path

from dodona.errors import LedgerCorrupt, LedgerUnavailable

_SLOT = 512  # one disk sector
LOCKED = "The ledger must be free within the time limit, and another process holds it. Nothing was charged; ask again."


class SideLock:
    """Not thread-safe: its ledger serialises the threads of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._spare = 0  # the slot that ``write`` may overwrite, set by ``read``

    def acquire(self, timeout: float) -> None:
        """Wait in the queue for at most ``timeout`` seconds, else ``LedgerUnavailable``. OSError is the caller's to
        handle.
        """
        deadline = time.monotonic() + timeout
        while True:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(self._fd, deadline)
            if self._current(self._fd):
                return
            self.abandon()  # the file was replaced while we queued: others may hold the new one

    def release(self) -> None:
        """Unlock by name: a close alone would leave the lock with any child that forked meanwhile."""
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def abandon(self) -> None:
        """Forget the file. In a forked child this frees our copy of the descriptor and not the parent's lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read(self) -> tuple[int, str] | None:
        """The recorded (seq, hash), or None if there is no record yet."""
        assert self._fd is not None
        text = os.pread(self._fd, 2 * _SLOT, 0)
        slots = [_parse(text[:_SLOT]), _parse(text[_SLOT:])]
        best = max((slot for slot in slots if slot is not None), default=None)
        if best is None and len(text) > _SLOT:  # one slot alone, and torn, is a first record cut short
            raise LedgerCorrupt(
                f"The record beside the ledger must be one Dodona wrote. {self.path.name} is not; keep both files."
            )
        self._spare = 0 if best is None else 1 - slots.index(best)
        return best

    def write(self, seq: int, digest: str) -> None:
        """Record the head over the older slot and sync it. An OSError comes after the commit: the charge stands."""
        assert self._fd is not None
        body = f"dodona-ledger-head-1 {seq} {digest}".encode()
        text = (body + b" " + hashlib.sha256(body).hexdigest().encode()).ljust(_SLOT - 1) + b"\n"
        if os.pwrite(self._fd, text, self._spare * _SLOT) != _SLOT:
            raise OSError("short write")
        # fdatasync: only the contents matter once the length is on disk, and it also flushes a changed length.
        getattr(os, "fdatasync", os.fsync)(self._fd)

    def _current(self, fd: int) -> bool:
        try:
            there, ours = os.stat(self.path), os.fstat(fd)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def _wait(self, fd: int, deadline: float) -> None:
        """A blocking ``flock`` with a time limit: the kernel has none, and signals belong to the application, so a
        thread waits.
        """
        waiter = _Waiter(fd)
        waiter.start()
        try:
            waiter.done.wait(max(0.0, deadline - time.monotonic()))
        finally:
            if not waiter.claim():
                self._fd = (
                    None  # the descriptor now belongs to the waiter, which unlocks and closes it when its turn comes
                )
        if self._fd is None:
            raise LedgerUnavailable(LOCKED)
        if waiter.error is not None:
            raise waiter.error


def _parse(slot: bytes) -> tuple[int, str] | None:
    """A whole record, or None."""
    body, _, check = slot.rstrip(b" \n").rpartition(b" ")
    if len(slot) != _SLOT or hashlib.sha256(body).hexdigest().encode() != check:
        return None
    _, seq, digest = body.split(b" ")
    return int(seq), digest.decode()


class _Waiter(threading.Thread):
    def __init__(self, fd: int) -> None:
        super().__init__(name="dodona-ledger-queue", daemon=True)
        self.done = threading.Event()
        self.error: OSError | None = None
        self._fd = fd
        self._mutex = threading.Lock()
        self._abandoned = False

    def run(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self.error = error
        with self._mutex:
            self.done.set()
            if self._abandoned:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
                os.close(self._fd)

    def claim(self) -> bool:
        """True if the lock (or its error) arrived in time; False hands the descriptor over to this thread."""
        with self._mutex:
            self._abandoned = not self.done.is_set()
            return not self._abandoned
