"""``dodona serve`` and ``dodona key``: the commands of whoever runs a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

key_app = typer.Typer(
    help="Make, list and revoke the keys that open a server.", no_args_is_help=True, rich_markup_mode=None
)

Keys = Annotated[Path, typer.Option("--keys", metavar="FILE", help="The key store.")]
_KEYS = Path("dodona.keys")
Server = Annotated[
    str | None, typer.Option(metavar="URL", help="Ask the dataset of this name there: https://host:8400.")
]
KeyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Holds your key for --server.  [default: DODONA_KEY is used]")
]


def serve(
    surveys: Annotated[list[Path], typer.Argument(metavar="SURVEY.TOML...", help="One or more surveys to serve.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8400,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="DODONA_LEDGER",
            help="postgresql://... for all; else the one each survey names. Holds a password? Set DODONA_LEDGER.",
        ),
    ] = None,
    keys: Keys = _KEYS,
    tls_cert: Annotated[Path | None, typer.Option(metavar="PEM", help="Certificate, to speak TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="PEM", help="Its private key.")] = None,
    insecure_listen: Annotated[
        bool, typer.Option("--insecure-listen", help="Listen beyond loopback without TLS: behind a proxy that has it.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that share the ledger.")] = 1,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append the audit log here.  [default: standard error]")
    ] = None,
) -> None:
    """Serve surveys over HTTP: the API and the page. Prints a curator's key where the key store is new."""
    from dodona.server.run import serve as start
    from dodona.server.settings import Settings

    settings = Settings(
        surveys=tuple(str(survey.absolute()) for survey in surveys),
        folder=str(keys.absolute().parent),
        host=host,
        port=port,
        ledger=ledger,
        keys=str(keys.absolute()),
        tls_cert=None if tls_cert is None else str(tls_cert),
        tls_key=None if tls_key is None else str(tls_key),
        insecure_listen=insecure_listen,
        workers=workers,
        audit=None if audit is None else str(audit.absolute()),
    )
    start(settings, lambda line: print(line, flush=True))


@key_app.command()
def add(
    analyst: Annotated[str, typer.Argument(metavar="NAME", help="Who the key is for; stands in the ledger.")],
    share: Annotated[str | None, typer.Option(metavar="S", help="Fraction of the lifetime budget: 0.3 or 1/3.")] = None,
    curator: Annotated[bool, typer.Option("--curator", help="A curator's key: no share, may make keys.")] = False,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="When it ends: 2027-01-31.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Opens only this one; may be repeated.  [default: all]")
    ] = None,
    keys: Keys = _KEYS,
) -> None:
    """Make a key and print it: this once, since only its hash is kept."""
    from dodona.server.keys import KeyStore

    store = KeyStore(keys)
    role = "curator" if curator else "analyst"
    key, token = store.add(analyst, role=role, share=share, expires=expires, datasets=dataset)
    store.close()
    sys.stderr.write(f"key {key.id} for {key.analyst}; keep it, it is not shown again:\n")
    sys.stdout.write(token + "\n")


@key_app.command("list")
def list_keys(keys: Keys = _KEYS) -> None:
    """Show all keys, without their secrets."""
    from dodona.server.keys import KeyStore, now_text
    from dodona.show import clean

    store, now = KeyStore(keys), now_text()
    for key in store.all():
        state = "revoked" if key.revoked else "lives" if key.alive(now) else "expired"
        share = "whole budget" if key.share is None else f"share {key.share}"
        opens = "all datasets" if key.datasets is None else ", ".join(key.datasets)
        until = "" if key.expires is None else f", until {key.expires}"
        sys.stdout.write(clean(f"{key.id}  {state:8} {key.role:8} {key.analyst}  {share}, {opens}{until}") + "\n")
    store.close()


@key_app.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `key list` shows it.")], keys: Keys = _KEYS
) -> None:
    """Revoke a key: a running server refuses it from the next request on."""
    from dodona.server.keys import KeyStore

    store = KeyStore(keys)
    key = store.revoke(id)
    store.close()
    sys.stdout.write(f"revoked {key.id} of {key.analyst}\n")
