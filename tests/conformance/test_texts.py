"""Texts give the reference's integers wherever rows live: blanks, combining marks, four-byte characters, signs of LIKE.

The reference is ``query/terms.py`` on Python's own texts. What a place cannot hold (a NUL in PostgreSQL, the empty text
in CSV) is what it holds instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona as dd
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import compile_query
from dodona.query.program import Program
from dodona.query.statistic import Losses, Partition, Query, Stack, Value
from dodona.testing.reference import reference_totals
from tests.support.places import PLACES, table

SCHEMA = dd.Schema(
    {
        "city": dd.Category(
            "Oslo", "Bergen", "Ås", fold="case", trim=True, aliases={"Oslo": ["Kristiania ", "x"]}, other=True
        ),
        "plain": dd.Category("a", "A ", "é", "e\u0301", aliases={"a": ["", "%"]}),
        "t": dd.Text(8),
        "u": dd.Text(5, required=True, trim=True, fold="case"),
        "v": dd.Text(3, missing="?", public=True),
    }
)
TEXTS = (
    *("Ab", "a%b", "é", "e\u0301x", "", None, "\x00a\x00", "  pad ", "🜁🜁", "a\nb", "a\r\nb", "a_b", "a\\b", "Å", "å"),
    *(
        "longer than eight",
        "aaaaaaab",
        "KELVIN",
        "\u212a\u0130ß",
        "x\u00a0",
        "\u2003y",
        "'",
        '"',
        "🜁" * 9,
        "\t\v\f x",
        "Z z",
    ),
)
CITIES = ("OSLO ", "kristiania", "\tBERGEN", "ås", "ÅS", "Ås", "oslo\u00a0", "other", None, "", "x")


def call(op: str, *args: Any) -> Expr:
    return Call(op, tuple(arg if isinstance(arg, Call | Column | Literal) else Literal(arg) for arg in args))


T, U, V, CITY, PLAIN = map(Column, ("t", "u", "v", "city", "plain"))
THIRDS = call("sub", call("mul", call("length", T), 1.25), 4)  # halves and quarters on both sides of 0
EXPRESSIONS = [
    *(call("length", x) for x in (T, U, V, CITY, PLAIN, call("upper", T), call("substr", T, 3), call("right", T, 3))),
    *(call("length", call(op, x)) for op in ("trim", "ltrim", "rtrim") for x in (T, V)),
    *(call("length", call(op, T, signs)) for op in ("trim", "ltrim", "rtrim") for signs in (" a", "b \x0b", "", "é🜁")),
    *(
        call("eq", T, text)
        for text in ("Ab", "", "é", "e\u0301x", "🜁🜁", "a\nb", "longer than", "longer t", "'", "a\\b")
    ),
    *(call("in", x, "Ab", "", "kelvi", "?", "a%b", "🜁🜁🜁", '"') for x in (T, U, V)),
    *(call(op, T, U) for op in ("eq", "ne")),
    *(call("eq", call("upper", T), call("upper", x)) for x in (U, V, call("left", T, 2), call("concat", U, ""))),
    *(
        call("like", T, pattern)
        for pattern in ("a%", "%a_b%", "_\n_", "%", "__", "%🜁_", "_", "", "%%b", "a%%%b", "%é%")
    ),
    *(
        call("like", T, pattern)
        for pattern in ("a\\b", "%\\%", "longer t", "%longer than", "_%_", "%a%b%", "Z_z", "%\u212a%")
    ),
    *(call("like", T, pattern, "!") for pattern in ("a!%b", "a!_b", "%!%%", "!!", "%!!")),
    *(call("like", x, "%a%a%a%b") for x in (T, call("lower", T), call("concat", T, V, U))),
    *(call("like", x, "%s%") for x in (CITY, U, call("lower", CITY))),
    *(
        call(op, x, sign)
        for op in ("starts_with", "ends_with", "contains")
        for x in (T, U, PLAIN)
        for sign in ("a", "", "%")
    ),
    *(
        call("length", call("concat", *parts))
        for parts in ((T, "-", U), (CITY, T), (V, V, V), (PLAIN, CITY), ("x", "y"))
    ),
    call("eq", call("concat", T, "-", U), "Ab-ab"),
    call("eq", call("substr", T, 2, 2), "%b"),
    call("eq", call("concat", call("right", T, 2), call("trim", U), call("right", T, 0)), "abab"),
    *(call("is_null", x) for x in (T, U, V, CITY, call("upper", T), call("concat", T, CITY))),
    call("length", call("coalesce", T, U)),
    call("eq", call("coalesce", T, None, "none"), "none"),
    call("length", call("if", call("eq", CITY, "Oslo"), T, "zz")),
    call("like", call("if", call("like", T, "a%"), U, call("if", call("eq", V, "?"), T, None)), "%b%"),
    call("eq", call("upper", CITY), "OSLO"),
    call("eq", CITY, "other"),
    call("and", call("like", T, "%a%"), call("not", call("like", U, "%b%"))),
    *(call(op, THIRDS, *digits) for op in ("round", "trunc") for digits in ((), (1,), (2,), (-1,))),
    call("sign", THIRDS),
    *(call("like", call("replace", x, "s", new), "O_lo") for x in (CITY, PLAIN) for new in ("*", "")),
    *(call("length", call("replace", PLAIN, old, "xyz")) for old in ("", "a", "Plain")),
    *(call("length", call("as_text", call(op, THIRDS))) for op in ("floor", "ceil")),
    *(call("as_real", call("eq", V, "?")), call("as_flag", THIRDS), call("as_text", CITY)),
]
EXPRESSIONS[-1] = call("eq", EXPRESSIONS[-1], "Ås")
HALVES = [0.5, 1.5, 2.5, -0.5, -2.5, 0.49999999999999994, 1.005, 2.675, 1e16, 5e-324, -1.25, None, 3.0, -3.0]
DIGITS: dict[str, list[tuple[int, ...]]] = {"round": [(), (2,), (-1,), (15,)], "trunc": [(), (2,), (-3,)], "sign": [()]}
QUERIES: list[Query] = [
    Stack(tuple(map(Value, EXPRESSIONS))),
    Partition(call("like", T, "a%"), Value(call("length", U)), other=True),
    Partition(CITY, Value(Literal(1.0)), other=True),
    Partition(call("concat", call("substr", CITY, 1, 1), "/", PLAIN), Value(call("length", T)), other=True),
    Losses(tuple(SCHEMA)),
]


def cells() -> list[dict[str, Any]]:
    rows = []
    for i, t in enumerate(TEXTS):
        for j in (0, 3, 7):
            u, v = TEXTS[(i + j) % len(TEXTS)], TEXTS[(3 * i + j) % len(TEXTS)]
            rows.append(
                {
                    "city": CITIES[(i + j) % len(CITIES)],
                    "plain": TEXTS[(5 * i + j) % len(TEXTS)],
                    "t": t,
                    "u": u,
                    "v": v,
                }
            )
    return rows


def programs() -> Iterator[tuple[Query, Program]]:
    for query in QUERIES:
        yield query, compile_query(query, SCHEMA, level=False).program


def held(place: str, text: Any) -> Any:
    """What a place holds of a text."""
    if text is None or (place == "csv" and not text):
        return None
    return text.replace("\x00", "") if place == "postgres" else text


@pytest.mark.parametrize("place", [pytest.param(p, marks=pytest.mark.slow) if p == "spark" else p for p in PLACES])
def test_every_place_reads_texts_alike(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(place) if place in ("postgres", "spark") else None
    rows = [{name: held(place, text) for name, text in row.items()} for row in cells()]
    engine = table(place, rows, SCHEMA, tmp_path, server, name="t", population="t").engine
    for query, program in programs():
        found, expected = [int(x) for x in engine.totals(program)], reference_totals(program, rows)
        wrong = [str(e) for e, a, b in zip(EXPRESSIONS, found, expected, strict=False) if a != b]
        assert found == expected, wrong if isinstance(query, Stack) else str(query)
        assert engine.explain(program)


@pytest.mark.parametrize("place", [pytest.param(p, marks=pytest.mark.slow) if p == "spark" else p for p in PLACES])
def test_halves_are_rounded_alike(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(place) if place in ("postgres", "spark") else None
    schema = dd.Schema({"x": dd.Real(-1e16, 1e16)})
    rows = [{"x": x} for x in HALVES]
    engine = table(place, rows, schema, tmp_path, server, name="t", population="t").engine
    rounded = [call(op, Column("x"), *digits) for op in ("round", "trunc", "sign") for digits in DIGITS[op]]
    program = compile_query(Stack(tuple(map(Value, rounded))), schema, level=False).program
    assert [int(x) for x in engine.totals(program)] == reference_totals(program, rows)


@pytest.mark.parametrize("place", ["numpy", "parquet", "postgres", pytest.param("spark", marks=pytest.mark.slow)])
def test_no_pattern_makes_a_text_dear(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A search that tries every way to share a text among the % would take longer than the world has stood."""
    server = request.getfixturevalue(place) if place in ("postgres", "spark") else None
    rows = [{"t": "a" * 400}, {"t": "b" * 400}, {"t": "ab" * 200}, {"t": "a" * 399 + "b"}]
    schema = dd.Schema({"t": dd.Text(400)})
    engine = table(place, rows, schema, tmp_path, server, name="t", population="t").engine
    patterns = ["%_a" * 14 + "b", "%a" * 25 + "%c", "%" + "a_%" * 15 + "_b", "%aa%_" * 10 + "a%b"]
    query = Stack(tuple(Value(call("like", T, pattern)) for pattern in patterns))
    program = compile_query(query, schema, level=False).program
    assert [int(x) for x in engine.totals(program)] == reference_totals(program, rows)


@pytest.mark.parametrize("place", [pytest.param(p, marks=pytest.mark.slow) if p == "spark" else p for p in PLACES])
def test_a_unit_keeps_the_same_rows_everywhere(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Rows that are alike in all but an open text: which of them count follows from the texts, NULL and short first."""
    server = request.getfixturevalue(place) if place in ("postgres", "spark") else None
    schema, unit = dd.Schema({"t": dd.Text(4), "city": SCHEMA["city"]}), dd.Unit("who", 2)
    stored = dd.Schema({**schema, "who": dd.Text(9)})
    rows = [{"t": held(place, t), "city": "oslo", "who": f"p{i % 3}"} for i, t in enumerate(TEXTS) if t != ""]
    engine, memory = (
        table(where, rows, stored, tmp_path, own, asked=schema, unit=unit, neighbours="add-remove").engine
        for where, own in ((place, server), ("numpy", None))
    )
    assert engine.rows() == 6
    for expr in (call("length", T), call("like", T, "%a%"), call("eq", CITY, "Oslo")):
        program = compile_query(Value(expr), schema, level=False).program
        assert [int(x) for x in engine.totals(program)] == [int(x) for x in memory.totals(program)]
