"""How a curator runs what no statistical query can express: one interpreter per kind of procedure.

An interpreter compiles first, so that every refusal comes before the charge; what it then does to rows is private at
the stated cost whatever they hold (``mechanisms/parity.md``, ``mechanisms/threshold.md``), and cannot fail for what
they hold.

Keys that nobody listed are counted where the rows are, and shown where enough people have them. Which noise, and
whether people with many keys weigh less in each: of all that the effort pays for, what is predicted to show most.
Nothing of a key that is not shown leaves the process; the order of those that are follows from what is shown of them.
Without a delta all whole numbers within a column's bounds are keys, and those that nobody has are drawn as if each had
got noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine
from dodona.engines.joined import restated
from dodona.engines.keys import Counting
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.mechanisms import Bits, DiscreteLaplace
from dodona.mechanisms.mechanism import AdditiveNoise
from dodona.mechanisms.parity import COIN, ParitySolver, Roles, Words, packed, parity, solve
from dodona.mechanisms.rounded import gaussian_in
from dodona.mechanisms.threshold import Threshold, best
from dodona.mechanisms.weights import EARLY, Rounds, Shown, predicted
from dodona.oracles.answer import Bill, Price
from dodona.oracles.apart import Part
from dodona.oracles.effort import Effort
from dodona.oracles.noise import pure_epsilon
from dodona.oracles.oracle import Request
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.budget import Budget
from dodona.privacy.cost import Cost
from dodona.query.candidates import OpenKeys, ParityProcedure, Procedure
from dodona.query.expr import Call, Literal
from dodona.query.plan import Plan, compile_query
from dodona.query.schema import Category, Column, Date, Flag, Integer, Real, Schema, Timestamp
from dodona.query.sensitivity import Norms
from dodona.query.statistic import Query, Stack, Value
from dodona.query.words import MOST_CATEGORIES


@dataclass(frozen=True)
class Bought:
    """What an effort pays for: ``run`` is private at ``cost``. ``noise`` and ``told``: what ``price`` says of it."""

    name: str
    cost: Cost
    run: Callable[[Engine, Bits], Any]
    noise: AdditiveNoise | None = None
    told: str = ""
    part: Part | None = None

    def price(self, request: Request, rows: int | None, bill: Bill, units: int) -> Price:
        """What it costs, and the error of each number it gives, where it says so."""
        if self.noise is None:
            raise Unsupported(f"{request.query} has no price but what it is given: its error is a matter of plan().")
        confidence = request.effort.confidence
        error = self.noise.stddev, float(self.noise.quantile(confidence))
        return Price(str(request.query), bill, *error, confidence, rows, self.told, affordable=False, units=units)


@dataclass(frozen=True)
class Prepared:
    """A procedure compiled: ``buy`` says what an effort pays for, ``exact`` adds no noise."""

    buy: Callable[[Effort, Budget], Bought]
    exact: Callable[[Engine], Any]


_INTERPRETERS: dict[type, Callable[[Any, Table], Prepared]] = {}
Interpreter = TypeVar("Interpreter", bound=Callable[..., Prepared])


def interprets(kind: type[Procedure]) -> Callable[[Interpreter], Interpreter]:
    """Above a function: it prepares this kind of procedure."""

    def keep(interpreter: Interpreter) -> Interpreter:
        _INTERPRETERS[kind] = interpreter
        return interpreter

    return keep


def prepared(procedure: Query, table: Table) -> Prepared:
    """The procedure, by the interpreter for its kind."""
    from dodona.oracles import instalments  # noqa: F401 - which knows this file

    interpreter = _INTERPRETERS.get(type(procedure))
    if interpreter is None:
        raise BadQuery(f"run() takes a procedure; {type(procedure).__name__} is asked with ask() or select().")
    return interpreter(procedure, table)


def epsilon_of(effort: Effort, budget: Budget) -> Fraction:
    """The pure epsilon an effort buys; an epsilon-private run costs rho = epsilon^2/2."""
    if effort.kind == "tolerance":
        raise BadEffort(
            "a procedure is given share=, epsilon= or rho=; how good it will be is a matter of rows: plan()."
        )
    return pure_epsilon(effort, budget)


@interprets(ParityProcedure)
def _parity(procedure: ParityProcedure, table: Table) -> Prepared:
    schema = table.schema
    never_null = [Call("coalesce", (bit, Literal(False))) for bit in (*procedure.bits, procedure.label)]
    for condition in never_null:
        if compile_query(Value(condition), schema, level=True).reach.size.linf > 1:
            raise BadQuery(f"a parity takes conditions. Got {condition}.")
    plan = compile_query(Stack(tuple(map(Value, never_null))), schema, level=True)
    if not table.engine.lasting_order:
        raise Unsupported("a procedure reads rows by their place, and these have none that lasts: store them.")
    unit = table.unit
    if unit is not None and unit.limit is None:
        raise Unsupported("a procedure sees the rows that count by the table's own max_rows: state it.")
    # Private at epsilon/k for each of the k rows of a unit, so at epsilon for the unit (group privacy).
    rows = 1 if unit is None or unit.limit is None else unit.limit

    def buy(effort: Effort, budget: Budget) -> Bought:
        epsilon = epsilon_of(effort, budget)
        return Bought(
            "ParityProcedure",
            Cost.pure(epsilon),
            lambda engine, bits: _amplified(procedure, plan, engine, epsilon / rows, bits),
        )

    return Prepared(buy, lambda engine: _consistent(procedure, plan, engine))


def _amplified(procedure: ParityProcedure, plan: Plan, engine: Engine, epsilon: Fraction, bits: Bits) -> dict[str, Any]:
    """A* of KLNRS section 4: candidates from disjoint parts, judged with discrete Laplace noise on another."""
    parts, repeats, unknowns = procedure.parts, procedure.repeats, len(procedure.bits)
    solver = ParitySolver(epsilon / repeats)
    whole = parts * procedure.part_rows + procedure.test_rows
    roles = Roles(parts, procedure.part_rows * COIN // whole).draw(engine.rows(), bits)
    chosen = np.stack([solver.picked(len(roles), bits) for _ in range(repeats)]) & (roles < parts)
    needed = chosen.any(axis=0) | (roles == parts)
    rows = _read(plan, engine, needed)
    # Where the number of rows is private, some may have gone since it was counted: nothing may tell.
    roles, chosen = roles[needed][: len(rows)], chosen[:, needed][:, : len(rows)]
    found = [
        solver.finish(rows[(roles == part) & chosen[repeat]], unknowns, bits)
        for part in range(parts)
        for repeat in range(repeats)
    ]
    noise = DiscreteLaplace.for_epsilon(len(found), epsilon).sample(len(found), bits)
    tests = rows[roles == parts]
    judged = [
        (_errors(tests, r) + int(extra), place)
        for place, (r, extra) in enumerate(zip(found, noise, strict=True))
        if r is not None
    ]
    if not judged:
        return _told_consistent(None, None)
    wrong, place = min(judged)
    return _told_consistent(found[place], wrong)


def _consistent(procedure: ParityProcedure, plan: Plan, engine: Engine) -> dict[str, Any]:
    """The classical learner: any r consistent with all rows, the smallest one; None where there is none."""
    rows = _read(plan, engine, np.ones(engine.rows(), dtype=np.bool_))
    solutions = solve(rows, len(procedure.bits))
    none = np.zeros(-(-len(procedure.bits) // 64), dtype=np.uint64)
    return _told_consistent(None, None) if solutions is None else _told_consistent(solutions.some(none), 0)


def _told_consistent(r: NDArray[np.bool_] | None, wrong: int | None) -> dict[str, Any]:
    return {"r": None if r is None else [int(bit) for bit in r], "wrong": wrong}


def _errors(rows: Words, r: NDArray[np.bool_]) -> int:
    """On how many rows r.x differs from the label: the parity of both together is odd."""
    return int(parity(rows, packed(np.append(r, True).reshape(1, -1))[0]).sum())


def _read(plan: Plan, engine: Engine, needed: NDArray[np.bool_]) -> Words:
    """The needed rows, bits first, label last, 64 to a word, in the table's order."""
    (block,) = plan.program.blocks

    def pick(start: int, stop: int) -> NDArray[np.intp]:
        return np.flatnonzero(needed[start:stop])

    def pack(vectors: Any, length: int) -> Words:
        columns = [np.broadcast_to(vectors[step][0], (length,)) != 0 for step in block.values]
        return packed(np.stack(columns, axis=1))

    parts = list(engine.reports(plan.program, pick, pack))
    empty = np.zeros((0, -(-len(block.values) // 64)), dtype=np.uint64)
    return np.concatenate([empty, *parts])


@interprets(OpenKeys)
def prepare_keys(asked: OpenKeys, table: Table) -> Prepared:
    """Refuses what could not be counted, before anything is charged."""
    name = table.schema.find(asked.column)
    if name is None:
        raise BadQuery(f"keys must be of a column of the schema. Got {asked.column!r}: {', '.join(table.schema)}.")
    kind = table.schema[name]
    if isinstance(kind, Category | Flag):
        raise BadQuery(f"{name!r} lists its values in the schema, so all of them are known: GROUP BY {name} is free.")
    if isinstance(kind, Real):
        raise BadQuery(f"{name!r} holds real numbers, of which hardly two people have the same: ask release.intervals.")
    if isinstance(kind, Date | Timestamp):
        raise BadQuery(f"{name!r} has a calendar, whose parts are known: GROUP BY a day, month or year of it is free.")
    if kind.public:
        raise BadQuery(f"{name!r} is public: its values are fixed and known, so nothing needs to be found.")
    if name in table.schema.lookups:
        raise BadQuery(f"{name!r} comes from a public table, so its values are known: GROUP BY {name} is free.")
    if table.unit is not None and table.unit.column is None:
        raise Unsupported("nobody knows whose rows these are, so nobody can say how many keys a person has.")
    engine = table.engine
    if not engine.counts_keys:
        raise Unsupported("this engine does not count people by the values of a column: store the rows as Parquet.")
    if table.unit is None and asked.each != 1:
        raise BadQuery(f"each must be 1 here: every row is a person of its own, with one {name}. Got {asked.each}.")
    if asked.method in ("weighted", "rounds") and (asked.each == 1 or not asked.delta):
        raise BadQuery(
            f"{asked.method} shares one weight among a person's keys, so it takes each= above 1 and a delta=. With one "
            "key a person, or noise on all keys that there can be, nothing finds more than method='threshold'."
        )
    both = table.neighbours == "replace"
    first, domain = _all_there_are(name, kind, asked)
    people = None if table.public_rows is None else max(2 * table.public_rows // (asked.each + 1), 1)
    all_of_them = Counting(asked.each)

    def buy(effort: Effort, budget: Budget) -> Bought:
        if domain:
            offer: Shown = best(_over_all(effort, budget, asked, both, domain))
        else:
            offer = _finding_most(_offers(effort, budget, asked, both), people)
        if isinstance(offer, Rounds):
            told = f"{offer.told}; one person's keys, at most {asked.each}, share one weight"
            run = lambda engine, bits: _in_rounds(engine, name, offer, bits)  # noqa: E731
            return Bought(offer.name, offer.cost(), run, offer.counts or offer.spread, told)
        told = f"shown from {offer.least:,} people on; one person adds 1 to at most {asked.each} key(s)"
        if domain:
            told += f"; of the {domain:,} keys there can be, each got noise"
        return Bought(
            f"{offer.noise.name} with a threshold",
            offer.cost(),
            lambda engine, bits: _shown(*engine.people_by_key(name, all_of_them), offer, first, bits),
            offer.noise,
            told,
        )

    def exact(engine: Engine) -> dict[str, Any]:
        values, counts = engine.people_by_key(name, all_of_them)
        return _told_keys(values, counts, None)

    return Prepared(buy, exact)


def _finding_most(offers: Iterable[Shown], people: int | None) -> Shown:
    """By the number of keys that is predicted; without a choice of ways nothing needs to be."""
    made = list(offers)
    plain = [offer for offer in made if isinstance(offer, Threshold)]
    ways: list[Shown] = [*([best(plain)] if plain else []), *(offer for offer in made if isinstance(offer, Rounds))]
    return ways[0] if len(ways) == 1 else max(ways, key=lambda way: predicted(way, people))


def _all_there_are(name: str, kind: Column, asked: OpenKeys) -> tuple[int, int]:
    """The first key and how many there can be, where all of them get noise; (0, 0) where nobody knows them."""
    if asked.delta:
        return 0, 0
    if not isinstance(kind, Integer):
        raise BadQuery(
            f"{name!r} is text, whose values nobody can count: state delta=, what keys may take of the budget's part "
            "for them. Without it keys are found of whole numbers only, whose bounds say which there are."
        )
    return int(kind.low), int(kind.high) - int(kind.low) + 1


def with_listed(table: Table, found: Synopsis) -> Table:
    """The table where the keys of a synopsis are a category. What was paid for may stand in a schema."""
    if table.tables is not None and table.name not in table.tables.private:
        raise Unsupported(
            "keys are of a table, not of several joined: ask the table itself, or Dataset.with_keys, and join then."
        )
    settings = found.body.settings()
    if found.body.kind != "Keys" or found.name != table.name:
        raise Unsupported(
            f"keys must be those that release.keys found in {table.name!r}. Got a synopsis of {found.name!r}, "
            f"{found.header.method}."
        )
    if settings["threshold"] is None:
        raise Unsupported(
            "keys must be those that a budget paid for. These were found without noise, so what one person alone has "
            "is among them: find keys with a curator's release.keys."
        )
    name, listed = settings["column"], settings["keys"]
    if table.schema.get(name) is None or isinstance(table.schema[name], Category):
        raise BadQuery(f"{name!r} must be a column whose keys are not listed yet. Columns: {', '.join(table.schema)}.")
    if not listed:
        raise Unsupported(f"no key of {name} stood out, so there are none to group by.")
    kind = table.schema[name]
    cleaning = {word: said for word, said in kind.describe().items() if word in ("fold", "trim")}
    return restated(table, Schema({**table.schema, name: Category(*listed, **cleaning)}))


def _offers(effort: Effort, budget: Budget, asked: OpenKeys, both: bool) -> Iterator[Shown]:
    if effort.kind == "tolerance":
        raise BadEffort("keys are found for share=, epsilon= or rho=; from how many people on is told by price().")
    budget.key_units(Cost(Fraction(0), Fraction(0), Fraction(asked.delta)))  # a pure budget has none, and says why
    if not 0 < asked.delta <= budget.keys:
        most, got = float(budget.keys), float(asked.delta)
        raise BadEffort(f"delta must be above 0 and at most the budget's part for keys, {most:g}. Got {got:g}.")
    if asked.method in ("", "threshold"):
        moved = asked.each * (2 if both else 1)
        pure = pure_epsilon(effort, budget, over=moved)
        yield Threshold.truncated(pure, asked.delta, asked.each, both)
        yield Threshold.laplace(pure, asked.delta, asked.each, both)
    if effort.kind == "epsilon":
        if asked.method not in ("", "threshold"):
            raise BadEffort(f"{asked.method} takes Gaussian noise, which has no pure epsilon: state share= or rho=.")
        return
    amount, family = effort.spends(budget), gaussian_in(budget.unit)
    if asked.method in ("", "threshold"):
        yield Threshold.gaussian(amount, asked.delta, asked.each, both, family)
    if asked.each > 1:
        for way, shares in (("weighted", (Fraction(1),)), ("rounds", (EARLY, 1 - EARLY))):
            if asked.method in ("", way):
                known = asked.delta, asked.each, both
                yield Rounds.gaussian(amount, *known, shares=shares, counts=asked.counts, family=family)


def _over_all(effort: Effort, budget: Budget, asked: OpenKeys, both: bool, domain: int) -> Iterator[Threshold]:
    if effort.kind == "tolerance":
        raise BadEffort("keys are found for share=, epsilon= or rho=; from how many people on is told by price().")
    moved = asked.each * (2 if both else 1)
    pure = DiscreteLaplace.for_epsilon(moved, pure_epsilon(effort, budget, over=moved))
    yield Threshold.over(pure, domain, asked.each, both)
    if effort.kind != "epsilon" and budget.unit != "epsilon":
        norms = Norms(Fraction(moved), Fraction(moved), Fraction(1))
        noise = gaussian_in(budget.unit).for_cost(norms, effort.spends(budget))
        yield Threshold.over(noise, domain, asked.each, both)


def _shown(
    values: NDArray[Any], counts: NDArray[np.int64], threshold: Threshold, first: int, bits: Bits
) -> dict[str, Any]:
    shown, noisy = threshold.show(counts, bits)
    keys = values[shown]
    if threshold.domain:
        ranks, more = threshold.strays(threshold.domain - len(values), bits)
        keys, noisy = np.concatenate([keys, _absent(values, first, ranks)]), np.concatenate([noisy, more])
    return _told_keys(keys, noisy, threshold)


def _in_rounds(engine: Engine, name: str, ways: Rounds, bits: Bits) -> dict[str, Any]:
    """Round by round; what is known already is on nobody's list. Counts are of the same keys of the same people as
    without noise, so that each has the error of its own noise and no other; one may be 0.
    """
    known: list[Any] = []
    for one in ways.rounds:
        values, sums = engine.people_by_key(name, Counting(one.keys, one.lone, tuple(known)))
        shown, noisy = one.show(sums, bits)
        keys = values[shown].tolist()
        known += [keys[i] for i in _highest_first(keys, noisy)]
    kept = known[:MOST_CATEGORIES]
    if ways.counts is None:
        return _keys_told(kept, [], len(known) - len(kept), ways)
    counted = dict(zip(*(part.tolist() for part in engine.people_by_key(name, Counting(ways.keys))), strict=True))
    drawn = np.asarray(ways.counts.sample(len(kept), bits), dtype=np.int64)
    noisy = np.array([counted.get(key, 0) for key in kept], dtype=np.int64) + drawn
    told = _told_keys(np.array(kept, dtype=object), noisy, ways)
    return {**told, "left_out": len(known) - len(kept)}


def _absent(values: NDArray[np.int64], first: int, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of the whole numbers from ``first`` on that are not among the values those of these ranks, counted from 0."""
    before = np.sort(values.astype(np.int64)) - first
    before -= np.arange(len(before))  # how many absent ones come before each value
    return np.asarray(ranks + first + np.searchsorted(before, ranks, side="right"), dtype=np.int64)


def _told_keys(values: NDArray[Any], noisy: NDArray[np.int64], how: Shown | None) -> dict[str, Any]:
    """The highest counts first, equal ones by key; as many as a schema can list."""
    keys = values.tolist()
    kept = _highest_first(keys, noisy)[:MOST_CATEGORIES]
    return _keys_told([keys[i] for i in kept], [int(noisy[i]) for i in kept], len(keys) - len(kept), how)


def _highest_first(keys: list[Any], noisy: NDArray[np.int64]) -> list[int]:
    return sorted(range(len(keys)), key=lambda i: (-int(noisy[i]), keys[i]))


def _keys_told(keys: list[Any], counts: list[int], left_out: int, how: Shown | None) -> dict[str, Any]:
    described = None if how is None else how.describe()
    return {"keys": keys, "counts": counts, "left_out": left_out, "threshold": described}
