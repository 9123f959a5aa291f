"""PostgreSQL gives the reference's integers on generated queries, hostile tables and edge values (HOSTILE V28)."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from dodona.engines.engine import Engine
from dodona.engines.postgres import PostgresEngine
from dodona.engines.sql import Longest
from dodona.errors import BadTable
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema, Text
from dodona.query.statistic import Features as Vector
from dodona.query.statistic import Gate, Outer, Partition, Query, Stack, Value, as_expr
from dodona.query.unit import Unit
from dodona.testing.engines import MakeEngine, check_engine
from dodona.testing.reference import reference_totals
from dodona.testing.strategies import HOSTILE_NUMBERS, RawColumn
from tests.support.postgres import PostgresServer

TYPES = {
    "float64": "float8",
    "float32": "float4",
    "int8": "int2",
    "int32": "int4",
    "int64": "int8",
    "uint64": "numeric(20,0)",
    "bool": "bool",
    "text": "text",
}


@pytest.fixture
def admin(postgres: PostgresServer) -> Iterator[Any]:
    with postgres.connect() as connection:
        connection.execute("SET synchronous_commit = off")  # of the tables under test, not of a ledger
        yield connection


def stored(admin: Any, columns: Mapping[str, RawColumn], table: str = 'pe"ople') -> str:
    """Puts raw columns into a table; its quoted name."""
    quoted = '"' + table.replace('"', '""') + '"'
    names = ['"' + name.replace('"', '""') + '"' for name in columns]
    kinds = [TYPES.get(column.physical, column.physical) for column in columns.values()]
    made = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    admin.execute(f"DROP TABLE IF EXISTS {quoted}; CREATE TABLE {quoted} ({made})")
    rows = list(zip(*(column.values for column in columns.values()), strict=True))
    if rows:
        with admin.cursor().copy(f"COPY {quoted} FROM STDIN") as copy:
            for row in rows:
                copy.write_row([repr(v) if isinstance(v, float) else v for v in row])
    return quoted


def maker(admin: Any, url: str, kind: str) -> MakeEngine:
    """Engines over a table, or over a view of a partitioned one, by SQL or by streaming."""
    opened: list[PostgresEngine] = []

    def make(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> Engine:
        for engine in opened:
            engine.close()
        opened.clear()
        stored(admin, columns)
        engine = PostgresEngine(f'{url}#public.pe"ople', schema, unit=unit)
        if kind == "streamed":
            engine.longest = Longest(0, 0, 0)
        opened.append(engine)
        return engine

    return make


@pytest.mark.parametrize("kind", ["sql", "streamed"])
def test_engine_gives_the_reference_totals(kind: str, postgres: PostgresServer, admin: Any) -> None:
    check_engine(maker(admin, postgres.url(), kind), examples=40 if kind == "sql" else 15)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sql", "streamed"])
def test_engine_gives_the_reference_totals_at_length(kind: str, postgres: PostgresServer, admin: Any) -> None:
    check_engine(maker(admin, postgres.url(), kind), examples=1000 if kind == "sql" else 200)


# -- V28: operators x edge values -------------------------------------------------------------------------------------

EDGES = sorted(
    {
        *(abs(x) for x in HOSTILE_NUMBERS if math.isfinite(x) and abs(x) <= 1e150),
        *(2.0**k for k in (-1074, -1060, -1022, -600, -538, -537, -500, -75, -1, 1, 52, 62, 100, 490)),
        *(math.nextafter(2.0**k, d) for k in (-537, -500, 0, 52) for d in (0.0, math.inf)),
        *(1.0 / 3.0, 1e-200, 3e-162, 2.5e-162, 1e-162, 1e150, 7e149, 1.5, 6.7, 0.7),
    }
)
PAIRS = [(s * a, t * b) for a, b in itertools.product(EDGES, EDGES) for s, t in ((1, 1), (-1, 1))]
# Products that round to 2^-1075 and lie at it, just above it (so that IEEE gives 5e-324) and just below it.
NARROW = [
    (2.0**-500, 2.0**-575),
    ((1 + 2.0**-52) * 2.0**-500, (1 - 2.0**-53) * 2.0**-575),
    ((1 - 2.0**-53) * 2.0**-510, (1 + 2.0**-52) * 2.0**-565),
    ((1 - 2.0**-53) * 2.0**-500, 2.0**-575),
    ((1 + 2.0**-27) * 2.0**-500, (1 - 2.0**-27) * 2.0**-575),
    (1.5 * 2.0**-500, 4 / 3 * 2.0**-576),
    (1e-320, 2.0**-12),
    (5e-324, 0.5),
    (5e-324, 0.5 + 2.0**-53),
    (None, 0.0),
    (0.0, None),
    (None, 1e-300),
]
OPERATORS = {
    "sum": "x + y",
    "difference": "x - y",
    "product": "x * y",
    "quotient": "x / y",
    "remainder": "x % y",
    "square": "x * x",
    "cube of a product": "(x * y) * (x * y) * (x * y)",
    "quotient of quotients": "(x / y) / (y / x)",
    "product with a constant": "x * 3e-308",
    "product with a large constant": "x * 1e200",
    "quotient by a constant": "x / 1e-200",
    "quotient of a constant": "3e-10 / x",
    "remainder by a constant": "x % 0.1",
    "root": "SQRT(x)",
    "floor": "FLOOR(x / 3)",
    "ceiling": "CEIL(x / 3)",
    "least": "LEAST(x, y)",
    "logarithm": "LN(x)",
    "exponential": "EXP(x)",
    "power": "POWER(x, y)",
    "whole power": "POWER(x, 13)",
}


def seen(text: str) -> Query:
    """The value itself and, magnified, what is left of it near 0: a bit lost there is seen."""
    clipped = [f"LEAST(GREATEST(({text}) * {scale}, -1e6), 1e6)" for scale in ("1", "1e100 * 1e200", "1e-200")]
    wholes = [f"({text}) IS NULL", f"({text}) = 0", f"({text}) > 0"]
    return Stack(tuple(Value(as_expr(part)) for part in (*clipped, *wholes)))


def wrong_operators(url: str, admin: Any, pairs: Sequence[tuple[float | None, float | None]]) -> list[str]:
    schema = Schema({"x": Real(-1e150, 1e150), "y": Real(-1e150, 1e150)})
    columns = {"x": RawColumn("float64", [x for x, _ in pairs]), "y": RawColumn("float64", [y for _, y in pairs])}
    stored(admin, columns, "pairs")
    engine = PostgresEngine(url + "#pairs", schema)
    rows = [{"x": x, "y": y} for x, y in pairs]
    wrong = []
    for name, text in OPERATORS.items():
        program = compile_query(seen(text), schema, level=False).program
        if [int(t) for t in engine.totals(program)] != reference_totals(program, rows):
            wrong.append(name)
    engine.close()
    return wrong


def test_v28_operators_on_edge_values(postgres: PostgresServer, admin: Any) -> None:
    pairs = [*random.Random(28).sample(PAIRS, 600), *NARROW, *((y, x) for x, y in NARROW)]
    assert wrong_operators(postgres.url(), admin, pairs) == []


@pytest.mark.slow
def test_v28_operators_on_all_pairs_of_edge_values(postgres: PostgresServer, admin: Any) -> None:
    assert wrong_operators(postgres.url(), admin, PAIRS) == []


NUMERICS = ["0", "1e400", "-1e400", "1e-400", "-1e-400", "NaN", "Infinity", "-Infinity", "0.1", "2.5", "7", None]
NUMERICS += ["179769313486231580793728971405303415079934132710037826936173778980444968292764750946649017977587207096330"
             "286416692887910946555547851940402630657488671505820681908902000708383676273854845817711531764475730270069"
             "855571366959622842914819860834936475292719074168444365510704342711559699508093042880"]  # fmt: skip


def test_numerics_of_any_size_are_clipped_or_missing(postgres: PostgresServer, admin: Any) -> None:
    admin.execute("DROP TABLE IF EXISTS sizes; CREATE TABLE sizes (x numeric)")
    admin.cursor().executemany("INSERT INTO sizes VALUES (%s)", [(text,) for text in NUMERICS])
    for column in (Real(-5, 5), Integer(0, 9), Flag(), Category(0, 7, 3)):
        read = Decimal if isinstance(column, Category) else float  # labels are compared digit by digit
        rows: list[dict[str, Any]] = [{"x": None if text is None else read(text)} for text in NUMERICS]
        schema = Schema({"x": column})
        engine = PostgresEngine(postgres.url() + "#sizes", schema)
        texts = ["x IS NULL"] + (["x"] if isinstance(column, Real | Integer | Flag) else ["x = 7"])
        query = Stack(tuple(Value(as_expr(text)) for text in texts))
        program = compile_query(query, schema, level=False).program
        for longest in (engine.longest, Longest(0, 0, 0)):  # as SQL, and streamed
            engine.longest = longest
            assert [int(t) for t in engine.totals(program)] == reference_totals(program, rows), column
        engine.close()


# -- hostile rows, as on every other engine --------------------------------------------------------------------------

SCHEMA = Schema(
    {"id": Integer(0, 20), "x": Real(-10, 100), "n": Integer(0, 255), "g": Category("a", "b'", "é"), "f": Flag()}
)
ODD = (None, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0.1, 99.99999999999999, 100.0, -10.0, 2.0**63)
ROWS: list[dict[str, Any]] = [
    *({"id": i, "x": v, "n": v, "g": "a", "f": True} for i, v in enumerate(ODD)),
    *({"id": 7, "x": 1.5, "n": 3.0, "g": g, "f": None} for g in (None, "b'", "é", "A", "", "'); DROP--", "a ")),
]
QUERIES: dict[str, Query] = {
    text: Value(as_expr(text))
    for text in (
        "LEAST(GREATEST(1 / (id - 7), -5), 5)",
        "LEAST(GREATEST(x % (id - 7), -5), 5)",
        "SQRT(x - 5)",
        "LN(x - 5)",
        "LEAST(EXP(x * 1000), 7)",
        "LEAST(POWER(x, n), 1000)",
        "LEAST(GREATEST(x * 1e300 * 1e300, -3), 3)",
        "x > 1 OR f",
        "NOT (g = 'a' AND f)",
        "n & 12",
        "COALESCE(x, n, -1)",
        "CASE WHEN f THEN x WHEN g IN ('a', 'é') THEN 1 ELSE NULL END",
    )
} | {
    "gate": Gate(as_expr("x > 0"), Value(as_expr("n"))),
    "groups": Partition(as_expr("g"), Stack((Value(as_expr("1")), Value(as_expr("x"))))),
    "moments": Outer(Vector((as_expr("x"), as_expr("n")), 50.0)),
}


@pytest.mark.parametrize("rows", [ROWS, [], ROWS[:1]], ids=["hostile", "empty", "one"])
def test_v4_v15_v35_every_query_is_total_and_exact(rows: list[Any], postgres: PostgresServer, admin: Any) -> None:
    kinds = {"id": "int64", "x": "float64", "n": "float64", "g": "text", "f": "bool"}
    stored(admin, {name: RawColumn(kinds[name], [row[name] for row in rows]) for name in SCHEMA}, "hostile")
    engine = PostgresEngine(postgres.url() + "#hostile", SCHEMA)
    for query in QUERIES.values():
        program = compile_query(query, SCHEMA, level=False).program
        assert [int(t) for t in engine.totals(program)] == reference_totals(program, rows), query
    engine.close()


def test_a_database_that_may_hold_what_is_no_text_is_refused(postgres: PostgresServer) -> None:
    """In SQL_ASCII texts are any bytes: one row could end each question that brings a text out, such as its keys."""
    with postgres.connect() as db:
        db.execute("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        with postgres.connect("bytes") as db:
            db.execute("CREATE TABLE words (word text)")
        for settings in ("", "?client_encoding=UTF8"):
            with pytest.raises(BadTable, match=r"UTF8\. Got SQL_ASCII"):
                PostgresEngine(f"{postgres.url('bytes')}{settings}#words", Schema({"word": Text(4)}))
    finally:
        with postgres.connect() as db:
            db.execute("DROP DATABASE bytes WITH (FORCE)")
