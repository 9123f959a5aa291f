"""Decision trees as values: attributes with cells, nodes with branches; and how they become a row expression.

An attribute has cells: the buckets of a number, or the listed values of a category. A node sends each row to the branch
that holds its cell. Numbers keep their order, so a branch of a number is a run of neighbouring buckets.

A fitted tree is drawn as scikit-learn's ``plot_tree`` has it: boxes coloured by class, deeper where surer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.learn._supervised import Floats
from dodona.query.columns import as_number, held
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Date, Flag, Label, Schema, Timestamp, closed
from dodona.query.statistic import bucket


@dataclass(frozen=True)
class Attribute:
    """``edges`` of the buckets of a number, or the ``labels`` of a category; ``middle`` stands for a missing number.

    ``moment``: the column, where its numbers are dates or times.
    """

    column: str
    edges: tuple[float, ...] = ()
    labels: tuple[Label, ...] = ()
    middle: float = 0.0
    moment: Date | Timestamp | None = None

    @property
    def cells(self) -> int:
        """How many values it takes."""
        return len(self.edges) - 1 if self.edges else len(self.labels)

    @property
    def number(self) -> Expr:
        """The column, a missing number being in the middle."""
        return Call("coalesce", (Column(self.column), Literal(self.middle)))

    @property
    def key(self) -> Expr:
        """What to partition by."""
        return bucket(self.number, self.edges) if self.edges else Column(self.column)

    def codes(self, values: NDArray[Any]) -> NDArray[np.intp]:
        """The cell of each value that is held; -1 for a value that is not listed."""
        if self.edges:
            numbers = held(values, self.moment)
            numbers = np.where(np.isnan(numbers), self.middle, numbers)
            return np.searchsorted(self.edges[1:-1], numbers, side="right")
        codes = np.full(len(values), -1, dtype=np.intp)
        for place, label in enumerate(self.labels):
            codes[np.asarray(values == label, dtype=bool)] = place
        return codes

    def named(self, cells: Sequence[int]) -> str:
        """A branch in words."""
        if not self.edges:
            return f"{self.column} in {{{', '.join(str(self.labels[cell]) for cell in cells)}}}"
        low, high = cells[0], cells[-1]
        first, last = (self._edge(edge) for edge in (self.edges[low], self.edges[high + 1]))
        if low == 0:
            return f"{self.column} < {last}"
        return f"{self.column} >= {first}" if high == self.cells - 1 else f"{first} <= {self.column} < {last}"

    def _edge(self, value: float) -> str:
        """Of a date the first day that is not below it."""
        return f"{value:g}" if self.moment is None else self.moment.text(math.ceil(value))

    def is_in(self, cells: Sequence[int]) -> Expr:
        """Whether a row is in these neighbouring cells or lower ones (a number), or in one of them (a category)."""
        if self.edges:
            return Call("lt", (self.number, Literal(float(self.edges[cells[-1] + 1]))))
        wanted = [self.labels[cell] for cell in cells]
        literals = [Literal(label if isinstance(label, str | bool) else float(label)) for label in wanted]
        tests: list[Expr] = [Call("eq", (Column(self.column), literal)) for literal in literals]
        return tests[0] if len(tests) == 1 else Call("or", tuple(tests))


@dataclass(frozen=True)
class Split:
    """``attribute``: its place in the list. ``branches``: the cells of each branch."""

    attribute: int
    branches: tuple[tuple[int, ...], ...]
    gain: float


@dataclass
class Node:
    """A node while the tree grows. ``allowed``: for each attribute, the cells a row here can still have.

    ``chances``: the probability of each class, once known.
    """

    rows: float
    allowed: dict[int, tuple[int, ...]]
    depth: int = 0
    split: Split | None = None
    children: list[Node] = field(default_factory=list)
    counts: Floats = field(default_factory=lambda: np.zeros(0))
    chances: Floats = field(default_factory=lambda: np.zeros(0))

    def leaves(self) -> list[Node]:
        """From left to right."""
        return [leaf for child in self.children for leaf in child.leaves()] if self.children else [self]

    def nodes(self) -> list[Node]:
        """All, parents first."""
        return [self, *(node for child in self.children for node in child.nodes())]


def attributes_of(
    schema: Schema, names: Sequence[str], bins: int, edges: Mapping[str, Sequence[float]]
) -> list[Attribute]:
    """One per column: given edges, ``bins`` equal buckets of a number's declared range, or the listed values."""
    found = []
    for name in names:
        column = closed(name, schema[name])
        if isinstance(column, Category):
            found.append(Attribute(name, labels=column.values))
        elif isinstance(column, Flag):
            found.append(Attribute(name, labels=(False, True)))
        else:
            middle = (column.low + column.high) / 2
            cuts = edges.get(name)
            even = np.linspace(column.low, column.high, bins + 1).tolist()
            stated = {as_number(column, cut) for cut in cuts or ()}
            inner = even[1:-1] if cuts is None else sorted(e for e in stated if column.low < e < column.high)
            moment = column if isinstance(column, Date | Timestamp) else None
            found.append(Attribute(name, (column.low, *inner, column.high), middle=middle, moment=moment))
    return found


def key_of(root: Node, attributes: Sequence[Attribute], places: dict[int, int]) -> Expr:
    """The place of the leaf a row falls in; NULL for leaves without a place (by ``id``)."""
    if not root.children:
        place = places.get(id(root))
        return Literal(None) if place is None else Literal(float(place))
    assert root.split is not None
    attribute = attributes[root.split.attribute]
    tests = list(zip(root.split.branches, root.children, strict=True))
    # A number's last branch takes the rest; a category's unlisted values belong nowhere.
    result: Expr = key_of(tests.pop()[1], attributes, places) if attribute.edges else Literal(None)
    for cells, child in reversed(tests):
        result = Call("if", (attribute.is_in(cells), key_of(child, attributes, places), result))
    return result


def chances_of(root: Node, codes: Sequence[NDArray[np.intp]], rows: int) -> Floats:
    """The chances at the node each held row ends in; a row with an unlisted value stops above the branches."""
    found = np.empty((rows, len(root.chances)))
    waiting = [(root, np.arange(rows))]
    while waiting:
        node, here = waiting.pop()
        found[here] = node.chances
        if node.split is None:
            continue
        own = codes[node.split.attribute][here]
        waiting += [
            (child, here[np.isin(own, cells)]) for cells, child in zip(node.split.branches, node.children, strict=True)
        ]
    return found


def tree_text(root: Node, attributes: Sequence[Attribute], classes: Sequence[Any]) -> str:
    """The whole tree. Rows are noisy estimates; they were released with the fit."""
    lines = [_describe(root, classes)] if not root.children else []
    return "\n".join([*lines, *_branches(root, attributes, classes, "")]) + "\n"


def _branches(node: Node, attributes: Sequence[Attribute], classes: Sequence[Any], indent: str) -> list[str]:
    if node.split is None:
        return []
    attribute = attributes[node.split.attribute]
    lines = []
    for cells, child in zip(node.split.branches, node.children, strict=True):
        told = "" if child.children else f": {_describe(child, classes)}"
        lines.append(f"{indent}|--- {attribute.named(cells)}{told}")
        lines += _branches(child, attributes, classes, indent + "|   ")
    return lines


def _describe(node: Node, classes: Sequence[Any]) -> str:
    best = int(np.argmax(node.chances))
    rows = f"{node.rows:,.0f} row{'' if round(node.rows) == 1 else 's'}"
    return f"class {classes[best]} ({node.chances[best]:.0%} of about {rows})"


# A fitted tree in words, as scikit-learn's ``export_text`` has it: a branch a line, with rows and classes as known.


LARGEST, SMALLEST = 8.0, 5.0  # points: what is easy to read, and what is still readable
LETTER, PADDING = 0.62, 2.2  # of a letter's size: how wide letters are on average, and what a box has beside them
WIDEST = 40.0  # inches


def tree_plot(
    root: Node, attributes: Sequence[Attribute], classes: Sequence[Any], ax: Any = None, max_depth: int | None = None
) -> Any:
    """Draws on ``ax`` or on a new figure of a size that fits; returns the axes.

    ``max_depth``: levels below the root that are drawn; None: all that leave boxes apart and words readable. What is
    not drawn is counted in the box above it.
    """
    import matplotlib.pyplot as plt

    depths = range(max(node.depth for node in root.nodes()) + 1)
    drawings = [Drawing(root, attributes, classes, depth) for depth in depths]
    if ax is None:
        whole = drawings[-1] if max_depth is None else drawings[min(max_depth, depths[-1])]
        wide = min(WIDEST, max(6.0, len(whole.leaves) * whole.points(LARGEST) / 72))
        _, ax = plt.subplots(figsize=(wide, max(2.5, 1.7 * (whole.depth + 1))))
    room = ax.get_window_extent().width * 72 / ax.figure.dpi
    if max_depth is None:
        drawing = next((one for one in reversed(drawings) if one.size(room) >= SMALLEST), drawings[min(1, depths[-1])])
    else:
        drawing = drawings[min(max_depth, depths[-1])]
    drawing.draw(ax, min(LARGEST, drawing.size(room)), plt.get_cmap("tab10" if len(classes) <= 10 else "tab20"))
    return ax


@dataclass(frozen=True)
class Drawing:
    """The tree down to ``depth``."""

    root: Node
    attributes: Sequence[Attribute]
    classes: Sequence[Any]
    depth: int

    @property
    def leaves(self) -> list[Node]:
        """The boxes nothing is drawn below, from left to right."""
        found, waiting = [], [self.root]
        while waiting:
            node = waiting.pop()
            below = self._below(node)
            found += [] if below else [node]
            waiting += reversed(below)
        return found

    def points(self, letter: float) -> float:
        """How much room a leaf needs, with letters of this size: a box shares that of the leaves below it."""
        return letter * self._needed(self.root)[1]

    def _needed(self, node: Node) -> tuple[int, float]:
        """The leaves drawn below a node, and the room each needs for the boxes of the node and of all below."""
        below = [self._needed(child) for child in self._below(node)]
        leaves = sum(count for count, _ in below) or 1
        own = (LETTER * max(map(len, self._lines(node))) + PADDING) / leaves
        return leaves, max([own, *(room for _, room in below)])

    def size(self, room: float) -> float:
        """The size of letters at which the boxes stand apart in ``room`` points."""
        return room / len(self.leaves) / self.points(1.0)

    def draw(self, ax: Any, letter: float, colours: Any) -> None:
        """All boxes, and the lines between them."""
        leaves = self.leaves
        ax.set_axis_off()
        ax.set_xlim(-0.5, len(leaves) - 0.5)
        ax.set_ylim(-self.depth - 0.6, 0.6)
        self._draw(self.root, ax, letter, colours, {id(leaf): float(i) for i, leaf in enumerate(leaves)})

    def _below(self, node: Node) -> list[Node]:
        return list(node.children) if node.depth < self.depth else []

    def _lines(self, node: Node) -> list[str]:
        best = int(np.argmax(node.chances))
        lines = [f"class {self.classes[best]}", f"{node.chances[best]:.0%} of ~{node.rows:,.0f} rows"]
        if node.split is not None and self._below(node):
            return [f"by {self.attributes[node.split.attribute].column}", *lines]
        return [*lines, f"... {len(node.leaves())} leaves"] if node.children else lines

    def _draw(self, node: Node, ax: Any, letter: float, colours: Any, places: dict[int, float]) -> float:
        """The node over its branches; where it stands."""
        children = self._below(node)
        below = [self._draw(child, ax, letter, colours, places) for child in children]
        place = float(np.mean(below)) if below else places[id(node)]
        for i, (x, child) in enumerate(zip(below, children, strict=True)):
            ax.plot([place, x], [-node.depth, -child.depth], color="0.6", linewidth=1, zorder=1)
            far = 0.42 + 0.16 * (i % 2)  # neighbours at two heights, so that their words do not meet
            middle = ((1 - far) * place + far * x, -(1 - far) * node.depth - far * child.depth)
            words = {"ha": "center", "va": "center", "fontsize": 0.9 * letter, "backgroundcolor": "white"}
            ax.annotate(self._branch(node, i), middle, zorder=2, **words)
        best = int(np.argmax(node.chances))
        red, green, blue, _ = colours(best % colours.N)
        sure = (node.chances[best] - 1 / len(self.classes)) / max(1 - 1 / len(self.classes), 1e-9)
        fill = tuple(1 - (1 - part) * 0.7 * float(np.clip(sure, 0.1, 1)) for part in (red, green, blue))
        box = {"boxstyle": "round", "facecolor": fill, "edgecolor": "0.4"}
        text = "\n".join(self._lines(node))
        ax.annotate(text, (place, -node.depth), ha="center", va="center", fontsize=letter, bbox=box, zorder=3)
        return place

    def _branch(self, node: Node, number: int) -> str:
        """What leads to a branch; the box above it names the column."""
        assert node.split is not None
        attribute = self.attributes[node.split.attribute]
        return attribute.named(node.split.branches[number]).removeprefix(f"{attribute.column} ")
