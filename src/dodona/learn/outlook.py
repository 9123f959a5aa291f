"""What a fit would cost and tell, said before anything is spent and without touching data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.errors import BadEffort
from dodona.learn.covariance import mean_share, predicted_edge
from dodona.learn.encoding import Feature, alike, features_of
from dodona.learn.location import mean_error
from dodona.learn.task import blank_oracle
from dodona.oracle import Oracle
from dodona.privacy.numbers import exact
from dodona.query.expr import Call, Column

LIMIT = 1 / 12  # the variance, in ranges squared, of rows that fill their range evenly


@dataclass(frozen=True)
class Outlook:
    """``price``: amount and unit of the whole fit. ``error``: what ``measure`` names, expected.

    ``feasible``: whether the error leaves something to see. ``rows_needed``: about how many rows would.
    """

    feasible: bool
    price: float
    unit: str
    error: float
    measure: str
    rows: int
    rows_needed: int

    def __str__(self) -> str:
        verdict = "feasible" if self.feasible else f"lost in noise: needs about {self.rows_needed:,} rows"
        return f"{self.unit} {self.price:.4g} over {self.rows:,} rows: {self.measure} about {self.error:.3g}; {verdict}"


def prospect(estimator: Any, data: Any, n_features: int | None) -> tuple[Oracle, tuple[Feature, ...], int, Fraction]:
    """An oracle to ask for prices, the features in one unit, the number of rows and the share that would be spent.

    For a number of rows the oracle stands over an empty table with the stated bounds: noise does not look at rows.
    """
    if isinstance(data, Oracle):
        if data.rows is None:
            raise BadEffort("a plan needs a public number of rows: state Table(..., rows=...).")
        features = features_of(data.schema, tuple(data.schema))
        return data, alike(features), data.rows, exact(estimator.share, "share", most=Fraction(1))
    if isinstance(data, bool) or not isinstance(data, int | np.integer) or data < 1:
        raise BadEffort(f"plan takes an oracle, or a positive number of rows. Got {data!r}.")
    if n_features is None or n_features < 1:
        raise BadEffort("plan for a number of rows needs n_features=, the number of columns.")
    if estimator.epsilon is None:
        raise BadEffort("epsilon= must be given to plan for a number of rows: there is no default.")
    oracle = blank_oracle(estimator, n_features)
    return oracle, alike(features_of(oracle.schema, tuple(oracle.schema))), int(data), Fraction(1)


def bill_of(oracle: Oracle, share: Fraction) -> tuple[float, str]:
    """The amount and unit that this share of the budget is."""
    missing = Call("is_null", (Column(next(iter(oracle.schema))),))
    cost = oracle.price(missing, share=share).cost
    return cost.amount, cost.unit


def spectral_outlook(estimator: Any, data: Any, n_features: int | None) -> Outlook:
    """For PCA and SVD: the edge of the noise's spectrum, against the variance of rows that fill the box evenly."""
    oracle, features, rows, share = prospect(estimator, data, n_features)
    edge = predicted_edge(oracle, features, rows, share)
    whole = box_variance(features)
    price, unit = bill_of(oracle, share)
    part = edge / whole if whole else 0.0
    return Outlook(part < 1, price, unit, part, "noise over the box's variance", rows, int(np.ceil(rows * part)))


def mean_outlook(estimator: Any, data: Any, n_features: int | None) -> Outlook:
    """The squared error of a mean bought with a tenth, over the total variance of rows that fill the box evenly."""
    oracle, features, rows, share = prospect(estimator, data, n_features)
    first = mean_share(oracle, features, rows, share)
    error = mean_error(oracle, features, rows, first) / (box_variance(features) * len(features))
    price, unit = bill_of(oracle, share)
    needed = int(np.ceil(rows * np.sqrt(error)))
    return Outlook(error < 1, price, unit, error, "error of the mean over the box's variance", rows, needed)


def box_variance(features: Sequence[Feature]) -> float:
    """Of a feature, if rows filled the box evenly."""
    return float(np.mean([(feature.high - feature.low) ** 2 for feature in features])) * LIMIT
