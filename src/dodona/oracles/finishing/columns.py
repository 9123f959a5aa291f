"""Columns of a finished table: what is shown, what it may be without noise, and whether there may be no value; and the
parts of an answer that they are made of.

Interval arithmetic: where every noisy number a column is made of lies within its interval (jointly, ``uses`` says how
many those are), what ``Exact`` shows lies within the column's. Nothing here can fail on a value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.oracles.finishing.laws import Form, Law, projection, reconciled
from dodona.oracles.groups import reachable_groups
from dodona.query.expr import Literal
from dodona.query.plan import Segment, compile_query
from dodona.query.quantiles import Quantiles
from dodona.query.schema import Label
from dodona.query.select import Field, Select
from dodona.query.statistic import OTHER, OTHER_TOO, Gate, Partition, Query, Value

Floats = NDArray[Any]
_MOST = np.finfo(float).max
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Col:
    """``value`` in [``low``, ``high``], row by row; of text, labels, and no ends.

    ``null``: no value is shown. ``unsure``: without noise there may be one where there is none, or none, or another
    text. ``uses``: which noisy numbers it is made of, and how many of each kind in a row. ``form``: where it is
    linear in noisy sums; ``apart``: sums that no other column has a part in, so that forms of several can be added up.
    ``margin``: how far it may be off, where that is known beside the ends. ``shown``: how it is printed. ``proven``:
    whether the interval is. ``lost``: that nothing is known but a public range.
    """

    value: Any
    low: Floats
    high: Floats
    null: Bools
    unsure: Bools
    kind: str = "number"
    uses: Mapping[Any, int] = field(default_factory=dict)
    proven: bool = True
    form: Form | None = None
    apart: bool = False
    margin: Floats | None = None
    shown: tuple[Any, ...] | None = None
    lost: Bools | None = None

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.null)

    @property
    def noisy(self) -> bool:
        """Whether noise has a part in it."""
        return bool(self.uses)

    @property
    def parts(self) -> int:
        """How many noisy numbers have to be within their intervals for one row to be."""
        return max(1, sum(self.uses.values()))

    @property
    def may_be_null(self) -> Bools:
        """Whether there may be no value without noise."""
        return self.null | self.unsure

    @property
    def may_be_known(self) -> Bools:
        """Whether there may be one."""
        return ~self.null | self.unsure

    def may_be(self, truth: bool) -> Bools:
        """Of a condition: whether it may be true, or false, without noise."""
        return self.may_be_known & ((self.high > 0.5) if truth else (self.low < 0.5))

    def at(self, places: NDArray[np.intp]) -> Col:
        """Those rows."""
        return replace(
            self, value=self.value[places], low=self.low[places], high=self.high[places], null=self.null[places],
            unsure=self.unsure[places], form=None if self.form is None else self.form.at(places),
            shown=None if self.shown is None else tuple(self.shown[i] for i in places),
            margin=None if self.margin is None else self.margin[places],
            lost=None if self.lost is None else self.lost[places],
        )  # fmt: skip


def constant(value: Any, rows: int) -> Col:
    """A literal."""
    none = np.zeros(rows, dtype=bool)
    if isinstance(value, str):
        texts = np.full(rows, value, dtype=object)
        return Col(texts, np.zeros(rows), np.zeros(rows), none, none, "text")
    if value is None:
        return Col(np.zeros(rows), np.zeros(rows), np.zeros(rows), ~none, none, "null")
    numbers = np.full(rows, float(value))
    return Col(numbers, numbers, numbers, none, none, "condition" if isinstance(value, bool) else "number")


def joined(*columns: Col) -> dict[Any, int]:
    """What several are made of."""
    uses: dict[Any, int] = {}
    for column in columns:
        for name, count in column.uses.items():
            uses[name] = max(count, uses.get(name, 0))
    return uses


def made(
    value: Any, low: Floats, high: Floats, *of: Col, kind: str = "number", null: Any = False, maybe: Any = False
) -> Col:
    """A column from others: NULL where one of them is, or ``null``; ``maybe``: without noise it may be."""
    gone = np.logical_or.reduce([column.null for column in of]) | null
    may_be_null = np.logical_or.reduce([column.may_be_null for column in of]) | null | maybe
    may_be_known = np.logical_and.reduce([column.may_be_known for column in of])
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    value, low, high = np.where(np.isfinite(value), value, 0.0), np.minimum(low, _MOST), np.maximum(high, -_MOST)
    certain = np.asarray(null) & ~np.asarray(maybe)
    unsure = may_be_null & may_be_known & ~certain
    proven = all(column.proven for column in of)
    return Col(np.clip(value, low, high), low, high, gone, unsure, kind, joined(*of), proven)


def monotone(of: Col, function: Callable[[Any], Any], *, defined: Callable[[Any], Any] | None = None) -> Col:
    """A rising function; ``defined``: where it has a value, from some number on."""
    none: Any = np.zeros(of.rows, dtype=bool)
    with np.errstate(all="ignore"):
        if defined is None:
            return made(function(of.value), function(of.low), function(of.high), of)
        null, maybe = ~defined(of.value), ~defined(of.low) & defined(of.high)
        low = np.where(defined(of.low), function(of.low), -np.inf)
        return made(np.where(null, 0.0, function(of.value)), low, function(of.high), of, null=null, maybe=maybe | none)


def corners(a: Col, b: Col, function: Callable[[Any, Any], Any], **known: Any) -> Col:
    """A function that is monotone in each of the two."""
    with np.errstate(all="ignore"):
        ends = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        zero = [np.where(np.isnan(end), 0.0, end) for end in ends]  # 0 times an end that is infinite
        return made(function(a.value, b.value), np.minimum.reduce(zero), np.maximum.reduce(zero), a, b, **known)


def divided(a: Col, b: Col) -> Col:
    """NULL where the divisor is 0; nothing is known where it may be."""
    with np.errstate(all="ignore"):
        through = (b.low <= 0) & (b.high >= 0)
        nothing = (b.low == 0) & (b.high == 0)
        divisor = replace(b, low=np.where(through, 1.0, b.low), high=np.where(through, 1.0, b.high))
        found = corners(a, divisor, np.divide, null=b.value == 0, maybe=through & ~nothing)
        low, high = np.where(through, -np.inf, found.low), np.where(through, np.inf, found.high)
        value = np.where(b.value == 0, 0.0, np.divide(a.value, b.value))
    return replace(found, value=np.where(np.isfinite(value), value, 0.0), low=low, high=high)


def compared(op: str, a: Col, b: Col) -> Col:
    """A condition of two."""
    if a.kind == "text" or b.kind == "text":
        return _texts(op, a, b)
    shown = {"lt": a.value < b.value, "le": a.value <= b.value, "eq": a.value == b.value}
    sure = {
        "lt": a.high < b.low,
        "le": a.high <= b.low,
        "eq": (a.low == a.high) & (b.low == b.high) & (a.low == b.low),
    }
    possible = {"lt": a.low < b.high, "le": a.low <= b.high, "eq": (a.low <= b.high) & (b.low <= a.high)}
    return made(shown[op] * 1.0, sure[op] * 1.0, possible[op] * 1.0, a, b, kind="condition")


def _texts(op: str, a: Col, b: Col) -> Col:
    """By bytes, as text in columns; any answer is possible where another text may stand there."""
    compare: dict[str, Callable[[bytes, bytes], bool]] = {
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "eq": lambda x, y: x == y,
    }
    known = ~(a.null | b.null)
    pairs = zip(a.value, b.value, known, strict=True)
    value = np.array([ok and compare[op](str(x).encode(), str(y).encode()) for x, y, ok in pairs], dtype=float)
    free = a.unsure | b.unsure
    return made(value, np.where(free, 0.0, value), np.where(free, 1.0, value), a, b, kind="condition")


def both(a: Col, b: Col) -> Col:
    """AND of three values: false where one is, whatever the other."""
    true = a.may_be(True) & b.may_be(True)
    false = a.may_be(False) | b.may_be(False)
    none = (a.may_be_null & (b.may_be_null | b.may_be(True))) | (b.may_be_null & a.may_be(True))
    no = (~a.null & (a.value < 0.5)) | (~b.null & (b.value < 0.5))
    null = ~no & (a.null | b.null)
    value = np.where(no | null, 0.0, 1.0)
    return Col(
        value, np.where(false, 0.0, 1.0), np.where(true, 1.0, 0.0), null, none & (true | false) | (null & ~none),
        "condition", joined(a, b), a.proven and b.proven,
    )  # fmt: skip


def negated(a: Col) -> Col:
    """NOT."""
    return replace(a, value=1 - a.value, low=1 - a.high, high=1 - a.low, kind="condition", form=None, shown=None)


def chosen(condition: Col, a: Col, b: Col) -> Col:
    """CASE: the first where the condition holds, else the second, also where it is unknown."""
    take = ~condition.null & (condition.value > 0.5)
    first, second = condition.may_be(True), condition.may_be(False) | condition.may_be_null
    null = np.where(take, a.null, b.null)
    may_be_null = (first & a.may_be_null) | (second & b.may_be_null)
    may_be_known = (first & a.may_be_known) | (second & b.may_be_known)
    kind = a.kind if b.kind in (a.kind, "null") else b.kind if a.kind == "null" else "number"
    uses, proven = joined(condition, a, b), condition.proven and a.proven and b.proven
    unsure = may_be_null & may_be_known
    if kind == "text":
        texts = [
            column.value if column.kind == "text" else np.full(column.rows, None, dtype=object) for column in (a, b)
        ]
        value = np.where(take, texts[0], texts[1])
        other = np.array([x != y for x, y in zip(*texts, strict=True)], dtype=bool)
        unsure = unsure | (first & second & other) | (first & a.unsure) | (second & b.unsure)
        return Col(value, a.low * 0, a.low * 0, null, unsure, kind, uses, proven)
    only_a, only_b = ~second | ~b.may_be_known, ~first | ~a.may_be_known
    low = np.where(only_a, a.low, np.where(only_b, b.low, np.minimum(a.low, b.low)))
    high = np.where(only_a, a.high, np.where(only_b, b.high, np.maximum(a.high, b.high)))
    value = np.where(take, a.value, b.value)
    return Col(np.clip(value, low, high), low, high, null, unsure, kind, uses, proven)


def missing(a: Col) -> Col:
    """IS NULL."""
    none = np.zeros(a.rows, dtype=bool)
    low, high = ~a.may_be_known * 1.0, a.may_be_null * 1.0
    if a.kind == "text":  # of text, unsure says that it may be another
        low = high = a.null * 1.0
    return Col(a.null * 1.0, low, high, none, none, "condition", dict(a.uses), a.proven)


@dataclass(frozen=True, eq=False)
class Numbers:
    """What a core's table is made of: (groups, leaves) arrays, and the labels of the groups.

    ``forms``: of each leaf, where cells were added up.
    """

    total: Floats
    spread: Floats
    margin: Floats
    grain: Floats | None
    keys: tuple[tuple[Label, ...], ...]
    others: tuple[NDArray[np.bool_], ...]
    forms: tuple[Form, ...] | None = None


def key_column(labels: tuple[Label, ...], other: NDArray[np.bool_], kind: str) -> Col:
    """A key: NULL where it is that of the rows in no group, which is printed as *(other)*."""
    rows = len(labels)
    none = np.zeros(rows, dtype=bool)
    if kind == "text":
        values: Any = np.array(
            [None if gone else str(label) for label, gone in zip(labels, other, strict=True)], dtype=object
        )
        return Col(values, np.zeros(rows), np.zeros(rows), other, none, "text", shown=labels)
    numbers = np.array([0.0 if gone else float(label) for label, gone in zip(labels, other, strict=True)])
    return Col(numbers, numbers, numbers, other, none, kind, shown=labels)


def printed(column: Col) -> tuple[Any, ...]:
    """What stands in a column without noise."""
    if column.shown is not None:
        return column.shown
    values = [None if none else value for value, none in zip(column.value, column.null, strict=True)]
    if column.kind == "text":
        return tuple(values)
    if column.kind == "condition":
        return tuple(None if value is None else bool(value) for value in values)
    return tuple(
        None if value is None else int(value) if float(value).is_integer() else float(value) for value in values
    )


def numbers_of(
    select: Select, total: Any, spread: Any, margin: Any, grain: Any, segments: Sequence[Segment]
) -> list[Numbers]:
    """The parts of an answer that each core asked for."""
    arrays = (total, spread, margin, grain)
    flat = [None if part is None else np.ravel(np.asarray(part, dtype=np.float64)) for part in arrays]
    found, start = [], 0
    for place, core in enumerate(select.cores):
        told = len(select.cores) == 1 or select.apart
        segment = segments[place] if told else compile_query(core.query, select.schema, level=True).segments[0]
        stop = start + int(np.prod(segment.shape))
        groups = [None if part is None else part[start:stop].reshape(-1, segment.shape[-1]) for part in flat]
        start = stop
        asked = core.query.groups() if isinstance(core.query, Quantiles) else core.query
        kept = np.flatnonzero(reachable_groups(asked, select.schema, segment.shape[:-1]))
        keys = list(itertools.product(*segment.labels)) if core.keys else []
        some = len(kept) > 0 and core.keys > 0
        axes = tuple(zip(*(keys[place] for place in kept), strict=True)) if some else ((),) * core.keys
        others = tuple(
            np.array([_is_other(label, segment.labels[axis], core.fields[axis]) for label in labels], dtype=bool)
            for axis, labels in enumerate(axes)
        )
        first, second, third, last = (None if part is None else part[kept] for part in groups)
        found.append(Numbers(first, second, third, last, axes, others))  # type: ignore[arg-type]
    return found


def _finest_cells(select: Select, each: Mapping[int, tuple[int, ...]]) -> dict[int, list[Label]]:
    """Of the table that has all keys of several cores: the label of each cell that can occur, key by key."""
    keys: dict[int, Partition] = {}
    condition = None
    for core, axes in each.items():
        query = select.cores[core].query
        if isinstance(query, Gate):
            condition, query = query.where, query.of
        for axis in axes:
            assert isinstance(query, Partition)
            keys[axis], query = query, query.of
    asked: Query = Value(Literal(1.0))
    for axis in sorted(keys, reverse=True):
        asked = Partition(keys[axis].by, asked, keys[axis].other)
    labels = [
        compile_query(Partition(keys[axis].by, Value(Literal(1.0)), keys[axis].other), select.schema, level=True)
        .segments[0]
        .labels[0]
        for axis in sorted(keys)
    ]
    shape = tuple(map(len, labels))
    asked = asked if condition is None else Gate(condition, asked)
    places = np.unravel_index(np.flatnonzero(reachable_groups(asked, select.schema, shape)), shape)
    return {axis: [labels[at][place] for place in places[at]] for at, axis in enumerate(sorted(keys))}


def agreed(
    select: Select, numbers: Sequence[Numbers], law: Law, each: Mapping[int, tuple[int, ...]]
) -> dict[int, Numbers]:
    """The numbers of each core, moved to the nearest that agree; with all keys, those that are not its own empty.

    ``each``: of each core, the places of its keys among those of all.
    """
    cells = _finest_cells(select, each)
    count, ids, starts = len(next(iter(cells.values()))), [], [0]
    for core, one in each.items():
        own = numbers[core]
        there = {cell: place for place, cell in enumerate(zip(*own.keys, strict=True))} if one else {(): 0}
        of = zip(*(cells[axis] for axis in one), strict=True) if one else itertools.repeat((), count)
        ids.append(np.array([there[cell] for cell in of], dtype=np.intp) + starts[-1])
        starts.append(starts[-1] + len(own.total))
    overlaps = np.zeros((starts[-1], starts[-1]))
    for first, second in itertools.product(ids, ids):
        np.add.at(overlaps, (first, second), 1.0)
    forms = [law.form(n.spread, n.margin, n.grain) for n in (numbers[core] for core in each)]
    moved, matrices = [], dict[bytes, Floats]()
    for leaf in range(forms[0].variance.shape[1]):
        total = np.concatenate([numbers[core].total[:, leaf] for core in each])
        form = Form.stacked([form.leaf(leaf) for form in forms])
        spread = np.sqrt(form.variance)
        if not bool(np.all(spread > 0)):  # without noise all agree
            moved.append((total, form))
            continue
        name = np.round(spread / spread[0], 9).tobytes()
        if name not in matrices:
            matrices[name] = projection(spread, overlaps)
        moved.append(reconciled(total, form, matrices[name]))
    found = {}
    for place, (core, one) in enumerate(each.items()):
        here, own = np.arange(starts[place], starts[place + 1]), numbers[core]
        at = {axis: position for position, axis in enumerate(one)}
        none = np.zeros(len(here), dtype=bool)
        keys = tuple(own.keys[at[axis]] if axis in at else (None,) * len(here) for axis in sorted(cells))
        others = tuple(own.others[at[axis]] if axis in at else none for axis in sorted(cells))
        total = np.stack([values[here] for values, _ in moved], axis=1)
        told = tuple(form.at(here) for _, form in moved)
        found[core] = Numbers(total, own.spread, own.margin, None, keys, others, told)  # type: ignore[arg-type]
    return found


def _is_other(label: Label, axis: tuple[Label, ...], field: Field) -> bool:
    """Whether a label is that of the rows in none of the groups: the last, where there may be such rows."""
    return field.nullable and label == axis[-1] and label in (OTHER, OTHER_TOO)
