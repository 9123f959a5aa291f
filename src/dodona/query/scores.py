"""Candidates by the million: scores that follow from a few totals, for a private choice among them.

A class of 10^7 hypotheses has 10^7 scores, yet all of them are sums and differences of some thousand statistics of the
rows. ``Scores`` names both: ``statistics`` is an ordinary query whose totals the engines compute, and ``tally`` the
exact linear map from those totals to one score per candidate. Only ``select`` takes it; the map runs where the choice
is made, and nothing but the chosen index leaves.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from numpy.typing import NDArray

from dodona.query.schema import Schema
from dodona.query.statistic import Query


class Scores(Query):
    """Abstract. One row adds 0 or 1 to the score of each candidate, or moves it by no more than the kind's own
    ``sensitivity``: every kind must keep that promise, since the sensitivity of the choice rests on it (checked in
    tests/laws for each class against row-by-row counting).
    """

    def sensitivity(self, neighbours: str) -> int:  # noqa: ARG002 - 0 or 1 a row: replacing one moves a score by 1
        """How far the scores of neighbouring tables can differ."""
        return 1

    @abstractmethod
    def statistics(self, schema: Schema) -> Query:
        """The totals the scores are made of."""

    @abstractmethod
    def count(self, schema: Schema) -> int:
        """How many candidates there are."""

    @abstractmethod
    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """One score per candidate, exact where the totals are whole; linear, so that noisy totals give noisy scores."""
