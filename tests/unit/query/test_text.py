"""What the language takes, what it refuses, and where it says the trouble is (V13, V16-V27, V29, V30)."""

import contextlib
import logging
import re
import threading
import time

import pytest
from sqlglot.tokens import Tokenizer

from dodona.errors import BadQuery
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import as_query
from dodona.query.text import parse

SCHEMA = Schema(
    {
        "id": Integer(0, 1000),
        "x": Real(-5, 10),
        "name": Category("a", "m", "o'hara"),
        "flag": Flag(),
        "code": Category(1, 2, 3),
        "odd name": Real(0, 1),
    }
)


def plan(text):
    return compile_query(as_query(text), SCHEMA, level=False)


@pytest.mark.parametrize(
    "text",
    [
        "x > 3 AND NOT flag",
        "x BETWEEN 1 AND 2 OR id IN (1, 2, 3)",
        "CASE WHEN x > 0 THEN x ELSE -x END",
        "CASE id WHEN 1 THEN 2 WHEN 2 THEN 5 ELSE 0 END",
        "COALESCE(x, 0) IS NULL",
        "LEAST(GREATEST(1 / x, -1), 1)",
        "SQRT(ABS(x)) + LN(ABS(x) + 1) + EXP(x / 10) + POWER(x, 2) + POWER(ABS(x), 1.5)",
        "FLOOR(x) + CEIL(x) + MOD(id, 7) + id % 7",
        "(id & 4) <> 0",
        "name = 'o''hara'",
        "name IN ('a', 'm') AND code = 2",
        '"odd name" * 2',
        "flag IS TRUE",
        "flag IS NOT NULL",
        "IF(flag, 1, 0)",
        "x NOT BETWEEN 0 AND 1",
        "TRUE",
        "1.5e-3 * x",
        "X + 1",
    ],
)
def test_the_language(text):
    expr = parse(text)
    assert parse(str(expr)) == expr, "an expression reads back what it prints"
    assert plan(text).dimension == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("CASE WHEN id=7 THEN error('x') ELSE 0 END", id="V13"),
        pytest.param("(SELECT count(*) FROM t)", id="V16-scalar"),
        pytest.param("x IN (SELECT y FROM u)", id="V16-in"),
        pytest.param("EXISTS(SELECT 1)", id="V16-exists"),
        pytest.param("row_number() OVER ()", id="V17"),
        pytest.param("lag(x) OVER (ORDER BY id)", id="V17-lag"),
        pytest.param("x - avg(x)", id="V18"),
        pytest.param("max(x)", id="V18-max"),
        pytest.param("count(*)", id="V18-count"),
        pytest.param("random()", id="V19"),
        pytest.param("now()", id="V19-now"),
        pytest.param("current_user", id="V19-user"),
        pytest.param("current_timestamp", id="V19-timestamp"),
        pytest.param("nextval('s')", id="V19-nextval"),
        pytest.param("getvariable('a')", id="V19-variable"),
        pytest.param("read_text('secret.txt')", id="V20"),
        pytest.param("pg_read_file('secret.txt')", id="V20-pg"),
        pytest.param("length(repeat('a', CASE WHEN id=777 THEN 50000000 ELSE 1 END))", id="V21"),
        pytest.param("x; DROP TABLE t", id="V22"),
        pytest.param("x -- c", id="V22-comment"),
        pytest.param("x /* c */", id="V22-block"),
        pytest.param("x) FROM t --", id="V22-close"),
        pytest.param("other.x", id="V24"),
        pytest.param("rowid", id="V24-rowid"),
        pytest.param("*", id="V24-star"),
        pytest.param("hidden", id="V24-hidden"),
        pytest.param("frobnicate(x)", id="V25"),
        pytest.param('"abs"(x)', id="V25-quoted"),
        pytest.param("pg_catalog.abs(x)", id="V25-qualified"),
        pytest.param("regexp_matches(name, '(a+)+$')", id="V26"),
        pytest.param("name ~ 'a'", id="V26-tilde"),
        pytest.param("name < 'm'", id="V27"),
        pytest.param("1 / x", id="V15-unbounded"),
        pytest.param("x % (id - 7) / (x - 1)", id="V15-mod"),
        pytest.param("CAST(name AS INT)", id="cast"),
        pytest.param("x::int", id="cast-colons"),
        pytest.param("name || 'a'", id="concatenate"),
        pytest.param("name", id="text-as-number"),
        pytest.param("name + 1", id="text-arithmetic"),
        pytest.param("x AND flag", id="number-as-condition"),
        pytest.param("NOT x", id="not-number"),
        pytest.param("name = 'zzz'", id="unknown-category"),
        pytest.param("code = 9", id="unknown-code"),
        pytest.param("x & 1", id="bits-of-real"),
        pytest.param("FLOOR(x, 2)", id="floor-digits"),
        pytest.param("1e400", id="huge-literal"),
        pytest.param("１ + 1", id="other-digits"),
        pytest.param("1_000", id="underscores"),
        pytest.param("x BETWEEN SYMMETRIC 1 AND 2", id="symmetric"),
        pytest.param("", id="empty"),
        pytest.param("   ", id="blank"),
        pytest.param("x,", id="comma"),
        pytest.param("INTERVAL 1 DAY", id="interval"),
        pytest.param("TIME '12:00'", id="time"),
        pytest.param("CASE WHEN x > 0 THEN 'a' ELSE 1 END = 'a'", id="mixed-case"),
        pytest.param("\x00", id="nul"),
        pytest.param("?", id="parameter"),
        pytest.param("$1", id="dollar"),
        pytest.param("{{x}}", id="braces"),
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(BadQuery):
        plan(text)


@pytest.mark.parametrize("text", [12, None, b"x", ["x"]])
def test_a_question_is_text(text):
    with pytest.raises(BadQuery):
        parse(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [("x > 3 AND foo < 2", 10), ("flag AND sum(x) > 1", 9), ("x ; y", 2), ("flag AND name < 'm'", 9), ("x + name", 0)],
)
def test_a_refusal_names_the_place(text, position):
    with pytest.raises(BadQuery) as caught:
        plan(text)
    assert caught.value.position == position
    assert f"character {position + 1}" in str(caught.value)


def bombs():
    yield "(" * 33 + "x" + ")" * 33
    for n in (70, 300, 1000, 2000):
        yield "(" * n + "x" + ")" * n
        yield "NOT " * n + "flag"
        yield "-" * (2 * n) + "x"
        yield "- " * n + "x"
        yield "CASE WHEN flag THEN " * n + "1" + " ELSE 0 END" * n
        yield "x" + " + x" * (8 * n)
        yield "ABS(" * n + "x" + ")" * n
        yield "flag = NOT " * (2 * n) + "flag"
    yield "(" * 100_000
    yield "x" + "+x" * 100_000
    yield "'" + "a" * 100_000


def test_v23_bombs_are_refused_before_the_parser_even_on_a_small_stack():
    failures = []

    def run():
        for bomb in bombs():
            started = time.process_time()
            try:
                parse(bomb)
                failures.append(bomb[:40])
            except BadQuery:
                if time.process_time() - started > 0.5:
                    failures.append("slow: " + bomb[:40])

    old = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(old)
    assert not failures


def test_the_deepest_allowed_question_still_parses_on_a_small_stack():
    deep = "(" * 32 + "x" + ")" * 32
    wide = "x" + " + x" * 250
    alternating = "x" + " - x * 2" * 80
    nots = "NOT " * 64 + "flag"
    done = []

    def run():
        done.extend(str(parse(text)) for text in (deep, wide, nots, alternating))

    old = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(old)
    assert len(done) == 4


def test_v29_the_bound_is_of_the_final_value():
    huge = plan("(x - 1000000) * 1000000")
    low, high = -5 - 1e6, 10 - 1e6
    change = huge.reach.change.linf * next(iter(huge.places))
    assert float(change) * huge.units[0] >= (high - low) * 1e6


def test_no_word_begins_a_statement_and_the_parser_says_nothing_beside(caplog):
    """The parser would read ``ALTER x`` as a command and say so on standard error; here every word is a name."""
    words = sorted(word for word in Tokenizer.KEYWORDS if re.fullmatch(r"[A-Z_ ]+", word))
    assert len(words) > 200
    assert logging.getLogger("sqlglot").isEnabledFor(logging.WARNING), "nobody's logging is touched"
    for word in [*words, "IF", "WHILE", "EXPLAIN"]:
        for rest in ("", " x", " TABLE t", " t SET x = 1"):
            with contextlib.suppress(BadQuery):
                parse(word + rest)
    assert caplog.records == []
    named = Schema({"comment": Real(0, 1), "show": Flag()})
    assert compile_query(as_query("comment > 0.5 AND show"), named, level=False).program.columns == ("comment", "show")


@pytest.mark.parametrize("word", ["Alter", "comment", "drop", "show", "grant"])
def test_a_column_may_be_called_as_a_statement_begins(word: str) -> None:
    assert str(parse(f"{word} > 40")) == f"({word} > 40)"
