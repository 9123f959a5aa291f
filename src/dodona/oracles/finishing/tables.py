"""A statement's table from its noisy sums: stage by stage, each column with what it may be without noise.

Margins are of one number each: ``Exact`` shows a number within the margin of the one shown here, with the stated
confidence. A column made of k noisy numbers has each of them within its interval at (1 - confidence)/k (Bonferroni).
Where noise decides which rows are shown, all rows that might have been are counted in: the margins then hold for all
at once, so also for those that were chosen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.oracles.finishing.columns import Col, Numbers, agreed, both, constant, key_column, printed
from dodona.oracles.finishing.folds import Cells, folded, neighbour, place_codes, ranked, running, sorted_rows
from dodona.oracles.finishing.laws import Form, Law
from dodona.oracles.finishing.scalars import evaluated
from dodona.oracles.ratios import Found, Sums, averages, correlations, covariances, deviations, variances
from dodona.query.select import Field, Select
from dodona.query.select.finishing import Fold, Grouped, Order, Source, Stage, Union, Window

Floats = NDArray[Any]
RATIOS: dict[str, Callable[[Sums, Field], Found]] = {
    "avg": lambda sums, of: averages(sums, of.half),
    "variance": lambda sums, of: variances(sums, of.half, sample=of.sample),
    "stddev": lambda sums, of: deviations(sums, of.half, sample=of.sample),
    "covariance": lambda sums, of: covariances(sums, of.half, of.other, sample=of.sample),
    "correlation": lambda sums, of: correlations(sums, of.half, of.other),
}
"""What is made of several sums, with margins of its own."""


@dataclass(frozen=True, eq=False)
class Table:
    """``columns`` over all rows; ``inside``: whether each belongs to it; ``order``: those that are shown, in order.

    ``independent``: whether the noises of the rows are. ``cores``: whose rows these are.
    """

    columns: tuple[Col, ...]
    inside: Col
    order: NDArray[np.intp]
    independent: bool
    cores: frozenset[int]

    @property
    def rows(self) -> int:
        """All of them."""
        return len(self.inside.null)


class Finisher:
    """Evaluates a statement's stages; once for each number of intervals that are to hold at once."""

    def __init__(self, select: Select, numbers: Sequence[Numbers], law: Law, proven: bool) -> None:
        self._select, self._numbers, self._law, self._proven = select, numbers, law, proven
        self._made: dict[tuple[int, int], Table] = {}
        self._agreed: dict[int, dict[int, Numbers]] = {}
        self.noisy = any(bool(part.spread.any()) for part in numbers)

    def table(self, source: Source, parts: int = 1) -> Table:
        """The table of a stage, with intervals of which ``parts`` hold at once."""
        name = id(source), parts
        if name not in self._made:
            with np.errstate(all="ignore"):  # ends may be infinite
                self._made[name] = self._table(source, parts)
        return self._made[name]

    def _table(self, source: Source, parts: int) -> Table:
        if isinstance(source, Grouped):
            return self._grouped(source, parts)
        if isinstance(source, Union):
            return _united([self.table(part, parts) for part in source.parts])
        return self._staged(source, self.table(source.of, parts), parts)

    # -- the noisy table itself --------------------------------------------------------------------------------------

    def _grouped(self, source: Grouped, parts: int) -> Table:
        numbers = self._numbers[source.core]
        if source.beside:
            sides = [self._grouped(Grouped(core), parts) for core in (source.core, *source.beside)]
            keys = len(numbers.keys)
            columns = sides[0].columns + tuple(column for side in sides[1:] for column in side.columns[keys:])
            return replace(sides[0], columns=columns, cores=frozenset((source.core, *source.beside)))
        if source.asked:
            return self._consistent(source, parts)
        if source.sets is None:
            return self._plain(source.core, numbers, frozenset(range(len(numbers.keys))), parts)
        return _united([self._of_set(source.core, frozenset(one), parts) for one in source.sets])

    def _plain(self, number: int, numbers: Numbers, kept: frozenset[int], parts: int) -> Table:
        fields = self._select.cores[number].fields
        columns = tuple(self._base(field, number, numbers, kept, parts) for field in fields)
        rows = len(numbers.total)
        inside = replace(constant(1.0, rows), kind="condition")
        return Table(columns, inside, np.arange(rows), True, frozenset({number}))

    def _of_set(self, number: int, kept: frozenset[int], parts: int) -> Table:
        """The table of some of the keys: its cells are sums of the finest."""
        numbers = self._numbers[number]
        if len(kept) == len(numbers.keys):
            return self._plain(number, numbers, kept, parts)
        rows = len(numbers.total)
        keys = [key_column(numbers.keys[axis], numbers.others[axis], "text") for axis in sorted(kept)]
        of, firsts = _cells(keys, rows)
        count = len(firsts) if kept else 1
        flat = self._law.form(numbers.spread, numbers.margin, numbers.grain)
        leaves = [flat.leaf(place).summed(of, count) for place in range(numbers.total.shape[1])]
        total = np.stack([np.bincount(of, part, count).astype(float) for part in numbers.total.T], axis=1)
        labels = tuple(tuple(axis[i] for i in firsts) if firsts.size else () for axis in numbers.keys)
        others = tuple(axis[firsts] for axis in numbers.others)
        added = Numbers(total, numbers.spread[:count], numbers.margin[:count], None, labels, others, tuple(leaves))
        return self._plain(number, added, kept, parts)

    def _consistent(self, source: Grouped, parts: int) -> Table:
        """Tables of several sets of keys that were asked by themselves, moved to the nearest ones that agree."""
        cores, sets = self._select.cores, source.sets or ()
        each = {core: one for one, core in zip(sets, source.asked, strict=True)}
        named = {field.axis: field for core, one in each.items() for field in cores[core].fields[: len(one)]}
        fields = [*(named[axis] for axis in sorted(named)), *cores[source.core].fields[len(each[source.core]) :]]
        if source.core not in self._agreed:
            self._agreed[source.core] = agreed(self._select, self._numbers, self._law, each)
        found = self._agreed[source.core]

        def shown(core: int) -> Table:
            numbers, kept = found[core], frozenset(each[core])
            columns = tuple(self._base(field, core, numbers, kept, parts) for field in fields)
            rows = len(numbers.total)
            inside = replace(constant(1.0, rows), kind="condition")
            return Table(columns, inside, np.arange(rows), False, frozenset({core}))

        return replace(_united([shown(core) for core in source.asked]), independent=False)

    def _base(self, field: Field, number: int, numbers: Numbers, kept: frozenset[int], parts: int) -> Col:
        none = np.zeros(len(numbers.total), dtype=bool)
        if field.kind == "grouping":
            return constant(float(field.axis not in kept), len(none))
        if field.kind == "key" and field.axis not in kept:
            empty = np.array([None] * len(none), dtype=object) if field.labels == "text" else np.zeros(len(none))
            return Col(empty, none * 0.0, none * 0.0, ~none, none, field.labels, shown=(None,) * len(none))
        if field.kind == "key":
            return key_column(numbers.keys[field.axis], numbers.others[field.axis], field.labels)
        picked = list(field.leaves)
        if numbers.forms is not None:
            return self._added(field, number, numbers, kept, parts)
        total, spread, margin = (part[:, picked] for part in (numbers.total, numbers.spread, numbers.margin))
        grain = None if numbers.grain is None else numbers.grain[:, picked]
        if field.kind in RATIOS:
            found = RATIOS[field.kind](self._law.sums(total, spread, margin, grain, parts), field)
            middle = field.middle if field.kind == "avg" else 0.0
            ends = found.value + middle, found.low + middle, found.high + middle
            lost = found.lost
            null = lost if not self.noisy else none
            return Col(
                *ends, null, none if not self.noisy else lost, uses={("sums", number, field.leaves, field.kind): 1},
                proven=self._proven, lost=lost, margin=np.maximum(found.value - found.low, found.high - found.value),
            )  # fmt: skip
        value = total[:, 0]
        if field.kind == "quantile":
            within = margin[:, 0]
            uses: dict[Any, int] = {("quantile", number, field.leaves): 1}
            end = field.half if field.high > field.low else np.inf
            proven = self._proven and (
                parts == 1 or not self.noisy
            )  # how a quantile's margin grows with confidence nobody knows
            lost = within >= end
            return Col(
                value,
                value - within,
                value + within,
                none,
                lost & self.noisy,
                uses=uses,
                proven=proven,
                lost=lost,
                margin=within,
            )
        form = self._law.form(spread[:, 0], margin[:, 0], None if grain is None else grain[:, 0])
        within = self._law.within(form, parts)
        uses = {("leaf", number, field.leaves[0]): 1}
        return Col(
            value, value - within, value + within, none, none, uses=uses, proven=self._proven, form=form, apart=True,
            margin=within,
        )  # fmt: skip

    def _added(self, field: Field, number: int, numbers: Numbers, kept: frozenset[int], parts: int) -> Col:
        """Of sums that were added up."""
        none = np.zeros(len(numbers.total), dtype=bool)
        assert numbers.forms is not None
        forms, total = [numbers.forms[leaf] for leaf in field.leaves], numbers.total[:, list(field.leaves)]
        name = (number, field.leaves, field.kind, tuple(sorted(kept)))
        if field.kind in RATIOS:
            found = RATIOS[field.kind](self._law.added(total, forms, parts), field)
            middle = field.middle if field.kind == "avg" else 0.0
            ends = found.value + middle, found.low + middle, found.high + middle
            within = np.maximum(found.value - found.low, found.high - found.value)
            null, unsure = (none, found.lost) if self.noisy else (found.lost, none)
            return Col(*ends, null, unsure, uses={name: 1}, proven=self._proven, lost=found.lost, margin=within)
        within = self._law.within(forms[0], parts)
        value = total[:, 0]
        return Col(
            value, value - within, value + within, none, none, uses={name: 1}, proven=self._proven, form=forms[0],
            margin=within,
        )  # fmt: skip

    # -- one SELECT over a table -------------------------------------------------------------------------------------

    def _staged(self, stage: Stage, below: Table, parts: int) -> Table:
        columns, inside, rows, independent = below.columns, below.inside, below.rows, below.independent
        if stage.where is not None:
            inside = both(inside, _held(self._made_of(stage.where, columns, rows, parts)))
        order = below.order
        if stage.folds is not None:
            columns, inside = self._folded(stage, columns, inside, independent, parts)
            rows, order = len(inside.null), np.arange(len(inside.null))
        if stage.having is not None:
            inside = both(inside, _held(self._made_of(stage.having, columns, rows, parts)))
        for window in stage.windows:
            columns = (*columns, self._window(window, columns, inside, independent, parts))
        if stage.qualify is not None:
            inside = both(inside, _held(self._made_of(stage.qualify, columns, rows, parts)))
        made = tuple(self._made_of(column.of, columns, rows, parts) for column in stage.columns)
        order = order[inside.value[order] > 0.5]
        keys = [(self._made_of(one.of, columns, rows, parts), one.falling, one.nulls_first) for one in stage.order]
        order = sorted_rows(keys, order)
        if stage.limit is not None or stage.offset:
            order = order[stage.offset : None if stage.limit is None else stage.offset + stage.limit]
            inside = self._cut(stage, inside, order, keys, parts, independent)
        return Table(made, inside, order, independent, below.cores)

    def _made_of(self, expr: Any, columns: Sequence[Col], rows: int, parts: int) -> Col:
        return evaluated(expr, columns, rows, self._law, parts)

    def _folded(
        self, stage: Stage, columns: Sequence[Col], inside: Col, independent: bool, parts: int
    ) -> tuple[tuple[Col, ...], Col]:
        rows = len(inside.null)
        keys = [self._made_of(key, columns, rows, parts) for key in stage.by]
        of, firsts = _cells(keys, rows)
        shown = (
            np.bincount(of, weights=inside.value, minlength=len(firsts)) > 0 if len(firsts) else np.zeros(0, dtype=bool)
        )
        if not stage.by:
            of, firsts, shown = np.zeros(rows, dtype=np.intp), np.zeros(1, dtype=np.intp), np.ones(1, dtype=bool)
        count = len(firsts)
        made = [key.at(firsts) for key in keys]
        for fold in stage.folds or ():
            cells = Cells(of, count, self._counted(fold, columns, inside, parts), independent, self._law, parts)
            made.append(folded(fold.kind, self._of(fold, columns, rows, parts), cells))
        kept = np.flatnonzero(shown)
        there = replace(constant(1.0, len(kept)), kind="condition")
        if inside.noisy and stage.by:  # noise decides which groups there are
            sure = np.bincount(of, weights=inside.low, minlength=count)[kept] > 0
            there = replace(there, low=sure * 1.0, uses=dict(inside.uses), proven=inside.proven)
        return tuple(column.at(kept) for column in made), there

    def _counted(self, fold: Fold, columns: Sequence[Col], inside: Col, parts: int) -> Col:
        """Whether a row counts in a fold."""
        if fold.where is None:
            return inside
        return both(inside, _held(self._made_of(fold.where, columns, len(inside.null), parts)))

    def _of(self, fold: Fold, columns: Sequence[Col], rows: int, parts: int) -> Col | None:
        return None if fold.of is None else self._made_of(fold.of, columns, rows, parts)

    def _window(self, window: Window, columns: Sequence[Col], inside: Col, independent: bool, parts: int) -> Col:
        rows = len(inside.null)
        of, firsts = _cells([self._made_of(key, columns, rows, parts) for key in window.by], rows)
        cells = Cells(of, len(firsts), inside, independent, self._law, parts)
        order = [self._made_of(one.of, columns, rows, parts) for one in window.order]
        if window.fold.kind in ("rank", "dense_rank", "row_number"):
            return ranked(window.fold.kind, order[0], window.order[0].falling, cells)
        given = self._of(window.fold, columns, rows, parts)
        if window.away and given is not None:
            back = window.fold.kind == "lag"
            return neighbour(given, _standing(order, window.order), window.away * (1 if back else -1), cells)
        if order:
            return running(window.fold.kind, given, _standing(order, window.order), cells)
        return replace(folded(window.fold.kind, given, cells).at(of), form=None, apart=False)

    def _cut(
        self, stage: Stage, inside: Col, order: NDArray[np.intp], keys: Sequence[tuple[Col, bool, bool]], parts: int,
        independent: bool,
    ) -> Col:  # fmt: skip
        """Who is among the rows that LIMIT keeps: decided by noise where it sorts by noisy numbers."""
        value = np.zeros(len(inside.null))
        value[order] = 1.0
        noisy = inside.noisy or any(key.noisy for key, _, _ in keys)
        if not noisy:
            return replace(inside, value=value, low=value, high=value)
        low, high = np.zeros_like(value), np.maximum(inside.high, value)
        uses = {("cut", hash(order.tobytes())): sum(key.parts for key, _, _ in keys) * max(1, len(value))}
        if len(keys) == 1 and keys[0][0].kind != "text" and stage.limit is not None and not stage.offset:
            cells = Cells(np.zeros(len(value), dtype=np.intp), 1, inside, independent, self._law, parts)
            place = ranked("row_number", keys[0][0], keys[0][1], cells)
            low = np.where((inside.low > 0.5) & (place.high <= stage.limit), 1.0, 0.0)
            high = np.where((inside.high > 0.5) & (place.low <= stage.limit), 1.0, value)
        return replace(inside, value=value, low=np.minimum(low, value), high=high, uses={**inside.uses, **uses})


def _held(condition: Col) -> Col:
    """Whether a condition is true: not where it is false, and not where it is unknown."""
    true = condition.may_be(True)
    other = condition.may_be(False) | condition.may_be_null
    none = np.zeros(condition.rows, dtype=bool)
    value = (~condition.null & (condition.value > 0.5)) * 1.0
    return replace(
        condition, value=value, low=~other * 1.0, high=true * 1.0, null=none, unsure=none, form=None, shown=None,
        kind="condition",
    )  # fmt: skip


def _cells(keys: Sequence[Col], rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For each row its cell, in the order of their first rows; and those first rows."""
    if not keys or not rows:
        return np.zeros(rows, dtype=np.intp), np.zeros(min(1, rows), dtype=np.intp)
    codes = np.stack([np.where(key.null, -1, place_codes(key)) for key in keys], axis=1)
    _, firsts, of = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(firsts))
    return rank[of.ravel()].astype(np.intp), np.sort(firsts).astype(np.intp)


def _standing(order: Sequence[Col], stated: Sequence[Order]) -> NDArray[np.intp]:
    """Where each row stands in a running window; equal ones together."""
    codes = []
    for column, one in zip(order, stated, strict=True):
        code = place_codes(column) * (-1 if one.falling else 1)
        end = np.iinfo(np.intp).max // 2
        codes.append(np.where(column.null, -end if one.nulls_first else end, code))
    return np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)[1].ravel().astype(np.intp)


def _united(tables: Sequence[Table]) -> Table:
    """Below each other."""
    columns = []
    for place, pair in enumerate(zip(*(table.columns for table in tables), strict=True)):
        columns.append(_stacked(pair, place))
    inside = _stacked([table.inside for table in tables], -1)
    offsets = np.cumsum([0, *(table.rows for table in tables)])
    order = np.concatenate([table.order + offset for table, offset in zip(tables, offsets, strict=False)])
    cores = frozenset[int]().union(*(table.cores for table in tables))
    apart = len(cores) == sum(len(table.cores) for table in tables)
    return Table(tuple(columns), inside, order, apart and all(table.independent for table in tables), cores)


def _stacked(pair: Sequence[Col], place: int) -> Col:
    kinds = {column.kind for column in pair} - {"null"}
    kind = kinds.pop() if len(kinds) == 1 else "number" if kinds else "null"
    empty = [
        replace(one, value=np.full(one.rows, None, dtype=object)) if kind == "text" and one.kind == "null" else one
        for one in pair
    ]

    def all_of(part: str) -> Any:
        return np.concatenate([getattr(column, part) for column in empty])

    parts = max((column.parts for column in pair if column.noisy), default=0)
    names = tuple(str(name) for column in pair for name in column.uses)
    forms = [column.form for column in pair if column.form is not None]
    form = None
    if len(forms) == len(pair) and parts == 1:
        form = Form.stacked(forms)
    shown = None
    if not parts and any(column.shown for column in pair):
        shown = tuple(itertools.chain.from_iterable(printed(column) for column in pair))
    return Col(
        all_of("value"), all_of("low"), all_of("high"), all_of("null"), all_of("unsure"), kind,
        {("union", place, *names): parts} if parts else {}, all(column.proven for column in pair), form, shown=shown,
    )  # fmt: skip
