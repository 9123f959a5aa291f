"""For tests and benchmarks of response times: twin tables, questions that try to tell them apart, and a detector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.query.schema import Flag, Integer, Real, Schema
from tests.support.servers import write_survey

SCHEMA = Schema({"age": Integer(0, 99), "x": Real(0, 1000), "smoker": Flag()})
ADVERSARIAL = (
    "age = 77 AND x > 500",
    "CASE WHEN age = 77 THEN POWER(x, 3) ELSE 0 END",
    "EXP(LEAST(x, 5)) * (age = 77)",
    "SQRT(ABS(x - 500)) + LN(x + 1)",
    "x * x * x * x",
)
"""Work that a careless engine would do, or do more slowly, only on the row in which the twins differ."""


def write_twins(folder: Path, rows: int = 2000) -> list[Path]:
    """Surveys "one" and "two" over tables that differ in one row, and that row is the one the questions are about."""
    rng = np.random.default_rng(1)
    columns: dict[str, NDArray[Any]] = {
        "age": rng.integers(0, 70, rows),
        "x": rng.uniform(0, 1000, rows),
        "smoker": rng.random(rows) < 0.3,
    }
    changed = {name: np.array(values) for name, values in columns.items()}
    changed["age"][7], changed["x"][7] = 77, 999.0
    return [
        write_survey(folder, columns, SCHEMA, {"epsilon": 1000}, name="one"),
        write_survey(folder, changed, SCHEMA, {"epsilon": 1000}, name="two"),
    ]


def auc(first: Sequence[float] | NDArray[Any], second: Sequence[float] | NDArray[Any]) -> tuple[float, float]:
    """P(second > first) + P(second = first)/2, the area under the curve of the best threshold's two error rates; and
    its standard error under chance, sqrt((m + n + 1) / (12 m n)) (Mann and Whitney 1947), which ties only shrink.
    """
    from scipy.stats import rankdata

    m, n = len(first), len(second)
    ranks = rankdata(np.concatenate([np.asarray(first), np.asarray(second)]))
    found = float((ranks[m:].sum() - n * (n + 1) / 2) / (m * n))
    return found, math.sqrt((m + n + 1) / (12 * m * n))
