"""Fuzz (HOSTILE M13): whatever comes in as text or bytes is read, or refused with one of our own errors.

No crash, no hang beyond a second, no memory without bound. The generators are plain and fast, so that tens of thousands
of executions fit in a test; every failure prints the seed that makes it.
"""

from __future__ import annotations

import json
import os
import random
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dodona as dd
from dodona.config import Config
from dodona.engines.kernels import KERNELS
from dodona.errors import DodonaError
from dodona.local import Client, Collector, invitation
from dodona.query.plan import compile_query
from dodona.query.select import parse_select
from dodona.query.statistic import Partition, Stack, Value, as_expr, query_from_json
from dodona.query.text import parse

FEW = 100_000
SCHEMA = dd.Schema(
    {
        "x": dd.Real(-10, 100),
        "n": dd.Integer(0, 9),
        "g": dd.Category("a", "b'"),
        "f": dd.Flag(),
        "a b": dd.Real(0, 1),
        "t": dd.Text(max_length=20),
        "c": dd.Category("Oslo", "Ås", fold="case", trim=True, aliases={"Oslo": ["kristiania"]}, other=True),
        "d": dd.Date("2020-01-01", "2020-12-31"),
        "s": dd.Timestamp("2020-01-01", "2020-01-05", step="minute"),
    }
)
WORDS = (
    *("x", "n", "g", "f", '"a b"', "'a'", "'b'''", "1", "0", "2.5", "1e9", "1e-300", "1e308", "NULL", "TRUE", "FALSE"),
    *("+", "-", "*", "/", "%", "&", "=", "<>", "<", "<=", ">", ">=", "(", ")", "(", ")", ",", "AND", "OR", "NOT", "IN"),
    *("IS", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END", "ABS(", "LEAST(", "SQRT(", "EXP(", "POWER(", "BUCKET("),
    *("COALESCE(", "FLOOR(", "LN(", "MOD(", "GREATEST(", "CEIL("),
)
ODD = (
    *(
        "--",
        "/*",
        "*/",
        ";",
        "'",
        '"',
        "\\",
        "\x00",
        "é",
        "🜁",
        "SELECT",
        "FROM",
        "OVER",
        "::",
        "||",
        "$1",
        "?",
        "{",
        "}",
    ),
    *(
        "random()",
        "now()",
        "@",
        "#",
        "~",
        "!",
        "^",
        "`",
        "[",
        "]",
        "0x1F",
        "1_000",
        "１",
        "9" * 300,
        "INTERVAL",
        "LIKE",
    ),
    *(
        "CAST(x AS INT)",
        "EXISTS",
        "x.y",
        "ANY(",
        "rowid",
        "DATE '2020-01-01'",
        "LATERAL",
        "UNNEST(",
        "\u2028",
        "\ufeff",
    ),
)


SPELLED = (
    *("UPPER(c)", "REPLACE(c, 'o', {0})", "REPLACE(t, {0}, {1})", "SUBSTR({0}, 2, 3)", "t LIKE 'a%'", "LENGTH({0})"),
    *("CONCAT_WS('-', c, {0}, g)", "CONCAT({0}, {1})", "t || c", "TRIM({0})", "LEFT(c, {0})", "CAST({0} AS VARCHAR)"),
    *("INSTR({0}, 'a') > 0", "POSITION({0} IN t) >= {1}", "REGEXP_LIKE(t, '^a')", "REGEXP_MATCHES({0}, {1})"),
    *("DECODE({0}, 'a', {1}, 2, 3, {2})", "DECODE(g)", "WIDTH_BUCKET({0}, 0, 9, 3)", "WIDTH_BUCKET(x, {0}, {1}, {2})"),
    *("YEAR({0})", "MONTHNAME({0})", "DAYNAME(d)", "LAST_DAY({0})", "ADD_MONTHS({0}, 3)", "DATEADD(month, {0}, d)"),
    *("DATE_TRUNC({0}, MONTH)", "DATE_TRUNC('month', {0})", "DATE_DIFF({0}, {1}, DAY)", "TIMESTAMPDIFF(DAY, d, {0})"),
    *("TO_CHAR({0}, 'YYYY-MM')", "STRFTIME(d, '%Y-%m')", "FORMAT_DATE({0}, d)", "d + INTERVAL '3' MONTH", "{0} + 7"),
    *("d < '2020-05-05'", "s BETWEEN {0} AND {1}", "CAST(s AS DATE)", "ROUND({0}, -2)", "FLOOR({0} / 7) * 7"),
    *("MONTHNAME(MONTHNAME({0}))", "NVL2({0}, {1}, {2})", "NULLIF({0}, {1})", "{0} DIV {1}", "TO_CHAR({0})"),
)
"""Texts, dates, cleaned columns, and other databases' spellings, sound and not."""


def grammar(chance: random.Random, depth: int) -> str:
    """A row expression that mostly makes sense."""
    if depth <= 0 or chance.random() < 0.2:
        return chance.choice((*WORDS[:16], "t", "c", "d", "s"))
    inner = lambda: grammar(chance, depth - 1)  # noqa: E731
    kind = chance.randrange(11)
    if kind > 8:
        return chance.choice(SPELLED).format(inner(), inner(), inner())
    if kind < 3:
        return f"({inner()} {chance.choice(WORDS[16:28])} {inner()})"
    if kind == 3:
        return f"({inner()} {chance.choice(['AND', 'OR'])} NOT {inner()})"
    if kind == 4:
        return f"CASE WHEN {inner()} THEN {inner()} ELSE {inner()} END"
    if kind == 5:
        return f"{inner()} BETWEEN {inner()} AND {inner()}"
    if kind == 6:
        return f"{chance.choice(['ABS', 'SQRT', 'EXP', 'LN', 'FLOOR', 'NOT '])}({inner()})"
    if kind == 7:
        return f"{chance.choice(['LEAST', 'GREATEST', 'POWER', 'MOD', 'COALESCE', 'BUCKET'])}({inner()}, {inner()})"
    return f"{inner()} IN ({inner()}, {inner()})"


def text_of(chance: random.Random) -> str:
    """Grammar, grammar with broken tokens, tokens in any order, and odd characters."""
    kind = chance.random()
    if kind < 0.35:
        return grammar(chance, 1 + chance.randrange(3))
    if kind < 0.6:
        tokens = grammar(chance, 2).split(" ")
        for _ in range(1 + chance.randrange(2)):
            tokens[chance.randrange(len(tokens))] = chance.choice(WORDS + ODD)
        return " ".join(tokens)
    if kind < 0.9:
        return " ".join(chance.choice(WORDS if chance.random() < 0.9 else ODD) for _ in range(1 + chance.randrange(8)))
    return "".join(chr(chance.choice([chance.randrange(128), chance.randrange(0x3000)])) for _ in range(12))


def _timed(what: str, seed: int, act: Callable[[], Any]) -> Any:
    start = time.thread_time()
    try:
        return act()
    except DodonaError:
        return None
    except Exception as error:
        raise AssertionError(f"{what}, seed {seed}: {type(error).__name__}: {error}") from error
    finally:
        assert time.thread_time() - start < 1, f"{what}, seed {seed}, takes longer than a second"


def _expressions(first: int, last: int) -> tuple[int, int]:
    """How many texts were read as an expression, and how many of those compiled to known steps."""
    read = compiled = 0
    known = {*KERNELS, "column"}
    for seed in range(first, last):
        chance = random.Random(seed)
        text = text_of(chance)
        expr = _timed(f"parsing {text!r}", seed, lambda text=text: parse(text))
        if expr is None:
            continue
        read += 1
        query = Value(expr) if seed % 4 else Partition(expr, Value(as_expr("1")))
        plan = _timed(f"compiling {text!r}", seed, lambda query=query: compile_query(query, SCHEMA, level=False))
        if plan is not None:
            compiled += 1
            assert {step.op for step in plan.program.steps} <= known, text
    return read, compiled


def _fuzzed(first: int, last: int) -> None:
    read, compiled = _expressions(first, last)
    print(f"M13: {last - first:,} texts, {read:,} read as expressions, {compiled:,} compiled; 0 crashes")
    assert read > (last - first) // 10, "the generator must reach beyond the parser"
    assert compiled > (last - first) // 50, "the generator must reach the engine's door"


@pytest.mark.parametrize("part", range(5))
def test_m13_a_hundred_thousand_expressions(part: int) -> None:
    """The pull-request column, in five parts of 20,000 for as many workers."""
    _fuzzed(part * FEW // 5, (part + 1) * FEW // 5)


@pytest.mark.slow
def test_m13_a_million_expressions() -> None:
    """As many more as ``DODONA_FUZZ`` says; the release column asks for ten million, an hour of one core."""
    _fuzzed(FEW, FEW + int(os.environ.get("DODONA_FUZZ", "1_000_000")))


def test_expressions_leave_no_memory_behind() -> None:
    parse("x")
    tracemalloc.start()
    _expressions(0, 1000)
    before = tracemalloc.get_traced_memory()[0]
    _expressions(1000, 2000)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after < before + 20e6


ITEMS = (
    *(
        "COUNT(*)",
        "COUNT(DISTINCT {0})",
        "COUNT(DISTINCT c, {0})",
        "SUM({0})",
        "AVG({0}) FILTER (WHERE {1})",
        "CORR({0}, n)",
    ),
    *(
        "MEDIAN({0})",
        "MEDIAN(x) FILTER (WHERE {0})",
        "QUANTILE({0}, 0.9)",
        "APPROX_PERCENTILE({0}, {1})",
        "PERCENTILE(x)",
    ),
    *("REGR_SLOPE({0}, {1})", "REGR_INTERCEPT(x, n)", "REGR_COUNT({0}, x)", "REGR_AVGX(REGR_AVGY(x, n), n)"),
    *("APPROX_COUNT_DISTINCT({0})", "LAG(COUNT(*)) OVER (ORDER BY {0})", "LEAD({0}, 2) OVER (ORDER BY g)", "{0}"),
    *(
        "(SELECT COUNT(*) FROM t)",
        "1.0 * COUNT(*) / (SELECT SUM({0}) FROM t)",
        "GROUPING({0})",
        "RANK() OVER (ORDER BY {0})",
    ),
)
TAILS = (
    *(
        "GROUP BY g",
        "GROUP BY {0}",
        "GROUP BY ROLLUP (g, {0})",
        "GROUP BY GROUPING SETS ((n), ({0}), ())",
        "GROUP BY ALL",
    ),
    *(
        "GROUP BY CUBE (d, n, g)",
        "QUALIFY RANK() OVER (ORDER BY COUNT(*)) < 3",
        "GROUP BY g HAVING {0} QUALIFY {1}",
        "",
    ),
    *(
        "UNION ALL SELECT MEDIAN({0}) FROM t",
        "UNION ALL SELECT COUNT(*), g FROM t GROUP BY g",
        "GROUP BY g ORDER BY {0}",
    ),
)


def test_finished_selects() -> None:
    """Of many kinds that say something, so that all of the reader is reached."""
    chance, read = random.Random(11), 0
    for seed in range(6000):
        drawn = [grammar(chance, 1 + chance.randrange(2)) for _ in range(6)]
        items = ", ".join(chance.choice(ITEMS).format(*drawn[i:]) for i in range(1 + chance.randrange(3)))
        where = chance.choice(["", "", f" WHERE {drawn[3]}"])
        source = chance.choice(
            ["t", "public.t", "t AS a", "t, u WHERE t.n = u.n", "(SELECT g, COUNT(*) AS n FROM t GROUP BY g)"]
        )
        text = f"SELECT {items} FROM {source}{where} {chance.choice(TAILS).format(*drawn[4:])}"
        select = _timed(f"{text!r}", seed, lambda text=text: parse_select(text, SCHEMA, "t"))
        if select is not None:
            read += 1
            _timed(f"{text!r}", seed, lambda select=select: (select.finished, select.query.to_json()))
    assert read > 150


def test_selects() -> None:
    chance = random.Random(5)
    for seed in range(3000):
        parts = ["SELECT", text_of(chance), chance.choice([", COUNT(*)", ", SUM(x)", ", AVG(n) AS m", ""]), "FROM"]
        parts += [chance.choice(["t", "t", "u", "(SELECT 1)", "t, t"]), chance.choice(["", "WHERE " + text_of(chance)])]
        parts.append(chance.choice(["", "GROUP BY g", "GROUP BY " + text_of(chance), "ORDER BY 1", "LIMIT 1"]))
        text = " ".join(parts)
        select = _timed(f"{text!r}", seed, lambda text=text: parse_select(text, SCHEMA, "t"))
        if select is not None:
            _timed(text, seed, lambda select=select: compile_query(select.query, SCHEMA, level=True))


# -- structured data ---------------------------------------------------------------------------------------------------

SCALARS = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**63,
        10**400,
        0.5,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "x",
        "value",
        "é",
        "\ud800",
    ),
    *([], {}, [[]], {"a": 1}, "9" * 5000, -0.0, "1/0", "NaN"),
)


def mutated(chance: random.Random, data: Any, depth: int = 0) -> Any:
    """The same data with a few pieces replaced, dropped, doubled or nested."""
    if chance.random() < 0.06 or depth > 30:
        return chance.choice(SCALARS)
    if isinstance(data, dict):
        items = [(k if chance.random() > 0.02 else chance.choice(["x", "", "op"]), v) for k, v in data.items()]
        if items and chance.random() < 0.03:
            items.pop(chance.randrange(len(items)))
        return {k: mutated(chance, v, depth + 1) for k, v in items}
    if isinstance(data, list):
        parts = [mutated(chance, part, depth + 1) for part in data]
        return parts * 2 if chance.random() < 0.03 else parts
    return data


QUERIES = [
    Value(as_expr("x > 3 AND g = 'a'")),
    Stack((Value(as_expr("x")), Partition(as_expr("g"), Value(as_expr("n"))))),
    dd.Outer(dd.Features((as_expr("x"), as_expr("n")), 5.0)),
    dd.Nearest(dd.Features((as_expr("x"),), 5.0), ((1.0,), (2.0,)), Value(as_expr("1"))),
]


def test_json_queries() -> None:
    """Queries as plain data, broken at random: refused, or a query that compiles or is refused."""
    good = [query.to_json() for query in QUERIES]
    read = 0
    for seed in range(12_000):
        chance = random.Random(seed)
        data = mutated(chance, chance.choice(good))
        query = _timed(f"query {str(data)[:200]}", seed, lambda data=data: query_from_json(data))
        if query is not None:
            read += 1
            _timed(str(data)[:200], seed, lambda query=query: compile_query(query, SCHEMA, level=True))
    assert read > 1000


def test_schemas_as_data() -> None:
    good = SCHEMA.describe()
    for seed in range(8000):
        data = mutated(random.Random(seed), good)
        _timed(f"schema {str(data)[:200]}", seed, lambda data=data: dd.Schema.read(data))


CONFIG = """data = "survey.csv"
name = "survey"
neighbours = "replace"
[budget]
epsilon = 1
delta = 1e-6
[columns]
age = { type = "integer", low = 16, high = 95 }
sex = { type = "category", values = ["f", "m"], public = true }
x = { type = "real", low = -1.5, high = 2e3, missing = 0 }
"""


def _bent(chance: random.Random, data: bytes, pieces: tuple[bytes, ...]) -> bytes:
    """A few bytes changed, dropped, doubled or replaced by a piece."""
    held = bytearray(data)
    for _ in range(1 + chance.randrange(4)):
        at = chance.randrange(len(held) + 1)
        kind = chance.randrange(4)
        if kind == 0 and at < len(held):
            held[at] = chance.randrange(256)
        elif kind == 1:
            del held[at : at + chance.randrange(1, 20)]
        elif kind == 2:
            held[at:at] = chance.choice(pieces)
        else:
            held[at:at] = held[at : at + chance.randrange(1, 40)]
    return bytes(held)


def test_schema_files(tmp_path: Path) -> None:
    pieces = (b'"?"', b"nan", b"inf", b"1e999", b"[", b"{" * 500, b"\x00", b"\xff", b"= = =", b"true", b"9" * 6000)
    path = tmp_path / "survey.toml"
    path.write_text(CONFIG, encoding="utf-8")
    assert Config.read(path).name == "survey"
    for seed in range(3000):
        path.write_bytes(_bent(random.Random(seed), CONFIG.encode(), pieces))
        _timed("schema file", seed, lambda: Config.read(path))


def test_local_reports_and_invitations(tmp_path: Path) -> None:
    text = invitation(Stack((Value(as_expr("f")), Value(as_expr("x > 3")))), SCHEMA, 1)
    report = Client(1).report(text, {"f": True, "x": 5})
    collector = Collector(text)
    pieces = (b"", b"\xff" * 8, b"\x00" * 64, report)
    for seed in range(20_000):
        bent = _bent(random.Random(seed), report, pieces)
        _timed("report", seed, lambda bent=bent: collector.add(bent))
    assert collector.reports + sum(collector.refused.values()) == 20_000
    assert abs(float(collector.collected().mean[0])) < 1e6
    pieces = (b"NaN", b"1e400", b"[" * 3000, b'"a":', b"-1", b"null", b"9" * 6000, b"{}", b"\xff")
    client = Client(1, account=tmp_path / "me.account", create=True)
    accounts = [text, client.save(), '{"total": "1", "spent": 5}', collector.save()]
    for seed in range(1500):
        chance = random.Random(seed)
        bent = _bent(chance, chance.choice(accounts).encode(), pieces).decode("utf-8", "replace")
        for read in (Collector, Client.load, Collector.load):
            _timed(f"{read} {bent[:200]}", seed, lambda read=read, bent=bent: read(bent))
        _timed("report", seed, lambda bent=bent: Client(1).report(bent, {"f": True, "x": 5}))


def test_synopsis_files(tmp_path: Path) -> None:
    from dodona import release
    from dodona.oracles.synopsis import Synopsis
    from dodona.synopses import load
    from dodona.testing.oracles import conformance_table, seeded_curator

    curator = seeded_curator(conformance_table(100), dd.Budget(epsilon=10), 0)
    made = release.conjunctions(curator, width=2, columns=("sex", "smoker"), share=0.5)
    path, broken = tmp_path / "good.synopsis", tmp_path / "broken.synopsis"
    made.save(path)
    assert isinstance(load(path), Synopsis)
    whole = path.read_bytes()
    for seed in range(600):
        broken.write_bytes(_bent(random.Random(seed), whole, (b"\x00" * 40, b"PK\x05\x06", b"\xff")))
        _timed("synopsis", seed, lambda: load(broken))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(parts["header.json"])
    for seed in range(400):
        chance = random.Random(seed)
        bent = json.dumps(mutated(chance, header), default=str).encode("utf-8", "replace")
        with zipfile.ZipFile(broken, "w") as archive:
            for name, data in parts.items():
                archive.writestr(name, bent if name == "header.json" else data)
        _timed(f"synopsis header {bent[:200]!r}", seed, lambda: load(broken))


@pytest.mark.parametrize("bomb", ["parts", "header"])
def test_a_synopsis_that_would_fill_the_memory_is_refused(bomb: str, tmp_path: Path) -> None:
    """A ZIP of a few kilobytes that unpacks to a thousand times its size."""
    from dodona.synopses import load

    path = tmp_path / "bomb.synopsis"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        blank = b" " * (1 << 24)
        name = "header.json" if bomb == "header" else "a.parquet"
        with archive.open(name, "w", force_zip64=True) as part:
            for _ in range(12):
                part.write(blank)
        if bomb == "parts":
            archive.writestr("header.json", "{}")
    tracemalloc.start()
    with pytest.raises(DodonaError):
        load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
