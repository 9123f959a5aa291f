"""``check_engine``: whether an engine gives, to the last integer, the totals of the memory engine and the reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dodona.engines.base import Engine
from dodona.engines.columns import read_columns
from dodona.engines.memory import MemoryEngine
from dodona.errors import BadQuery
from dodona.query.plan import compile_query
from dodona.query.schema import Real, Schema
from dodona.query.statistic import as_query
from dodona.testing.reference import reference_totals

if TYPE_CHECKING:
    from dodona.testing.strategies import RawColumn

MakeEngine = Callable[[Schema, "Mapping[str, RawColumn]"], Engine]


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


def memory_engine(schema: Schema, columns: Mapping[str, RawColumn]) -> MemoryEngine:
    """The memory engine over raw columns."""
    cleaned, rows = read_columns(arrays(columns), schema)
    return MemoryEngine(schema, cleaned, rows)


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
    assert [int(x) for x in make_engine(schema, columns).totals(program)] == reference_totals(program, rows_of(columns))


def check_engine(make_engine: MakeEngine, examples: int = 100, queries: int = 3, shrink: bool = True) -> None:
    """Runs a fixed and many generated queries on hostile tables; raises AssertionError at the smallest disagreement.

    ``make_engine(schema, columns)`` returns an engine over the raw columns. Each example is one table with ``queries``
    queries. A disagreement is made small before it is shown, unless ``shrink`` is false. Needs Hypothesis.
    """
    from hypothesis import HealthCheck, Phase, given, note, reject, settings
    from hypothesis import strategies as st

    from dodona.testing.strategies import random_query, random_schema, random_table

    _check_edges(make_engine)
    phases = [Phase.generate, *([Phase.shrink] if shrink else [])]
    every = list(HealthCheck)

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=every, phases=phases)
    @given(st.data())
    def agree(data: st.DataObject) -> None:
        schema = data.draw(random_schema())
        columns = data.draw(random_table(schema))
        engine, memory = make_engine(schema, columns), memory_engine(schema, columns)
        rows = rows_of(columns)
        assert engine.rows() == memory.rows() == len(rows)
        answered = 0
        for _ in range(queries):
            query = data.draw(random_query(schema))
            try:
                program = compile_query(query, schema, level=False).program
            except BadQuery:
                continue
            answered += 1
            note(str(query))
            expected = reference_totals(program, rows)
            assert [int(x) for x in memory.totals(program)] == expected
            assert [int(x) for x in engine.totals(program)] == expected
            assert engine.explain(program)
        if not answered:
            reject()

    agree()
