"""Every mechanism against its own claim (exact audits), and every sampler against the law it states (tapes).

A ``Check`` is one line of the audit: a name and the work that gives its verdict. ``mechanism_checks`` lists them all;
``slow`` takes a thousand settings of each family where the quick list takes a few (HOSTILE M2, M3).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.audit.exact import (
    OPEN,
    PROVEN,
    VIOLATED,
    Chances,
    ExactAudit,
    Pair,
    chances,
    epsilon_audit,
    rho_audit,
)
from dodona.audit.noise import gaussian_audit, pure_noise_audit
from dodona.audit.tape import Interval, TapeAudit, tape, tape_audit
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential, PermuteAndFlip, RandomizedResponse
from dodona.mechanisms.bounded_laplace import BoundedLaplace
from dodona.mechanisms.characters import CharacterResponse
from dodona.mechanisms.cube import CubeResponse
from dodona.mechanisms.direction import DirectionResponse
from dodona.mechanisms.stitched import Stitched
from dodona.mechanisms.two_level import TwoLevel
from dodona.mechanisms.walsh import WalshResponse
from dodona.mechanisms.window import WindowResponse
from dodona.privacy.cost import Cost
from dodona.testing.responses import LAWS, Law

F = Fraction
Chooser = PermuteAndFlip | Exponential


@dataclass(frozen=True)
class Check:
    """One piece of an audit: ``work`` gives one or several results."""

    name: str
    work: Callable[[], Sequence[ExactAudit | TapeAudit]]


def together(name: str, audits: Iterable[ExactAudit]) -> list[ExactAudit]:
    """Audits of many settings as one line per unit: the setting with the least relative slack, or a violated one."""
    by_unit: dict[str, list[ExactAudit]] = {}
    for audit in audits:
        by_unit.setdefault(audit.unit, []).append(audit)
    merged = []
    for listed in by_unit.values():
        worst = min(listed, key=lambda a: ((VIOLATED, OPEN, PROVEN).index(a.verdict), a.slack / float(a.claimed)))
        pairs, delta = sum(a.pairs for a in listed), max(a.delta for a in listed)
        merged.append(replace(worst, mechanism=name, pairs=pairs, delta=delta, note=worst.note or worst.mechanism))
    return merged


# -- noise -----------------------------------------------------------------------------------------------------------


def _noise_checks(slow: bool) -> list[Check]:
    scales = [F(n, 8) for n in range(1, 41)] if slow else [F(1, 3), F(1), F(5, 2)]
    shifts = range(1, 26) if slow else (1, 2, 3)
    variances = [F(n, 4) for n in range(2, 202)] if slow else [F(1), F(9)]
    shapes = [(F(n, 2), F(m, 4)) for n in range(1, 9) for m in range(1, 9)] if slow else [(F(4), F(1, 2)), (F(1), F(2))]

    def laplace() -> list[ExactAudit]:
        made = [DiscreteLaplace(scale) for scale in scales]
        found = [pure_noise_audit(f"scale {m.scale}", m, shifts, m.cost) for m in made]
        return together("discrete Laplace", itertools.chain(*found))

    def gaussian() -> list[ExactAudit]:
        made = [DiscreteGaussian(variance) for variance in variances]
        found = [
            gaussian_audit(f"variance {m.variance}", m, shifts[:5], lambda d, m=m: m.cost(d * d))  # type: ignore[misc]
            for m in made
        ]
        return together("discrete Gaussian", itertools.chain(*found))

    def stitched() -> list[ExactAudit]:
        made = [Stitched(core, slope) for core, slope in shapes]
        distances = range(1, 17) if slow else (1, 2)
        found = [
            pure_noise_audit(f"core {m.core}, slope {m.slope}", m, distances, lambda d, m=m: m.cost(d, d * d))  # type: ignore[misc]
            for m in made
        ]
        return together("stitched noise", itertools.chain(*found))

    def bounded() -> list[ExactAudit]:
        epsilons = [F(n, 4) for n in range(1, 101)] if slow else [F(1, 2), F(2)]
        made = [BoundedLaplace(reach, epsilon) for reach, epsilon in itertools.product(shifts[:10], epsilons)]
        found = [pure_noise_audit(f"reach {m.reach}", m.noise, [m.reach], lambda _, m=m: m.cost()) for m in made]  # type: ignore[misc]
        return together("bounded Laplace report", itertools.chain(*found))

    return [
        Check("discrete Laplace", laplace),
        Check("discrete Gaussian", gaussian),
        Check("stitched noise", stitched),
        Check("bounded Laplace report", bounded),
    ]


# -- selection --------------------------------------------------------------------------------------------------------


def selection_audit(
    name: str, chooser: Chooser, claim: Cost, candidates: int = 3, *, step: int = 1, top: int = 2
) -> list[ExactAudit]:
    """Every vector of scores 0..``top`` against every one that is reached when a row moves each score by ``step``."""
    laws: dict[tuple[int, ...], Chances] = {}

    def law(scores: tuple[int, ...]) -> Chances:
        if scores not in laws:
            laws[scores] = chances(chooser.probabilities(np.array(scores, dtype=np.int64)))
        return laws[scores]

    pairs: list[Pair] = []
    for scores in itertools.product(range(top + 1), repeat=candidates):
        for moves in itertools.product((-step, 0, step), repeat=candidates):
            near = tuple(a + b for a, b in zip(scores, moves, strict=True))
            if near > scores:
                pairs.append((f"{list(scores)} ~ {list(near)}", law(scores), law(near)))
    assert claim.epsilon is not None
    return [epsilon_audit(name, claim.epsilon, pairs), rho_audit(name, claim.rho, claim.epsilon, pairs)]


def _selection_checks(slow: bool) -> list[Check]:
    epsilons = [F(n, 10) for n in range(1, 21)] if slow else [F(1, 2), F(2)]
    kinds: list[tuple[str, type[Chooser]]] = [("permute-and-flip", PermuteAndFlip), ("exponential", Exponential)]

    def check(name: str, kind: type[Chooser]) -> Check:
        made = [(kind(epsilon, F(1)), k) for epsilon in epsilons for k in (2, 3)]
        made += [(kind(epsilon, F(1)), 4) for epsilon in epsilons[4::5]]  # 3,240 pairs each
        return Check(
            name,
            lambda: together(
                name,
                itertools.chain(*(selection_audit(f"epsilon {m.epsilon}", m, m.cost(), k) for m, k in made)),
            ),
        )

    return [check(name, kind) for name, kind in kinds]


# -- local randomisers ------------------------------------------------------------------------------------------------


def law_pairs(law: Law) -> list[Pair]:
    """Every pair of holdings of a local randomiser."""
    table = [{report: law.probability(report, held) for report in range(law.reports)} for held in law.holdings]
    names = [str(sorted(held) if isinstance(held, frozenset) else held) for held in law.holdings]
    return [(f"{names[i]} ~ {names[j]}", table[i], table[j]) for i, j in itertools.combinations(range(len(table)), 2)]


def randomiser_audit(name: str, randomiser: Any) -> list[ExactAudit]:
    """Each law of a local randomiser at the cost it claims."""
    cost: Cost = randomiser.cost()
    assert cost.epsilon is not None
    found: list[ExactAudit] = []
    for law in LAWS[type(randomiser)](randomiser):
        pairs = law_pairs(law)
        found += [epsilon_audit(name, cost.epsilon, pairs), rho_audit(name, cost.rho, cost.epsilon, pairs)]
    return found


def _response(response: RandomizedResponse) -> Law:
    def sample(value: int, n: int, bits: Any) -> Any:
        return response.sample(np.full(n, value, dtype=np.int64), bits)

    return Law("randomised response", response.k, range(response.k), response.epsilon, response.probability, sample)


def _randomisers(slow: bool) -> dict[str, list[Any]]:
    epsilons = [F(n, 20) for n in range(1, 161)] if slow else [F(1, 2), F(2)]
    return {
        "two-level draw": [TwoLevel(k, r, e) for e in epsilons for k, r in ((3, 1), (5, 2))],
        "cube response": [
            CubeResponse(t, near, e) for e in epsilons for t, near in ((1, (0,)), (2, (0,)), (3, (0, 2)))
        ],
        "window response": [WindowResponse(k, w, e) for e in epsilons for k, w in ((3, 1), (5, 2))],
        "Walsh response": [WalshResponse(k, e) for e in epsilons for k in (3, 8)],
        "direction response": [DirectionResponse(k, r, e) for e in epsilons for k, r in ((2, 1), (4, 2))],
        "character response": [CharacterResponse.plan(3, (1.0, 1.0), e) for e in epsilons],
    }


def _local_checks(slow: bool) -> list[Check]:
    epsilons = [F(n, 20) for n in range(1, 101)] if slow else [F(1, 2), F(2)]

    def responses() -> list[ExactAudit]:
        found: list[ExactAudit] = []
        for k, epsilon in itertools.product((2, 3, 5), epsilons):
            pairs, cost = law_pairs(_response(RandomizedResponse(k, epsilon))), RandomizedResponse(k, epsilon).cost()
            name = f"k {k}, epsilon {epsilon}"
            found += [epsilon_audit(name, epsilon, pairs), rho_audit(name, cost.rho, epsilon, pairs)]
        return together("randomised response", found)

    def check(name: str, made: Sequence[Any]) -> Check:
        return Check(
            name,
            lambda: together(name, itertools.chain(*(randomiser_audit(f"epsilon {m.epsilon}", m) for m in made))),
        )

    return [Check("randomised response", responses), *(check(*item) for item in _randomisers(slow).items())]


# -- samplers ---------------------------------------------------------------------------------------------------------


def noise_tape(name: str, noise: Any, residual: Fraction, most_runs: int = 20_000) -> TapeAudit:
    """One draw of integer noise, enumerated, against the probabilities it states."""
    found = tape(lambda bits: int(noise.sample(1, bits)[0]), residual=residual, most_runs=most_runs)
    return tape_audit(name, found, noise.probability)


def _tape_checks(slow: bool) -> list[Check]:
    residual = F(1, 10**9) if slow else F(1, 10**4)
    noises = [
        ("discrete Laplace, scale 1", DiscreteLaplace(F(1))),
        ("discrete Laplace, scale 2", DiscreteLaplace(F(2))),
    ]
    noises += [("discrete Gaussian, variance 1", DiscreteGaussian(F(1))), ("stitched", Stitched(F(4), F(1, 4)))]  # type: ignore[list-item]
    if slow:  # from scale 16 on a draw is a table, uniform bits and a coin
        noises += [("discrete Laplace, scale 20", DiscreteLaplace(F(20)))]
        noises += [("discrete Gaussian, variance 4,200", DiscreteGaussian(F(4200)))]  # type: ignore[list-item]

    def noise(name: str, mechanism: Any) -> Check:
        return Check(f"sampler: {name}", lambda: [noise_tape(name, mechanism, residual, 12_000)])

    def chooser(name: str, mechanism: Chooser) -> Check:
        scores = np.array([2, 0, 1, 2], dtype=np.int64)
        stated = mechanism.probabilities(scores)
        return Check(
            f"sampler: {name}",
            lambda: [
                tape_audit(
                    name, tape(lambda bits: mechanism.sample(scores, bits), residual=residual), stated.__getitem__
                )
            ],
        )

    def law(name: str, each: Law) -> Check:
        held = each.holdings[-1]

        def stated(report: int) -> Interval:
            chance = each.probability(report, held)
            return chance, chance

        def work() -> list[TapeAudit]:
            found = tape(
                lambda bits: int(each.draw(held, 1, bits)[0]), residual=max(residual, F(1, 1000)), most_runs=4000
            )
            return [tape_audit(name, found, stated)]

        return Check(f"sampler: {name}", work)

    local = [(name, next(iter(LAWS[type(m)](m)))) for name, made in _randomisers(False).items() for m in made[-1:]]
    return [
        *(noise(*item) for item in noises),
        chooser("permute-and-flip", PermuteAndFlip(F(1), F(1))),
        chooser("exponential", Exponential(F(1), F(1))),
        law("randomised response", _response(RandomizedResponse(3, F(1)))),
        *(law(*item) for item in local),
    ]


def mechanism_checks(slow: bool = False) -> list[Check]:
    """Every mechanism and every sampler."""
    return [*_noise_checks(slow), *_selection_checks(slow), *_local_checks(slow), *_tape_checks(slow)]
