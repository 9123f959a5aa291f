"""Stated margins of published conjunctions hold at a nominal 95 %, for every method; a tenth of them must not pass."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dodona import release
from dodona.engines.table import Table
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Schema
from dodona.query.statistic import Query, Stack, as_query
from dodona.testing.oracles import seeded_curator

NAMES = "abcdefgh"
ROWS = 4000
RUNS = {"adaptive": 2}  # it takes a second each; the others six times


def table() -> Table:
    """Two chains of columns that follow each other, and two columns that are nearly always or never true."""
    rng = np.random.default_rng(21)
    columns = {}
    for name, follows in zip(NAMES, (None, "a", "b", None, "d", "e", None, None), strict=True):
        own = rng.random(ROWS) < {"g": 0.97, "h": 0.03}.get(name, 0.4)
        columns[name] = own if follows is None else np.where(rng.random(ROWS) < 0.8, columns[follows], own)
    return Table(columns, Schema(dict.fromkeys(NAMES, Flag(missing=False))), name="t")


def conjunctions(count: int) -> Query:
    """Of one to three literals, with signs as they fall."""
    rng = np.random.default_rng(22)
    chosen = [c for width in (1, 2, 3) for c in itertools.combinations(NAMES, width)]
    picked = [chosen[i] for i in rng.choice(len(chosen), count, replace=False)]
    return Stack(
        tuple(as_query(" AND ".join(n if rng.random() < 0.5 else f"NOT {n}" for n in names)) for names in picked)
    )


@pytest.mark.parametrize("epsilon", [0.2, 2])
@pytest.mark.parametrize("delta", [None, 1e-6], ids=["pure", "delta"])
@pytest.mark.parametrize("method", ["characters", "blocks", "pairs", "adaptive"])
def test_conjunctions_are_within_their_margins(method: str, delta: float | None, epsilon: float) -> None:
    rows, asked = table(), conjunctions(60)
    truth = np.asarray(Exact(rows).ask(asked).total)
    budget = Budget(epsilon=epsilon) if delta is None else Budget(epsilon=epsilon, delta=delta)
    right, wrong = [], []
    for seed in range(RUNS.get(method, 6)):
        synopsis = release.conjunctions(seeded_curator(rows, budget, seed), width=3, method=method, share=1)
        answer = synopsis.ask(asked)
        off, margin = np.abs(np.asarray(answer.total) - truth), np.asarray(answer.margin)
        right.append(off <= margin)
        wrong.append(off <= 0.1 * margin)
    assert np.mean(right) >= 0.9
    assert np.mean(wrong) < 0.8
