"""A program in the form SQL needs: the same steps, with what a database would compute in vain left out.

``nearest`` becomes inner products, their maximum and its position; LEAST and GREATEST with a constant become one
comparison; a grid says whether its value needs a clip and a truncation at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dodona.engines.magnitudes import Size, sized
from dodona.engines.ranges import Range, range_of
from dodona.query.program import Program

# How often a template repeats each argument; all others write each argument once.
_REPEATS = {
    "flush": (2,),
    "number": (2,),
    "sqrt": (2,),
    "finite": (2,),
    "least": (3, 3),
    "greatest": (3, 3),
    "at_most": (2, 2),
    "at_least": (2, 2),
    "bucket": (9,),
}


@dataclass(frozen=True)
class Node:
    """A step as SQL writes it."""

    op: str
    args: tuple[int, ...] = ()
    constants: tuple[Any, ...] = ()

    def repeats(self) -> tuple[int, ...]:
        """How often each argument is written."""
        if self.op == "grid":
            return (1 if self.constants[3] else 7,)
        if self.op == "which":
            return (2, *([1] * (len(self.args) - 1)))
        return _REPEATS.get(self.op, (1,) * len(self.args))


@dataclass
class Nodes:
    """The program's steps as nodes; ``at[step]`` is the node of a step."""

    nodes: list[Node] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    _ranges: list[Range] = field(default_factory=list)

    @staticmethod
    def of(program: Program, flushed: frozenset[int] = frozenset()) -> Nodes:
        """Lowers every step; the factors of the products ``flushed`` are made 0 where they are below 2^-500."""
        result = Nodes()
        flushes: dict[int, int] = {}
        for index, step in enumerate(program.steps):
            args = tuple(result.at[arg] for arg in step.args)
            if index in flushed:
                args = tuple(flushes.get(arg) or flushes.setdefault(arg, result._add("flush", (arg,))) for arg in args)
            if step.op == "nearest":
                result.at.append(result._nearest(args, step.constants))
            elif step.op in ("least", "greatest"):
                result.at.append(result._extreme(step.op, args))
            elif step.op == "grid":
                low, high, bits = step.constants
                inside, whole = result._within(args[0], low, high), bits == 0 and result._whole(args[0])
                result.at.append(result._add("grid", args, (low, high, bits, inside, whole)))
            else:
                result.at.append(result._add(step.op, args, step.constants))
        return result

    def constant(self, index: int) -> float | None:
        """The number a node is, if it is one and not NULL."""
        node = self.nodes[index]
        return node.constants[0] if node.op == "const" else None

    def _add(self, op: str, args: tuple[int, ...], constants: tuple[Any, ...] = ()) -> int:
        self.nodes.append(Node(op, args, constants))
        self._ranges.append(range_of(op, args, constants, [self._ranges[arg] for arg in args]))
        return len(self.nodes) - 1

    def _nearest(self, points: tuple[int, ...], centres: tuple[tuple[float, ...], ...]) -> int:
        """argmin |x - c|^2 = argmax 2<x, c> - |c|^2, exact in whole doubles; the first of equals."""
        scores = []
        for centre in centres:
            product = self._add("dot", points, tuple(2.0 * c for c in centre))
            offset = self._add("const", (), (math.fsum(c * c for c in centre),))
            scores.append(self._add("sub", (product, offset)))
        best = self._add("largest", tuple(scores))
        return self._add("which", (best, *scores))

    def _extreme(self, op: str, args: tuple[int, ...]) -> int:
        """With a constant: NULL needs no test of its own, as it is neither above nor below."""
        fixed = [self.constant(arg) is not None for arg in args]
        if fixed[0] == fixed[1]:
            return self._add(op, args)
        return self._add("at_most" if op == "least" else "at_least", args if fixed[1] else args[::-1])

    # -- what a value is by itself ---------------------------------------------------------------------------------

    def _within(self, index: int, low: float, high: float) -> bool:
        """Whether the value is in [low, high] by what it is, so that no clip is needed."""
        return self._ranges[index].within(low, high)

    def _whole(self, index: int) -> bool:
        """Whether the value is whole by what it is, so that no truncation is needed."""
        node = self.nodes[index]
        if node.op in ("if", "coalesce", "add", "sub", "mul", "flush", "at_most", "at_least"):
            return all(self._whole(arg) for arg in node.args[-2:])
        if node.op == "const":
            return node.constants[0] is None or float(node.constants[0]).is_integer()
        return node.op == "number" or (node.op == "column" and node.constants[1] == "integer")


def only_summed(program: Program) -> frozenset[int]:
    """The products that nothing reads but grids: a factor below 2^-500 leaves less than one step of those, so 0.

    The other factor is a row's own value, at most 2^100 in size, and a step at least 2^-300.
    """
    sizes: list[Size] = []
    good: set[int] = set()
    for index, step in enumerate(program.steps):
        sizes.append(sized(step.op, [sizes[arg] for arg in step.args], step.constants))
        good -= set(step.args) if step.op != "grid" or step.constants[2] > 300 else set()
        factors = [sizes[arg] for arg in step.args] if step.op == "mul" else []
        if factors and factors[0].tiny * factors[1].tiny == 0.0 and max(f.most for f in factors) <= 2.0**100:
            good.add(index)
    return frozenset(good - set(program.roots()))


def sizes_of(nodes: Sequence[Node]) -> list[Size]:
    """How large each value can be (``magnitudes.py``)."""
    sizes: list[Size] = []
    for node in nodes:
        op = "square" if node.op == "mul" and node.args[0] == node.args[1] else node.op
        sizes.append(sized(op, [sizes[arg] for arg in node.args], node.constants))
    return sizes


def missing_step(constants: tuple[Any, ...]) -> float:
    """What NULL counts as on a grid: the whole step of its range nearest to 0."""
    low, high, bits = constants[:3]
    return float(math.trunc(math.ldexp(min(max(0.0, low), high), bits)))
