"""How a curator runs what no statistical query can express: one interpreter per kind of procedure.

An interpreter compiles first, so that every refusal comes before the charge; what it then does to rows is private at
the stated epsilon whatever they hold (``mechanisms/parity.md``), and cannot fail for what they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.effort import Effort
from dodona.engines.base import Engine
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.mechanisms import Bits, DiscreteLaplace
from dodona.mechanisms.gf2 import Words, packed, parity, solve
from dodona.mechanisms.parity import COIN, ParitySolver, Roles
from dodona.privacy.budget import Budget
from dodona.query.expr import Call, Literal
from dodona.query.plan import Plan, compile_query
from dodona.query.procedure import ParityProcedure
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Stack, Value
from dodona.trust.scores import pure_epsilon


@dataclass(frozen=True)
class Prepared:
    """A procedure compiled: ``plan`` reads its values, ``run`` is private at its epsilon, ``exact`` adds no noise."""

    plan: Plan
    run: Callable[[Engine, Fraction, Bits], Any]
    exact: Callable[[Engine], Any]


def prepared(procedure: Query, schema: Schema) -> Prepared:
    """The interpreter for this kind."""
    interpreter = _INTERPRETERS.get(type(procedure))
    if interpreter is None:
        raise BadQuery(f"run() takes a procedure; {type(procedure).__name__} is asked with ask() or select().")
    return interpreter(procedure, schema)


def epsilon_of(effort: Effort, budget: Budget) -> Fraction:
    """The pure epsilon an effort buys; an epsilon-private run costs rho = epsilon^2/2."""
    if effort.kind == "tolerance":
        raise BadEffort(
            "a procedure is given share=, epsilon= or rho=; how good it will be is a matter of rows: plan()."
        )
    if effort.kind == "rho" and budget.unit == "epsilon":
        raise Unsupported("rho= needs a budget with delta > 0 or rho; this one promises pure epsilon. Use epsilon=.")
    return pure_epsilon(effort, budget, 2)


def _parity(procedure: ParityProcedure, schema: Schema) -> Prepared:
    never_null = [Call("coalesce", (bit, Literal(False))) for bit in (*procedure.bits, procedure.label)]
    for condition in never_null:
        if compile_query(Value(condition), schema, level=True).reach.size.linf > 1:
            raise BadQuery(f"a parity takes conditions. Got {condition}.")
    plan = compile_query(Stack(tuple(map(Value, never_null))), schema, level=True)
    return Prepared(
        plan,
        lambda engine, epsilon, bits: _amplified(procedure, plan, engine, epsilon, bits),
        lambda engine: _consistent(procedure, plan, engine),
    )


def _amplified(procedure: ParityProcedure, plan: Plan, engine: Engine, epsilon: Fraction, bits: Bits) -> dict[str, Any]:
    """A* of KLNRS section 4: candidates from disjoint parts, judged with discrete Laplace noise on another."""
    parts, repeats, unknowns = procedure.parts, procedure.repeats, len(procedure.bits)
    solver = ParitySolver(epsilon / repeats)
    whole = parts * procedure.part_rows + procedure.test_rows
    roles = Roles(parts, procedure.part_rows * COIN // whole).draw(engine.rows(), bits)
    chosen = np.stack([solver.picked(len(roles), bits) for _ in range(repeats)]) & (roles < parts)
    needed = chosen.any(axis=0) | (roles == parts)
    rows = _read(plan, engine, needed)
    roles, chosen = roles[needed], chosen[:, needed]
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


def _read(plan: Plan, engine: Any, needed: NDArray[np.bool_]) -> Words:
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


_INTERPRETERS: dict[type, Callable[[Any, Schema], Prepared]] = {ParityProcedure: _parity}
