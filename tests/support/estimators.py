"""Estimators under scikit-learn's own checks, some of which compare the results of two fits."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np


class SameNoise:
    """Put before an estimator in a class's bases: each ``fit`` draws the noise that every other one draws.

    The checks are about manners: what differs between two fits then is not chance.
    """

    def fit(self, X: Any, y: Any = None) -> Any:  # noqa: N803 - scikit-learn's names
        """As the estimator's own, from bytes that begin anew."""
        with patch("dodona.mechanisms.bits.urandom", np.random.default_rng(0).bytes):
            return super().fit(X, y)  # type: ignore[misc]
