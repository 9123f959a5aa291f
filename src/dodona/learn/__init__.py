"""Algorithms that end in a model: scikit-learn estimators, each written once against the oracle contract.

Files without an underscore are doors: one estimator each. The others are the workshop.
"""

from dodona._doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__)
