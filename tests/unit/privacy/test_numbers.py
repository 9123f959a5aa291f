"""Numbers are read exactly or refused with one code (HOSTILE V7, V43)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dodona.errors import BadEffort
from dodona.privacy.numbers import exact, show


@pytest.mark.parametrize(
    "value", [0.1, "0.1", "1/10", Fraction(1, 10), Decimal("0.1"), np.float64(0.1), "1e-1", "10E-2"]
)
def test_a_tenth_is_a_tenth(value: object) -> None:
    assert exact(value, "epsilon") == Fraction(1, 10)


@pytest.mark.parametrize("value", [3, np.int64(3), 3.0, "3", Decimal(3)])
def test_whole_numbers(value: object) -> None:
    assert exact(value, "epsilon") == 3


BAD = [
    *(0, -1, 0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-400, 5e-324, 1e9, 10**5000, 10**19),
    *(True, False, None, "", "one", "nan", "inf", "1e-400", "1e400", "-1", "+1", " 1", "1 ", "1_000", "١", "１", "0x1"),
    *("1/0", "1/-2", "1/2/3", "1e9999", "1" * 41, b"1", [1], (1,), 1j, object(), np.bool_(True), np.array([1.0])),
    *(Decimal("nan"), Decimal("sNaN"), Decimal("inf"), Decimal("1e999999999"), Decimal("1e-999999999")),
    *(Fraction(1, 10**3000), Fraction(-1, 2)),
]


@pytest.mark.parametrize("value", BAD, ids=lambda value: type(value).__name__)
def test_v7_everything_else_is_refused_with_one_code(value: object) -> None:
    with pytest.raises(BadEffort, match="epsilon must be a number from 1e-12 to 1e"):
        exact(value, "epsilon")


def test_bounds_are_the_callers() -> None:
    assert exact(1, "share", least=Fraction(0), most=Fraction(1)) == 1
    with pytest.raises(BadEffort, match=r"share must be a number from 0 to 1, .* Got 1\.5\."):
        exact(1.5, "share", least=Fraction(0), most=Fraction(1))


def test_show_is_short() -> None:
    assert show(Fraction(1, 3)) == "0.333333"
