"""Rare words of the SQL compilers (M16), each on real rows against the memory engine, or, for Spark, as written."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dodona.engines.duckdb import DuckDBEngine
from dodona.engines.duckdb.dialect import DuckDBDialect
from dodona.engines.intervals import ANYTHING, Interval
from dodona.engines.postgres import PostgresEngine
from dodona.engines.postgres.arithmetic import guarded
from dodona.engines.postgres.dialect import PostgresDialect
from dodona.engines.spark.dialect import SparkDialect
from dodona.engines.sql.compile import Statement
from dodona.engines.sql.dialect import Dialect, Physical, quote_name
from dodona.engines.table import Table
from dodona.engines.units import unit_codes
from dodona.errors import BadTable
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Integer, Real, Schema
from dodona.query.statistic import Partition, Query, Stack, Value, as_expr
from dodona.query.unit import Unit
from tests.support.postgres import PostgresServer

ONE = Value(as_expr("1"))
SCHEMA = Schema(
    {
        "truth": Category(True, False),
        "lie": Category(False),
        "odd": Category("\ud800", "\ud801"),
        "far": Category(2**70, 2**70 + 1),
        "near": Category(1, 2**53 + 1),
        "cents": Integer(0, 5),
        "x": Real(-1e149, 1e149),
    }
)
ROWS: dict[str, list[Any]] = {
    "truth": [True, False, None, True],
    "lie": [1.0, 0.0, 2.0, None],
    "odd": ["a", None, "?", ""],
    "far": [1, 2**62, None, -1],
    "near": [1.0, 2.0**53, 0.5, None],
    "cents": [1.0, 2.5, 99.0, None],
    "x": [0.0, -3.0, 1e-300, None],
}
ARROW = {
    name: pa.array(values, {"truth": pa.bool_(), "odd": pa.string(), "far": pa.int64()}.get(name, pa.float64()))
    for name, values in ROWS.items()
}
QUERIES: list[Query] = [
    *(Partition(Column(name), ONE) for name in ("truth", "lie", "odd", "far", "near")),
    Stack(tuple(Value(as_expr(text)) for text in ("cents", "x", "x * 0"))),
    Stack(
        tuple(
            Value(as_expr(f"GREATEST(LEAST({text}, 1000), -1000)"))
            for text in ("1e-300 / x", "0 / x", "3 / x", "x / 0", "1e300 / x", "(x * x) / 1e-200")
        )
    ),
    Partition(as_expr("BUCKET(x, -5, 5)"), ONE),
]


def totals(engine: Any, query: Query) -> list[int]:
    return list(map(int, engine.totals(compile_query(query, SCHEMA, level=False).program)))


@pytest.fixture(scope="module")
def memory() -> Any:
    return Table(pa.table(ARROW), SCHEMA).engine


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> DuckDBEngine:
    path = tmp_path_factory.mktemp("edges") / "rows.parquet"
    pq.write_table(pa.table(ARROW), path)
    return DuckDBEngine(path, SCHEMA)


@pytest.fixture(scope="module")
def in_postgres(postgres: PostgresServer) -> Any:
    kinds = dict.fromkeys(ROWS, "float8") | {"truth": "bool", "odd": "text", "far": "int8", "cents": "numeric(9, 2)"}
    name = f"edges_{uuid.uuid4().hex[:8]}"
    with postgres.connect() as db:
        db.execute(f"CREATE TABLE {name} ({', '.join(f'{n} {kinds[n]}' for n in ROWS)})")
        for row in zip(*ROWS.values(), strict=True):
            db.execute(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(row))})", row)
    engine = PostgresEngine(f"{postgres.url()}#{name}", SCHEMA)
    yield engine
    engine.close()


@pytest.mark.parametrize("query", QUERIES, ids=str)
@pytest.mark.parametrize("engine", ["duckdb", "in_postgres"])
def test_rare_labels_and_constants_mean_the_same(
    engine: str, query: Query, memory: Any, request: pytest.FixtureRequest
) -> None:
    assert totals(request.getfixturevalue(engine), query) == totals(memory, query)


@pytest.mark.parametrize(
    ("op", "zero", "expected"),
    [("mul", 0, [0.0, 0.0, 0.0]), ("mul", 1, [0.0, 0.0, 0.0]), ("div", 0, [None, 0.0, 0.0]), ("div", 1, [None] * 3)],
)
def test_zero_beside_a_value_of_which_nothing_is_known(
    op: str, zero: int, expected: list[float | None], postgres: PostgresServer
) -> None:
    """PostgreSQL raises on x / 0; what is written never does."""
    sizes = [Interval(0.0, 0.0, 1.0, True) if side == zero else ANYTHING for side in range(2)]
    texts = ["'0.0'::float8" if side == zero else "x" for side in range(2)]
    written = guarded(op, *texts, sizes)
    with postgres.connect() as db:
        found = db.execute(f"SELECT {written} FROM (VALUES (0::float8), (3), (-1e308)) AS rows(x)").fetchall()
    assert [value for (value,) in found] == expected


def test_a_category_of_truth_in_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("truth\ntrue\nF\n1\n0\nmaybe\n\n", encoding="utf-8")
    schema = Schema({"truth": Category(False, True)})
    program = compile_query(Partition(Column("truth"), ONE), schema, level=False).program
    assert list(DuckDBEngine(path, schema).totals(program))[:2] == [2, 2]


SPARK = SparkDialect(
    SCHEMA,
    {
        "truth": Physical("a", "boolean", "boolean"),
        "lie": Physical("b", "float", "double"),
        "odd": Physical("c", "text", "string"),
        "far": Physical("d", "integer", "bigint"),
        "near": Physical("e", "float", "double"),
    },
)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("truth", "CASE WHEN r0 THEN 0.0D WHEN NOT (r0) THEN 1.0D END"),
        (
            "lie",
            "CASE WHEN CASE WHEN r1 = 1.0D THEN TRUE WHEN r1 = 0.0D THEN FALSE END THEN CAST(NULL AS DOUBLE) "
            "WHEN NOT (CASE WHEN r1 = 1.0D THEN TRUE WHEN r1 = 0.0D THEN FALSE END) THEN 0.0D END",
        ),
        ("odd", "CAST(NULL AS DOUBLE)"),
        ("far", "CAST(NULL AS DOUBLE)"),
    ],
)
def test_rare_labels_in_spark(name: str, written: str) -> None:
    column = SCHEMA[name]
    assert isinstance(column, Category)
    assert SPARK.column((name, "category", column.values, column.cleaning, None)) == written


def test_names_hold_what_quotes_them() -> None:
    assert quote_name("a`b", "`") == "`a``b`"
    assert quote_name('a"b') == '"a""b"'


def test_a_cell_beyond_those_of_its_block_adds_nothing() -> None:
    """Blocks of one key may have fewer cells than the key."""
    schema = Schema({"g": Category("a", "b")})
    program = compile_query(Partition(Column("g"), ONE), schema, level=False).program
    cells = program.blocks[0].cells
    into = [np.zeros(cells, dtype=np.int64)]
    branch = Statement("", True, ((0, (0,)),))
    for cell in (0.0, float(cells), -1.0, None):
        branch.place((1, cell, 7), program, into)
    assert into[0].tolist() == [7] + [0] * (cells - 1)


def test_a_dialect_says_all_that_differs_and_nothing_that_does_not() -> None:
    """What is abstract must be written, and what is final, the ladder of cleaning among it, is nowhere overridden."""
    with pytest.raises(TypeError, match="abstract"):
        Dialect(SCHEMA, {})  # type: ignore[abstract]
    final = {name for name, member in vars(Dialect).items() if getattr(member, "__final__", False)}
    assert {"column", "number", "relation", "operations", "summed"} <= final
    for dialect in (DuckDBDialect, PostgresDialect, SparkDialect):
        own = {name for name, member in vars(dialect).items() if callable(member)}
        assert not own & (final | {"_code", "_halve"}), dialect


UNIT = Unit("who", 1)


@pytest.mark.parametrize(
    ("who", "codes"),
    [
        (np.array(["b", None, "a", "b", 3], dtype=object), [0, 1, 2, 0, 3]),
        (np.ma.masked_array([5, 5, 7], mask=[False, True, False]), [0, 1, 2]),
    ],
)
def test_whose_rows_they_are(who: Any, codes: list[int]) -> None:
    """Equal codes for equal units, and one code for all rows without one."""
    found = unit_codes({"who": who}, UNIT)()
    first: dict[int, int] = {}
    assert [first.setdefault(code, len(first)) for code in found.tolist()] == codes


@pytest.mark.parametrize(
    "make", [lambda: {"other": np.arange(3)}, lambda: {"who": np.array([0.5])}, lambda: {"who": np.array([b"a", 1.5])}]
)
def test_units_that_are_not_plain_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(BadTable, match="unit column"):
        unit_codes(make(), UNIT)
