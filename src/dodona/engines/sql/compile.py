"""Compiles a program to SQL over one table: nested sub-selects, then sums. The words are a dialect's (``dialect.py``).

A step that is read more than once becomes a named column of a sub-select, one nesting level above the named columns it
reads; all others are written in place. So a shared value is computed once per row, and the text grows with the number
of steps, never with the number of paths through them. No statement has a WHERE: a filter could be pushed below the
sub-selects by an optimiser and repeat their expressions; conditions stand in the sums instead.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from dodona.engines.intervals import Interval, interval_of
from dodona.engines.sql.dialect import Dialect
from dodona.query.program import Block, Program

DEEPEST_TEXT = 40  # levels of parentheses before a step gets a name of its own
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
    "lookup": (9,),
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
    """A program in the form SQL needs: the same steps, with what a database would compute in vain left out.

    ``nearest`` becomes inner products, their maximum and its position; LEAST and GREATEST with a constant become one
    comparison; a grid says whether its value needs a clip and a truncation at all. ``at[step]``: the node of a step.
    """

    nodes: list[Node] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)  # of each node

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
                inside, whole = result.intervals[args[0]].within(low, high), bits == 0 and result._whole(args[0])
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
        self.intervals.append(interval_of(op, args, constants, [self.intervals[arg] for arg in args]))
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

    def _whole(self, index: int) -> bool:
        """Whether the value is whole by what it is, so that no truncation is needed."""
        node = self.nodes[index]
        if node.op in ("if", "coalesce", "add", "sub", "mul", "flush", "at_most", "at_least"):
            return all(self._whole(arg) for arg in node.args[-2:])
        if node.op == "const":
            return node.constants[0] is None or float(node.constants[0]).is_integer()
        if node.op == "lookup":
            return all(x.is_integer() for x in node.constants[0].known)
        return node.op == "number" or (node.op == "column" and node.constants[1] == "integer")


def only_summed(program: Program) -> frozenset[int]:
    """The products that nothing reads but grids: a factor below 2^-500 leaves less than one step of those, so 0.

    The other factor is a row's own value, at most 2^100 in size, and a step at least 2^-300.
    """
    own: list[Interval] = []
    good: set[int] = set()
    for index, step in enumerate(program.steps):
        own.append(interval_of(step.op, step.args, step.constants, [own[arg] for arg in step.args]))
        good -= set(step.args) if step.op != "grid" or step.constants[2] > 300 else set()
        factors = [own[arg] for arg in step.args] if step.op == "mul" else []
        if factors and factors[0].tiny * factors[1].tiny == 0.0 and max(f.most for f in factors) <= 2.0**100:
            good.add(index)
    return frozenset(good - set(program.roots()))


def missing_step(constants: tuple[Any, ...]) -> float:
    """What NULL counts as on a grid: the whole step of its range nearest to 0."""
    low, high, bits = constants[:3]
    return float(math.trunc(math.ldexp(min(max(0.0, low), high), bits)))


@dataclass(frozen=True)
class Statement:
    """One SELECT. Its columns: the row count, the key if any, then for each (block, offsets) its sums in order."""

    text: str
    key: bool
    parts: tuple[tuple[int, tuple[int, ...]], ...]

    def place(self, row: Sequence[Any], program: Program, totals: Sequence[NDArray[Any]]) -> None:
        """A row of its result into the ``totals`` of the program's blocks; NULL is the sum over no row.

        Blocks of one key may have fewer cells than the key.
        """
        cell, sums = (row[1], row[2:]) if self.key else (0, row[1:])
        if cell is None or cell < 0:
            return
        found = iter(sums)
        for number, offsets in self.parts:
            block = program.blocks[number]
            for offset, value in zip(offsets, found, strict=False):
                if cell < block.cells:
                    totals[number][int(cell) * block.width + offset] = int(value or 0)


class Compiled:
    """A program as nested sub-selects over ``source``, and the statements that sum it.

    ``clean``: columns that ``source`` already holds as cleaned values, by name. ``carried``: columns of ``source`` that
    every sub-select passes on.
    """

    def __init__(
        self,
        program: Program,
        dialect: Dialect,
        source: str,
        clean: Mapping[str, str] = MappingProxyType({}),
        carried: Sequence[str] = (),
    ) -> None:
        self.program, self.dialect, self._clean, self._carried = program, dialect, clean, list(carried)
        self._lowered = Nodes.of(program, only_summed(program) if dialect.vanishing_raises else frozenset())
        self._operations = dialect.operations()
        self._roots = {self._lowered.at[step] for step in program.roots()}
        self._texts: dict[int, str] = {}
        self._level: dict[int, int] = {}  # of named nodes: the sub-select that computes them
        self._plan()
        self._source = source
        self.inner, self.widest = self._nested(self._roots)

    @property
    def levels(self) -> int:
        """How deep the sub-selects nest."""
        return max(self._level.values(), default=0) + 1

    def read(self, step: int) -> str:
        """The value of a root of the program, as it is read from ``inner``."""
        return self._texts[self._lowered.at[step]]

    def _plan(self) -> None:
        """Walks the nodes once: writes each in place or names it, and finds the level each named one needs."""
        nodes = self._lowered.nodes
        used = self._used()
        writes: Counter[int] = Counter()
        for index in used:
            node = nodes[index]
            repeats = self.dialect.repeats(node.op, self._intervals_of(node)) or node.repeats()
            for arg, times in zip(node.args, repeats, strict=True):
                writes[arg] += times
        for block in self.program.blocks:
            for step in block.values:
                writes[self._lowered.at[step]] += 2 if block.gram or block.order is not None else 1
            for step in (s for s in (block.where, block.key, block.weight, block.different) if s is not None):
                writes[self._lowered.at[step]] += block.width
        self._shared = {index for index, times in writes.items() if times > 1}
        depth: dict[int, int] = {}
        needs: dict[int, int] = {}  # the level from which a node's text can be read
        self._definitions: dict[int, str] = {}
        self._beside: dict[int, str] = {}  # of nodes that are looked up, what their level joins
        self._reads: dict[int, frozenset[int]] = {}
        self._columns: dict[int, frozenset[int]] = {}  # of the table, that a node reads
        for index in sorted(used):
            node = nodes[index]
            text = self._looked_up(index, node) or self._write(node)
            reads = frozenset[int]().union(*(self._reads[arg] for arg in node.args))
            columns = frozenset[int]().union(*(self._columns[arg] for arg in node.args))
            self._columns[index] = frozenset({index}) if node.op == "column" else columns
            needed = max((needs[arg] for arg in node.args), default=0)
            deep = 1 + max((depth[arg] for arg in node.args), default=0)
            trivial = node.op in ("const", "true", "false")
            again = node.op == "column" or writes[index] > 1
            if index in self._beside:
                deep = DEEPEST_TEXT + 1
            again = again and len(text) * writes[index] > self.dialect.longest_repeat
            if not trivial and (again or deep > DEEPEST_TEXT):
                self._definitions[index], self._level[index] = text, needed
                text, reads, needed, deep = f"v{index}", frozenset({index}), needed + 1, 0
            self._texts[index], self._reads[index], needs[index], depth[index] = text, reads, needed, deep

    def _looked_up(self, index: int, node: Node) -> str:
        """Of a lookup in what stands beside the rows; nothing of another node."""
        beside = self.dialect.beside(node.constants[0], f"k{index}") if node.op == "lookup" else None
        if beside is None:
            return ""
        self._beside[index], found = beside
        return found(self._texts[node.args[0]])

    def _used(self) -> list[int]:
        seen: set[int] = set()
        waiting = list(self._roots)
        while waiting:
            index = waiting.pop()
            if index not in seen:
                seen.add(index)
                waiting.extend(self._lowered.nodes[index].args)
        return sorted(seen)

    def _write(self, node: Node) -> str:
        dialect, args = self.dialect, [self._texts[arg] for arg in node.args]
        match node.op:
            case "column":
                return self._clean.get(node.constants[0]) or dialect.column(node.constants)
            case "const":
                return dialect.number(node.constants[0])
            case "bucket":
                return dialect.bucket(args[0], node.constants)
            case "dot":
                pairs = zip(args, node.constants, strict=True)
                return dialect.dot([f"({x} * {dialect.number(w)})" for x, w in pairs])
            case "grid":
                return (
                    f"COALESCE({self._grid(args[0], node.constants)}, {dialect.number(missing_step(node.constants))})"
                )
            case "lookup":
                return dialect.lookup(args[0], node.constants[0])
            case "div" if self._lowered.constant(node.args[1]):
                return dialect.guarded("div", args, self._intervals_of(node)) or f"({args[0]} / {args[1]})"
            case op:
                return dialect.guarded(op, args, self._intervals_of(node)) or self._operations[op](*args)

    def _grid(self, x: str, constants: tuple[Any, ...], scaled: Callable[[str, int], str] | None = None) -> str:
        low, high, bits, inside, whole = constants
        clipped = x if inside else self.dialect.clip(x, low, high)
        return clipped if whole else (scaled or self.dialect.scaled)(clipped, bits)

    def _nested(self, roots: Iterable[int]) -> tuple[str, int]:
        """FROM clause for these nodes, and the columns of its widest sub-select.

        Level l computes its own named columns and passes on what later levels still read.
        """
        alive = set[int]().union(*(self._reads[root] for root in roots))
        columns: list[list[str]] = []
        fences: list[str] = []
        besides: list[str] = []
        for level in range(self.levels - 1, -1, -1):
            own = sorted(index for index in alive if self._level[index] == level)
            passed = sorted(index for index in alive if self._level[index] < level)
            columns.append([f"v{i}" for i in passed] + [f"{self._definitions[i]} AS v{i}" for i in own])
            fences.append(self.dialect.fence if self._shared.intersection(own) else "")
            besides.append("".join(f", {self._beside[i]}" for i in own if i in self._beside))
            alive = set(passed).union(*(self._reads_of_definition(index) for index in own))
        inner = self._source
        levels = zip(reversed(columns), reversed(besides), reversed(fences), strict=True)
        for level, (selected, beside, fence) in enumerate(levels):
            listed = ", ".join([*self._carried, *selected] or ["1 AS one"])
            inner = f"(SELECT {listed} FROM {inner}{beside}{fence}) AS t{level}"
        return inner, max(map(len, columns)) + len(self._carried)

    def _intervals_of(self, node: Node) -> list[Interval]:
        return [self._lowered.intervals[arg] for arg in node.args]

    def _reads_of_definition(self, index: int) -> frozenset[int]:
        node = self._lowered.nodes[index]
        return frozenset[int]().union(*(self._reads[arg] for arg in node.args))

    # -- sums ------------------------------------------------------------------------------------------------------

    def _terms(self, block: Block) -> list[str]:
        """What each total of the block sums, row by row."""
        texts = [self._texts[self._lowered.at[step]] for step in block.values]
        if block.order is not None:
            weight = self.dialect.number(1.0) if block.weight is None else self._texts[self._lowered.at[block.weight]]
            sizes = range(min(block.order, len(texts)) + 1)
            sets = [chosen for size in sizes for chosen in itertools.combinations(texts, size)]
            return [f"({' * '.join((weight, *chosen))})" for chosen in sets]
        if not block.gram:
            return [self._summand(step) for step in block.values]
        return [f"({x} * {y})" for i, x in enumerate(texts) for y in texts[i:]]

    def _summand(self, step: int) -> str:
        """As a sum passes over NULL, a value on its grid needs no 0 in its place there."""
        index = self._lowered.at[step]
        node = self._lowered.nodes[index]
        if node.op == "grid" and index not in self._level and missing_step(node.constants) == 0:
            held = self._lowered.nodes[node.args[0]]
            if held.op == "number" and node.args[0] not in self._level and all(node.constants[3:]):
                return self.dialect.counted(self._texts[held.args[0]]) or self._texts[node.args[0]]
            return self._grid(self._texts[node.args[0]], node.constants, self.dialect.summand)
        return self._texts[index]

    def statements(self, exact_double: Mapping[int, bool]) -> list[Statement]:
        """One statement per key, and per as many sums as it may hold. ``exact_double``: blocks that stay below 2^53."""
        groups: dict[int | None, list[tuple[int, int, str]]] = {}
        for number, block in enumerate(self.program.blocks):
            where = None if block.where is None else self._texts[self._lowered.at[block.where]]
            if block.different is None:
                sums = [self.dialect.summed(term, where, exact_double[number]) for term in self._terms(block)]
            else:
                sums = [self.dialect.different(self._texts[self._lowered.at[block.different]], where)]
            groups.setdefault(block.key, []).extend((number, offset, text) for offset, text in enumerate(sums))
        return [self._statement(key, chunk) for key, entries in groups.items() for chunk in self._chunks(entries)]

    def _chunks(self, entries: Sequence[tuple[int, int, str]]) -> Iterator[Sequence[tuple[int, int, str]]]:
        """As many sums as a statement may hold, and, where columns are stored apart, as many columns as stay near."""
        held: list[tuple[int, int, str]] = []
        read: frozenset[int] = frozenset()
        for entry in entries:
            wider = read | self._columns_of(entry)
            if held and (len(held) == self.dialect.most_sums or len(wider) > self.dialect.most_columns):
                yield held
                held, wider = [], self._columns_of(entry)
            held.append(entry)
            read = wider
        yield held

    def _columns_of(self, entry: tuple[int, int, str]) -> frozenset[int]:
        return frozenset[int]().union(*(self._columns[node] for node in self._read_by(entry)))

    def _read_by(self, entry: tuple[int, int, str]) -> list[int]:
        """The nodes that a sum reads; of products, those of their whole block."""
        number, offset, _ = entry
        block = self.program.blocks[number]
        values = block.values if block.gram or block.order is not None else block.values[offset : offset + 1]
        others = [step for step in (block.where, block.key, block.weight, block.different) if step is not None]
        return [self._lowered.at[step] for step in (*values, *others)]

    def _statement(self, key: int | None, entries: Sequence[tuple[int, int, str]]) -> Statement:
        parts: dict[int, list[int]] = {}
        for number, offset, _ in entries:
            parts.setdefault(number, []).append(offset)
        by = [] if key is None else [self._texts[self._lowered.at[key]]]
        roots = {node for entry in entries for node in self._read_by(entry)}
        inner = self.inner if roots == self._roots else self._nested(roots)[0]
        text = f"SELECT {', '.join(['COUNT(*)', *by, *(text for _, _, text in entries)])} FROM {inner}"
        text += " GROUP BY 2" if by else ""
        return Statement(text, bool(by), tuple((number, tuple(offsets)) for number, offsets in parts.items()))
