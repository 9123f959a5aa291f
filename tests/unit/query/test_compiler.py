"""Ranges and NULL-ability by interval arithmetic."""

import math

import pytest

from dodona.query.compiler import Compiler
from dodona.query.program import Builder
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.text import parse

SCHEMA = Schema(
    {
        "a": Real(-2, 3, missing=0),
        "b": Real(1, 4, missing=1),
        "n": Integer(-3, 7, missing=0),
        "k": Integer(0, 255, missing=0),
        "f": Flag(missing=False),
        "maybe": Real(0, 1),
        "c": Category("x", "y", missing="x"),
    }
)


def typed(text):
    return Compiler(SCHEMA, Builder()).value(parse(text)).type


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("a + b", -1, 7),
        ("a - b", -6, 2),
        ("a * b", -8, 12),
        ("a * a", 0, 9),
        ("a / b", -2, 3),
        ("-a", -3, 2),
        ("ABS(a)", 0, 3),
        ("ABS(b)", 1, 4),
        ("LEAST(a, b)", -2, 3),
        ("GREATEST(a, b)", 1, 4),
        ("SQRT(b)", 1, 2),
        ("FLOOR(a)", -2, 3),
        ("CEIL(b / 3)", 1, 2),
        ("MOD(n, 5)", -3, 5),
        ("k & 12", 0, 12),
        ("f + f", 0, 2),
        ("CASE WHEN f THEN a ELSE b END", -2, 4),
        ("COALESCE(maybe, 5)", 0, 5),
        ("POWER(n, 2)", 0, 49),
        ("POWER(n, 3)", -27, 343),
    ],
)
def test_ranges(text, low, high):
    kind = typed(text)
    assert (kind.low, kind.high) == pytest.approx((low, high), rel=1e-9)


@pytest.mark.parametrize(
    ("text", "nullable"),
    [
        ("a + b", False),
        ("maybe + a", True),
        ("a / b", False),
        ("b / a", True),
        ("SQRT(a)", True),
        ("SQRT(b)", False),
        ("LN(b)", False),
        ("LN(a)", True),
        ("MOD(a, n)", True),
        ("COALESCE(maybe, a)", False),
        ("maybe IS NULL", False),
        ("maybe > 0", True),
        ("CASE WHEN f THEN a END", True),
        ("NULL", True),
        ("c = 'y'", False),
    ],
)
def test_null_ability(text, nullable):
    assert typed(text).nullable is nullable


def test_unbounded_is_known_as_such():
    assert not typed("1 / a").bounded
    assert typed("LEAST(GREATEST(1 / a, -9), 9)").bounded
    assert math.isinf(typed("EXP(1000 * b)").high)


def test_shared_steps_are_shared():
    build = Builder()
    Compiler(SCHEMA, build).value(parse("(a + b) * (a + b) + (a + b)"))
    assert [step.op for step in build.steps].count("add") == 2


def test_exp_grows_by_steps_not_by_text():
    build = Builder()
    Compiler(SCHEMA, build).value(parse("EXP(EXP(EXP(a / 3)))"))
    assert len(build.steps) < 250
