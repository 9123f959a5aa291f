"""Prefix roots and range roots: the stated reach bounds what any row does, on every engine; local rows refuse them."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dodona.engines.table import Table
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.local import Local
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Schema
from dodona.query.statistic import Gate, Partition, PrefixRoots, RangeRoots, Value, as_expr, query_from_json
from dodona.query.vectors import ROOT_BITS, range_coefficients, root_coefficients
from dodona.testing.reference import reference_totals

SCHEMA = Schema({"x": Integer(0, 6), "f": Flag(), "k": Category("a", "b", public=True)})
ROOTS = PrefixRoots(Column("x"))
AROUND = RangeRoots(Column("x"))


def columns(program, cells=7):
    """What each possible row adds; None is a missing value."""
    return [np.array(reference_totals(program, [{"x": x, "f": True, "k": "a"}])) for x in [None, *range(cells)]]


@pytest.mark.parametrize("query", [ROOTS, Gate(as_expr("f"), ROOTS), AROUND, Gate(as_expr("f"), AROUND)])
def test_reach_bounds_every_row_and_every_pair(query):
    plan = compile_query(query, SCHEMA, level=False)
    (weight,) = plan.places
    rows = [row / float(weight) for row in columns(plan.program)]
    size, change = plan.reach.size, plan.reach.change
    for row in rows:
        assert np.abs(row).sum() <= float(size.l1) + 1e-12
        assert (row**2).sum() <= float(size.l2_squared) + 1e-12
        assert np.abs(row).max() <= float(size.linf)
    for a, b in itertools.combinations(rows, 2):
        assert np.abs(a - b).sum() <= float(change.l1) + 1e-12
        assert ((a - b) ** 2).sum() <= float(change.l2_squared) + 1e-12
        assert np.abs(a - b).max() <= float(change.linf)
    assert (rows[1] ** 2).sum() == pytest.approx(float(size.l2_squared))  # the first cell attains it


@pytest.mark.parametrize("kind", [PrefixRoots, RangeRoots])
def test_public_keys_never_move(kind):
    plan = compile_query(kind(Column("k")), SCHEMA, level=False)
    assert plan.reach.change.l1 == 0


def test_engines_agree_with_the_reference(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        {"x": int(x), "f": bool(f), "k": "a"}
        for x, f in zip(rng.integers(0, 7, 50), rng.random(50) < 0.5, strict=False)
    ]
    data = {name: np.array([row[name] for row in rows]) for name in SCHEMA}
    path = tmp_path / "rows.csv"
    path.write_text("x,f,k\n" + "".join(f"{r['x']},{str(r['f']).lower()},a\n" for r in rows))
    for query in (ROOTS, Gate(as_expr("f"), ROOTS), AROUND, Gate(as_expr("f"), AROUND)):
        program = compile_query(query, SCHEMA, level=False).program
        expected = reference_totals(program, rows)
        assert Table(data, SCHEMA).engine.totals(program).tolist() == expected
        assert Table(str(path), SCHEMA).engine.totals(program).tolist() == expected


def test_coefficients_are_central_binomials():
    exact, value = [], Fraction(1)
    for k in range(1, 200):
        exact.append(float(value))
        value *= Fraction(2 * k - 1, 2 * k)
    got = np.array(root_coefficients(199)) * 2.0**-ROOT_BITS
    assert np.max(np.abs(got - exact)) <= 2.0**-ROOT_BITS
    assert np.all(got <= np.array(exact))


def test_every_row_turns_one_vector_round_the_circle():
    rows = columns(compile_query(AROUND, SCHEMA, level=False).program)[1:]
    assert rows[0].tolist() == list(range_coefficients(7))
    for place, row in enumerate(rows):
        assert row.tolist() == np.roll(rows[0], place).tolist()
    assert min(rows[0]) > 0
    assert max(rows[0]) == rows[0][0] == 2**ROOT_BITS


@pytest.mark.parametrize("roots", [ROOTS, AROUND])
def test_wire_form_and_refusals(roots):
    assert query_from_json(roots.to_json()) == roots
    with pytest.raises(BadQuery, match="inside a partition"):
        compile_query(Partition(Column("k"), roots), SCHEMA, level=False)
    with pytest.raises(BadQuery, match="at most"):
        compile_query(roots, Schema({"x": Integer(0, 60_000)}), level=False)
    local = Local(Table({"x": np.arange(7), "f": np.ones(7, bool), "k": np.array(["a"] * 7)}, SCHEMA), epsilon=1)
    with pytest.raises(Unsupported, match="trusted"):
        local.price(roots, share=1)
    assert Value(as_expr("1")) != roots
