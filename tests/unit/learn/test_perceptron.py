"""The perceptron: separates on an exact oracle, stops by the paper's rule, keeps to its budget, refuses cleanly."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dodona as dd
from dodona.errors import BadEffort, BadQuery, BudgetSpent
from dodona.learn import Perceptron
from dodona.testing import seeded_curator

SCHEMA = dd.Schema({"u": dd.Real(-1, 1), "v": dd.Real(-1, 1), "label": dd.Category("no", "yes")})


def separable(rows: int = 2000, margin: float = 0.15) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (4 * rows, 2))
    score = 0.8 * points[:, 0] - 0.5 * points[:, 1] + 0.2
    kept = np.abs(score) > margin
    points, score = points[kept][:rows], score[kept][:rows]
    return pd.DataFrame({"u": points[:, 0], "v": points[:, 1], "label": np.where(score > 0, "yes", "no")})


def test_exact_separates_and_stops_when_nothing_is_misclassified() -> None:
    data = separable()
    model = Perceptron().fit(dd.Exact(dd.Table(data, SCHEMA)), y="label")
    assert (model.predict(data[["u", "v"]]) == data["label"]).all()
    assert model.n_iter_ < 100
    assert model.misclassified_[-1].max() == 0


def test_counts_reported_are_those_of_the_rounds() -> None:
    """On an exact oracle the first later round counts the rows that the nearest class mean gets wrong."""
    data = separable()
    model = Perceptron(max_iter=2).fit(dd.Exact(dd.Table(data, SCHEMA)), y="label")
    assert model.misclassified_.shape == (1, 1)
    assert 0 < model.misclassified_[0, 0] < len(data) / 4


def test_noise_allows_one_round_on_few_rows_and_more_on_many() -> None:
    few, many = separable(300), separable(20_000)
    shy = seeded_curator(dd.Table(few, SCHEMA), dd.Budget(epsilon=0.5, delta=1e-6), 1)
    assert Perceptron().fit(shy, y="label").n_iter_ == 1
    bold = seeded_curator(dd.Table(many, SCHEMA), dd.Budget(epsilon=2, delta=1e-6), 1)
    model = Perceptron().fit(bold, y="label")
    assert model.n_iter_ > 1
    assert (model.predict(many[["u", "v"]]) == many["label"]).mean() > 0.97


def test_stopping_early_leaves_the_rest_unspent() -> None:
    data = separable(40_000, margin=0.3)
    curator = seeded_curator(dd.Table(data, SCHEMA), dd.Budget(epsilon=2, delta=1e-6), 2)
    model = Perceptron(share=0.5).fit(curator, y="label")
    assert model.misclassified_[-1, 0] < 0.02 * len(data)
    assert model.cost_.share < 0.5
    assert curator.left > curator.budget.portion(1) / 2


def test_many_classes_one_against_the_rest() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[-0.6, -0.4], [0.6, -0.4], [0.0, 0.6]])
    y = rng.integers(0, 3, 6000)
    points = np.clip(centres[y] + 0.15 * rng.normal(size=(6000, 2)), -1, 1)
    model = Perceptron(epsilon=1, delta=1e-6, bounds=(-1, 1), classes=[0, 1, 2]).fit(points, y)
    assert model.coef_.shape == (3, 2)
    assert model.decision_function(points[:5]).shape == (5, 3)
    assert model.score(points, y) > 0.95


@pytest.mark.parametrize("problem", ["one class", "no classes", "no epsilon", "no bounds", "NaN"])
def test_bad_input_is_refused(problem: str) -> None:
    points, y = np.zeros((20, 2)), np.arange(20) % 2
    settings = {"epsilon": 1, "delta": 1e-6, "bounds": (-1, 1), "classes": [0, 1]}
    expected: type[Exception] = BadEffort
    if problem == "one class":
        settings["classes"], expected = [0], ValueError
    elif problem == "no classes":
        settings["classes"] = None
    elif problem == "no epsilon":
        settings["epsilon"] = None
    elif problem == "no bounds":
        settings["bounds"] = None
    else:
        points[0, 0], expected = np.nan, ValueError
    with pytest.raises(expected):
        Perceptron(**settings).fit(points, y)


def test_a_fit_that_does_not_fit_the_budget_charges_nothing() -> None:
    curator = seeded_curator(dd.Table(separable(), SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 0)
    curator.ask("u", share=0.6)
    left = curator.left
    with pytest.raises(BudgetSpent):
        Perceptron(share=0.6).fit(curator, y="label")
    assert curator.left == left


def test_plan_costs_nothing_and_sees_few_rows_coming() -> None:
    few = seeded_curator(dd.Table(separable(50), SCHEMA), dd.Budget(epsilon=0.1, delta=1e-6), 0)
    many = seeded_curator(dd.Table(separable(20_000), SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 0)
    before = many.left
    outlook = Perceptron().plan(many, y="label")
    assert outlook.feasible
    assert many.left == before
    assert "misclassified rows" in str(outlook)
    lost = Perceptron().plan(few, y="label")
    assert not lost.feasible
    assert lost.rows_needed > 50


def test_one_class_in_the_schema_is_refused_and_not_charged() -> None:
    schema = dd.Schema({"u": dd.Real(-1, 1), "label": dd.Category("yes")})
    table = dd.Table({"u": np.zeros(10), "label": np.array(["yes"] * 10)}, schema)
    curator = seeded_curator(table, dd.Budget(epsilon=1, delta=1e-6), 0)
    before = curator.left
    with pytest.raises(BadQuery, match="two classes"):
        Perceptron().fit(curator, y="label")
    assert curator.left == before
