"""What we claim for a composition against the privacy loss distribution of another implementation (HOSTILE M7).

A random list of discrete Laplace and Gaussian answers is charged as a budget charges it, unit by unit, and the
(epsilon, delta) the ledger would state is compared with the epsilon of the composed loss distribution, computed by
``dp-accounting`` (a test dependency). Ours may be larger, never smaller: rho forgets all of a loss but its Renyi bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace
from dodona.privacy.budget import FREE, Budget, Cost

DISCRETISATION = 1e-3
Noise = DiscreteLaplace | DiscreteGaussian


@dataclass(frozen=True)
class Composed:
    """``steps``: the noise of each unit question. ``claimed``: our epsilon at ``delta``; ``exact``: the other's."""

    steps: tuple[Noise, ...]
    delta: Fraction
    claimed: float
    exact: float

    @property
    def slack(self) -> float:
        """How much larger our claim is, relative to the other."""
        return self.claimed / self.exact - 1 if self.exact > 0 else 0.0


def random_composition(rng: np.random.Generator, most: int = 12) -> tuple[tuple[Noise, ...], Fraction]:
    """1 to ``most`` questions of random noise, and a delta from 1e-9 to 1e-4."""
    steps: list[Noise] = []
    for _ in range(int(rng.integers(1, most + 1))):
        scale = Fraction(float(np.exp(rng.uniform(np.log(1.5), np.log(30))))).limit_denominator(64)
        steps.append(DiscreteLaplace(scale) if rng.random() < 0.5 else DiscreteGaussian(scale * scale))
    return tuple(steps), Fraction(1, 10 ** int(rng.integers(4, 10)))


def claimed_epsilon(steps: Sequence[Noise], delta: Fraction) -> float:
    """As a budget in rho charges each unit question, notes its pure epsilon and states the promise so far."""
    budget, costs = Budget(epsilon=1, delta=delta), [_cost(step) for step in steps]
    return float(budget.guarantee(sum(map(budget.units, costs)), sum(costs, FREE).epsilon)[0])


def pld_epsilon(steps: Sequence[Noise], delta: Fraction) -> float:
    """The epsilon of the composed privacy loss distribution, every loss rounded up by the other implementation.

    Of pure answers alone it is rounded down: our claim is then the plain sum of their epsilons, which one answer
    reaches, so that a value rounded up would be above the truth and above us.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld  # type: ignore[import-untyped]

    composed: Any = None
    way = {
        "value_discretization_interval": DISCRETISATION,
        "pessimistic_estimate": not all(isinstance(step, DiscreteLaplace) for step in steps),
    }
    for step in steps:
        own = (
            pld.from_discrete_laplace_mechanism(float(1 / step.scale), 1, **way)
            if isinstance(step, DiscreteLaplace)
            else pld.from_discrete_gaussian_mechanism(float(step.variance) ** 0.5, 1, **way)
        )
        composed = own if composed is None else composed.compose(own)
    return float(composed.get_epsilon_for_delta(float(delta)))


def compared(seed: int, count: int) -> list[Composed]:
    """``count`` random compositions."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        steps, delta = random_composition(rng)
        found.append(Composed(steps, delta, claimed_epsilon(steps, delta), pld_epsilon(steps, delta)))
    return found


def _cost(step: Noise) -> Cost:
    return step.cost(1)  # one unit: distance 1, squared distance 1
