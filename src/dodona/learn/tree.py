"""Decision trees as values: attributes with cells, nodes with branches; and how they become a row expression.

An attribute has cells: the buckets of a number, or the listed values of a category. A node sends each row to the branch
that holds its cell. Numbers keep their order, so a branch of a number is a run of neighbouring buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.learn.supervised import Floats
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Label, Schema
from dodona.query.statistic import bucket


@dataclass(frozen=True)
class Attribute:
    """``edges`` of the buckets of a number, or the ``labels`` of a category; ``middle`` stands for a missing number."""

    column: str
    edges: tuple[float, ...] = ()
    labels: tuple[Label, ...] = ()
    middle: float = 0.0

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
            numbers = np.asarray(values, dtype=np.float64)
            numbers = np.where(np.isfinite(numbers), numbers, self.middle)
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
        if low == 0:
            return f"{self.column} < {self.edges[high + 1]:g}"
        if high == self.cells - 1:
            return f"{self.column} >= {self.edges[low]:g}"
        return f"{self.edges[low]:g} <= {self.column} < {self.edges[high + 1]:g}"

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
        column = schema[name]
        if isinstance(column, Category):
            found.append(Attribute(name, labels=column.values))
        elif isinstance(column, Flag):
            found.append(Attribute(name, labels=(False, True)))
        else:
            middle = (column.low + column.high) / 2
            cuts = edges.get(name)
            even = np.linspace(column.low, column.high, bins + 1).tolist()
            inner = even[1:-1] if cuts is None else sorted({float(e) for e in cuts if column.low < e < column.high})
            found.append(Attribute(name, (column.low, *inner, column.high), middle=middle))
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
