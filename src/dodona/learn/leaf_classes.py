"""Which class each leaf of a tree answers with: noisy counts against what a sketch expects, and all against chance.

Leaves that the sketch holds alike are counted together, so that a group of them stands out of the noise however small
each is. A group's count of a class is off from N q (its rows times the expected share) by noise and by N times a
surprise, what the sketch got wrong; over all groups the squares tell how large surprises are, and shares are drawn from
what is expected to what is counted by just that (empirical Bayes, as Efron and Morris 1973).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dodona.learn.supervised import Floats, by_class, noise_of
from dodona.learn.task import Task
from dodona.learn.tree import Attribute, Node, key_of
from dodona.oracle import Oracle
from dodona.query.expr import Expr, Literal
from dodona.query.statistic import Partition, Query, Value

SURE = 3.0  # deviations of the noise by which a tree must beat the majority class, or it answers with that
GROUP = 8.0  # leaves counted together have so many deviations of the noise of a count, if they can


def class_counts(task: Task, key: Expr) -> Query:
    """Rows by leaf and class; ``key``: the place of a row's leaf."""
    return Partition(key, Partition(by_class(task), Value(Literal(1.0))))


def decide_classes(task: Task, oracle: Oracle, attributes: list[Attribute], root: Node, share: Fraction) -> None:
    """The chances of each class at every node: counts of groups of leaves, drawn to what is expected by their noise."""
    noise = noise_of(oracle.price(class_counts(task, Literal(0.0)), share=share))
    groups = _grouped(root.leaves(), GROUP * noise)
    key = key_of(root, attributes, {id(leaf): place for place, group in enumerate(groups) for leaf in group})
    answer = oracle.ask(class_counts(task, key), share=share)
    even = np.full(len(task.classes), 1 / len(task.classes))
    judged = [_Judged.of(group, counts, even) for group, counts in zip(groups, np.asarray(answer.total), strict=True)]
    surprise, most = _surprise(judged, noise)
    for group in judged:
        group.settle(noise, surprise)
    _total(root)
    _prune(root, [group.gain(int(root.chances.argmax()), noise, most) for group in judged])


def _grouped(leaves: list[Node], least: float) -> list[list[Node]]:
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
    if right <= SURE * math.sqrt(variance):
        root.children, root.split = [], None
    for node in reversed(root.nodes()):
        if len({int(leaf.chances.argmax()) for leaf in node.leaves()}) == 1:
            node.children, node.split = [], None
