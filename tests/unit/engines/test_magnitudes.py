"""The sizes of a program's values hold for every row: no value is larger, smaller or less whole than stated."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dodona.engines.magnitudes import LEAST, Size, sized
from dodona.errors import BadQuery
from dodona.query.plan import compile_query
from dodona.testing.engines import rows_of
from dodona.testing.reference import row_values
from dodona.testing.strategies import random_query, random_schema, random_table


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_sizes_enclose_every_value(data: st.DataObject) -> None:
    schema = data.draw(random_schema())
    rows = rows_of(data.draw(random_table(schema)))
    try:
        program = compile_query(data.draw(random_query(schema)), schema, level=False).program
    except BadQuery:
        assume(False)
    sizes: list[Size] = []
    for step in program.steps:
        op = "square" if step.op == "mul" and step.args[0] == step.args[1] else step.op
        sizes.append(sized(op, [sizes[arg] for arg in step.args], step.constants))
    for row in rows:
        for step, size, value in zip(program.steps, sizes, row_values(program, row), strict=True):
            if value is None or math.isnan(value):
                continue
            assert size.low <= value <= size.high, (step, size, value)
            assert value == 0 or abs(value) >= size.tiny >= LEAST, (step, size, value)
            assert not size.whole or float(value).is_integer(), (step, size, value)


def test_what_cannot_vanish_is_known() -> None:
    column = sized("column", [], ("x", "real", 17.0, 90.0, None))
    assert column == Size(17.0, 90.0, 17.0)
    assert sized("mul", [column, sized("column", [], ("y", "real", 0.0, 1.0, None))], ()).most == 90.0
    assert sized("flush", [Size(-1.0, 1.0)], ()).tiny == 2.0**-500
    assert sized("div", [column, Size(0.0, 1.0)], ()).high == math.inf
