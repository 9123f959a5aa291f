"""What a statistical-query learner ends in: a row condition, which prints as SQL and predicts on rows a user holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadTable
from dodona.query.expr import Call, Expr
from dodona.query.schema import Schema
from dodona.query.statistic import Value


@dataclass(frozen=True)
class Hypothesis:
    """A row is positive where ``condition`` is true. ``schema``: the columns it may read."""

    condition: Expr
    schema: Schema

    @property
    def sql(self) -> str:
        """The condition as SQL, for a WHERE clause or ``oracle.ask``."""
        return str(self.condition)

    def predict(self, rows: Any) -> NDArray[np.bool_]:
        """For each row of a data frame, a mapping of arrays, or an array in the schema's order: is it positive?"""
        from dodona.held import truth

        return truth(self.condition, held(rows, tuple(self.schema)), self.schema)

    def mistakes(self, label: Expr) -> Value:
        """The question "how many rows does it get wrong?", to be asked of any oracle that knows the labels."""
        return Value(Call("ne", (self.condition, label)))

    def __str__(self) -> str:
        return self.sql


def held(rows: Any, names: Sequence[str]) -> Any:
    """Rows with named columns as they are; an array as columns in the order of ``names``."""
    if hasattr(rows, "columns") or hasattr(rows, "keys") or hasattr(rows, "__arrow_c_stream__"):
        return rows
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise BadTable(f"rows must be a table of {len(names)} columns ({', '.join(names)}). Got shape {array.shape}.")
    return {name: array[:, index] for index, name in enumerate(names)}
