"""Exact audits of a mu: the whole trade-off curve of two laws against that of N(0, 1) and N(mu, 1).

Two laws are told apart no better than these two normal ones if for every set S of outcomes

    P(S) <= G(Q(S)),   G(t) = 1 - Q0(z + mu) where t = 1 - Q0(z),   Q0 the normal tail.

For each value of Q(S) the largest P(S) is that of the outcomes with the largest ratios p/q (Neyman and Pearson), mixed
at most at one outcome. Between two such sets P grows linearly with Q and G is concave, so it is enough to look at the
sets themselves: as many as there are outcomes. Of laws known by lower bounds, P exceeds p by r_P in all and Q is at
least q: p(S) + r_P <= G(q(S)) + delta proves mu but for delta, and p(S) > G(q(S) + r_Q) refutes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from statistics import NormalDist

from dodona.audit.exact import HAIR, OPEN, PROVEN, VIOLATED, Chances, ExactAudit, Pair, shape_of
from dodona.privacy.normal import Interval, normal

_LAW = normal(32)
_FAR = Decimal(40)  # beyond it a tail is below 10^-300
_LEAST = Fraction(1, 10**300)


def mu_audit(
    mechanism: str, squared: Fraction, pairs: Iterable[Pair], *, unexplored: Fraction = HAIR, note: str = ""
) -> ExactAudit:
    """mu = sqrt(``squared``) on every pair, both ways round, but for at most ``unexplored`` of delta.

    Laws that differ by rounding alone are judged once.
    """
    count, missing, known = 0, Fraction(0), set()
    realised, worst, broken = 0.0, "", ""
    for label, one, other in pairs:
        count += 1
        for p, q in ((one, other), (other, one)):
            shape = shape_of(p, q)
            if shape in known:
                continue
            known.add(shape)
            lacks, refuted, seen = _judged(p, q, squared)
            missing = max(missing, lacks)
            broken = broken or (label if refuted else "")
            if seen > realised:
                realised, worst = seen, label
    verdict = VIOLATED if broken else PROVEN if missing <= unexplored else OPEN
    return ExactAudit(
        mechanism, "mu^2", squared, realised, count, broken or worst, verdict, max(float(missing), 0.0), note
    )


def _judged(one: Chances, other: Chances, squared: Fraction) -> tuple[Fraction, bool, float]:
    """The delta that is left at the worst set, whether one refutes the claim, and the mu^2 that is seen."""
    nothing = Fraction(0)
    rest_one, rest_other = (1 - sum(law.values(), nothing) for law in (one, other))
    # By p/q, where q is nothing first: cross-multiplied, so that it is exact.
    held = [(p, other.get(outcome, nothing)) for outcome, p in one.items() if p]
    held.sort(key=lambda each: each[0] / (each[0] + each[1]), reverse=True)
    mu = _LAW.root(_LAW.outside(squared))
    lacks, refuted, seen = rest_one, False, 0.0
    for p, q in zip(accumulate(p for p, _ in held), accumulate(q for _, q in held), strict=True):
        lacks = max(lacks, p + rest_one - _moved(q, mu)[0])
        if p > _moved(min(q + rest_other, Fraction(1)), mu)[1]:
            refuted = True
        seen = max(seen, _apart(p, q + rest_other))
    return lacks, refuted, seen**2


def _moved(t: Fraction, mu: Interval) -> tuple[Fraction, Fraction]:
    """Around G(``t``)."""
    if t <= _LEAST or t >= 1 - _LEAST:  # nothing is claimed of what is beyond: 0 and 1 are always around it
        return Fraction(t >= 1), Fraction(t > 0)
    low, high = _place(t)
    (_, tail_high), (tail_low, _) = (
        _LAW.tail_at(_LAW.down.add(low, mu[0])),
        _LAW.tail_at(_LAW.up.add(high, mu[1])),
    )
    return 1 - Fraction(tail_high), 1 - Fraction(tail_low)


def _place(t: Fraction) -> Interval:
    """Around the z with 1 - Q0(z) = ``t``: a guess, improved, and stepped away from until it is certain."""
    chance = _LAW.outside(t)
    near = _LAW.near
    found = Decimal(NormalDist().inv_cdf(float(t))) if Fraction(1, 10**290) < t < 1 - Fraction(1, 10**15) else None
    if found is None:
        return _far_place(t)
    for _ in range(2):
        off = near.subtract(_below(found)[0], chance[0])
        found = near.subtract(found, near.divide(off, _LAW.density(abs(found))[0]))
    step = Decimal("1e-26")
    while True:
        low, high = _LAW.down.subtract(found, step), _LAW.up.add(found, step)
        if _below(low)[1] <= chance[0] and _below(high)[0] >= chance[1]:
            return low, high
        step *= 10


def _far_place(t: Fraction) -> Interval:
    """The same by halving, where doubles do not reach: what is not certain is on neither side."""
    chance, ends = _LAW.outside(t), []
    for above in (False, True):
        low, high = _FAR.copy_negate(), _FAR
        for _ in range(100):
            middle = _LAW.near.divide(_LAW.near.add(low, high), 2)
            around = _below(middle)
            up = not around[0] >= chance[1] if above else around[1] <= chance[0]
            low, high = (middle, high) if up else (low, middle)
        ends.append(high if above else low)
    return ends[0], ends[1]


def _below(z: Decimal) -> Interval:
    """Around 1 - Q0(``z``)."""
    return _LAW.tail_at(z.copy_negate())


def _apart(p: Fraction, q: Fraction) -> float:
    """How many deviations lie between what these chances are the chances of; in doubles, for display."""
    if not 0 < q < 1 or not q < p < 1:
        return math.inf if p > 0 >= q or p >= 1 > q else 0.0
    if float(q) < 1e-9 or float(p) > 1 - 1e-9:  # where doubles are no longer to be believed
        return 0.0
    return NormalDist().inv_cdf(float(p)) - NormalDist().inv_cdf(float(q))
