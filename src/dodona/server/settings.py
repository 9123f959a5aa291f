"""What ``dodona serve`` was told, as one value that reaches every worker process, and what it is to serve by that.

Sources are read from ``survey.toml`` files: tables, and which ledger pays for each of them. One source, one budget
(HOSTILE R6): two datasets over the same rows, by whatever names, need one ledger between them, or the statement of both
that nobody is in the other.
"""

from __future__ import annotations

import ipaddress
import json
import math
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TypeVar

from dodona.config import Config
from dodona.engines.table import Table
from dodona.errors import LedgerCorrupt, LedgerMissing, LedgerUnavailable, Refused
from dodona.privacy.ledger import Ledger
from dodona.privacy.ledger.places import Place, make_private, shown
from dodona.privacy.ledger.postgres_store import is_address

# When a piece of work ends for everyone but its own thread: on a public schedule, so that how long it took says
# nothing about rows.
#
# Work per question does not depend on row values by construction (row-local, total expressions; tables instead of
# rejection in the samplers). What is left is the machine's own jitter, and this room hides that (HOSTILE A12, A13):
#
#     ends at  tick * 2^j  after the charge,  j the least with  tick * 2^j >= t + max(t, tick)/5 * X,
#
# t the time the work took, X exponential with mean 1, from the operating system's randomness. If one row can move t by
# at most D, the probability of ending after any tick changes by a factor of at most exp(5 D / max(t, tick)): a random
# delay on a stable program; the doubling leaves an observer a handful of outcomes instead of a clock.
#
# X is drawn once, and everything that tells of the work comes after its moment (R16): the answer is stored then, so
# that its place in the ledger, and what a repeat of the request finds, move then; it leaves after that; and only then
# is the thread free for the next question.


TICK = 0.1
NOISE = 0.2
Result = TypeVar("Result")


def exponential() -> float:
    """X >= 0 with mean 1, from 53 bits of the operating system's randomness."""
    return -math.log((secrets.randbits(53) + 1) / 2**53)


@dataclass(frozen=True)
class Pacer:
    """``tick``: the first moment at which work may end, in seconds. ``draw``: X above."""

    tick: float = TICK
    draw: Callable[[], float] = exponential

    def due(self, took: float) -> float:
        """The moment, counted from the charge, at which work that took ``took`` seconds ends."""
        blurred = took + max(took, self.tick) * NOISE * self.draw()
        steps = math.ceil(math.log2(blurred / self.tick)) if blurred > self.tick else 0
        return float(self.tick * 2**steps)

    def hold(self, work: Callable[[], Result]) -> Result:
        """Run ``work``, which has just been charged and may read rows. It ends at its moment, well or badly."""
        start = time.monotonic()
        try:
            return work()
        finally:
            end = start + self.due(time.monotonic() - start)
            while (left := end - time.monotonic()) > 0:
                time.sleep(left)


VARIABLE = "DODONA_SERVE"
"""The environment variable through which workers get their settings. It holds no key; a ledger's address may hold a
password, and an environment is its own user's to read.
"""


@dataclass(frozen=True)
class Settings:
    """``surveys``: paths of survey.toml files. ``folder``: where keys, survey reports and heads of ledgers are kept.

    ``ledger``: None for the one each survey names, or a PostgreSQL address for all of them. ``tick``: see ``timing``.
    ``rate``: requests a second one key may make; ``running``: how many of its questions may be at work at once.
    ``connections``: how many one address may hold in one process.
    ``audit``: the file the audit log is appended to, or None for standard error.
    """

    surveys: tuple[str, ...]
    folder: str
    host: str = "127.0.0.1"
    port: int = 8400
    ledger: str | None = None
    keys: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure_listen: bool = False
    workers: int = 1
    tick: float = TICK
    rate: float = 100.0
    running: int = 8
    connections: int = 250
    audit: str | None = None

    def __post_init__(self) -> None:
        if "DODONA_SEED" in os.environ:
            raise Refused("DODONA_SEED must not be set: noise comes from the operating system, and no seed exists.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise Refused("TLS needs both a certificate and its key: --tls-cert and --tls-key.")
        if not loopback(self.host) and self.tls_cert is None and not self.insecure_listen:
            raise Refused(
                f"keys and answers must not cross a network in the clear. {self.host!r} is not loopback: give "
                "--tls-cert and --tls-key, or --insecure-listen where a proxy on a private network speaks TLS."
            )

    @property
    def key_file(self) -> Path:
        """Where keys are kept."""
        return Path(self.keys) if self.keys is not None else Path(self.folder) / "dodona.keys"

    @property
    def survey_file(self) -> Path:
        """Where surveys and their reports are kept."""
        return Path(self.folder) / "dodona.surveys"

    @property
    def head_file(self) -> Path:
        """Where the newest entries of the ledgers are remembered."""
        return Path(self.folder) / "dodona.heads"

    @property
    def url(self) -> str:
        """Where a client on this machine finds us."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_cert is None else 'https'}://{host}:{self.port}"

    def to_environment(self) -> None:
        """For the workers."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @staticmethod
    def from_environment() -> Settings:
        """In a worker."""
        fields = json.loads(os.environ[VARIABLE])
        return Settings(**{**fields, "surveys": tuple(fields["surveys"])})


def loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# The newest entry of each ledger that a server has seen, kept with the server's own state (HOSTILE R5).
#
# A ledger and the record beside it can be deleted or restored together, by mistake or not. The server's memory is
# elsewhere: at start it refuses a ledger that lacks the entry it remembers. It is written at start, at the end, and at
# most every ten seconds between, so what a crash takes from it is the last of these; it never remembers what was not
# committed.


_SCHEMA = """
CREATE TABLE IF NOT EXISTS heads(whom TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL) WITHOUT ROWID
"""


DISJOINT = ", stated disjoint: "


class Heads:
    """In the file at ``path``; safe for many threads and processes. ``whom``: whose budget the ledger is."""

    def __init__(self, path: Path) -> None:
        self._path, self._mutex = path, threading.Lock()
        try:
            make_private(path)
            self._db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            self._db.execute(_SCHEMA)
        except (OSError, sqlite3.Error):
            raise self._unavailable() from None

    def knows(self, whom: str) -> bool:
        """Whether a ledger of theirs was seen."""
        return self._head(whom) is not None

    def compare(self, whom: str, ledger: Ledger) -> None:
        """Refuse a ledger without the entry that is remembered."""
        head = self._head(whom)
        if head is None:
            return
        if not _holds(ledger, *head):
            raise LedgerCorrupt(self.lacking(whom))

    def require_all(self, served: Mapping[str, Ledger]) -> None:
        """Refuse where people who were served before are served now with no ledger that has their newest entry.

        ``served``: by whom. Those stated disjoint have names of their own, so a statement alone could make them others.
        """
        with self._mutex:
            try:
                known = self._db.execute("SELECT whom, seq, hash FROM heads").fetchall()
            except sqlite3.Error:
                raise self._unavailable() from None
        for whom, seq, digest in known:
            people = whom.partition(DISJOINT)[0]
            theirs = [ledger for name, ledger in served.items() if name.partition(DISJOINT)[0] == people]
            if whom not in served and theirs and not any(_holds(ledger, seq, digest) for ledger in theirs):
                raise LedgerCorrupt(self.lacking(whom))

    def keep(self, whom: str, seq: int, digest: str) -> None:
        """Remember a head; an older one than is known is nothing new."""
        with self._mutex:
            try:
                self._db.execute(
                    "INSERT INTO heads VALUES(?, ?, ?) ON CONFLICT(whom) DO UPDATE SET seq = excluded.seq, "
                    "hash = excluded.hash WHERE excluded.seq > seq",
                    (whom, seq, digest),
                )
            except sqlite3.Error:
                raise self._unavailable() from None

    def lacking(self, whom: str) -> str:
        """What is said where the ledger is not the one that was served."""
        return (
            f"The ledger of {whom!r} must contain the newest entry that this server saw of it ({self._path.name}). It "
            "does not: it is an older or another one, or gone. Bring the newest back. For other people than before, "
            "state another population."
        )

    def close(self) -> None:
        """Let the file go."""
        with self._mutex:
            self._db.close()

    def _head(self, whom: str) -> tuple[int, str] | None:
        with self._mutex:
            try:
                found = self._db.execute("SELECT seq, hash FROM heads WHERE whom = ?", (whom,)).fetchone()
            except sqlite3.Error:
                raise self._unavailable() from None
        return None if found is None else (int(found[0]), str(found[1]))

    def _unavailable(self) -> LedgerUnavailable:
        return LedgerUnavailable(f"a server's own state must be a file we can write. Got {str(self._path)!r}.")


def _holds(ledger: Ledger, seq: int, digest: str) -> bool:
    return [entry.hash for entry in ledger.entries(seq, 1)] == [digest] if seq else ledger.genesis.digest() == digest


@dataclass(frozen=True)
class Served:
    """One survey: its statements, its table, and where its ledger is."""

    config: Config
    table: Table
    place: Place

    @property
    def whom(self) -> str:
        """Whose budget its ledger is, as the server remembers it."""
        return self.table.whom + (f"{DISJOINT}{self.table.name}" if self.config.disjoint else "")

    @cached_property
    def identities(self) -> frozenset[str]:
        """What its rows are, under whatever name."""
        return self.table.identities()

    def open_ledger(self, heads: Heads, say: Callable[[str], None] | None = None) -> Ledger:
        """Open the ledger, and compare it with what is remembered. ``say``: make one that was never made, and tell."""
        try:
            ledger = self._ledger(create=False)
        except LedgerMissing:
            if heads.knows(self.whom):
                raise LedgerCorrupt(heads.lacking(self.whom)) from None
            if say is None:
                raise
            ledger = self._ledger(create=True)
            say(f"made {shown(self.place)}, a new ledger for {self.table.name}: {self.config.budget}, nothing spent")
        try:
            heads.compare(self.whom, ledger)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _ledger(self, create: bool) -> Ledger:
        return self.config.open_curator("curator", table=self.table, ledger=self.place, create=create).ledger


def read_sources(paths: tuple[str, ...], ledger: str | None) -> list[Served]:
    """All of them, or a refusal that names two that do not go together. ``ledger``: one address for all of them."""
    sources = []
    for path in paths:
        config = Config.read(path)
        place = config.ledger if ledger is None else _name_ledger(ledger, config, len(paths))
        sources += [Served(member, member.open_table(), place) for member in config.members]
    for one, other in combinations(sources, 2):
        _require_apart(one, other)
    _require_private(sources)
    return sources


def _require_private(sources: Sequence[Served]) -> None:
    """What one file calls public must be private in no other."""
    for source in sources:
        tables = source.table.tables
        for name, public in (tables.public if tables is not None else {}).items():
            for other in sources:
                if public.identities() & other.identities:
                    raise Refused(
                        f"{name!r} of {source.config.path.name} is stated to be public, and its rows are those of "
                        f"{other.table.name!r}, which are private. What everyone knows cannot be protected: serve one."
                    )


def _require_apart(one: Served, other: Served) -> None:
    names = f"{one.table.name!r} and {other.table.name!r}"
    if one.table.name == other.table.name:
        raise Refused(f"each dataset must have a name of its own. Two are called {one.table.name!r}.")
    if one.config.disjoint and other.config.disjoint:
        return
    shared = one.table.whom == other.table.whom or one.identities & other.identities
    if shared and not _same_ledger(one.place, other.place):
        raise Refused(
            f"one source has one budget. {names} read the same rows, or state the same population, and have two "
            "ledgers, whose budgets would add up. Serve one of them; or state one population and one ledger in both; "
            "or, only if nobody in the one is in the other, state disjoint = true in both."
        )


def _same_ledger(one: Place, other: Place) -> bool:
    if is_address(one) or is_address(other):
        return str(one) == str(other)
    return os.path.realpath(one) == os.path.realpath(other)


def _name_ledger(ledger: str, config: Config, count: int) -> str:
    """One address for several datasets gets the dataset's own name after #."""
    if "#" in ledger:
        if count > 1:
            raise Refused("one ledger is for one dataset: leave out #NAME, and each dataset gets a ledger of its name.")
        return ledger
    return f"{ledger}#{config.path.stem if config.family is not None else config.name or config.path.stem}"
