"""SVD: equal to scikit-learn's TruncatedSVD without noise, close to it with little."""

from __future__ import annotations

import numpy as np
import sklearn.decomposition as public
from sklearn.datasets import load_digits

from dodona.engines.table import Table
from dodona.learn.pca import SVD
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Real, Schema
from dodona.testing.oracles import seeded_curator

ROWS = load_digits().data
TABLE = Table(ROWS, Schema({f"x{i}": Real(0, 16) for i in range(64)}))


def test_equals_truncated_svd_on_exact() -> None:
    ours, theirs = SVD(8).fit(Exact(TABLE)), public.TruncatedSVD(8, algorithm="arpack").fit(ROWS)
    np.testing.assert_allclose(np.abs(ours.components_ @ theirs.components_.T), np.eye(8), atol=1e-9)
    np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(ours.transform(ROWS)), np.abs(theirs.transform(ROWS)), atol=1e-7)


def test_noise_keeps_the_leading_direction() -> None:
    ours = SVD(3).fit(seeded_curator(TABLE, Budget(epsilon=1, delta=1e-6), seed=4))
    theirs = public.TruncatedSVD(3, algorithm="arpack").fit(ROWS)
    assert abs(ours.components_[0] @ theirs.components_[0]) > 0.97
    np.testing.assert_allclose(ours.singular_values_[0], theirs.singular_values_[0], rtol=0.05)


def test_none_keeps_what_is_above_the_noise() -> None:
    kept = SVD().fit(seeded_curator(TABLE, Budget(epsilon=1, delta=1e-6), seed=5))
    assert 1 <= kept.n_components_ < 20
    assert "above the noise" in str(kept)


def test_inverse_of_all_components_is_the_rows() -> None:
    model = SVD(64).fit(Exact(TABLE))
    np.testing.assert_allclose(model.inverse_transform(model.transform(ROWS)), ROWS, atol=1e-9)
