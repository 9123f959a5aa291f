"""SuLQ ID3 as printed (section 4.4): every branch of every value, equal noise in every count, terms skipped by gamma.

A node asks for N_T and N_j, and for every attribute N_j^A and N_jk^A. All nodes of a level have no row in common, so
one question asks them all, at the price of one node; levels get equal shares. What cannot be left as printed:

* V_A = |T| H(L|A) lost its sign, and "A contains only A_1" means that no attribute is left (ERRATA 7);
* gamma = O(t^2/Delta) must be O(t^2 ln(t/Delta)/Delta) for Lemma 4 to hold (ERRATA 27): ``gamma`` is stated, or it is
  the printed one, with constant 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dodona.bounds import Outlook, Part
from dodona.bounds.sulq import id3_gain_error, id3_node
from dodona.errors import BadQuery
from dodona.learn._learner import Recorded, Task
from dodona.learn._supervised import Floats, by_class, foreseen, noise_of
from dodona.learn.id3 import ID3
from dodona.learn.id3.tree import Attribute, Node, Split, attributes_of, key_of
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr, Literal
from dodona.query.statistic import Partition, Query, Stack, Value


class SulqID3(ID3):
    """SuLQ ID3(A, T).

    ``max_depth``: the most levels below the root, since a depth is a number of questions; the paper goes on until no
    attribute is left. ``n_bins``: equal buckets of a number, its t values. ``tolerance``: Lemma 4's Delta, as a part of
    |T|. ``gamma``: t^2/Delta unless stated. ``failure``: the delta of step 3's epsilon = (R ln(1/delta))^(1/2). After
    ``fit``: ``tree_``, ``attributes_``, ``gamma_``; other parameters as for ``ID3``.
    """

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        *,
        max_depth: int = 3,
        n_bins: int = 4,
        edges: Mapping[str, Sequence[float]] | None = None,
        tolerance: float = 1.0,
        gamma: float | None = None,
        failure: float = 0.05,
        classes: Any = None,
        share: Number = 1,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.max_depth = max_depth
        self.n_bins = n_bins
        self.edges = edges
        self.tolerance = tolerance
        self.gamma = gamma
        self.failure = failure
        self.classes = classes
        self.share = share

    def _learn(self, task: Task, oracle: Recorded) -> None:
        attributes, levels = self._attributes(task), self._levels(task)
        self.gamma_ = self._gamma(task, attributes)
        every = {i: tuple(range(attribute.cells)) for i, attribute in enumerate(attributes)}
        root = Node(float(task.rows), every)
        for level in range(levels):
            nodes = [leaf for leaf in root.leaves() if leaf.depth == level]
            if not nodes:
                break
            key = key_of(root, attributes, {id(leaf): place for place, leaf in enumerate(nodes)})
            own = attributes if level < levels - 1 else []
            answer = oracle.ask(_counts(task, own, key), share=task.share / levels)
            noise = float(np.max(answer.spread))
            tables = _tables(np.asarray(answer.total, dtype=np.float64).ravel(), len(nodes), own, len(task.classes))
            for place, node in enumerate(nodes):
                self._open(node, place, tables, attributes if own else [], noise)
        for node in reversed(root.nodes()):
            held = np.maximum(node.counts, 0.0) + 1e-9
            node.chances = held / held.sum()
        self.tree_, self.attributes_ = root, tuple(attributes)

    def _open(
        self, node: Node, place: int, tables: list[Floats], attributes: Sequence[Attribute], noise: float
    ) -> None:
        """Steps 1 to 6 for one node; ``tables``: N_T, N_j, then N_j^A and N_jk^A for each attribute."""
        node.rows, node.counts = float(tables[0][place]), tables[1][place]
        off = noise * math.sqrt(math.log(1 / self.failure))
        if not attributes or not node.allowed or node.rows < self.gamma_ * off:  # steps 2 and 3
            return
        worth = {
            i: skipped_value(tables[3 + 2 * i][place], tables[2 + 2 * i][place], node.rows / self.gamma_)
            for i in node.allowed
        }
        best = max(worth, key=lambda i: worth[i])  # step 5
        branches = tuple((cell,) for cell in range(attributes[best].cells))
        node.split = Split(best, branches, worth[best])
        allowed = {i: cells for i, cells in node.allowed.items() if i != best}
        node.children = [Node(0.0, allowed, node.depth + 1) for _ in branches]  # step 6

    def _levels(self, task: Task) -> int:
        if self.max_depth < 1 or (self.n_bins or 0) < 2 or not self.tolerance > 0 or not 0 < self.failure < 1:
            raise BadQuery("max_depth must be at least 1, n_bins 2, tolerance positive, and failure in (0, 1).")
        return min(self.max_depth, len(task.names)) + 1

    def _attributes(self, task: Task) -> list[Attribute]:
        return attributes_of(task.oracle.schema, task.names, self.n_bins or 2, self.edges or {})

    def _gamma(self, task: Task, attributes: Sequence[Attribute]) -> float:
        t = max([len(task.classes), *(attribute.cells for attribute in attributes)])
        return t * t / self.tolerance if self.gamma is None else float(self.gamma)

    def _outlook(self, task: Task) -> Outlook:
        """Lemma 4 at the root: by how many nats a row its split may fall short of the best."""
        attributes, levels = self._attributes(task), self._levels(task)
        noise = noise_of(task.oracle.price(_counts(task, attributes, Literal(0.0)), share=task.share / levels))
        t = max([len(task.classes), *(attribute.cells for attribute in attributes)])
        known = noise**2, t, len(attributes)
        best = id3_node(task.rows, *known, self.tolerance, self.failure)
        gamma = self._gamma(task, attributes)
        told = {"gamma": gamma, "nats short at this gamma": id3_gain_error(task.rows, *known, self.failure, gamma)}
        parts = [Part("all counts of a level", levels, float(task.share), noise)]
        measure = "the root's split at the best gamma, in nats a row short of the best,"
        found = foreseen(self, task, parts, min(best.error or 0.0, math.log(t)), measure)
        return replace(found, theorem=best.theorem, details=told, rows_needed=best.rows_needed if noise else 0)


def skipped_value(joint: Floats, cells: Floats, least: float) -> float:
    """V_A of step 5 less its skipped terms, in nats: sum N_jk ln(N_jk/N_j) where both are at least ``least``."""
    whole = np.broadcast_to(cells[:, None], joint.shape)
    kept = (joint >= least) & (whole >= least) & (joint > 0) & (whole > 0)
    return float((joint[kept] * np.log(joint[kept] / whole[kept])).sum())


def _counts(task: Task, attributes: Sequence[Attribute], key: Expr) -> Query:
    one = Value(Literal(1.0))
    parts: list[Query] = [Partition(key, one), Partition(key, Partition(by_class(task), one))]
    for attribute in attributes:
        parts.append(Partition(key, Partition(attribute.key, one)))
        parts.append(Partition(key, Partition(attribute.key, Partition(by_class(task), one))))
    return Stack(tuple(parts))


def _tables(flat: Floats, nodes: int, attributes: Sequence[Attribute], classes: int) -> list[Floats]:
    shapes: list[tuple[int, ...]] = [(nodes,), (nodes, classes)]
    for attribute in attributes:
        shapes += [(nodes, attribute.cells), (nodes, attribute.cells, classes)]
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=True)]
