"""``check_engine``: whether an engine keeps its whole contract (``engines/engine.py``), to the last integer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine, Pick, Respond, require_engine
from dodona.engines.keys import Counting, KeyCounts
from dodona.engines.memory import MemoryEngine
from dodona.errors import BadQuery, Unsupported
from dodona.query.plan import compile_query
from dodona.query.program import Program
from dodona.query.schema import Integer, Real, Schema
from dodona.query.statistic import Losses, as_query
from dodona.query.unit import Unit
from dodona.testing.reference import counted_rows, reference_totals

if TYPE_CHECKING:
    from dodona.testing.strategies import RawColumn

MakeEngine = Callable[[Schema, "Mapping[str, RawColumn]", "Unit | None"], Engine]
"""(schema, raw columns, unit) -> an engine over them; the unit's own column, beside the schema's, is among them."""
WHOSE = "whose row"
# Two that are equal are one person, any others are two, whatever a collation or a normal form makes of them.
IDS = ("a", "A", "á", "a\u0301", "a ", " a", "b", "\u00df", "ss", None)


class PassingEngine(Engine):
    """Passes everything on to another engine; tests replace what they want to watch or to break."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.schema, unit=engine.unit, public_rows=engine.public_rows)
        self.engine, self.tells_losses, self.reads_texts = engine, engine.tells_losses, engine.reads_texts

    @property
    def lasting_order(self) -> bool:
        """The other's."""
        return self.engine.lasting_order

    def check(self) -> None:
        """The other's."""
        self.engine.check()

    def rows(self) -> int:
        """The other's."""
        return self.engine.rows()

    def totals(self, program: Program) -> NDArray[Any]:
        """The other's."""
        return self.engine.totals(program)

    def keeps(self, program: Program) -> bool:
        """The other's."""
        return self.engine.keeps(program)

    def counts_values(self, program: Program) -> bool:
        """The other's."""
        return self.engine.counts_values(program)

    def dropped(self, most: int, unit: Unit | None = None) -> int:
        """The other's."""
        return self.engine.dropped(most, unit)

    @property
    def counts_keys(self) -> bool:
        """The other's."""
        return self.engine.counts_keys

    def people_by_key(self, column: str, how: Counting) -> KeyCounts:
        """The other's."""
        return self.engine.people_by_key(column, how)

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """The other's."""
        return self.engine.reports(program, pick, respond)

    def explain(self, program: Program) -> str:
        """The other's."""
        return self.engine.explain(program)


def arrays(columns: Mapping[str, RawColumn]) -> dict[str, Any]:
    """Raw columns as NumPy arrays with masks."""
    result: dict[str, Any] = {}
    for name, column in columns.items():
        if column.physical == "text":
            result[name] = np.array(column.values, dtype=object)
            continue
        null = np.array([value is None for value in column.values], dtype=bool)
        plain = np.array([0 if value is None else value for value in column.values], dtype=column.physical)
        result[name] = np.ma.array(plain, mask=null)
    return result


def memory_engine(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None = None) -> MemoryEngine:
    """The memory engine over raw columns."""
    from dodona.engines.table import Table

    engine = Table(arrays(columns), schema, neighbours="replace" if unit is None else "add-remove", unit=unit).engine
    assert isinstance(engine, MemoryEngine)
    return engine


def arrow_table(columns: Mapping[str, RawColumn]) -> Any:
    """Raw columns as an Arrow table of their physical types."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "bool": pa.bool_(), "float32": pa.float32(), "float64": pa.float64()}
    made = {n: pa.array(c.values, kinds.get(c.physical) or getattr(pa, c.physical)()) for n, c in columns.items()}
    return pa.table(made)


def rows_of(columns: Mapping[str, RawColumn]) -> list[dict[str, Any]]:
    """Raw columns as one mapping per row."""
    length = len(next(iter(columns.values())).values)
    return [{name: column.values[i] for name, column in columns.items()} for i in range(length)]


def _check_edges(make_engine: MakeEngine) -> None:
    """Values that engines tend to treat in their own way, each of which moves the total: chance finds them late."""
    from dodona.testing.strategies import RawColumn

    schema = Schema({"x": Real(-3, 9, missing=5)})
    values = [math.nan, math.inf, -math.inf, None, 1e300, -1e300, 5e-324, -0.0, 2.5]
    columns = {"x": RawColumn("float64", values)}
    program = compile_query(as_query("x"), schema, level=False).program
    found = make_engine(schema, columns, None).totals(program)
    assert [int(x) for x in found] == reference_totals(program, rows_of(columns))


def _check_sums(make_engine: MakeEngine) -> None:
    """Sums beyond the whole doubles, and beyond 64 bits: chance has too few rows for them."""
    from dodona.testing.strategies import RawColumn

    schema = Schema({"x": Integer(0, 2**53)})
    program = compile_query(as_query("x"), schema, level=False).program
    for rows in (3, 1100):
        values = [2**53 - 1 - i % 2 for i in range(rows)]
        found = make_engine(schema, {"x": RawColumn("int64", list(values))}, None).totals(program)
        assert int(found[0]) == sum(values), "a sum is rounded, or does not fit its type"


def _check_units(make_engine: MakeEngine) -> None:
    """Every id has more rows than count: the number that is left tells which ids are taken for one person."""
    from dodona.testing.strategies import RawColumn

    schema = Schema({"x": Real(-3, 9)})
    program = compile_query(as_query("1"), schema, level=False).program
    for physical, ids in (("text", IDS), ("int64", (-1, 0, 1, 2**53, 2**53 + 1, None))):
        columns = {
            WHOSE: RawColumn(physical, [whose for whose in ids for _ in range(7)]),
            "x": RawColumn("float64", [float(i % 7) for i in range(7 * len(ids))]),
        }
        engine = make_engine(schema, columns, Unit(WHOSE, 3))
        require_engine(engine, schema, Unit(WHOSE, 3), public_rows=engine.public_rows)
        counted = int(engine.totals(program)[0])
        assert counted == 3 * len(ids), f"{len(ids)} units with at most 3 rows each count with {counted} rows"
        assert engine.rows() == counted, "the number of rows is not that of the rows that count"


def _reference(schema: Schema, unit: Unit | None, program: Program, rows: Sequence[Mapping[str, Any]]) -> Sequence[int]:
    return reference_totals(program, rows if unit is None else counted_rows(schema, unit, program, rows))


def _check_bounds(
    engine: Engine, memory: MemoryEngine, unit: Unit, program: Program, rows: Sequence[Mapping[str, Any]]
) -> None:
    """A question's own bounds: the same rows count, where the engine says that it keeps them."""
    try:
        unit.cut(program)
    except BadQuery:
        return
    asked = replace(program, unit=unit)
    if not engine.keeps(asked):
        return
    expected = [int(x) for x in memory.totals(asked)]
    assert expected == _reference(memory.schema, unit, program, rows)
    assert [int(x) for x in engine.totals(asked)] == expected
    if engine.tells_losses:
        assert engine.dropped(2, Unit(unit.column, 2)) == memory.dropped(2, Unit(unit.column, 2))


def _check_reports(engine: Engine, memory: MemoryEngine, program: Program) -> None:
    """Every row that counts reports once, the picked rows and no others, in one order at every pass."""
    if not engine.lasting_order:
        try:
            list(engine.reports(program, _everyone, _values_by_row))
        except Unsupported:
            return
        raise AssertionError("an engine whose rows have no lasting order must refuse reports with Unsupported")
    passes = [_flat(engine.reports(program, _everyone, _values_by_row)) for _ in range(2)]
    assert passes[0] == passes[1], "rows come in another order at the second pass"
    expected = _flat(memory.reports(program, _everyone, _values_by_row))
    assert Counter(passes[0]) == Counter(expected), "the reports are not those of the rows that count"
    some = _flat(engine.reports(program, lambda a, b: np.arange(-a % 3, b - a, 3), _values_by_row))
    assert some == passes[0][::3], "the rows that report are not those that were picked"


def _everyone(start: int, stop: int) -> NDArray[np.intp]:
    return np.arange(stop - start)


def _values_by_row(vectors: Mapping[int, Any], length: int) -> list[tuple[Any, ...]]:
    """Each row's values, None where NULL."""
    columns = []
    for step in sorted(vectors):
        values, null = vectors[step]
        held = np.broadcast_to(values, (length,)).tolist()
        empty = np.broadcast_to(False if null is None else null, (length,)).tolist()
        columns.append([None if gone else float(value) for value, gone in zip(held, empty, strict=True)])
    return list(zip(*columns, strict=True)) if columns else [()] * length


def _flat(parts: Iterator[Sequence[Any]]) -> list[Any]:
    return [row for part in parts for row in part]


def check_engine(make_engine: MakeEngine, examples: int = 100, queries: int = 3, shrink: bool = True) -> None:
    """Runs fixed and many generated queries on hostile tables; raises AssertionError at the smallest disagreement.

    ``make_engine(schema, columns, unit)`` returns an engine over the raw columns; ``unit`` is None, or names one of
    them. Each example is one table with ``queries`` queries, with a unit or without, asked in totals and in reports. A
    disagreement is made small before it is shown, unless ``shrink`` is false. Needs Hypothesis.
    """
    from hypothesis import HealthCheck, Phase, given, note, reject, settings
    from hypothesis import strategies as st

    from dodona.testing.strategies import (
        random_bounds,
        random_query,
        random_schema,
        random_table,
        with_public,
        with_units,
    )

    _check_edges(make_engine)
    _check_sums(make_engine)
    _check_units(make_engine)
    phases = [Phase.generate, *([Phase.shrink] if shrink else [])]
    every = list(HealthCheck)

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=every, phases=phases)
    @given(st.data())
    def agree(data: st.DataObject) -> None:
        schema = data.draw(random_schema())
        columns, unit = data.draw(with_units(schema, data.draw(random_table(schema)), WHOSE, IDS))
        engine, memory = make_engine(schema, columns, unit), memory_engine(schema, columns, unit)
        require_engine(engine, schema, unit, engine.public_rows)
        engine.check()
        rows = rows_of(columns)
        assert engine.rows() == memory.rows()
        assert unit is not None or engine.rows() == len(rows)
        answered, joined = 0, data.draw(with_public(schema))
        for _ in range(queries):
            query = data.draw(random_query(joined))
            try:
                program = compile_query(query, joined, level=False).program
            except BadQuery:
                continue
            answered, asked = answered + 1, program
            note(str(query))
            expected = [int(x) for x in memory.totals(program)]
            assert expected == _reference(schema, unit, program, rows)
            assert [int(x) for x in engine.totals(program)] == expected
            assert engine.explain(program)
            if unit is not None:
                _check_bounds(engine, memory, unit.within(data.draw(random_bounds())), program, rows)
        if engine.tells_losses and memory.tells_losses:
            program = compile_query(Losses(tuple(schema)), schema, level=False).program
            expected = [int(x) for x in memory.totals(program)]
            assert unit is not None or expected == reference_totals(program, rows)
            assert [int(x) for x in engine.totals(program)] == expected
            assert [engine.dropped(most) for most in (1, 3)] == [memory.dropped(most) for most in (1, 3)]
        if not answered:
            reject()
        _check_reports(engine, memory, asked)

    agree()
