"""Exact audits: a claim of privacy against computed probabilities, on every pair of neighbours listed, as a proof.

A law is given by rational lower bounds p(o) of its probabilities; what they leave, r = 1 - sum p, may lie anywhere. For
laws P and Q with such bounds p and q, and any rational b,

    delta(P, Q; e^epsilon = b) <= sum_o max(0, p(o) - b q(o)) + r_P                                          (*)
    delta(P, Q; e^epsilon = b) >= sum_{o in S} (p(o) - b q(o)) - b r_Q,   S any set of outcomes,             (**)

since P exceeds p by r_P in all and Q(S) <= q(S) + r_Q. With b below e^epsilon (*) proves (epsilon, delta); with b above
it (**) refutes it. Finite laws have r = 0 or about 2^-100, so there delta is a rounding of 0. A rho is proved for every
order at once: ``renyi.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dodona.audit.renyi import Terms, worst_rho
from dodona.mechanisms.fixed import exp_bracket, log_of

Chances = Mapping[Any, Fraction]
"""Outcome -> a lower bound of its probability; they sum to at most 1."""
Pair = tuple[str, Chances, Chances]
"""(which neighbours, the law on one, the law on the other); both directions are judged."""
HAIR = Fraction(1, 1 << 64)
"""Where brackets of real numbers meet a claim that is met with equality, this much of delta or rho is granted."""
PROVEN, VIOLATED, OPEN = "proven", "violated", "not decided"


@dataclass(frozen=True)
class ExactAudit:
    """``claimed`` holds on all ``pairs`` (``verdict`` "proven"), fails on ``worst`` ("violated"), or is "not decided".

    ``unit``: "epsilon" or "rho". ``realised``: what the worst pair shows for certain, in that unit. ``delta``: the
    claim is proved but for this probability: what was not enumerated, or rounding.
    """

    mechanism: str
    unit: str
    claimed: Fraction
    realised: float
    pairs: int
    worst: str
    verdict: str
    delta: float = 0.0
    note: str = ""

    @property
    def claim(self) -> str:
        """The claim in words."""
        return f"{self.unit} {float(self.claimed):.6g}"

    @property
    def slack(self) -> float:
        """What the claim leaves unused on the worst pair; near 0 where it is tight."""
        return float(self.claimed) - self.realised

    @property
    def holds(self) -> bool:
        """Whether the claim is proved on every pair."""
        return self.verdict == PROVEN

    def cells(self) -> tuple[str, str, str, str]:
        """Mechanism, claim, worst pair and slack: for a table."""
        where = f"{self.worst} ({self.note})" if self.note else self.worst
        slack = 0.0 if 0 > self.slack > -1e-9 else self.slack  # a rounding of the display, not of the verdict
        return self.mechanism, self.claim, where, f"{slack:.3g}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        numbers = {"claimed": float(self.claimed), "realised": self.realised, "slack": self.slack, "delta": self.delta}
        words = {"mechanism": self.mechanism, "claim": self.claim, "worst_pair": self.worst, "verdict": self.verdict}
        return {**words, "unit": self.unit, **numbers, "pairs": self.pairs, "note": self.note}

    def __str__(self) -> str:
        return f"{self.mechanism}: {self.claim} {self.verdict}; realised {self.realised:.6g} at {self.worst}"


def exp_bounds(epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Rationals just below and above e^epsilon."""
    digits = 160 + 2 * math.ceil(epsilon)
    low, high = exp_bracket(epsilon, digits)
    return Fraction(1 << digits, high), Fraction(1 << digits, low)


def delta_bounds(one: Chances, other: Chances, bounds: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    """(**) and (*): between what the true delta lies, ``bounds`` around e^epsilon; the lower one is at least 0."""
    below, above = bounds
    nothing = Fraction(0)
    rest_one, rest_other = 1 - sum(one.values(), nothing), 1 - sum(other.values(), nothing)
    upper = sum((max(nothing, p - below * other.get(o, nothing)) for o, p in one.items()), rest_one)
    lower = sum((max(nothing, p - above * other.get(o, nothing)) for o, p in one.items()), -above * rest_other)
    return max(lower, nothing), upper


def epsilon_audit(
    mechanism: str,
    epsilon: Fraction,
    pairs: Iterable[Pair],
    *,
    delta: Fraction = Fraction(0),
    unexplored: Fraction = HAIR,
    note: str = "",
) -> ExactAudit:
    """(``epsilon``, ``delta``)-privacy on every pair, both ways round, but for at most ``unexplored`` of delta."""
    bounds = exp_bounds(epsilon)
    count, refuted, proved = 0, Fraction(0), Fraction(0)
    realised, worst, broken = -math.inf, "", ""
    for label, one, other in pairs:
        for p, q in ((one, other), (other, one)):
            lower, upper = delta_bounds(p, q, bounds)
            proved = max(proved, upper)
            if lower - delta > refuted:
                refuted, broken = lower - delta, label
            loss = _largest_loss(p, q)
            if loss > realised:
                realised, worst = loss, label
        count += 1
    verdict = VIOLATED if refuted > 0 else PROVEN if proved <= delta + unexplored else OPEN
    missing = max(float(proved - delta), 0.0)
    return ExactAudit(mechanism, "epsilon", epsilon, max(realised, 0.0), count, broken or worst, verdict, missing, note)


def rho_audit(mechanism: str, rho: Fraction, epsilon: Fraction, pairs: Iterable[Pair], *, note: str = "") -> ExactAudit:
    """``rho``-zero-concentrated privacy at every order, on every pair; ``epsilon`` is a pure bound proved before.

    Laws that differ by rounding alone are judged once.
    """
    seen: dict[tuple[Fraction, ...], tuple[float, str, bool, bool]] = {}
    count = 0
    for label, one, other in pairs:
        count += 1
        for p, q in ((one, other), (other, one)):
            key = _shape(p, q)
            if key not in seen:
                found = worst_rho(Terms.of_chances(p, q), rho, epsilon)
                seen[key] = found.realised, label, found.proven, found.violated
    realised, worst = max((value[:2] for value in seen.values()), default=(0.0, ""))
    broken = [label for _, label, _, violated in seen.values() if violated]
    verdict = VIOLATED if broken else PROVEN if all(proven for _, _, proven, _ in seen.values()) else OPEN
    return ExactAudit(mechanism, "rho", rho, realised, count, broken[0] if broken else worst, verdict, 0.0, note)


def loss_audit(mechanism: str, unit: str, claimed: Fraction, losses: Iterable[tuple[str, Fraction]]) -> ExactAudit:
    """A claim against exact rational losses, one for each pair: where the loss of a pair has a closed form."""
    found = list(losses)
    worst = max(found, key=lambda item: item[1], default=("", Fraction(0)))
    verdict = PROVEN if worst[1] <= claimed else VIOLATED
    return ExactAudit(mechanism, unit, claimed, float(worst[1]), len(found), worst[0], verdict)


def chances(law: Mapping[Any, tuple[Fraction, Fraction]] | Iterable[tuple[Fraction, Fraction]]) -> Chances:
    """Certified brackets as lower bounds."""
    listed = law.items() if isinstance(law, Mapping) else enumerate(law)
    return {outcome: low for outcome, (low, _) in listed}


def _largest_loss(one: Chances, other: Chances) -> float:
    """ln of the largest ratio that is certain: p(o) over the most the other law can give o. Never above the truth."""
    rest = max(1 - sum(other.values(), Fraction(0)), Fraction(0))
    ratios = [(p, other.get(o, Fraction(0)) + rest) for o, p in one.items() if p]
    return max((log_of(p / q) if q else math.inf for p, q in ratios), default=0.0)


def _shape(one: Chances, other: Chances) -> tuple[Fraction, ...]:
    """The multiset of (p, q), rounded: all a divergence depends on."""
    unit = 1 << 90
    return tuple(
        sorted(Fraction(int(p * unit)) * (1 << 100) + int(other.get(o, Fraction(0)) * unit) for o, p in one.items())
    )
