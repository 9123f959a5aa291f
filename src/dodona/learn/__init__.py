"""Algorithms that end in a model: scikit-learn estimators, each written once against the oracle contract."""
