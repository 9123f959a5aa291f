"""Gaussian naive Bayes: scikit-learn's on an exact oracle; with noise, only as much detail as the noise leaves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB as Plain

import dodona as dd
from dodona.errors import BadQuery
from dodona.learn import GaussianNB
from dodona.learn.naive_bayes import _means, _shrunk
from dodona.testing import seeded_curator

SCHEMA = dd.Schema({"a": dd.Real(-1, 1), "b": dd.Real(0, 4), "kind": dd.Category("x", "y", "z")})


def clouds(rows: int = 2000) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    kind = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    a = np.clip(np.array([-0.5, 0.1, 0.6])[kind] + np.array([0.1, 0.2, 0.15])[kind] * rng.normal(size=rows), -1, 1)
    b = np.clip(np.array([1.0, 3.0, 2.0])[kind] + 0.5 * rng.normal(size=rows), 0, 4)
    return {"a": a, "b": b, "kind": np.array(["x", "y", "z"])[kind]}


def test_exact_is_scikit_learns() -> None:
    data = clouds()
    model = GaussianNB().fit(dd.Exact(dd.Table(data, SCHEMA)), y="kind")
    scaled = np.column_stack([data["a"], data["b"] / 2 - 1])
    plain = Plain().fit(scaled, data["kind"])
    np.testing.assert_allclose(model.theta_, plain.theta_, atol=1e-5)
    np.testing.assert_allclose(model.var_, plain.var_, atol=1e-5)
    np.testing.assert_allclose(model.class_prior_, plain.class_prior_, atol=1e-9)
    rows = np.column_stack([data["a"], data["b"]])[:50]
    np.testing.assert_allclose(model.predict_proba(rows), plain.predict_proba(scaled[:50]), atol=1e-3)


def test_with_noise_it_keeps_what_is_known() -> None:
    data = clouds(20_000)
    rows = np.column_stack([data["a"], data["b"]])
    curator = seeded_curator(dd.Table(data, SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 0)
    model = GaussianNB().fit(curator, y="kind")
    assert model.score(rows, data["kind"]) > 0.93
    assert "by class and feature" in model.summary()
    assert model.cost_.share == pytest.approx(1.0, rel=1e-6)


def test_under_strong_noise_variances_are_not_asked_for() -> None:
    curator = seeded_curator(dd.Table(clouds(60), SCHEMA), dd.Budget(epsilon=0.1, delta=1e-6), 0)
    outlook = GaussianNB().plan(curator, y="kind")
    assert not any("squares" in part.what for part in outlook.parts)
    model = GaussianNB().fit(curator, y="kind")
    assert len(np.unique(model.var_)) == 1
    assert len(model.receipt_) == 4
    assert (model.var_ > 0).all()


def test_shrinking_vanishes_without_noise_and_takes_all_of_pure_noise() -> None:
    rng = np.random.default_rng(0)
    sums, counts = rng.normal(size=(3, 5)), np.array([10.0, 20.0, 30.0])
    means, doubt = _means(sums, np.zeros_like(sums), counts)
    np.testing.assert_allclose(means, sums / counts[:, None])
    assert not doubt.any()
    variances = rng.uniform(0.1, 1, (3, 5))
    np.testing.assert_allclose(_shrunk(variances, np.zeros_like(variances), counts / 60), variances)
    noisy = 0.3 + rng.normal(0, 1, (3, 40))
    flat = _shrunk(noisy, np.ones_like(noisy), counts / 60)
    assert np.ptp(flat) < 0.3 * np.ptp(noisy)
    assert (flat > 0).all()


def test_an_empty_class_is_a_class_that_is_never_seen() -> None:
    data = clouds(500)
    data["kind"] = np.where(data["kind"] == "z", "x", data["kind"])
    model = GaussianNB().fit(dd.Exact(dd.Table(data, SCHEMA)), y="kind")
    assert np.isfinite(model.theta_).all()
    assert np.isfinite(model.var_).all()
    assert "z" not in model.predict(np.column_stack([data["a"], data["b"]]))


def test_a_target_that_is_no_column_is_refused() -> None:
    with pytest.raises(BadQuery, match="must name a column"):
        GaussianNB().fit(dd.Exact(dd.Table(clouds(), SCHEMA)), y="shape")
