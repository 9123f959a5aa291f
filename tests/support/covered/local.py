"""Rows that randomise themselves: every shape of report, what is collected of them, and what is published of that."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from dodona.concepts.parities import characters, masks_up_to
from dodona.engines.table import Table
from dodona.local.client import Client, invitation
from dodona.local.collector import Collector
from dodona.local.holdings import Holdings
from dodona.local.scheme import scheme_for
from dodona.mechanisms.response import RandomizedResponse
from dodona.oracles.collected import Collected, Shuffled
from dodona.oracles.local import Local
from dodona.query.statistic import Features, Partition, Products, Query, Stack, as_expr, as_query, bucket
from dodona.testing.margins import Asked, Covered, Told, Truth, World
from dodona.testing.oracles import SeededBits
from tests.support.covered.answers import FOR_ANY, ONE
from tests.support.covered.tables import flags, people, small

ALONE = {"delta": 0.0, "unit": False}
WIDE = Features(
    tuple(as_expr(f"(age / 50 - 1) * {k / 8}") for k in range(1, 9))
    + tuple(as_expr(f"(income / 500 - 1) * {k / 8}") for k in range(1, 9)),
    radius=1.0,
)
SIGNS = characters(tuple(map(as_expr, "abcde")), masks_up_to(5, 2), [1.0] * 15)


def crowd(table: Table, world: World, seed: int) -> Shuffled:
    """The same population behind a shuffler."""
    made = Shuffled(table, Fraction(world.epsilon).limit_denominator(1000), "1e-6")
    made._bits = SeededBits(seed)
    return made


def rows(randomiser: str | None = None) -> Any:
    """A population that reports once, with all of its epsilon."""

    def make(table: Table, world: World, seed: int) -> Local:
        made = Local(table, Fraction(world.epsilon).limit_denominator(1000), randomiser=randomiser)
        made._bits = SeededBits(seed)
        return made

    return make


def share_asked(made: Any, truth: Truth, question: Any, confidence: float, share: str = "3/10") -> Told:
    """A third of what the rows may tell, for each of three confidences."""
    return Told.of(made.ask(question, confidence=confidence, share=share), truth(question), proven=True)


def free_asked(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """Of what was collected; nothing is charged."""
    return Told.of(made.ask(question, confidence=confidence), truth(question), proven=True)


def share_chosen(made: Any, truth: Truth, question: tuple[str, ...], confidence: float) -> Told:
    """How far the chosen candidate is from the best."""
    found = made.select(list(question), confidence=confidence, share="3/10")
    totals = [float(truth(one)[0]) for one in question]
    return Told(np.array([max(totals) - totals[found.index]]), np.array([found.margin]), True)


def collected(query: Query) -> Any:
    """A collector's tallies of one report a row, as the collector's own oracle."""

    def make(table: Table, world: World, seed: int) -> Collected:
        scheme = scheme_for(query, table.schema, Fraction(world.epsilon).limit_denominator(1000))
        collector, bits = Collector.of(scheme, table.schema), SeededBits(seed)

        def respond(vectors: Any, length: int) -> Any:
            return scheme.tallies(scheme.respond(Holdings(scheme.program, vectors, length), bits))

        for tallies in table.engine.reports(scheme.program, lambda start, stop: np.arange(stop - start), respond):
            collector._tallies = [a + b for a, b in zip(collector._tallies, tallies, strict=True)]
        return Collected(collector, table.schema, name="t")

    return make


def sent(query: Query) -> Any:
    """Reports of real clients, one a person, as they travel."""

    def make(table: Table, world: World, seed: int) -> Collected:
        text = invitation(query, table.schema, world.epsilon)
        collector, bits = Collector(text), SeededBits(seed)
        for answer in held(table):
            assert collector.add(Client(world.epsilon, bits=bits).report(text, answer))
        return Collected(collector, table.schema, name="t")

    return make


def held(table: Table) -> list[dict[str, Any]]:
    """What each person would answer about ``a``."""
    values, null = table.engine._columns["a"]  # type: ignore[attr-defined]
    gone = np.zeros(len(values), dtype=bool) if null is None else null
    return [{"a": None if none else bool(value)} for value, none in zip(values, gone, strict=True)]


def publish(make: Any) -> Any:
    """What was collected, as a synopsis."""
    return lambda table, world, seed: make(table, world, seed).synopsis()


def local(
    kind: str, query: Query, mechanism: str, epsilon: float = 1.0, runs: int = 25, table: Any = people, **more: Any
) -> Covered:
    """One question to rows that trust nobody."""
    covers = ("oracle:Local", *(f"mechanism:{name}" for name in mechanism.split(", ")))
    world = World(rows=1500, epsilon=epsilon)
    return Covered(
        f"local {kind}",
        covers,
        table,
        rows(more.pop("randomiser", None)),
        share_asked,
        (Asked((query,)),),
        quick=more.pop("quick", world),
        runs=runs,
        fixed=ALONE,
        **more,
    )


def coloured(table: Table, world: World, seed: int) -> Any:
    """One report a row on one of three colours, and what it says it estimates."""
    values, null = table.engine._columns["colour"]  # type: ignore[attr-defined]
    held = np.asarray(values if null is None else np.where(null, 0, values), dtype=np.int64)
    response = RandomizedResponse(3, Fraction(world.epsilon).limit_denominator(1000))
    reports = np.bincount(response.sample(held, SeededBits(seed)), minlength=3)
    return response, np.bincount(held, minlength=3), response.debias(reports, len(held))


def shares(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """By the variance it states for what people really hold: sums of many reports are nearly normal."""
    del truth, question
    response, held, estimates = made
    spread = np.sqrt([response.variance(int(held.sum()), float(count)) for count in held])
    return Told(np.abs(estimates - held), NormalDist().inv_cdf((1 + confidence) / 2) * spread, False)


MANY = Partition(as_expr("group"), Partition(bucket("age", [0, 15, 30, 45, 60, 75, 99]), ONE))
FULLEST = "for any data: a sum in a cell varies most where all rows are in it, at the top of their range"
FLAG, NUMBER = as_query("smoker"), as_query("income")
BY_COLOUR = Partition(as_expr("colour"), ONE)
BOX = Stack((FLAG, NUMBER, as_query("age")))
CLOSE = ("a", "b", "c", "d")

LOCAL: tuple[Covered, ...] = (
    local("flag", FLAG, "cube response, character response, two-level draw"),
    local("number", NUMBER, "bounded Laplace report", epsilon=20.0),
    local("numbers side by side", BOX, "cube response", quick=World(rows=1500, epsilon=2.0, missing="some")),
    local("numbers by Laplace", BOX, "bounded Laplace report", randomiser="laplace"),
    local("cells", BY_COLOUR, "window response"),
    local(
        "sums in cells",
        Partition(as_expr("colour"), NUMBER),
        "window response",
        epsilon=4.0,
        any_data=True,
        forced=(4.0, FULLEST),
    ),
    local("many cells", MANY, "Walsh response", runs=4, quick=World(rows=6000, epsilon=4.0), any_data=True, slow=True),
    Covered(
        "randomised response",
        ("mechanism:randomised response",),
        people,
        coloured,
        shares,
        (Asked((None,)),),
        proven=False,
        quick=World(rows=1500, epsilon=1.0),
        runs=40,
        fixed=ALONE,
    ),
    local("vectors", WIDE, "direction response", epsilon=8.0, runs=12, any_data=True),
    local("signs", SIGNS, "character response", table=flags),
    local(
        "products",
        Products(tuple(map(as_expr, "abcd")), as_expr("1"), 2),
        "character response",
        table=flags,
        epsilon=4.0,
    ),
    Covered(
        "a local choice",
        ("answer:Selection", "oracle:Local"),
        flags,
        rows(),
        share_chosen,
        (Asked((CLOSE,)),),
        quick=World(rows=1500, epsilon=1.0),
        runs=40,
        fixed=ALONE,
        forced=(np.inf, FOR_ANY),
    ),
    Covered(
        "shuffled cells",
        ("oracle:Shuffled",),
        people,
        crowd,
        partial(share_asked, share="3/20"),
        (Asked((BY_COLOUR, FLAG)),),
        quick=World(rows=1500, epsilon=4.0),
        runs=25,
        fixed=ALONE,
    ),
    Covered(
        "collected reports",
        ("oracle:Collected",),
        people,
        collected(BOX),
        free_asked,
        (Asked((BOX, FLAG)),),
        edge=(NUMBER,),
        outside=(BY_COLOUR, as_query("age > 3")),
        quick=World(rows=1500, epsilon=1.0),
        runs=40,
        fixed=ALONE,
    ),
    Covered(
        "collected cells, published",
        ("synopsis:Asked",),
        people,
        publish(collected(BY_COLOUR)),
        free_asked,
        (Asked((BY_COLOUR,)),),
        outside=(FLAG, NUMBER),
        quick=World(rows=1500, epsilon=1.0, missing="many"),
        runs=40,
        fixed=ALONE,
    ),
    Covered(
        "reports of clients",
        ("oracle:Collected", "survey:estimates"),
        small,
        sent(as_query("a")),
        free_asked,
        (Asked((as_query("a"),)),),
        quick=World(rows=100, epsilon=2.0, missing="some"),
        runs=15,
        fixed={**ALONE, "rows": 100},
    ),
)
