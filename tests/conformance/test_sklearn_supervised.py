"""The supervised estimators are scikit-learn estimators: its own checks, a pipeline and a grid search."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from dodona.learn import (
    ID3,
    BoostedTrees,
    GaussianNB,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Perceptron,
    Ridge,
)
from tests.support.estimators import SameNoise
from tests.support.labels import ToldLabels


class ToldPerceptron(SameNoise, ToldLabels, Perceptron):
    """Scikit-learn's checks state no classes."""


class ToldRegression(SameNoise, ToldLabels, LogisticRegression):
    """Scikit-learn's checks state no classes."""


class ToldBayes(SameNoise, ToldLabels, GaussianNB):
    """Scikit-learn's checks state no classes."""


class ToldVectors(SameNoise, ToldLabels, LinearSVC):
    """Scikit-learn's checks state no classes."""


class ToldBoosted(SameNoise, ToldLabels, BoostedTrees):
    """Scikit-learn's checks state no classes."""


class ToldTree(SameNoise, ToldLabels, ID3):
    """Scikit-learn's checks state no classes."""


class SameRidge(SameNoise, Ridge):
    """Its noise is the same at every fit."""


class SameLine(SameNoise, LinearRegression):
    """Its noise is the same at every fit."""


LOUD = {"epsilon": 10**6, "delta": 1e-6, "bounds": (-20, 20)}  # the checks are about manners, not about noise
ESTIMATORS = [
    ToldPerceptron(max_iter=10, **LOUD),
    ToldRegression(max_iter=30, **LOUD),
    ToldBayes(**LOUD),
    ToldTree(**LOUD),
    ToldVectors(max_iter=30, **LOUD),
    ToldBoosted(n_estimators=3, **LOUD),
    SameLine(bounds_y=(-400, 400), **LOUD | {"bounds": (-5, 5)}),
    SameRidge(bounds_y=(-400, 400), **LOUD | {"bounds": (-5, 5)}),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_own_checks(estimator: object, check: functools.partial[None]) -> None:
    if check.func.__name__ == "check_classifiers_regression_target":
        pytest.skip("y is never judged by its values: the test below says what happens instead")
    check(estimator)


CLASSIFIERS = [Perceptron, LogisticRegression, LinearSVC, BoostedTrees, GaussianNB, ID3]


def clouds(rows: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    return np.clip(np.where(y, 0.4, -0.4)[:, None] + 0.2 * rng.normal(size=(rows, 3)), -1, 1), y


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_target_that_is_no_class_is_missing_and_not_refused(kind: type) -> None:
    """Whether a target is refused for its values would tell of them."""
    rows, y = clouds(200)
    model = kind(epsilon=2, delta=1e-6, bounds=(-1, 1), classes=[0, 1]).fit(rows, y + 0.5)
    assert set(model.predict(rows)) <= {0, 1}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_pipeline_and_cross_validation(kind: type) -> None:
    rows, y = clouds()
    line = make_pipeline(FunctionTransformer(np.tanh), kind(epsilon=2, delta=1e-6, bounds=(-1, 1), classes=[0, 1]))
    assert cross_val_score(line, rows, y, cv=3).min() > 0.85


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (ID3(epsilon=2, delta=1e-6, bounds=(-1, 1), classes=[0, 1]), {"max_depth": [1, 3]}),
        (LogisticRegression(epsilon=2, delta=1e-6, bounds=(-1, 1), classes=[0, 1]), {"max_iter": [5, 20]}),
        (GaussianNB(epsilon=2, delta=1e-6, bounds=(-1, 1), classes=[0, 1]), {"var_smoothing": [1e-9, 1e-3]}),
        (Perceptron(epsilon=2, delta=1e-6, bounds=(-1, 1), classes=[0, 1]), {"max_iter": [1, 10]}),
    ],
)
def test_a_grid_search(model: object, grid: dict[str, list[float]]) -> None:
    rows, y = clouds()
    search = GridSearchCV(model, grid, cv=2).fit(rows, y)
    assert search.best_score_ > 0.85
    assert search.best_params_ in [{name: value} for name, values in grid.items() for value in values]


def test_a_grid_search_over_the_penalty() -> None:
    rows, _ = clouds()
    y = rows @ [1.0, -0.5, 0.2]
    model = Ridge(epsilon=2, delta=1e-6, bounds=(-1, 1), bounds_y=(-2, 2))
    search = GridSearchCV(model, {"alpha": [0.1, 1e5]}, cv=2).fit(rows, y)
    assert search.best_params_ == {"alpha": 0.1}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_labels_of_text_data_frames_and_pickles(kind: type) -> None:
    rows, y = clouds()
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    model = kind(epsilon=2, delta=1e-6, bounds=(-1, 1), classes=["no", "yes"]).fit(frame, np.where(y, "yes", "no"))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.classes_.tolist() == ["no", "yes"]
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(frame) == model.predict(frame)).all()
    assert not hasattr(clone(model), "cost_")
    assert "rho" in str(model)
