"""Ridge regression: scikit-learn's closed form on an exact oracle; with noise, coefficients that stay sane."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression as PlainLeastSquares
from sklearn.linear_model import Ridge as Plain

import dodona as dd
from dodona.errors import BadEffort
from dodona.learn import LinearRegression, Ridge
from dodona.testing import seeded_curator

SCHEMA = dd.Schema({"a": dd.Real(-1, 1), "b": dd.Real(0, 100), "sex": dd.Category("f", "m"), "pay": dd.Real(-50, 150)})


def line(rows: int = 3000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, b, sex = rng.uniform(-1, 1, rows), rng.uniform(0, 100, rows), rng.integers(0, 2, rows)
    pay = 20 * a + 0.5 * b + 10 * sex + rng.normal(0, 3, rows)
    return pd.DataFrame({"a": a, "b": b, "sex": np.array(["f", "m"])[sex], "pay": pay})


@pytest.mark.parametrize("alpha", [0.001, 1.0, 300.0])
def test_exact_is_the_closed_form(alpha: float) -> None:
    data = line()
    model = Ridge(alpha=alpha).fit(dd.Exact(dd.Table(data, SCHEMA)), y="pay")
    columns = np.column_stack([data["a"], data["b"], data["sex"] == "f", data["sex"] == "m"]).astype(float)
    plain = Plain(alpha=alpha).fit(columns, data["pay"])
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-3, atol=1e-3)
    assert model.intercept_ == pytest.approx(plain.intercept_, abs=0.01)
    np.testing.assert_allclose(model.predict(data), plain.predict(columns), atol=0.01)


def test_without_a_penalty_it_is_least_squares() -> None:
    data = line()
    model = LinearRegression().fit(dd.Exact(dd.Table(data, SCHEMA)), y="pay")
    columns = np.column_stack([data["a"], data["b"], data["sex"] == "f", data["sex"] == "m"]).astype(float)
    plain = PlainLeastSquares().fit(columns, data["pay"])
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.predict(data), plain.predict(columns), atol=0.01)


def test_one_question_and_the_whole_share() -> None:
    curator = seeded_curator(dd.Table(line(20_000), SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 1)
    model = Ridge(share=0.5).fit(curator, y="pay")
    assert model.cost_.questions == 1
    assert model.cost_.share == pytest.approx(0.5, rel=1e-6)
    data = line(2000)
    assert model.score(data, data["pay"]) > 0.9


def test_coefficients_stay_bounded_under_strong_noise() -> None:
    data = line(200)
    curator = seeded_curator(dd.Table(data, SCHEMA), dd.Budget(epsilon=0.1, delta=1e-6), 2)
    outlook = Ridge(alpha=0.0).plan(curator, y="pay")
    assert not outlook.feasible
    model = Ridge(alpha=0.0).fit(curator, y="pay")
    assert np.abs(model.predict(data)).max() < 1000


def test_arrays_need_bounds_of_the_target_too() -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (5000, 2))
    y = points @ [1.0, -2.0] + 0.5
    with pytest.raises(BadEffort, match="bounds_y"):
        Ridge(epsilon=1, delta=1e-6, bounds=(-1, 1)).fit(points, y)
    model = Ridge(epsilon=1, delta=1e-6, bounds=(-1, 1), bounds_y=(-4, 4)).fit(points, y)
    assert model.score(points, y) > 0.95
    np.testing.assert_allclose(model.coef_, [1.0, -2.0], atol=0.2)


def test_errors_of_coefficients_are_told_where_noise_does_not_hide_them() -> None:
    """Each within what it says of the fit without noise (the law of margins judges how often); else infinite."""
    table = dd.Table(line(20_000), SCHEMA)
    exact = Ridge().fit(dd.Exact(table), y="pay")
    assert not exact.coef_error_.any()
    assert exact.intercept_error_ == 0
    assert "±" not in str(exact)
    strong = Ridge().fit(seeded_curator(dd.Table(line(200), SCHEMA), dd.Budget(epsilon=0.1, delta=1e-6), 3), y="pay")
    assert np.isinf(strong.coef_error_).all()
    assert "lost in noise (95%, estimated)" in str(strong)
    told = {name: replace(column, missing=column.low) for name, column in SCHEMA.items() if name != "sex"}
    stated = dd.Schema({**told, "sex": dd.Category("f", "m", missing="f")})
    curator = seeded_curator(dd.Table(line(20_000), stated), dd.Budget(epsilon=1, delta=1e-6), 3)
    model = Ridge().fit(curator, y="pay")
    assert (np.abs(model.coef_ - exact.coef_) <= 1.5 * model.coef_error_ + 0.05).all()  # and what the ball does
    assert (model.coef_error_ < [1.5, 0.05, 1, 1]).all()
    assert f"± {model.intercept_error_:.3g}; coef_error_ has the others (95%, estimated)" in str(model)
    assert "rows longer than 1.87" in str(model)


def test_the_weights_of_a_list_that_never_misses_sum_to_nothing_whatever_the_noise() -> None:
    stated = dd.Schema({**SCHEMA, "sex": dd.Category("f", "m", missing="f")})
    curator = seeded_curator(dd.Table(line(300), stated), dd.Budget(epsilon=1, delta=1e-6), 2)
    assert Ridge().fit(curator, y="pay").coef_[2:].sum() == pytest.approx(0, abs=1e-9)
