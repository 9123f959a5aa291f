"""StandardScaler: scikit-learn's without noise; a floor of noise under every deviation."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.preprocessing as public

from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.learn.scaler import StandardScaler
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Category, Flag, Real, Schema
from dodona.testing.oracles import seeded_curator

RNG = np.random.default_rng(0)
ROWS = RNG.normal([3, 50], [1, 10], size=(5000, 2)).clip([-5, 0], [15, 100])
TABLE = Table(ROWS, Schema({"a": Real(-5, 15), "b": Real(0, 100)}))


def test_equals_scikit_learn_on_exact() -> None:
    ours, theirs = StandardScaler().fit(Exact(TABLE)), public.StandardScaler().fit(ROWS)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-5)
    np.testing.assert_allclose(ours.scale_, theirs.scale_, rtol=1e-4)
    np.testing.assert_allclose(ours.transform(ROWS), theirs.transform(ROWS), atol=1e-3)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(ROWS)), ROWS, atol=1e-9)
    assert list(ours.get_feature_names_out()) == ["a", "b"]


def test_noise_is_small_with_many_rows() -> None:
    ours = StandardScaler().fit(seeded_curator(TABLE, Budget(epsilon=1, delta=1e-6), seed=1))
    np.testing.assert_allclose(ours.mean_, ROWS.mean(axis=0), rtol=0.05)
    np.testing.assert_allclose(ours.scale_, ROWS.std(axis=0), rtol=0.3)
    assert ours.cost_.questions == 1


def test_a_deviation_lost_in_noise_is_at_least_the_noise() -> None:
    table = Table(np.full((50, 1), 0.5), Schema({"a": Real(0, 1)}))
    for seed in range(5):
        ours = StandardScaler().fit(seeded_curator(table, Budget(epsilon=0.5, delta=1e-6), seed=seed))
        assert ours.scale_[0] > 0.1
    assert StandardScaler().fit(Exact(table)).scale_[0] == 1.0


def test_settings_switch_halves_off() -> None:
    still = StandardScaler(with_mean=False).fit(Exact(TABLE)).transform(ROWS)
    assert still.mean(axis=0)[1] == pytest.approx(5, rel=0.05)
    wide = StandardScaler(with_std=False).fit(Exact(TABLE)).transform(ROWS)
    np.testing.assert_allclose(wide.std(axis=0), ROWS.std(axis=0), rtol=1e-6)


def test_an_oracle_is_scaled_too() -> None:
    exact = Exact(TABLE)
    ours = StandardScaler().fit(exact)
    view = ours.transform(exact)
    assert list(view.schema) == ["a", "b"]
    assert view.ask("a").mean == pytest.approx(0, abs=1e-4)
    assert view.ask("b * b").mean == pytest.approx(1, rel=1e-3)


def test_categories_are_refused() -> None:
    table = Table({"c": np.array(["x", "y"])}, Schema({"c": Category("x", "y")}))
    with pytest.raises(BadQuery, match="leave out c"):
        StandardScaler().fit(Exact(table))


def test_flags_count_as_numbers() -> None:
    table = Table({"f": np.array([True, False, True, True])}, Schema({"f": Flag()}))
    ours = StandardScaler().fit(Exact(table))
    assert ours.mean_[0] == pytest.approx(0.75)
    assert ours.var_[0] == pytest.approx(0.1875)
