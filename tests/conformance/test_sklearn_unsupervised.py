"""The unsupervised estimators are scikit-learn estimators: its own checks, a pipeline and a grid search."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dodona.engines.table import Table
from dodona.learn.kmeans import KMeans
from dodona.learn.pca import PCA, SVD
from dodona.learn.scaler import StandardScaler
from dodona.oracles.curator import Curator
from dodona.privacy.budget import Budget
from dodona.query.schema import Real, Schema
from tests.support.estimators import SameNoise

LOUD = {"epsilon": 100_000, "delta": 1e-6, "bounds": (-200, 200)}  # the checks are about manners, not about noise


class SamePCA(SameNoise, PCA):
    """Its noise is the same at every fit."""


class SameSVD(SameNoise, SVD):
    """Its noise is the same at every fit."""


class SameKMeans(SameNoise, KMeans):
    """Its noise is the same at every fit."""


class SameScaler(SameNoise, StandardScaler):
    """Its noise is the same at every fit."""


ESTIMATORS = [SamePCA(**LOUD), SameSVD(**LOUD), SameKMeans(n_clusters=3, random_state=0, **LOUD), SameScaler(**LOUD)]
UNLABELLED = {"check_clustering": "labels_ would be a fact about each row; rows in hand are labelled by predict"}


def excluded(estimator: object) -> dict[str, str]:
    """Checks that cannot hold here, each with its reason."""
    return UNLABELLED if isinstance(estimator, KMeans) else {}


# scikit-learn itself skips most checks of equal results after two fits: the estimators say that they are not
# deterministic.
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=excluded)
def test_scikit_learns_own_checks(estimator: object, check: object) -> None:
    check(estimator)  # type: ignore[operator]


def points(rows: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = np.array([[-1.0, 0, 0, 0], [1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    return np.clip(centres[rng.integers(0, 3, rows)] + 0.1 * rng.normal(size=(rows, 4)), -2, 2)


def test_a_pipeline_of_arrays() -> None:
    budget = {"epsilon": 2, "delta": 1e-6}
    line = make_pipeline(
        StandardScaler(bounds=(-2, 2), **budget),
        PCA(2, bounds=(-6, 6), **budget),
        KMeans(3, bounds=(-6, 6), random_state=0, **budget),
    )
    labels = line.fit_predict(points())
    assert len(np.unique(labels)) == 3
    assert list(line[:-1].get_feature_names_out()) == ["pca0", "pca1"]


def test_a_pipeline_over_one_oracle_shares_its_budget() -> None:
    rows = points()
    schema = Schema({name: Real(-2, 2) for name in "abcd"})
    curator = Curator(Table(rows, schema), Budget(epsilon=4, delta=1e-6))
    line = Pipeline([("pca", PCA(2, share=0.5)), ("kmeans", KMeans(3, share=0.5, random_state=0))])
    line.fit(curator)
    assert curator.left == pytest.approx(0, abs=1e-9)
    assert line["kmeans"].cluster_centers_.shape == (3, 2)
    assert line["kmeans"].feature_names_in_.tolist() == ["pc1", "pc2"]


def test_a_grid_search_over_the_number_of_clusters() -> None:
    model = KMeans(epsilon=2, delta=1e-6, bounds=(-2, 2), random_state=0)
    search = GridSearchCV(model, {"n_clusters": [1, 3]}, cv=2).fit(points())
    assert search.best_params_ == {"n_clusters": 3}
