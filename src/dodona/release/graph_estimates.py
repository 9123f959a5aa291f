"""From noisy counts of a graph to its best table of blocks and degrees: free, since it sees only noisy answers.

Three things are known, each with its noise: the number of edges m; the edges e_ab between blocks of vertices; the
degree d_u of each vertex. They overlap, and each is best at another scale, so each is used where it is the better one:

* m: the count and the sum of the table, weighted by inverse variance; the table is moved to it evenly;
* volumes V_a of blocks: rows of the table and sums of degrees, weighted so as well;
* the table: V_a V_b / 2m is what volumes expect. In the rest, structure (communities) sits in few eigenvalues and
  noise in all of them alike, so those that stand out are kept and the others drawn towards 0;
* degrees: the mean given the noisy one under the prior that makes all noisy ones most likely (Robbins 1956; Kiefer and
  Wolfowitz 1956; by expectation-maximisation on a grid): it draws the many small ones together and leaves the few large
  ones alone; then each block's are scaled to its volume.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dodona.synopses.basis import Floats

FARTHEST, PRIOR_STEPS = 200, 100


@dataclass(frozen=True)
class Noisy:
    """A noisy number, table or vector, and the standard deviation of the noise in each entry."""

    values: Floats
    noise: float


def joined(first: Floats, first_variance: float, second: Floats, second_variance: float) -> Floats:
    """Two independent estimates of the same, by inverse variance; an exact one wins."""
    whole = first_variance + second_variance
    share = 0.5 if whole == 0 else second_variance / whole
    return np.asarray(share * first + (1 - share) * second)


def edges_of(counted: Noisy, between: Noisy) -> float:
    """m, from the count and from the table."""
    cells = len(between.values) * (len(between.values) + 1) / 2
    sums = np.triu(between.values).sum()
    return max(float(joined(counted.values, counted.noise**2, np.asarray(sums), cells * between.noise**2)), 0.0)


def table_of(between: Noisy, volumes_by_degrees: Noisy | None, edges: float) -> tuple[Floats, Floats]:
    """(edges between blocks, smaller block first; volumes of blocks), both summing as m says.

    Noise stays of mean 0: entries may be negative, and sums over many of them are the better for it.
    """
    k = len(between.values)
    upper = np.triu(np.ones((k, k), dtype=bool))
    held = np.where(upper, between.values + (edges - np.triu(between.values).sum()) / upper.sum(), 0.0)
    ends = held.sum(axis=0) + held.sum(axis=1)  # an edge within a block counts twice
    if volumes_by_degrees is not None:
        spread = (k + 3) * between.noise**2
        ends = joined(ends, spread, volumes_by_degrees.values, volumes_by_degrees.noise**2)
    volumes = scaled(np.maximum(ends, 0.0), 2 * edges)
    even = np.outer(volumes, volumes) / max(2 * edges, 1e-9)
    expected = np.where(upper, even * (1 - np.eye(k) / 2), 0.0)
    off = held - expected
    whole = off + off.T - np.diag(np.diag(off))
    kept = np.where(upper, shrunk(whole, between.noise), 0.0)
    table = expected + kept
    return table + np.where(upper, (edges - table.sum()) / upper.sum(), 0.0), volumes


def shrunk(matrix: Floats, noise: float) -> Floats:
    """A symmetric matrix less its noise, of this standard deviation s in each entry.

    With k rows, noise alone has eigenvalues up to 2 s sqrt(k). Those beyond become (x + sqrt(x^2 - 4 k s^2)) / 2, what
    they were before the noise; the j others are scaled by 1 - j^2 s^2 / (sum of their squares) (James and Stein 1961).
    """
    values, vectors = np.linalg.eigh(matrix)
    left = values**2 - 4 * len(matrix) * noise**2
    clear = left > 0
    before = (values + np.sign(values) * np.sqrt(np.maximum(left, 0.0))) / 2
    rest = np.where(clear, 0.0, values)
    size = float((rest**2).sum())
    factor = max(0.0, 1 - (int((~clear).sum()) * noise) ** 2 / size) if size > 0 else 0.0
    return np.asarray((vectors * np.where(clear, before, factor * rest)) @ vectors.T)


def degrees_of(ends: Noisy, volumes: Floats, span: int, heavy: bool) -> Floats:
    """Degrees that sum to the blocks' volumes. ``heavy``: the noise is the sum of two Laplace; else it is normal."""
    block = np.arange(len(ends.values)) // span
    drawn = posterior_means(ends, heavy) if ends.noise > 0 else np.maximum(ends.values, 0.0)
    sums = np.bincount(block, weights=drawn, minlength=len(volumes))
    count = np.bincount(block, minlength=len(volumes))
    even = np.divide(volumes, count, out=np.zeros_like(volumes), where=count > 0)
    factor = np.divide(volumes, sums, out=np.zeros_like(volumes), where=sums > 0)
    return np.asarray(np.where(sums[block] > 0, drawn * factor[block], even[block]))


def posterior_means(noisy: Noisy, heavy: bool) -> Floats:
    """The mean of each true value, 0 or more, under the prior that fits all noisy ones best."""
    low, high = float(noisy.values.min()), max(float(noisy.values.max()), noisy.noise)
    if high > noisy.noise * FARTHEST:  # so little noise that no prior changes a value
        return np.maximum(noisy.values, 0.0)
    width = noisy.noise / 10
    used, place, count = np.unique(np.floor((noisy.values - low) / width), return_inverse=True, return_counts=True)
    centres = low + (used + 0.5) * width
    points = np.concatenate(
        [np.linspace(0, noisy.noise, 10)[:-1], np.arange(noisy.noise, high + width, noisy.noise / 2)]
    )
    likely = _density(np.subtract.outer(centres, points) / noisy.noise, heavy) + 1e-300
    prior = np.full(len(points), 1 / len(points))
    for _ in range(PRIOR_STEPS):
        weight = likely * prior
        weight /= weight.sum(axis=1, keepdims=True)
        prior = count @ weight / count.sum()
    weight = likely * prior
    means = (weight @ points) / weight.sum(axis=1)
    return np.asarray(means[place.reshape(-1)])


def _density(x: Floats, heavy: bool) -> Floats:
    """Of noise of standard deviation 1, up to a factor: (1 + 2|x|) exp(-2|x|) for the sum of two Laplace."""
    return np.asarray((1 + 2 * np.abs(x)) * np.exp(-2 * np.abs(x)) if heavy else np.exp(-(x**2) / 2))


def scaled(values: Floats, total: float) -> Floats:
    """To this sum; even where all are 0."""
    held = float(values.sum())
    return values * (total / held) if held > 0 else np.full(values.shape, total / values.size)
