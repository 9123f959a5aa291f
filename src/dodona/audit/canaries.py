"""Statistical audits: a lower bound, with confidence, on what a whole algorithm gives away about one row.

The canary is a row that is in one table and not in its neighbour. The algorithm runs many times on each; after each run
the strongest adversary, who knows all other rows and saw every answer, scores which of the two it was. A threshold is
chosen on the first third of the runs and tested once on the others: with probability ``confidence`` its rates of true
and false alarms lie within Clopper-Pearson bounds, and privacy bounds what they can be:

* (epsilon, delta): true <= e^epsilon false + delta, hence epsilon >= ln((true - delta)/false);
* rho: D_alpha(Bernoulli(true) || Bernoulli(false)) <= rho alpha for every order, by data processing.
* mu: two normal laws that are mu deviations apart let no test do better.

A bound above the claim is a proof (at that confidence) of a leak. A bound below it is no proof of privacy: that is what
the exact audits are for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.audit.watched import Suspicion, WatchedCurator, is_procedure, watched
from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.oracles.answer import Answer
from dodona.oracles.oracle import Oracle
from dodona.privacy.budget import Budget
from dodona.privacy.ledger.whole import pure_spent

Floats = NDArray[np.float64]
Algorithm = Callable[[Oracle], Any]
Open = Callable[[Table, Budget], WatchedCurator]
_ORDERS = np.concatenate([np.linspace(1.05, 4, 30), np.geomspace(4.5, 64, 20)])


@dataclass(frozen=True)
class CanaryAudit:
    """``bound``: at least this much, in ``unit``, is given away, at this ``confidence``; ``claimed``: what was charged.

    ``epsilon``, ``claimed_epsilon``: the same at the budget's delta. ``attack``: which score told the two apart best.
    """

    algorithm: str
    unit: str
    claimed: float
    bound: float
    epsilon: float
    claimed_epsilon: float
    confidence: float
    runs: int
    attack: str

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the claim."""
        return self.bound <= self.claimed and self.epsilon <= self.claimed_epsilon

    def __str__(self) -> str:
        word = "within its claim" if self.holds else "BROKEN"
        return (
            f"{self.algorithm}: {self.unit} at least {self.bound:.3g} of {self.claimed:.3g} claimed, {word} "
            f"({100 * self.confidence:.6g} % sure, {self.runs} runs on each side, by {self.attack})"
        )


@dataclass(frozen=True)
class Rates:
    """Bounds of an attack: ``true`` at least, ``false`` at most."""

    true: float
    false: float

    def epsilon(self, delta: float = 0.0) -> float:
        """The epsilon they need."""
        return max(0.0, math.log((self.true - delta) / self.false)) if self.true - delta > self.false else 0.0

    def mu_squared(self) -> float:
        """The mu^2 they need: the deviations between two normal laws that are told apart so well."""
        p, q = min(self.true, 1 - 1e-12), min(max(self.false, 1e-300), 1 - 1e-12)
        return (NormalDist().inv_cdf(p) - NormalDist().inv_cdf(q)) ** 2 if p > q else 0.0

    def worth(self, unit: str) -> float:
        """What they need, in a ledger's unit."""
        return {"epsilon": self.epsilon, "rho": self.rho, "mu^2": self.mu_squared}[unit]()

    def rho(self) -> float:
        """The rho they need: the largest D_alpha/alpha of two coins with these biases."""
        p, q = min(self.true, 1 - 1e-12), min(max(self.false, 1e-300), 1 - 1e-12)
        if p <= q:
            return 0.0
        heads = _ORDERS * math.log(p) + (1 - _ORDERS) * math.log(q)
        tails = _ORDERS * math.log1p(-p) + (1 - _ORDERS) * math.log1p(-q)
        return float((np.logaddexp(heads, tails) / (_ORDERS - 1) / _ORDERS).max())


def canary(
    algorithm: Algorithm,
    one: Table,
    other: Table,
    budget: Budget,
    *,
    name: str = "algorithm",
    runs: int = 300,
    confidence: float = 0.95,
    curator: Open = watched,
) -> CanaryAudit:
    """Run ``algorithm(oracle)`` ``runs`` times on curators over each table, and bound what its answers tell apart.

    ``one`` and ``other``: neighbouring tables, the canary in one of them. ``curator``: what opens a curator to watch;
    a broken one can be put in its place. What counts as claimed is what the ledger was charged.
    """
    if runs < 20 or not 0 < confidence < 1:
        raise BadQuery(f"runs must be at least 20 and confidence between 0 and 1. Got {runs} and {confidence}.")
    sides: list[list[list[float]]] = []
    outcomes: list[list[str]] = []
    charged, pure, whole = 0, True, budget.pure_whole or Fraction(0)
    suspicion = Suspicion(one, other)
    for table in (one, other):
        scored, told = [], []
        for _ in range(runs):
            oracle = curator(table, budget)
            algorithm(oracle)
            charged = max(charged, oracle.ledger.spent())
            noted = pure_spent(oracle.ledger)
            pure = pure and oracle.ledger.spent() == budget.capacity and noted is not None and noted <= whole
            scored.append(_scores(suspicion, oracle))
            told.append(_finding(oracle))
        sides.append(scored)
        outcomes.append(told)
    unit = "epsilon" if pure else budget.unit
    attack, rates = _test_the_rest([np.array(side) for side in sides], outcomes, unit, confidence)
    epsilon, delta = (float(x) for x in budget.guarantee(charged))
    # All of an (epsilon, delta) budget spent purely keeps its epsilon, and no rho.
    claimed = float(whole if pure else budget.amount(charged))
    bound = rates.worth(unit)
    return CanaryAudit(
        name,
        unit,
        claimed,
        bound,
        rates.epsilon(delta),
        epsilon,
        confidence,
        runs,
        attack,
    )


ATTACKS = ("likelihood", "shift", "repeated noise", "outcome")


def _scores(suspicion: Suspicion, oracle: WatchedCurator) -> list[float]:
    """How much each attack leans towards ``one``.

    likelihood: ln P(answers | one) - ln P(answers | other) under the noise that was priced, the best there is if that
    is the noise. shift: the answers' projection on the difference of the totals. repeated noise: how much more often
    two answers hold the same noise if ``one`` is the table than if the other is.
    """
    likelihood = shift = 0.0
    first: dict[Any, list[tuple[int, int]]] = {}
    for seen in oracle.seen:
        if is_procedure(seen):
            continue
        likelihood += min(max(suspicion.loss(seen), -1e6), 1e6)
        if not isinstance(seen.result, Answer):
            continue
        stake, noise = suspicion.residuals(seen)
        for i, law in enumerate(stake.laws):
            step = int(stake.moved[i])
            if law is not None and step:
                shift += step * (float(noise[i]) + step / 2) / law.stddev**2
        if stake.laws and stake.laws[0] is not None:
            here, moved = int(noise[0]), int(stake.moved[0])
            first.setdefault(stake.laws[0], []).append((here, here + moved))
    return [likelihood, shift, float(sum(_repeats(pairs) for pairs in first.values()))]


def _repeats(pairs: Sequence[tuple[int, int]]) -> int:
    """Pairs of equal noises if ``one`` is the table, less those if the other is."""
    counts = [Counter(pair[side] for pair in pairs) for side in (0, 1)]
    same = [sum(n * (n - 1) // 2 for n in count.values()) for count in counts]
    return same[0] - same[1]


def _finding(oracle: WatchedCurator) -> str:
    """What procedures found, as text: outcomes without a formula are scored by how often each side gave them."""
    return repr([getattr(seen.result, "value", None) for seen in oracle.seen if is_procedure(seen)])


def _test_the_rest(
    sides: Sequence[Floats], outcomes: Sequence[Sequence[str]], unit: str, confidence: float
) -> tuple[str, Rates]:
    """The attack and threshold that did best on the first third of the runs, on the others."""
    third = len(sides[0]) // 3
    columns = [sides[side].T for side in (0, 1)]
    learned = [Counter(outcomes[side][:third]) for side in (0, 1)]
    ratio = [
        np.array([math.log((learned[0][o] + 0.5) / (learned[1][o] + 0.5)) for o in outcomes[side]]) for side in (0, 1)
    ]
    scored = [np.vstack([columns[side], ratio[side]]) for side in (0, 1)]

    best: tuple[float, int, float, bool] = (-1.0, 0, 0.0, True)
    for attack in range(len(scored[0])):
        one, other = scored[0][attack][:third], scored[1][attack][:third]
        for threshold in np.unique(np.quantile(np.concatenate([one, other]), np.linspace(0.02, 0.98, 49))):
            for upward in (True, False):
                found = _rates(one, other, float(threshold), upward, confidence).worth(unit)
                if found > best[0]:
                    best = found, attack, float(threshold), upward
    _, attack, threshold, upward = best
    rates = _rates(scored[0][attack][third:], scored[1][attack][third:], threshold, upward, confidence)
    return ATTACKS[attack], rates


def _rates(one: Floats, other: Floats, threshold: float, upward: bool, confidence: float) -> Rates:
    """Alarm where the score is above the threshold (``one`` is suspected), or at most it (``other`` is)."""
    right, wrong = (one > threshold, other > threshold) if upward else (other <= threshold, one <= threshold)
    risk = Fraction(1) - Fraction(confidence)
    return Rates(
        clopper_pearson(int(right.sum()), len(right), float(risk / 2))[0],
        clopper_pearson(int(wrong.sum()), len(wrong), float(risk / 2))[1],
    )


def clopper_pearson(hits: int, of: int, risk: float) -> tuple[float, float]:
    """One-sided exact bounds of a probability, each wrong with probability at most ``risk``."""
    from scipy.stats import beta  # an extra of learning; an audit of an algorithm has it

    low = 0.0 if hits == 0 else float(beta.ppf(risk, hits, of - hits + 1))
    high = 1.0 if hits == of else float(beta.ppf(1 - risk, hits + 1, of - hits))
    return low, high
