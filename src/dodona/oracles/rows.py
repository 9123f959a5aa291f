"""What is shown: the rows of a SELECT, each estimate with its error, and what its numbers leave out.

No margin speaks of clipped values, of rows beyond a person's limit, or of values the schema does not list. ``left_out``
says it in words beside every number, from the schema, the question and the unit, never from rows. How much it
is, is a private question like any other (``query.statistic.Losses``): one request, one bill, counts with margins. Where
the table has a unit, one more number counts the rows that its limit leaves out, as many of each unit at most as count:
without that bound one person could move it by any number (``Engine.dropped``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.answer import Answer, Bill
from dodona.oracles.tabular import Bar, Tabular, apart, whole
from dodona.query.calendar import DAY, FIRST, LAST, iso_text
from dodona.query.expr import Column as Name
from dodona.query.expr import columns_of
from dodona.query.persons import HIDDEN
from dodona.query.plan import Plan, Segment
from dodona.query.program import Program
from dodona.query.schema import Category, Column, Date, Flag, Label, Schema, Text, Timestamp
from dodona.query.sensitivity import Norms
from dodona.query.statistic import OTHER, OTHER_TOO, WAYS_LOST, Gate, Losses, Partition, Query
from dodona.query.unit import Cut, Unit

LOST = "lost in noise"
EMPTY = "no rows"
NO_NOISE = "no noise: not private"


@dataclass(frozen=True)
class Estimate:
    """A number and how far the truth may be from it, with the statement's confidence.

    ``proven``: whether the margin follows from the noise or a theorem; else it is estimated. ``lost``: why the number
    says nothing beyond the column's public range, if so: "lost in noise", or "no rows" where there is no noise.
    ``step``: of a date or time, which is shown as one, the microseconds that ``value`` and ``margin`` count.
    """

    value: float
    margin: float
    proven: bool = True
    lost: str = ""
    step: int = 0

    @property
    def known(self) -> bool:
        """Whether there is an error to speak of: not where nothing is known of the number."""
        return math.isfinite(self.margin)

    def __str__(self) -> str:
        if self.lost:
            return self.lost
        if self.step:
            return f"{self.at()} ± {_lasting(self.margin * self.step)}" if self.margin else self.at()
        if self.margin <= abs(self.value) * 1e-12:  # nothing, or the last digit of a double
            return f"{self.value:.10g}"
        digits = max(0, 1 - math.floor(math.log10(self.margin)))
        return f"{self.value:,.{digits}f} ± {self.margin:,.{digits}f}"

    def at(self, away: float = 0.0) -> Any:
        """The number; of a date or time its ISO text. ``away``: of another, so far from it."""
        number = self.value + away
        if not self.step:
            return number
        last = (LAST + 1) * DAY // self.step - 1
        return iso_text(round(min(max(number, FIRST * DAY // self.step), last)), self.step)


def _lasting(microseconds: float) -> str:
    """So long at most, in words."""
    seconds = microseconds / 10**6
    if microseconds % DAY == 0:
        return f"{seconds / 86_400:,.0f} day{'' if microseconds == DAY else 's'}"
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{math.ceil(10 * seconds / unit) / 10:,.1f} {name}"
    return f"{seconds:.10g} seconds"


Cell = Label | Estimate | float | None


def shown(cell: Cell) -> str:
    """A cell as it is printed."""
    if cell is None:
        return "NULL"
    return f"{cell:.10g}" if isinstance(cell, float) else str(cell)


@dataclass(frozen=True)
class Rows(Tabular):
    """A table: ``columns`` and ``records``; every key that can occur appears, in the schema's order.

    ``rows[0]`` is a record, ``rows["n"]`` a column, ``for record in rows`` goes through all.

    ``leaves_out``: what the same statement without noise leaves out as well, one sentence each. ``told``: what noise
    has decided beside the numbers, such as which rows are shown. A cell without a value is None.
    """

    columns: tuple[str, ...]
    records: tuple[tuple[Cell, ...], ...]
    confidence: float
    cost: Bill
    leaves_out: tuple[str, ...] = ()
    told: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[Cell, ...]]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, place: int | str) -> tuple[Cell, ...]:
        """A record by its place, or a column by its name."""
        return self.records[place] if isinstance(place, int) else self._column(place)

    def _column(self, name: str) -> tuple[Cell, ...]:
        if name not in self.columns:
            raise BadQuery(f"the columns are {', '.join(self.columns)}. Got {name!r}.")
        place = self.columns.index(name)
        return tuple(record[place] for record in self.records)

    @property
    def proven(self) -> bool:
        """Whether every margin is proven."""
        return all(cell.proven for record in self.records for cell in record if isinstance(cell, Estimate))

    @property
    def lost(self) -> int:
        """How many numbers are lost in noise."""
        return sum(isinstance(cell, Estimate) and cell.lost == LOST for record in self.records for cell in record)

    def to_dict(self) -> dict[str, list[Any]]:
        """Plain columns by name; beside an estimate ``n`` stand ``n_margin``, ``n_low`` and ``n_high``."""
        columns: dict[str, list[Any]] = {}
        for place, printed in enumerate(self.columns):
            cells, name = [record[place] for record in self.records], apart(printed, [*columns])
            if not any(isinstance(cell, Estimate) for cell in cells):
                columns[name] = list(cells)
                continue
            sure = [cell if isinstance(cell, Estimate) and cell.known else None for cell in cells]
            dated = any(cell is not None and cell.step for cell in sure)
            values = [None if cell is None else cell.at() for cell in sure]
            columns[name] = values if dated else whole(values)
            ends: dict[str, list[Any]] = {
                "margin": [None if cell is None else cell.margin for cell in sure],
                "low": [None if cell is None else cell.at(-cell.margin) for cell in sure],
                "high": [None if cell is None else cell.at(cell.margin) for cell in sure],
            }
            for end, values in ends.items():
                columns[apart(f"{name}_{end}", [*self.columns, *columns])] = list(values)
        return columns

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain records: each estimate as its value, with its margin beside it as ``name_margin``.

        A number that is lost also has ``name_note``, which says so; its value is the middle of what it may be, or None.
        A date or time is its ISO text, its margin counts days or steps, and ``name_text`` has both in words.
        """
        records = []
        for record in self.records:
            plain: dict[str, Any] = {}
            for name, cell in zip(self.columns, record, strict=True):
                if not isinstance(cell, Estimate):
                    plain[name] = cell
                    continue
                plain |= {
                    name: cell.at() if cell.known else None,
                    f"{name}_margin": cell.margin if cell.known else None,
                }
                plain |= {f"{name}_note": cell.lost} if cell.lost else {}
                plain |= {f"{name}_text": str(cell)} if cell.step else {}
            records.append(plain)
        return records

    def bars(self, column: str | None = None) -> tuple[str, list[Bar]]:
        """Of each record that has the number; what is lost in noise is no bar."""
        numbers = [name for name in self.columns if any(isinstance(cell, Estimate) for cell in self._column(name))]
        drawn = [name for name in numbers if not any(getattr(cell, "step", 0) for cell in self._column(name))]
        if column is None and not drawn:
            raise BadQuery("no column of this table has an error to draw.")
        name = drawn[0] if column is None else column
        keys = [place for place, other in enumerate(self.columns) if other not in numbers]
        pairs = zip(self.records, self._column(name), strict=True)
        return name, [
            Bar(", ".join(shown(record[key]) for key in keys), cell.value, cell.margin)
            for record, cell in pairs
            if isinstance(cell, Estimate) and cell.known and not cell.lost
        ]

    def lines(self) -> tuple[list[str], list[list[str]], list[str]]:
        """As it is printed."""
        cells = [[shown(cell) for cell in record] for record in self.records]
        return list(self.columns), cells, [*self.notes(), f"cost: {self.cost}"]

    def notes(self) -> list[str]:
        """What stands below the table: how sure the margins are, what is lost, what is left out."""
        sure = f"± at {self.confidence * 100:.10g} %, {'proven' if self.proven else 'estimated'}"
        noun = f"{self.lost:,} number{' is' if self.lost == 1 else 's are'}"
        lost = f"{noun} {LOST}: worth nothing at this price; fewer groups or a larger effort would tell more"
        told = f"noise only: {'; '.join(self.leaves_out)}" if self.leaves_out else ""
        return [note for note in (sure, lost if self.lost else "", *self.told, told) if note]

    def __str__(self) -> str:
        head, cells, notes = self.lines()
        grid = [head, *cells]
        widths = [max(len(row[i]) for row in grid) for i in range(len(head))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in grid]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([*lines, *notes])


MOST_NAMED = 6
"""Columns that are spoken of one by one; of more, in one sentence."""


def left_out(query: Query, plan: Plan, schema: Schema, unit: Unit | None = None) -> tuple[str, ...]:
    """What the same question without noise leaves out as well, one sentence each."""
    of_unit = [] if unit is None else [_of_unit(unit, unit.cut(plan.program))]
    if isinstance(query, Losses):
        if unit is None or unit.column is None:
            return tuple(of_unit)
        most = f"of one {unit.column}, at most {unit.cut(plan.program).rows:,} rows beyond the limit are counted"
        return f"{of_unit[0]}, and losses are of those", most
    told, of_groups, keys = of_unit, [], set[str]()
    axes = iter(plan.segments[0].labels)
    while isinstance(query, Gate | Partition):
        by = query.where if isinstance(query, Gate) else query.by
        for lookup in (schema.lookups[name] for name in sorted(columns_of(by)) if name in schema.lookups):
            if not lookup.column:  # a JOIN, which leaves out rows without a match
                of_groups.append(f"a row whose {lookup.key} is not in {lookup.table} is left out")
        unknown = [name for name in sorted(columns_of(by)) if name in schema and schema[name].missing is None]
        if isinstance(query, Gate) and unknown:
            of_groups.append(f"a row without {' or '.join(unknown)} may not meet WHERE, and then is left out")
        elif isinstance(query, Partition):
            last = next(axes, ("",))[-1]
            where = "left out" if not query.other else f"in {last}" if last in (OTHER, OTHER_TOO) else ""
            of_groups += [f"a row in none of the groups of {by} is {where}"] if where else []
            keys |= {str(by)} if where else set()
        query = query.of
    read = [name for name in plan.program.read if name in schema and not name.startswith(HIDDEN)]
    if len(read) > MOST_NAMED:
        told.append(f"in {len(read)} columns, values outside the stated bounds count as the nearest bound")
        told.append("values that are missing or not listed add nothing, or what the schema states")
        return (*told, *of_groups)
    listed = [name for name in read if not (isinstance(schema[name], Category | Flag) and str(Name(name)) in keys)]
    return (*told, *(sentence for name in listed for sentence in _of_column(name, schema[name])), *of_groups)


def beyond(plan: Plan, query: Query, unit: Unit | None, *, level: bool) -> Plan:
    """The plan; of losses with one coordinate more, the last: rows that the unit's limit leaves out."""
    if not isinstance(query, Losses) or unit is None or unit.column is None:
        return plan
    weight = Fraction(1) if level else Fraction(unit.cut(plan.program).rows)
    places = dict(plan.places)
    places[weight] = np.append(places.get(weight, np.zeros(0, dtype=np.intp)), plan.dimension)
    shape = Segment((plan.dimension + 1,), ())
    units, rounding = np.append(plan.units, 1.0), np.append(plan.rounding, 0.0)
    return replace(plan, units=units, rounding=rounding, places=places, segments=(shape,))


def beyond_norms(norms: Norms, query: Query, unit: Unit | None, program: Program, *, level: bool) -> Norms:
    """How far one unit moves the totals; losses with its rows that count, and by its limit with those that do not."""
    if not isinstance(query, Losses) or unit is None or unit.column is None:
        return norms
    most = Fraction(unit.cut(program).rows)
    return Norms.stack([norms, Norms.scalar(most if level else Fraction(1))])


def totals_of(engine: Engine, query: Query, plan: Plan) -> NDArray[Any]:
    """The exact sums of a plan; of losses, with what the unit's limit leaves out."""
    sums = plan.totals(engine.totals(plan.program))
    if not isinstance(query, Losses) or engine.unit is None:
        return sums
    return np.append(sums, engine.dropped(engine.unit.cut(plan.program).rows))


def require_told(engine: Engine, plan: Plan) -> None:
    """Refuses, before anything is charged, what the engine where the rows live cannot do: to tell losses, or to keep to
    a question's own bounds.
    """
    if plan.program.fates and not engine.tells_losses:
        raise Unsupported(
            f"{type(engine).__name__} does not tell what cleaning does to raw values (Engine.tells_losses), so losses "
            "cannot be counted there."
        )
    if any(block.different is not None for block in plan.program.blocks) and not engine.counts_values(plan.program):
        raise Unsupported(
            "the rows live where different values that nobody listed are not counted (Engine.counts_values), or the "
            "expression is too long for a statement there: count those of a column, or GROUP BY listed values."
        )
    if not engine.keeps(plan.program):
        raise Unsupported(
            "the rows live where a question's own bounds cannot be kept (Engine.keeps): its condition or groups are "
            "too long, or the engine knows the table's bounds alone. Ask with a shorter condition, or without bounds."
        )


def tabled(query: Losses, schema: Schema, answer: Answer) -> Rows:
    """The counts, a row each."""
    lost = [(name, lost) for name in query.columns for lost in WAYS_LOST[schema[str(schema.find(name))].kind]]
    named: list[tuple[str, str]] = [(name, _in_words(schema[str(schema.find(name))], what)) for name, what in lost]
    totals, margins = np.ravel(answer.total), np.ravel(answer.margin)
    named += [("(unit)", "rows beyond one person's limit")] if len(totals) > len(named) else []
    cells = [Estimate(float(a), float(b), answer.proven) for a, b in zip(totals, margins, strict=True)]
    records = tuple((*names, cell) for names, cell in zip(named, cells, strict=True))
    return Rows(("column", "what", "rows"), records, answer.confidence, answer.cost, answer.leaves_out)


def _in_words(column: Column, what: str) -> str:
    if what == "missing":
        dated = isinstance(column, Date | Timestamp)
        no_number = "" if isinstance(column, Category | Flag | Text) else f" or no {column.kind if dated else 'number'}"
        if column.missing is None:
            return f"missing{no_number}"
        return f"missing{no_number}: count as {_shown(column, column.missing) if dated else column.missing}"
    if isinstance(column, Text):
        return f"longer than {column.max_length:,} characters: cut"
    if what == "not listed" and isinstance(column, Category):
        other = column.cleaning.other
        return "not listed" if other is None else f"not listed: count as {other}"
    if what == "not listed":
        return "neither true nor false"
    bound = getattr(column, {"below": "low", "above": "high"}[what])
    return f"{what} {_shown(column, bound)}: count as {_shown(column, bound)}"


def _shown(column: Column, value: Any) -> str:
    """A bound in words: of dates and times an ISO text."""
    return column.text(value) if isinstance(column, Date | Timestamp) else f"{value:,.10g}"


def _of_unit(unit: Unit, cut: Cut) -> str:
    if unit.column is None:
        return f"nobody's rows are left out: it is presumed that one person has at most {cut.rows:,}"
    same = f"the same {' and '.join(cut.columns)}" if cut.columns else "the same group"
    within = "" if cut.per_group is None else f", and at most {cut.per_group:,} with {same}"
    within += "" if cut.groups is None else f", in at most {cut.groups:,} group{'' if cut.groups == 1 else 's'}"
    return f"at most {cut.rows:,} row{'' if cut.rows == 1 else 's'} of one {unit.column} count{within}"


def _of_column(name: str, column: Column) -> list[str]:
    """Of one column that is read."""
    if isinstance(column, Text):
        cut = f"of {name}, the first {column.max_length:,} characters count"
        return [cut, f"a missing {name} {'is unknown' if column.missing is None else f'counts as {column.missing!r}'}"]
    if isinstance(column, Category) and column.cleaning.other is not None:
        counts = "belongs to no value" if column.missing is None else f"counts as {column.missing}"
        return [f"a {name} that is not listed counts as {column.cleaning.other}", f"a missing {name} {counts}"]
    if isinstance(column, Category | Flag):
        absent = f"{name} that is missing or not listed" if isinstance(column, Category) else f"missing {name}"
        counts = "belongs to no value" if column.missing is None else f"counts as {column.missing}"
        return [f"a {absent} {counts}"]
    low, high = (_shown(column, end) for end in (column.low, column.high))
    clipped = f"{name} below {low} counts as {low}, above {high} as {high}"
    absent = "adds nothing" if column.missing is None else f"counts as {_shown(column, column.missing)}"
    return [clipped, f"a missing {name} {absent}"]
