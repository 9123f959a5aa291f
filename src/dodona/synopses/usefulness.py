"""How useful a synopsis is, measured by someone who may see the data (BLR Definitions 2.6 and 5.3).

``synopsis.evaluate(exact, concepts)`` compares every member of a class, or a random sample of them, with the truth.
The result depends on the data without noise: it is NOT private, says so, and is for the curator's eyes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.base import ConceptClass
from dodona.errors import BadEffort, Unsupported
from dodona.oracle import Oracle
from dodona.query.expr import Expr, Literal
from dodona.query.statistic import Stack, Value
from dodona.synopses.base import Synopsis

Floats = NDArray[np.float64]
_AT_ONCE = 500
NOT_PRIVATE = "NOT PRIVATE: computed from the data without noise. For the curator only; do not publish."


@dataclass(frozen=True, eq=False)
class Usefulness:
    """``errors``: |synopsis - truth| of each judged member, as fractions of the rows. ``members``: how many there
    are.
    """

    errors: Floats
    members: int
    about: str

    @property
    def worst(self) -> float:
        """The e for which the synopsis was (e, .)-useful on what was judged (Definition 2.6)."""
        return float(self.errors.max())

    @property
    def mean(self) -> float:
        """The mean error."""
        return float(self.errors.mean())

    def quantile(self, fraction: float) -> float:
        """The error that this fraction of the members stay within."""
        return float(np.quantile(self.errors, fraction))

    def plot(self, axes: Any) -> None:
        """Draws how many members stay within each error, on a Matplotlib ``axes``."""
        ordered = np.sort(self.errors)
        axes.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post")
        axes.set(xlabel="error, as a fraction of the rows", ylabel="members within", ylim=(0, 1.02), title=self.about)
        axes.text(0.98, 0.04, "not private", ha="right", transform=axes.transAxes, color="firebrick")

    def __str__(self) -> str:
        judged = f"{len(self.errors):,} of {self.members:,} members"
        shown = ", ".join(f"{q:.0%} within {self.quantile(q):.3g}" for q in (0.5, 0.9, 0.99))
        return f"{self.about}: worst {self.worst:.3g}, mean {self.mean:.3g}, {shown} ({judged}). {NOT_PRIVATE}"


def usefulness(
    synopsis: Oracle, exact: Oracle, concepts: ConceptClass, *, most: int = 5000, seed: int | None = None
) -> Usefulness:
    """The errors over the class, or over ``most`` members drawn at random where it has more.

    ``exact`` must hold the data without noise: anything else would measure noise against noise.
    """
    rows = exact.rows
    if rows is None or not _noiseless(exact):
        raise Unsupported("usefulness is measured against the truth: hand it dodona.Exact(table), as the curator can.")
    size = concepts.size(exact.schema)
    rng = np.random.default_rng(seed)
    drawn = range(size) if size <= most else sorted({int(rng.integers(size)) for _ in range(most)})
    members = [concepts.member(exact.schema, index) for index in drawn]
    errors = [
        np.abs(_totals(synopsis, members[start : start + _AT_ONCE]) - _totals(exact, members[start : start + _AT_ONCE]))
        for start in range(0, len(members), _AT_ONCE)
    ]
    return Usefulness(np.concatenate(errors) / max(rows, 1), size, concepts.describe())


def _noiseless(oracle: Oracle) -> bool:
    """Whether it answers from rows, for nothing and without noise; asks only for a price, so nothing is charged."""
    try:
        price = oracle.price(Value(Literal(True)))
    except BadEffort:  # it wants to be paid
        return False
    free = price.cost.unit == "nothing" and not np.any(price.spread)
    return free and not isinstance(oracle, Synopsis)


def _totals(oracle: Oracle, members: Sequence[Expr]) -> Floats:
    answer = oracle.ask(Stack(tuple(map(Value, members))))
    return np.ravel(np.asarray(answer.total, dtype=np.float64))
