"""What is written of texts, rounding and casts: it means what the reference says, is printed and read again, or refused
with what to write instead."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.query.expr import expr_from_json
from dodona.query.plan import compile_query
from dodona.query.terms import is_like, observe
from dodona.query.text import parse
from dodona.testing.reference import reference_totals

SCHEMA = dd.Schema(
    {
        "c": dd.Category("Oslo", "Bergen", fold="case", other=True),
        "n": dd.Category(10, 20, 5),
        "t": dd.Text(8),
        "x": dd.Real(-5, 5),
        "i": dd.Integer(-3, 9),
        "f": dd.Flag(),
        "d": dd.Date("2020-01-01", "2021-01-01"),
    }
)
NUMBERS = ((2.5, 3, True), (-2.5, 0, False), (0.49999999999999994, None, None), (None, -3, True), (-1.005, 9, False))
ROWS = [
    {"c": c, "n": n, "t": t, "x": x, "i": i, "f": f, "d": None}
    for c, n in (("oslo", 10), ("x", 5), (None, None))
    for t in ("a%", "Ab", None)
    for x, i, f in NUMBERS
]


def _column(name: str, kind: str) -> Any:
    cells = [row[name] for row in ROWS]
    if kind == "O":
        return np.array(cells, dtype=object)
    return np.ma.array([0 if v is None else v for v in cells], dtype=kind, mask=[v is None for v in cells])


KINDS = {"c": "O", "n": "i8", "t": "O", "x": "f8", "i": "i8", "f": "?", "d": "M8[D]"}
TABLE = Table({name: _column(name, kind) for name, kind in KINDS.items()}, SCHEMA)
READ = """
t LIKE 'a%' | t NOT LIKE 'a%' | t LIKE 'a!%' ESCAPE '!' | t NOT LIKE 'a!%' ESCAPE '!' | t ILIKE 'A%' | NOT t LIKE 'a'
c NOT IN ('Oslo') | i NOT BETWEEN 1 AND 3 | LENGTH(CONCAT(t, c, 'x')) | CONCAT(t,'x') = 'abx' | LEN(t)
TRIM(BOTH 'a' FROM t) = '%' | LTRIM(t,'a') = 'b' | BTRIM(t) = 'Ab' | SUBSTRING(t FROM 1 FOR 1) = 'a'
MID(t,1,1) = 'A' | LEFT(t,1) = RIGHT(t,1) | STARTS_WITH(t,'a') | SUFFIX(t,'b') | ROUND(x) | ROUND(x,2) | ROUND(x,-1)
ROUND(i,-1) | TRUNC(x) | TRUNC(x,1) | SIGN(x) | SGN(i) | NULLIF(i,0) | NULLIF(t,'Ab') IS NULL | IFNULL(i,0)
NVL2(i,1,0) | IIF(f,1,0) | ISNULL(t) | ISNULL(i,2) | ZEROIFNULL(i) | CAST(f AS INT) | CAST(i AS DOUBLE)
CAST(x AS BOOLEAN) | CAST(n AS INT) | TRY_CAST(i AS INT) | CAST(t AS VARCHAR) = 'Ab' | i IS DISTINCT FROM 3
i IS NOT DISTINCT FROM NULL | i DIV 2 | SQUARE(x) | PI() * x | RADIANS(x) | LN(EXP(x)) | LOG1P(ABS(x)) | EXPM1(x)
t IN ('a%', c) | t = c | t IN ('a%','Ab') | LENGTH(CASE WHEN f THEN t ELSE c END) | COALESCE(t,'zz') = 'zz'
UPPER(c) = 'OSLO' | c LIKE 'O%' | t LIKE '%' | t = '' | CONCAT('a', 'b') = 'ab' | LENGTH('abc') | UPPER('é') = 'é'
LENGTH(t) BETWEEN 1 AND 3 | CONCAT(c, '-', t) LIKE 'Oslo-%' | t IS NULL | t LIKE CONCAT('a', '%')
LENGTH(CONCAT(c, c)) | CONCAT(c, c) = 'OsloOslo' | LENGTH(SUBSTR(c, 2, 2)) | CASE WHEN f THEN c ELSE t END = 'Oslo'
"""


@pytest.mark.parametrize("question", [q.strip() for line in READ.strip().splitlines() for q in line.split(" | ")])
def test_what_is_written_means_what_the_reference_says(question: str) -> None:
    expr = parse(question)
    assert expr_from_json(expr.to_json()) == expr
    program = compile_query(dd.Value(expr), SCHEMA, level=False).program
    assert compile_query(dd.Value(parse(str(expr))), SCHEMA, level=False).program == program
    assert [int(x) for x in TABLE.engine.totals(program)] == reference_totals(program, ROWS)


def test_bars_join_texts() -> None:
    assert parse("c || '-' || t LIKE 'Oslo-%'") == parse("CONCAT(c, '-', t) LIKE 'Oslo-%'")


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("t", "LENGTH"),
        ("t + 1", "LENGTH"),
        ("ABS(t)", "LENGTH"),
        ("LEAST(t, 1)", "LENGTH"),
        ("BUCKET(t, 1, 2)", "LENGTH"),
        ("t AND f", "condition"),
        ("t < 'a'", "no order"),
        ("t BETWEEN 'a' AND 'b'", "no order"),
        ("t = d", "text is needed"),
        ("YEAR(t)", "date"),
        ("t LIKE c", "literal"),
        ("t LIKE 'a!'  ESCAPE '!'", "stands before"),
        ("t LIKE 'a!b' ESCAPE '!'", "stands before"),
        ("t LIKE 'a' ESCAPE 'ab'", "one character"),
        (f"t LIKE '{'a' * 61}'", "at most 60"),
        ("SUBSTR(t, i, 1)", "constant"),
        ("SUBSTR(t, 0, 1)", "from 1"),
        ("LEFT(t, -1)", "from 0"),
        ("LENGTH(i)", "takes texts"),
        ("CONCAT(c, n)", "takes texts"),
        ("ROUND(x, i)", "constant number of digits"),
        ("ROUND(d)", "DATE_TRUNC"),
        ("CAST(x AS INT)", "FLOOR or CEIL"),
        ("CAST(c AS INT)", "no number"),
        ("CAST(x AS VARCHAR)", "no one way"),
        ("CAST(x AS DECIMAL(10, 2))", "ROUND"),
        ("CAST(d AS DOUBLE)", "DATEDIFF"),
        ("REGEXP_MATCHES(t, 'x+')", "LIKE with"),
        ("t RLIKE '[xy]'", "LIKE with"),
        ("t SIMILAR TO 'x'", "LIKE with"),
        ("REPLACE(t, 'a', 'b')", "aliases"),
        ("POSITION('a' IN t)", "CONTAINS"),
        ("SPLIT_PART(t, '-', 1)", "not split"),
        ("CONCAT_WS(c, t, c)", "written out"),
        ("OCTET_LENGTH(t)", "LENGTH"),
    ],
)
def test_what_is_no_question_is_refused_with_what_to_write(question: str, why: str) -> None:
    with pytest.raises(BadQuery, match=why):
        compile_query(dd.Value(parse(question)), SCHEMA, level=False)


def test_an_open_text_is_no_group_and_its_condition_is() -> None:
    with pytest.raises(BadQuery, match="nobody listed"):
        compile_query(dd.Partition(parse("t"), dd.Value(parse("1"))), SCHEMA, level=False)
    compile_query(dd.Partition(parse("t LIKE 'a%'"), dd.Value(parse("1"))), SCHEMA, level=False)
    plan = compile_query(dd.Partition(parse("SUBSTR(c, 1, 1)"), dd.Value(parse("1"))), SCHEMA, level=False)
    assert plan.segments[0].labels == (("O", "B", "o"),)


def test_texts_that_grow_without_end_are_refused() -> None:
    wide = dd.Schema({f"t{i}": dd.Text(1000) for i in range(5)})
    with pytest.raises(BadQuery, match="at most 4,000"):
        compile_query(dd.Value(parse("LENGTH(CONCAT(t0, t1, t2, t3, t4))")), wide, level=False)
    many = "CASE WHEN f THEN t ELSE 'a' END"
    with pytest.raises(BadQuery, match="at most 64"):
        compile_query(dd.Value(parse(f"LENGTH(CONCAT({', '.join([many] * 7)}))")), SCHEMA, level=False)


def test_like_is_what_trying_every_way_finds() -> None:
    def tried(text: str, pattern: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "%":
            return any(tried(text[i:], pattern[1:]) for i in range(len(text) + 1))
        return bool(text) and pattern[0] in ("_", text[0]) and tried(text[1:], pattern[1:])

    texts = ["".join(signs) for n in range(5) for signs in itertools.product("ab", repeat=n)]
    patterns = ["".join(signs) for n in range(5) for signs in itertools.product("ab%_", repeat=n)]
    columns = {"t": np.array(texts, dtype=object)}
    table = Table(columns, dd.Schema({"t": dd.Text(4)}))
    for start in range(0, len(patterns), 85):
        part = patterns[start : start + 85]
        values = tuple(dd.Value(parse(f"t LIKE '{pattern}'")) for pattern in part)
        program = compile_query(dd.Stack(values), table.schema, level=False).program
        expected = [[text for text in texts if tried(text, pattern)] for pattern in part]
        assert [int(x) for x in table.engine.totals(program)] == [len(found) for found in expected]
        assert [[text for text in texts if is_like(text, pattern)] for pattern in part] == expected


def test_a_null_is_nothing_to_observe() -> None:
    assert observe(("length", ("column", "t", 3, dd.Text(3).cleaning, None)), {"t": None}.__getitem__) is None
    assert observe(("length", ("column", "t", 3, dd.Text(3).cleaning, "ab")), {"t": None}.__getitem__) == 2.0
