"""Algorithms that end in a model: scikit-learn estimators, each written once against the oracle contract."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dodona.learn.agnostic import AgnosticLearner, distinct_labelings
    from dodona.learn.agnostic_rounds import CompressionLearner
    from dodona.learn.id3 import ID3
    from dodona.learn.kmeans import KMeans
    from dodona.learn.logistic import LogisticRegression
    from dodona.learn.naive_bayes import GaussianNB
    from dodona.learn.parity import ParityLearner
    from dodona.learn.pca import PCA
    from dodona.learn.perceptron import Perceptron
    from dodona.learn.ridge import Ridge
    from dodona.learn.scaler import StandardScaler
    from dodona.learn.sq.conjunction import ConjunctionLearner
    from dodona.learn.sq.decision_list import DecisionListLearner
    from dodona.learn.sq.stat import stat
    from dodona.learn.sq.weak import WeakLearner
    from dodona.learn.svd import SVD

_HOME = {
    "AgnosticLearner": "agnostic",
    "CompressionLearner": "agnostic_rounds",
    "ConjunctionLearner": "sq.conjunction",
    "DecisionListLearner": "sq.decision_list",
    "GaussianNB": "naive_bayes",
    "ID3": "id3",
    "KMeans": "kmeans",
    "LogisticRegression": "logistic",
    "PCA": "pca",
    "ParityLearner": "parity",
    "Perceptron": "perceptron",
    "Ridge": "ridge",
    "SVD": "svd",
    "StandardScaler": "scaler",
    "WeakLearner": "sq.weak",
    "distinct_labelings": "agnostic",
    "stat": "sq.stat",
}

__all__ = [
    "ID3",
    "PCA",
    "SVD",
    "AgnosticLearner",
    "CompressionLearner",
    "ConjunctionLearner",
    "DecisionListLearner",
    "GaussianNB",
    "KMeans",
    "LogisticRegression",
    "ParityLearner",
    "Perceptron",
    "Ridge",
    "StandardScaler",
    "WeakLearner",
    "distinct_labelings",
    "stat",
]


def __getattr__(name: str) -> Any:
    """Opened when first asked for, so that ``import dodona.learn`` stays fast."""
    if name not in _HOME:
        raise AttributeError(f"module 'dodona.learn' has no attribute {name!r}")
    try:
        home = importlib.import_module(f"dodona.learn.{_HOME[name]}")
    except ModuleNotFoundError as absent:
        if (absent.name or "").partition(".")[0] not in ("scipy", "sklearn"):
            raise
        needed = f"dodona.learn.{name} needs {absent.name}: pip install 'dodona[learn]'."
        raise ModuleNotFoundError(needed, name=absent.name) from None
    return getattr(home, name)


def __dir__() -> list[str]:
    return list(__all__)
