"""Hostile rows on every engine (HOSTILE V2-V5, V14, V15, V27-V29, V32, V35): the reference's integers, no exception,
and twins (one row replaced) that look alike and whose totals differ by no more than the stated reach."""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dodona.engines.duckdb import DuckDBEngine
from dodona.engines.engine import Engine
from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.query.plan import Plan, compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Features as Vector
from dodona.query.statistic import Gate, Outer, Partition, Query, Stack, Value, as_expr
from dodona.testing.reference import reference_totals
from tests.support.places import csv_cell

ENGINES = ("numpy", "pandas", "polars", "arrow", "parquet", "parquets", "csv", "duckdb")
SCHEMA = Schema(
    {"id": Integer(0, 20), "x": Real(-10, 100), "n": Integer(0, 255), "g": Category("a", "b'", "é"), "f": Flag()}
)
TYPES = {"id": pa.int64(), "x": pa.float64(), "n": pa.float64(), "g": pa.string(), "f": pa.bool_()}
Row = dict[str, Any]

ODD = (None, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0.1, 99.99999999999999, 100.0, -10.0, 2.0**63)


def row(**cells: Any) -> Row:
    return {"id": 7, "x": 1.5, "n": 3.0, "g": "a", "f": True} | cells


ROWS = [
    *(row(id=i, x=value, n=value) for i, value in enumerate(ODD)),
    *(row(g=label) for label in (None, "b'", "é", "A", "", "'); DROP TABLE t; --", "a ")),
    *(row(f=flag, id=5) for flag in (None, True, False)),
]


def V(text: str) -> Value:  # noqa: N802
    return Value(as_expr(text))


def opened(kind: str, rows: Sequence[Mapping[str, Any]], folder: Path, schema: Schema = SCHEMA) -> Engine:
    """An engine of this kind over the rows."""
    columns = {name: pa.array([r[name] for r in rows], TYPES[name]) for name in schema}
    table = pa.table(columns)
    stem = folder / f"{len(os.listdir(folder))}"
    if kind == "numpy":
        arrays = {}
        for name in schema:
            cells = [r[name] for r in rows]
            null = [c is None for c in cells]
            filled = [0 if c is None else c for c in cells]
            plain = np.array(cells, object) if name == "g" else np.array(filled, TYPES[name].to_pandas_dtype())
            arrays[name] = plain if name == "g" else np.ma.array(plain, mask=null)
        return Table(arrays, schema).engine
    if kind == "pandas":
        return Table(table.to_pandas(types_mapper=None), schema).engine
    if kind == "polars":
        import polars as pl

        return Table(pl.DataFrame(pl.from_arrow(table)), schema).engine
    if kind == "arrow":
        return Table(table, schema).engine
    if kind == "parquet":
        pq.write_table(table, f"{stem}.parquet", row_group_size=3)
        return Table(f"{stem}.parquet", schema).engine
    if kind == "parquets":
        stem.mkdir()
        cut = len(rows) // 2
        pq.write_table(table.slice(0, cut), stem / "0.parquet")
        pq.write_table(table.slice(cut), stem / "1.parquet")
        return Table(stem / "*.parquet", schema).engine
    if kind == "duckdb":
        with duckdb.connect(f"{stem}.duckdb") as connection:
            connection.register("t", table)
            connection.execute("CREATE TABLE people AS SELECT * FROM t")
        return Table(f"{stem}.duckdb#people", schema).engine
    lines = [",".join(schema)] + [",".join(csv_cell(r[name]) for name in schema) for r in rows]
    Path(f"{stem}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Table(f"{stem}.csv", schema).engine


def plan_of(query: Query) -> Plan:
    return compile_query(query, SCHEMA, level=False)


def check(engine: Engine, query: Query, rows: Sequence[Row]) -> np.ndarray[Any, Any]:
    program = plan_of(query).program
    totals = engine.totals(program)
    assert [int(t) for t in totals] == reference_totals(program, rows)
    return totals


TOTAL = {  # V15 and its kin: each total by definition, or refused
    "division": "LEAST(GREATEST(1 / (id - 7), -5), 5)",
    "remainder": "LEAST(GREATEST(x % (id - 7), -5), 5)",
    "root": "SQRT(x - 5)",
    "logarithm": "LN(x - 5)",
    "exponential": "LEAST(EXP(x * 1000), 7)",
    "power": "LEAST(POWER(x, n), 1000)",
    "square": "LEAST(x * x * x * x, 1e6)",
    "negative base": "LEAST(GREATEST(POWER(x, 0.3), 0), 10)",
    "huge": "LEAST(GREATEST(x * 1e300 * 1e300, -3), 3)",
    "null logic": "x > 1 OR f",
    "not null": "NOT (g = 'a' AND f)",
    "bits": "n & 12",
    "missing": "COALESCE(x, n, -1)",
    "V29": "(x - 1000000) * 1000000",
    "choice": "CASE WHEN f THEN x WHEN g IN ('a', 'é') THEN 1 ELSE NULL END",
}
STRUCTURES = {
    "gate": Gate(as_expr("x > 0"), V("n")),
    "groups": Partition(as_expr("g"), Stack((V("1"), V("x")))),
    "moments": Outer(Vector((as_expr("x"), as_expr("n")), 50.0)),
    "none": Gate(as_expr("x > 1000"), Partition(as_expr("f"), V("n"))),
}
QUERIES: dict[str, Query] = {**{name: V(text) for name, text in TOTAL.items()}, **STRUCTURES}


@pytest.mark.parametrize("kind", ENGINES)
def test_v4_v15_v28_v29_every_query_is_total_and_exact(kind: str, tmp_path: Path) -> None:
    engine = opened(kind, ROWS, tmp_path)
    for query in QUERIES.values():
        check(engine, query, ROWS)


@pytest.mark.parametrize("kind", ENGINES)
def test_v2_shuffled_rows_give_the_same_integer(kind: str, tmp_path: Path) -> None:
    generator = random.Random(2)
    rows = [row(id=i % 20, x=generator.uniform(-20, 120), n=float(i % 300)) for i in range(200)]
    query = Stack((V("x"), V("x * n"), Partition(as_expr("g"), V("x"))))
    found = set()
    for _ in range(4):
        generator.shuffle(rows)
        found.add(tuple(map(int, check(opened(kind, rows, tmp_path), query, rows))))
    assert len(found) == 1


def test_v2_threads_and_partitions_give_the_same_integer(tmp_path: Path) -> None:
    with duckdb.connect() as maker:
        maker.execute(
            "COPY (SELECT range % 20 AS id, 1e3 * random() - 100 AS x, floor(300 * random()) AS n, 'a' AS g, "
            f"random() < 0.5 AS f FROM range(300000)) TO '{tmp_path}/big.parquet' (ROW_GROUP_SIZE 10000)"
        )
        for part in range(5):
            maker.execute(
                f"COPY (SELECT * FROM '{tmp_path}/big.parquet' WHERE id % 5 = {part}) "
                f"TO '{tmp_path}/part{part}.parquet'"
            )
        rows = pq.read_table(tmp_path / "big.parquet")
    program = plan_of(Stack((V("x"), V("LN(x + 11)"), Partition(as_expr("f"), V("x * n"))))).program
    found = {tuple(map(int, Table(rows, SCHEMA).engine.totals(program)))}
    for threads in (1, 2, 4, 16):
        for path in (tmp_path / "big.parquet", tmp_path / "part*.parquet"):
            found.add(tuple(map(int, DuckDBEngine(path, SCHEMA, threads=threads).totals(program))))
    assert len(found) == 1


@pytest.mark.parametrize("kind", ENGINES)
def test_v3_no_row_is_above_its_bound(kind: str, tmp_path: Path) -> None:
    schema = Schema({"x": Real(0, 0.1)})
    plan = compile_query(V("x"), schema, level=False)
    bound = plan.program.blocks[0].bound
    for value in (0.1, math.nextafter(0.1, 1), 0.1 + 2**-20, 1e308):
        assert opened(kind, [{"x": value}], tmp_path, schema).totals(plan.program) == [bound]
    below = int(opened(kind, [{"x": math.nextafter(0.1, 0)}], tmp_path, schema).totals(plan.program)[0])
    assert below <= bound


@pytest.mark.parametrize("kind", ENGINES)
def test_v5_a_huge_value_is_clipped(kind: str, tmp_path: Path) -> None:
    for value in (2.0**63, 1.7976931348623157e308):
        rows = [row(x=value), row(x=1.0)]
        check(opened(kind, rows, tmp_path), V("x * x"), rows)


@pytest.mark.parametrize("bad", ["7x", "", "--", '"a""b"', '"a\n\r\nb"', "1,2", "\x00", "\xff\xfe", "0x10", "Ⅷ"])
def test_v14_a_record_that_does_not_parse_is_one_row_of_missing_values(bad: str, tmp_path: Path) -> None:
    schema = Schema({"a": Real(1, 9), "b": Category("u", "v")})
    plan = compile_query(Stack((V("1"), V("a"), V("a IS NULL"), Partition(as_expr("b"), V("1")))), schema, level=False)
    totals = []
    for cell in ("7", bad):
        path = tmp_path / "rows.csv"
        path.write_bytes(b"a,b\n3,u\n" + cell.encode("latin-1", "replace") + b",v\n5,u\n")
        engine = DuckDBEngine(path, schema)
        assert engine.rows() == 3
        totals.append(engine.totals(plan.program))
    assert totals[0][0] == totals[1][0] == 3
    assert totals[1][2] == 1
    assert totals[1][1] == totals[0][1] - 7 * 2**20
    assert np.abs(totals[0] - totals[1])[3:].sum() <= 1


@pytest.mark.parametrize("text", ["g < 'b'", "g > 'a'", "g BETWEEN 'a' AND 'b'", "LEAST(g, 'a')"])
def test_v27_texts_have_no_order(text: str) -> None:
    with pytest.raises(BadQuery):
        plan_of(V(text))


@pytest.mark.parametrize("kind", ENGINES)
def test_v32_keys_come_from_the_schema(kind: str, tmp_path: Path) -> None:
    with_it = [row(g="a"), row(g="zzz")]
    without = [row(g="a"), row(g=None)]
    query = Partition(as_expr("g"), V("1"))
    for rows in (with_it, without):
        assert list(check(opened(kind, rows, tmp_path), query, rows)) == [1, 0, 0]


@pytest.mark.parametrize("kind", ENGINES)
def test_v35_empty_table_one_row_and_no_row_left(kind: str, tmp_path: Path) -> None:
    for rows in ([], [row()], [row(x=None, g=None, f=None, n=None)]):
        engine = opened(kind, rows, tmp_path)
        assert engine.rows() == len(rows)
        for query in QUERIES.values():
            assert len(check(engine, query, rows)) == plan_of(query).dimension


@pytest.mark.parametrize("kind", ENGINES)
def test_twins_look_alike_and_differ_within_reach(kind: str, tmp_path: Path) -> None:
    strange = [
        row(id=0, x=v, n=v, g=g, f=f) for v, g, f in itertools.product((None, math.inf, 1e308), "a?", (None, True))
    ]
    engines = [opened(kind, [*ROWS[:5], changed], tmp_path) for changed in [row(), *strange[:5]]]
    for query in QUERIES.values():
        plan = plan_of(query)
        totals = [engine.totals(plan.program) for engine in engines]
        for other in totals[1:]:
            assert (other.shape, other.dtype) == (totals[0].shape, totals[0].dtype)
            assert _within(plan, totals[0] - other)


def _within(plan: Plan, difference: Any) -> bool:
    weights = {int(i): weight for weight, places in plan.places.items() for i in places}
    shares = [Fraction(int(d)) / weights[i] for i, d in enumerate(difference)]
    change = plan.reach.under("replace")
    return sum(map(abs, shares)) <= change.l1 and sum(s * s for s in shares) <= change.l2_squared


def test_footer_statistics_that_leave_nan_out_are_not_trusted(tmp_path: Path) -> None:
    rows = [row(x=1.0), row(x=math.nan), row(x=2.0)]
    check(opened("parquet", rows, tmp_path), Stack((V("x"), V("x IS NULL"), V("x <= 100"))), rows)


def test_forked_workers_get_connections_of_their_own(tmp_path: Path) -> None:
    engine = opened("parquet", ROWS, tmp_path)
    program = plan_of(V("x")).program
    expected = int(engine.totals(program)[0])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(int(engine.totals(program)[0])).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert int(os.read(read, 100)) == expected


def test_threads_share_an_engine(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    engine = opened("parquet", ROWS, tmp_path)
    program = plan_of(V("x")).program
    with ThreadPoolExecutor(8) as pool:
        totals: Callable[[int], int] = lambda _: int(engine.totals(program)[0])  # noqa: E731
        assert len(set(pool.map(totals, range(40)))) == 1
