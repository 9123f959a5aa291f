"""A mixture of product distributions, fitted to noisy marginals: a model for grids too large to list cell by cell.

p(x) = sum_k w_k prod_i t_{k,i}(x_i). Any marginal is a small sum of outer products, gradients cost as much as
marginals, and a row is drawn by picking k, then each column by itself. Fitted by Adam (Kingma and Ba 2015) on the
logits to the weighted squares sum_A |M_A(p) - y_A|^2 / v_A; a hundred columns are no obstacle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.grid import Grid, Support
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.cells import Codes, Floats, decoded, grid_from, grid_settings
from dodona.synopses.noise import sum_width
from dodona.synopses.reading import Reading, answered, largest, too_wide

# A published mixture of product distributions (``products.py``): answers conditions over few of many columns.


class Mixture(Body):
    """``rows``: what fractions are multiplied with. ``deviation``: the estimated standard error of a count, in rows."""

    kind = "Mixture"

    def __init__(
        self,
        schema: Schema,
        grid: Grid,
        width: int,
        model: Products,
        edges: Mapping[str, Any],
        rows: float,
        deviation: float,
    ) -> None:
        self.schema, self.grid, self.width, self.edges = schema, grid, width, dict(edges)
        self.model, self.rows, self.deviation = model, rows, deviation

    def table(self, support: Support) -> Floats:
        """The marginal over these sides, flat."""
        return self.model.marginal(support) * self.rows

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002 - the plan says it
        """(totals, margins); the margin is estimated, not proven."""
        totals, deviations = answered(plan, self.schema, self.grid, self._one)
        return totals, deviations * sum_width(confidence)

    def _one(self, reading: Reading) -> tuple[Floats, Floats]:
        if len(reading.support) > self.width:
            raise too_wide(self.grid, self.width, reading)
        return reading.piece.totals(self.table(reading.support)), largest(reading.piece) * self.deviation

    def draw(self, rows: int, random: np.random.Generator) -> Arrays:
        """Columns of made-up rows."""
        return decoded(self.schema, self.grid, self.sample(rows, random), random)

    def arrays(self) -> Arrays:
        """The weights, and the sides one after the other."""
        return {"weights": self.model.weights, "sides": np.concatenate([side.ravel() for side in self.model.sides])}

    def settings(self) -> dict[str, Any]:
        """The grid, the width and the error."""
        own = {"width": self.width, "rows": self.rows, "deviation": self.deviation}
        return {**grid_settings(self.grid, self.edges), **own}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Mixture:
        """The inverse."""
        grid, weights, sides, start = grid_from(schema, settings), arrays["weights"], [], 0
        for size in grid.sizes:
            sides.append(arrays["sides"][start : start + len(weights) * size].reshape(len(weights), size))
            start += len(weights) * size
        width, rows, deviation = int(settings["width"]), float(settings["rows"]), float(settings["deviation"])
        return cls(schema, grid, width, Products(weights, sides), settings["edges"], rows, deviation)

    def sample(self, rows: int, random: np.random.Generator) -> Codes:
        """Codes of made-up rows."""
        return self.model.sample(rows, random)


COMPONENTS = 200
STEPS = 300
_BATCH = 60


@dataclass(frozen=True)
class Target:
    """A noisy marginal as fractions, flat, and the variance of each of its cells."""

    support: tuple[int, ...]
    table: Floats
    variance: float


@dataclass
class Products:
    """``weights``: K; ``sides``: for each side a K x size matrix, rows summing to 1."""

    weights: Floats
    sides: list[Floats]
    _logits: list[Floats] = field(default_factory=list)

    @staticmethod
    def start(ones: Sequence[Floats], components: int, random: np.random.Generator) -> Products:
        """Independence with these one-way fractions, each component a little different."""
        logits = [np.zeros(components)]
        for share in ones:
            kept = np.maximum(share, 1e-4)
            logits.append(np.log(kept / kept.sum())[None, :] + 0.7 * random.standard_normal((components, len(share))))
        model = Products(np.zeros(0), [], logits)
        model._settle()
        return model

    def _settle(self) -> None:
        self.weights = _softmax(self._logits[0])
        self.sides = [_softmax(matrix) for matrix in self._logits[1:]]

    def marginal(self, support: Sequence[int]) -> Floats:
        """The marginal over one to a few sides, flat."""
        joint = self.weights[:, None]
        for i in support[:-1]:
            joint = (joint[:, :, None] * self.sides[i][:, None, :]).reshape(len(joint), -1)
        return (joint.T @ self.sides[support[-1]]).ravel() if len(support) else np.ones(1)

    def fit(self, targets: Sequence[Target], steps: int, random: np.random.Generator, rate: float = 0.1) -> None:
        """Adam on batches of targets; the rate falls to a tenth."""
        first = [np.zeros_like(x) for x in self._logits]
        second = [np.zeros_like(x) for x in self._logits]
        weights = np.array([1 / (target.variance + 1e-7) for target in targets])
        weights /= weights.mean()
        for step in range(1, steps + 1):
            chosen = range(len(targets))
            if len(targets) > _BATCH:
                chosen = random.choice(len(targets), _BATCH, replace=False).tolist()
            slopes = self._slopes([targets[i] for i in chosen], weights[list(chosen)])
            now = rate * 0.1 ** (step / steps)
            for i, slope in enumerate(slopes):
                first[i] += 0.1 * (slope - first[i])
                second[i] += 0.01 * (slope * slope - second[i])
                root = np.sqrt(second[i] / (1 - 0.99**step)) + 1e-9
                self._logits[i] -= now * (first[i] / (1 - 0.9**step)) / root
            self._settle()

    def _slopes(self, targets: Sequence[Target], weights: Floats) -> list[Floats]:
        """d loss / d logits, by hand: through the outer products, then through the softmax."""
        on_weights = np.zeros_like(self.weights)
        on_sides = [np.zeros_like(side) for side in self.sides]
        for target, weight in zip(targets, weights, strict=True):
            *front, last = target.support
            joint = np.ones((len(self.weights), 1))
            for i in front:
                joint = (joint[:, :, None] * self.sides[i][:, None, :]).reshape(len(joint), -1)
            held = joint * self.weights[:, None]
            gap = weight * ((held.T @ self.sides[last]) - target.table.reshape(-1, self.sides[last].shape[1]))
            on_sides[last] += held @ gap
            on_joint = self.sides[last] @ gap.T  # K x cells of the front
            on_weights += (on_joint * joint).sum(axis=1)
            on_joint *= self.weights[:, None]
            for place, i in enumerate(front):
                shape = (len(self.weights), *(self.sides[j].shape[1] for j in front))
                spread = on_joint.reshape(shape)
                for other, j in enumerate(front):
                    if other != place:
                        index = [1] * len(shape)
                        index[0], index[other + 1] = shape[0], shape[other + 1]
                        spread = spread * self.sides[j].reshape(index)
                axes = tuple(a + 1 for a in range(len(front)) if a != place)
                on_sides[i] += spread.sum(axis=axes)
        return [_through(self.weights, on_weights), *map(_through, self.sides, on_sides)]

    def sample(self, rows: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Codes of made-up rows: components in whole numbers, and within each the values of each side too."""
        counts = _rounded(self.weights * rows, rows, random)
        codes = np.empty((rows, len(self.sides)), dtype=np.int64)
        start = 0
        for k, count in enumerate(counts.tolist()):
            for i, side in enumerate(self.sides):
                values = np.repeat(np.arange(side.shape[1]), _rounded(side[k] * count, count, random))
                codes[start : start + count, i] = random.permutation(values)  # each column by itself: no comonotony
            start += count
        return np.asarray(random.permutation(codes))


def fitted(
    sizes: Sequence[int], ones: Sequence[Floats], targets: Sequence[Target], random: np.random.Generator
) -> Products:
    """A model of these marginals from nothing."""
    del sizes  # the one-way fractions have them
    model = Products.start(ones, COMPONENTS, random)
    model.fit([*(Target((i,), one, 1e-6) for i, one in enumerate(ones)), *targets], STEPS, random)
    return model


def _softmax(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def _through(shares: Floats, slopes: Floats) -> Floats:
    return np.asarray(shares * (slopes - (shares * slopes).sum(axis=-1, keepdims=True)))


def _rounded(expected: Floats, total: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers that sum to ``total``, each the floor or ceiling of what is expected, right on average."""
    ends = np.cumsum(expected)
    ends *= total / ends[-1] if ends[-1] > 0 else 1.0
    marks = np.floor(np.concatenate([[0.0], ends[:-1], [float(total)]]) + random.random())
    marks[0], marks[-1] = 0.0, total
    return np.diff(np.minimum(marks, total)).astype(np.int64)
