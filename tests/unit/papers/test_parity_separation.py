"""Appendix A: the parity gap of databases that share half of their points."""

import numpy as np
import pytest

from dodona.papers.checks import half_replaced, parity_gap, parseval_bound


@pytest.mark.parametrize(("rows", "bits"), [(16, 8), (64, 10), (256, 12), (1024, 14)])
def test_some_parity_is_off_by_parsevals_bound(rows, bits):
    first, second = half_replaced(rows, bits, seed=rows)
    assert len(np.intersect1d(first, second)) == rows - rows // 2
    assert parity_gap(first, second, bits) >= parseval_bound(first, second)
    assert parseval_bound(first, second) == pytest.approx(1 / (2 * np.sqrt(rows)))


def test_against_counting_parities_one_by_one():
    first, second = half_replaced(8, 5, seed=3)
    worst = 0.0
    for mask in range(32):
        odd = [np.mean([bin(int(x) & mask).count("1") % 2 for x in points]) for points in (first, second)]
        worst = max(worst, abs(odd[0] - odd[1]))
    assert parity_gap(first, second, 5) == pytest.approx(worst)
    assert parity_gap(first, first, 5) == 0
