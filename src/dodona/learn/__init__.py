"""Algorithms that end in a model: scikit-learn estimators, each written once against the oracle contract."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dodona.learn.id3 import ID3
    from dodona.learn.kmeans import KMeans
    from dodona.learn.logistic import LogisticRegression
    from dodona.learn.naive_bayes import GaussianNB
    from dodona.learn.pca import PCA
    from dodona.learn.perceptron import Perceptron
    from dodona.learn.ridge import Ridge
    from dodona.learn.scaler import StandardScaler
    from dodona.learn.sq.stat import stat
    from dodona.learn.svd import SVD

_HOME = {
    "GaussianNB": "naive_bayes",
    "ID3": "id3",
    "KMeans": "kmeans",
    "LogisticRegression": "logistic",
    "PCA": "pca",
    "Perceptron": "perceptron",
    "Ridge": "ridge",
    "SVD": "svd",
    "StandardScaler": "scaler",
    "stat": "sq.stat",
}

__all__ = [
    "ID3",
    "PCA",
    "SVD",
    "GaussianNB",
    "KMeans",
    "LogisticRegression",
    "Perceptron",
    "Ridge",
    "StandardScaler",
    "stat",
]


def __getattr__(name: str) -> Any:
    """Opened when first asked for, so that ``import dodona.learn`` stays fast."""
    if name not in _HOME:
        raise AttributeError(f"module 'dodona.learn' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dodona.learn.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
