"""How a curator runs what no statistical query can express: one interpreter per kind of procedure.

An interpreter compiles first, so that every refusal comes before the charge; what it then does to rows is private at
the stated epsilon whatever they hold (``mechanisms/parity.md``), and cannot fail for what they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.mechanisms import Bits, DiscreteLaplace
from dodona.mechanisms.mechanism import AdditiveNoise
from dodona.mechanisms.parity import COIN, ParitySolver, Roles, Words, packed, parity, solve
from dodona.oracles.answer import Bill, Price
from dodona.oracles.effort import Effort
from dodona.oracles.noise import pure_epsilon
from dodona.oracles.oracle import Request
from dodona.privacy.budget import Budget, Cost
from dodona.query.candidates import ParityProcedure, Procedure
from dodona.query.expr import Call, Literal
from dodona.query.plan import Plan, compile_query
from dodona.query.statistic import Query, Stack, Value


@dataclass(frozen=True)
class Bought:
    """What an effort pays for: ``run`` is private at ``cost``. ``noise`` and ``told``: what ``price`` says of it."""

    name: str
    cost: Cost
    run: Callable[[Engine, Bits], Any]
    noise: AdditiveNoise | None = None
    told: str = ""

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
    from dodona.oracles import keys  # noqa: F401 - which interprets its own

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
    if effort.kind == "rho" and budget.unit == "epsilon":
        raise Unsupported("rho= needs a budget with delta > 0 or rho; this one promises pure epsilon. Use epsilon=.")
    return pure_epsilon(effort, budget, 2)


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
        return _told(None, None)
    wrong, place = min(judged)
    return _told(found[place], wrong)


def _consistent(procedure: ParityProcedure, plan: Plan, engine: Engine) -> dict[str, Any]:
    """The classical learner: any r consistent with all rows, the smallest one; None where there is none."""
    rows = _read(plan, engine, np.ones(engine.rows(), dtype=np.bool_))
    solutions = solve(rows, len(procedure.bits))
    none = np.zeros(-(-len(procedure.bits) // 64), dtype=np.uint64)
    return _told(None, None) if solutions is None else _told(solutions.some(none), 0)


def _told(r: NDArray[np.bool_] | None, wrong: int | None) -> dict[str, Any]:
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
