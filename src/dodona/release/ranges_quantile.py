"""Private cut points for large domains and few rows: find where the rows are, cut there, count between the cuts.

A domain of 2^20 values has too many cells to count each, and few rows leave most cells to noise. A part of the budget
finds where the rows are (``ranges_descent.py``). What it found is published, so all that follows may look at it, free
of charge: how many cuts there are, at evenly spaced quantiles, is chosen by the error they would have, in two parts:

    noise   of a random range of cells, whose ends in a run of several cells are interpolated;
    inside  w sqrt(2 sum_j (cells_j/cells) rows_j^2) for the ends that fall into a run of more than one cell.

The rest of the budget counts the runs between the cuts, by tree or by roots of the prefix sums (``ranges_count.py``).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.oracle import Oracle
from dodona.release.portion import Portion
from dodona.release.ranges_count import DRAWS, Counting, Way, best_counting
from dodona.release.ranges_curve import rising
from dodona.release.ranges_descent import Sketch, sketched
from dodona.release.ranges_offer import Curve, Offer
from dodona.synopses.axis import Axis

Floats = NDArray[np.float64]
Edges = NDArray[np.int64]
SEARCH = Fraction(1, 8)
PLANNED = (64, 256, 1024, 4096)
BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
PRESUMED = 0.15
"""Before the search: how far, as a part of a run's rows, a range that ends inside it is taken to err."""
WITHIN = 0.1
"""After it: the same, now that runs are cut where the rows are. Smooth histograms have about 0.03, spiky ones 0.13."""
FINEST = 256
"""The search splits runs with more than this part of the rows, however few cuts are likely."""
MOST_DRAWS = 200
"""Few runs are simulated this often: by a dozen draws 16 runs were taken for a third better than they are."""
_DRAWN = 100_000
_ENDS = 2000


def quantile_offer(oracle: Oracle, axis: Axis, portion: Portion) -> Offer | None:
    """A search, then the number of runs with the least predicted error; None where there are as few cells as runs."""
    counts = [count for count in PLANNED if count < axis.cells]
    if not counts:
        return None
    countings = [best_counting(oracle, axis, portion, 1 - SEARCH, count) for count in counts]

    def presumed(counting: Counting) -> float:
        rows = oracle.rows if oracle.rows is not None else 10 * counting.buckets / PRESUMED
        return counting.way.risk * math.hypot(counting.error, PRESUMED * rows / counting.buckets)

    likely = min(countings, key=presumed)

    def make() -> Curve:
        sketch = sketched(oracle, axis, portion, SEARCH, max(likely.buckets, FINEST))
        edges, way = _chosen(oracle, axis, portion, sketch, countings)
        answer = oracle.ask(way.query(axis, edges), **portion.part(1 - sketch.spent))
        totals, spread = (np.ravel(np.asarray(v, dtype=np.float64)) for v in (answer.total, answer.spread))
        runs = len(edges) - 1
        deviation = float(np.sqrt(np.mean(np.square(way.noise(runs, spread)[:, 1:]))))
        curve = rising(way.curve(runs, totals, spread), oracle.rows)
        return Curve(edges, curve, deviation, (*sketch.bills, answer.cost))

    words = f"about {likely.buckets} buckets at private quantiles, {likely.way}, isotonic curve"
    return Offer("quantile buckets", words, presumed(likely), make)


def _chosen(
    oracle: Oracle, axis: Axis, portion: Portion, sketch: Sketch, countings: list[Counting]
) -> tuple[Edges, Way]:
    """The cuts of least predicted error, by what the search published, and how to count between them."""
    ends = np.sort(np.random.default_rng(1).integers(0, axis.cells, (_ENDS, 2)), axis=1) + np.array([0, 1])
    options = []
    for count in (count for count in BUCKETS if count <= countings[-1].buckets):
        edges = sketch.cuts(count)
        planned = next(counting for counting in countings if counting.buckets >= count)
        if count < planned.way.fewest:
            continue
        way = planned.way.fitted(len(edges) - 1)
        spread = np.ravel(oracle.price(way.query(axis, edges), **portion.part(1 - sketch.spent)).spread)
        drawn = way.noise(len(edges) - 1, spread, min(max(_DRAWN // len(edges), DRAWS), MOST_DRAWS))
        curves = [np.interp(ends, edges, noise) for noise in drawn]
        noise = float(np.mean([np.abs(curve[:, 1] - curve[:, 0]) for curve in curves]))
        cells, rows = np.diff(edges), sketch.rows(edges)
        cut = 2 * float(np.sum(np.where(cells > 1, cells / axis.cells * np.square(rows), 0.0)))
        options.append((math.hypot(noise, WITHIN * math.sqrt(cut)), edges, way))
    _, edges, way = min(options, key=lambda option: option[0])
    return edges, way
