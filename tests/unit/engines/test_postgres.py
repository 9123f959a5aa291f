"""The PostgreSQL engine: addresses, types, roles, snapshots, width, faults; that it is exact is for conformance."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dodona.engines import engine as base
from dodona.engines import postgres as postgres_engine
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import read_columns
from dodona.engines.postgres import PostgresEngine
from dodona.engines.postgres.arithmetic import smallest
from dodona.engines.postgres.source import shown
from dodona.engines.sql import Longest
from dodona.engines.table import Table
from dodona.errors import BadTable, Unsupported
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.program import Program
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Features, Nearest, Outer, Partition, Query, Stack, Value, as_expr
from dodona.query.unit import Unit
from tests.support.postgres import PostgresServer

ROWS = 3_000
SCHEMA = Schema({f"x{i}": Real(-1, 1) for i in range(6)} | {"n": Integer(0, 9), "g": Category("a", "b", "c")})


@pytest.fixture(scope="module")
def columns() -> dict[str, Any]:
    generator = np.random.default_rng(1)
    made: dict[str, Any] = {f"x{i}": generator.normal(0, 1, ROWS) for i in range(6)}
    made["x0"][::7] = np.nan
    return made | {"n": generator.integers(-2, 12, ROWS), "g": np.array(list("abcd"))[generator.integers(0, 4, ROWS)]}


@pytest.fixture(scope="module")
def source(postgres: PostgresServer, columns: dict[str, Any]) -> str:
    with postgres.connect() as db:
        db.execute("DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop")
        kinds = ", ".join(f"x{i} float8" for i in range(6))
        db.execute(f"CREATE TABLE shop.people ({kinds}, n int4, g text) PARTITION BY LIST (g)")
        db.execute("CREATE TABLE shop.some PARTITION OF shop.people FOR VALUES IN ('a', 'b')")
        db.execute("CREATE TABLE shop.others PARTITION OF shop.people DEFAULT")
        with db.cursor().copy("COPY shop.people FROM STDIN") as copy:
            for row in zip(*columns.values(), strict=True):
                copy.write_row([value.item() if isinstance(value, np.generic) else value for value in row])
    return postgres.url() + "#shop.people"


@pytest.fixture(scope="module")
def engine(source: str) -> Iterator[PostgresEngine]:
    opened = PostgresEngine(source, SCHEMA)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def memory(columns: dict[str, Any]) -> MemoryEngine:
    cleaned, rows = read_columns(columns, SCHEMA)
    return MemoryEngine(SCHEMA, cleaned, rows)


def program_of(query: Query, schema: Schema = SCHEMA) -> Program:
    return compile_query(query, schema, level=False).program


def same(engine: PostgresEngine, memory: MemoryEngine, query: Query) -> str:
    program = program_of(query, engine.schema)
    assert list(map(int, engine.totals(program))) == list(map(int, memory.totals(program)))
    return engine.explain(program)


def test_addresses_are_public() -> None:
    full = "postgres://ann:se%40cret@DB.example:5432/base?sslmode=require#shop.people"
    assert shown(full) == "postgresql://db.example/base#shop.people"
    assert shown("postgresql:///base#t") == "postgresql://localhost/base#t"
    assert shown("postgresql://a:1,b:5432/base#t") == "postgresql://a:1,b/base#t"


def test_one_statement_for_a_stack(engine: PostgresEngine, memory: MemoryEngine) -> None:
    text = same(engine, memory, Stack(tuple(Value(Column(f"x{i}")) for i in range(6))))
    assert text.startswith("postgresql: 1 statement(s) in one snapshot")
    assert "OFFSET" not in text  # nothing is read twice, so nothing is fenced


def test_shared_steps_are_computed_once(engine: PostgresEngine, memory: MemoryEngine) -> None:
    text = same(engine, memory, Value(as_expr("EXP(x1 * 600) / 1e290 + EXP(EXP(x2))")))
    assert "OFFSET" in text
    assert len(text) < 200_000


def test_more_sums_than_one_statement_holds(engine: PostgresEngine, memory: MemoryEngine) -> None:
    text = same(engine, memory, Stack(tuple(Value(as_expr(f"x1 > {i / 2000}")) for i in range(2000))))
    assert text.startswith("postgresql: 2 statement(s)")


def test_one_statement_for_each_key(engine: PostgresEngine, memory: MemoryEngine) -> None:
    parts = (Partition(Column("n"), Value(Column("x1"))), Partition(Column("g"), Value(Column("x2"))))
    assert same(engine, memory, Stack((*parts, Value(Column("x3"))))).startswith("postgresql: 3 statement(s)")


def test_wide_integers_where_doubles_would_round(
    engine: PostgresEngine, memory: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "EXACT_DOUBLE", 1)
    same(engine, memory, Stack((Value(Column("x1")), Outer(Features((Column("x1"), Column("n")))))))


@pytest.mark.parametrize("most", [1, 10_000], ids=["streamed", "sql"])
def test_streaming_and_sql_agree(
    most: int, engine: PostgresEngine, memory: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresEngine, "longest", PostgresEngine.longest._replace(products=most))
    monkeypatch.setattr(postgres_engine, "BATCH", 999)
    features = Features(tuple(Column(f"x{i}") for i in range(6)))
    centres = tuple(tuple(0.1 * i * j for j in range(6)) for i in range(7))
    for query in (Outer(features), Nearest(features, centres, Stack((Value(as_expr("1")), features)))):
        assert ("batches" in same(engine, memory, query)) == (most == 1)


@pytest.mark.parametrize("rows", [0, 1, 998, 999, 1000, 1998])
def test_batches_of_every_length(rows: int, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_engine, "BATCH", 999)
    with postgres.connect() as db:
        db.execute(
            f"DROP TABLE IF EXISTS run; CREATE TABLE run AS SELECT i::float8 AS x FROM generate_series(1, {rows}) i"
        )
    schema = Schema({"x": Integer(0, 10_000)})
    engine = PostgresEngine(postgres.url() + "#run", schema)
    engine.longest = Longest(0, 0, 0)
    assert list(engine.totals(program_of(Value(Column("x")), schema))) == [rows * (rows + 1) // 2]
    engine.close()


def test_five_hundred_columns_many_cells_and_many_centres(postgres: PostgresServer) -> None:
    values = np.random.default_rng(5).uniform(-1, 1, (40, 500))
    names = [f"c{i}" for i in range(500)]
    with postgres.connect() as db:
        db.execute(f"DROP TABLE IF EXISTS wide; CREATE TABLE wide ({', '.join(f'{n} float8' for n in names)})")
        with db.cursor().copy("COPY wide FROM STDIN") as copy:
            for row in values.tolist():
                copy.write_row(row)
    schema = Schema({name: Real(-1, 1) for name in names})
    cleaned, rows = read_columns(values, schema)
    engine, memory = PostgresEngine(postgres.url() + "#wide", schema), MemoryEngine(schema, cleaned, rows)
    features = Features(tuple(map(Column, names[:50])))
    centres = tuple(map(tuple, np.random.default_rng(6).uniform(-1, 1, (100, 50)).tolist()))
    assert "batches" in same(engine, memory, Outer(Features(tuple(map(Column, names)))))
    assert "batches" in same(engine, memory, Nearest(features, centres, Stack((Value(as_expr("1")), features))))
    cells = Partition(as_expr("FLOOR(c0 * 160)"), Partition(as_expr("FLOOR(c1 * 160)"), Value(as_expr("1"))))
    program = program_of(cells, schema)
    assert program.blocks[0].cells > 100_000
    assert "GROUP BY" in same(engine, memory, cells)
    engine.close()


def test_every_type_that_can_hold_a_column(postgres: PostgresServer) -> None:
    with postgres.connect() as db:
        db.execute("DROP TABLE IF EXISTS kinds; DROP DOMAIN IF EXISTS share; DROP TYPE IF EXISTS mood")
        db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN share AS numeric(5, 2) CHECK (VALUE < 200)")
        db.execute("DROP COLLATION IF EXISTS loose")
        db.execute("CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        db.execute(
            "CREATE TABLE kinds (s int2, i int4, l int8, r float4, d float8, n numeric, p share, b bool, "
            "m mood, v varchar(9), c char(4), t text COLLATE loose, day date)"
        )
        db.execute(
            "INSERT INTO kinds VALUES "
            "(1, 1, 9223372036854775807, 0.1, 0.1, 0.1, 0.1, true, 'ok', 'ok', 'ok', 'OK', NULL), "
            "(2, -5, -9223372036854775808, 'NaN', 'inf', 'NaN', 99.5, false, 'sad', 'x', 'x', 'ok', 'infinity'), "
            "(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
        )
    numbers = {name: Real(0, 50) for name in "silrdnpb"}
    schema = Schema({**numbers, **{name: Category("sad", "ok") for name in "mvct"}})  # type: ignore[arg-type]
    engine = PostgresEngine(postgres.url() + "#kinds", schema)
    texts = [*numbers, *(f"{name} = 'ok'" for name in "mvct"), *(f"{name} IS NULL" for name in schema)]
    plan = compile_query(Stack(tuple(Value(as_expr(text)) for text in texts)), schema, level=False)
    found = engine.totals(plan.program) * plan.units
    assert found[:12].round(5).tolist() == [3, 1, 50, 0.1, 50.1, 0.1, 50.1, 1, 1, 1, 1, 1]
    assert found[12:].tolist() == [1, 1, 1, 2, 1, 2, 1, 1, 1, 2, 2, 2]
    engine.close()
    for name, column in (("day", Real(0, 1)), ("t", Real(0, 1)), ("d", Category("a")), ("b", Category(1, 2))):
        with pytest.raises(BadTable, match=f"column '{name}'"):
            PostgresEngine(postgres.url() + "#kinds", Schema({name: column}))


def test_whole_labels_of_a_numeric_are_told_apart_beyond_doubles(postgres: PostgresServer) -> None:
    with postgres.connect() as db:
        db.execute("DROP TABLE IF EXISTS whole; CREATE TABLE whole (g numeric(20, 0))")
        db.execute("INSERT INTO whole VALUES (9007199254740992), (9007199254740993), (1), (NULL), ('NaN')")
    schema = Schema({"g": Category(9007199254740992, 1, 300, 10**30)})
    engine = PostgresEngine(postgres.url() + "#whole", schema)
    found = engine.totals(program_of(Partition(Column("g"), Value(as_expr("1"))), schema))
    engine.close()
    assert found.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("count", [2, 40, 3000])
def test_labels_may_hold_anything(count: int, postgres: PostgresServer) -> None:
    odd = ["'); DROP TABLE t; --", '"', "a\x00b", "a", "é", "\ud800", "line\nbreak", "", "\\", "%s", "A"]
    labels = (odd + [f"label {i}" for i in range(count)])[: max(count, len(odd))]
    stored = [label for label in labels if label not in ("\ud800", "a\x00b")]
    with postgres.connect() as db:
        db.execute("DROP TABLE IF EXISTS labels; CREATE TABLE labels (g text)")
        db.cursor().executemany("INSERT INTO labels VALUES (%s)", [(text,) for text in [*stored, "other", None]])
    schema = Schema({"g": Category(*labels)})
    engine = PostgresEngine(postgres.url() + "#labels", schema)
    found = engine.totals(program_of(Partition(Column("g"), Value(as_expr("1"))), schema))
    assert list(found) == [int(label in stored) for label in labels]
    engine.close()


def test_a_role_that_may_only_select_from_a_view(source: str, postgres: PostgresServer, memory: MemoryEngine) -> None:
    with postgres.connect() as db:
        db.execute("CREATE OR REPLACE VIEW shop.sight AS SELECT * FROM shop.people")
        db.execute("DROP OWNED BY reader" if _role(db) else "CREATE ROLE reader LOGIN PASSWORD 'reads'")
        db.execute("GRANT USAGE ON SCHEMA shop TO reader; GRANT SELECT ON shop.sight TO reader")
        db.execute("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC")
    url = postgres.url(user="reader", password="reads")
    engine = PostgresEngine(url + "#shop.sight", SCHEMA)
    same(engine, memory, Value(as_expr("EXP(x1) % 0.3")))
    with engine._snapshot() as session:
        assert session.execute("SHOW transaction_read_only").fetchone() == ("on",)
        assert session.execute("SHOW transaction_isolation").fetchone() == ("repeatable read",)
        assert session.execute("SHOW statement_timeout").fetchone() == ("1h",)
    engine.close()
    with pytest.raises(BadTable) as error:
        PostgresEngine(url + "#shop.people", SCHEMA)
    assert "reads" not in str(error.value).replace("readable", "")


def _role(db: Any) -> bool:
    return bool(db.execute("SELECT count(*) FROM pg_roles WHERE rolname = 'reader'").fetchone()[0])


@pytest.mark.parametrize("fragment", ["", "#none", "#shop.none", "#people"])
def test_what_is_not_there_is_refused(fragment: str, source: str) -> None:
    with pytest.raises(BadTable) as error:
        PostgresEngine(source.partition("#")[0] + fragment, SCHEMA)
    assert error.value.__cause__ is None
    assert "postgres:" not in str(error.value)
    with pytest.raises(BadTable, match="column 'zzz'"):
        PostgresEngine(source, Schema({"zzz": Flag()}))
    with pytest.raises(BadTable, match="reachable"):
        PostgresEngine("postgresql://ann:secret@127.0.0.1:1/none#t", SCHEMA)


def test_functions_of_others_are_not_called(engine: PostgresEngine, memory: MemoryEngine, postgres: Any) -> None:
    with postgres.connect() as db:
        db.execute(
            "CREATE OR REPLACE FUNCTION public.trunc(float8) RETURNS float8 LANGUAGE sql AS 'SELECT 7.0::float8'"
        )
        db.execute("ALTER ROLE postgres SET search_path = public, pg_catalog")
        try:
            fresh = PostgresEngine(postgres.url() + "#shop.people", SCHEMA)
            same(fresh, memory, Value(Column("x1")))
            fresh.close()
        finally:
            db.execute("ALTER ROLE postgres RESET search_path; DROP FUNCTION public.trunc(float8)")


def test_a_fault_says_nothing_and_the_next_call_works(postgres: PostgresServer) -> None:
    schema = Schema({"x": Real(0, 1)})
    program = program_of(Value(Column("x")), schema)
    with postgres.connect() as db:
        db.execute("DROP TABLE IF EXISTS brief; CREATE TABLE brief AS SELECT 1.0::float8 AS x")
        engine = PostgresEngine(postgres.url() + "#brief", schema)
        db.execute("ALTER TABLE brief RENAME TO away")
        with pytest.raises(RuntimeError, match=r"^engine fault$") as error:
            engine.totals(program)
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__
        db.execute("ALTER TABLE away RENAME TO brief")
        assert int(engine.totals(program)[0]) > 0
        db.execute("INSERT INTO brief VALUES (1)")
        with pytest.raises(RuntimeError, match=r"^engine fault$"):
            engine.totals(program)
        for pid in (c.info.backend_pid for kept in engine._idle.values() for c in kept):
            db.execute("SELECT pg_terminate_backend(%s)", (pid,))
        db.execute("DELETE FROM brief WHERE ctid <> (SELECT min(ctid) FROM brief)")
        assert int(engine.totals(program)[0]) > 0
        engine.close()


def test_a_statement_that_takes_too_long_is_a_fault(postgres: PostgresServer) -> None:
    with postgres.connect() as db:
        db.execute("CREATE OR REPLACE VIEW slow AS SELECT 1.0::float8 AS x FROM (SELECT pg_sleep(0.2)) AS s")
    schema = Schema({"x": Real(0, 1)})
    with pytest.raises(BadTable):
        PostgresEngine(postgres.url() + "#slow", schema, timeout=0.05)
    PostgresEngine(postgres.url() + "#slow", schema, timeout=5).close()


def test_parallel_plans_give_the_same_integers(postgres: PostgresServer) -> None:
    with postgres.connect() as db:
        db.execute("DROP TABLE IF EXISTS big; SELECT setseed(0.5)")
        db.execute("CREATE TABLE big AS SELECT random() * 3 - 1 AS x, random() AS y FROM generate_series(1, 60000)")
        db.execute("ANALYZE big")
    schema = Schema({"x": Real(-1, 1), "y": Real(0, 1)})
    program = program_of(Stack((Value(as_expr("x * y")), Value(as_expr("x * x")), Value(as_expr("x > y")))), schema)
    found = set()
    for settings in ("max_parallel_workers_per_gather=0", "parallel_setup_cost=0 -c min_parallel_table_scan_size=0"):
        address = postgres.url() + f"?options=-c%20{settings.replace(' ', '%20').replace('=', '%3D')}#big"
        engine = PostgresEngine(address, schema)
        with engine._snapshot() as session:
            statement = engine.explain(program).partition("\n")[2]
            plan = str(session.execute("EXPLAIN " + statement).fetchall())
        assert ("Gather" in plan) == ("setup_cost" in settings)
        found.add(tuple(map(int, engine.totals(program))))
        engine.close()
    assert len(found) == 1


def test_forks_and_threads_have_connections_of_their_own(engine: PostgresEngine) -> None:
    program = program_of(Value(Column("x1")))
    expected = int(engine.totals(program)[0])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(int(engine.totals(program)[0])).encode())
            engine.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert int(os.read(read, 100)) == expected
    os.close(read)
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(lambda _: int(engine.totals(program)[0]), range(24))) == {expected}


def test_rows_report_for_themselves_in_order(engine: PostgresEngine, source: str, postgres: PostgresServer) -> None:
    with postgres.connect() as db:
        db.execute("DROP TABLE IF EXISTS shop.whole; CREATE TABLE shop.whole AS SELECT * FROM shop.people")
    stored = PostgresEngine(source.replace("people", "whole"), SCHEMA)
    program = program_of(Stack((Value(Column("x1")), Value(as_expr("g = 'a'")))))
    roots = program.roots()

    def seen() -> list[tuple[float, ...]]:
        def respond(values: Any, length: int) -> list[tuple[float, ...]]:
            vectors = [np.broadcast_to(values[root][0], (length,)) for root in roots]
            return list(zip(*(vector.tolist() for vector in vectors), strict=True))

        chunks = stored.reports(program, lambda a, b: np.arange(0, b - a, 2), respond)
        return [row for chunk in chunks for row in chunk]

    first = seen()
    assert len(first) == (ROWS + 1) // 2
    assert seen() == first
    stored.close()
    with pytest.raises(Unsupported, match="lasting order"):  # of partitions, or of a view, nothing promises one
        next(engine.reports(program, lambda a, b: np.arange(b - a), lambda *_: None))


def test_people_are_bounded_inside(postgres: PostgresServer) -> None:
    with postgres.connect() as db:
        db.execute("DROP TABLE IF EXISTS visits")
        db.execute("CREATE TABLE visits AS SELECT i % 10 AS who, (i % 7)::float8 AS x FROM generate_series(1, 200) i")
    schema, unit = Schema({"x": Integer(0, 9)}), Unit("who", max_rows=3)
    rows = {"who": np.arange(1, 201) % 10, "x": (np.arange(1, 201) % 7).astype(float)}
    program = program_of(Stack((Value(as_expr("1")), Value(Column("x")))), schema)
    there = Table(postgres.url() + "#visits", schema, neighbours="add-remove", unit=unit)
    here = Table(rows, schema, neighbours="add-remove", unit=unit)
    assert list(there.engine.totals(program)) == list(here.engine.totals(program))
    assert there.engine.totals(program)[0] == 30
    assert "postgres:" not in there.population
    there.engine.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("constant", [3e-308, 1e200, 0.3, 2.0**-600, 5e-324])
def test_thresholds_are_the_first_double(constant: float) -> None:
    kept = smallest(lambda t: t * constant > 0.0)
    assert kept * constant > 0.0
    assert np.nextafter(kept, 0.0) * constant == 0.0
