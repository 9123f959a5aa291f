"""What papers and we claim, checked exactly: distributional privacy, and the costs of compositions.

Distributional privacy (BLR section 7), on finite domains: a mechanism is (alpha, beta)-distributionally private if, for
any distribution over elements, two databases of n elements drawn WITHOUT replacement are, with probability 1 - beta,
within e^alpha of each other on every output. Here a population is a finite list of elements, a database a set of n of
them, and a mechanism the exact table of its output probabilities.

Compositions, against the privacy loss distribution of another implementation (HOSTILE M7): a random list of discrete
Laplace and Gaussian answers is charged as a budget charges it, unit by unit, and the (epsilon, delta) the ledger would
state is compared with the epsilon of the composed loss distribution, computed by ``dp-accounting`` (a test dependency).
Ours may be larger, never smaller: rho forgets all of a loss but its Renyi bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.parities import walsh_hadamard
from dodona.errors import BadQuery
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace
from dodona.privacy.budget import Budget
from dodona.privacy.cost import FREE, Cost

Floats = NDArray[np.float64]
Mechanism = Callable[[tuple[float, ...]], Floats]
"""A database -> ln of the probability of each output, in a fixed order."""
MOST_DATABASES = 5000


@dataclass(frozen=True)
class Verdicts:
    """``beta``: the fraction of pairs of databases further apart than alpha. ``worst``: the largest distance met."""

    alpha: float
    beta: float
    worst: float

    def holds(self, beta: float) -> bool:
        """Whether (alpha, beta)-distributional privacy holds on this population."""
        return self.beta <= beta


def distributional(mechanism: Mechanism, population: Sequence[float], size: int, alpha: float) -> Verdicts:
    """The exact beta of a mechanism for databases of ``size`` elements of ``population``, all pairs counted."""
    count = math.comb(len(population), size)
    if not 1 <= count <= MOST_DATABASES:
        raise BadQuery(f"there must be 1 to {MOST_DATABASES:,} databases to compare in pairs. Got {count:,}.")
    tables = np.stack([mechanism(tuple(chosen)) for chosen in itertools.combinations(population, size)])
    distances = np.stack([np.abs(tables - own).max(axis=1) for own in tables])
    return Verdicts(alpha, float(np.mean(distances > alpha * (1 + 1e-12))), float(distances.max()))


def differential(mechanism: Mechanism, population: Sequence[float], size: int) -> float:
    """The least alpha of differential privacy on this population: databases that differ in one element."""
    worst = 0.0
    for rest in itertools.combinations(range(len(population)), size - 1):
        others = [i for i in range(len(population)) if i not in rest]
        tables = [mechanism(tuple(sorted([*(population[i] for i in rest), population[j]]))) for j in others]
        for first, second in itertools.combinations(tables, 2):
            worst = max(worst, float(np.abs(first - second).max()))
    return worst


def mirrored_mod(value: int, m: int) -> int:
    """Definition 7.2: x mod m going up, then mirrored going down, so that neighbours stay within 1 of each other.

    The paper's second case reads -x - 1 mod m, which is m - 1 - (x mod m).
    """
    return value % m if value % (2 * m) < m else m - 1 - value % m


def geometric_table(value: int, alpha: float, low: int, high: int) -> Floats:
    """ln of the probabilities of low..high for ``value`` plus two-sided geometric noise of rate ``alpha``.

    Outputs beyond the ends are gathered there, as clipping the published number would.
    """
    rate = math.exp(-alpha)
    inside = np.log((1 - rate) / (1 + rate)) - alpha * np.abs(np.arange(low, high + 1) - value)
    inside[0] = -alpha * (value - low) - math.log1p(rate) if value >= low else math.nan
    inside[-1] = -alpha * (high - value) - math.log1p(rate) if value <= high else math.nan
    return np.asarray(inside)


def separation(draws: int, rows: int, alpha: float, seed: int = 0) -> Floats:
    """Theorem 7.3: |Q(D_1) - Q(D_2)| in units of 1/alpha, for pairs of databases of fair bits; Q the mirrored mod
    2/alpha.

    Differentially private at alpha by noise of scale 1/alpha, yet a constant fraction of pairs is at distance 1 or
    more.
    """
    rng, m = np.random.default_rng(seed), max(1, round(2 / alpha))
    sums = rng.binomial(rows, 0.5, (draws, 2))
    values = np.vectorize(lambda s: mirrored_mod(int(s), m))(sums)
    return np.asarray(np.abs(values[:, 0] - values[:, 1]) * alpha)


# Appendix A of BLR: published databases must err by about 1/sqrt(n) on some parity, interactive answers need not.
#
# For databases D_1, D_2 of n distinct points of {-1, 1}^d, PQ_S(D_1) - PQ_S(D_2) = (1/2n) sum_x h(x) chi_S(x) with h
# the difference of their indicators. By Parseval the mean over all S of its square is |D_1 xor D_2| / (4 n^2), so some
# S has
#
#     |PQ_S(D_1) - PQ_S(D_2)| >= sqrt(|D_1 xor D_2|) / (2n),
#
# which is 1/(2 sqrt(n)) where half of the points differ, as they must with a private release of distinct points (Claim
# A.2). One Laplace answer errs by about 1/(epsilon n).


def parity_gap(first: NDArray[np.int64], second: NDArray[np.int64], bits: int) -> float:
    """max over S of |PQ_S(first) - PQ_S(second)|, points given as numbers of ``bits`` bits; all 2^bits parities."""
    table = np.zeros(2**bits)
    np.add.at(table, first, 1.0 / len(first))
    np.add.at(table, second, -1.0 / len(second))
    return float(np.abs(walsh_hadamard(table)).max()) / 2


def parseval_bound(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """sqrt(|D_1 xor D_2|) / (2n), for databases of n distinct points each."""
    return math.sqrt(len(np.setxor1d(first, second))) / (2 * len(first))


def half_replaced(rows: int, bits: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A random database of distinct points and another that keeps half of them."""
    rng = np.random.default_rng(seed)
    points = rng.choice(2**bits, rows + rows // 2, replace=False)
    return points[:rows], points[rows // 2 : rows + rows // 2]


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
