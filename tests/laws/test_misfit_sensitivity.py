"""The promise the choice of a marginal rests on: one row moves every score by no more than the stated sensitivity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.concepts.concept import Agreement
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.grid import Grid, Misfit, tables_of, tables_query
from dodona.engines.table import Table
from dodona.oracles.fronts import GatedScores, Shifted
from dodona.query.candidates import Scores
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Products

BITS = Schema({name: Flag(missing=False) for name in "abcd"})
MIXED = Schema({"a": Flag(), "b": Category("x", "y", "z"), "c": Flag(missing=False)})
VALUES = {"a": [True, False, None], "b": ["x", "y", "z", None], "c": [True, False]}


def scores_of(scores: Scores, schema: Schema, rows: list[dict[str, object]]) -> np.ndarray:  # type: ignore[type-arg]
    columns = {name: np.array([row[name] for row in rows], dtype=object) for name in schema}
    plan = compile_query(scores.statistics(schema), schema, level=True)
    return np.asarray(scores.tally(schema, Table(columns, schema).engine.totals(plan.program)))


def misfit(schema: Schema, width: int, seed: int) -> Misfit:
    grid = Grid.of(schema, None)
    supports = tuple(grid.supports(width, width))
    rng = np.random.default_rng(seed)
    cells = sum(map(grid.size, supports))
    return Misfit(grid, supports, rng.integers(-3, 9, cells), rng.integers(0, 5, len(supports)))


def row_of(schema: Schema) -> st.SearchStrategy[dict[str, object]]:
    choices = {name: VALUES[name] if schema is MIXED else [True, False] for name in schema}
    return st.fixed_dictionaries({name: st.sampled_from(values) for name, values in choices.items()})


@pytest.mark.parametrize("schema", [BITS, MIXED], ids=["bits", "mixed"])
@pytest.mark.parametrize("width", [1, 2, 3])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_row_moves_a_misfit_by_at_most_its_sensitivity(schema: Schema, width: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(row_of(schema), min_size=1, max_size=8))
    extra, other = data.draw(row_of(schema)), data.draw(row_of(schema))
    scores = misfit(schema, width, data.draw(st.integers(0, 99)))
    base = scores_of(scores, schema, [*rows, extra])
    removed, replaced = scores_of(scores, schema, rows), scores_of(scores, schema, [*rows, other])
    assert np.abs(base - removed).max() <= scores.sensitivity("add-remove") == 1
    assert np.abs(base - replaced).max() <= scores.sensitivity("replace") == 2


def test_replacing_a_row_really_moves_one_by_two() -> None:
    """So 1 would be too little under replace: the bound is tight."""
    grid = Grid.of(BITS, None)
    scores = Misfit(grid, ((0,),), np.array([0, 1]), np.array([0]))
    yes, no = (dict.fromkeys("abcd", value) for value in (True, False))
    assert abs(scores_of(scores, BITS, [yes]) - scores_of(scores, BITS, [no]))[0] == 2


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_shifted_and_gated_scores_keep_the_promise(data: st.DataObject) -> None:
    rows = data.draw(st.lists(row_of(BITS), min_size=1, max_size=8))
    extra, other = data.draw(row_of(BITS)), data.draw(row_of(BITS))
    inner = Agreement(Conjunctions.over(("a", "b"), 2), Column("c"))
    size = compile_query(inner.statistics(BITS), BITS, level=True).dimension
    offsets = np.random.default_rng(0).integers(0, 50, size)
    for scores in (Shifted(inner, offsets), GatedScores(inner, Column("d"))):
        base = scores_of(scores, BITS, [*rows, extra])
        assert np.abs(base - scores_of(scores, BITS, rows)).max() <= scores.sensitivity("add-remove")
        assert np.abs(base - scores_of(scores, BITS, [*rows, other])).max() <= scores.sensitivity("replace")


@given(rows=st.lists(row_of(BITS), min_size=1, max_size=12), width=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_marginals_from_products_are_the_marginals(rows: list[dict[str, object]], width: int) -> None:
    grid = Grid.of(BITS, None)
    supports = tuple(grid.supports(width, width))
    columns = {name: np.array([row[name] for row in rows]) for name in BITS}
    engine = Table(columns, BITS).engine
    fast = tables_of(
        grid, supports, engine.totals(compile_query(tables_query(grid, supports), BITS, level=True).program)
    )
    plain = [engine.totals(compile_query(grid.marginal(s), BITS, level=True).program) for s in supports]
    np.testing.assert_array_equal(fast, np.concatenate(plain))


@pytest.mark.parametrize("least", [1, 2])
def test_marginals_of_any_columns_from_products_are_the_marginals(least: int) -> None:
    """With missing values, values outside the edges, sides of different sizes and supports of different widths."""
    schema = Schema(
        {
            "f": Flag(),
            "g": Flag(missing=False),
            "k": Category("x", "y", "z"),
            "n": Integer(0, 9),
            "r": Real(0, 1, missing=1),
        }
    )
    rng = np.random.default_rng(5)
    columns = {
        "f": np.ma.array(rng.random(200) < 0.4, mask=rng.random(200) < 0.3),
        "g": rng.random(200) < 0.5,
        "k": rng.choice(np.array(["x", "y", "z", "?"], dtype=object), 200),
        "n": np.ma.array(rng.integers(0, 10, 200), mask=rng.random(200) < 0.2),
        "r": rng.random(200),
    }
    grid = Grid.of(schema, None, {"n": [2, 5, 8], "r": [0, 0.5, 1]})
    supports = tuple(grid.supports(3, least))
    query = tables_query(grid, supports)
    assert isinstance(query, Products)
    engine = Table(columns, schema).engine
    fast = tables_of(grid, supports, engine.totals(compile_query(query, schema, level=True).program))
    plain = [engine.totals(compile_query(grid.marginal(s), schema, level=True).program) for s in supports]
    np.testing.assert_array_equal(fast, np.concatenate(plain))
