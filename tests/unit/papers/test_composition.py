"""Our claimed epsilon is never below the privacy loss distribution's (HOSTILE M7)."""

from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest

from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace
from dodona.papers.checks import claimed_epsilon, compared, pld_epsilon

pytest.importorskip("dp_accounting", reason="dp-accounting is a test dependency")


def check(found):
    below = [each for each in found if each.claimed < each.exact]
    assert not below, below
    # A claim far above the truth would be noise wasted; half the compositions are within 60 %.
    median = float(np.median([each.slack for each in found]))
    print(f"M7: {len(found):,} compositions, median slack {median:.1%}")
    assert median < 0.6


def test_fifty_random_compositions():
    check(compared(seed=0, count=50))


def test_one_gaussian_is_tight():
    steps, delta = (DiscreteGaussian(F(400)),), F(1, 10**6)
    assert pld_epsilon(steps, delta) <= claimed_epsilon(steps, delta) <= 1.12 * pld_epsilon(steps, delta)


def test_half_the_claim_would_be_caught():
    steps, delta = (DiscreteGaussian(F(100)), DiscreteLaplace(F(8))), F(1, 10**6)
    assert claimed_epsilon(steps, delta) / 2 < pld_epsilon(steps, delta)


def test_pure_answers_are_claimed_at_the_sum_of_their_epsilons():
    steps, delta = (DiscreteLaplace(F(10)), DiscreteLaplace(F(20))), F(1, 10**6)
    assert claimed_epsilon(steps, delta) == pytest.approx(0.15)
    assert pld_epsilon(steps, delta) == pytest.approx(0.15, abs=0.002)
    mixed = (*steps, DiscreteGaussian(F(400)))
    assert claimed_epsilon(mixed, delta) > claimed_epsilon(mixed[2:], delta)


@pytest.mark.slow
def test_five_thousand_random_compositions():
    check(compared(seed=7, count=5000))
