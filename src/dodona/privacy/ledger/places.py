"""Where a ledger is kept, a file or a name in a PostgreSQL database: opening it there, and what is called missing or
lost.

Making a ledger is an act of its own (HOSTILE R14): opening never makes one, so a mistyped name, an unmounted disk or
another working directory cannot become a second budget. A place holds *traces* of a ledger if anything is there: a
file, even an empty one, a link, even one that leads nowhere, or the record beside it (``sqlite_file``).
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dodona.errors import BadEffort, LedgerCorrupt, LedgerError, LedgerMissing, LedgerUnavailable, Refused, Unsupported
from dodona.privacy.budget import Budget
from dodona.privacy.ledger.postgres_store import is_address, shown_address

if TYPE_CHECKING:
    from dodona.privacy.ledger.rules import ChainLedger

Place = str | os.PathLike[str]
RECORD = ".lock"
_MOST_LINKS = 40
LOST = (
    "The ledger must be there: the record beside its name says that one was made, and it is gone or empty now. Bring "
    "the newest copy back. A new one would forget what was spent, so none is made."
)


def shown(place: Place) -> str:
    """What to call the place on a screen: the file's name, or the address without user and password."""
    return shown_address(str(place)) if is_address(place) else Path(place).name


def missing(where: str) -> LedgerMissing:
    """The refusal to open what was never made, and how to make it."""
    return LedgerMissing(
        f"the ledger must exist. Got {where!r}: no ledger is there, and opening makes none. If none was ever made for "
        "these rows, make it: `dodona ledger new SURVEY.TOML`, or create=True in Python. If one was, bring it back: a "
        "new one would be a second budget for the same people."
    )


def full_place(place: Place | None, folder: str | None) -> Place | None:
    """The place in full. A relative one is beside the data, in ``folder``, whatever the working directory is."""
    if place is None or is_address(place) or os.path.isabs(place):
        return place
    if folder is None:
        raise Unsupported(
            f"a relative ledger is looked for beside the data file, and these rows have none. Got {str(place)!r}. "
            "Write it in full, such as '/home/me/people.ledger': the working directory may change."
        )
    kept = Path(folder, place)
    if has_traces(place) and not has_traces(kept):
        raise LedgerUnavailable(
            f"a relative ledger must be beside the data file. Got {str(place)!r}: there is one in the working "
            f"directory and none in {folder!r}. Write its place in full, or move it there with its {RECORD} file."
        )
    return kept


def has_traces(place: Place) -> bool:
    """Whether a ledger's file is, or was, at this name."""
    return os.path.lexists(place) or os.path.lexists(record_of(Path(place)))


def record_of(file: Path) -> Path:
    """The name of the record beside a ledger's file."""
    return file.with_name(file.name + RECORD)


def links_to(place: Place) -> tuple[Path, list[Path]]:
    """The file itself, and every other name on the way to it: the one given, and those that it leads to as a link."""
    name = Path(place).absolute()
    names: list[Path] = []
    try:
        file = name.resolve()
        while name.is_symlink() and len(names) < _MOST_LINKS:
            names.append(name)
            name = name.parent / os.readlink(name)
    except (OSError, RuntimeError):
        names = [name] * _MOST_LINKS
    if len(names) == _MOST_LINKS:  # a circle
        raise LedgerUnavailable(f"the ledger must be a file. Got {Path(place).name!r}, which leads nowhere.")
    return file, names


# Files for their owner's eyes alone: ledgers, keys, surveys and a server's memory are 0600, whatever the umask says.
#
# What others may read of a file that was made wider (by hand, or by an earlier version) is taken from them when it is
# opened next by its owner. Somebody else's file stays as it is: its owner decides.


OWN = 0o600
_JOURNAL = "-journal"


def make_private(path: Path) -> None:
    """Make an empty file that only we can read; one that is there is left as it is, but for the rights of others."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWN)
    except FileExistsError:
        return keep_private(path)
    try:
        os.fchmod(file, OWN)  # a umask may take away from the owner, too
    finally:
        os.close(file)
    return None


def keep_private(path: Path) -> None:
    """Take from others what they may do with a file of ours and with SQLite's journal beside it.

    By name, never through a descriptor: closing one would drop the locks that SQLite holds on the file.
    """
    for file in (path, path.with_name(path.name + _JOURNAL)):
        try:
            found = os.stat(file)
        except FileNotFoundError:
            continue
        if found.st_mode & 0o077 and found.st_uid == os.geteuid():
            os.chmod(file, found.st_mode & OWN)


def open_ledger(
    place: Place | None,
    budget: Budget,
    *,
    atoms: int,
    neighbours: str,
    population: str,
    create: bool = False,
    same: Callable[[str], bool] | None = None,
) -> ChainLedger:
    """The ledger at ``place``; with ``create``, made if it was never made. None: a private one, in memory.

    ``same``: whether another text, found in an older ledger, names the same population; it then keeps that text.
    """
    facts: dict[str, Any] = {"atoms": atoms, "neighbours": neighbours, "create": create}
    try:
        return _open_at(place, budget, population=population, **facts)
    except Refused:
        if place is None or same is None:
            raise
        former = _read_genesis(place)["population"]
        if former == population or not same(former):
            raise
    return _open_at(place, budget, population=former, **facts)


def _open_at(place: Place | None, budget: Budget, **facts: Any) -> ChainLedger:
    if is_address(place):
        from dodona.privacy.ledger.postgres import PostgresLedger

        return PostgresLedger.open(str(place), budget, **facts)
    from dodona.privacy.ledger.sqlite import SqliteLedger

    return SqliteLedger.open(place, budget, **facts)


def ledger_exists(place: Place) -> bool:
    """Whether a ledger is there, or was: then opening it says what is wrong. Makes none."""
    if is_address(place):
        from dodona.privacy.ledger.postgres import PostgresLedger

        return PostgresLedger.exists(str(place))
    return has_traces(place)


def existing_ledger(place: Place) -> ChainLedger:
    """An existing ledger as it was made: budget and population are in it, so an auditor needs nothing else."""
    made = _read_genesis(place)
    return _open_at(place, made.pop("budget"), **made)


def _read_genesis(place: Place) -> dict[str, Any]:
    """What a ledger says it is about; ``open`` checks that it is what its first hash covers."""
    from dodona.privacy.ledger.store import NOT_A_LEDGER

    try:
        made = json.loads(_read_statement(place))
        facts = {key: made[key] for key in ("atoms", "neighbours", "population")}
        return {"budget": Budget.from_dict(made["budget"]), **facts}
    except (ValueError, KeyError, TypeError, BadEffort):
        raise LedgerCorrupt(NOT_A_LEDGER) from None


def _read_statement(place: Place) -> str:
    if is_address(place):
        from dodona.privacy.ledger.postgres import PostgresLedger

        return PostgresLedger.statement(str(place))
    from dodona.privacy.ledger import sqlite_file
    from dodona.privacy.ledger.sqlite import find

    file, _, _ = find(place)
    try:
        with closing(sqlite_file.connect(file, busy_timeout=30.0)) as db:
            (statement,) = db.execute("SELECT statement FROM genesis").fetchone() or ("{}",)
    except LedgerError:
        raise
    except (sqlite3.Error, OSError) as error:
        raise sqlite_file.fault(error) from None
    return str(statement)
