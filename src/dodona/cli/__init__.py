"""The command line: ``dodona``. Thin: each command reads a ``survey.toml``, asks the library, and prints.

Exit codes: 0 done; 1 internal fault; 2 refused, nothing was charged; 3 the budget does not allow it, nothing was
charged; 4 the ledger cannot be trusted or reached; 5 charged, but the answer was lost; 6 a server's port is taken; 130
interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from dodona import __version__
from dodona.cli import classes as _classes  # noqa: F401 - adds its commands to ``dodona plan``
from dodona.cli import show
from dodona.cli.draft import draft, new
from dodona.cli.plan import audit, plan_app
from dodona.cli.publish import release, synopsis_app
from dodona.cli.questions import ask, explain, price, sql
from dodona.cli.survey import check, ledger_app, make_ledger, schema_app
from dodona.cli.waiting import Stopped
from dodona.errors import AddressTaken, AnswerLost, BudgetSpent, DodonaError, LedgerError, Refused

FAULT, REFUSED, SPENT, LEDGER, LOST, TAKEN, INTERRUPTED = 1, 2, 3, 4, 5, 6, 130

app = typer.Typer(
    help="Ask questions of sensitive data and get answers with a proof of privacy.\n\n"
    "Start: dodona new YOUR-FILE.csv (or, to try things: dodona sample survey.parquet --schema survey.toml);\n"
    "then price, ask and sql with survey.toml.",
    epilog="Exit codes: 0 done; 1 internal fault; 2 refused, nothing charged; 3 budget spent, nothing charged; "
    "4 ledger; 5 charged but the answer was lost; 6 a port is taken; 130 interrupted.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: quick to start, and readable in any terminal
    pretty_exceptions_enable=False,  # a traceback's locals would show rows
)
key_app = typer.Typer(
    help="Make, list and revoke the keys that open a server.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(schema_app, name="schema")
app.add_typer(ledger_app, name="ledger")
app.add_typer(plan_app, name="plan")
app.add_typer(synopsis_app, name="synopsis")
app.command()(audit)
app.add_typer(key_app, name="key")

Keys = Annotated[Path, typer.Option("--keys", metavar="FILE", help="The key store.")]
_KEYS = Path("dodona.keys")
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


def main() -> None:
    """The ``dodona`` command. One line on stderr and an exit code for every failure; never a traceback."""
    try:
        app(prog_name="dodona")
    except DodonaError as error:
        _fail(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception:  # HOSTILE R12: what it says could tell of the data
        _complain("internal fault", "no detail is shown, since it could tell of the data. Please report the command.")
        sys.exit(FAULT)


def _fail(error: DodonaError) -> None:
    kinds: list[tuple[type[DodonaError], str, int]] = [
        (BudgetSpent, "budget", SPENT),
        (AddressTaken, "address", TAKEN),
        (Refused, "refused", REFUSED),
        (LedgerError, "ledger", LEDGER),
        (AnswerLost, "answer lost", LOST),
        (Stopped, "stopped", INTERRUPTED),
    ]
    _, word, code = next(kind for kind in kinds if isinstance(error, kind[0]))
    _complain(word, _EFFORTS.sub(r"--\1", str(error)))
    sys.exit(code)


_EFFORTS = re.compile(r"(?<![\w(-])(share|epsilon|rho|tolerance|confidence)=(?=[\s,.;:]|$)")
"""As Python states an effort; here it is an option."""


def _complain(word: str, message: str) -> None:
    show.say(f"{show.paint(f'dodona: {word}:', 'error', sys.stderr)} {show.clean(message)}", sys.stderr)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dodona {__version__}")
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Version.")] = False,
) -> None:
    if "DODONA_SEED" in os.environ:
        raise Refused("DODONA_SEED must not be set: noise comes from the operating system, and no seed exists for it.")


@app.command()
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
    connections: Annotated[
        int, typer.Option(min=1, help="Most connections of one address; behind a proxy, of the proxy.")
    ] = 250,
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
        connections=connections,
        audit=None if audit is None else str(audit.absolute()),
    )
    start(settings, lambda line: print(line, flush=True))


@app.command()
def shuffle(
    collector: Annotated[
        str, typer.Argument(metavar="URL", help="The server that collects, such as https://host:8400.")
    ],
    survey: Annotated[list[str], typer.Option(metavar="ID", help="Which surveys; may be repeated.")],
    key: Annotated[
        str, typer.Option(metavar="KEY", envvar="DODONA_KEY", help="As `key add NAME --shuffler` printed it there.")
    ],
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where reports wait for a batch.")] = Path(),
    every: Annotated[float, typer.Option(min=0.05, metavar="S", help="Seconds between looks for a batch.")] = 60.0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8401,
    tls_cert: Annotated[Path | None, typer.Option(metavar="PEM", help="Certificate, to speak TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="PEM", help="Its private key.")] = None,
    insecure_listen: Annotated[
        bool, typer.Option("--insecure-listen", help="Listen beyond loopback without TLS: behind a proxy that has it.")
    ] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Reach the collector by plain HTTP.")] = False,
) -> None:
    """Stand between respondents and a survey's collector: forward reports in batches, without whose and when."""
    from dodona.server.settings import Settings
    from dodona.server.surveys.shuffler import serve_shuffler

    settings = Settings(
        surveys=(),
        folder=str(folder.absolute()),
        host=host,
        port=port,
        tls_cert=None if tls_cert is None else str(tls_cert),
        tls_key=None if tls_key is None else str(tls_key),
        insecure_listen=insecure_listen,
    )
    serve_shuffler(settings, collector, key, tuple(survey), every, insecure)


@app.command()
def sample(
    data: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write: .parquet or .csv.")],
    rows: Annotated[int, typer.Option(metavar="N", help="How many made-up people.")] = 100_000,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the made-up data; noise never has one.")] = 1,
    schema: Annotated[Path | None, typer.Option(metavar="TOML", help="Also its survey.toml and a ledger.")] = None,
    force: Force = False,
) -> None:
    """Write a made-up but plausible survey, to try things on; with --schema, ready to be asked."""
    from dodona.sample import refuse_overwriting, write_sample, write_schema

    if schema is not None:
        refuse_overwriting(schema, force)
    write_sample(data, rows, seed, overwrite=force)
    show.say(f"wrote {data}: {rows:,} made-up people, {data.stat().st_size / 1e6:,.1f} MB (seed {seed})")
    if schema is not None:
        write_schema(schema, data, overwrite=force)
        show.say(f"wrote {schema}: its public facts and a budget")
        make_ledger(schema)


for command in (new, check, price, ask, sql, explain, release):
    app.command()(command)
schema_app.command()(draft)


@key_app.command()
def add(
    analyst: Annotated[str, typer.Argument(metavar="NAME", help="Who the key is for; stands in the ledger.")],
    share: Annotated[str | None, typer.Option(metavar="S", help="Fraction of the lifetime budget: 0.3 or 1/3.")] = None,
    curator: Annotated[bool, typer.Option("--curator", help="A curator's key: no share, may make keys.")] = False,
    shuffler: Annotated[
        bool, typer.Option("--shuffler", help="For `dodona shuffle`: hands in reports, no more.")
    ] = False,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="When it ends: 2027-01-31.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Opens only this one; may be repeated.  [default: all]")
    ] = None,
    keys: Keys = _KEYS,
) -> None:
    """Make a key and print it: this once, since only its hash is kept."""
    from dodona.server.keys import KeyStore

    store = KeyStore(keys)
    if curator and shuffler:
        raise Refused("a key has one role: --curator or --shuffler.")
    role = "curator" if curator else "shuffler" if shuffler else "analyst"
    key, token = store.add(analyst, role=role, share=share, expires=expires, datasets=dataset)
    store.close()
    sys.stderr.write(f"key {key.id} for {key.analyst}; keep it, it is not shown again:\n")
    sys.stdout.write(token + "\n")


@key_app.command("list")
def list_keys(keys: Keys = _KEYS) -> None:
    """Show all keys, without their secrets."""
    from dodona.server.keys import KeyStore

    store = KeyStore(keys)
    now = store.now()
    for key in store.all():
        state = "revoked" if key.revoked else "lives" if key.alive(now) else "expired"
        whole = "asks nothing" if key.role == "shuffler" else "whole budget"
        share = whole if key.share is None else f"share {key.share}"
        opens = "all datasets" if key.datasets is None else ", ".join(key.datasets)
        until = "" if key.expires is None else f", until {key.expires}"
        sys.stdout.write(show.clean(f"{key.id}  {state:8} {key.role:8} {key.analyst}  {share}, {opens}{until}") + "\n")
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
