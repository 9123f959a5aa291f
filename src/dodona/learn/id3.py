"""ID3 by noisy counts (SuLQ 4.4): one question a level, charged in parallel over all its leaves.

At each level, for every leaf that is still open and every attribute, the counts by cell and class: a row falls in one
leaf, one cell and one class, so an attribute costs one count whatever the number of leaves. What we mend or add:

* N_T < gamma epsilon makes a leaf (step 3), with gamma = O(t^2 / Delta) for noise that errs the same way everywhere.
  Independent noise adds in squares: gamma = sqrt(t k) / Delta for t cells and k classes, Delta = ``tolerance``;
* "A contains only A_1" means that no attribute is left (ERRATA 7). Numbers come in buckets that are merged into
  branches (``gain.py``), so a number may be split again where a branch holds several; a category is used up;
* with many attributes each count is noisy, so first the attributes are screened: the sums of the features by class,
  ONE vector question, show which differ most between classes;
* classes are decided by a last question, the counts by leaf and class, drawn to the majority above as far as they are
  noise; so the tree answers with the majority class where it knows nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.errors import BadQuery
from dodona.learn.base import Recorded
from dodona.learn.coordinates import centred
from dodona.learn.gain import split_of
from dodona.learn.linear import first_sums
from dodona.learn.supervised import Floats, Item, Outlook, ProbabilityClassifier, by_class, noise_of, require_budget
from dodona.learn.task import Task
from dodona.learn.tree import Attribute, Node, attributes_of, key_of, reached
from dodona.oracle import Oracle
from dodona.query.expr import Expr, Literal
from dodona.query.statistic import Partition, Query, Stack, Value

LABELS = Fraction(1, 5)
DEEPER = 2  # a level has this many times the share of the one above: its leaves have fewer rows
SCREENING = Fraction(1, 5)


class _Design(NamedTuple):
    """``bins`` of a number, ``kept`` attributes, and the shares of the questions: one per level, more for deeper ones."""

    bins: int
    kept: int
    levels: tuple[Fraction, ...]
    screening: Fraction
    labels: Fraction


class ID3(ProbabilityClassifier):
    """Decision tree over categories and bucketed numbers.

    ``max_depth``: most levels. ``n_bins``: equal buckets of a number's declared range, or None for as many as the noise
    allows; ``edges``: {column: inner edges} instead. ``max_branches``: most branches of a number. ``tolerance``: how
    far, in nats a row, the gain of the chosen attribute may be from the best (Lemma 4's Delta). ``epsilon``, ``delta``,
    ``bounds``, ``classes``, ``share``: as for every classifier here. After ``fit``: ``tree_``, ``attributes_``.
    """

    def __init__(  # type: ignore[no-untyped-def]
        self,
        epsilon=None,
        delta=0,
        bounds=None,
        *,
        max_depth=4,
        n_bins=None,
        edges=None,
        max_branches=4,
        tolerance=1.0,
        classes=None,
        share=1,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.max_depth = max_depth
        self.n_bins = n_bins
        self.edges = edges
        self.max_branches = max_branches
        self.tolerance = tolerance
        self.classes = classes
        self.share = share

    def _learn(self, task: Task, oracle: Recorded) -> None:
        design = self._design(task, oracle)
        attributes = attributes_of(oracle.schema, task.names, design.bins, self.edges or {})
        require_budget(oracle, _level(task, attributes[: design.kept], Literal(0.0)), task.share)
        kept = _screened(task, oracle, design) if design.screening else list(range(len(attributes)))
        root = Node(float(task.rows), {i: tuple(range(attributes[i].cells)) for i in kept})
        asked = 0
        while asked < len(design.levels) and (leaves := [leaf for leaf in root.leaves() if leaf.allowed]):
            self._grow(task, oracle, attributes, root, leaves, design.levels[asked])
            asked += 1
        # What the levels left goes to the classes.
        _label(task, oracle, attributes, root, design.labels + sum(design.levels[asked:], Fraction(0)))
        self.tree_, self.attributes_ = root, tuple(attributes)

    def _design(self, task: Task, oracle: Oracle) -> _Design:
        """From prices alone: as deep as leaves of a third of those above stay open, with what noise then allows."""
        names, k, n = task.names, len(task.classes), task.rows
        if self.max_depth < 1 or (self.n_bins is not None and self.n_bins < 2) or self.max_branches < 2:
            raise BadQuery("max_depth must be at least 1, n_bins and max_branches at least 2.")
        labels = task.share * LABELS
        for depth in range(self.max_depth, 0, -1):
            deepest = Fraction(DEEPER ** (depth - 1), sum(DEEPER**level for level in range(depth)))
            share = (task.share - labels) * deepest
            one = noise_of(oracle.price(_labels(task, Literal(0.0)), share=share))
            kept = len(names) if one == 0 else int(min(len(names), max(4, (n / (4 * k * one)) ** 2)))
            screening = task.share * SCREENING if kept < len(names) else Fraction(0)
            left = task.share - labels - screening
            noise = one * math.sqrt(kept * float(share / (left * deepest)))
            bins = self.n_bins or (32 if noise == 0 else int(np.clip(n / (k * noise), 2, 32)))
            if depth == 1 or n / 3 ** (depth - 1) >= self._least(bins, k, noise):
                break
        levels = tuple(left * deepest / DEEPER ** (depth - 1 - level) for level in range(depth))
        return _Design(bins, kept, levels, screening, labels)

    def _least(self, cells: int, classes: int, noise: float) -> float:
        """gamma epsilon: the rows below which a node stays a leaf (step 3)."""
        return math.sqrt(cells * classes) * noise / self.tolerance

    def _grow(
        self,
        task: Task,
        oracle: Oracle,
        attributes: list[Attribute],
        root: Node,
        leaves: list[Node],
        share: Fraction,
    ) -> None:
        """One level: one question for all open leaves, then the split of each."""
        used = sorted({i for leaf in leaves for i in leaf.allowed})
        key = key_of(root, attributes, {id(leaf): place for place, leaf in enumerate(leaves)})
        answer = oracle.ask(_level(task, [attributes[i] for i in used], key), share=share)
        noise = float(np.max(answer.spread))
        shapes = [(len(leaves), attributes[i].cells, len(task.classes)) for i in used]
        parts = np.split(np.asarray(answer.total).ravel(), np.cumsum([math.prod(shape) for shape in shapes])[:-1])
        tables = {i: part.reshape(shape) for i, part, shape in zip(used, parts, shapes, strict=True)}
        for place, leaf in enumerate(leaves):
            self._split(leaf, {i: tables[i][place] for i in leaf.allowed}, attributes, noise)

    def _split(self, leaf: Node, tables: dict[int, Floats], attributes: list[Attribute], noise: float) -> None:
        """Chooses the attribute of largest gain (step 5) and opens its branches (step 6)."""
        found = [
            split
            for i, table in tables.items()
            if (split := split_of(table, leaf.allowed[i], i, noise, bool(attributes[i].edges), self.max_branches))
        ]
        split = max(found, key=lambda one: one.gain, default=None)
        if split is None:
            leaf.allowed = {}
            return
        leaf.split = split
        table = tables[split.attribute]
        for cells in split.branches:
            rows = float(table[list(cells)].sum())
            allowed = {**leaf.allowed, split.attribute: cells if attributes[split.attribute].edges else ()}
            allowed = {i: own for i, own in allowed.items() if len(own) > 1}
            enough = rows >= self._least(max(map(len, allowed.values()), default=1), table.shape[1], noise)
            leaf.children.append(Node(rows, allowed if enough else {}, leaf.depth + 1))

    def _outlook(self, task: Task) -> Outlook:
        oracle = task.oracle
        design = self._design(task, oracle)
        attributes = attributes_of(oracle.schema, task.names, design.bins, self.edges or {})[: design.kept]
        question = _level(task, attributes, Literal(0.0))
        price = oracle.price(question, share=design.levels[-1])
        labels = noise_of(oracle.price(_labels(task, Literal(0.0)), share=design.labels))
        items = [
            Item("counts by cell and class", len(design.levels), float(sum(design.levels)), noise_of(price)),
            Item("classes of the leaves", 1, float(design.labels), labels),
        ]
        error = self._least(design.bins, len(task.classes), noise_of(price)) / task.rows
        affordable = oracle.price(question, share=task.share).affordable
        return Outlook(tuple(items), error, task.rows, affordable, "the first split")

    def _evidence(self, rows: Any) -> Floats:
        codes = [attribute.codes(rows[:, i]) for i, attribute in enumerate(self.attributes_)]
        return np.stack([node.chances for node in reached(self.tree_, codes, len(rows))])

    def _scaled(self, rows: Any) -> NDArray[Any]:
        """The columns as they are: a tree reads cells, not scaled features."""
        check_is_fitted(self, "cost_")
        if not self._from_oracle:
            return np.asarray(validate_data(self, rows, reset=False, dtype=np.float64))
        if hasattr(rows, "columns"):
            return np.stack([np.asarray(rows[name], dtype=object) for name in self._names], axis=1)
        return np.asarray(rows)

    def get_depth(self) -> int:
        """The levels of the tree."""
        return max(node.depth for node in self.tree_.nodes())

    def get_n_leaves(self) -> int:
        """The leaves of the tree."""
        return len(self.tree_.leaves())

    def notes(self) -> list[str]:
        """The size of the tree."""
        return [f"{self.get_n_leaves()} leaves, depth {self.get_depth()}"]


def _level(task: Task, attributes: list[Attribute], key: Expr) -> Query:
    """Counts by leaf, cell and class, for each attribute."""
    one = Value(Literal(1.0))
    return Stack(tuple(Partition(key, Partition(a.key, Partition(by_class(task), one))) for a in attributes))


def _labels(task: Task, key: Expr) -> Query:
    return Partition(key, Partition(by_class(task), Value(Literal(1.0))))


def _screened(task: Task, oracle: Oracle, design: _Design) -> list[int]:
    """The attributes whose features differ most between classes, from the sums of each class."""
    space = centred(oracle, task, design.screening / 4)
    answer = oracle.ask(first_sums(task, space), share=design.screening * 3 / 4)
    sums = np.asarray(answer.total)[:, :-1]
    between = ((sums - sums.mean(axis=0)) ** 2).sum(axis=0)
    score = [
        sum(float(between[i]) for i, feature in enumerate(task.features) if feature.column == name)
        for name in task.names
    ]
    return sorted(np.argsort(score)[::-1][: design.kept].tolist())


def _label(task: Task, oracle: Oracle, attributes: list[Attribute], root: Node, share: Fraction) -> None:
    """The chances of each class at every node: counts of the leaves, drawn to those above by their noise."""
    leaves = root.leaves()
    key = key_of(root, attributes, {id(leaf): place for place, leaf in enumerate(leaves)})
    answer = oracle.ask(_labels(task, key), share=share)
    noise = float(np.max(answer.spread))
    for leaf, counts in zip(leaves, np.asarray(answer.total), strict=True):
        leaf.counts = counts
    _settle(root, np.full(len(task.classes), 1 / len(task.classes)), noise)


def _settle(node: Node, above: Floats, noise: float) -> None:
    under = node.leaves()
    node.counts = np.sum([leaf.counts for leaf in under], axis=0)
    kept = np.maximum(node.counts, 0.0)
    weight = 2 * noise * math.sqrt(len(under)) * len(above) ** 0.5
    total = float(kept.sum()) + weight
    node.chances = (kept + weight * above) / total if total > 0 else above
    node.rows = float(kept.sum())
    for child in node.children:
        _settle(child, node.chances, noise)
