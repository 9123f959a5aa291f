"""Which attribute best classifies the rows of a leaf, from noisy counts (SuLQ 4.4, step 5 and Lemma 4).

For counts N_jk (branch j, class k), N_j = sum_k N_jk, the paper maximises V_A = sum_jk N_jk log(N_jk / N_j), which is
MINUS |T| H(L|A): the printed equation lost the sign (ERRATA 7). Noise makes counts negative and V_A too large:

* a count below 0 is taken as 0, and a branch below the noise of its own total is skipped, as the paper skips terms;
* N log N is convex, so noise of variance v raises its mean by about v / 2N: that much is taken off each term;
* the buckets of a number are first merged into at most ``most`` runs, by dynamic programming over all ways to do so.

A split is believed when its gain exceeds ``SURE`` standard deviations of the noise in it, which to first order is
sigma sqrt(sum_jk c_j log^2(p_jk / p_k)) for a branch of c_j cells with class frequencies p_jk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dodona.learn.supervised import Floats
from dodona.learn.tree import Split

SURE = 1.0
STEP = 1.0  # deviations of one count that a further run of buckets must add
HIDDEN = 1.0  # deviations of its total that a cell must hold to be seen

Whole = NDArray[np.int64]


def split_of(
    counts: Floats, cells: Sequence[int], attribute: int, noise: float, ordered: bool, most: int
) -> Split | None:
    """The best branches of one attribute at one leaf, or None if noise could have made them.

    ``counts``: cell by class; only ``cells`` can occur here. ``ordered``: neighbours may be merged.
    """
    table, seen = _seen(counts[list(cells)], noise)
    runs = _merged(table, seen, noise, most) if ordered else [(i, i + 1) for i in range(len(table))]
    if len(runs) < 2:
        return None
    whole = float(_worth(table.sum(axis=0)[None], np.array([seen.sum()]), noise)[0])
    sums = np.stack([table[a:b].sum(axis=0) for a, b in runs])
    widths = np.array([seen[a:b].sum() for a, b in runs])
    gain = float(_worth(sums, widths, noise).sum()) - whole
    if gain <= SURE * _doubt(sums, widths, noise) or gain <= 1e-9 * max(float(table.sum()), 1.0):
        return None
    return Split(attribute, tuple(tuple(cells[a:b]) for a, b in runs), gain)


def _seen(table: Floats, noise: float) -> tuple[Floats, Whole]:
    """Cells above the noise of their total, the others at 0 (the paper skips N_j < N_T / gamma); which those are."""
    seen = table.sum(axis=1) > HIDDEN * noise * math.sqrt(table.shape[1])
    return np.where(seen[:, None], table, 0.0), seen.astype(np.int64)


def _worth(sums: Floats, widths: Whole, noise: float) -> Floats:
    """sum_k N_k log(N_k / N) of each branch, less what noise adds; 0 for a branch that noise hides."""
    deviation = noise * np.sqrt(widths)
    counts = np.maximum(sums, 0.0)
    totals = counts.sum(axis=-1)
    shares = counts / np.maximum(totals, 1e-300)[..., None]
    terms = counts * np.log(np.where(counts > 0, shares, 1.0))
    raised = (deviation**2)[..., None] / (2 * np.maximum(counts, np.maximum(deviation, 1e-300)[..., None]))
    excess = raised.sum(axis=-1) - deviation**2 / (2 * np.maximum(totals, np.maximum(deviation, 1e-300)))
    return np.where(totals > deviation, terms.sum(axis=-1) - excess, 0.0)


def _doubt(sums: Floats, widths: Whole, noise: float) -> float:
    """The standard deviation of the gain's noise."""
    if not noise:
        return 0.0
    floor = noise * np.sqrt(np.maximum(widths, 1))[:, None]
    own, all_of = np.maximum(sums, floor), np.maximum(sums.sum(axis=0), noise)
    ratio = np.log(own / own.sum(axis=1, keepdims=True)) - np.log(all_of / all_of.sum())
    return noise * math.sqrt(float((widths[:, None] * ratio**2).sum()))


def _merged(table: Floats, seen: Whole, noise: float, most: int) -> list[tuple[int, int]]:
    """At most ``most`` runs of cells with the largest worth; a further run must add a deviation of the noise."""
    size, classes = table.shape
    sums = np.vstack([np.zeros(classes), np.cumsum(table, axis=0)])
    width = np.concatenate([[0], np.cumsum(seen)])
    if most == 2:
        return _halved(sums, width, noise)
    starts, ends = np.triu_indices(size + 1, 1)
    worth = np.full((size + 1, size + 1), -np.inf)
    worth[starts, ends] = _worth(sums[ends] - sums[starts], width[ends] - width[starts], noise)
    best, cuts = [worth[0]], [np.zeros(size + 1, dtype=np.intp)]
    for _ in range(1, min(most, size)):
        reach = best[-1][:, None] + worth
        cuts.append(reach.argmax(axis=0))
        best.append(reach.max(axis=0))
    step = STEP * noise
    chosen = 0
    for runs in range(1, len(best)):
        if best[runs][size] - best[chosen][size] > step * (runs - chosen) + 1e-9:
            chosen = runs
    bounds, end = [size], size
    for runs in range(chosen, 0, -1):
        end = int(cuts[runs][end])
        bounds.append(end)
    bounds = [*bounds, 0][::-1]
    return list(pairwise(bounds))


def _halved(sums: Floats, width: Whole, noise: float) -> list[tuple[int, int]]:
    """The same for two runs at most, where each cut leaves one run before it and one after."""
    size = len(width) - 1
    if size < 2:
        return [(0, size)]
    before, after = sums[1:], sums[-1] - sums[1:-1]
    worth = _worth(np.vstack([before, after]), np.concatenate([width[1:], width[-1] - width[1:-1]]), noise)
    both = worth[: size - 1] + worth[size:]
    cut = int(both.argmax()) + 1
    return [(0, cut), (cut, size)] if both[cut - 1] - worth[size - 1] > STEP * noise + 1e-9 else [(0, size)]
