"""Time tells neither of a row nor of the noise (HOSTILE A12, A13, M14): distinguishers on wall-clock times."""

from __future__ import annotations

import gc
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

import dodona as dd
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, SecureBits
from dodona.testing.oracles import SCHEMA, seeded_curator

TEMPLATES = [
    *(f"age >= {a} AND smoker" for a in range(5, 95, 9)),
    *(f"LEAST(income, {b})" for b in range(100, 1000, 90)),
    *(f"CASE WHEN sex = 'Male' AND age > {a} THEN SQRT(income) ELSE NULL END" for a in range(5, 95, 9)),
    *(f"LEAST(1 / (age - {a} + 0.5), 2) * 0 + LN(income + 1)" for a in range(5, 95, 9)),
]


def _table(odd: bool) -> dd.Table:
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {
        "age": rng.integers(0, 100, 500).astype(float),
        "sex": np.array(["Female", "Male"], dtype=object)[rng.integers(0, 2, 500)],
        "smoker": (rng.random(500) < 0.3).astype(float),
        "income": rng.gamma(2.0, 120.0, 500),
    }
    if odd:
        columns["age"][0], columns["income"][0], columns["smoker"][0], columns["sex"][0] = np.nan, np.inf, 7.0, None
    return dd.Table(columns, SCHEMA, name="t", population="t")


def _auc(template: str, runs: int) -> float:
    """How well the time of an answer tells the twins apart: 0.5 is not at all."""
    curators = [seeded_curator(_table(odd), dd.Budget(epsilon=10**6), 1) for odd in (False, True)]
    times: list[list[float]] = [[], []]
    for curator in curators:
        curator.ask(template, epsilon=1)
    gc.disable()
    for run in range(runs):
        for side in (0, 1) if run % 2 else (1, 0):  # in turns, so that a busy machine disturbs both alike
            start = time.perf_counter()
            curators[side].ask(template, epsilon=1)
            times[side].append(time.perf_counter() - start)
    gc.enable()
    wins = stats.mannwhitneyu(times[0], times[1]).statistic / runs**2
    return float(max(wins, 1 - wins))


def test_m14_smoke_time_does_not_tell_of_one_odd_row() -> None:
    assert np.median([_auc(template, 60) for template in TEMPLATES[::8]]) < 0.65


@pytest.mark.slow
def test_m14_forty_templates() -> None:
    found = [_auc(template, 1000) for template in TEMPLATES]
    print(f"M14: AUC of {len(found)} templates: mean {np.mean(found):.3f}, median {np.median(found):.3f}, ", end="")
    print(f"most {max(found):.3f}; {sum(auc <= 0.55 for auc in found)} at most 0.55")
    assert len(found) == 40
    assert float(np.mean(found)) <= 0.55
    assert float(np.median(found)) <= 0.55


def _correlation(mechanism: Any, draws: int) -> float:
    source, sizes, times = SecureBits(), [], []
    mechanism.sample(1, source)
    for _ in range(draws):
        start = time.perf_counter()
        (drawn,) = mechanism.sample(1, source).tolist()
        times.append(time.perf_counter() - start)
        sizes.append(abs(drawn))
    return float(abs(stats.spearmanr(sizes, times).statistic))


MECHANISMS = [DiscreteLaplace(Fraction(10)), DiscreteLaplace(Fraction(10**6)), DiscreteGaussian(Fraction(100))]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_m14_smoke_time_does_not_tell_the_size_of_the_noise(mechanism: Any) -> None:
    # The least of a few tries: a busy machine can correlate once, a sampler that tells does so every time.
    assert min(_correlation(mechanism, 2000) for _ in range(4)) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_m14_rank_correlation_of_noise_and_time(mechanism: Any) -> None:
    found = _correlation(mechanism, 30_000)
    print(f"M14: {mechanism}: rank correlation of size and time {found:.4f}")
    assert found <= 0.05
