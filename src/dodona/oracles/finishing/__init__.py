"""What is made of noisy sums: the rows a statement gives, and before that what error they will have.

Tables with margins that go through every step. Post-processing only, so it is free: all is made of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.oracles.answer import Answer, Expected, Price, rough
from dodona.oracles.effort import Effort
from dodona.oracles.finishing.columns import Col, Numbers, numbers_of, printed
from dodona.oracles.finishing.laws import Law
from dodona.oracles.finishing.tables import RATIOS, Finisher
from dodona.oracles.ratios import averages
from dodona.oracles.rows import EMPTY, LOST, NO_NOISE, Cell, Estimate, Rows
from dodona.query.plan import Segment, compile_query
from dodona.query.quantiles import Quantiles
from dodona.query.schema import Schema
from dodona.query.select import Core, Field, Select
from dodona.query.select.finishing import Grouped, Source, Stage, Union, place_of

Floats = NDArray[Any]
_SIZE = 1000  # of a group, where the number of rows is private


def finish(select: Select, answer: Answer) -> Rows:
    """The statement's table from the noisy sums."""
    numbers = numbers_of(select, answer.total, answer.spread, answer.margin, answer.grain, answer.segments)
    noise = answer.cost.mechanism.partition("; ")[0] if select.apart else answer.cost.mechanism
    law = Law.of(np.asarray(answer.spread), _array(answer.grain), answer.confidence, noise)
    finisher = Finisher(select, numbers, law, answer.proven)
    table = finisher.table(select.made)
    among = _chosen_among(finisher, select.made)
    gone = EMPTY if answer.cost.mechanism == NO_NOISE else LOST
    columns: list[list[Cell]] = []
    told = [_selection(len(table.order), among)] if among else []
    for place, column in enumerate(select.made.columns):
        of = table.columns[place]
        if of.noisy:
            of = finisher.table(select.made, of.parts * max(among, 1)).columns[place]
        shown = of.at(table.order)
        if not of.noisy or of.kind != "number":
            columns.append(list(printed(shown)))
            loose = int(np.sum(shown.unsure | ((shown.low < shown.high) if of.kind == "condition" else False)))
            if loose and finisher.noisy:
                told.append(f"{column.name}: {loose:,} of {len(table.order):,} might be another without noise")
        else:
            columns.append(_estimates(shown, gone, _step_of(select, select.made, place)))
    records = tuple(zip(*columns, strict=True))
    return Rows(select.columns, records, answer.confidence, answer.cost, answer.leaves_out, tuple(told))


def _selection(shown: int, among: int) -> str:
    return (
        f"noise had a part in choosing these {shown:,} rows: the margins hold for all {among:,} that might have been "
        "shown, at once"
    )


def _chosen_among(finisher: Finisher, made: Stage) -> int:
    """How many rows might have been shown, where noise decides which are; else 0.

    All that there are, whatever the noise said: that they might have been is not judged by the noise itself.
    """
    inside = finisher.table(made).inside
    return len(inside.null) if finisher.noisy and inside.noisy else 0


def _margin(of: Col) -> Floats:
    """How far each number may be off; infinite where nothing is known."""
    if of.margin is not None:
        return of.margin
    with np.errstate(invalid="ignore"):
        within = np.maximum(of.value - of.low, of.high - of.value)
    return np.where(np.isnan(within), np.inf, within)


def _step_of(select: Select, source: Source, place: int) -> int:
    """The step of a column that is a quantile of a date or time as it was asked; 0 of all others."""
    if isinstance(source, Grouped):
        core = select.cores[source.core]
        beside = [field for other in source.beside for field in select.cores[other].fields[select.cores[other].keys :]]
        fields = (*core.fields, *beside)
        return fields[place].step if source.sets is None and place < len(fields) else 0
    if isinstance(source, Union):
        steps = {_step_of(select, part, place) for part in source.parts}
        return steps.pop() if len(steps) == 1 else 0
    behind = place_of(source.columns[place].of)
    if behind is None:
        return 0
    if source.folds is None:
        below = source.of
        width = len(below.columns) if isinstance(below, Stage) else behind + 1
        return _step_of(select, below, behind) if behind < width else 0
    fold = source.folds[behind - len(source.by)] if 0 <= behind - len(source.by) < len(source.folds) else None
    inner = place_of(fold.of) if fold is not None and fold.kind in ("min", "max") and fold.of is not None else None
    return 0 if inner is None else _step_of(select, source.of, inner)


def _estimates(of: Col, gone: str, step: int) -> list[Cell]:
    """Numbers with their margins."""
    margin = _margin(of)
    lost = np.zeros(of.rows, dtype=bool) if of.lost is None else of.lost
    cells: list[Cell] = []
    for value, within, none, unsure, known in zip(of.value, margin, of.null, of.unsure, lost, strict=True):
        if none and not unsure and not known:
            cells.append(None)
        else:
            away = known or unsure or not np.isfinite(within)
            wide = float(within) if np.isfinite(within) and not (unsure and not known) else np.inf
            cells.append(Estimate(float(value), wide, of.proven, gone if away else "", step))
    return cells


# -- before anything is spent ------------------------------------------------------------------------------------------


def expected(select: Select | None, price: Price) -> Price:
    """The price with the error of each printed number, for groups of equal size where it depends on the size."""
    if select is None or price.columns:  # told already, by who made the price
        return price
    printed_fields = select.printed
    if printed_fields is not None:
        return replace(price, columns=_expected([field for field in printed_fields if field.kind != "key"], price))
    return replace(price, columns=_made(select, price))


def expected_apart(select: Select | None, prices: Sequence[Price], price: Price) -> tuple[Expected, ...]:
    """Of a statement whose parts different mechanisms answer: part by part, where columns are printed as asked.

    ``price``: all of them side by side.
    """
    if select is None:
        return ()
    if select.printed is None:
        noise = price.cost.mechanism.partition("; ")[0]
        return _made(select, replace(price, cost=replace(price.cost, mechanism=noise)))
    found: dict[str, Expected] = {}
    for core, part in zip(select.cores, prices, strict=True):
        fields = [field for field in core.fields if field.kind != "key"]
        found |= {field.name: one for field, one in zip(fields, _expected(fields, part), strict=True)}
    asked = [field for core in select.cores for field in core.fields[core.keys :]]
    places = [place_of(column.of) for column in select.made.columns]
    keys = select.cores[0].keys
    pairs = [(asked[place - keys], column.name) for place, column in zip(places, select.made.columns, strict=True)
             if place is not None and place >= keys]  # fmt: skip
    return tuple(replace(found[field.name], column=_in_words(name, field.kind)) for field, name in pairs)


def _array(part: Any) -> Floats | None:
    return None if part is None else np.asarray(part, dtype=np.float64)


def _wide(part: Any, width: int) -> Any:
    return None if part is None else np.asarray(part, dtype=np.float64).reshape(-1, width)


def _expected(fields: list[Field], price: Price) -> tuple[Expected, ...]:
    """Of columns that are printed as they were asked."""
    width = np.shape(price.spread)[-1]
    spread, margin, grain = (_wide(part, width) for part in (price.spread, price.margin, price.grain))
    size = max(1, (price.rows or _SIZE * len(spread)) // len(spread))
    law = Law.of(np.asarray(price.spread), _array(price.grain), price.confidence, price.cost.mechanism)
    noise = spread[:1], margin[:1], None if grain is None else grain[:1]
    # One search for all averages, where one law is theirs.
    together = [field for field in fields if field.kind == "avg" and law.kind != "stated"]
    found = dict(zip(map(id, together), _foreseen(together, size, noise, law), strict=True)) if together else {}
    for field in fields:
        if field.kind in RATIOS and id(field) not in found:
            (found[id(field)],) = _foreseen([field], size, noise, law)
        elif field.kind not in RATIOS:
            name = _in_words(field.name, field.kind)
            found[id(field)] = Expected(name, float(margin[:, list(field.leaves)].max()))
    return tuple(found[id(field)] for field in fields)


def _in_words(name: str, kind: str) -> str:
    return f"{name}, in ranks" if kind == "quantile" else name


def _foreseen(fields: list[Field], size: int, noise: tuple[Floats, Floats, Floats | None], law: Law) -> list[Expected]:
    """The widest error of each among groups of ``size`` rows: of averages in the middle, between, and at the end of the
    range; of others where values are spread evenly over the range, or over a half of it. Several are averages all.
    """
    each = [_totals(field, size) for field in fields]
    totals, counts = np.concatenate(each), [len(some) for some in each]
    wide = [
        None if part is None else np.repeat(np.concatenate([part[:, list(f.leaves)] for f in fields]), counts, axis=0)
        for part in noise
    ]
    sums = law.sums(totals, wide[0], wide[1], wide[2], 1)  # type: ignore[arg-type]
    averaged = fields[0].kind == "avg"
    found = (
        averages(sums, np.repeat([f.half for f in fields], counts))
        if averaged
        else RATIOS[fields[0].kind](sums, fields[0])
    )
    margins = np.maximum(found.value - found.low, found.high - found.value).reshape(len(fields), -1).max(axis=1)
    lost = np.asarray(found.lost.reshape(len(fields), -1).all(axis=1))
    return [
        Expected(field.name, float(margin), size, bool(gone))
        for field, margin, gone in zip(fields, margins, lost, strict=True)
    ]


def _totals(field: Field, size: int) -> Floats:
    """What the leaves of a ratio may be in a group of so many rows."""
    x, y = field.half, field.other
    if field.kind == "avg":
        return np.array([[part * x, 1.0] for part in (0.0, 0.5, 1.0)]) * size
    if field.kind == "covariance":
        return np.array([[0.0, 0.0, x * y / 6, 1.0], [x / 2, y / 2, x * y / 3, 1.0]]) * size
    if field.kind == "correlation":
        return np.array([[0.0, 0.0, x * y / 6, x * x / 3, y * y / 3, 1.0]]) * size
    return np.array([[0.0, x * x / 3, 1.0], [x / 2, x * x / 3, 1.0]]) * size


def _made(select: Select, price: Price) -> tuple[Expected, ...]:
    """Of columns that are made of others: as they would be for groups of equal size, values in their middle."""
    size, numbers = _typical(select, price)
    law = Law.of(np.asarray(price.spread), _array(price.grain), price.confidence, price.cost.mechanism)
    finisher = Finisher(select, numbers, law, price.proven)
    table = finisher.table(select.made)
    among = max(1, _chosen_among(finisher, select.made))
    found = []
    for place, column in enumerate(select.made.columns):
        of = table.columns[place]
        if not of.noisy or of.kind != "number":
            continue
        ranks = [numbers[use[1]].margin[:, list(use[2])].max() for use in of.uses if use[0] == "quantile"]
        if ranks:  # what a rank is worth in values is private
            made = "" if place_of(column.of) is not None and len(of.uses) == 1 else " of its quantiles"
            found.append(Expected(f"{_in_words(column.name, 'quantile')}{made}", float(max(ranks))))
            continue
        of = finisher.table(select.made, of.parts * among).columns[place]
        margin = _margin(of)
        known = margin[np.isfinite(margin) & ~of.unsure]
        lost = not len(known)
        sized = None if of.form is not None else size
        found.append(Expected(column.name, 0.0 if lost else float(known.max()), sized, lost))
    return tuple(found)


def _typical(select: Select, price: Price) -> tuple[int, list[Numbers]]:
    segments = [_segment(core, select.schema) for core in select.cores]
    sizes = [int(np.prod(segment.shape)) for segment in segments]
    arrays = (_array(part) for part in (price.spread, price.margin, price.grain))
    spread, margin, grain = (None if part is None else np.broadcast_to(part.ravel(), sum(sizes)) for part in arrays)
    least, totals = 0, []
    for core, segment in zip(select.cores, segments, strict=True):
        groups = max(1, int(np.prod(segment.shape[:-1])))
        least = max(1, (price.rows or _SIZE * groups) // groups)
        total = np.zeros((groups, segment.shape[-1]))
        for field in core.fields:
            leaves = _totals(field, least)[0] if field.kind in RATIOS else [_sum(field, least)] if field.leaves else []
            for leaf, value in zip(field.leaves, leaves, strict=True):
                total[:, leaf] = value
        totals.append(total.ravel())
    return least, numbers_of(select, np.concatenate(totals), spread, margin, grain, segments)


def _segment(core: Core, schema: Schema) -> Segment:
    if not isinstance(core.query, Quantiles):
        return compile_query(core.query, schema, level=True).segments[0]
    labels = compile_query(core.query.groups(), schema, level=True).segments[0].labels
    return Segment((*map(len, labels), core.query.count), labels)


def _sum(field: Field, size: int) -> float:
    if field.kind == "quantile":
        return (field.low + field.high) / 2
    return size * (1.0 if field.kind == "count" else (field.low + field.high) / 2)


def require_printable(select: Select, effort: Effort) -> None:
    """Refuses a tolerance for a statement whose printed errors depend on how many rows a group has."""
    if effort.kind != "tolerance":
        return
    fields = select.printed
    if fields is None:
        raise BadEffort(
            "a tolerance is kept for every number that is printed, and the error of numbers that are made of others "
            "depends on what these are. State share=, epsilon= or rho= instead; the price says which error to expect. "
            "A tolerance can be stated for keys, COUNT and SUM as they are, sorted or cut elsewhere."
        )
    ratios = [field for field in fields if field.kind in RATIOS]
    if ratios:
        raise BadEffort(
            f"a tolerance is kept for every number that is printed, and the error of {ratios[0].name} depends on how "
            "many rows are in its group, which is private. State share=, epsilon= or rho= instead; the price of the "
            "same statement then says which error to expect, in a group of so many rows. A tolerance can be stated for "
            "COUNT and SUM, of which it is made; and for the mean of an expression over all rows (what is missing adds "
            "nothing to it) by asking for the expression itself: ask, not SELECT."
        )


def require_kept(rows: Rows, effort: Effort) -> Rows:
    """Refuses a table in which a margin is above the tolerance; for oracles whose answers are free."""
    margins = [cell.margin for record in rows for cell in record if isinstance(cell, Estimate)]
    if effort.kind == "tolerance" and margins and max(margins) > effort.amount:
        raise BadEffort(
            f"a tolerance is kept for every number that is printed: one of these is known to ± {rough(max(margins))} "
            f"only. Got {float(effort.amount):g}. State a larger one, or none."
        )
    return rows
