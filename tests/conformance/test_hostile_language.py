"""HOSTILE V13-V27, V29, V30: what an asker may write. Refused before any charge and any row, or total everywhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.errors import BadQuery, BadSchema, Refused
from dodona.query.compiler import RULES
from dodona.query.plan import compile_query
from dodona.query.statistic import Partition, Stack, Value, as_expr, query_from_json
from dodona.query.text import parse
from dodona.testing.oracles import seeded_curator
from tests.support.places import MIXED
from tests.support.twins import Twins

Make = Callable[..., dd.Table]
BUDGET = dd.Budget(epsilon=100)
SCHEMA = MIXED


def V(text: str) -> Value:  # noqa: N802
    return Value(as_expr(text))


class Untouchable:
    """An engine that must not be reached."""

    schema = SCHEMA

    def rows(self) -> int:
        return 10

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a refused question reached the engine ({name})")


@pytest.fixture
def refuses() -> Callable[[str], None]:
    """Checks that a text is refused by every door, with nothing charged and nothing read."""
    rows = dd.Table({"id": np.arange(10.0), "x": np.ones(10), "name": ["anna"] * 10, "flag": [True] * 10}, SCHEMA)
    rows.engine = Untouchable()  # type: ignore[assignment]
    curator = seeded_curator(rows, BUDGET, 0)

    def check(text: str) -> None:
        select = f"SELECT SUM({text}) FROM data"
        where = f"SELECT COUNT(*) FROM data WHERE ({text}) > 0"
        doors: list[Callable[[], Any]] = [
            lambda: curator.ask(text, epsilon=1),
            lambda: curator.price(text, epsilon=1),
            lambda: curator.select([text, "flag"], epsilon=1),
            lambda: curator.sql(select, epsilon=1),
            lambda: curator.sql(where, epsilon=1),
        ]
        for door in doors:
            with pytest.raises(BadQuery):
                door()
        assert curator.ledger.entries() == []

    return check


def test_v13_an_error_on_one_row_is_refused(refuses: Callable[[str], None]) -> None:
    refuses("CASE WHEN id=7 THEN error('x') ELSE 0 END")
    refuses("CASE WHEN id=7 THEN CAST('x' AS INT) ELSE 0 END")


@pytest.mark.parametrize("bad", ["7x", "", "--", "1,2", "\x00", "0x10", "Ⅷ", "NaN", "٣"])
def test_v14_a_cell_that_is_no_number_is_missing(bad: str, tmp_path: Path) -> None:
    schema = dd.Schema({"a": dd.Real(1, 9), "b": dd.Category("u", "v")})
    query = Stack((V("1"), V("a"), V("a IS NULL"), Partition(as_expr("b"), V("1"))))
    program = compile_query(query, schema, level=False).program
    places = []
    for cell in ("7", bad):
        path = tmp_path / f"rows{len(places)}.csv"
        path.write_bytes(b"a,b\n3,u\n" + cell.encode("utf-8") + b",v\n5,u\n")
        places.append(dd.Table(path, schema, name="t", population="t"))
        found = places[-1].engine.totals(program)
    assert int(found[0]) == 3
    assert int(found[2]) == 1
    Twins(*places, BUDGET).ask(query, epsilon=1)


def test_v14_a_text_column_declared_as_a_number_is_refused_for_its_type(make: Make) -> None:
    texts = dd.Schema({"a": dd.Category("1", "2")})
    stored = make([{"a": "7x"}, {"a": "1"}], texts)
    assert stored.public_rows == 2
    for casts in ("CAST(a AS INT)", "a::int", "TRY_CAST(a AS INT)"):
        with pytest.raises(BadQuery):
            seeded_curator(stored, BUDGET, 0).ask(casts, epsilon=1)


@pytest.mark.parametrize("text", ["1 / (id - 7)", "EXP(x * 1000)", "1 / x", "POWER(x, id)"])
def test_v15_without_a_finite_range_they_are_refused(text: str, refuses: Callable[[str], None]) -> None:
    with pytest.raises(BadQuery):
        compile_query(V(text), SCHEMA, level=False)


@pytest.mark.parametrize(
    "text", ["(SELECT count(*) FROM t)", "x IN (SELECT y FROM u)", "EXISTS(SELECT 1)", "x = ANY(SELECT 1)"]
)
def test_v16_subqueries_are_refused(text: str, refuses: Callable[[str], None]) -> None:
    refuses(text)


@pytest.mark.parametrize("text", ["row_number() OVER ()", "lag(x) OVER (ORDER BY id)", "sum(x) OVER ()", "ntile(2)"])
def test_v17_windows_are_refused(text: str, refuses: Callable[[str], None]) -> None:
    refuses(text)


@pytest.mark.parametrize("text", ["x - avg(x)", "max(x)", "count(*)", "sum(x) / 2", "median(x)", "array_agg(x)"])
def test_v18_aggregates_inside_a_row_are_refused(text: str, refuses: Callable[[str], None]) -> None:
    refuses(text)


@pytest.mark.parametrize(
    "text",
    ["random()", "now()", "current_user", "nextval('s')", "getvariable('a')", "current_timestamp", "uuid()"],
)
def test_v19_clocks_state_and_chance_are_refused(text: str, refuses: Callable[[str], None]) -> None:
    refuses(text)


@pytest.mark.parametrize(
    "text",
    ["read_text('secret.txt')", "pg_read_file('secret.txt')", "query_to_xml('x', true, true, '')", "getenv('A')"],
)
def test_v20_files_and_environment_are_refused(text: str, refuses: Callable[[str], None]) -> None:
    refuses(text)


def test_v21_nothing_grows_with_a_value(refuses: Callable[[str], None]) -> None:
    for text in (
        "length(repeat('a', CASE WHEN id=777 THEN 50000000 ELSE 1 END))",
        "length(lpad('a', id))",
        "name || name",
        "range(id)",
        "generate_series(1, id)",
        "factorial(id)",
    ):
        refuses(text)


@pytest.mark.parametrize(
    "text",
    [
        "x; DROP TABLE t",
        "x -- c",
        "x) FROM t --",
        "x # c",
        "x /* c",
        "x /* a /* b */ */",
        "x') --",
        "1; ATTACH 'a' AS b",
        "x\x00",
    ],
)
def test_v22_statements_and_comments_are_refused(text: str, refuses: Callable[[str], None]) -> None:
    refuses(text)


def test_v22_comments_and_a_last_semicolon_are_blanks(refuses: Callable[[str], None]) -> None:
    """Of a statement alone, and only where all databases read them alike; a text in quotes keeps its signs."""
    from dodona.query.select import parse_select
    from dodona.query.text import uncommented

    with pytest.raises(BadQuery):
        dd.parse("x /* c */")
    text = "SELECT COUNT(*) -- all; of 'them\n FROM t WHERE name = '--; /*' /* x; */ ; "
    clean = uncommented(text)
    assert len(clean) == len(text)
    assert " ".join(clean.split()) == "SELECT COUNT(*) FROM t WHERE name = '--; /*'"
    for odd in ("SELECT 1; SELECT 2", "SELECT 1;;", "SELECT 1 -- a\r\n; DROP", "SELECT 1 /* open", "SELECT 1 */"):
        with pytest.raises(BadQuery):
            parse_select(odd, SCHEMA, "data")


def test_v22_no_text_of_the_asker_reaches_an_engine(tmp_path: Path) -> None:
    """A column, a label and a table named like an attack stay names: statements are compiled from our own tree."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    evil = 'x"); DROP TABLE t; --'
    schema = dd.Schema({evil: dd.Real(0, 9), "g": dd.Category("'; DELETE FROM t; --", "b")})
    pq.write_table(pa.table({evil: [1.0, 2.0], "g": ["'; DELETE FROM t; --", "b"]}), tmp_path / "t.parquet")
    place = dd.Table(tmp_path / "t.parquet", schema)
    asked = '"' + evil.replace('"', '""') + "\" > 0 AND g = '''; DELETE FROM t; --'"
    program = compile_query(V(asked), schema, level=False).program
    assert int(place.engine.totals(program)[0]) == 1
    sentinel = "LEAST(x_sentinel_not_a_column, 1)"
    with pytest.raises(BadQuery):
        seeded_curator(place, BUDGET, 0).ask(sentinel, epsilon=1)
    assert "sentinel" not in place.engine.explain(program)


def test_v23_bombs_are_refused_within_fifty_milliseconds_on_a_small_stack() -> None:
    bombs = [
        make(n)
        for n in (100, 1000, 100_000)
        for make in (
            lambda n: "(" * n + "x" + ")" * n,
            lambda n: "NOT " * n + "flag",
            lambda n: "CASE WHEN flag THEN " * n + "1" + " ELSE 0 END" * n,
            lambda n: "x" + " + x" * (n if n > 1000 else 10 * n),
            lambda n: "- " * n + "x",
            lambda n: "ABS(" * n,
        )
    ]
    parse("x + 1")  # the parser is loaded
    slow: list[str] = []

    def run() -> None:
        for bomb in bombs:
            start = time.thread_time()
            try:
                parse(bomb)
                slow.append("accepted " + bomb[:20])
            except BadQuery:
                if time.thread_time() - start > 0.05:
                    slow.append(bomb[:20])

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert slow == []


def test_v23_deep_json_and_deep_trees_are_refused() -> None:
    deep: Any = {"col": "x"}
    for _ in range(5000):
        deep = {"op": "neg", "args": [deep]}
    with pytest.raises(BadQuery):
        query_from_json({"value": deep})
    nested: Any = {"value": {"col": "x"}}
    for _ in range(5000):
        nested = {"stack": [nested]}
    with pytest.raises(BadQuery):
        query_from_json(nested)
    assert sys.getrecursionlimit() <= 10_000


@pytest.mark.parametrize("text", ["other.x", "rowid", "*", "hidden", "person", "t.x", "x.y.z", "COLUMNS(*)"])
def test_v24_only_columns_of_the_schema_exist(text: str, refuses: Callable[[str], None]) -> None:
    refuses(text)


def test_v24_a_stored_column_outside_the_schema_cannot_be_asked_about(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1.0], "hidden": [5.0], "person": ["p"]}), tmp_path / "t.parquet")
    curator = seeded_curator(dd.Table(tmp_path / "t.parquet", dd.Schema({"x": dd.Real(0, 9)})), BUDGET, 0)
    for text in ("hidden", "x + hidden", "person = 'p'"):
        with pytest.raises(BadQuery, match="not a column"):
            curator.ask(text, epsilon=1)


@pytest.mark.parametrize(
    "text",
    ["frobnicate(x)", '"abs"(x)', "pg_catalog.abs(x)", "main.abs(x)", "abs (x, 1)", "x.abs()", "ABS(DISTINCT x)"],
)
def test_v25_functions_must_be_exactly_on_the_list(text: str, refuses: Callable[[str], None]) -> None:
    refuses(text)


def test_v25_case_of_a_listed_function_does_not_matter_and_every_node_is_ours() -> None:
    assert parse("aBs(x)") == parse("ABS(x)")
    for op in ("drop", "error", "random", "sum", "__import__", "const", "column", "grid"):
        with pytest.raises(BadQuery):
            compile_query(query_from_json({"value": {"op": op, "args": [{"col": "x"}]}}), SCHEMA, level=False)
    assert not set(RULES) & {"column", "const", "grid", "nearest"}, "core steps are not the asker's to name"


@pytest.mark.parametrize(
    "text",
    [
        "regexp_matches(name, '(a+)+$')",
        "name ~ '(a+)+$'",
        "name SIMILAR TO '(a+)+$'",
        "name GLOB '*'",
    ],
)
def test_v26_regular_expressions_are_refused(text: str, refuses: Callable[[str], None]) -> None:
    refuses(text)


@pytest.mark.parametrize("text", ["name < 'm'", "name >= 'a'", "name BETWEEN 'a' AND 'b'", "LEAST(name, 'a')"])
def test_v27_texts_have_no_order(text: str) -> None:
    with pytest.raises(BadQuery):
        compile_query(V(text), SCHEMA, level=False)


def test_v27_equality_of_texts_is_binary(make: Make) -> None:
    cells = ["anna", "Anna", "anna ", "zoe\u0308", "zoë", "", None]
    rows = [{"id": 1.0, "x": 1.0, "name": cell, "flag": True} for cell in cells]
    query = Stack((V("name = 'anna'"), V("name = 'zoë'"), V("name <> 'anna'"), V("name IS NULL")))
    program = compile_query(query, SCHEMA, level=False).program
    assert [int(t) for t in make(rows).engine.totals(program)] == [1, 1, 1, 5]


def test_v29_the_bound_is_of_the_final_value(make: Make) -> None:
    schema = dd.Schema({"x": dd.Real(0, 100)})
    plan = compile_query(V("(x - 1000000) * 1000000"), schema, level=False)
    (weight,) = plan.places
    lowest, highest = -1e6 * 1e6, (100 - 1e6) * 1e6
    for x in (0.0, 100.0, 1e9, -1e9, None):
        (found,) = make([{"x": x}], schema).engine.totals(plan.program).tolist()
        assert (lowest <= found * plan.units[0] <= highest + plan.units[0]) if x is not None else found == 0
    assert float(plan.reach.size.linf * weight) * plan.units[0] == pytest.approx(1e12, rel=1e-6)
    pair = [make([{"x": x}], schema) for x in (0.0, None)]
    Twins(*pair, BUDGET).ask("(x - 1000000) * 1000000", epsilon=1)


@pytest.mark.parametrize(
    "described", [{"x": {"type": "real"}}, {"x": {"type": "integer", "low": 0}}, {"x": {}}, {"x": {"type": "text"}}]
)
def test_v30_a_column_without_bounds_is_refused(described: Any) -> None:
    with pytest.raises(BadSchema):
        dd.Schema.read(described)


def test_v30_an_unbounded_expression_has_no_sum() -> None:
    for text in ("1 / x", "EXP(EXP(x))", "LN(x) / x"):
        with pytest.raises(Refused):
            compile_query(V(text), SCHEMA, level=False)
