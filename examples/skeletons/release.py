"""Skeleton of a release: the counts of one listed column's values, published once. Copy it to src/dodona/release/.

This one file is all: ``Tally`` is what is published and how it answers (its ``kind`` stands in files, and loads them),
``tally`` makes it, ``plan_tally`` says what it would be, and ``registered`` makes it known to the server, its page, the
command line and the law that margins hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.concepts.grid import Grid
from dodona.oracles.effort import CONFIDENCE, Divisible, Effort
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Arrays, Body, Header, Synopsis
from dodona.query.plan import Plan
from dodona.query.schema import Category, Flag, Schema
from dodona.query.statistic import Query
from dodona.release.registry import Case, Release, Setting, registered
from dodona.synopses.reading import Reading, answered
from dodona.synopses.weighted import Piece

Floats = NDArray[np.float64]


class Tally(Body):
    """``counts``: noisy, one for each value, then one for the missing; ``spread``: of the noise in each."""

    kind = "Tally"
    proven = True

    def __init__(self, schema: Schema, column: str, counts: Floats, spread: float) -> None:
        self.schema, self.grid, self.counts, self.spread = schema, Grid.of(schema, [column]), counts, spread

    def arrays(self) -> Arrays:
        """The counts."""
        return {"counts": self.counts}

    def settings(self) -> dict[str, Any]:
        """The column and the noise."""
        return {"column": self.grid.columns[0], "spread": self.spread}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Tally:
        """The inverse."""
        return cls(schema, settings["column"], arrays["counts"], float(settings["spread"]))

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002 - the plan says it
        """Sums of the counts; a question about another column is refused by ``answered``, which names this one."""
        totals, deviations = answered(plan, self.schema, self.grid, self._one)
        return totals, deviations * _chebyshev(confidence)

    def _one(self, reading: Reading) -> tuple[Floats, Floats]:
        piece, held = reading.piece, self.counts if reading.support else np.array([self.counts.sum()])
        cells = np.full(len(held), len(self.counts) / len(held))
        squares = Piece(piece.cells, piece.key, piece.values**2).totals(cells)
        return piece.totals(held), np.sqrt(squares) * self.spread


def _chebyshev(confidence: float) -> float:
    """Standard deviations that hold for any noise of this variance, whatever its law."""
    return 1 / math.sqrt(1 - confidence)


def tally(oracle: Oracle, column: str, **stated: Unpack[Divisible]) -> Synopsis:
    """A synopsis of how often each value of ``column`` occurs: a row is in one cell, so all counts cost as one."""
    grid = Grid.of(oracle.schema, [column])
    answer = oracle.ask(grid.marginal((0,)), effort=Effort.divisible(**stated).part())
    spread = float(np.max(answer.spread))
    body = Tally(oracle.schema, grid.columns[0], np.asarray(answer.total, dtype=np.float64).ravel(), spread)
    about, accuracy = f"the values of {grid.columns[0]}", f"each count has noise of {spread:.3g} rows"
    known = about, accuracy, "noisy counts", oracle.schema, oracle.rows, answer.cost
    return Synopsis(Header(oracle.name, *known), body)


def plan_tally(oracle: Oracle, column: str, **stated: Unpack[Divisible]) -> Outlooks:
    """The margin of one count; nothing is spent."""
    grid = Grid.of(oracle.schema, [column])
    price = oracle.price(grid.marginal((0,)), effort=Effort.divisible(**stated).part())
    found = Outlook(
        f"the values of {grid.columns[0]}",
        Outcome.FEASIBLE,
        error=float(np.max(price.spread)) * _chebyshev(CONFIDENCE),
        cost=price.cost.spent,
        why="The noise is known before it is drawn.",
        method="counts",
        measure="a count",
        scale="rows",
        confidence=CONFIDENCE,
    )
    return Outlooks([found])


def _cases() -> list[Case]:
    schema = Schema({"city": Category("Oslo", "Bergen", "Narvik"), "old": Flag()})

    def draw(rows: int, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        cities = random.choice(["Oslo", "Bergen", "Narvik"], rows, p=[0.6, 0.3, 0.1])
        return {"city": cities, "old": random.random(rows) < 0.2}

    inside, edge = ("city = 'Oslo'", "city IN ('Oslo', 'Narvik')"), ("city IS NULL", "TRUE")
    return [Case("cities", schema, draw, {"column": "city"}, "Tally", inside, edge, ("old", "city = 'Oslo' AND old"))]


RELEASE = registered(
    Release(
        tally,
        plan_tally,
        "A tally: how often each value of one column occurs",
        (Setting("column", "column", "Column", types=("category", "flag")),),
        ("Tally",),
        _cases,
    )
)
