"""Twins: two neighbouring tables behind one oracle, to see whether anything but the noised numbers tells them apart.

``Twins`` is an oracle, so every request, learner and release can be run on it unchanged. Each request goes to a curator
over D and to one over D', with the same frozen noise. What D answers is what the asker sees, and the next request is
the same for both: the record-and-play test of adaptive algorithms (HOSTILE, methods 5). At each request it is an
``AssertionError`` if

* anything observable differs: refusal and its text, price, shape, keys, error bars, bill, charge (every byte of the
  ledger's entry, under a stopped clock) or the order of charging, drawing and reading (R1);
* the integers that go into a mechanism differ by more than the sensitivity it was told: in L1 and L2, in units of the
  noise weights, for sums; in L-infinity for a choice (R3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from numpy.typing import NDArray

from dodona.engines.engine import Engine, Pick, Respond
from dodona.engines.joined import Joined
from dodona.engines.keys import Counting, KeyCounts
from dodona.engines.table import Table
from dodona.errors import DodonaError
from dodona.oracles.answer import Answer, Finding, Price, Selection
from dodona.oracles.curator import Curator
from dodona.oracles.exact import Exact
from dodona.oracles.groups import Atoms
from dodona.oracles.noise import ballot_for
from dodona.oracles.oracle import Oracle, Request
from dodona.oracles.view import persons_of
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import MAIN, Charge
from dodona.privacy.ledger.sqlite import SqliteLedger
from dodona.query.plan import Plan
from dodona.query.program import Program
from dodona.query.schema import Schema
from dodona.query.select import Scope, Source
from dodona.query.sensitivity import Norms
from dodona.testing.engines import PassingEngine
from dodona.testing.oracles import SeededBits

Result = TypeVar("Result", Answer, Price, Selection, Finding)
_STOPPED = datetime(2000, 1, 1, tzinfo=UTC)


def drawing(examples: int) -> settings:
    """So many examples, drawn and never shrunk: each is dear, and what fails says enough by itself."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )


class Twins(Oracle):
    """``first`` and ``second``: tables alike in schema, name, population and neighbours. ``requests`` counts checks."""

    def __init__(self, first: Table, second: Table, budget: Budget, *, seed: int = 0) -> None:
        self._twins = (_Twin(first, budget, seed), _Twin(second, budget, seed))
        self._budget, self._seed = budget, seed
        self.requests = 0
        _same("public rows", *(table.public_rows for table in (first, second)))
        _same("schema and names", *((t.schema, t.name, t.population, t.neighbours) for t in (first, second)))

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self._twins[0].curator.schema

    @property
    def rows(self) -> int | None:
        """The public number of rows."""
        return self._twins[0].curator.rows

    @property
    def name(self) -> str:
        """What FROM calls the tables."""
        return self._twins[0].curator.name

    @property
    def whose(self) -> str | None:
        """The column of the tables' unit."""
        return self._twins[0].curator.whose

    def joined(self, source: Source) -> tuple[Oracle, Scope]:
        """Twins over the tables of both datasets as they are joined; refused alike."""
        found = [_joined(twin.table, source) for twin in self._twins]
        if isinstance(found[0], DodonaError) or isinstance(found[1], DodonaError):
            _same("the refusal of a join", *map(str, found))
            raise found[0]  # type: ignore[misc]
        self.requests += 1
        return Twins(found[0].table, found[1].table, self._budget, seed=self._seed), found[0].scope

    def persons(self, select: str, **stated: Any) -> Oracle:
        """Twins over the people that are made of the rows of each."""
        made: list[Table] = []

        def kept(table: Table) -> Oracle:
            made.append(table)
            return Exact(table)

        def both(table: Table) -> Oracle:
            return Twins(table, made[0], self._budget, seed=self._seed)

        first, second = self._twins
        persons_of(self, second.table, select, kept, **stated)
        self.requests += 1
        return persons_of(self, first.table, select, both, **stated)

    def answer(self, request: Request) -> Answer:
        """D's answer, once D' has been seen to differ within the sensitivity and in nothing else."""
        return self._both(lambda twin: twin.curator.answer(request), _without_numbers, self._sums(request))

    def estimate(self, request: Request) -> Price:
        """The price, which must not read a row."""
        return self._both(lambda twin: twin.curator.estimate(request), repr, _nothing_was_read)

    def choose(self, request: Request, mechanism: str) -> Selection:
        """D's choice; the scores of D and D' must lie within the sensitivity of each other."""

        def close(inputs: list[list[NDArray[Any]]]) -> None:
            ballot = ballot_for(request.query, self._twins[0].table)
            for a, b in zip(*inputs, strict=True):
                gap = np.abs(_whole(ballot.tally(a)) - _whole(ballot.tally(b)))
                assert all(Fraction(int(g)) <= ballot.sensitivity for g in gap), "a score moves too far"

        def observable(found: Selection) -> str:
            return repr(replace(found, index=0, question="", cost=replace(found.cost, hash=None)))

        return self._both(lambda twin: twin.curator.choose(request, mechanism), observable, close)

    def perform(self, request: Request) -> Finding:
        """D's finding. Its inputs are rows, not sums: only what can be observed is compared; of keys, how far one
        person moves the totals by key as well.
        """

        def observable(found: Finding) -> str:
            return repr(replace(found, value=None, cost=replace(found.cost, hash=None)))

        def close(_inputs: Any) -> None:
            first, second = (twin.keyed for twin in self._twins)
            assert len(first) == len(second), "how often keys are counted differs"
            for (how, here), (other, there) in zip(first, second, strict=True):
                if how == other:  # what the rounds before have shown is drawn, and may differ
                    _one_person(how, here, there, self._twins[0].table.neighbours)

        return self._both(lambda twin: twin.curator.perform(request), observable, close)

    def _sums(self, request: Request) -> Callable[[list[list[NDArray[Any]]]], None]:
        def close(inputs: list[list[NDArray[Any]]]) -> None:
            if any(inputs):
                plan = self._twins[0].curator._priced(request)[0]
                norms = self._twins[0].curator._norms(request, plan)
                for a, b in zip(*inputs, strict=True):
                    within_reach(plan, norms, a, b)

        return close

    def _both(
        self,
        act: Callable[[_Twin], Result],
        observable: Callable[[Any], str],
        inputs_are_close: Callable[[list[list[NDArray[Any]]]], None],
    ) -> Result:
        self.requests += 1
        first, second = self._twins
        results = [twin.watched(act) for twin in self._twins]
        seen = [f"{type(r).__name__}: {r}" if isinstance(r, DodonaError) else observable(r) for r in results]
        _same("what the asker sees", *seen)
        _same("the order of charging, drawing and reading", first.calls, second.calls)
        _same("the charges", first.charges, second.charges)
        inputs_are_close([first.inputs, second.inputs])
        if isinstance(results[0], DodonaError):
            raise results[0]
        return results[0]


def _joined(table: Table, source: Source) -> Joined | DodonaError:
    try:
        assert table.tables is not None
        return table.tables.join(source)
    except DodonaError as error:
        return error


class _Twin:
    """A curator whose clock stands still, whose noise is frozen and whose every step is noted."""

    def __init__(self, table: Table, budget: Budget, seed: int) -> None:
        self.table = table
        self.calls: list[str] = []
        self.charges: list[Charge] = []
        self.inputs: list[NDArray[Any]] = []
        self.keyed: list[tuple[Counting, dict[Any, int]]] = []
        about = {"neighbours": table.neighbours, "population": table.population}
        ledger = SqliteLedger.open(None, budget, atoms=Atoms(table.schema).count, clock=lambda: _STOPPED, **about)  # type: ignore[arg-type]
        watched: Any = object.__new__(Table)
        watched.__dict__.update(vars(table))
        watched.engine = _Engine(table.engine, self)
        self.curator = Curator.sharing(watched, _Ledger(ledger, self), analyst="twin")  # type: ignore[arg-type]
        self.curator._bits = _Bits(SeededBits(seed), self)
        self._requests = 0

    def watched(self, act: Callable[[_Twin], Result]) -> Result | DodonaError:
        """The result, or the refusal, of one act, and what was noted meanwhile."""
        self.calls.clear()
        self.charges.clear()
        self.inputs.clear()
        self.keyed.clear()
        try:
            return act(self)
        except DodonaError as error:
            return error
        finally:
            self.calls[:] = [call for call, _ in groupby(self.calls)]  # how often a coin is flipped is not promised


class _Ledger:
    """Notes charges; request ids are numbered, so that entries can be equal to the last byte of their hash."""

    def __init__(self, ledger: SqliteLedger, twin: _Twin) -> None:
        self.genesis, self._ledger, self._twin = ledger.genesis, ledger, twin
        self._number = 0

    def charge(self, *, request_id: str, **fields: Any) -> Charge:
        self._number += 1
        named = request_id if len(request_id) != 32 else f"request {self._number}"  # 32: the curator's own, random
        charge = self._ledger.charge(request_id=named, **fields)
        self._twin.calls.append("charge")
        # The chain holds the answers, which do differ; and twins are two files, of which a charge names its own.
        detail = re.sub(r"; table=[0-9a-f]{16}", "", charge.entry.detail)
        kept = replace(charge.entry, detail=detail, previous="", hash="", salt="")
        self._twin.charges.append(replace(charge, entry=kept, receipt=replace(charge.receipt, hash=""), answer=None))
        return charge

    def store_answer(self, seq: int, answer: str) -> None:
        self._twin.calls.append("store")
        self._ledger.store_answer(seq, answer)

    def left(self, scope: tuple[int, ...] | None = None, account: str = MAIN) -> int:
        return self._ledger.left(scope, account=account)


class _Engine(PassingEngine):
    def __init__(self, engine: Engine, twin: _Twin) -> None:
        super().__init__(engine)
        self._twin = twin

    def check(self) -> None:
        self._twin.calls.append("check")
        super().check()

    def totals(self, program: Program) -> NDArray[Any]:
        self._twin.calls.append("read")
        found = super().totals(program)
        self._twin.inputs.append(found)
        return found

    def dropped(self, most: int) -> int:
        found = super().dropped(most)
        self._twin.calls.append("read")
        self._twin.inputs[-1] = np.append(self._twin.inputs[-1], found)
        return found

    def people_by_key(self, column: str, how: Counting) -> KeyCounts:
        self._twin.calls.append(f"read keys of {column}: {how.most}, {how.weights}")
        found = super().people_by_key(column, how)
        self._twin.keyed.append((how, dict(zip(*(part.tolist() for part in found), strict=True))))
        return found

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        self._twin.calls.append("read rows")
        return super().reports(program, pick, respond)


class _Bits:
    def __init__(self, bits: SeededBits, twin: _Twin) -> None:
        self._bits, self._twin = bits, twin

    def words(self, n: int) -> NDArray[np.uint64]:
        self._twin.calls.append("draw")
        return self._bits.words(n)


def _one_person(how: Counting, first: dict[Any, int], second: dict[Any, int], neighbours: str) -> None:
    """Totals by key move by what one person may add, of two where one is replaced."""
    gaps = [first.get(key, 0) - second.get(key, 0) for key in {**first, **second}]
    moved = [gap for gap in gaps if gap]
    people = 2 if neighbours == "replace" else 1
    assert len(moved) <= people * how.most, "a person moves more totals than was said"
    most = how.weights[0] ** 2 if how.weights else how.most
    assert sum(gap * gap for gap in moved) <= people * most, "a person moves the totals by key too far"
    assert people == 2 or len({gap > 0 for gap in moved}) <= 1, "who comes takes from what others add"


def within_reach(plan: Plan, reach: Norms, first: NDArray[Any], second: NDArray[Any]) -> None:
    """AssertionError unless two vectors of totals differ by at most ``reach``, in L1, L2 and L-infinity."""
    assert (first.shape, first.dtype.kind) == (second.shape, second.dtype.kind), "the shape of the totals differs"
    weights = {int(i): weight for weight, places in plan.places.items() for i in places}
    gaps = [Fraction(abs(int(a) - int(b))) / weights[i] for i, (a, b) in enumerate(zip(first, second, strict=True))]
    assert sum(gaps) <= reach.l1, f"one row moves the totals by {float(sum(gaps))} in L1, not {float(reach.l1)}"
    assert sum(g * g for g in gaps) <= reach.l2_squared, "one row moves the totals too far in L2"
    assert max(gaps, default=Fraction(0)) <= reach.linf, "one row moves a total too far"


def _without_numbers(answer: Answer) -> str:
    """Everything an answer shows but the noised numbers themselves."""
    total = np.asarray(answer.total)
    blank = replace(answer, total=0.0, spread=0.0, margin=0.0, cost=replace(answer.cost, hash=None))
    return f"{blank!r} {total.shape} {total.dtype} {answer.spread!r} {answer.margin!r}"


def _nothing_was_read(inputs: list[list[NDArray[Any]]]) -> None:
    assert inputs == [[], []], "a price reads rows"


def _whole(values: NDArray[Any]) -> NDArray[Any]:
    return np.array([int(v) for v in values], dtype=object)


def _same(what: str, first: object, second: object) -> None:
    assert first == second, f"{what} tells the tables apart: {first!r} against {second!r}"
