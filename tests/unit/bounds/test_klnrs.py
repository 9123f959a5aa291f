"""The planners of KLNRS sections 3 and 4: formulas, monotonicity, the printed constants, and what they promise."""

from __future__ import annotations

import math

import pytest

from dodona.bounds import klnrs
from dodona.errors import BadEffort

LOG = math.log(340_000)


def test_rows_and_error_are_inverse_to_each_other() -> None:
    for epsilon in (None, 0.1, 1.0):
        n = klnrs.agnostic_rows(LOG, 0.05, 0.05, epsilon)
        assert klnrs.agnostic_error(n, LOG, 0.05, epsilon) <= 0.05 < klnrs.agnostic_error(n - 1, LOG, 0.05, epsilon)


def test_more_privacy_accuracy_or_hypotheses_take_more_rows() -> None:
    base = klnrs.agnostic_rows(LOG, 0.05, 0.05, 0.5)
    assert klnrs.agnostic_rows(LOG, 0.05, 0.05, 0.1) > base
    assert klnrs.agnostic_rows(LOG, 0.01, 0.05, 0.5) > base
    assert klnrs.agnostic_rows(2 * LOG, 0.05, 0.05, 0.5) > base
    assert klnrs.agnostic_rows(LOG, 0.05, 0.05, None) < base


def test_the_printed_constant_of_theorem_3_4_falls_short_of_its_own_last_step() -> None:
    """|H| (2 exp(-2 n alpha^2/9) + exp(-epsilon n alpha/6)) <= beta fails at the printed n, holds at the mended one."""

    def failure(n: float, size: float, alpha: float, epsilon: float) -> float:
        return size * (2 * math.exp(-2 * n * alpha**2 / 9) + math.exp(-epsilon * n * alpha / 6))

    size, beta, alpha = 100.0, 0.05, 0.1
    printed = 6 * (math.log(size) + math.log(1 / beta)) * max(1 / (alpha * alpha), 1 / alpha**2)
    assert failure(printed, size, alpha, alpha) > beta
    for epsilon in (0.01, 0.1, 1.0):
        mended = klnrs.theorem_3_4_rows(math.log(size), alpha, beta, epsilon)
        assert failure(mended, size, alpha, epsilon) <= beta
        assert klnrs.agnostic_rows(math.log(size), alpha, beta, epsilon) < mended


def test_agnostic_verdicts() -> None:
    verdict = klnrs.agnostic(LOG, 0.05, 0.05, 0.5)
    assert verdict.feasible
    assert verdict.rows_needed is not None
    assert verdict.details["price of privacy"] == pytest.approx(
        verdict.rows_needed / verdict.details["rows without privacy"]
    )
    assert not klnrs.agnostic(LOG, 0.05, 0.05, 0.5, rows=verdict.rows_needed - 1).feasible
    assert klnrs.agnostic(LOG, 0.05, 0.05, 0.5, rows=10).outcome == "vacuous"
    with pytest.raises(BadEffort):
        klnrs.agnostic(LOG, 1.5, 0.05, 0.5)
    with pytest.raises(BadEffort):
        klnrs.agnostic(-1.0, 0.1, 0.05, 0.5)


def test_sauer_counts_thresholds_exactly() -> None:
    assert klnrs.labelings(1, 100) == pytest.approx(math.log(101))
    assert klnrs.labelings(5, 3) == pytest.approx(math.log(8))
    verdict = klnrs.by_dimension(2, 1000, 0.05, 0.05, 0.5)
    assert "Corollary 3.6" in verdict.theorem
    assert verdict.rows_needed == klnrs.agnostic_rows(math.log(1 + 1000 + 499_500), 0.05, 0.05, 0.5)


@pytest.mark.parametrize("bits", [1, 64, 256])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0, 10.0])
def test_parity_plans_keep_their_promise_in_the_formula_that_makes_it(bits: int, epsilon: float) -> None:
    alpha = beta = 0.05
    plan = klnrs.parity_plan(bits, alpha, beta, epsilon)
    p = math.tanh(epsilon / (2 * plan.repeats))
    survive = plan.runs * 2.0**bits * math.exp(plan.part_rows * math.log1p(-p * alpha))
    assert 2.0**-plan.runs + survive <= beta
    assert plan.rows < klnrs.theorem_4_4_rows(bits, alpha, beta, epsilon)


def test_theorem_4_4_with_mended_constants() -> None:
    """ERRATA 17: base 4/3 and beta/3; k = 15 at beta = 0.05, not the negative number the printed base gives."""
    k = math.ceil(math.log(3 / 0.05) / math.log(4 / 3))
    assert k == 15
    assert math.log(2 / 0.05) / math.log(3 / 4) < 0
    part = math.ceil(8 / (0.5 * 0.01) * (256 * math.log(2) + math.log(4)))
    assert klnrs.theorem_4_4_rows(256, 0.05, 0.05, 0.5) > 15 * part
    verdict = klnrs.parity(256, 0.05, 0.05, 0.5)
    assert verdict.rows_needed == klnrs.parity_plan(256, 0.05, 0.05, 0.5).rows
    assert not klnrs.parity(256, 0.05, 0.05, 0.5, rows=1000).feasible
    with pytest.raises(BadEffort):
        klnrs.parity(0, 0.05, 0.05, 0.5)
