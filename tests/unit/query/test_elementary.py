"""EXP, LN and POWER are ours: as accurate as stated, over the whole range of doubles."""

import math

import numpy as np
import pytest

from dodona.engines.memory import MemoryEngine
from dodona.query.compiler import Compiler
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Real, Schema
from dodona.query.text import parse


def evaluate(text, low, high, points):
    schema = Schema({"x": Real(low, high, missing=low)})
    build = Builder()
    step = Compiler(schema, build).value(parse(text)).step
    values = np.asarray(points, dtype=float)
    engine = MemoryEngine(schema, {"x": (values, None)}, len(values))
    program = Program(tuple(build.steps), (Block((step,), 1),))
    result, null = engine.run(program, 0, len(values))[step]
    return np.where(np.zeros(len(values), bool) if null is None else null, np.nan, result)


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (-30, 30), (-700, 700)])
def test_exp(low, high):
    points = np.linspace(low, high, 2001)
    np.testing.assert_allclose(evaluate("EXP(x)", low, high, points), np.exp(points), rtol=2e-12)


def test_exp_beyond_doubles_is_null_or_zero():
    got = evaluate("EXP(x)", -1e6, 1e6, [-1e6, -800, 0, 709, 711, 1e6])
    assert got[0] == got[1] == 0.0
    assert got[2] == 1.0
    assert math.isfinite(got[3])
    assert np.isnan(got[4:]).all()


@pytest.mark.parametrize(("low", "high"), [(0.5, 2), (0, 1e6), (1e-300, 1e100), (-5, 5)])
def test_ln(low, high):
    points = np.concatenate([np.geomspace(max(low, 1e-300), high, 2001), [5e-324, 1e-310] if low == 0 else []])
    np.testing.assert_allclose(evaluate("LN(x)", low, high, points), np.log(points), rtol=1e-13, atol=1e-15)


def test_ln_of_nothing_is_null():
    assert np.isnan(evaluate("LN(x)", -5, 5, [0.0, -1.0])).all()


@pytest.mark.parametrize("power", ["2", "3", "7", "-2", "0.5", "1.5", "-0.7", "2.25"])
def test_power(power):
    points = np.linspace(0.1, 9, 500)
    np.testing.assert_allclose(evaluate(f"POWER(x, {power})", 0.1, 9, points), points ** float(power), rtol=1e-11)


def test_power_of_zero_and_negative_bases():
    got = evaluate("POWER(x, 1.5)", -4, 4, [0.0, -1.0, 4.0])
    assert got[0] == 0.0
    assert np.isnan(got[1])
    assert got[2] == pytest.approx(8)
    assert evaluate("POWER(x, 3)", -4, 4, [-2.0])[0] == -8.0
