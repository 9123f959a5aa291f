"""Exact audits of mechanisms: what we ship is proved, and deliberately broken copies are refuted."""

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest

from dodona.audit.exact import (
    PROVEN,
    VIOLATED,
    ExactAudit,
    chances,
    delta_bounds,
    epsilon_audit,
    exp_bounds,
    loss_audit,
    rho_audit,
)
from dodona.audit.mechanisms import (
    Check,
    curve_audit,
    gaussian_audit,
    mechanism_audit,
    mechanism_checks,
    pure_noise_audit,
    selection_audit,
    together,
)
from dodona.audit.suite import parity_audit
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential, PermuteAndFlip, RandomizedResponse
from dodona.mechanisms.cube import CubeResponse
from dodona.mechanisms.parity import COIN, ParitySolver
from dodona.mechanisms.rounded import RoundedGaussian
from dodona.mechanisms.weights import Rounds
from dodona.papers.stitched import Stitched
from dodona.privacy.cost import Cost

HALF, ONE, TWO = F(1, 2), F(1), F(2)


# -- the arithmetic ---------------------------------------------------------------------------------------------------


def test_e_is_bracketed():
    low, high = exp_bounds(ONE)
    assert low < F("2.71828182845904523536028747135266249775724709369996") < high
    assert high - low < F(1, 10**40)


def test_delta_is_bracketed_by_what_is_known():
    one, other = {"a": F(3, 4), "b": F(1, 4)}, {"a": F(1, 4), "b": F(1, 2)}  # a quarter of the other is unknown
    lower, upper = delta_bounds(one, other, (TWO, TWO))
    assert (lower, upper) == (0, F(1, 4))
    lower, upper = delta_bounds(one, {"a": F(1, 8), "b": F(7, 8)}, (TWO, TWO))
    assert lower == upper == F(1, 2)


def test_a_pair_that_is_exactly_tight_is_proved_and_a_hair_less_is_refuted():
    third = {0: F(2, 3), 1: F(1, 3)}, {0: F(1, 3), 1: F(2, 3)}  # ln 2
    ln2 = F("0.693147180559945309417232121458176568")
    assert epsilon_audit("coin", ln2 + F(1, 10**30), [("x", *third)]).verdict == PROVEN
    audit = epsilon_audit("coin", ln2 - F(1, 10**30), [("x", *third)])
    assert audit.verdict == VIOLATED
    assert audit.realised == pytest.approx(float(ln2))


def test_an_impossible_outcome_is_never_private():
    pair = [("x", {0: ONE}, {0: HALF, 1: HALF})]
    assert epsilon_audit("leak", F(50), pair).verdict == VIOLATED
    assert epsilon_audit("leak", F(50), pair, delta=HALF).verdict == PROVEN
    assert rho_audit("leak", F(50), F(50), pair).verdict == VIOLATED


def test_unknown_mass_is_neither_proof_nor_refutation():
    partly = {0: F(9, 10)}, {0: F(9, 10)}
    assert epsilon_audit("partly", ONE, [("x", *partly)]).verdict == "not decided"
    audit = epsilon_audit("partly", ONE, [("x", *partly)], unexplored=F(1, 10))
    assert audit.verdict == PROVEN
    assert audit.delta == pytest.approx(0.1)


@pytest.mark.parametrize("epsilon", [F(1, 10), ONE, F(3)])
def test_rho_of_a_coin_is_found_to_a_few_percent(epsilon):
    """Proved a little above the true rho, refuted a little below: the chords and the orders are fine enough."""
    response = RandomizedResponse(2, epsilon)
    pair = [("0 ~ 1", *({r: response.probability(r, v) for r in (0, 1)} for v in (0, 1)))]
    realised = F(rho_audit("coin", epsilon**2 / 2, epsilon, pair).realised)
    assert rho_audit("coin", realised * F(103, 100), epsilon, pair).verdict == PROVEN
    assert rho_audit("coin", realised * F(97, 100), epsilon, pair).verdict == VIOLATED


def test_losses_in_closed_form():
    assert loss_audit("sum", "epsilon", ONE, [("a", HALF), ("b", ONE)]).holds
    audit = loss_audit("sum", "epsilon", ONE, [("a", HALF), ("b", F(3, 2))])
    assert (audit.verdict, audit.worst, audit.slack) == (VIOLATED, "b", -0.5)


def test_many_settings_as_one_line_show_the_worst():
    merged = together(
        "all", [loss_audit("x", "epsilon", ONE, [("a", HALF)]), loss_audit("y", "epsilon", TWO, [("b", TWO)])]
    )
    assert [(a.mechanism, a.worst, a.pairs, a.note) for a in merged] == [("all", "b", 2, "y")]
    broken = loss_audit("z", "epsilon", ONE, [("c", TWO)])
    assert together("all", [*merged, broken])[0].verdict == VIOLATED


# -- what we ship -----------------------------------------------------------------------------------------------------

CHECKS = [check for check in mechanism_checks() if not check.name.startswith("sampler")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_mechanism_is_proved(check: Check):
    audits = check.work()
    assert audits
    assert all(audit.holds for audit in audits), audits
    # Tight but for rounding: noise thrown away would show here.
    assert any(audit.slack <= 0.35 * float(audit.claimed) for audit in audits)


def test_every_mechanism_that_claims_a_cost_is_registered_and_so_audited():
    """A mechanism that nobody audits would be a hope."""
    from dodona import mechanisms
    from dodona.mechanisms.mechanism import registered_mechanisms

    known, claiming = set(registered_mechanisms()), set()
    for found in pkgutil.iter_modules(mechanisms.__path__, "dodona.mechanisms."):
        for value in vars(importlib.import_module(found.name)).values():
            if inspect.isclass(value) and hasattr(value, "cost") and not inspect.isabstract(value):
                claiming.add(value)
    # The law of one is over whole tables (``parity_audit``); the other is a sum of registered ones, each with its law.
    assert claiming - known == {ParitySolver, Rounds}


def test_the_parity_learner_is_proved_under_both_relations():
    audits = parity_audit("A", ParitySolver(HALF), 3, 1)
    assert [audit.verdict for audit in audits] == [PROVEN, PROVEN]
    assert audits[0].realised > 0.49


# -- broken copies ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Halved(DiscreteLaplace):
    """Draws half of the noise its cost is for."""

    def probability(self, k):
        return DiscreteLaplace(self.scale / 2).probability(k)


@dataclass(frozen=True)
class MinusZero(DiscreteLaplace):
    """Sign and size drawn apart, -0 kept: 0 is twice as likely as it should be."""

    def probability(self, k):
        low, high = DiscreteLaplace(self.scale).probability(k)
        zero = DiscreteLaplace(self.scale).probability(0)
        double = 2 if k == 0 else 1
        return low * double / (1 + zero[1]), high * double / (1 + zero[0])


@dataclass(frozen=True)
class Narrow(DiscreteGaussian):
    """Standard deviation halved."""

    def probability(self, k):
        return DiscreteGaussian(self.variance / 4).probability(k)


@dataclass(frozen=True)
class NarrowRounded(RoundedGaussian):
    """The same, of rounded noise: judged in mu^2."""

    def probability(self, k):
        return RoundedGaussian(self.variance / 4).probability(k)


@dataclass(frozen=True)
class Greedy(ParitySolver):
    """Picks rows one part in a thousand too often."""

    @property
    def probability(self):
        return F(self.pick, COIN) * F(1001, 1000)


@dataclass(frozen=True)
class Cheap(CubeResponse):
    """Claims three quarters of what it costs."""

    def cost(self):
        return Cost.pure(self.epsilon * F(3, 4))


REFUTED, ALL_PROVEN = ({(unit, verdict) for unit in ("epsilon", "rho", "mu^2")} for verdict in (VIOLATED, PROVEN))


def verdicts(audits):
    return {(audit.unit, audit.verdict) for audit in audits}


def test_noise_halved_is_refuted():
    broken = Halved(ONE)
    assert verdicts(pure_noise_audit("halved", broken, [1], broken.cost)) == REFUTED
    narrow = Narrow(F(4))
    assert verdicts(gaussian_audit("narrow", narrow, [1], lambda d: narrow.cost(d * d))) == {("rho", VIOLATED)}
    rounded = NarrowRounded(F(4))
    assert verdicts(curve_audit("rounded", rounded, [1], lambda d: rounded.cost(d * d))) == {("mu^2", VIOLATED)}


def test_minus_zero_is_refuted_at_the_stated_ratio():
    """V10: P(0)/P(1) = 2e = 5.4 > e."""
    broken = MinusZero(ONE)
    audit, *others = pure_noise_audit("-0", broken, [1], broken.cost)
    assert verdicts([audit, *others]) == REFUTED
    assert audit.realised == pytest.approx(1 + np.log(2), rel=1e-9)


def test_one_group_for_two_is_refuted():
    """A row that moves two cells is not covered by noise for one."""
    mechanism = DiscreteLaplace(ONE)
    audits = pure_noise_audit("two cells", mechanism, [2], lambda _: mechanism.cost(1))
    assert verdicts(audits) == REFUTED


@pytest.mark.parametrize("kind", [PermuteAndFlip, Exponential])
def test_selection_at_half_its_sensitivity_is_refuted(kind):
    chooser = kind(ONE, HALF)
    assert verdicts(selection_audit("half", chooser, chooser.cost(), 2, step=1)) == REFUTED


def test_permute_and_flip_with_the_exponential_mechanisms_rho_is_refuted():
    """A11, V12: four times too small, with a proof that belongs to another algorithm."""
    chooser = PermuteAndFlip(ONE, ONE)
    claimed = Cost.pure(ONE, F(1, 8))
    epsilon, rho, squared = selection_audit("noisy max", chooser, claimed, 2)
    assert epsilon.verdict == PROVEN
    assert rho.verdict == VIOLATED
    assert rho.realised > 2 * float(claimed.rho)
    assert squared.verdict == PROVEN  # this claim is that of any pure release; the other's mu is refuted as its rho is
    assert verdicts(selection_audit("noisy max", chooser, Cost.ranged(ONE), 2)) == {
        ("epsilon", PROVEN),
        ("rho", VIOLATED),
        ("mu^2", VIOLATED),
    }
    for cost in (claimed, Cost.ranged(ONE)):
        assert verdicts(selection_audit("exponential", Exponential(ONE, ONE), cost, 2)) == ALL_PROVEN


def test_noisy_max_of_the_hostile_case():
    """V12: [0, 0] against [1, -1]."""
    chooser = PermuteAndFlip(ONE, ONE)
    laws = [chances(chooser.probabilities(np.array(s, dtype=np.int64))) for s in ([0, 0], [1, -1])]
    assert rho_audit("noisy max", chooser.cost().rho, ONE, [("V12", *laws)]).verdict == PROVEN
    assert rho_audit("noisy max", F(1, 8), ONE, [("V12", *laws)]).verdict == VIOLATED


def test_other_broken_copies_are_refuted():
    assert {a.verdict for a in parity_audit("greedy", Greedy(HALF), 1, 1)} >= {VIOLATED}
    assert ("epsilon", VIOLATED) in verdicts(
        [epsilon_audit("cheap", F(3, 4), [("0 ~ 1", *_cube_laws(Cheap(2, (0,), ONE)))])]
    )
    stitched = Stitched(F(4), HALF)
    steeper = pure_noise_audit("steeper", stitched, [1], lambda d: Stitched(F(8), F(1, 4)).cost(d, d * d))
    assert verdicts(steeper) == REFUTED


def test_a_rho_that_is_tight_as_the_order_falls_to_one_is_proved_and_a_hair_less_is_not():
    """The divergence of order 1 is all of the claim; beyond it the variance of the loss must do."""
    noise = Stitched(HALF, TWO)
    assert verdicts(pure_noise_audit("tight", noise, [1], lambda d: noise.cost(d, d * d))) == ALL_PROVEN
    cost = noise.cost(1, 1)
    less = Cost(cost.epsilon, cost.rho * (1 - F(1, 10**6)))
    less_found = verdicts(pure_noise_audit("less", noise, [1], lambda _: less))
    assert less_found == {("epsilon", PROVEN), ("rho", VIOLATED), ("mu^2", PROVEN)}  # mu follows from epsilon alone


def _cube_laws(response):
    return [{r: response.probability(r, v) for r in range(4)} for v in (0, 1)]


def test_a_randomiser_is_judged_by_what_it_claims():
    assert all(audit.holds for audit in mechanism_audit("cube", CubeResponse(2, (0,), ONE)))


@pytest.mark.slow
@pytest.mark.parametrize("check", mechanism_checks(slow=True), ids=lambda check: check.name)
def test_a_thousand_settings_of_each_family(check: Check):
    """M2 and M3, the release column."""
    for audit in check.work():
        assert audit.holds, audit
        if isinstance(audit, ExactAudit):
            print(f"M2: {audit.mechanism}, {audit.unit}: {audit.pairs:,} pairs, {audit.verdict}")
            # A pair of what thresholds show is two whole tables of all keys: fewer are looked at, each in full.
            assert audit.pairs >= (10 if "threshold" in check.name else 1000)
