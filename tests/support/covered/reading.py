"""Quantiles, losses and bounds: numbers that are no sums, or sums of what other answers leave out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dodona import release
from dodona.oracles.rows import Estimate
from dodona.query.statistic import Partition, as_expr
from dodona.testing.margins import Asked, Covered, Told, Truth, World
from tests.support.covered.answers import ONE, answers, curator, printed
from tests.support.covered.tables import people

PLAIN = World(rows=1500, epsilon=2.0)
SINGLE = (
    "SELECT MEDIAN(age) FROM t",
    "SELECT colour, QUANTILE(age, 0.25) AS q FROM t GROUP BY colour",
    "SELECT QUANTILE(income, 0.9) FROM t WHERE smoker",
)
SEVERAL = (
    "SELECT QUANTILE(age, 0.1) AS a, MEDIAN(age) AS b, QUANTILE(age, 0.9) AS c FROM t",
    "SELECT colour, QUANTILE(income, 0.25) AS a, QUANTILE(income, 0.75) AS b FROM t GROUP BY colour",
)
TEN = tuple(f"QUANTILE(age, {0.05 + 0.1 * place:.2f}) AS q{place}" for place in range(10))
COUNTED = (
    f"SELECT {', '.join(TEN)} FROM t",
    f"SELECT colour, {', '.join(TEN[1:6])} FROM t WHERE smoker GROUP BY colour",
)
WIDTHS = "one of a ladder of widths, chosen for any rows; of few values the next wider one is a whole value"


def lost(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """What bounds, lists and a person's limit leave out."""
    del question
    mine, true = made.losses(share="1/5", confidence=confidence), truth.exact.losses()
    cells = [(a[-1], b[-1]) for a, b in zip(mine, true, strict=True)]
    assert all(isinstance(cell, Estimate) for pair in cells for cell in pair)
    off = [abs(a.value - b.value) for a, b in cells]
    return Told(np.array(off), np.array([a.margin for a, _ in cells]), mine.proven)


def held(made: Any, truth: Truth, question: str, confidence: float) -> Told:
    """The part of a column's values that lie in the bounds found."""
    del confidence
    found = release.bounds(made, question, share="1/5")
    known = truth(f"CASE WHEN {question} IS NULL THEN 0 ELSE 1 END")[0]
    inside = truth(f"{question} BETWEEN {found.low!r} AND {found.high!r}")[0] / max(known, 1)
    return Told(np.array([abs(found.held - inside)]), np.array([found.margin if found.found else 1.0]), False)


READING: tuple[Covered, ...] = (
    answers(
        "rows of no group",
        Partition(as_expr("colour"), ONE, other=True),
        quick=replace(PLAIN, epsilon=20.0, missing="many"),
        runs=40,
    ),
    Covered(
        "single quantiles",
        ("answer:Estimate",),
        people,
        curator,
        printed,
        (Asked(SINGLE),),
        quick=PLAIN,
        runs=8,
        full=24,
        forced=(7.0, WIDTHS),
    ),
    Covered(
        "several quantiles",
        ("answer:Estimate",),
        people,
        curator,
        printed,
        (Asked(SEVERAL),),
        quick=replace(PLAIN, heavy=True),
        runs=6,
        full=24,
    ),
    Covered(
        "quantiles read off counts",
        ("answer:Estimate",),
        people,
        curator,
        printed,
        (Asked(COUNTED),),
        quick=replace(PLAIN, heavy=True),
        runs=6,
        full=24,
        proven=False,
    ),
    Covered(
        "losses",
        ("answer:Rows",),
        people,
        curator,
        lost,
        (Asked((None,), independent=True),),
        quick=replace(PLAIN, missing="some", unit=True),
        runs=20,
    ),
    Covered(
        "bounds that nobody knows",
        ("release:bounds",),
        people,
        curator,
        held,
        (Asked(("income", "age")),),
        proven=False,
        sure=0.95,
        quick=PLAIN,
        runs=25,
    ),
)
