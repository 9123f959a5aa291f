"""ID3 by noisy counts (SuLQ 4.4): one question a level, charged in parallel over all its leaves.

At each level, for every leaf that is still open and every attribute, the counts by cell and class: a row falls in one
leaf, one cell and one class, so an attribute costs one count whatever the number of leaves. What we mend or add:

* N_T < gamma epsilon makes a leaf (step 3), with gamma = O(t^2 / Delta) for noise that errs the same way everywhere.
  Independent noise adds in squares: gamma = sqrt(t k) / Delta for t cells and k classes, Delta = ``tolerance``;
* "A contains only A_1" means that no attribute is left (ERRATA 7). Numbers come in buckets that are merged into
  branches (``learn/id3/leaves.py``), so a number may be split again where a branch holds several; a category is used
  up;
* where noise lets counts reach only a few levels, branches are planned on a private sketch of the rows instead, at the
  same gain, by what a model of them decides (``learn/id3/leaves.py``), and counts decide the classes of the leaves;
* classes are decided by a last question, the counts by leaf and class, drawn to what is expected as far as they are
  noise (``learn/id3/leaves.py``); so the tree answers with the majority class where it knows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.bounds import Outlook, Part
from dodona.errors import BadQuery
from dodona.learn._learner import Recorded, Task
from dodona.learn._supervised import Floats, ProbabilityClassifier, by_class, foreseen, noise_of
from dodona.learn.id3.leaves import cells_of, class_counts, decide_classes, sketched, split_of
from dodona.learn.id3.tree import Attribute, Node, attributes_of, chances_of, key_of, tree_text
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr, Literal
from dodona.query.statistic import Partition, Query, Stack, Value

LABELS = Fraction(1, 5)
SKETCH = Fraction(5, 6)
DEEPER = Fraction(5, 4)  # a level has this many times the share of the one above: its leaves have fewer rows
BINS = 32
SHALLOW = 6  # levels: if counts reach fewer, a sketch reaches further
LEAF = 0.25  # a planned leaf has this many deviations of the noise of a count, at least


class _Design(NamedTuple):
    """``bins`` of a number. Shares: of the sketch (0: branches come from counts), of each level, of the classes."""

    bins: int
    sketch: Fraction
    levels: tuple[Fraction, ...]
    labels: Fraction


class ID3(ProbabilityClassifier):
    """Decision tree over categories and bucketed numbers.

    ``max_depth``: most levels. ``n_bins``: equal buckets of a number's declared range, or None for as many as the noise
    allows; ``edges``: {column: inner edges} instead. ``max_branches``: most branches of a number. ``tolerance``: how
    far, in nats a row, the gain of the chosen attribute may be from the best (Lemma 4's Delta). ``epsilon``, ``delta``,
    ``bounds``, ``classes``, ``share``: as for every classifier here. After ``fit``: ``tree_``, ``attributes_``.
    """

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        *,
        max_depth: int = 8,
        n_bins: int | None = None,
        edges: Mapping[str, Sequence[float]] | None = None,
        max_branches: int = 2,
        tolerance: float = 2.0,
        classes: Any = None,
        share: Number = 1,
    ) -> None:
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
        cells = {i: tuple(range(attribute.cells)) for i, attribute in enumerate(attributes) if attribute.cells > 1}
        root = Node(float(task.rows), cells)
        left = design.labels
        if design.sketch:
            self._plan_on(task, oracle, attributes, root, design)
        else:
            left += self._count(task, oracle, attributes, root, design)
        decide_classes(task, oracle, attributes, root, left)
        self.tree_, self.attributes_ = root, tuple(attributes)

    def _design(self, task: Task, oracle: Oracle) -> _Design:
        """From prices alone: as deep as leaves of a third of those above stay open."""
        if self.max_depth < 1 or (self.n_bins is not None and self.n_bins < 2) or self.max_branches < 2:
            raise BadQuery("max_depth must be at least 1, n_bins and max_branches at least 2.")
        strange = set(self.edges or {}) - set(task.names)
        if strange:
            raise BadQuery(f"edges must name columns: {', '.join(task.names)}. Got {', '.join(sorted(strange))}.")
        labels, k = task.share * LABELS, len(task.classes)
        for depth in range(self.max_depth, 0, -1):
            parts = [DEEPER**level for level in range(depth)]
            levels = tuple((task.share - labels) * part / sum(parts) for part in parts)
            one = noise_of(oracle.price(class_counts(task, Literal(0.0)), share=levels[-1]))
            noise = one * math.sqrt(len(task.names))  # as many questions as attributes, side by side
            bins = self.n_bins or (BINS if noise == 0 else int(np.clip(task.rows / (k * noise), 2, BINS)))
            if task.rows / 2 ** (depth - 1) >= self._least(bins, k, noise):
                break
        if depth < min(self.max_depth, SHALLOW):
            first = task.share * SKETCH
            return _Design(self.n_bins or BINS, first, (), task.share - first)
        return _Design(bins, Fraction(0), levels, labels)

    def _least(self, cells: int, classes: int, noise: float) -> float:
        """gamma epsilon: the rows below which a node stays a leaf (step 3)."""
        return math.sqrt(cells * classes) * noise / self.tolerance

    def _count(self, task: Task, oracle: Oracle, attributes: list[Attribute], root: Node, design: _Design) -> Fraction:
        """Grows by counts, level by level; the share that no level needed."""
        asked = 0
        while asked < len(design.levels) and (leaves := [leaf for leaf in root.leaves() if leaf.allowed]):
            used = sorted({i for leaf in leaves for i in leaf.allowed})
            key = key_of(root, attributes, {id(leaf): place for place, leaf in enumerate(leaves)})
            question = _level(task, [attributes[i] for i in used], key)
            answer = oracle.ask(question, share=design.levels[asked])
            noise = float(np.max(answer.spread))
            shapes = [(len(leaves), attributes[i].cells, len(task.classes)) for i in used]
            parts = np.split(np.asarray(answer.total).ravel(), np.cumsum([math.prod(shape) for shape in shapes])[:-1])
            tables = {i: part.reshape(shape) for i, part, shape in zip(used, parts, shapes, strict=True)}
            for place, leaf in enumerate(leaves):
                own = {i: tables[i][place] for i in leaf.allowed}
                self._split(leaf, own, attributes, noise, self._least(design.bins, len(task.classes), noise))
            asked += 1
        return sum(design.levels[asked:], Fraction(0))

    def _split(
        self, leaf: Node, tables: dict[int, Floats], attributes: list[Attribute], noise: float, least: float
    ) -> None:
        """Chooses the attribute of largest gain (step 5) and opens its branches (step 6) of at least ``least`` rows."""
        found = [
            split
            for i, table in tables.items()
            if (split := split_of(table, leaf.allowed[i], i, noise, bool(attributes[i].edges), self.max_branches))
        ]
        leaf.split = max(found, key=lambda one: one.gain, default=None)
        if leaf.split is None:
            leaf.allowed = {}
            return
        place = leaf.split.attribute
        for cells in leaf.split.branches:
            rows = float(tables[place][list(cells)].sum())
            allowed = {**leaf.allowed, place: cells if attributes[place].edges else ()}
            allowed = {i: own for i, own in allowed.items() if len(own) > 1}
            leaf.children.append(Node(rows, allowed if rows >= least else {}, leaf.depth + 1))

    def _plan_on(self, task: Task, oracle: Recorded, attributes: list[Attribute], root: Node, design: _Design) -> None:
        """Grows on rows drawn from a sketch, until leaves would be lost in the noise of their counts."""
        price = oracle.price(class_counts(task, Literal(0.0)), share=design.labels)
        rows, chances, classes = sketched(oracle, task, design.sketch)
        scale, k = task.rows / len(rows), len(task.classes)
        least = LEAF * noise_of(price)
        codes = [cells_of(rows, task.features, attribute) for attribute in attributes]
        waiting = [(root, np.arange(len(rows)))]
        while waiting:
            node, here = waiting.pop()
            seen = chances[here].sum(axis=0) + 1.0
            node.chances = seen / seen.sum()
            if node.depth >= self.max_depth or not node.allowed:
                continue
            tables = {i: _table(codes[i][here], classes[here], attributes[i].cells, k) * scale for i in node.allowed}
            self._split(node, tables, attributes, 0.0, 2 * least)
            split = node.split
            if split is None:
                continue
            if min(child.rows for child in node.children) < least and len(split.branches) == 2:
                node.split, node.children = None, []
                continue
            own = codes[split.attribute][here]
            waiting += [
                (child, here[np.isin(own, cells)]) for cells, child in zip(split.branches, node.children, strict=True)
            ]

    def _outlook(self, task: Task) -> Outlook:
        oracle, design = task.oracle, self._design(task, task.oracle)
        attributes = attributes_of(oracle.schema, task.names, design.bins, self.edges or {})
        labels = noise_of(oracle.price(class_counts(task, Literal(0.0)), share=design.labels))
        parts = [Part("classes of the leaves", 1, float(design.labels), labels)]
        error = LEAF * labels * len(task.classes) / task.rows
        if design.sketch:
            parts.insert(0, Part("a sketch of the rows, to plan on", 1, float(design.sketch), 0.0))
        else:
            noise = noise_of(oracle.price(_level(task, attributes, Literal(0.0)), share=design.levels[-1]))
            parts.insert(0, Part("counts by cell and class", len(design.levels), float(sum(design.levels)), noise))
            error = self._least(design.bins, len(task.classes), noise) / task.rows
        return foreseen(self, task, parts, error, "noise over the rows of the first split")

    def _evidence(self, rows: Any) -> Floats:
        codes = [attribute.codes(rows[:, i]) for i, attribute in enumerate(self.attributes_)]
        return chances_of(self.tree_, codes, len(rows))

    def _scaled(self, rows: Any) -> NDArray[Any]:
        """The columns as they are: a tree reads cells, not scaled features."""
        check_is_fitted(self, "cost_")
        if not self._from_oracle:
            return np.asarray(validate_data(self, rows, reset=False, dtype=np.float64))
        if hasattr(rows, "columns"):
            return np.stack([np.asarray(rows[name], dtype=object) for name in self._names], axis=1)
        return np.asarray(rows)

    def export_text(self) -> str:
        """The tree in words."""
        check_is_fitted(self, "cost_")
        return tree_text(self.tree_, self.attributes_, self.classes_.tolist())

    def plot(self, ax: Any = None, max_depth: int | None = None) -> Any:
        """The tree as a picture, on ``ax`` or a new figure; needs matplotlib. Returns the axes.

        ``max_depth``: levels below the root to draw; None: as many as can be read.
        """
        from dodona.learn.id3.tree import tree_plot

        check_is_fitted(self, "cost_")
        return tree_plot(self.tree_, self.attributes_, self.classes_.tolist(), ax, max_depth)

    def get_depth(self) -> int:
        """The levels of the tree."""
        return max(node.depth for node in self.tree_.nodes())

    def get_n_leaves(self) -> int:
        """The leaves of the tree."""
        return len(self.tree_.leaves())

    def notes(self) -> list[str]:
        """The size of the tree."""
        return [f"{self.get_n_leaves()} leaves, depth {self.get_depth()}"]


def _level(task: Task, attributes: Sequence[Attribute], key: Expr) -> Query:
    """Counts by leaf, cell and class, for each attribute."""
    one = Value(Literal(1.0))
    return Stack(tuple(Partition(key, Partition(a.key, Partition(by_class(task), one))) for a in attributes))


def _table(cells: NDArray[np.intp], classes: NDArray[np.intp], size: int, k: int) -> Floats:
    return np.bincount(cells * k + classes, minlength=size * k).reshape(size, k).astype(np.float64)
