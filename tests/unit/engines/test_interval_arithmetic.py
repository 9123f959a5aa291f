"""The intervals of a program's values hold for every row: no value is larger, smaller or less whole than stated."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dodona.engines.intervals import ANYTHING, LEAST, NEVER, Interval, interval_of
from dodona.errors import BadQuery
from dodona.query.plan import compile_query
from dodona.testing.engines import rows_of
from dodona.testing.reference import row_values
from dodona.testing.strategies import random_query, random_schema, random_table


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_intervals_enclose_every_value(data: st.DataObject) -> None:
    schema = data.draw(random_schema())
    rows = rows_of(data.draw(random_table(schema)))
    try:
        program = compile_query(data.draw(random_query(schema)), schema, level=False).program
    except BadQuery:
        assume(False)
    own: list[Interval] = []
    for step in program.steps:
        own.append(interval_of(step.op, step.args, step.constants, [own[arg] for arg in step.args]))
    for row in rows:
        for step, size, value in zip(program.steps, own, row_values(program, row), strict=True):
            if value is None or math.isnan(value):
                continue
            assert size.low <= value <= size.high, (step, size, value)
            assert value == 0 or abs(value) >= size.tiny >= LEAST, (step, size, value)
            assert not size.whole or float(value).is_integer(), (step, size, value)


def of(op: str, *own: Interval, constants: tuple[object, ...] = (), same: bool = False) -> Interval:
    """The interval of an operation on different steps, or on the ``same`` one twice."""
    return interval_of(op, (0, 0) if same else range(len(own)), constants, own)


X = of("column", constants=("x", "real", 17.0, 90.0, None))


def test_what_cannot_vanish_is_known() -> None:
    assert Interval(17.0, 90.0, 17.0, plain=True) == X
    assert of("mul", X, of("column", constants=("y", "real", 0.0, 1.0, None))).most == 90.0
    assert of("flush", Interval(-1.0, 1.0)).tiny == 2.0**-500
    assert of("div", X, Interval(0.0, 1.0)).high == math.inf


def test_a_clip_is_left_out_on_short_arguments_only() -> None:
    """Columns, constants, truths and monotone operations; no end that overflows, no long rule, nothing unknown."""
    null = of("const", constants=(None,))
    for short in (X, of("sub", X, X), of("number", of("eq", X, X)), of("if", of("eq", X, X), X, null), null):
        assert short.plain, short
        assert short.within(-90.0, 90.0), short
    assert of("if", of("eq", X, X), X, null).low == 17.0
    assert of("mul", X, X, same=True) == Interval(289.0, 8100.0, 289.0, plain=True)
    far = of("const", constants=(1e300,))
    label = of("column", constants=("g", "category", ("a", "b"), None))
    for long in (of("mul", far, far), of("floor", X), of("div", X, of("sub", X, X)), of("sqrt", of("neg", X)), label):
        assert not long.plain, long
        assert not long.within(-math.inf, math.inf), long
    assert not of("at_most", ANYTHING, X).plain


def test_what_is_always_null_stays_so() -> None:
    for op in ("add", "mul", "div", "least"):
        assert of(op, NEVER, X).empty, op
        assert of(op, X, NEVER).most == 0.0, op
    assert of("coalesce", NEVER, X) == X._replace(tiny=1.0)
    assert not of("grid", NEVER, constants=(0.0, 1.0, 3)).empty
