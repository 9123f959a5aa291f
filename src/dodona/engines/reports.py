"""Rows that answer for themselves: a program is evaluated where the rows are, and only reports leave.

``reports`` hands each chunk of holdings to a respondent that lives as long as the call: what it returns is randomised,
and nothing else is kept. Positions are the rows' places in the source, which must be the same at every pass (a file's
order, an array's): the budget of a row is kept under its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import Vector
from dodona.query.program import Program

Pick = Callable[[int, int], NDArray[np.intp]]
"""(start, stop) -> which of the rows start..stop-1 answer, counted from start."""
Respond = Callable[[Mapping[int, Vector], int], Any]
"""(values of the program's roots, number of rows) -> what may leave."""


class Reporting(Protocol):
    """An engine whose rows can answer for themselves."""

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """What ``respond`` returns for each chunk of the picked rows."""


def picked(columns: Mapping[str, Vector], rows: NDArray[np.intp]) -> dict[str, Vector]:
    """Some rows of some columns."""
    return {name: (values[rows], None if null is None else null[rows]) for name, (values, null) in columns.items()}
