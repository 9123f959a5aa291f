"""A linear support vector machine: the smooth hinge's own minimum without noise, and few rows far away with it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.optimize import minimize

import dodona as dd
from dodona.learn import LinearSVC
from dodona.testing import seeded_curator

SCHEMA = dd.Schema({"u": dd.Real(-1, 1), "v": dd.Real(-1, 1), "label": dd.Category("no", "yes")})


def two_clouds(rows: int, seed: int = 1) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, rows)
    points = np.clip(np.where(y, 0.3, -0.2)[:, None] + 0.3 * random.normal(size=(rows, 2)), -1, 1)
    return pd.DataFrame({"u": points[:, 0], "v": points[:, 1], "label": np.where(y, "yes", "no")})


def test_exact_is_the_minimum_of_the_smooth_hinge() -> None:
    data = two_clouds(2000)
    model = LinearSVC(max_iter=300, tol=1e-7).fit(dd.Exact(dd.Table(data, SCHEMA)), y="label")
    points, signs = data[["u", "v"]].to_numpy(), np.where(data["label"] == "yes", 1.0, -1.0)

    def loss(w: np.ndarray) -> float:
        short = 1 - signs * (points @ w[:2] + w[2])
        return float(np.mean(np.where(short <= 0, 0.0, np.where(short < 1, short**2 / 2, short - 0.5))))

    best = minimize(loss, np.zeros(3), tol=1e-12)
    np.testing.assert_allclose([*model.coef_[0], model.intercept_[0]], best.x, atol=2e-3)


def test_noise_leaves_the_line_where_it_is() -> None:
    data, fresh = two_clouds(20_000), two_clouds(5000, 2)
    curator = seeded_curator(dd.Table(data, SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 5)
    exact = LinearSVC().fit(dd.Exact(dd.Table(data, SCHEMA)), y="label")
    model = LinearSVC().fit(curator, y="label")
    known = fresh[["u", "v"]]
    assert np.mean(model.predict(known) == exact.predict(known)) > 0.99
    assert model.decision_function(known).shape == (5000,)
    assert not hasattr(model, "predict_proba")


def test_three_classes_are_one_against_the_rest() -> None:
    random = np.random.default_rng(3)
    y = random.integers(0, 3, 6000)
    points = np.clip(np.array([[-0.5, 0], [0.5, 0], [0, 0.6]])[y] + 0.2 * random.normal(size=(6000, 2)), -1, 1)
    model = LinearSVC(epsilon=1, delta=1e-6, bounds=(-1, 1), classes=[0, 1, 2]).fit(points, y)
    assert model.coef_.shape == (3, 2)
    assert model.score(points, y) > 0.9
