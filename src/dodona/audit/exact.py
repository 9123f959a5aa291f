"""Exact audits: a claim of privacy against computed probabilities, on every pair of neighbours listed, as a proof.

A law is given by rational lower bounds p(o) of its probabilities; what they leave, r = 1 - sum p, may lie anywhere. For
laws P and Q with such bounds p and q, and any rational b,

    delta(P, Q; e^epsilon = b) <= sum_o max(0, p(o) - b q(o)) + r_P                                          (*)
    delta(P, Q; e^epsilon = b) >= sum_{o in S} (p(o) - b q(o)) - b r_Q,   S any set of outcomes,             (**)

since P exceeds p by r_P in all and Q(S) <= q(S) + r_Q. With b below e^epsilon (*) proves (epsilon, delta); with b above
it (**) refutes it. Finite laws have r = 0 or about 2^-100, so there delta is a rounding of 0. A rho is proved for every
order at once: below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from dodona.mechanisms.fixed import exp_bracket, log_of

# Renyi divergences of finite laws with certified bounds, and a rho proved for every order at once.
#
# K(t) = ln sum_o P(o) (P(o)/Q(o))^t, t = alpha - 1 > 0, so D_alpha = K(t)/t and rho-zero-concentration says
# K(t) <= rho t (1 + t) for all t > 0. K is convex with K(0) = 0. Hence
#
# * between two orders K lies below its chord, and a chord lies below the parabola on [u, v] if it does at both ends and
#   at the parabola's nearest point;
# * up to the first order, K(t) <= t K(u)/u <= rho t if K(u) <= rho u;
# * or, where the claim is tight as t -> 0: K(t) <= t K'(0) + t^2/2 max K'' there, K'(0) = E_P[ln P/Q] the divergence of
#   order 1, and K''(t), the variance of the loss under P tilted by t, is at most e^(epsilon u) E_P[(loss - c)^2] for
#   any
#   c, as the tilted law is at most e^(epsilon t) times P: K'(0) <= rho and e^(epsilon u) E_P[(loss - c)^2] <= 2 rho do;
# * beyond t = epsilon/rho - 1, K(t) <= epsilon t <= rho t (1 + t), epsilon a pure bound.
#
# Sums are taken in 60-digit decimals and pushed outwards by 10^-40, far more than they can err.


PRECISE = Context(prec=60)
_MARGIN = Decimal(10) ** -40
_SHORTEST = Decimal(1) / 4096
_LEAST_ORDER = Decimal(1) / (1 << 20)
_MOST_ORDERS = 800
_LOOKED_AT = tuple(Decimal(2) ** n for n in range(-4, 6))
Bracket = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Concentration:
    """``realised``: the largest K(t)/(t (1 + t)) met. ``proven``: rho holds at all orders. ``violated``: not at one."""

    realised: float
    proven: bool
    violated: bool


@dataclass(frozen=True)
class Terms:
    """What K is summed from: (ln p, ln q, relative rounding) for each outcome listed.

    ``rest``: the mass of P on outcomes not listed; under a pure bound they add at most rest e^(epsilon t) to the sum.
    ``apart``: some outcome of P is impossible under Q.
    """

    logs: tuple[tuple[Decimal, Decimal, Decimal], ...]
    rest: Decimal = Decimal(0)
    apart: bool = False

    @staticmethod
    def of_chances(one: Mapping[Any, Fraction], other: Mapping[Any, Fraction]) -> Terms:
        """From lower bounds that sum to nearly 1: what they leave may be part of any outcome."""
        with localcontext(PRECISE):
            rests = [1 - sum(law.values(), Fraction(0)) for law in (one, other)]
            apart = any(p > 0 and not other.get(o) for o, p in one.items())
            listed = [(p, other[o]) for o, p in one.items() if p and other.get(o)]
            return Terms(tuple((_ln(p), _ln(q), _decimal(rests[0] / p + rests[1] / q)) for p, q in listed), apart=apart)

    @staticmethod
    def of_brackets(one: Mapping[int, Bracket], other: Mapping[int, Bracket]) -> Terms:
        """From brackets of single probabilities on a common window; the rest of P is what they leave."""
        with localcontext(PRECISE):
            common = [(one[k], other[k]) for k in one if k in other]
            rest = 1 - sum((low for low, _ in one.values()), Fraction(0))
            logs = [
                (_ln(p[0]), _ln(q[0]), _decimal(p[1] / p[0] - 1 + q[1] / q[0] - 1)) for p, q in common if p[0] and q[0]
            ]
            return Terms(tuple(logs), _decimal(max(rest, Fraction(0))))


def worst_rho(terms: Terms, rho: Fraction, epsilon: Fraction) -> Concentration:
    """Whether K(t) <= ``rho`` t (1 + t) for all t > 0, given that the pure loss is at most ``epsilon``."""
    if terms.apart:
        return Concentration(math.inf, False, True)
    with localcontext(PRECISE):
        claim, pure = _decimal(rho), _decimal(epsilon)
        end = max(pure / claim - 1, Decimal(1))
        at: dict[Decimal, tuple[Decimal, Decimal]] = {}

        def high(t: Decimal) -> Decimal:
            if t not in at:
                at[t] = cumulant(terms, t, terms.rest * (pure * t).exp())
            return at[t][1]

        def starts(u: Decimal) -> bool:
            return high(u) <= claim * u or _starts_under(terms, claim, pure, u)

        first = Decimal(1) / 64
        while not starts(first) and first > _LEAST_ORDER:
            first /= 2
        proven = starts(first)
        pieces = list(pairwise(sorted({first, end, *(t for t in _LOOKED_AT if first < t < end)})))
        if any(high(t) and at[t][0] > claim * t * (1 + t) for piece in pieces for t in piece):
            pieces = []  # refuted already: no need to look closer
        while pieces and len(at) < _MOST_ORDERS:
            u, v = pieces.pop()
            if _under(claim, u, v, high(u), high(v)):
                continue
            if v - u <= _SHORTEST * u:
                proven = False
                continue
            middle = (u * v).sqrt()
            pieces += [(u, middle), (middle, v)]
        realised = max(float(top / (t * (1 + t))) for t, (_, top) in at.items())
        violated = any(low > claim * t * (1 + t) for t, (low, _) in at.items())
        return Concentration(realised, proven and not pieces and not violated, violated)


def cumulant(terms: Terms, t: Decimal, tail: Decimal = Decimal(0)) -> tuple[Decimal, Decimal]:
    """Bounds of K(t); ``tail``: the most that outcomes not listed add to the sum."""
    low = high = Decimal(0)
    for p, q, rounding in terms.logs:
        value = (p + t * (p - q)).exp()
        slack = value * ((1 + t) * rounding + _MARGIN)
        low, high = low + value - slack, high + value + slack
    if low <= 0:
        return Decimal("-Infinity"), Decimal("Infinity")
    return low.ln() - _MARGIN, (high + tail).ln() + _MARGIN


def _starts_under(terms: Terms, rho: Decimal, pure: Decimal, u: Decimal) -> bool:
    """Whether the first two derivatives of K at 0 keep it below rho t (1 + t) on (0, u]."""
    losses = [(p.exp(), p - q, rounding + _MARGIN) for p, q, rounding in terms.logs]
    centre = sum((p * loss for p, loss, _ in losses), Decimal(0))
    first = terms.rest * pure
    second = terms.rest * (2 * pure) ** 2
    for p, loss, rounding in losses:
        most = p * (1 + rounding)
        first += (most if loss + rounding > 0 else p) * (loss + rounding)
        second += most * (abs(loss - centre) + rounding) ** 2
    return first <= rho and (pure * u).exp() * second <= 2 * rho


def _under(rho: Decimal, u: Decimal, v: Decimal, at_u: Decimal, at_v: Decimal) -> bool:
    """Whether the chord from (u, at_u) to (v, at_v) lies below rho t (1 + t) on [u, v]."""
    if at_u > rho * u * (1 + u) or at_v > rho * v * (1 + v):
        return False
    slope = (at_v - at_u) / (v - u)
    near = min(max((slope / rho - 1) / 2, u), v)  # where the parabola's slope rho (1 + 2t) is the chord's
    return at_u + slope * (near - u) <= rho * near * (1 + near)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


@lru_cache(maxsize=1 << 14)
def _ln(value: Fraction) -> Decimal:
    """To ``PRECISE``, whatever the caller's context; kept, since shifts and orders share most of their values."""
    with localcontext(PRECISE):
        return _decimal(value).ln()


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
            key = shape_of(p, q)
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


def shape_of(one: Chances, other: Chances) -> tuple[Fraction, ...]:
    """The multiset of (p, q), rounded: all a divergence depends on."""
    unit = 1 << 90
    return tuple(
        sorted(Fraction(int(p * unit)) * (1 << 100) + int(other.get(o, Fraction(0)) * unit) for o, p in one.items())
    )
