"""How noise enters the sums a synopsis answers with: a linear map of independent noises, so their variance is known.

Releases over ordered columns ask counts by level, or roots of the prefix sums, and publish the cells that follow from
them. What noise does to a sum over cells is then no guess: each kind here gives its exact standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.synopses.forest import Forest
from dodona.synopses.weighted import Piece

Floats = NDArray[np.float64]
Shape = tuple[int, ...]
STATED = 0.95
"""The confidence of margins that are stated at one only: below it they do not shrink, since they are no noise."""
_EXACT = 50_000_000
"""Groups times runs up to which each group's deviation is computed by itself."""


@dataclass(frozen=True, eq=False)
class TreeNoise:
    """Counts by level, least squares. ``levels``: the shape of each, top first, the last one holding all cells.

    Let e_v be the error of node v, and v_l the variance of a node's estimate from its own subtree. Errors of the
    children are e_v / b and independent rests that sum to 0, so a total sum_c f_c e_c is mean(f) e_v plus a rest of
    variance v_l (sum f^2 - (sum f)^2 / b): from the bottom up, means go on and rests add.
    """

    levels: tuple[Shape, ...]
    variances: tuple[float, ...]

    def deviations(self, totals: Floats) -> Floats:
        """Of each total: rows of ``totals`` say how often it counts each cell (as many axes as a level has)."""
        if self.variances[-1] == 0:
            return np.zeros(len(totals))
        wanted = ((0, 0), *((0, full - have) for full, have in zip(self.levels[-1], totals.shape[1:], strict=True)))
        means, rest, below = np.pad(totals, wanted), np.zeros(len(totals)), self.variances[-1]
        for shape, variance in zip(reversed(self.levels[:-1]), reversed(self.variances[:-1]), strict=True):
            ratio = [n // p for n, p in zip(means.shape[1:], shape, strict=True)]
            branch = math.prod(ratio)
            split = means.reshape(len(means), *(x for pair in zip(shape, ratio, strict=True) for x in pair))
            sums = split.sum(axis=tuple(range(2, split.ndim, 2)))
            within = _over_cells(np.square(means)) - _over_cells(np.square(sums)) / branch
            rest += below * within
            means, below = sums / branch, 1 / (1 / variance + 1 / (branch * below))
        return np.sqrt(np.maximum(rest + below * _over_cells(np.square(means)), 0.0))

    def of_cells(self, cells: int) -> Floats:
        """The deviation of each cell by itself: alike."""
        alone = np.zeros((1, *self.levels[-1]))
        alone.flat[0] = 1.0
        return np.full(cells, float(self.deviations(alone)[0]))

    def settings(self) -> dict[str, Any]:
        """As plain data."""
        return {"levels": [list(shape) for shape in self.levels], "variances": list(self.variances)}


@dataclass(frozen=True, eq=False)
class RootNoise:
    """Independent noise of deviation ``spread``, carried to the cells by ``response``: cell j has sum_i z_i r_(j - i).

    ``circular``: j - i counts around a circle; otherwise i goes up to j.
    """

    response: Floats
    circular: bool
    spread: float

    def deviations(self, totals: Floats) -> Floats:
        """Of each total: how often each noise counts is a correlation with the response."""
        cells = len(self.response)
        size = cells if self.circular else 2 * cells
        turned = np.conj(np.fft.rfft(self.response, size))
        weights = np.fft.irfft(np.fft.rfft(totals, size) * turned, size)[:, :cells]
        return np.asarray(self.spread * np.sqrt(np.sum(np.square(weights), axis=1)))

    def of_cells(self, cells: int) -> Floats:
        """The deviation of each cell by itself."""
        squares = np.square(self.response)
        total = np.full(cells, squares.sum()) if self.circular else np.cumsum(squares)[:cells]
        return np.asarray(self.spread * np.sqrt(total))

    def settings(self) -> dict[str, Any]:
        """As plain data; the response is an array of its own."""
        return {"circular": self.circular, "spread": self.spread}


def _over_cells(values: Floats) -> Floats:
    return np.asarray(values.sum(axis=tuple(range(1, values.ndim))))


def noise_by_group(noise: TreeNoise | RootNoise | Forest, piece: Piece, run: NDArray[np.intp], shape: Shape) -> Floats:
    """The deviation of each group of a partition; ``run``: which count of the ``shape`` a point's rows are part of."""
    count = math.prod(shape)
    key = np.zeros(len(run), dtype=np.intp) if piece.key is None else piece.key
    if piece.cells * count > _EXACT:  # many groups are small ones: the sum of their cells' deviations will do
        each = np.abs(piece.values) * noise.of_cells(count)[run]
        return np.asarray(np.bincount(key, weights=each, minlength=piece.cells + 1)[: piece.cells])
    at_once, found = max(1, _EXACT // 10 // count), []
    for first in range(0, piece.cells, at_once):
        last = min(first + at_once, piece.cells)
        own = (key >= first) & (key < last)
        places = (key[own] - first) * count + run[own]
        table = np.asarray(np.bincount(places, weights=piece.values[own], minlength=(last - first) * count))
        found.append(noise.deviations(table.astype(np.float64).reshape(last - first, *shape)))
    return np.concatenate(found)


def tree_noise(settings: Mapping[str, Any]) -> TreeNoise:
    """The inverse of ``TreeNoise.settings``."""
    return TreeNoise(tuple(map(tuple, settings["levels"])), tuple(map(float, settings["variances"])))


# -- from deviations to margins ----------------------------------------------------------------------------------------


def sum_width(confidence: float, *, normal: bool = False) -> float:
    """How many standard deviations a weighted sum of independent noises stays within, with this probability.

    ``normal``: all of it is Gaussian, and so is the sum. Otherwise some may be Laplace noise, whose tail is longer. A
    sum of Laplace noises is normal given its variance, a sum of exponential variables; of all sums of one variance, a
    single term has the widest quantile from a confidence of about 0.905 on, and infinitely many small terms below it
    (equal and random weights are compared in ``tests/statistical/test_synopsis_margins.py``). The larger is taken.
    """
    tail = 1 - min(max(confidence, 0.0), 1 - 1e-15)
    width = NormalDist().inv_cdf(1 - tail / 2)
    return width if normal else max(width, math.log(1 / tail) / math.sqrt(2))


def sum_margin(
    deviations: NDArray[np.float64], confidence: float, *, normal: bool, steps: NDArray[np.float64] | float = 0.0
) -> NDArray[np.float64]:
    """What weighted sums of noise with these standard deviations stay within; 0 where there is none.

    ``steps``: by how much one step of the noise moves a sum. Noise of whole steps lies beyond k where continuous noise
    lies beyond k + 1/2, and discrete Laplace noise of scale t varies less than 2 t^2 (``mechanisms/laplace.md``): both
    matter where noise is of few steps.
    """
    found, step = np.broadcast_arrays(np.asarray(deviations, dtype=np.float64), np.asarray(steps, dtype=np.float64))
    if not normal:
        coarse = (step > 0) & (found > 0)
        ratio = np.divide(step, math.sqrt(2) * found, out=np.zeros(found.shape), where=coarse)
        root = np.divide(ratio, np.arcsinh(ratio), out=np.ones(found.shape), where=ratio > 1e-6)
        found = found * root
    return np.where(found > 0, found * sum_width(confidence, normal=normal) + step / 2, 0.0)
