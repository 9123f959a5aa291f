"""From a plan and an effort to noise and its cost: the price of a question. Reads no row.

Coordinate i of a plan has weight w_i. Its noise is discrete Laplace of scale t w_i, or discrete Gaussian of variance
s^2 w_i^2. A row moves the whole vector by at most Delta_1 = sum |v_i|/w_i and Delta_2^2 = sum (v_i/w_i)^2, so

* Laplace costs epsilon = Delta_1 / t (``mechanisms/laplace.md``, coordinate by coordinate);
* Gaussian costs rho = Delta_2^2 / (2 s^2) (``mechanisms/gaussian.md``; divergences of independent coordinates add).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.effort import Effort
from dodona.errors import BadEffort, Unsupported
from dodona.mechanisms import Bits, DiscreteGaussian, DiscreteLaplace
from dodona.mechanisms.fixed import dyadic_above
from dodona.privacy.budget import Budget
from dodona.privacy.cost import FREE, Cost
from dodona.query.plan import Plan
from dodona.query.reach import Norms

Mechanism = DiscreteLaplace | DiscreteGaussian


@dataclass(frozen=True)
class Noise:
    """One mechanism per distinct weight, and what the whole vector costs. No mechanism: the answer is public."""

    name: str
    by_weight: dict[Fraction, Mechanism]
    cost: Cost

    def sample(self, plan: Plan, bits: Bits) -> NDArray[Any]:
        """Fresh noise for every coordinate, in whole steps."""
        noise = np.zeros(plan.dimension, dtype=object)
        for weight, places in plan.places.items():
            if weight in self.by_weight:
                noise[places] = self.by_weight[weight].sample(len(places), bits)
        return noise

    def spread(self, plan: Plan) -> NDArray[np.float64]:
        """The standard deviation of each coordinate's noise, in the question's units."""
        return self._each(plan, lambda mechanism: mechanism.stddev)

    def margin(self, plan: Plan, confidence: float, rows: int | None) -> NDArray[np.float64]:
        """What each coordinate's error stays within, with this probability; truncation to the grid included."""
        noise = self._each(plan, lambda mechanism: float(mechanism.quantile(confidence)))
        return noise + plan.rounding * (rows or 0)

    def _each(self, plan: Plan, measure: Any) -> NDArray[np.float64]:
        values = np.zeros(plan.dimension)
        for weight, places in plan.places.items():
            if weight in self.by_weight:
                values[places] = measure(self.by_weight[weight])
        return values * plan.units


def noise_for(plan: Plan, norms: Norms, effort: Effort, budget: Budget, rows: int | None) -> Noise:
    """The least noise the effort allows, or, for a tolerance, the most that still meets it.

    On a budget with delta the noise is Gaussian, unless the question may take all of it (``share=1``) and Laplace noise
    at the whole epsilon is less.
    """
    if norms.l1 == 0:  # no row can move the answer: under ``replace`` the number of rows, for one, is public
        return Noise("nothing (public)", {}, FREE)
    if effort.kind == "rho" and budget.unit == "epsilon":
        raise Unsupported("rho= needs a budget with delta > 0 or rho; this one promises pure epsilon. Use epsilon=.")
    tolerance, whole = effort.kind == "tolerance", budget.pure_whole
    amount = budget.portion(effort.amount) if effort.kind == "share" else effort.amount
    if effort.kind == "epsilon" or budget.unit == "epsilon":
        scale = _widest(plan, effort, rows, DiscreteLaplace) if tolerance else dyadic_above(norms.l1 / amount)
        return _laplace(plan, norms, scale)
    variance = (
        _widest(plan, effort, rows, DiscreteGaussian) if tolerance else dyadic_above(norms.l2_squared / (2 * amount))
    )
    gaussian = _gaussian(plan, norms, variance)
    if effort.whole and whole is not None:
        scale = dyadic_above(norms.l1 / whole)
        return _laplace(plan, norms, scale) if 2 * scale**2 < variance else gaussian
    return gaussian


def _laplace(plan: Plan, norms: Norms, scale: Fraction) -> Noise:
    noise = {weight: DiscreteLaplace(scale * weight) for weight in plan.places}
    return Noise("discrete Laplace", dict(noise), Cost.pure(norms.l1 / scale))


def _gaussian(plan: Plan, norms: Norms, variance: Fraction) -> Noise:
    noise = {weight: DiscreteGaussian(variance * weight * weight) for weight in plan.places}
    return Noise("discrete Gaussian", dict(noise), Cost.concentrated(norms.l2_squared / (2 * variance)))


def _widest(plan: Plan, effort: Effort, rows: int | None, kind: type[Any]) -> Fraction:
    """The largest t (Laplace) or s^2 (Gaussian) whose error bar meets the tolerance at every coordinate."""
    if rows is None:
        raise BadEffort(
            "a tolerance is on the mean, which needs a public number of rows; under add-remove neighbours the true one "
            "is private. State Table(..., rows=...), or use share=, epsilon= or rho=."
        )
    widest: list[Fraction] = []
    for weight, places in plan.places.items():
        unit = Fraction(float(plan.units[places[0]]))
        allowed = (effort.amount - Fraction(float(plan.rounding[places].max()))) * max(rows, 1) / unit
        if allowed < 1:
            least = float(unit) / max(rows, 1) + float(plan.rounding[places].max())
            raise BadEffort(
                f"tolerance must be at least {least:.3g} here: one step of the grid the sums are kept on. "
                f"Got {float(effort.amount):g}."
            )
        mechanism = kind.for_tolerance(allowed, effort.confidence)
        widest.append(mechanism.scale / weight if kind is DiscreteLaplace else mechanism.variance / weight**2)
    return min(widest)
