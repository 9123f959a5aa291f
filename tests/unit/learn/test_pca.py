"""PCA: equal to scikit-learn's without noise, better than chance with it, honest about what the noise hides."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.decomposition as public
from sklearn.datasets import load_digits

from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, BudgetSpent
from dodona.learn.pca import PCA
from dodona.oracles.curator import Curator
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Category, Real, Schema
from dodona.testing.oracles import seeded_curator


def digits() -> tuple[np.ndarray, Table]:
    rows = load_digits().data
    return rows, Table(rows, Schema({f"x{i}": Real(0, 16) for i in range(64)}))


def captured(components: np.ndarray, rows: np.ndarray) -> float:
    covariance = np.cov(rows.T)
    best = np.linalg.eigvalsh(covariance)[-len(components) :].sum()
    return float(np.trace(components @ covariance @ components.T) / best)


def test_equals_scikit_learn_on_exact() -> None:
    rows, table = digits()
    ours, theirs = PCA(10).fit(Exact(table)), public.PCA(10, svd_solver="full").fit(rows)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-9)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, atol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(ours.noise_variance_, theirs.noise_variance_, rtol=1e-9)
    np.testing.assert_allclose(ours.transform(rows), theirs.transform(rows), atol=1e-7)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), atol=1e-7)
    assert ours.cost_.unit == "nothing"


def test_columns_in_unlike_units_keep_their_own_on_exact() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(500, 3)) * [1, 10, 100] + [0, -5, 1000]
    schema = Schema({"a": Real(0, 1), "b": Real(-5, 5), "c": Real(1000, 1100)})
    ours, theirs = PCA().fit(Exact(Table(rows, schema))), public.PCA().fit(rows)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, atol=2e-3)  # the grid is 2^-17 of the widest half range
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=2e-2)
    np.testing.assert_allclose(np.abs(ours.components_ @ theirs.components_.T), np.eye(3), atol=2e-3)


def test_noise_leaves_most_of_the_variance() -> None:
    rows, table = digits()
    curator = seeded_curator(table, Budget(epsilon=2, delta=1e-6), seed=1)
    model = PCA(10).fit(curator)
    assert captured(model.components_, rows) > 0.88
    assert model.cost_.share == pytest.approx(1, abs=1e-9)
    assert len(model.receipt_) == model.cost_.questions == 3
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(10), atol=1e-12)
    assert "above the noise" in model.summary()


def test_none_keeps_what_is_above_the_noise() -> None:
    rows, table = digits()
    assert PCA().fit(Exact(table)).n_components_ == np.linalg.matrix_rank(np.cov(rows.T))
    few = PCA().fit(seeded_curator(table, Budget(epsilon=1, delta=1e-6), seed=2))
    many = PCA().fit(seeded_curator(table, Budget(epsilon=10, delta=1e-6), seed=2))
    assert 1 <= few.n_components_ < many.n_components_ < 64
    none = PCA(3).fit(seeded_curator(table, Budget(epsilon=0.01, delta=1e-6), seed=2))
    assert none.n_components_ == 3
    assert np.count_nonzero(none.explained_variance_) < 3


def test_a_part_of_the_variance() -> None:
    rows, table = digits()
    ours, theirs = PCA(0.8).fit(Exact(table)), public.PCA(0.8, svd_solver="full").fit(rows)
    assert ours.n_components_ == theirs.n_components_


def test_share_leaves_the_rest() -> None:
    _, table = digits()
    curator = Curator(table, Budget(epsilon=1, delta=1e-6))
    PCA(2, share=0.25).fit(curator)
    assert curator.left == pytest.approx(0.75 * float(curator.budget.total), rel=1e-9)
    with pytest.raises(BudgetSpent):
        PCA(2, share=0.9).fit(curator)


def test_a_pure_budget() -> None:
    rows, table = digits()
    model = PCA(5).fit(seeded_curator(table, Budget(epsilon=1000), seed=3))
    assert captured(model.components_, rows) > 0.9
    assert model.cost_.unit == "epsilon"


@pytest.mark.parametrize("wanted", [0, 65, 1.5, True, "all", -1])
def test_impossible_components_are_refused_before_any_charge(wanted: object) -> None:
    _, table = digits()
    curator = Curator(table, Budget(epsilon=1, delta=1e-6))
    with pytest.raises(BadQuery, match="n_components"):
        PCA(wanted).fit(curator)  # type: ignore[arg-type]
    assert curator.left == float(curator.budget.total)


def test_arrays_need_epsilon_and_bounds() -> None:
    rows, _ = digits()
    with pytest.raises(BadEffort, match="epsilon"):
        PCA(2, bounds=(0, 16)).fit(rows)
    with pytest.raises(BadEffort, match="bounds"):
        PCA(2, epsilon=1).fit(rows)


def test_listed_values_become_features() -> None:
    columns = {"x": np.linspace(0, 1, 100), "c": np.array(["a", "b"] * 50)}
    table = Table(columns, Schema({"x": Real(0, 1), "c": Category("a", "b")}))
    model = PCA(1).fit(Exact(table))
    np.testing.assert_allclose(model.components_, [[0, 1, -1]] / np.sqrt(2), atol=0.02)
    assert model.transform({"x": 0}.keys() and _frame(columns)).shape == (100, 1)


def _frame(columns: dict[str, np.ndarray]) -> object:
    import pandas as pd

    return pd.DataFrame(columns)


def test_plan_tells_before_spending() -> None:
    _, table = digits()
    curator = Curator(table, Budget(epsilon=1, delta=1e-6))
    told = PCA(5, share=0.5).plan(curator)
    assert told.price == pytest.approx(0.5 * float(curator.budget.total), rel=1e-6)
    assert "1,797 rows" in told.what
    assert curator.left == float(curator.budget.total)
    alone = PCA(5, epsilon=1, delta=1e-6, bounds=(0, 16))
    small, large = alone.plan(1000, 64), alone.plan(1_000_000, 64)
    assert not small.feasible
    assert large.feasible
    assert small.rows_needed == pytest.approx(large.rows_needed, rel=0.01)
    assert "needs about" in str(small)
    with pytest.raises(BadEffort, match="n_features"):
        alone.plan(1000)
    with pytest.raises(BadEffort, match="rows"):
        alone.plan(0, 4)


def test_inverse_transform_and_score() -> None:
    rows, table = digits()
    model = PCA(64).fit(Exact(table))
    np.testing.assert_allclose(model.inverse_transform(model.transform(rows)), rows, atol=1e-9)
    assert model.score(rows) == pytest.approx(0, abs=1e-9)
    fewer = PCA(10).fit(Exact(table))
    left_out = np.sum(np.sort(np.linalg.eigvalsh(np.cov(rows.T, bias=True)))[:-10])
    assert fewer.score(rows) == pytest.approx(-left_out, rel=1e-6)
    with pytest.raises(ValueError, match="10 columns"):
        fewer.inverse_transform(rows)
