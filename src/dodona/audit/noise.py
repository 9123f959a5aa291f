"""Exact audits of integer noise: X against X + d, for the cost the mechanism itself claims at distance d.

Only the probabilities the mechanism states are used, on a window that holds all but about 1e-12 of them; the rest is
what ``delta`` counts. That the sampler draws from these probabilities is what ``tape.py`` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Protocol

from dodona.audit.exact import HAIR, OPEN, PROVEN, VIOLATED, ExactAudit, epsilon_audit
from dodona.audit.renyi import PRECISE, Terms, cumulant, worst_rho
from dodona.privacy.cost import Cost

ORDERS = tuple(Fraction(n, 16) for n in (1, 4, 8, 13, 16, 24, 32, 48, 80, 128))
"""t = alpha - 1 at which a discrete Gaussian is checked; every order follows from ``gaussian.md``."""
OUTSIDE = 1e-12
Bracket = tuple[Fraction, Fraction]


class Noise(Protocol):
    """Integer noise that states its probabilities."""

    def probability(self, k: int) -> Bracket:
        """Rationals around P(X = k)."""

    def quantile(self, confidence: float) -> int:
        """The least t with P(|X| <= t) >= confidence."""


def pure_noise_audit(name: str, noise: Noise, shifts: Iterable[int], claim: Callable[[int], Cost]) -> list[ExactAudit]:
    """Epsilon and rho at each distance, for noise with a pure guarantee (Laplace, stitched)."""
    found, stated = [], cache(noise.probability)
    for shift in shifts:
        cost = claim(shift)
        assert cost.epsilon is not None, f"{name} claims no epsilon."
        window = noise.quantile(1 - OUTSIDE) + abs(shift)
        here = {k: stated(k) for k in range(-window, window + 1)}
        there = {k: stated(k - shift) for k in range(-window, window + 1)}
        lows = [{k: low for k, (low, _) in law.items()} for law in (here, there)]
        label = f"0 ~ {shift}"
        unexplored = Fraction(OUTSIDE) * 1000  # the window cuts the shifted law nearer to its middle
        found.append(epsilon_audit(name, cost.epsilon, [(label, lows[0], lows[1])], unexplored=unexplored))
        seen = worst_rho(Terms.of_brackets(here, there), cost.rho, cost.epsilon)
        verdict = VIOLATED if seen.violated else PROVEN if seen.proven else OPEN
        found.append(ExactAudit(name, "rho", cost.rho, seen.realised, 1, label, verdict))
    return found


def gaussian_audit(name: str, noise: Noise, shifts: Iterable[int], claim: Callable[[int], Cost]) -> list[ExactAudit]:
    """D_alpha(X || X + d) <= rho alpha at ``ORDERS``, summed with outward rounding.

    P(k)^alpha P(k - d)^(1 - alpha) is a Gaussian around -t d; beyond the window its terms fall faster than any two
    neighbours at the edge, so the tail is at most the edge term times r/(1 - r), r that last ratio.
    """
    found, stated = [], cache(noise.probability)
    for shift in shifts:
        rho = claim(shift).rho
        reach = noise.quantile(1 - OUTSIDE) * 2 + abs(shift)
        realised, verdict = 0.0, PROVEN
        for order in ORDERS:
            centre = -round(order * shift)
            window = range(centre - reach, centre + reach + 1)
            here = {k: stated(k) for k in window}
            there = {k: stated(k - shift) for k in window}
            with localcontext(PRECISE):
                t = Decimal(order.numerator) / order.denominator
                terms = Terms.of_brackets(here, there)
                low, high = cumulant(terms, t, _tails(terms, t))
                allowed = Decimal(rho.numerator) / rho.denominator * t * (1 + t)
                if low > allowed:
                    verdict = VIOLATED
                elif high > allowed + Decimal(HAIR.numerator) / HAIR.denominator and verdict == PROVEN:
                    verdict = OPEN
                realised = max(realised, float(high / (t * (1 + t))))
        note = f"at {len(ORDERS)} orders"
        found.append(ExactAudit(name, "rho", rho, realised, 1, f"0 ~ {shift}", verdict, note=note))
    return found


def _tails(terms: Terms, t: Decimal) -> Decimal:
    """A bound of both tails beyond the window, from the last two terms at each end."""
    total = Decimal(0)
    for last, before in ((terms.logs[0], terms.logs[1]), (terms.logs[-1], terms.logs[-2])):
        edge, inner = ((p + t * (p - q)).exp() for p, q, _ in (last, before))
        ratio = edge / inner
        if ratio >= 1:
            return Decimal("Infinity")
        total += edge * ratio / (1 - ratio)
    return total * (1 + Decimal(10) ** -20)
