"""What releases over a grid share: how the grid is stored, how wide noise is, and rows made of codes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.grid import Grid
from dodona.query.schema import Category, Flag, Integer, Schema

Codes = NDArray[np.int64]


def grid_settings(grid: Grid, edges: Mapping[str, Any]) -> dict[str, Any]:
    """Enough to make the grid again from the schema."""
    return {"columns": list(grid.columns), "edges": {name: list(ends) for name, ends in edges.items()}}


def grid_from(schema: Schema, settings: Mapping[str, Any]) -> Grid:
    """The inverse."""
    return Grid.of(schema, settings["columns"], settings["edges"])


def width_of_noise(confidence: float) -> float:
    """How many standard deviations hold with this probability, for sums of Laplace or Gaussian noise.

    The larger of the two quantiles: a sum of Laplace noise of a given variance lies between the two laws.
    """
    tail = 1 - min(max(confidence, 0.0), 1 - 1e-15)
    return max(NormalDist().inv_cdf(1 - tail / 2), math.log(1 / tail) / math.sqrt(2))


def decoded(schema: Schema, grid: Grid, codes: Codes, random: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Rows of cell numbers as columns of values: labels, true/false, or a number from its bucket; missing is None."""
    columns: dict[str, NDArray[Any]] = {}
    for side, code in zip(grid.sides, codes.T, strict=True):
        column = schema[side.column]
        other = (code == side.size - 1) if side.other else np.zeros(len(code), dtype=bool)
        if isinstance(column, Category | Flag):
            labels = np.array([*side.labels[: side.size - side.other], None][: side.size], dtype=object)
            columns[side.column] = labels[code] if side.other else np.array(side.labels)[code]
            continue
        ends = np.array([*side.edges, side.edges[-1]])
        low, high = (
            np.maximum(ends[code], column.low),
            np.minimum(ends[np.minimum(code + 1, len(ends) - 1)], column.high),
        )
        drawn = low + random.random(len(code)) * (high - low)
        drawn = np.minimum(np.floor(drawn), column.high) if isinstance(column, Integer) else drawn
        columns[side.column] = np.where(other, np.nan, drawn)
    return columns
