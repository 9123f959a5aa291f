"""What an answer leaves out that no margin speaks of: clipped values, rows beyond a person's limit, unlisted values.

``left_out`` says it in words beside every number, from the schema, the question and the unit, never from rows. How much
it is, is a private question like any other (``query.statistic.Losses``): one request, one bill, counts with margins.
Where the table has a unit, one more number counts the rows that its limit leaves out, as many of each unit at most as
count: without that bound one person could move it by any number (``Engine.dropped``).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine
from dodona.errors import Unsupported
from dodona.oracles.answer import Answer
from dodona.oracles.rows import Estimate, Rows
from dodona.query.expr import Column as Name
from dodona.query.expr import columns_of
from dodona.query.plan import Plan, Segment
from dodona.query.program import Program
from dodona.query.schema import Category, Column, Date, Flag, Schema, Text, Timestamp
from dodona.query.sensitivity import Norms
from dodona.query.statistic import LOST, OTHER, OTHER_TOO, Gate, Losses, Partition, Query
from dodona.query.unit import Cut, Unit

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
    read = [name for name in plan.program.read if name in schema]
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
    if not engine.keeps(plan.program):
        raise Unsupported(
            "the rows live where a question's own bounds cannot be kept (Engine.keeps): its condition or groups are "
            "too long, or the engine knows the table's bounds alone. Ask with a shorter condition, or without bounds."
        )


def tabled(query: Losses, schema: Schema, answer: Answer) -> Rows:
    """The counts, a row each."""
    lost = [(name, lost) for name in query.columns for lost in LOST[schema[str(schema.find(name))].kind]]
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
