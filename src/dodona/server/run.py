"""Start the server: check everything that can be checked before the first request, then hand over to uvicorn."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from dodona.errors import Refused
from dodona.privacy.open import is_address
from dodona.server.keys import KeyStore
from dodona.server.settings import Settings

GRACE = 30
"""Seconds that questions at work get when the server is told to stop."""


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
        import uvicorn
    except ImportError:
        raise Refused("the server needs its extra: pip install 'dodona[server]'.") from None
    from dodona.server.datasets import Datasets

    datasets = Datasets(settings.surveys, settings.ledger)  # refuses now, not in a worker's log
    names = ", ".join(dataset.name for dataset in datasets)
    shared = any(is_address(settings.ledger or dataset.config.ledger) for dataset in datasets)
    datasets.close()
    token = first_key(settings)
    say(f"dodona: serving {names} at {settings.url}")
    if token is not None:
        say(f"curator key (shown once): {token}")
    if shared:
        say(kept_here(settings))
    settings.to_environment()
    # uvicorn finishes what is at work, then raises the signal again for whoever was there before: us.
    signal.signal(signal.SIGTERM, _end)
    uvicorn.run(
        "dodona.server.app:from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        access_log=False,  # its lines would hold addresses as sent; ours are in the audit log
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=65_536,
        limit_concurrency=1000,
    )


def _end(*_: object) -> None:
    sys.exit(0)
