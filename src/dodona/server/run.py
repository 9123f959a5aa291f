"""Starting a server: everything that can be checked is, the address is taken, and "serving" is said when it listens.

The socket is bound before anything is opened or made: a port that is taken costs one sentence and an exit code of its
own, and no key is made that nobody gets to see. Then uvicorn runs one process, or several that share a socket.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from dodona.errors import AddressTaken, Refused
from dodona.privacy.ledger.postgres_store import is_address
from dodona.server.keys import KeyStore
from dodona.server.settings import Settings

_APP = "dodona.server.app:from_environment"
GRACE = 30
"""Seconds that questions at work get when the server is told to stop."""
LOOK = 0.02
"""Seconds between two looks at whether it listens yet."""


def first_key(settings: Settings) -> str | None:
    """A curator's token, where the key store has none for a curator yet; it is shown this once."""
    store = KeyStore(settings.key_file)
    try:
        return None if store.has_curator() else store.add("curator", role="curator")[1]
    finally:
        store.close()


def kept_here(settings: Settings) -> str:
    """What a ledger in PostgreSQL does not share with servers on other machines, and the files that hold it."""
    return (
        f"the ledger is in PostgreSQL; keys live in {settings.key_file} and surveys in {settings.survey_file}, on this "
        "machine only: servers on other machines do not know them, nor their revocations."
    )


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until told to stop."""
    try:
        import uvicorn  # noqa: F401 - whether it is there
    except ImportError:
        raise Refused("the server needs its extra: pip install 'dodona[server]'.") from None
    from dodona.server.datasets import Datasets

    with taken_address(settings) as listener:
        datasets = Datasets(settings, say)  # refuses now, not in a worker's log; makes ledgers now, and says so
        names = ", ".join(dataset.name for dataset in datasets)
        shared = any(is_address(settings.ledger or dataset.config.ledger) for dataset in datasets)
        datasets.close()
        token = first_key(settings)
        lines = [f"dodona: serving {names} at {settings.url}"]
        lines += [] if token is None else [f"curator key (shown once): {token}"]
        lines += [kept_here(settings)] if shared else []
        settings.to_environment()
        # uvicorn finishes what is at work, then raises the signal again for whoever was there before: us.
        signal.signal(signal.SIGTERM, _end)
        _raise_open_files()
        when_it_listens(listener, lambda: say("\n".join(lines)))
        with contextlib.suppress(KeyboardInterrupt):
            run_workers(settings, listener)


@contextlib.contextmanager
def taken_address(settings: Settings) -> Iterator[socket.socket]:
    """A socket bound to the server's address, which does not listen yet; or the refusal that says why there is none."""
    found = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        if os.name != "nt":  # there it would let two programs have one port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((settings.host, settings.port))
        except OSError as problem:
            raise AddressTaken(_why_not(settings, problem)) from None
        found.set_inheritable(True)
        yield found
    finally:
        found.close()


def _why_not(settings: Settings, problem: OSError) -> str:
    place = f"port {settings.port} of {settings.host}"
    if problem.errno == errno.EADDRINUSE:
        other = settings.port + 1 if settings.port < 65_535 else 8400
        return f"{place} is taken: another program listens there. Stop it, or choose another port: --port {other}."
    if problem.errno == errno.EACCES:
        return f"{place} is not for everyone to take. Choose one from 1024 on, such as --port 8400."
    return f"{settings.host} is no address of this machine that a server can listen at. Leave out --host, or mend it."


def when_it_listens(listener: socket.socket, work: Callable[[], object]) -> None:
    """Runs ``work``, in a thread, once a connection is taken at the listener's address."""
    host, port = listener.getsockname()[:2]
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)

    def look() -> None:
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection((near, port), 1.0).close()
                work()
                return
            time.sleep(LOOK)

    threading.Thread(target=look, daemon=True, name="dodona says that it serves").start()


def run_workers(settings: Settings, listener: socket.socket) -> None:
    """uvicorn, in this process with the socket, or in several that share another one."""
    import uvicorn

    from dodona.server.app import Edge

    stated: dict[str, Any] = {
        "factory": True,
        "ws": "none",
        "http": Edge,  # which limits time and connections; sizes are limited below
        "workers": settings.workers,
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
        "access_log": False,  # its lines would hold addresses as sent; ours are in the audit log
        "log_level": "warning",
        "server_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": GRACE,
        "h11_max_incomplete_event_size": 65_536,
        "limit_concurrency": 1000,
    }
    if settings.workers > 1:  # its own supervisor binds the address that was found free
        listener.close()
        uvicorn.run(_APP, host=settings.host, port=settings.port, **stated)
    else:
        uvicorn.Server(uvicorn.Config(_APP, **stated)).run(sockets=[listener])


def _raise_open_files() -> None:
    """As many connections as the machine allows us: those that wait for TLS are counted by nobody else."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _end(*_: object) -> None:
    sys.exit(0)
