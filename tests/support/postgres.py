"""A real PostgreSQL for tests and benchmarks: its own folder, loopback only, a free port, gone at the end.

Nothing about durability is switched off: what is tested against it is what production runs.
"""

from __future__ import annotations

import ctypes
import glob
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any

START_LIMIT, STOP_LIMIT = 60.0, 20.0
_USERS = ("postgres", "nobody")


class PostgresMissing(RuntimeError):
    """PostgreSQL cannot be started here; the text says what is missing."""


def programs() -> Path:
    """The folder of ``initdb`` and ``postgres``: from PATH, else Debian's newest."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise PostgresMissing("the PostgreSQL driver is missing: pip install dodona[postgres]") from None
    named = shutil.which("initdb")
    found = [Path(named).resolve().parent] if named else []
    debian = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(Path(p).parent.name.split(".")[0]))
    for folder in [*found, *map(Path, reversed(debian))]:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise PostgresMissing("PostgreSQL is missing: initdb and postgres must be on PATH or in /usr/lib/postgresql/*/bin")


class PostgresServer:
    """A server that is running from construction to ``stop``. ``settings``: lines of postgresql.conf."""

    def __init__(self, **settings: str | int) -> None:
        self._programs = programs()
        self._user = _other_user()
        self._folder = Path(tempfile.mkdtemp(prefix="dodona-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = settings
        self._end = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.port = 0
        self.password = secrets.token_hex(16)
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.stop()
            raise

    def url(self, database: str = "postgres", user: str = "postgres", password: str | None = None) -> str:
        """The address of a database; other users' passwords are theirs to state."""
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> Any:
        """A superuser's connection that commits each statement."""
        import psycopg

        return psycopg.connect(self.url(database), autocommit=True)

    def start(self) -> None:
        """Start, or start again after ``kill``; the port stays the same once it is known."""
        import psycopg

        last = "no attempt"
        for _ in range(1 if self.port else 3):  # another program may take a free port before we do
            port = self.port or _free_port()
            log = (self._folder / "log").open("ab")
            options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", **self._settings}
            given = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
            command = [str(self._programs / "postgres"), "-D", str(self._folder / "data"), *given]
            with log:
                self._process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    preexec_fn=_end_with_us,  # noqa: PLW1509  it only calls prctl
                    **self._as_user(),
                )
            deadline = time.monotonic() + START_LIMIT
            while time.monotonic() < deadline and self._process.poll() is None:
                self.port = port
                try:
                    self.connect().close()
                    return
                except psycopg.OperationalError as error:
                    last = type(error).__name__
                    time.sleep(0.05)
            self.port = 0
            self._signal("kill")
        raise PostgresMissing(f"PostgreSQL did not start ({last}); its log: {self._log()}")

    def kill(self) -> None:
        """SIGKILL to the server and, through its death, to every session: a crash."""
        self._signal("kill")

    def stop(self) -> None:
        """Stop and remove everything."""
        self._signal("terminate")
        self._end()

    def restart(self) -> None:
        """A crash and a recovery."""
        self.kill()
        self.start()

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _initialise(self) -> None:
        data, words = self._folder / "data", self._folder / "password"
        words.write_text(self.password, encoding="ascii")
        words.chmod(0o600)
        if self._user is not None:
            for path in (self._folder, words):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        command = [str(self._programs / "initdb"), "-D", str(data), "-U", "postgres", "-E", "UTF8", "--locale=C"]
        # Passwords in clear: they never leave loopback, and a thousand test connections need not cost a hash each.
        command += ["--auth=password", f"--pwfile={words}", "--no-sync"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, check=False, **self._as_user())
        if done.returncode:
            raise PostgresMissing(f"initdb failed: {done.stderr.decode(errors='replace')[-500:]}")

    def _as_user(self) -> dict[str, Any]:
        """PostgreSQL refuses to run as root."""
        return {} if self._user is None else {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _signal(self, how: str) -> None:
        """To our own server only. Its children see it die and leave, but for one in the middle of a long computation,
        which is killed: the shared memory is freed when all have left."""
        process, self._process = self._process, None
        if process is None:
            return
        children = _children(process.pid)
        if how == "terminate":
            process.send_signal(signal.SIGINT)  # a fast shutdown
        else:
            process.kill()
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        deadline = time.monotonic() + STOP_LIMIT
        while any(self._ours(child) for child in children):
            time.sleep(0.02)
            if time.monotonic() > deadline:
                for child in filter(self._ours, children):
                    os.kill(child, signal.SIGKILL)

    def _ours(self, pid: int) -> bool:
        """Whether a process is still there and still a session of this server: it stands in our folder."""
        try:
            return _alive(pid) and os.readlink(f"/proc/{pid}/cwd").startswith(str(self._folder))
        except OSError:
            return False

    def _log(self) -> str:
        try:
            return (self._folder / "log").read_text(errors="replace")[-800:]
        except OSError:
            return "none"


def _other_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresMissing(f"PostgreSQL refuses to run as root, and there is no user {' or '.join(_USERS)}")


def _end_with_us() -> None:
    """In the new process: Linux sends it SIGINT when we die, however we die, so that no server is left behind."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _children(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in listed.split()]


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
