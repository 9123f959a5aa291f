"""The public schedule of answers: exact probabilities of each moment, for nearby running times."""

import contextlib
import math
import time

import numpy as np
import pytest

from dodona.server.settings import NOISE, Pacer, exponential

TICK = 0.1


def probability_after(moment, took):
    """P(leaves after ``moment``) for a tick ``moment``: P(took + max(took, tick)/5 X > moment)."""
    return math.exp(-max(0.0, moment - took) / (NOISE * max(took, TICK)))


@pytest.mark.parametrize("took", [0.0, 0.003, 0.04, 0.099, 0.1, 0.13, 0.5, 3.0, 77.0, 5000.0])
def test_work_ends_at_ticks_only_however_long_it_took(took):
    pacer = Pacer(TICK)
    for _ in range(200):
        steps = math.log2(pacer.due(took) / TICK)
        assert steps == pytest.approx(round(steps))
        assert pacer.due(took) >= took


def test_the_probabilities_are_the_stated_ones():
    draws = iter(-np.log1p(-(np.arange(20_000) + 0.5) / 20_000))
    pacer = Pacer(TICK, lambda: next(draws))
    late = np.mean([pacer.due(0.07) > TICK for _ in range(20_000)])
    assert late == pytest.approx(probability_after(TICK, 0.07), abs=1e-3)


@pytest.mark.parametrize("took", [0.01, 0.05, 0.09, 0.15, 1.0])
@pytest.mark.parametrize("moved", [1e-4, 1e-3])
def test_a_row_that_moves_the_time_a_little_moves_the_odds_a_little(took, moved):
    bound = math.exp(moved / (NOISE * max(took, TICK))) * (1 + moved / took) ** 5
    for step in range(8):
        moment = TICK * 2**step
        if moment > took + moved:
            ratio = probability_after(moment, took + moved) / probability_after(moment, took)
            assert 1 <= ratio <= bound * math.exp(5 * moment * moved / took**2 if took > TICK else 0)


def test_the_draws_are_exponential():
    draws = np.array([exponential() for _ in range(20_000)])
    assert draws.min() >= 0
    assert draws.mean() == pytest.approx(1, abs=0.05)
    assert (draws > 1).mean() == pytest.approx(math.exp(-1), abs=0.02)


@pytest.mark.parametrize("fails", [False, True])
def test_work_is_held_until_its_moment_whether_it_ends_well_or_not(fails):
    def work():
        if fails:
            raise RuntimeError("a fault")
        return 7

    start = time.monotonic()
    with pytest.raises(RuntimeError) if fails else contextlib.nullcontext():
        assert Pacer(0.02, lambda: 0.0).hold(work) == 7
    assert time.monotonic() - start >= 0.02
