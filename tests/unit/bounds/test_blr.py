"""BLR's theorems as planners."""

import math

import pytest

from dodona.bounds import Outcome, releases
from dodona.errors import BadEffort
from dodona.release.intervals import useful


def test_intervals_follow_the_mended_bound():
    verdict = releases.intervals(10**9, 12, 0.1, 1)
    expected = 32 * 12 * (math.log(24) + math.log(2 / (0.1 * 0.05))) / 0.1**3
    assert verdict.rows_needed == math.ceil(expected)
    assert verdict.feasible
    assert not releases.intervals(1000, 12, 0.1, 1).feasible
    assert useful(12, verdict.rows_needed, math.sqrt(2), 0.05) == pytest.approx(0.1, rel=1e-3)


def test_the_union_bound_of_theorem_4_2_holds_at_that_many_rows():
    verdict = releases.intervals(10**9, 12, 0.1, 1)
    e, b, n = 0.1, 12, verdict.rows_needed
    counts, rate = 4 * b / e, e / (4 * b)
    assert counts * math.exp(-rate * (e**2 / 8) * n) <= 0.05  # Pr[|Lap(1/rate)| >= e2 n] for each count


def test_continuous_columns_are_impossible_by_name():
    verdict = releases.intervals(10**12, None, 0.1, 1)
    assert verdict.outcome is Outcome.INFEASIBLE
    assert "Corollary 5.2" in verdict.theorem


def test_small_databases_need_what_theorem_3_1_says():
    verdict = releases.small_database(10**9, 2**10, 4, 0.2, 1)
    m = releases.cover_size(4, 0.2)
    assert verdict.rows_needed == math.ceil(4 / 0.2 * (m * math.log(2**10) + math.log(20)))
    assert releases.cover_size(4, 0.1) > 3 * m
    assert releases.small_database(10**12, 2**10, 4, 0.2, 1).feasible


def test_halfspaces_are_beyond_anyone_at_small_gamma():
    verdict = releases.halfspaces(10**9, 20, 8, 0.1, 0.2, 1)
    assert verdict.outcome is Outcome.VACUOUS
    assert verdict.details["dimensions"] > 1000
    assert verdict.details["projections"] == math.ceil(12 * (math.log(40) + math.log(2) * 160))


def test_the_chain_needs_epsilon_n_of_b_ln_2():
    """Theorem 5.1 on 2^b values: an answer of probability 2^-b becomes possible only after b ln 2 / epsilon steps."""
    bits, epsilon = 20, 0.1
    chain = releases.chain_probability(400, epsilon, 2.0**-bits)
    first = next(step for step, p in enumerate(chain) if p >= 1)
    assert first == math.ceil(bits * math.log(2) / epsilon)
    assert releases.chain_probability(400, epsilon, 0.0)[-1] == 0.0


@pytest.mark.parametrize("e", [0, 1, -1, True])
def test_odd_usefulness_is_refused(e):
    with pytest.raises(BadEffort):
        releases.intervals(10, 3, e, 1)


@pytest.mark.parametrize(("vc", "e"), [(1, 0.05), (4, 0.2), (50, 0.05), (500, 0.2)])
def test_the_cover_is_the_least_that_meets_its_inequality(vc, e):
    """In whole numbers: 4 (C(2m, 0) + ... + C(2m, d)) < exp(m e^2/32) at m, and not at m - 1."""
    m = releases.cover_size(vc, e)

    def left(rows):
        ways, total = 1, 1
        for i in range(vc):
            ways = ways * (2 * rows - i) // (i + 1)
            total += ways
        return math.log(4 * total)

    assert left(m) < m * e**2 / 32
    assert left(m - 1) >= (m - 1) * e**2 / 32
