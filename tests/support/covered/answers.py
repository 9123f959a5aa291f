"""What a curator answers: counts, sums, vectors, printed columns, choices, procedures, and fronts before it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dodona.concepts.concept import Agreement, Finite
from dodona.concepts.databases import Misfits
from dodona.engines.table import Table
from dodona.oracles.fronts import Where
from dodona.oracles.rows import Estimate
from dodona.oracles.view import Bounded
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Schema
from dodona.query.statistic import Features, Gate, Nearest, Outer, Partition, Query, Stack, Value, as_expr, as_query
from dodona.query.unit import Bounds
from dodona.release.parities import parity
from dodona.testing.margins import Asked, Covered, Told, Truth, World
from dodona.testing.oracles import seeded_curator
from tests.support.covered.tables import flags, people

ONE = Value(as_expr("1"))
SCALED = Features((as_expr("age / 50 - 1"), as_expr("income / 500 - 1")))
BALL = Features(SCALED.exprs, radius=1.0)
BY_GROUP = Partition(as_expr("group"), ONE)
PART = {"share": 0.01}


def curator(table: Table, world: World, seed: int) -> Any:
    """With fresh noise and all of its budget."""
    return seeded_curator(table, world.budget, seed)


def exact_curator(table: Table, world: World, seed: int) -> Any:
    """The same, its ledger counting by the Gaussian trade-off."""
    return seeded_curator(table, Budget(epsilon=world.epsilon, delta=world.delta, accountant="gaussian"), seed)


def asked(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """One question of a curator."""
    return Told.of(made.ask(question, confidence=confidence, **PART), truth(question), proven=True)


def printed(made: Any, truth: Truth, question: str, confidence: float, share: str = "1/10") -> Told:
    """Every number of a SELECT's table."""
    rows, exact = made.sql(question, confidence=confidence, share=share), truth.exact.sql(question)
    cells = [
        (a.value, a.margin, b.value, a.proven, bool(a.lost))
        for mine, true in zip(rows, exact, strict=True)
        for a, b in zip(mine, true, strict=True)
        if isinstance(a, Estimate) and isinstance(b, Estimate)
    ]
    values, margins, truths, proven, lost = (np.array(column) for column in zip(*cells, strict=True))
    return Told(np.abs(values - truths), margins, bool(proven.all()), lost)


def answers(kind: str, question: Query, *covers: str, **more: Any) -> Covered:
    """One vector of a curator whose coordinates have noise of their own."""
    return Covered(
        kind,
        ("answer:Answer", "oracle:Curator", *covers),
        people,
        curator,
        asked,
        (Asked((question,), independent=True),),
        **more,
    )


def choice_table(world: World) -> Table:
    """Candidates that trail the best one by what would tempt a choice to miss by the most, at any budget."""
    n = world.rows
    columns = {f"c{i}": np.arange(n) < n - gap for i, gap in enumerate(_gaps(world))}
    return Table(columns, Schema({name: Flag(missing=False) for name in columns}), name="t")


def _gaps(world: World) -> list[int]:
    return [0, *(round(world.rows * part) for part in np.geomspace(0.01, 0.3, 8))]


def chosen(mechanism: str) -> Any:
    """How far the chosen candidate is from the best: one of many that all trail by the same gap."""

    def tell(made: Any, truth: Truth, question: int, confidence: float) -> Told:
        candidates = ["c0", *[f"c{question}"] * 30]
        found = made.select(candidates, mechanism=mechanism, confidence=confidence, share="1/20")
        totals = [float(truth(one)[0]) for one in candidates]
        return Told(np.array([max(totals) - totals[found.index]]), np.array([found.margin]), True)

    return tell


def scored(kind: str) -> Any:
    """A choice among scores made of totals."""
    members = Finite.of([*"abcdefgh", "a AND b", "NOT g", "c OR d"])

    def tell(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
        del question
        if kind == "agreement":
            scores: Any = Agreement(members, as_expr("e"))
        else:
            totals = np.array([float(truth(Value(one))[0]) for one in members.members(made.schema)])
            scores = Misfits(members, np.rint(totals * 0.9).astype(np.int64))
        found = made.select(scores, confidence=confidence, **PART)
        values = scores.tally(made.schema, truth(scores.statistics(made.schema)))
        return Told(np.array([float(values.max() - values[found.index])]), np.array([found.margin]), True)

    return tell


def paritied(made: Any, truth: Truth, question: tuple[str, ...], confidence: float) -> Told:
    """A parity by conjunctions: its margin is at the usual confidence, for all conjunctions added up."""
    del confidence
    value, margin = parity(made, list(question), share=0.2)
    even = " + ".join(f"CASE WHEN {name} THEN 1 ELSE 0 END" for name in question)
    odd = truth(f"({even}) = 1 OR ({even}) = 3")[0] / made.rows  # means are of the public number of rows
    return Told(np.array([abs(value - odd)]), np.array([margin]), True)


FOR_ANY = "a choice is as good as stated for any data; where the best stands out, none is missed"


def behind_fronts(table: Table, world: World, seed: int) -> Any:
    """Some rows and some columns of what a curator answers about."""
    return Where(curator(table, world, seed), as_expr("smoker")).select_columns("group")


def asked_gated(made: Any, truth: Truth, question: Query, confidence: float) -> Told:
    return Told.of(
        made.ask(question, confidence=confidence, **PART), truth(Gate(as_expr("smoker"), question)), proven=True
    )


ONE_ROW = Bounds(max_rows=1)


def bounded(table: Table, world: World, seed: int) -> Any:
    """Asked under bounds of the question's own, closer than the table's."""
    return Bounded(curator(table, world, seed), ONE_ROW)


def asked_bounded(made: Any, truth: Truth, question: Query, confidence: float) -> Told:
    """Against the same rows of each person without noise."""
    true = np.ravel(np.asarray(Bounded(truth.exact, ONE_ROW).ask(question).total, dtype=np.float64))
    return Told.of(made.ask(question, confidence=confidence, **PART), true, proven=True)


PLAIN = World(rows=1500, epsilon=20.0)
GAUSS = replace(PLAIN, delta=1e-6)
SELECTS = (
    "SELECT colour, COUNT(*), SUM(income), AVG(income) FROM t GROUP BY colour",
    "SELECT AVG(age), COUNT(age), AVG(income) FROM t WHERE age > 90",
)
SPREADS = ("SELECT VARIANCE(income), STDDEV(age) FROM t", "SELECT STDDEV(income) FROM t WHERE age > 60")
FINISHED = (
    "SELECT colour, SUM(income) - 2 * COUNT(*), 100 * COUNT(*) / SUM(COUNT(*)) OVER () FROM t GROUP BY colour",
    "SELECT SUM(n), MAX(n), AVG(n) FROM (SELECT group, COUNT(*) AS n FROM t GROUP BY group)",
    "SELECT colour, SUM(income) / COUNT(income) FROM t WHERE age < 60 GROUP BY colour",
)
TINY = ("SELECT group, AVG(income) FROM t GROUP BY group",)

ANSWERS: tuple[Covered, ...] = (
    answers("counts by key, Laplace", BY_GROUP, "mechanism:discrete Laplace", quick=PLAIN, runs=20),
    answers("counts by key, Gaussian", BY_GROUP, "mechanism:discrete Gaussian", quick=GAUSS, runs=20),
    replace(
        answers("counts by key, rounded Gaussian", BY_GROUP, "mechanism:rounded Gaussian", quick=GAUSS, runs=20),
        make=exact_curator,
        fixed={"delta": GAUSS.delta},
    ),
    answers(
        "sums by key",
        Partition(as_expr("group"), Value(as_expr("income"))),
        quick=replace(PLAIN, missing="some"),
        runs=20,
    ),
    answers("counts by key of people", BY_GROUP, quick=replace(PLAIN, unit=True), runs=20),
    answers(
        "vectors and products",
        Stack((SCALED, BALL, Outer(BALL), Gate(as_expr("smoker"), Outer(SCALED)))),
        quick=replace(PLAIN, rows=300),
        runs=40,
    ),
    answers(
        "cells about centres",
        Nearest(SCALED, ((-0.5, -0.5), (0.5, 0.5)), Stack((ONE, SCALED))),
        quick=replace(PLAIN, rows=300),
        runs=40,
    ),
    answers(
        "a list of numbers",
        Stack(tuple(as_query(one) for one in ("age >= 65 AND smoker", "income", "age", "income / 7"))),
        quick=replace(PLAIN, missing="many"),
        runs=60,
    ),
    Covered(
        "SELECT: counts, sums, averages",
        ("answer:Estimate", "answer:Rows"),
        people,
        curator,
        printed,
        (Asked(SELECTS),),
        quick=replace(PLAIN, epsilon=2.0, missing="some"),
        runs=25,
    ),
    Covered(
        "SELECT: spreads",
        ("answer:Estimate",),
        people,
        curator,
        printed,
        (Asked(SPREADS),),
        quick=replace(PLAIN, epsilon=2.0, heavy=True),
        runs=25,
        forced=(4.0, "three sums lie in a box at once (Bonferroni), and the farthest corners of it count"),
    ),
    Covered(
        "SELECT: finished numbers",
        ("answer:Estimate",),
        people,
        curator,
        partial(printed, share="1/20"),
        (Asked(FINISHED),),
        quick=replace(PLAIN, epsilon=4.0),
        runs=25,
        forced=(6.0, "numbers made of several have each of them within its margin at once (Bonferroni)"),
    ),
    Covered(
        "SELECT: averages of tiny groups",
        ("answer:Estimate",),
        people,
        curator,
        printed,
        (Asked(TINY, independent=True),),
        quick=PLAIN,
        runs=6,
    ),
    *(
        Covered(
            f"a choice by {name}",
            ("answer:Selection", f"mechanism:{name}"),
            choice_table,
            curator,
            chosen(name),
            (Asked((1, 2, 3)),),
            quick=World(rows=6000, epsilon=2.0),
            runs=30,
            any_data=True,
            fixed={"rows": 6000, "epsilon": 2.0, "missing": "stated", "unit": False, "heavy": False},
        )
        for name in ("permute-and-flip", "exponential")
    ),
    Covered(
        "a choice by agreement",
        ("scores:Agreement",),
        flags,
        curator,
        scored("agreement"),
        (Asked((None,)),),
        quick=replace(PLAIN, epsilon=1.0),
        runs=40,
        forced=(np.inf, FOR_ANY),
    ),
    Covered(
        "a choice by misfit",
        ("scores:Misfits",),
        flags,
        curator,
        scored("misfits"),
        (Asked((None,)),),
        quick=replace(PLAIN, epsilon=1.0),
        runs=40,
        forced=(np.inf, FOR_ANY),
    ),
    Covered(
        "parities",
        ("release:parity",),
        flags,
        curator,
        paritied,
        (Asked((("a", "b"), ("a", "d", "g"))),),
        quick=replace(PLAIN, epsilon=1.0),
        runs=60,
        sure=0.95,
        forced=(4.0, "the errors of all conjunctions are added up, as if they fell on one side"),
    ),
    Covered(
        "counts under bounds of their own",
        ("oracle:Bounded",),
        people,
        bounded,
        asked_bounded,
        (Asked((BY_GROUP,), independent=True),),
        quick=replace(PLAIN, unit=True),
        runs=6,
        fixed={"unit": True},
    ),
    Covered(
        "fronts",
        ("oracle:Where", "oracle:View"),
        people,
        behind_fronts,
        asked_gated,
        (Asked((BY_GROUP,), independent=True),),
        quick=PLAIN,
        runs=6,
    ),
)
