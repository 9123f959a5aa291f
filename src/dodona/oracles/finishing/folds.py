"""Aggregates over the rows of a finished table, and ranks among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.oracles.finishing.columns import Bools, Col, Floats, constant
from dodona.oracles.finishing.laws import Law

Places = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Cells:
    """Which of ``count`` cells each row is in; ``inside``: a condition, whether it counts at all.

    ``independent``: whether the noises of the rows are. ``law``, ``parts``: of the intervals.
    """

    of: Places
    count: int
    inside: Col
    independent: bool
    law: Law
    parts: int

    @property
    def most(self) -> int:
        """Rows of the largest cell."""
        return int(np.bincount(self.of, minlength=1).max(initial=1))

    def added(self, values: Any) -> Floats:
        """Sums by cell."""
        return np.bincount(self.of, weights=np.asarray(values, dtype=float), minlength=self.count).astype(float)

    def extreme(self, values: Any, where: Any, *, largest: bool) -> Floats:
        """The largest or least by cell; infinite where there is none."""
        start = -np.inf if largest else np.inf
        found = np.full(self.count, start)
        (np.maximum if largest else np.minimum).at(found, self.of, np.where(where, values, start))
        return found

    def uses(self, kind: str, *of: Col) -> dict[Any, int]:
        """A fold rests on every number of its cell."""
        parts = sum(column.parts for column in of if column.noisy)
        name = ("fold", kind, *(tuple(map(str, column.uses)) for column in of), hash(self.inside.value.tobytes()))
        return {name: parts * self.most} if parts else {}


def folded(kind: str, of: Col | None, cells: Cells) -> Col:
    """COUNT, SUM, AVG, MIN or MAX by cell; of no column, of the rows."""
    given = constant(1.0, len(cells.of)) if of is None else of
    here = cells.inside
    shown = (here.value > 0.5) & ~given.null
    certain = here.may_be_known & (here.low > 0.5) & ~given.may_be_null
    possible = (here.high > 0.5) & given.may_be_known
    if kind == "count":
        low, high = cells.added(certain), cells.added(possible)
        none = np.zeros(cells.count, dtype=bool)
        uses = cells.uses(kind, given, here)
        return Col(cells.added(shown), low, high, none, none, uses=uses, proven=given.proven and here.proven)
    null, may_be_null = cells.added(shown) == 0, cells.added(certain) == 0
    unsure = may_be_null & (cells.added(possible) > 0)
    known = {"null": null, "unsure": unsure, "proven": given.proven and here.proven}
    if given.kind == "text":
        return _text(kind, given, shown, cells, known)
    if kind in ("min", "max"):
        return _extreme(kind, given, (shown, certain, possible), cells, known)
    return _total(kind, given, (shown, certain, possible), cells, known)


def _total(kind: str, of: Col, within: tuple[Bools, Bools, Bools], cells: Cells, known: dict[str, Any]) -> Col:
    shown, certain, possible = within
    fixed = np.array_equal(certain, possible)
    count = np.maximum(cells.added(shown), 1.0)
    scale = 1 / count if kind == "avg" else np.ones(cells.count)
    value = cells.added(np.where(shown, of.value, 0.0)) * scale
    if fixed and of.form is not None and cells.independent:
        form = of.form.times(shown * 1.0).summed(cells.of, cells.count).times(scale)
        margin = cells.law.within(form, cells.parts)
        uses = {("folded", kind, *map(str, of.uses), hash(shown.tobytes())): 1, **cells.uses("kept", cells.inside)}
        alone = of.apart and kind == "sum" and bool(shown.all()) and not cells.inside.noisy
        return Col(value, value - margin, value + margin, uses=uses, form=form, apart=alone, margin=margin, **known)
    low, high = np.where(certain, of.low, np.minimum(of.low, 0)), np.where(certain, of.high, np.maximum(of.high, 0))
    low, high = cells.added(np.where(possible, low, 0.0)), cells.added(np.where(possible, high, 0.0))
    uses = cells.uses(kind, of, cells.inside)
    if kind == "avg" and fixed:
        low, high = low * scale, high * scale
    elif kind == "avg":  # wherever the rows are, their mean is among them
        low = cells.extreme(of.low, possible, largest=False)
        high = cells.extreme(of.high, possible, largest=True)
    low, high = np.minimum(low, value), np.maximum(high, value)
    return Col(value, low, high, uses=uses, **known)


def _extreme(kind: str, of: Col, within: tuple[Bools, Bools, Bools], cells: Cells, known: dict[str, Any]) -> Col:
    shown, certain, possible = within
    largest = kind == "max"
    near, far = (of.low, of.high) if largest else (of.high, of.low)
    value = cells.extreme(of.value, shown, largest=largest)
    outer = cells.extreme(far, possible, largest=largest)
    inner = cells.extreme(near, certain, largest=largest)
    all_near = cells.extreme(near, possible, largest=not largest)  # if none is there for sure, any may be the only one
    inner = np.where(np.isfinite(inner), inner, all_near)
    value = np.where(np.isfinite(value), value, 0.0)
    low, high = (inner, outer) if largest else (outer, inner)
    low, high = np.minimum(low, value), np.maximum(high, value)
    return Col(value, low, high, uses=cells.uses(kind, of, cells.inside), kind=of.kind, **known)


def _text(kind: str, of: Col, shown: Bools, cells: Cells, known: dict[str, Any]) -> Col:
    """MIN and MAX of texts, by bytes."""
    found: list[Any] = [None] * cells.count
    for cell, text, here in zip(cells.of, of.value, shown, strict=True):
        now = found[cell]
        if here and (now is None or (str(text).encode() < str(now).encode()) == (kind == "min")):
            found[cell] = text
    none = np.zeros(cells.count)
    loose = cells.added(of.unsure | cells.inside.unsure | (cells.inside.low < cells.inside.high)) > 0
    texts = np.array(found, dtype=object)
    return Col(
        texts,
        none,
        none,
        kind="text",
        uses=cells.uses(kind, of, cells.inside),
        **(known | {"unsure": known["unsure"] | loose}),
    )


def running(kind: str, of: Col | None, order: Places, cells: Cells) -> Col:
    """SUM or COUNT up to each row of its cell; ``order``: where each row stands, equal ones together."""
    rows = len(cells.of)
    given = constant(1.0, rows) if of is None else of
    here = (cells.inside.value > 0.5) & ~given.null
    by = np.lexsort((order, cells.of))
    first = np.concatenate([[True], cells.of[by][1:] != cells.of[by][:-1]]) if rows else np.zeros(0, dtype=bool)
    last = np.concatenate([(np.diff(cells.of[by]) != 0) | (np.diff(order[by]) != 0), [True]]) if rows else first
    ends = np.flatnonzero(last)
    peers = ends[np.searchsorted(ends, np.arange(rows))]

    def up_to(values: Any) -> Any:
        total = np.cumsum(np.asarray(values, dtype=float)[by])
        before = (total - np.asarray(values, dtype=float)[by])[first]
        along = total - before[np.cumsum(first) - 1]
        found = np.empty(rows)
        found[by] = along[peers]
        return found

    value = up_to(np.where(here, given.value if kind == "sum" else 1.0, 0.0))
    none = np.zeros(rows, dtype=bool)
    if kind == "count":
        return Col(value, value, value, none, none)
    proven = given.proven and cells.inside.proven
    if given.form is not None and cells.independent and not cells.inside.noisy:
        form = given.form.times(here * 1.0)
        added = replace(form, **{part: up_to(getattr(form, part)) for part in ("variance", "stated", "grain", "terms")})
        widest = np.full(rows, form.widest.max(initial=0.0))
        margin = cells.law.within(replace(added, widest=widest), cells.parts)
        uses = {("running", *map(str, given.uses)): 1}
        return Col(value, value - margin, value + margin, none, none, uses=uses, margin=margin, proven=proven)
    low, high = (
        up_to(np.where(cells.inside.high > 0.5, part, 0.0))
        for part in (np.minimum(given.low, 0), np.maximum(given.high, 0))
    )
    if not cells.inside.noisy and not given.unsure.any():
        low, high = (up_to(np.where(here, part, 0.0)) for part in (given.low, given.high))
    return Col(
        value,
        np.minimum(low, value),
        np.maximum(high, value),
        none,
        none,
        uses=cells.uses("running", given, cells.inside),
        proven=proven,
    )


def neighbour(of: Col, order: Places, away: int, cells: Cells) -> Col:
    """LAG and LEAD: what stands ``away`` rows before each row of its cell; where noise decides which rows there are, it
    may be any of them.
    """
    shown = np.flatnonzero(cells.inside.value > 0.5)
    by = shown[np.lexsort((order[shown], cells.of[shown]))]
    found, places = np.full(len(cells.of), -1), np.arange(len(by)) - away
    there = (places >= 0) & (places < len(by))
    there[there] = cells.of[by[places[there]]] == cells.of[by[there]]
    found[by[there]] = by[places[there]]
    none = found < 0
    col = of.at(np.maximum(found, 0))
    uses = {("beside", away, *map(str, of.uses)): of.parts} if of.noisy else {}
    moved = replace(col, null=col.null | none, uses=uses, form=None, apart=False, shown=None)
    if cells.inside.noisy:
        uses |= cells.uses("beside", of, cells.inside)
        low, high = (np.full(len(none), end) if of.kind == "number" else moved.low for end in (-np.inf, np.inf))
        moved = replace(moved, low=low, high=high, unsure=np.ones_like(none), uses=uses)
    return replace(moved, margin=None)


def ranked(kind: str, of: Col, falling: bool, cells: Cells) -> Col:
    """RANK, DENSE_RANK or ROW_NUMBER in each cell: how many stand before, for sure and perhaps."""
    rows = len(cells.of)
    value, low, high = np.ones(rows), np.ones(rows), np.ones(rows)
    sign = -1.0 if falling else 1.0
    at, least, most = sign * of.value, *((-of.high, -of.low) if falling else (of.low, of.high))
    inside = cells.inside
    for cell in range(cells.count):
        here = np.flatnonzero(cells.of == cell)
        shown, sure, perhaps = (here[part[here] > 0.5] for part in (inside.value, inside.low, inside.high))
        standing = np.unique(at[shown]) if kind == "dense_rank" else np.sort(at[shown])
        value[here] = 1 + np.searchsorted(standing, at[here], side="left")
        if kind == "row_number":
            order = shown[np.argsort(at[shown], kind="stable")]
            value[order] = 1 + np.arange(len(order))
        before = np.searchsorted(np.sort(most[sure]), least[here], side="left")
        low[here] = 1 if kind == "dense_rank" else 1 + before
        side: Any = "right" if kind == "row_number" else "left"
        could = np.searchsorted(np.sort(least[perhaps]), most[here], side=side)
        itself = (least[here] < most[here]) | (kind == "row_number")
        high[here] = 1 + np.maximum(could - itself, 0)
    none = np.zeros(rows, dtype=bool)
    low, high = np.minimum(low, value), np.maximum(high, value)
    uses = cells.uses(kind, of, inside) if of.noisy or inside.noisy else {}
    return Col(value, low, high, none, none, uses=uses, proven=of.proven and inside.proven)


def sorted_rows(keys: Sequence[tuple[Col, bool, bool]], rows: Places) -> Places:
    """The rows in order: by each (column, falling, missing ones first); as they stand where all is equal."""
    for of, falling, nulls_first in reversed(keys):
        codes = place_codes(of)[rows].astype(float)
        codes = -codes if falling else codes
        codes = np.where(of.null[rows], -np.inf if nulls_first else np.inf, codes)
        rows = rows[np.argsort(codes, kind="stable")]
    return rows


def place_codes(of: Col) -> Places:
    """Equal numbers for equal values, rising with them; texts by bytes."""
    if of.kind != "text":
        return np.unique(of.value, return_inverse=True)[1].astype(np.intp)
    texts = ["" if none else str(text) for text, none in zip(of.value, of.null, strict=True)]
    standing = {text: place for place, text in enumerate(sorted(set(texts), key=str.encode))}
    return np.array([standing[text] for text in texts], dtype=np.intp)
