"""What a fit would cost and tell, said before anything is spent and without touching data."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.bounds.outlook import Outcome, Outlook, Part
from dodona.errors import BadEffort
from dodona.learn._encoding import Feature, alike, features_of
from dodona.learn._learner import blank_oracle, share_of
from dodona.learn.geometry.location import mean_error
from dodona.learn.geometry.moments import mean_share, predicted_edge
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Call, Column

LIMIT = 1 / 12  # the variance, in ranges squared, of rows that fill their range evenly


def fit_outlook(
    estimator: Any,
    oracle: Oracle,
    rows: int,
    share: Fraction,
    error: float,
    measure: str,
    rows_needed: int,
    *,
    feasible: bool,
    parts: Sequence[Part] = (),
) -> Outlook:
    """Of a fit that spends this share of the oracle's budget. ``feasible``: the error leaves something to see."""
    missing = Call("is_null", (Column(next(iter(oracle.schema))),))  # a question that costs what it is asked with
    price = oracle.price(missing, share=share)
    return Outlook(
        f"{type(estimator).__name__} over {rows:,} rows",
        Outcome.FEASIBLE if feasible and price.affordable else Outcome.INFEASIBLE,
        error=error,
        rows_needed=rows_needed,
        cost=price.cost.spent,
        why="" if feasible else "With these rows and this budget the result is lost in noise.",
        method=price.cost.mechanism,
        measure=measure,
        parts=tuple(parts),
        affordable=price.affordable,
    )


def prospect(estimator: Any, data: Any, n_features: int | None) -> tuple[Oracle, tuple[Feature, ...], int, Fraction]:
    """An oracle to ask for prices, the features in one unit, the number of rows and the share that would be spent.

    For a number of rows the oracle stands over an empty table with the stated bounds: noise does not look at rows.
    """
    if isinstance(data, Oracle):
        if data.rows is None:
            raise BadEffort("a plan needs a public number of rows: state Table(..., rows=...).")
        features = features_of(data.schema, tuple(data.schema))
        return data, alike(features), data.rows, share_of(estimator)
    if isinstance(data, bool) or not isinstance(data, int | np.integer) or data < 1:
        raise BadEffort(f"plan takes an oracle, or a positive number of rows. Got {data!r}.")
    if n_features is None or n_features < 1:
        raise BadEffort("plan for a number of rows needs n_features=, the number of columns.")
    if estimator.epsilon is None:
        raise BadEffort("epsilon= must be given to plan for a number of rows: there is no default.")
    oracle = blank_oracle(estimator, n_features)
    return oracle, alike(features_of(oracle.schema, tuple(oracle.schema))), int(data), Fraction(1)


def spectral_outlook(estimator: Any, data: Any, n_features: int | None) -> Outlook:
    """For PCA and SVD: the edge of the noise's spectrum, against the variance of rows that fill the box evenly."""
    oracle, features, rows, share = prospect(estimator, data, n_features)
    edge = predicted_edge(oracle, features, rows, share)
    whole = box_variance(features)
    part = edge / whole if whole else 0.0
    measure, needed = "noise over the box's variance", int(np.ceil(rows * part))
    return fit_outlook(estimator, oracle, rows, share, part, measure, needed, feasible=part < 1)


def mean_outlook(estimator: Any, data: Any, n_features: int | None) -> Outlook:
    """The squared error of a mean bought with a tenth, over the total variance of rows that fill the box evenly."""
    oracle, features, rows, share = prospect(estimator, data, n_features)
    first = mean_share(oracle, features, rows, share)
    error = mean_error(oracle, features, rows, first) / (box_variance(features) * len(features))
    measure, needed = "error of the mean over the box's variance", int(np.ceil(rows * np.sqrt(error)))
    return fit_outlook(estimator, oracle, rows, share, error, measure, needed, feasible=error < 1)


def box_variance(features: Sequence[Feature]) -> float:
    """Of a feature, if rows filled the box evenly."""
    return float(np.mean([(feature.high - feature.low) ** 2 for feature in features])) * LIMIT
