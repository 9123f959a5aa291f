"""The composition root for arrays: a table and an oracle made from what a scikit-learn user hands to ``fit``.

This is the one door between the estimators, which know no engine and no trust model, and the rooms that do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.oracle import Oracle
from dodona.privacy.budget import Budget
from dodona.privacy.numbers import Number
from dodona.query.schema import Schema
from dodona.trust.curator import Curator


def curator_over(columns: Mapping[str, NDArray[Any]], schema: Schema, epsilon: Number, delta: Number) -> Oracle:
    """A curator over arrays with a budget of its own, kept as long as the oracle is."""
    return Curator(Table(dict(columns), schema, name="data"), Budget(epsilon=epsilon, delta=delta))
