"""Whatever speaks the Arrow C stream is a table: each is read once, at construction, and gives the same integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dodona.engines.table import Table
from dodona.errors import BadTable
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Partition, Stack, Value, as_expr
from dodona.query.unit import Unit

SCHEMA = Schema({"x": Real(-1, 10), "n": Integer(0, 5, missing=2), "g": Category("a", "b", "é"), "f": Flag()})
TABLE = pa.table(
    {
        "x": pa.array([0.1, None, float("nan"), float("inf"), -7.5, 3.25, 1e308], pa.float64()),
        "n": pa.array([1, 2, None, 9, -4, 5, 0], pa.int64()),
        "g": pa.array(["a", "b", "é", None, "A", "b", ""]),
        "f": pa.array([True, False, None, True, False, True, None]),
        "other": pa.array([[1], [2], None, [], [3], [4], [5]]),
    }
)
PLAIN = TABLE.select(["x", "n", "g", "f"])
TEXTS = ("1", "x", "n", "x IS NULL", "g = 'b'", "f", "x * n")
QUERY = Stack((*(Value(as_expr(text)) for text in TEXTS), Partition(as_expr("g"), Value(as_expr("x")))))


class Stream:
    """An object of no known library, with nothing but the capsule; it can be read once."""

    def __init__(self, table: Any) -> None:
        self._reader = table.to_reader(max_chunksize=2)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader, self._reader = self._reader, None
        assert reader is not None, "read twice"
        return reader.__arrow_c_stream__(requested_schema)


class Batch:
    """An object with the capsules of one record batch."""

    def __init__(self, table: Any) -> None:
        self._batch = table.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


def adbc_reader() -> Any:
    dbapi = pytest.importorskip("adbc_driver_sqlite.dbapi")
    with dbapi.connect() as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("people", PLAIN.set_column(3, "f", PLAIN["f"].cast(pa.int64())))
        cursor.execute("SELECT * FROM people")
        return cursor.fetch_record_batch().read_all().to_reader()


def adbc_stream() -> Any:
    """ADBC's own handle, not PyArrow's; SQLite keeps NaN as NULL."""
    dbapi = pytest.importorskip("adbc_driver_sqlite.dbapi")
    connection = dbapi.connect()
    cursor = connection.cursor()
    cursor.adbc_ingest("people", PLAIN.set_column(3, "f", PLAIN["f"].cast(pa.int64())))
    cursor.execute("SELECT * FROM people")
    kept.append((connection, cursor))
    return cursor.fetch_arrow()


kept: list[Any] = []  # an ADBC stream lives no longer than its cursor


def reader_of(relation: Any) -> Any:
    """Two rows at a time; DuckDB before 1.5 has another name for it."""
    return (relation.to_arrow_reader if hasattr(relation, "to_arrow_reader") else relation.fetch_record_batch)(2)


SOURCES: dict[str, Callable[[], Any]] = {
    "pyarrow table": lambda: TABLE,
    "pyarrow batch": lambda: TABLE.combine_chunks().to_batches()[0],
    "record batch reader": lambda: TABLE.to_reader(max_chunksize=2),
    "chunked table": lambda: pa.concat_tables([TABLE.slice(0, 3), TABLE.slice(3)]),
    "duckdb relation": lambda: duckdb.from_arrow(PLAIN),
    "duckdb reader": lambda: reader_of(duckdb.from_arrow(PLAIN)),
    "pandas": PLAIN.to_pandas,
    "pandas of Arrow types": lambda: PLAIN.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.from_arrow(PLAIN),
    "a stream of its own": lambda: Stream(TABLE),
    "a batch of its own": lambda: Batch(TABLE),
    "views and large texts": lambda: PLAIN.set_column(2, "g", PLAIN["g"].cast(pa.string_view())),
    "dictionaries that differ by chunk": lambda: pa.concat_tables(
        [
            PLAIN.slice(0, 3).set_column(2, "g", PLAIN["g"].slice(0, 3).combine_chunks().dictionary_encode()),
            PLAIN.slice(3).set_column(2, "g", PLAIN["g"].slice(3).combine_chunks().dictionary_encode()),
        ]
    ),
    "adbc reader": adbc_reader,
    "adbc stream": adbc_stream,
}


def totals(table: Table) -> list[int]:
    program = compile_query(QUERY, SCHEMA, level=False).program
    return [int(x) for x in table.engine.totals(program)]


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_integers(kind: str) -> None:
    table = Table(SOURCES[kind](), SCHEMA)
    assert table.public_rows == TABLE.num_rows
    first = totals(table)
    assert first == totals(Table(TABLE, SCHEMA))
    assert totals(table) == first  # a stream is read once, at construction
    for connection, cursor in kept:
        cursor.close()
        connection.close()
    kept.clear()


def test_streams_without_rows() -> None:
    for source in (
        TABLE.slice(0, 0).to_reader(),
        pa.RecordBatchReader.from_batches(TABLE.schema, []),
        Stream(TABLE[:0]),
    ):
        table = Table(source, SCHEMA)
        assert table.public_rows == 0
        assert set(totals(table)) == {0}


@pytest.mark.parametrize("unit", [None, Unit("other", 2)], ids=["rows", "units"])
def test_a_stream_that_breaks_is_refused_without_its_words(unit: Unit | None) -> None:
    def batches() -> Any:
        yield PLAIN.to_batches()[0]
        raise ValueError("secret 987654")

    reader = pa.RecordBatchReader.from_batches(PLAIN.schema, batches())
    with pytest.raises(BadTable, match="to its end") as refused:
        Table(reader, SCHEMA, unit=unit, neighbours="add-remove")
    assert "987654" not in str(refused.value)


def test_arrays_are_no_table() -> None:
    with pytest.raises(BadTable, match="table"):
        Table(pa.chunked_array([[1.0, 2.0]]), SCHEMA)
    with pytest.raises(BadTable):
        Table(pa.array(np.zeros(3)), SCHEMA)
