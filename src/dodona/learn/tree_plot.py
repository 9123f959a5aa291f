"""A fitted tree as a picture, as scikit-learn's ``plot_tree`` has it: boxes coloured by class, deeper where surer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dodona.learn.tree import Attribute, Node


def tree_plot(root: Node, attributes: Sequence[Attribute], classes: Sequence[Any], ax: Any = None) -> Any:
    """Draws on ``ax`` or on a new figure of a size that fits; returns the axes."""
    import matplotlib.pyplot as plt

    leaves, depth = root.leaves(), max(node.depth for node in root.nodes())
    if ax is None:
        _, ax = plt.subplots(figsize=(max(6.0, 1.9 * len(leaves)), max(2.5, 1.7 * (depth + 1))))
    ax.set_axis_off()
    ax.set_xlim(-0.6, len(leaves) - 0.4)
    ax.set_ylim(-depth - 0.6, 0.6)
    colours = plt.get_cmap("tab10" if len(classes) <= 10 else "tab20")
    _draw(root, attributes, classes, ax, colours, {id(leaf): float(i) for i, leaf in enumerate(leaves)})
    return ax


def _draw(
    node: Node, attributes: Sequence[Attribute], classes: Sequence[Any], ax: Any, colours: Any, places: dict[int, float]
) -> float:
    """The node under its branches; where it stands."""
    below = [_draw(child, attributes, classes, ax, colours, places) for child in node.children]
    place = float(np.mean(below)) if below else places[id(node)]
    for x, child in zip(below, node.children, strict=True):
        ax.plot([place, x], [-node.depth, -child.depth], color="0.6", linewidth=1, zorder=1)
    best = int(np.argmax(node.chances))
    lines = [f"class {classes[best]}", f"{node.chances[best]:.0%} of ~{node.rows:,.0f} rows"]
    if node.split is not None:
        lines.insert(0, f"by {attributes[node.split.attribute].column}")
        named = [attributes[node.split.attribute].named(cells) for cells in node.split.branches]
        for i, (x, child, text) in enumerate(zip(below, node.children, named, strict=True)):
            far = 0.45 + 0.2 * (i % 2)  # neighbours at two heights, so that their words do not meet
            middle = ((1 - far) * place + far * x, -(1 - far) * node.depth - far * child.depth)
            ax.annotate(text, middle, ha="center", va="center", fontsize=7, backgroundcolor="white", zorder=2)
    red, green, blue, _ = colours(best % colours.N)
    sure = (node.chances[best] - 1 / len(classes)) / max(1 - 1 / len(classes), 1e-9)
    fill = tuple(1 - (1 - part) * 0.7 * float(np.clip(sure, 0.1, 1)) for part in (red, green, blue))
    box = {"boxstyle": "round", "facecolor": fill, "edgecolor": "0.4"}
    ax.annotate("\n".join(lines), (place, -node.depth), ha="center", va="center", fontsize=8, bbox=box, zorder=3)
    return place
