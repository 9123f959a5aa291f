"""Candidates by the million: scores that follow from a few totals, for a private choice among them.

A class of 10^7 hypotheses has 10^7 scores, yet all of them follow from some thousand statistics of the rows. ``Scores``
names both: ``statistics`` is an ordinary query whose totals the engines compute, and ``tally`` the exact map from those
totals to one score per candidate: most often sums and differences (how many rows a hypothesis gets right), but it may
be any function of the totals, such as the worst or the summed distance from public numbers. Only ``select`` takes it;
the map runs where the choice is made, and nothing but the chosen index leaves.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.schema import Schema
from dodona.query.statistic import Query


class Scores(Query):
    """Abstract. Neighbouring tables differ in no score by more than ``sensitivity``: every kind must keep that promise,
    since the privacy of the choice rests on it (checked in tests/laws, for each kind and both neighbour relations).
    """

    @property
    def linear(self) -> bool:
        """Whether ``tally`` is linear in the totals, up to a public constant, so that noise of mean 0 in the totals is
        noise of mean 0 in the scores. Oracles that choose by noisy totals refuse other kinds.
        """
        return True

    def sensitivity(self, neighbours: str) -> int:  # noqa: ARG002 - by default scores count rows
        """How far a score can differ between neighbouring tables. 1 is right where a row adds 0 or 1 to each score (to
        replace it moves none by more), and for distances of such counts from public numbers; others override it.
        """
        return 1

    @abstractmethod
    def statistics(self, schema: Schema) -> Query:
        """The totals the scores are made of."""

    @abstractmethod
    def count(self, schema: Schema) -> int:
        """How many candidates there are."""

    @abstractmethod
    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """One whole score per candidate from whole totals; a kind that is ``linear`` takes any numbers."""


def require_public_numbers(values: NDArray[Any], most: int) -> None:
    """Refuses numbers beside which a sum could leave 64 bits: one row would then move a score by 2^64, or make the
    choice fail where without it there is one. ``most``: of their sizes together.
    """
    held = np.asarray(values)
    if held.ndim != 1 or held.dtype != np.int64 or float(np.abs(held.astype(np.float64)).sum()) > most:
        raise BadQuery(f"the public numbers of scores must be whole, with sizes that sum to at most {most:,}.")


def require_like(values: NDArray[Any], public: NDArray[Any]) -> None:
    """Refuses to stretch one total over many public numbers: a row would count once for each of them."""
    if np.shape(values) != np.shape(public):
        raise BadQuery("scores must state one public number for each total.")
