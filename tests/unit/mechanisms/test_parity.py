"""Equations over GF(2), and the parity solver's own parts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dodona.errors import BadEffort
from dodona.mechanisms.parity import ParitySolver, packed, parity, solve, unpacked
from dodona.testing.oracles import SeededBits


@pytest.mark.parametrize("columns", [1, 63, 64, 65, 130])
def test_packing_is_undone_by_unpacking(columns: int) -> None:
    bits = np.random.default_rng(columns).random((7, columns)) < 0.5
    assert np.array_equal(unpacked(packed(bits), columns), bits)
    assert packed(np.zeros((0, columns), dtype=bool)).shape == (0, -(-columns // 64))
    mask = bits[0]
    assert np.array_equal(parity(packed(bits), packed(mask.reshape(1, -1))[0]), (bits & mask).sum(axis=1) % 2 == 1)


@pytest.mark.parametrize("d", [1, 63, 64, 65, 200])
def test_a_full_system_has_its_one_solution(d: int) -> None:
    rng = np.random.default_rng(d)
    r = rng.random(d) < 0.5
    x = rng.random((3 * d + 20, d)) < 0.5
    y = (x @ r.astype(int)) % 2 == 1
    solutions = solve(packed(np.column_stack([x, y])), d)
    assert solutions is not None
    assert solutions.dimension == 0
    assert np.array_equal(solutions.uniform(SeededBits(1)), r)
    y[0] = not y[0]
    assert solve(packed(np.column_stack([x, y])), d) is None


def test_every_drawn_solution_fits() -> None:
    rng = np.random.default_rng(5)
    x, r = rng.random((40, 100)) < 0.5, rng.random(100) < 0.5
    y = (x @ r.astype(int)) % 2 == 1
    solutions = solve(packed(np.column_stack([x, y])), 100)
    assert solutions is not None
    assert solutions.dimension >= 60
    bits = SeededBits(2)
    drawn = [solutions.uniform(bits) for _ in range(20)]
    assert all(np.array_equal((x @ one.astype(int)) % 2 == 1, y) for one in drawn)
    assert len({one.tobytes() for one in drawn}) == 20


def test_epsilon_must_be_positive_and_costs_itself() -> None:
    with pytest.raises(BadEffort):
        ParitySolver(Fraction(0))
    assert ParitySolver(Fraction(1, 3)).cost().epsilon == Fraction(1, 3)
    assert ParitySolver(Fraction(1000)).probability < 1
