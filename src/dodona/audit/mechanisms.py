"""Every mechanism against its own claim (exact audits), and every sampler against the law it states (tapes).

A ``Check`` is one line of the audit: a name and the work that gives its verdict. ``mechanism_checks`` lists them all;
``slow`` takes a thousand settings of each family where the quick list takes a few (HOSTILE M2, M3).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from dodona._doors import load_package
from dodona.audit import exact
from dodona.audit.curve import mu_audit
from dodona.audit.enumeration import Interval, TapeAudit, tape, tape_audit
from dodona.mechanisms.mechanism import (
    AdditiveNoise,
    Law,
    Mechanism,
    ReportLaw,
    ShiftLaw,
    ShownLaw,
    noise_families,
    registered_mechanisms,
)
from dodona.mechanisms.selection import ChoiceLaw, Chooser
from dodona.mechanisms.threshold import Threshold
from dodona.privacy.budget import ACCOUNTANTS, Budget
from dodona.privacy.cost import Cost
from dodona.query.sensitivity import Norms

F = Fraction
ORDERS = tuple(Fraction(n, 16) for n in (1, 4, 8, 13, 16, 24, 32, 48, 80, 128))
"""t = alpha - 1 at which a discrete Gaussian is checked; every order follows from ``mechanisms/gaussian.md``."""
OUTSIDE = 1e-12


@dataclass(frozen=True)
class Check:
    """One piece of an audit: ``work`` gives one or several results."""

    name: str
    work: Callable[[], Sequence[exact.ExactAudit | TapeAudit]]


def together(name: str, audits: Iterable[exact.ExactAudit]) -> list[exact.ExactAudit]:
    """Audits of many settings as one line per unit: the setting with the least relative slack, or a violated one."""
    by_unit: dict[str, list[exact.ExactAudit]] = {}
    for audit in audits:
        by_unit.setdefault(audit.unit, []).append(audit)
    merged = []
    for listed in by_unit.values():
        worst = min(
            listed,
            key=lambda a: (
                (exact.VIOLATED, exact.OPEN, exact.PROVEN).index(a.verdict),
                a.slack / max(float(a.claimed), 1e-9),
            ),
        )
        pairs, delta = sum(a.pairs for a in listed), max(a.delta for a in listed)
        merged.append(replace(worst, mechanism=name, pairs=pairs, delta=delta, note=worst.note or worst.mechanism))
    return merged


# -- noise -----------------------------------------------------------------------------------------------------------
#
# X against X + d, for the cost the mechanism itself claims at distance d. Only the probabilities the mechanism states
# are used, on a window that holds all but about 1e-12 of them; the rest is what ``delta`` counts. That the sampler
# draws from these probabilities is what ``audit/enumeration.py`` shows.


def pure_noise_audit(
    name: str, noise: AdditiveNoise, shifts: Iterable[int], claim: Callable[[int], Cost]
) -> list[exact.ExactAudit]:
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
        found.append(exact.epsilon_audit(name, cost.epsilon, [(label, lows[0], lows[1])], unexplored=unexplored))
        seen = exact.worst_rho(exact.Terms.of_brackets(here, there), cost.rho, cost.epsilon)
        verdict = exact.VIOLATED if seen.violated else exact.PROVEN if seen.proven else exact.OPEN
        found.append(exact.ExactAudit(name, "rho", cost.rho, seen.realised, 1, label, verdict))
        found.append(mu_audit(name, squared_of(cost), [(label, lows[0], lows[1])], unexplored=unexplored))
    return found


def squared_of(cost: Cost) -> Fraction:
    """The mu^2 that is claimed, of what claims one."""
    squared = cost.mu_squared
    assert squared is not None, "no mu is claimed."
    return squared


def curve_audit(
    name: str, noise: AdditiveNoise, shifts: Iterable[int], claim: Callable[[int], Cost]
) -> list[exact.ExactAudit]:
    """The whole trade-off curve at each distance, for noise that is Gaussian-private; its rho follows from mu."""
    found, stated = [], cache(noise.probability)
    for shift in shifts:
        # Twice as far as elsewhere: where the one law has next to nothing, what the other has there is judged by it.
        window = 2 * noise.quantile(1 - OUTSIDE) + abs(shift)
        here = {k: stated(k)[0] for k in range(-window, window + 1)}
        there = {k: stated(k - shift)[0] for k in range(-window, window + 1)}
        pair = (f"0 ~ {shift}", here, there)
        found.append(mu_audit(name, squared_of(claim(shift)), [pair], unexplored=Fraction(OUTSIDE) * 1000))
    return found


def gaussian_audit(
    name: str, noise: AdditiveNoise, shifts: Iterable[int], claim: Callable[[int], Cost]
) -> list[exact.ExactAudit]:
    """D_alpha(X || X + d) <= rho alpha at ``ORDERS``, summed with outward rounding.

    P(k)^alpha P(k - d)^(1 - alpha) is a Gaussian around -t d; beyond the window its terms fall faster than any two
    neighbours at the edge, so the tail is at most the edge term times r/(1 - r), r that last ratio.
    """
    found, stated = [], cache(noise.probability)
    for shift in shifts:
        rho = claim(shift).rho
        reach = noise.quantile(1 - OUTSIDE) * 2 + abs(shift)
        realised, verdict = 0.0, exact.PROVEN
        for order in ORDERS:
            centre = -round(order * shift)
            window = range(centre - reach, centre + reach + 1)
            here = {k: stated(k) for k in window}
            there = {k: stated(k - shift) for k in window}
            with localcontext(exact.PRECISE):
                t = Decimal(order.numerator) / order.denominator
                terms = exact.Terms.of_brackets(here, there)
                low, high = exact.cumulant(terms, t, _tails(terms, t))
                allowed = Decimal(rho.numerator) / rho.denominator * t * (1 + t)
                if low > allowed:
                    verdict = exact.VIOLATED
                elif (
                    high > allowed + Decimal(exact.HAIR.numerator) / exact.HAIR.denominator and verdict == exact.PROVEN
                ):
                    verdict = exact.OPEN
                realised = max(realised, float(high / (t * (1 + t))))
        note = f"at {len(ORDERS)} orders"
        found.append(exact.ExactAudit(name, "rho", rho, realised, 1, f"0 ~ {shift}", verdict, note=note))
    return found


def promise_audit(name: str, noise: AdditiveNoise, epsilon: Fraction, delta: Fraction) -> exact.ExactAudit:
    """X against X + 1 at the (``epsilon``, ``delta``) that a ledger in rho states for it: ``realised`` is the epsilon
    the noise needs at that delta, to two digits.
    """
    reach = noise.quantile(1 - OUTSIDE) + 1
    stated = {k: noise.probability(k)[0] for k in range(-reach - 1, reach + 1)}
    here = {k: stated[k] for k in range(-reach, reach + 1)}
    there = {k: stated[k - 1] for k in range(-reach, reach + 1)}
    found = exact.epsilon_audit(name, epsilon, [("0 ~ 1", here, there)], delta=delta, unexplored=Fraction(0))
    needed = epsilon
    while needed > epsilon / 2 and exact.delta_bounds(here, there, exact.exp_bounds(needed * 99 / 100))[1] <= delta:
        needed = needed * 99 / 100
    return replace(found, realised=float(needed), note=f"delta {float(delta):g}")


def _tails(terms: exact.Terms, t: Decimal) -> Decimal:
    """A bound of both tails beyond the window, from the last two terms at each end."""
    total = Decimal(0)
    for last, before in ((terms.logs[0], terms.logs[1]), (terms.logs[-1], terms.logs[-2])):
        edge, inner = ((p + t * (p - q)).exp() for p, q, _ in (last, before))
        ratio = edge / inner
        if ratio >= 1:
            return Decimal("Infinity")
        total += edge * ratio / (1 - ratio)
    return total * (1 + Decimal(10) ** -20)


def shift_audit(name: str, law: ShiftLaw, slow: bool = False) -> list[exact.ExactAudit]:
    """Noise against itself moved, at the cost it claims: epsilon, rho and mu, or mu, or rho alone where that is all it
    claims.

    The last needs tails that fall ever faster, as a Gaussian's do.
    """
    distances = law.distances[slow]
    judge = {"epsilon": pure_noise_audit, "mu^2": curve_audit, "rho": gaussian_audit}[law.claim(distances[0]).unit]
    return judge(name, law.noise, distances, law.claim)


def _whole_check() -> Check:
    """Budgets of (epsilon, delta) by either accountant: one answer takes all of it, and what a ledger then states."""
    name, one = "Gaussian noise for a whole budget", Norms(F(1), F(1), F(1))

    def work() -> list[exact.ExactAudit]:
        deltas = (F(1, 10**3), F(1, 10**6))
        promised = [(e, d) for e in (F(1, 2), F(1), F(4)) for d in deltas]
        made = [Budget(epsilon=e, delta=d, accountant=who) for who in ACCOUNTANTS for e, d in promised]
        made += [Budget.sulq(F(1), d, queries=1) for d in deltas]
        made += [Budget(rho=F(1, 50)), Budget(rho=F(1, 2))]
        found = []
        for budget, family in ((b, family) for b in made for family in noise_families(b.unit)):
            noise = family.for_cost(one, budget.total)
            promises = [budget.guarantee(budget.capacity)]
            promises += [(budget.epsilon, budget.delta)] if budget.epsilon else []
            found += [promise_audit(str(budget), noise, *promised) for promised in promises]
        return together(name, found)

    return Check(name, work)


# -- selection --------------------------------------------------------------------------------------------------------


def selection_audit(
    name: str, chooser: Chooser, claim: Cost, candidates: int = 3, *, step: int = 1, top: int = 2
) -> list[exact.ExactAudit]:
    """Every vector of scores 0..``top`` against every one that is reached when a row moves each score by ``step``."""
    laws: dict[tuple[int, ...], exact.Chances] = {}

    def law(scores: tuple[int, ...]) -> exact.Chances:
        if scores not in laws:
            laws[scores] = exact.chances(chooser.probabilities(np.array(scores, dtype=np.int64)))
        return laws[scores]

    pairs: list[exact.Pair] = []
    for scores in itertools.product(range(top + 1), repeat=candidates):
        for moves in itertools.product((-step, 0, step), repeat=candidates):
            near = tuple(a + b for a, b in zip(scores, moves, strict=True))
            if near > scores:
                pairs.append((f"{list(scores)} ~ {list(near)}", law(scores), law(near)))
    return _pure_audits(name, claim, pairs)


def _pure_audits(name: str, claim: Cost, pairs: Sequence[exact.Pair]) -> list[exact.ExactAudit]:
    """Epsilon, rho and mu of laws that can be listed."""
    assert claim.epsilon is not None
    found = [exact.epsilon_audit(name, claim.epsilon, pairs), exact.rho_audit(name, claim.rho, claim.epsilon, pairs)]
    return [*found, mu_audit(name, squared_of(claim), pairs)]


def choice_audit(name: str, law: ChoiceLaw, slow: bool = False) -> list[exact.ExactAudit]:
    """Among two and three candidates; with ``slow`` among four as well at every fifth setting (3,240 pairs each)."""
    chooser = law.chooser
    counts = (2, 3, 4) if slow and (2 * chooser.epsilon).denominator == 1 else (2, 3)
    return [audit for k in counts for audit in selection_audit(name, chooser, chooser.cost(), k)]


# -- keys that nobody listed ------------------------------------------------------------------------------------------


def shown_law(threshold: Threshold, count: int, outside: float = OUTSIDE) -> exact.Chances:
    """What is seen of a key with ``count`` people: None where it is not shown, else its noisy count.

    Lower bounds; counts far above the threshold are one outcome, as are all that are not shown.
    """
    if count == 0 and not threshold.domain:
        return {None: F(1)}
    far = max(threshold.least, count) + threshold.noise.quantile(1 - outside)
    told = {y: threshold.chance(y, count) for y in range(threshold.lowest, far)}
    hidden = F(0)
    for often, noise, least in threshold.ways:
        hidden += often * sum((low for low, _ in map(noise.probability, range(-far - count, least - count))), F(0))
    beyond = 1 - hidden - sum((high for _, high in told.values()), F(0)) - F(outside)
    return {None: hidden, **{y: low for y, (low, _) in told.items()}, far: max(beyond, F(0))}


def shown_audit(name: str, law: ShownLaw, cost: Cost) -> list[exact.ExactAudit]:
    """Epsilon and delta of all that is shown of a few keys, both ways round; of Gaussian noise delta alone: what one
    of the two tables can show and the other cannot.
    """
    tables = [
        {
            seen: math.prod((chances[key] for chances, key in zip(laws, seen, strict=True)), start=F(1))
            for seen in itertools.product(*laws)
        }
        for laws in ([shown_law(law.threshold, count) for count in counts] for counts in (law.here, law.there))
    ]
    label, away = f"{list(law.here)} ~ {list(law.there)}", F(OUTSIDE) * 10
    if cost.epsilon is not None:
        pair = (label, *tables)
        return [exact.epsilon_audit(name, cost.epsilon, [pair], delta=cost.delta, unexplored=away)]  # type: ignore[list-item]
    lost = [sum((p for seen, p in a.items() if not b.get(seen)), F(0)) for a, b in (tables, tables[::-1])]
    verdict = exact.PROVEN if max(lost) <= cost.delta + away else exact.VIOLATED
    return [exact.ExactAudit(name, "delta", cost.delta, float(max(lost)), 1, label, verdict)]


# -- local randomisers ------------------------------------------------------------------------------------------------


def law_pairs(law: ReportLaw) -> list[exact.Pair]:
    """Every pair of holdings of a local randomiser."""
    table = [{report: law.probability(report, held) for report in range(law.reports)} for held in law.holdings]
    names = [str(sorted(held) if isinstance(held, frozenset) else held) for held in law.holdings]
    return [(f"{names[i]} ~ {names[j]}", table[i], table[j]) for i, j in itertools.combinations(range(len(table)), 2)]


def report_law_audit(name: str, law: ReportLaw, cost: Cost) -> list[exact.ExactAudit]:
    """One law of a local randomiser at the cost that the randomiser claims."""
    return _pure_audits(name, cost, law_pairs(law))


# -- all of them ------------------------------------------------------------------------------------------------------


def mechanism_audit(name: str, mechanism: Mechanism, slow: bool = False) -> list[exact.ExactAudit]:
    """Each law that one mechanism states, at the cost it claims."""
    return [audit for law in mechanism.laws() for audit in _law_audit(name, mechanism, law, slow)]


def _law_audit(name: str, mechanism: Any, law: Law, slow: bool) -> list[exact.ExactAudit]:
    if isinstance(law, ShiftLaw):
        return shift_audit(name, law, slow)
    if isinstance(law, ChoiceLaw):
        return choice_audit(name, law, slow)
    if isinstance(law, ShownLaw):
        return shown_audit(name, law, mechanism.cost())
    assert isinstance(law, ReportLaw), f"the audit knows no law such as {type(law).__name__}."
    return report_law_audit(name, law, mechanism.cost())


def noise_tape(name: str, noise: AdditiveNoise, residual: Fraction, most_runs: int = 20_000) -> TapeAudit:
    """One draw of integer noise, enumerated, against the probabilities it states."""
    found = tape(lambda bits: int(noise.sample(1, bits)[0]), residual=residual, most_runs=most_runs)
    return tape_audit(name, found, noise.probability)


def law_tape(name: str, law: Law, residual: Fraction) -> TapeAudit:
    """One draw, enumerated, against the law its mechanism states."""
    if isinstance(law, ShiftLaw):
        return noise_tape(name, law.noise, residual, 12_000)
    if isinstance(law, ChoiceLaw):
        chooser, scores = law.chooser, np.array([2, 0, 1, 2], dtype=np.int64)
        found = tape(lambda bits: chooser.sample(scores, bits), residual=residual)
        return tape_audit(name, found, chooser.probabilities(scores).__getitem__)
    assert isinstance(law, ReportLaw)
    held = law.holdings[-1]

    def stated(report: int) -> Interval:
        chance = law.probability(report, held)
        return chance, chance

    found = tape(lambda bits: int(law.draw(held, 1, bits)[0]), residual=max(residual, F(1, 1000)), most_runs=4000)
    return tape_audit(name, found, stated)


def mechanism_checks(slow: bool = False) -> list[Check]:
    """Every registered mechanism and its samplers; those that papers describe and no oracle draws, too."""
    load_package("dodona.papers")
    residual = F(1, 10**9) if slow else F(1, 10**4)

    def laws(kind: type[Mechanism]) -> Check:
        def work() -> list[exact.ExactAudit]:
            audits = (mechanism_audit(each.label, each, slow) for each in kind.settings(slow))
            return together(kind.name, itertools.chain(*audits))

        return Check(kind.name, work)

    def sampler(name: str, mechanism: Mechanism) -> Check:
        return Check(f"sampler: {name}", lambda: [law_tape(name, next(iter(mechanism.laws())), residual)])

    kinds = registered_mechanisms()
    drawn = itertools.chain(*(kind.drawn(slow) for kind in kinds))
    return [*map(laws, kinds), _whole_check(), *itertools.starmap(sampler, drawn)]
