"""A fitted tree as a picture, as scikit-learn's ``plot_tree`` has it: boxes coloured by class, deeper where surer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dodona.learn.tree import Attribute, Node

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
