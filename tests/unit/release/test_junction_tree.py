"""The junction tree: exact against the whole table, fitted to what was asked, and its rows follow it."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dodona.concepts.grid import Grid, Misfit
from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.oracles.exact import Exact
from dodona.oracles.wire import candidates_of
from dodona.privacy.budget import Budget
from dodona.query.schema import Category, Flag, Integer, Schema
from dodona.release import conjunctions, plan_conjunctions
from dodona.release._conjunctions.tree import on_simplex, smoothed
from dodona.synopses import load
from dodona.synopses._tree import Levels, View, cells_of
from dodona.synopses.junction import Fitted
from dodona.testing.oracles import seeded_curator

Floats = NDArray[np.float64]
LEVELS = Levels(
    (
        ((0, 1, 2, 3, 4, 5), (0, 2, 5)),
        ((0, 1, 2, 3), (0, 2)),
        ((0, 1, 2),),
        ((0, 1, 2, 3, 4), (0, 1, 3), (0, 3)),
        ((0, 1),),
    )
)
WHOLE: View = tuple((i, 0) for i in range(5))
ASKED: list[View] = [
    ((0, 1), (1, 0)),
    ((1, 1), (2, 0)),
    ((2, 0), (3, 1)),
    ((0, 0), (3, 2)),
    ((3, 0), (4, 0)),
]


def truth() -> Floats:
    shape = LEVELS.shape(WHOLE)
    return np.random.default_rng(0).dirichlet(np.full(math.prod(shape), 0.3)).reshape(shape)


def fitted(sweeps: int) -> Fitted:
    joint = truth()
    ones = [LEVELS.reduced(joint, WHOLE, ((i, 0),)) for i in range(5)]
    model = Fitted(LEVELS, ones)
    for view in [*ASKED, *(((i, 0),) for i in range(5))]:
        model.add(view, LEVELS.reduced(joint, WHOLE, view), 1e-12)
    model.fit(sweeps)
    return model


def every_view() -> list[View]:
    columns = range(len(LEVELS.starts))
    return [
        tuple(zip(chosen, levels, strict=True))
        for width in (1, 2, 3)
        for chosen in itertools.combinations(columns, width)
        for levels in itertools.product(*(range(len(LEVELS.starts[i])) for i in chosen))
    ]


def test_marginals_are_those_of_the_product_of_its_factors() -> None:
    model = fitted(5)
    joint = np.ones(LEVELS.shape(WHOLE))
    for i in range(5):
        joint = joint * LEVELS.spread(LEVELS.reduced(truth(), WHOLE, ((i, 0),)), ((i, 0),), WHOLE)
    for factor in model.factors:
        joint = joint * LEVELS.spread(np.exp(factor.powers), factor.view, WHOLE)
    joint /= joint.sum()
    for view in every_view():
        np.testing.assert_allclose(model.model.marginal(view), LEVELS.reduced(joint, WHOLE, view), atol=1e-12)


def test_sweeps_fit_what_was_asked_exactly_where_there_is_no_noise() -> None:
    model = fitted(150)
    for view in ASKED:
        np.testing.assert_allclose(model.model.marginal(view), LEVELS.reduced(truth(), WHOLE, view), atol=1e-6)


def test_noise_is_not_fitted() -> None:
    """The noisier the answer, the nearer the model stays to independence."""
    ones = [np.full(4, 0.25), np.full(4, 0.25)]
    off = []
    for variance in (1e-8, 1.0):
        model = Fitted(Levels((((0, 1, 2, 3),),) * 2), ones)
        model.add(((0, 0), (1, 0)), np.eye(4) / 4, variance)
        model.fit(20)
        off.append(float(np.abs(model.model.marginal(((0, 0), (1, 0))) - 1 / 16).sum()))
    assert off[0] > 1.4
    assert off[1] < 0.5


def test_the_same_marginal_twice_is_joined_by_inverse_variance() -> None:
    model = Fitted(Levels((((0, 1),),)), [np.full(2, 0.5)])
    model.add(((0, 0),), np.array([0.2, 0.8]), 1.0)
    model.add(((0, 0),), np.array([0.5, 0.5]), 0.5)
    assert model.factors[0].table == pytest.approx([0.4, 0.6])
    assert model.factors[0].variance == pytest.approx(1 / 3)


def test_a_coarser_level_costs_no_cells_beside_a_finer_one() -> None:
    alone = cells_of(LEVELS, [((0, 0), (3, 0))])
    assert cells_of(LEVELS, [((0, 0), (3, 0)), ((0, 1), (3, 2))]) == alone
    assert cells_of(LEVELS, [((0, 1), (3, 2))]) < alone


def test_rows_keep_to_the_model_within_whole_numbers_on_the_first_clique() -> None:
    model = fitted(20).model
    rows = model.sample(10_000, np.random.default_rng(3))
    first = tuple(model.tree.views[0])
    counts = np.zeros(LEVELS.shape(first))
    at = [np.searchsorted(LEVELS.starts[i][level], rows[:, i], side="right") - 1 for i, level in first]
    np.add.at(counts, tuple(at), 1)
    assert np.abs(counts - model.marginal(first) * 10_000).max() < 1 + 1e-6
    for a, b in itertools.combinations(range(5), 2):
        view = ((a, 0), (b, 0))
        found = np.zeros(LEVELS.shape(view))
        np.add.at(found, (rows[:, a], rows[:, b]), 1e-4)
        assert np.abs(found - model.marginal(view)).max() < 0.02  # five standard deviations of a fair draw


def test_runs_are_found_where_there_are_some_and_left_alone_where_not() -> None:
    rng = np.random.default_rng(4)
    steps = np.repeat([0.02, 0.005, 0.0], [20, 100, 40])
    noisy = steps + 0.003 * rng.standard_normal(160)
    assert np.abs(smoothed(noisy, 9e-6) - steps).sum() < 0.5 * np.abs(noisy - steps).sum()
    rough = rng.dirichlet(np.full(160, 0.2))
    np.testing.assert_array_equal(smoothed(rough, 1e-12), rough)


def test_the_nearest_distribution() -> None:
    assert on_simplex(np.array([0.5, 0.7, -0.3])) == pytest.approx([0.4, 0.6, 0.0])


SIZES = (30, 2, 12, 3, 20, 5, 2, 16, 4, 3, 8, 6)


def cells(rows: int) -> NDArray[np.int64]:
    """Twelve columns of 2 to 30 cells, each like the one before."""
    rng, columns = np.random.default_rng(5), []
    hidden = rng.random(rows)
    for size in SIZES:
        hidden = np.where(rng.random(rows) < 0.75, hidden, rng.random(rows))
        columns.append(np.floor(hidden * size).astype(np.int64))
    return np.stack(columns, axis=1)


def mixed(rows: int) -> Table:
    """These as a table."""
    schema = Schema({f"c{j}": Category(*range(size), missing=0) for j, size in enumerate(SIZES)})
    columns = {f"c{j}": column for j, column in enumerate(cells(rows).T)}
    return Table(columns, schema, neighbours="add-remove", rows=rows, name="mixed")


def errors(table: Table, method: str) -> tuple[float, float]:
    """Mean total variation of pairs: of the model, and of rows drawn from it."""
    curator = seeded_curator(table, Budget(epsilon=1, delta=1e-9), 3)
    body = conjunctions(curator, width=3, share=1, method=method).body
    assert curator.left == pytest.approx(0, abs=1e-6)
    codes = cells(20_000)
    drawn, sizes, found = body.sample(len(codes), np.random.default_rng(0)), body.grid.sizes, []  # type: ignore[attr-defined]
    for pair in itertools.combinations(range(len(sizes)), 2):
        shape = [sizes[i] for i in pair]
        exact, made = (
            np.bincount(np.ravel_multi_index(x[:, pair].T, shape), minlength=math.prod(shape)) / len(codes)
            for x in (codes, drawn)
        )
        told = body.table(pair) / len(codes)  # type: ignore[attr-defined]
        found.append((np.abs(told - exact).sum() / 2, np.abs(made - exact).sum() / 2))
    model, rows = np.mean(found, axis=0)
    return float(model), float(rows)


@pytest.mark.slow
def test_it_is_ahead_of_the_mixture_and_its_rows_follow() -> None:
    table = mixed(20_000)
    model, rows = errors(table, "tree")
    assert model < 0.8 * errors(table, "adaptive")[0]
    assert rows < 1.25 * model


def test_it_is_planned_and_kept_in_a_file(tmp_path: Path) -> None:
    curator = seeded_curator(mixed(3000), Budget(epsilon=1, delta=1e-9), 3)
    names = ["c0", "c1", "c2", "c4"]
    assert "tree" in [
        outlook.method for outlook in plan_conjunctions(curator, width=2, columns=names, method="tree", share=1)
    ]
    synopsis = conjunctions(curator, width=2, columns=names, share=1, method="tree")
    assert "estimated" in synopsis.header.accuracy
    synopsis.save(tmp_path / "t.synopsis")
    again = load(tmp_path / "t.synopsis")
    for pair in itertools.combinations(range(4), 2):
        np.testing.assert_array_equal(again.body.table(pair), synopsis.body.table(pair))  # type: ignore[attr-defined]
    assert set(again.sample(50, np.random.default_rng(0))) == set(names)


def test_it_is_the_first_of_the_plan_for_many_columns_of_many_cells() -> None:
    curator = seeded_curator(mixed(20_000), Budget(epsilon=0.1, delta=1e-9), 3)
    plan = plan_conjunctions(curator, width=3, share=1)
    assert [plan[0].method, plan[0].outcome.name] == ["tree", "FEASIBLE"]
    assert "not by a theorem" in plan[0].why


def test_joined_cells_count_what_their_cells_count() -> None:
    schema = Schema({"k": Category("x", "y", "z"), "v": Integer(0, 8), "f": Flag()})
    rng = np.random.default_rng(6)
    table = Table(
        {
            "k": rng.choice(np.array(["x", "y", "z", None], dtype=object), 500),
            "v": np.where(rng.random(500) < 0.1, np.nan, rng.integers(0, 9, 500)),
            "f": rng.choice(np.array([True, False, None], dtype=object), 500),
        },
        schema,
        name="t",
    )
    grid = Grid.of(schema, None, {"v": [0, 2, 4, 8]})
    groups = ((0, (0, 2)), (1, (0, 1, 3)), (2, (0, 1)))
    joined, truth = grid.with_joined(groups), Exact(table)
    assert joined.columns == grid.columns
    for place, (i, starts) in enumerate(groups, len(grid.sides)):
        fine = np.asarray(truth.ask(grid.marginal((i,))).total).ravel()
        coarse = np.asarray(truth.ask(joined.marginal((place,))).total).ravel()
        np.testing.assert_array_equal(coarse, np.add.reduceat(fine, starts))


def test_joined_cells_travel_and_are_checked() -> None:
    table = mixed(50)
    grid = Grid.of(table.schema, None).with_joined(((0, (0, 10, 20)), (4, (0, 3))))
    sets = ((1, 12), (3, 13))
    scores = Misfit(grid, sets, np.arange(12, dtype=np.int64), np.zeros(2, dtype=np.int64))
    body = json.loads(json.dumps(scores.to_json()))
    again = candidates_of(body, Exact(table))
    assert again.to_json() == scores.to_json()
    assert isinstance(again, Misfit)
    assert again.grid == grid
    for wrong in ([[0, [1, 2]]], [[0, [0, 30]]], [[99, [0]]], [[0, [0, 5, 5]]], [[0]], "no", [[0, [0]]] * 200):
        with pytest.raises(BadQuery):
            candidates_of({"misfit": {**body["misfit"], "joined": wrong}}, Exact(table))
