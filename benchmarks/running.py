"""Running totals told period by period: the constant of the factorisation, and errors as they are published.

The published constant: with T periods the worst running total errs at most 1 + (ln T + 0.5772)/pi times as much as one
count of the same budget (Fichtenberger, Henzinger and Upadhyay 2023). Measured beside it: what curators publish, as the
root mean square over all periods at the end of each, for made-up arrivals; beside that a budget that is split evenly
over the periods, each running total asked by itself.

``python -m benchmarks running``
"""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.engines.table import Table
from dodona.oracles.curator import Curator
from dodona.privacy.budget import Budget
from dodona.query.candidates import Running
from dodona.query.schema import Date, Schema
from dodona.release.running import Spans, root_errors, running

Rows = list[dict[str, Any]]
START = np.datetime64("2014-01-01")
EULER = 0.5772156649
BUDGET = Budget(epsilon=1, delta=1e-6)


def arrivals(periods: int, rows: int = 20_000) -> Table:
    """One row a person, in days that fill up by and by."""
    rng = np.random.default_rng(5)
    days = START + np.floor(rng.beta(2, 1.5, rows) * periods).astype(int)
    schema = Schema({"day": Date(str(START), str(START + (periods - 1)))})
    return Table({"day": days}, schema, name="t", neighbours="add-remove", rows=rows)


def constant(periods: int) -> dict[str, Any]:
    """By how much the worst running total errs more than one count, from the prices of a curator."""
    table = arrivals(periods)
    curator = Curator(table, BUDGET)
    spans = Spans.of(table.schema, "day", "day")
    whole = Running("day", spans.edges, 0, 0).whole
    one = float(curator.price("TRUE", share=Fraction(1, 2)).spread)
    worst = root_errors(periods, float(np.max(curator.price(whole, share=Fraction(1, 2)).spread)))[-1]
    published = 1 + (math.log(periods) + EULER) / math.pi
    case = f"{periods:,} periods: the worst running total errs so many times as much as one count"
    row = {"case": case, "ours": float(worst / one), "target": 1.05 * published}
    return {**row, "peer": published, "peer name": "1 + (ln T + 0.5772)/pi"}


def told(periods: int, seeds: int) -> Rows:
    """Errors of what is published, and how long it takes when one more period is over."""
    table = arrivals(periods)
    days = np.asarray(table.given["day"]) if table.given is not None else np.zeros(0)
    truth = np.searchsorted(np.sort(days), START + np.arange(1, periods + 1))
    off, split, seconds, plain = [], [], [], []
    for seed in range(seeds):
        curator = Curator(table, BUDGET)
        running(curator, "day", every="day", periods=periods - 1, share=Fraction(99, 100))
        start = time.perf_counter()
        made = running(curator, "day", every="day", periods=periods, share=Fraction(99, 100))
        seconds.append(time.perf_counter() - start)
        body: Any = made.body
        off.append(np.mean(np.square(body.ranges.curve[1:] - truth)))
        plain.append(np.mean(np.square(body.ranges.plain[1:] - truth)))
        noise = float(Curator(table, BUDGET).price("TRUE", share=Fraction(99, 100 * periods)).spread)
        split.append(np.mean(np.square(np.random.default_rng(seed).normal(0, noise, periods))))
    ours, unsorted, apart = (math.sqrt(float(np.mean(errors))) for errors in (off, plain, split))
    case = f"{periods:,} periods at (1, 1e-6)"
    print(f"{case}: {ours:.2f} rows, {unsorted:.2f} before the curve rises, split {apart:.1f}", flush=True)
    peer = {"peer": apart, "peer name": "the budget split over the periods"}
    lead = {"target": 1.05 * 10.2} if periods == 64 else {}
    return [
        {"case": f"{case}: a running total, unbiased", "ours": unsorted, "unit": "rows", "runs": seeds, **lead, **peer},
        {"case": f"{case}: a running total, as published", "ours": ours, "unit": "rows", "runs": seeds, **peer},
        {"case": f"{case}: one more period", "ours": float(np.median(seconds)), "unit": "s", "runs": seeds},
    ]


def run(quick: bool) -> Rows:
    """Constants of 64 and 4,096 periods, and what is published of 64 and 256."""
    found = [constant(periods) for periods in ((64,) if quick else (64, 4096))]
    for periods, seeds in ((16, 1),) if quick else ((64, 20), (256, 1)):
        found += told(periods, seeds)
    return found


def main() -> Rows:
    """At full size."""
    return run(quick=False)
