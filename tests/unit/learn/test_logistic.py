"""Logistic regression: maximum likelihood on an exact oracle; with noise, probabilities that mean something."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.multiclass import OneVsRestClassifier

import dodona as dd
from dodona.errors import BadQuery
from dodona.learn import LogisticRegression
from dodona.testing import seeded_curator

SCHEMA = dd.Schema({"u": dd.Real(-2, 2), "v": dd.Real(0, 10), "label": dd.Category("no", "yes")})


def sloping(rows: int = 3000) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    u, v = np.clip(rng.normal(0.3, 0.8, rows), -2, 2), rng.uniform(0, 10, rows)
    chance = 1 / (1 + np.exp(-(1.5 * u - 0.4 * (v - 4))))
    return pd.DataFrame({"u": u, "v": v, "label": np.where(rng.random(rows) < chance, "yes", "no")})


def test_exact_is_maximum_likelihood() -> None:
    data = sloping()
    model = LogisticRegression(max_iter=300, tol=1e-7).fit(dd.Exact(dd.Table(data, SCHEMA)), y="label")
    scaled = np.column_stack([data["u"] / 2, (data["v"] - 5) / 5])
    plain = Plain(C=np.inf, tol=1e-10).fit(scaled, data["label"])
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-3)
    np.testing.assert_allclose(model.intercept_, plain.intercept_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.predict_proba(data[["u", "v"]]), plain.predict_proba(scaled), atol=1e-3)


def test_exact_with_three_classes_is_one_against_the_rest() -> None:
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 1500)
    points = np.clip(np.array([[-0.4, 0], [0.4, 0], [0, 0.5]])[y] + 0.4 * rng.normal(size=(1500, 2)), -1, 1)
    schema = dd.Schema({"a": dd.Real(-1, 1), "b": dd.Real(-1, 1), "c": dd.Category(0, 1, 2)})
    table = dd.Table({"a": points[:, 0], "b": points[:, 1], "c": y}, schema)
    model = LogisticRegression(max_iter=300, tol=1e-6).fit(dd.Exact(table), y="c")
    plain = OneVsRestClassifier(Plain(C=np.inf, tol=1e-10)).fit(points, y)
    np.testing.assert_allclose(model.coef_, np.vstack([one.coef_ for one in plain.estimators_]), atol=0.02)


def test_noise_is_averaged_out_on_many_rows() -> None:
    data = sloping(30_000)
    curator = seeded_curator(dd.Table(data, SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 5)
    model = LogisticRegression().fit(curator, y="label")
    scaled = np.column_stack([data["u"] / 2, (data["v"] - 5) / 5])
    plain = Plain(C=np.inf).fit(scaled, data["label"])
    ours, theirs = model.predict_proba(data[["u", "v"]])[:, 1], plain.predict_proba(scaled)[:, 1]
    assert np.abs(ours - theirs).mean() < 0.05
    np.testing.assert_allclose(model.predict_proba(data[["u", "v"]]).sum(axis=1), 1.0)


def test_rounds_follow_the_noise() -> None:
    data = sloping(3000)
    rounds = {}
    for epsilon in (0.05, 50):
        curator = seeded_curator(dd.Table(data, SCHEMA), dd.Budget(epsilon=epsilon, delta=1e-6), 5)
        rounds[epsilon] = LogisticRegression().fit(curator, y="label").n_iter_
    assert rounds[0.05] == 20
    assert rounds[50] == 40


def test_the_whole_share_is_spent_and_no_more() -> None:
    curator = seeded_curator(dd.Table(sloping(), SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 5)
    model = LogisticRegression(share=0.25).fit(curator, y="label")
    assert model.cost_.share == pytest.approx(0.25, rel=1e-6)
    assert model.cost_.share <= 0.25
    assert f"{model.n_iter_} rounds" in model.summary()


def test_missing_values_count_as_the_middle() -> None:
    data = sloping(500)
    holes = data.copy()
    holes.loc[:99, "u"] = np.nan
    filled = holes.fillna({"u": 0.0})
    schema = {"max_iter": 20}
    ours = LogisticRegression(**schema).fit(dd.Exact(dd.Table(holes, SCHEMA)), y="label")
    same = LogisticRegression(**schema).fit(dd.Exact(dd.Table(filled, SCHEMA)), y="label")
    np.testing.assert_allclose(ours.coef_, same.coef_)
    np.testing.assert_allclose(ours.predict_proba(holes[["u", "v"]]), same.predict_proba(filled[["u", "v"]]))


def test_stated_classes_are_kept_also_where_none_occurs() -> None:
    points, y = np.random.default_rng(0).uniform(-1, 1, (400, 2)), np.array(["a", "b"] * 200)
    model = LogisticRegression(epsilon=5, delta=1e-6, bounds=(-1, 1), classes=["a", "b", "c"]).fit(points, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.predict_proba(points[:3]).shape == (3, 3)


def test_a_number_is_no_target() -> None:
    curator = seeded_curator(dd.Table(sloping(), SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 5)
    before = curator.left
    with pytest.raises(BadQuery, match="listed values"):
        LogisticRegression().fit(curator, y="v")
    assert curator.left == before


def test_no_rounds_are_refused_and_not_charged() -> None:
    curator = seeded_curator(dd.Table(sloping(), SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 5)
    before = curator.left
    with pytest.raises(BadQuery, match="max_iter"):
        LogisticRegression(max_iter=0).fit(curator, y="label")
    assert curator.left == before
