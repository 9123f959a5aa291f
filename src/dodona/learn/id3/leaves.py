"""Which class each leaf of a tree answers with: noisy counts against what a sketch expects, and all against chance.

Leaves that the sketch holds alike are counted together, so that a group of them stands out of the noise however
small each is. A group's count of a class is off from N q (its rows times the expected share) by noise and by N times
a surprise, what the sketch got wrong; over all groups the squares tell how large surprises are, and shares are drawn
from what is expected to what is counted by just that (empirical Bayes, as Efron and Morris 1973).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.learn._encoding import Feature
from dodona.learn._learner import Task
from dodona.learn._linear import Approach
from dodona.learn._moments import covariance_in
from dodona.learn._supervised import Floats, by_class, noise_of
from dodona.learn.id3.tree import Attribute, Node, Split, key_of
from dodona.learn.logistic import LogisticRegression
from dodona.learn.naive_bayes import GaussianNB
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Expr, Literal
from dodona.query.statistic import Partition, Query, Value

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
    runs = _merge(table, seen, noise, most) if ordered else [(i, i + 1) for i in range(len(table))]
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


def _merge(table: Floats, seen: Whole, noise: float, most: int) -> list[tuple[int, int]]:
    """At most ``most`` runs of cells with the largest worth; a further run must add a deviation of the noise."""
    size, classes = table.shape
    sums = np.vstack([np.zeros(classes), np.cumsum(table, axis=0)])
    width = np.concatenate([[0], np.cumsum(seen)])
    if most == 2:
        return _halve(sums, width, noise)
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


def _halve(sums: Floats, width: Whole, noise: float) -> list[tuple[int, int]]:
    """The same for two runs at most, where each cut leaves one run before it and one after."""
    size = len(width) - 1
    if size < 2:
        return [(0, size)]
    before, after = sums[1:], sums[-1] - sums[1:-1]
    worth = _worth(np.vstack([before, after]), np.concatenate([width[1:], width[-1] - width[1:-1]]), noise)
    both = worth[: size - 1] + worth[size:]
    cut = int(both.argmax()) + 1
    return [(0, cut), (cut, size)] if both[cut - 1] - worth[size - 1] > STEP * noise + 1e-9 else [(0, size)]


# A sketch of the rows to plan a tree on, for when counts would be noise; and rows drawn from it.
#
# A sketch is a released model, so growing a tree on rows drawn from it costs nothing; the classes of its leaves are
# then asked of the true rows. Where second moments are known, rows are normal, with moments asked from near the mean
# (``learn/_moments.py``), and classes those of a logistic regression (``logistic.py``); else each class has its
# own mean (``naive_bayes.py``).


DRAWN = 20_000
MOMENTS = Fraction(1, 2)  # of the sketch: for where the rows are; the rest for their classes


class Sketch(NamedTuple):
    """Drawn ``rows`` of scaled features, the ``chances`` of their classes, and the class a model ``decided`` on.

    Branches are planned on decisions: where chances differ and the answer does not, a tree has nothing to tell apart.
    """

    rows: Floats
    chances: Floats
    decided: NDArray[np.intp]


def sketched(oracle: Oracle, task: Task, share: Fraction) -> Sketch:
    """Rows drawn from what is asked of the oracle; always the same for the same answers."""
    part = replace(task, share=share)
    random = np.random.default_rng(0)  # of the search only: the sketch is public already
    if Approach.of(oracle, part).turned:
        model = LogisticRegression()
        model.learn(replace(task, share=share * (1 - MOMENTS)), oracle)
        mean, covariance = _moments(oracle, replace(task, share=share * MOMENTS))
        rows = snapped(random.multivariate_normal(mean, covariance, DRAWN, method="eigh"), task.features)
        chances = model.chances(rows)
        return Sketch(rows, chances, chances.argmax(axis=1))
    bayes = GaussianNB()
    bayes.learn(part, oracle)
    classes = random.choice(len(task.classes), DRAWN, p=bayes.class_prior_)
    spread = np.sqrt(bayes.var_[classes])
    rows = snapped(bayes.theta_[classes] + random.standard_normal(spread.shape) * spread, task.features)
    # Chances from the draw, not from the model: naive Bayes is far too sure of what it decides.
    return Sketch(rows, np.eye(len(task.classes))[classes], bayes.chances(rows).argmax(axis=1))


def _moments(oracle: Oracle, task: Task) -> tuple[Floats, Floats]:
    """Mean and covariance of the scaled features; what noise made negative is 0.

    They decide where the drawn rows are, and so where the tree is fine; a model tells classes apart with far less.
    """
    found = covariance_in(oracle, task.features, task.rows, task.share)
    ends = zip(found.features, task.features, strict=True)
    mean = np.array([(moved.middle - own.middle) / own.half for moved, own in ends])
    values, vectors = np.linalg.eigh(found.moments.matrix * found.inflation)
    return mean, (vectors * np.maximum(values, 0.0)) @ vectors.T


def snapped(rows: Floats, features: tuple[Feature, ...]) -> Floats:
    """Drawn rows as rows can be: within the bounds, and with one listed value each."""
    rows = np.clip(rows, -1.0, 1.0)
    for column in {feature.column for feature in features if feature.label is not None}:
        own = [i for i, feature in enumerate(features) if feature.column == column]
        rows[:, own] = np.eye(len(own))[rows[:, own].argmax(axis=1)]
    return rows


def cells_of(rows: Floats, features: tuple[Feature, ...], attribute: Attribute) -> NDArray[np.intp]:
    """The cell of an attribute that each drawn row is in: a number's bucket, or the likeliest of listed values."""
    own = [i for i, feature in enumerate(features) if feature.column == attribute.column]
    if attribute.edges:
        return attribute.codes(features[own[0]].decode(rows[:, own[0]]))
    if len(own) == 1:  # true or false, as one feature
        return (rows[:, own[0]] > 0).astype(np.intp)
    return np.asarray(rows[:, own].argmax(axis=1))


# Which attribute best classifies the rows of a leaf, from noisy counts (SuLQ 4.4, step 5 and Lemma 4).
#
# For counts N_jk (branch j, class k), N_j = sum_k N_jk, the paper maximises V_A = sum_jk N_jk log(N_jk / N_j), which is
# MINUS |T| H(L|A): the printed equation lost the sign (ERRATA 7). Noise makes counts negative and V_A too large:
#
# * a count below 0 is taken as 0, and a branch below the noise of its own total is skipped, as the paper skips terms;
# * N log N is convex, so noise of variance v raises its mean by about v / 2N: that much is taken off each term;
# * the buckets of a number are first merged into at most ``most`` runs, by dynamic programming over all ways to do so.
#
# A split is believed when its gain exceeds ``SURE`` standard deviations of the noise in it, which to first order is
# sigma sqrt(sum_jk c_j log^2(p_jk / p_k)) for a branch of c_j cells with class frequencies p_jk.


BETTER_BY = 3.0  # deviations of the noise by which a tree must beat the majority class, or it answers with that
GROUP = 8.0  # leaves counted together have so many deviations of the noise of a count, if they can


def class_counts(task: Task, key: Expr) -> Query:
    """Rows by leaf and class; ``key``: the place of a row's leaf."""
    return Partition(key, Partition(by_class(task), Value(Literal(1.0))))


def decide_classes(task: Task, oracle: Oracle, attributes: list[Attribute], root: Node, share: Fraction) -> None:
    """The chances of each class at every node: counts of groups of leaves, drawn to what is expected by their noise."""
    noise = noise_of(oracle.price(class_counts(task, Literal(0.0)), share=share))
    groups = _group(root.leaves(), GROUP * noise)
    key = key_of(root, attributes, {id(leaf): place for place, group in enumerate(groups) for leaf in group})
    answer = oracle.ask(class_counts(task, key), share=share)
    even = np.full(len(task.classes), 1 / len(task.classes))
    judged = [_Judged.of(group, counts, even) for group, counts in zip(groups, np.asarray(answer.total), strict=True)]
    surprise, most = _surprise(judged, noise)
    for group in judged:
        group.settle(noise, surprise)
    _total(root)
    _prune(root, [group.gain(int(root.chances.argmax()), noise, most) for group in judged])


def _group(leaves: list[Node], least: float) -> list[list[Node]]:
    """Leaves that a sketch holds alike (the same class, a like chance of it), together at least so many rows; leaves of
    which nothing is expected each by itself."""
    if not all(len(leaf.chances) for leaf in leaves):
        return [[leaf] for leaf in leaves]
    groups: list[list[Node]] = []
    for leaf in sorted(leaves, key=lambda one: (int(one.chances.argmax()), float(one.chances.max()))):
        last = groups[-1] if groups else []
        alike = last and int(last[0].chances.argmax()) == int(leaf.chances.argmax())
        if alike and sum(one.rows for one in last) < least:
            last.append(leaf)
        else:
            groups.append([leaf])
    return groups


class _Judged(NamedTuple):
    """Leaves counted together: their ``counts`` by class, and the ``expected`` share of each class."""

    leaves: list[Node]
    counts: Floats
    expected: Floats

    @staticmethod
    def of(leaves: list[Node], counts: Floats, even: Floats) -> _Judged:
        for leaf in leaves:
            leaf.chances = leaf.chances if len(leaf.chances) else even
        weights = np.array([max(leaf.rows, 1e-9) for leaf in leaves])
        return _Judged(leaves, counts, np.average([leaf.chances for leaf in leaves], axis=0, weights=weights))

    @property
    def rows(self) -> float:
        return float(np.maximum(self.counts, 0.0).sum())

    def settle(self, noise: float, surprise: float) -> None:
        """Chances drawn from what is expected to what is counted, by N^2 surprise / (noise^2 + N^2 surprise)."""
        signal = self.rows**2 * surprise
        trust = signal / (signal + noise**2) if signal > 0 else float(noise == 0.0 and self.rows > 0)
        found = np.maximum(self.counts, 0.0) / max(self.rows, 1e-300)
        parts = np.array([max(leaf.rows, 1e-9) for leaf in self.leaves])
        for leaf, part in zip(self.leaves, parts / parts.sum(), strict=True):
            chances = np.maximum(leaf.chances + trust * (found - self.expected), 0.0)
            leaf.chances = chances / max(float(chances.sum()), 1e-300)
            leaf.counts = self.counts * part

    def gain(self, usual: int, noise: float, most: float) -> tuple[float, float]:
        """Rows set right by not answering with class ``usual``, and the variance of that number.

        Shares are known from expectation (variance ``most``) and from counts (noise^2 / N^2), together as precisions
        add; the gain is a difference of two of them.
        """
        parts = np.array([max(leaf.rows, 1e-9) for leaf in self.leaves])
        parts = self.rows * parts / parts.sum()
        ahead = np.array([float(leaf.chances.max() - leaf.chances[usual]) for leaf in self.leaves])
        if not np.any(ahead > 0):
            return 0.0, 0.0
        signal = self.rows**2 * most
        return float(parts @ ahead), 2 * signal * noise**2 / max(signal + noise**2, 1e-300)


def _surprise(groups: list[_Judged], noise: float) -> tuple[float, float]:
    """The variance of a group's true share of a class about the expected one, by moments over all groups; and the most
    it could well be, as the squared noise of so many counts varies by its mean times sqrt(2 / counts).

    A count is off from N q, rows times the expected share, by N times the surprise and by noise: their squares add.
    """
    off = sum(float(np.mean((group.counts - group.rows * group.expected) ** 2)) - noise**2 for group in groups)
    squares = max(sum(group.rows**2 for group in groups), 1e-300)
    chance = noise**2 * math.sqrt(2 * len(groups) / len(groups[0].counts))
    return max(off, 0.0) / squares, (max(off, 0.0) + chance) / squares


def _total(node: Node) -> None:
    """Counts and chances of a node from those below it."""
    for child in node.children:
        _total(child)
    if node.children:
        node.counts = np.sum([child.counts for child in node.children], axis=0)
        weights = [max(float(np.maximum(child.counts, 0.0).sum()), 1e-9) for child in node.children]
        node.chances = np.average([child.chances for child in node.children], axis=0, weights=weights)
    node.rows = float(np.maximum(node.counts, 0.0).sum())


def _prune(root: Node, gains: list[tuple[float, float]]) -> None:
    """Takes away branches that decide nothing; and all, if the rows they set right could be noise."""
    right, variance = np.sum(gains, axis=0)
    if right <= BETTER_BY * math.sqrt(variance):
        root.children, root.split = [], None
    for node in reversed(root.nodes()):
        if len({int(leaf.chances.argmax()) for leaf in node.leaves()}) == 1:
            node.children, node.split = [], None
