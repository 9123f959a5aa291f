"""Worlds in which several handles spend one budget: what they may do, what can befall them, what was handed out.

A world keeps no sums but of answers that really left, so that it can say whether the promise was kept whatever the
ledger says. A new kind of payer (a client's account, say) is a new ``World``: how a handle is opened, what it may do,
and what its answers may cost in all.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import dodona as dd
from dodona import release
from dodona.engines.joined import together
from dodona.errors import AnswerLost, BudgetSpent, LedgerCorrupt, LedgerUnavailable, Refused, Unsupported
from dodona.local import Client, invitation
from dodona.local.account import PERMANENT
from dodona.mechanisms import SecureBits
from dodona.oracles.noise import Plans
from dodona.privacy.ledger.store import entries
from dodona.query.candidates import Running
from dodona.query.statistic import Partition, Value, as_expr, as_query, bucket

BEFALLS = (
    "nothing",
    "crash before the commit",
    "crash before its record",
    "crash after it",
    "crash before the answer",
    "fork",
    "restart",
)
_SAID = (BudgetSpent, Refused, AnswerLost, Unsupported)


class Crash(BaseException):
    """The process ends here."""


def _dies(*_: object) -> None:
    raise Crash


class World(ABC):
    """``handles`` on one ledger, all open from the start; ``handed`` is what left, in whatever the world sums."""

    operations: tuple[str, ...]

    def __init__(self, place: Any, handles: int) -> None:
        self.place = place
        self.handed: list[Any] = []
        self.crash = ""
        self._count = 0
        self._armed: Any = None
        self._saved = self._copy()
        self.handles = [self.opened(number) for number in range(handles)]

    @abstractmethod
    def opened(self, number: int) -> Any:
        """A handle, as a process that starts now would have it."""

    @abstractmethod
    def perform(self, operation: str, number: int) -> None:
        """Do it with one handle; what is refused is refused."""

    @abstractmethod
    def ledger(self, number: int) -> Any:
        """The ledger a handle charges."""

    @abstractmethod
    def kept(self) -> bool:
        """Whether all that was handed out is within the promise."""

    def step(self, number: int, operation: str, befalls: str) -> None:
        """One operation of one handle, and what befalls its process meanwhile."""
        if befalls == "restart":
            self.reopen(number)
        if befalls == "fork":
            self.handed += _forked(lambda: self._done(operation, number))
            return
        self.crash = befalls if befalls.startswith("crash") else ""
        try:
            self._done(operation, number)
        except Crash:
            with suppress(Exception):
                self.ledger(number).close()
            self.handles[number] = self.opened(number)
        finally:
            self.crash = ""
            if self._armed is not None:
                vars(self._armed).pop("_commit", None)
                self._armed = None

    def _done(self, operation: str, number: int) -> list[Any]:
        before = len(self.handed)
        if operation == "close and open":
            self.reopen(number)
        elif operation == "load an older copy":
            self._load(number)
        else:
            with suppress(*_SAID):
                self.perform(operation, number)
        return self.handed[before:]

    def reopen(self, number: int) -> None:
        self.ledger(number).close()
        self.handles[number] = self.opened(number)

    def fresh(self) -> str:
        """A request id nobody has used."""
        self._count += 1
        return f"{os.getpid()} {self._count}"

    def crashing(self, ledger: Any) -> None:
        """Let the next commit of an entry end the process, if this step says so."""
        if self.crash not in ("crash before the commit", "crash before its record", "crash after it"):
            return
        session, real = ledger._session, ledger._session._commit
        self._armed = session

        def ends() -> None:
            if not session._tip.written:
                real()
                return
            beside = getattr(session, "_lock", None)  # the record of the newest entry; PostgreSQL keeps none
            if self.crash == "crash before its record" and beside is not None:
                beside.write = _dies
            if self.crash != "crash before the commit":
                real()
            raise Crash

        session._commit = ends

    def computing(self) -> None:
        """Called where rows are read: between the charge and the answer."""
        if self.crash == "crash before the answer":
            raise Crash

    def drain(self, chance: random.Random | None = None) -> None:
        """Every handle asks for all it can still get; or, by ``chance``, each once and one of them for all."""
        greedy = None if chance is None else chance.randrange(len(self.handles))
        for number in range(len(self.handles)):
            some = chance is not None and number != greedy
            for operation in [chance.choice(self.operations)] if chance and some else self.operations:
                self._done(operation, number)

    def end(self, *, verify: bool = True) -> None:
        """The chain is whole, and lets go of everything."""
        if verify:
            self.ledger(0).verify()
        for number in range(len(self.handles)):
            self.ledger(number).close()

    # -- all that can decide what happens next ---------------------------------------------------------------------

    def state(self) -> Any:
        """The chain, without names and hashes, what each handle knows, and what left.

        The handles of one asker may change places.
        """
        with closing(sqlite3.connect(self.place)) as file:  # by no handle: looking must teach none of them
            written = entries(file, "ORDER BY seq")
        chain = [
            (entry.kind, entry.analyst, entry.amount, entry.further, entry.detail[:2], self.shared(entry))
            for entry in written
        ]
        known = sorted(self.known(number) for number in range(len(self.handles)))
        return tuple(chain), tuple(known), self.told()

    def known(self, number: int) -> Any:
        """What a handle knows: how much of the chain it has seen and added up, and its fault."""
        session = self.ledger(number)._session
        return session._tip.seen[0], session._tip._counted[0], str(session._fault)

    def shared(self, entry: Any) -> str | None:
        """A request id that may come again."""
        return entry.request_id if entry.request_id in ("main", "pure") else None

    def told(self) -> Any:
        """What left, in any order."""
        return tuple(sorted(map(str, self.handed)))

    # -- a copy of the file, put back ------------------------------------------------------------------------------

    def _copy(self) -> bytes | None:
        return self.place.read_bytes() if isinstance(self.place, Path) and self.place.exists() else None

    def _load(self, number: int) -> None:
        """The file as it was at the start is put in place of the newest. If anything was entered since, it is refused;
        then the newest is put back."""
        newest = self._copy()
        if self._saved is None or newest is None:
            return
        entered = self.ledger(number).head()[0]
        self.place.write_bytes(self._saved)
        try:
            again = self.opened(number)
        except LedgerCorrupt:
            pass
        else:
            self.handles[number], again = again, self.handles[number]
            self.ledger(number).close()
            self.handles[number] = again
            assert not entered, "an older copy was taken for the newest"
        self.place.write_bytes(newest)


def _forked(work: Callable[[], list[Any]]) -> list[Any]:
    """What ``work`` returned in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            told = []
            with suppress(LedgerUnavailable):
                told = work()
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(told, pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    told: list[Any] = pickle.loads(said)
    return told


# -- a curator and its pocket ------------------------------------------------------------------------------------------

PROMISE = dd.Budget(epsilon=1, delta=1e-6)
_SCHEMA = dd.Schema({"x": dd.Integer(0, 1)})
_TABLE = dd.Table({"x": np.arange(4) % 2}, _SCHEMA, name="t")
_PLANS = Plans(_SCHEMA)


class Told(dd.Curator):
    """A curator that tells its world what it hands out, and dies where the world says so."""

    world: World

    def _charged(self, request: Any, work: Any, restore: Any) -> Any:
        world, drawn = self.world, []

        def watched(bill: Any) -> Any:
            world.computing()
            drawn.append(work.cost)
            return work.compute(bill)

        result = super()._charged(request, replace(work, compute=watched), restore)
        world.handed += drawn
        return result

    def purely(self) -> Any:
        pure = super().purely()
        if pure is not None:
            pure.world, pure._plans = self.world, _PLANS  # type: ignore[attr-defined]
        return pure


class ToldInParts(Told):
    """A curator that tells what it hands out of what is paid for once: of which series, and which part."""

    def _charged(self, request: Any, work: Any, restore: Any) -> Any:
        if work.part is None:
            return super()._charged(request, work, restore)
        world, drawn = self.world, []

        def watched(bill: Any) -> Any:
            world.computing()
            series = f"{work.part.series} of {self._analyst}"
            drawn.append((series, work.part.name, work.cost, work.part.cost))
            return work.compute(bill)

        result = dd.Curator._charged(self, request, replace(work, compute=watched), restore)
        world.handed += drawn
        return result


class CuratorWorld(World):
    """Curators on one (epsilon, delta) budget; the last handle is of another analyst."""

    operations = ("ask", "ask by a shared name", "ask for all", "pay by a shared name", "ask the pocket")

    promise = PROMISE

    def opened(self, number: int) -> tuple[Told, Told | None]:
        curator = Told(_TABLE, self.promise, self.place, analyst=self.analyst(number), create=True)
        curator.world, curator._plans = self, _PLANS  # what is compiled is public, and no part of any history
        return curator, curator.purely()

    def analyst(self, number: int) -> str:
        return "bob" if number == 2 else "ann"

    def ledger(self, number: int) -> Any:
        return self.handles[number][0].ledger

    def perform(self, operation: str, number: int) -> None:
        curator, pocket = self.handles[number]
        self.crashing(curator.ledger)
        if operation == "ask":
            curator.ask("x", share=Fraction(3, 5), request_id=self.fresh())
        elif operation == "ask by a shared name":
            curator.ask("x", share=Fraction(3, 5), request_id="main")
        elif operation == "ask for all":
            curator.ask("x", share=1, request_id=self.fresh())
        elif pocket is not None and operation == "pay by a shared name":
            pocket.ask("x", epsilon=Fraction(3, 10), request_id="pure")
        elif pocket is not None and operation == "ask the pocket":
            pocket.ask("x", epsilon=Fraction(3, 5), request_id=self.fresh())

    def kept(self) -> bool:
        """All of it within rho (or mu^2), or all of it pure and within epsilon."""
        pure = [cost.epsilon for cost in self.handed]
        return _within_promise(self.handed, self.promise) or (None not in pure and sum(pure) <= 1)

    def known(self, number: int) -> Any:
        """What a handle knows: whose it is, how much of the chain it has seen and added up, and its fault."""
        curator, pocket = self.handles[number]
        assert pocket is None or set(vars(pocket.ledger)) == {"_outer", "_analyst", "genesis"}, "it has a memory"
        assert set(vars(curator)) == _CURATOR, "it has a memory"
        return self.analyst(number), pocket is None, *super().known(number)


class SeriesWorld(CuratorWorld):
    """Curators that pay once for all periods, and tell them one by one; what was lost may be drawn again, for more."""

    operations = (
        "ask",
        "ask by a shared name",
        "tell a period",
        "tell the next",
        "tell one once more",
        "tell all dearer",
    )

    def opened(self, number: int) -> tuple[Told, None]:
        curator = ToldInParts(_TABLE, PROMISE, self.place, analyst=self.analyst(number), create=True)
        curator.world, curator._plans = self, _PLANS
        return curator, None

    def perform(self, operation: str, number: int) -> None:
        curator = self.handles[number][0]
        if not operation.startswith("tell"):
            super().perform(operation, number)
            return
        self.crashing(curator.ledger)
        period, again = int("next" in operation), int("more" in operation)
        share = Fraction(1, 5) if "dearer" in operation else Fraction(1, 10)
        curator.run(Running("x", (0.0, 1.0, 2.0), 0, period, again), share=share, request_id=self.fresh())

    def kept(self) -> bool:
        """Each series is paid for once, each of its parts drawn once, and each further draw paid for by itself."""
        parts = [handed for handed in self.handed if isinstance(handed, tuple)]
        once = {(series, name) for series, name, _, _ in parts}
        assert len(once) == len(parts), "a part was drawn twice"
        whole = {series: cost.rho for series, _, cost, _ in parts}
        rho = sum(whole.values()) + sum(own.rho for _, _, _, own in parts)
        rho += sum(handed.rho for handed in self.handed if not isinstance(handed, tuple))
        assert PROMISE.rho is not None
        return bool(rho <= PROMISE.rho)


def _within_promise(handed: list[Any], promise: dd.Budget) -> bool:
    """Whether the main amount is kept: of what has no price in the budget's unit, nothing may leave."""
    if promise.unit == "rho":
        return bool(sum(cost.rho for cost in handed) <= (promise.rho or 0))
    prices = [cost.mu_squared for cost in handed]
    return None not in prices and bool(sum(prices) <= (promise.squared or 0))


class GaussianWorld(CuratorWorld):
    """The same of a budget that counts in mu^2; what is pure is paid by the price of its epsilon."""

    promise = dd.Budget(epsilon=1, delta=1e-6, accountant="gaussian")
    operations = (*CuratorWorld.operations, "ask purely", "choose")

    def perform(self, operation: str, number: int) -> None:
        curator, _ = self.handles[number]
        if operation == "ask purely":
            self.crashing(curator.ledger)
            curator.ask("x", epsilon=Fraction(1, 8), request_id=self.fresh())
        elif operation == "choose":
            self.crashing(curator.ledger)
            curator.select(["x = 0", "x = 1"], share=Fraction(2, 5), request_id=self.fresh())
        else:
            super().perform(operation, number)


_CURATOR = set(vars(Told(_TABLE, PROMISE, analyst="ann"))) | {"world"}


# -- a dataset: joins, people, bounds and keys that nobody listed ------------------------------------------------------

PEOPLE = dd.Budget(epsilon=1, delta=1e-6, keys=1e-7)
_WHO = np.array(["a", "a", "b", "c"], dtype=object)
_UNIT = dd.Unit("who", 2)
_TABLES = {
    "visits": dd.Table(
        {"who": _WHO, "cost": np.arange(4), "word": np.array(["x", "y", "x", "x"], dtype=object)},
        dd.Schema({"cost": dd.Integer(0, 3), "word": dd.Text(2)}),
        unit=_UNIT,
        neighbours="add-remove",
        name="visits",
    ),
    "homes": dd.Table(
        {"who": _WHO[1:], "rooms": np.arange(3)},
        dd.Schema({"rooms": dd.Integer(0, 3)}),
        unit=_UNIT,
        neighbours="add-remove",
        name="homes",
    ),
}
_JOINED = "visits JOIN homes ON visits.who = homes.who"
_INNER = "SELECT who, LEAST(SUM(cost), 3) AS cost FROM visits GROUP BY who"
_APART = "SELECT MEDIAN(cost), SUM(cost), COUNT(DISTINCT who) FROM visits"
_WITHIN = together(_TABLES, "who")


class ToldDataset(Told):
    """A curator whose other oracles, of joins and of people, tell the same world."""

    def beside(self, table: Any, ledger: Any = None) -> Any:
        made = super().beside(table, ledger)
        made.world = self.world
        return made

    def purely(self) -> Any:
        """One pocket, whichever table it is asked of."""
        return dd.Curator.purely(self)


class DatasetWorld(World):
    """Curators of a dataset: whatever oracle is made of them, rho and the delta of keys are spent in one place."""

    operations = (
        "ask a join",
        "ask of people",
        "ask under bounds",
        "find keys",
        "find keys by a shared name",
        "find keys in rounds",
        "find keys for all",
        "find all numbers there are",
        "ask several mechanisms",
        "ask the pocket of a join",
        "find all numbers from the pocket",
        "ask",
    )

    promise = PEOPLE

    def opened(self, number: int) -> ToldDataset:
        curator = ToldDataset(_WITHIN["visits"], self.promise, self.place, analyst=self.analyst(number), create=True)
        curator.world = self
        return curator

    def analyst(self, number: int) -> str:
        return "bob" if number == 2 else "ann"

    def ledger(self, number: int) -> Any:
        return self.handles[number].ledger

    def perform(self, operation: str, number: int) -> None:
        curator, share = self.handles[number], Fraction(2, 5)
        self.crashing(curator.ledger)
        key = "main" if "shared" in operation else self.fresh()
        if operation == "ask a join":
            curator.sql(f"SELECT SUM(rooms) FROM {_JOINED}", share=share, request_id=key)
        elif operation == "ask of people" and number:  # which a clip does too
            curator.sql("SELECT SUM(cost) FROM visits OPTIONS (clip = 3)", share=share, request_id=key)
        elif operation == "ask of people":
            curator.persons(_INNER).ask("cost", share=share, request_id=key)
        elif operation == "ask under bounds":
            curator.bounded(max_rows=1).ask("cost", share=share, request_id=key)
        elif operation == "ask":
            curator.ask("cost", share=share, request_id=key)
        elif operation == "find keys in rounds":
            stated = {"share": Fraction(1, 10), "request_id": key}
            release.keys(curator, "word", delta=Fraction(4, 10**8), each=2, method="rounds", **stated)
        elif operation == "find keys for all":
            release.keys(curator, "word", delta=Fraction(4, 10**8), share=1, request_id=key)
        elif operation == "find all numbers there are":
            release.keys(curator, "cost", share=share, request_id=key)
        elif operation == "ask several mechanisms":
            curator.sql(_APART, share=share, request_id=key)
        elif "pocket" in operation:
            self._from_pocket(curator.purely(), operation, key)
        else:
            release.keys(curator, "word", delta=Fraction(4, 10**8), share=Fraction(1, 10), request_id=key)

    def _from_pocket(self, pocket: Any, operation: str, key: str) -> None:
        if pocket is None:
            return
        if "numbers" in operation:
            release.keys(pocket, "cost", epsilon=Fraction(2, 5), request_id=key)
        else:
            pocket.sql(f"SELECT SUM(rooms) FROM {_JOINED}", epsilon=Fraction(3, 5), request_id=key)

    def kept(self) -> bool:
        """Both amounts: within rho or mu^2, or all of it pure and within epsilon; and within the delta for keys."""
        pure = [cost.epsilon for cost in self.handed]
        whole = _within_promise(self.handed, self.promise) or (None not in pure and sum(pure) <= 1)
        return bool(whole and sum(cost.delta for cost in self.handed) <= self.promise.keys)


class GaussianDatasetWorld(DatasetWorld):
    """The same in mu^2 and delta."""

    promise = dd.Budget(epsilon=1, delta=1e-6, keys=1e-7, accountant="gaussian")


# -- rows that randomise themselves ------------------------------------------------------------------------------------

_ROWS = dd.Table({"x": np.arange(6) % 2}, _SCHEMA, name="rows")


class Telling:
    """A local oracle that tells its world which blocks reported, at what price."""

    world: World

    def _means(self, offer: Any) -> Any:
        self.world.computing()
        self._reported = offer.tiers
        return super()._means(offer)  # type: ignore[misc]

    def _charged(self, request: Any, offer: Any, compute: Any, restore: Any) -> Any:
        self._reported: Any = ()
        result = super()._charged(  # type: ignore[misc]
            request, offer, compute, restore
        )
        self.world.handed += [(tier.amount, tier.blocks) for tier in self._reported]
        return result


class ToldLocal(Telling, dd.Local):
    """Rows that report to anyone."""


class ToldShuffled(Telling, dd.Shuffled):
    """Rows that report to a shuffler."""


class LocalWorld(World):
    """Local oracles over the same rows; each block of rows has the whole epsilon once."""

    operations = ("ask", "ask by a shared name", "ask for all", "ask little")

    def opened(self, number: int) -> Any:  # noqa: ARG002 - all handles are alike
        oracle = ToldLocal(_ROWS, 1, self.place, analyst="ann", create=True)
        oracle.world = self
        return oracle

    def ledger(self, number: int) -> Any:
        return self.handles[number].ledger

    def perform(self, operation: str, number: int) -> None:
        oracle = self.handles[number]
        self.crashing(oracle.ledger)
        share = {"ask for all": Fraction(1), "ask little": Fraction(1, 10)}.get(operation, Fraction(2, 5))
        oracle.ask("x", share=share, request_id="main" if "shared" in operation else self.fresh())

    def kept(self) -> bool:
        paid = np.zeros(8, dtype=object)
        for amount, blocks in self.handed:
            paid[list(blocks)] += amount
        return bool(paid.max() <= dd.Budget(epsilon=1).capacity)


class ShuffledWorld(LocalWorld):
    """Shuffled oracles over the same rows: every row answers every question, so none is left among few."""

    def opened(self, number: int) -> Any:  # noqa: ARG002 - all handles are alike
        oracle = ToldShuffled(_ROWS, 1, 1e-6, self.place, analyst="ann", create=True)
        oracle.world = self
        return oracle

    def kept(self) -> bool:
        return super().kept() and all(blocks == (0,) for _, blocks in self.handed)


# -- one person's account on a device ----------------------------------------------------------------------------------

_INVITED = {
    amount: invitation(as_query("x > 0"), _SCHEMA, amount) for amount in (Fraction(2, 5), Fraction(1), Fraction(1, 10))
}


_MANY = invitation(Partition(bucket("x", [i / 8 for i in range(9)]), Value(as_expr("1"))), _SCHEMA, Fraction(3, 10))


class _Dying(SecureBits):
    """Randomness that ends the process where the world says so: after the charge, before the report."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def words(self, n: int) -> Any:
        self._world.computing()
        return super().words(n)


class ClientWorld(World):
    """Clients of one person: by whatever copies, texts and forks, all reports together cost at most 1."""

    operations = (
        "report",
        "report with all",
        "report little",
        "report by a saved one",
        "report by a pickle",
        "report for good",
    )

    def opened(self, number: int) -> Client:  # noqa: ARG002 - all handles are alike
        new = not self.place.exists()
        return Client(1 if new else None, account=self.place, create=new, bits=_Dying(self))

    def ledger(self, number: int) -> Any:
        return self.handles[number]._account._ledger

    def perform(self, operation: str, number: int) -> None:
        client = self.handles[number]
        self.crashing(self.ledger(number))
        if "saved" in operation:
            client = Client.load(client.save())
        elif "pickle" in operation:
            client = pickle.loads(pickle.dumps(client))
        amount = Fraction(1) if "all" in operation else Fraction(1, 10) if "little" in operation else Fraction(2, 5)
        if operation == "report for good":
            amount = Fraction(3, 10)
            self.handed.append((amount, client.report(_MANY, {"x": 1}, permanent="2026")))
            return
        client.report(_INVITED[amount], {"x": 1})
        self.handed.append(amount)

    def shared(self, entry: Any) -> str | None:
        """Permanent reports come again."""
        return entry.request_id if entry.analyst == PERMANENT else None

    def told(self) -> Any:
        """Of permanent reports, how many different ones."""
        amounts = sorted(str(handed) for handed in self.handed if not isinstance(handed, tuple))
        return tuple(amounts), len({handed for handed in self.handed if isinstance(handed, tuple)})

    def kept(self) -> bool:
        """Of permanent reports each different one is paid for; with some two hundred to draw from, few are alike."""
        permanent = {handed for handed in self.handed if isinstance(handed, tuple)}
        others = sum(handed for handed in self.handed if not isinstance(handed, tuple))
        return bool(others + sum(amount for amount, _ in permanent) <= 1)


def scratch(folder: Path) -> Path:
    """A place for a ledger of its own."""
    return folder / uuid.uuid4().hex


def clean(place: Any) -> None:
    """Remove a file and what lies beside it."""
    if isinstance(place, Path):
        for file in place.parent.glob(place.name + "*"):
            file.unlink() if file.is_file() else shutil.rmtree(file)
