"""A fitted tree in words, as scikit-learn's ``export_text`` has it: a branch a line, with rows and classes as known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dodona.learn.tree import Attribute, Node


def tree_text(root: Node, attributes: Sequence[Attribute], classes: Sequence[Any]) -> str:
    """The whole tree. Rows are noisy estimates; they were released with the fit."""
    lines = [_described(root, classes)] if not root.children else []
    return "\n".join([*lines, *_branches(root, attributes, classes, "")]) + "\n"


def _branches(node: Node, attributes: Sequence[Attribute], classes: Sequence[Any], indent: str) -> list[str]:
    if node.split is None:
        return []
    attribute = attributes[node.split.attribute]
    lines = []
    for cells, child in zip(node.split.branches, node.children, strict=True):
        told = "" if child.children else f": {_described(child, classes)}"
        lines.append(f"{indent}|--- {attribute.named(cells)}{told}")
        lines += _branches(child, attributes, classes, indent + "|   ")
    return lines


def _described(node: Node, classes: Sequence[Any]) -> str:
    best = int(np.argmax(node.chances))
    rows = f"{node.rows:,.0f} row{'' if round(node.rows) == 1 else 's'}"
    return f"class {classes[best]} ({node.chances[best]:.0%} of about {rows})"
