"""Dense weights: the formula on grids of any shape, in one array, with the arrays of any library."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from dodona.concepts.grid import Grid
from dodona.errors import Unsupported
from dodona.query.schema import Category, Flag, Schema
from dodona.synopses.cells import NUMPY, DenseWeights, Library


def grid_of(sizes: tuple[int, ...]) -> Grid:
    columns = {f"x{i}": Category(*[f"v{j}" for j in range(s)], missing="v0") for i, s in enumerate(sizes)}
    return Grid.of(Schema(columns), None)


@pytest.mark.parametrize("sizes", [(2,) * 5, (3, 4, 2, 5, 7, 9, 3, 2), (2,) * 14, (2500, 2, 3), (1, 2)])
@pytest.mark.parametrize("name", ["numpy", "torch", "cupy"])
def test_updates_and_marginals_follow_the_formula(sizes: tuple[int, ...], name: str) -> None:
    pytest.importorskip(name)
    random, weights = np.random.default_rng(0), DenseWeights(grid_of(sizes), Library.named(name))
    table = np.full(sizes, 1 / math.prod(sizes))
    every = tuple(range(len(sizes)))
    for _ in range(12):
        support = tuple(sorted(random.choice(len(sizes), random.integers(1, min(4, len(sizes) + 1)), replace=False)))
        values = random.normal(size=math.prod(sizes[i] for i in support))
        weights.update(support, values, 6.0)
        table = table * np.exp(6.0 * values).reshape([s if i in support else 1 for i, s in enumerate(sizes)])
        table /= table.sum()
        for asked in (support, every[:2], every[-1:], ()):
            summed = table.sum(axis=tuple(i for i in every if i not in asked)).ravel()
            np.testing.assert_allclose(weights.marginal(asked), summed, rtol=1e-9, atol=1e-200)
    np.testing.assert_allclose(weights.flat(), table.ravel(), rtol=1e-9, atol=1e-200)


def test_steps_of_any_size_neither_overflow_nor_vanish() -> None:
    weights = DenseWeights(grid_of((2, 3)))
    for _ in range(50):
        weights.update((0,), np.array([0.0, 1.0]), 600.0)
        weights.update((0,), np.array([1.0, 0.0]), 600.0)
    np.testing.assert_allclose(weights.flat(), np.full(6, 1 / 6))


def test_one_array_and_little_beside_it() -> None:
    names = [f"x{i}" for i in range(18)]
    grid = Grid.of(Schema({name: Flag(missing=False) for name in names}), names)
    tracemalloc.start()
    weights = DenseWeights(grid)
    for support in ((0, 9, 17), (15, 16, 17), (0, 1, 2)):
        weights.update(support, np.arange(8.0), 0.1)
        weights.marginal(support)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * 8 * grid.cells


class Elsewhere:
    """A library whose arrays lie elsewhere: it takes a device, and gives its arrays back only when asked to."""

    float64 = np.float64

    def __init__(self) -> None:
        self.fetched = 0
        self.devices: set[str] = set()

    def full(self, shape: tuple[int, ...], value: float, *, dtype: Any, device: str) -> Any:
        self.devices.add(device)
        return np.full(shape, value, dtype=dtype)

    def asarray(self, values: Any, *, dtype: Any, device: str) -> Any:
        self.devices.add(device)
        return np.asarray(values, dtype=dtype)

    def sum(self, array: Any, axis: tuple[int, ...] | None = None) -> Any:
        return np.sum(array, axis=axis)

    def fetch(self, array: Any) -> Any:
        self.fetched += 1
        return array


def test_a_library_of_ones_own() -> None:
    other = Elsewhere()
    here, there = (DenseWeights(grid_of((3, 2, 4)), held) for held in (NUMPY, Library(other, "gpu:0", other.fetch)))
    for weights in (here, there):
        weights.update((0, 2), np.arange(12.0), 0.3)
    np.testing.assert_array_equal(here.marginal((1, 2)), there.marginal((1, 2)))
    assert other.devices == {"gpu:0"}
    assert other.fetched == 1
    with pytest.raises(Unsupported, match="numpy, torch, cupy"):
        Library.named("pandas")
