"""Thresholds for keys that nobody listed: their two prices on every pair of small tables, and how counts are read."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest

from dodona.audit.exact import PROVEN, delta_bounds, exp_bounds
from dodona.audit.mechanisms import mechanism_audit, shown_law
from dodona.errors import BadEffort
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, SecureBits, fixed
from dodona.mechanisms.threshold import STRAYS, Threshold, Truncated, best
from dodona.mechanisms.weights import Weighted
from dodona.testing.mechanisms import check_mechanism, p_value
from dodona.testing.oracles import SeededBits

DELTA = F(1, 50)
KINDS = {
    "truncated": (Threshold.truncated, F(1)),
    "laplace": (Threshold.laplace, F(1)),
    "gaussian": (Threshold.gaussian, F(1, 2)),
}
EVERY = [(kind, keys, both) for kind in KINDS for keys in (1, 2) for both in (False, True)]


def made(kind: str, keys: int, both: bool, delta: F = DELTA) -> Threshold:
    make, amount = KINDS[kind]
    return make(amount, delta, keys, both)


@pytest.mark.parametrize("threshold", list(Threshold.settings(False)), ids=lambda t: t.label)
def test_the_audit_proves_what_it_claims(threshold: Threshold) -> None:
    audits = mechanism_audit("threshold", threshold)
    assert audits
    assert {audit.verdict for audit in audits} == {PROVEN}
    check_mechanism(threshold, bits=SeededBits(3), draws=20_000)


# -- every pair of tables of three people and three keys ---------------------------------------------------------------


def tables(keys: int, both: bool) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Counts of two neighbouring tables: two people stay, a third comes, goes or is another."""
    held = [set_ for size in range(keys + 1) for set_ in itertools.combinations(range(3), size)]
    found = set()
    for stay in itertools.combinations_with_replacement(held, 2):
        base = [sum(key in one for one in stay) for key in range(3)]
        for one, other in itertools.combinations(held, 2):
            if both or not one:
                here, there = ([n + (key in person) for key, n in enumerate(base)] for person in (one, other))
                moved = tuple(sorted((a, b) for a, b in zip(here, there, strict=True) if a != b))
                found.add((tuple(a for a, _ in moved), tuple(b for _, b in moved)))
    return found


def joint(threshold: Threshold, counts: tuple[int, ...]) -> dict[tuple[object, ...], F]:
    laws = [shown_law(threshold, count, 1e-4) for count in counts]
    return {
        seen: math.prod((law[key] for law, key in zip(laws, seen, strict=True)), start=F(1))
        for seen in itertools.product(*laws)
    }


@pytest.mark.parametrize(
    ("kind", "keys", "both"), [one for one in EVERY if one[0] != "gaussian" and one[1:] != (2, True)]
)
def test_both_prices_hold_on_every_pair_of_small_tables(kind: str, keys: int, both: bool) -> None:
    threshold = made(kind, keys, both)
    cost = threshold.cost()
    assert cost.epsilon is not None
    bounds = exp_bounds(cost.epsilon)
    for here, there in tables(keys, both):
        laws = joint(threshold, here), joint(threshold, there)
        for one, other in (laws, laws[::-1]):
            assert delta_bounds(one, other, bounds)[0] <= cost.delta, (here, there)
            assert delta_bounds(one, other, bounds)[1] <= cost.delta + F(1, 1000), (here, there)


@pytest.mark.parametrize(("keys", "both"), [(1, False), (1, True), (2, False)])
def test_gaussian_rho_holds_but_for_delta_on_every_pair_of_small_tables(keys: int, both: bool) -> None:
    threshold = made("gaussian", keys, both)
    cost = threshold.cost()
    assert cost.rho <= F(1, 2)
    for here, there in tables(keys, both):
        laws = [{seen: float(p) for seen, p in joint(threshold, counts).items() if p} for counts in (here, there)]
        for one, other in (laws, laws[::-1]):
            common = {seen: p for seen, p in one.items() if seen in other}
            whole = sum(one.values())
            assert whole - sum(common.values()) <= float(cost.delta) + 1e-9  # what only one of them can show
            shared = sum(p for seen, p in other.items() if seen in one)
            for alpha in (1.25, 2.0, 4.0, 8.0):
                terms = [
                    (p / sum(common.values())) ** alpha * (other[seen] / shared) ** (1 - alpha)
                    for seen, p in common.items()
                ]
                assert math.log(math.fsum(terms)) / (alpha - 1) <= float(cost.rho) * alpha + 1e-3, (here, there, alpha)


@pytest.mark.parametrize(("kind", "keys", "both"), EVERY)
def test_the_threshold_is_the_lowest_that_delta_pays_for(kind: str, keys: int, both: bool) -> None:
    threshold = made(kind, keys, both)
    assert 0 < threshold.delta <= DELTA
    assert threshold.cost().delta == threshold.delta
    lower = replace(threshold, least=threshold.least - 1, early=F(0))
    if isinstance(threshold.noise, Truncated):
        lower = replace(lower, noise=Truncated(threshold.noise.scale, threshold.noise.reach - 1))
    assert lower.delta > DELTA
    if isinstance(threshold.noise, Truncated):  # what is left of delta lets some keys through at one less
        assert replace(threshold, early=threshold.early + F(1, 2**40)).delta > DELTA
        assert DELTA - threshold.delta < F(1, 10**9)
    tail = sum(threshold.noise.probability(k)[0] for k in range(threshold.least - 1, threshold.least + 60))
    if not isinstance(threshold.noise, Truncated):
        assert 0 <= float(threshold.delta - (1 - (1 - tail) ** keys)) < 1e-6  # the exact union


def test_prices_are_those_of_the_counts_that_a_person_moves() -> None:
    for keys, both in itertools.product((1, 3), (False, True)):
        moved = keys * (2 if both else 1)
        pure, rho = made("laplace", keys, both), made("gaussian", keys, both)
        scale = pure.noise.scale  # type: ignore[attr-defined]
        assert pure.cost().epsilon == moved / scale
        assert pure.cost().rho == F(moved) / scale**2 / 2
        assert rho.cost().rho == F(moved) / (2 * rho.noise.variance)  # type: ignore[attr-defined]
        assert pure.cost().epsilon <= 1


@pytest.mark.parametrize("amount", [10, 1000, 10**6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_large_effort_is_priced_in_few_digits(monkeypatch: pytest.MonkeyPatch, kind: str, amount: int) -> None:
    """Whoever may ask for a price may state any effort: of noise that is next to none, no tail is summed to its end."""
    longest, bracket = [0], fixed.exp_bracket

    def watched(exponent: F, digits: int) -> tuple[int, int]:
        longest.append(digits)
        assert digits < 30_000
        return bracket(exponent, digits)

    monkeypatch.setattr(fixed, "exp_bracket", watched)
    make, _ = KINDS[kind]
    found = make(F(amount), F(1, 10**8), 1, True)
    assert found.delta <= F(1, 10**8)
    assert found.least <= 5
    if kind != "truncated":  # noise that is cut is none for all keys
        assert Threshold.over(found.noise, 10**8, 1, True).least <= 5
    Weighted.gaussian.__wrapped__(F(amount), F(1, 10**8), 30, True)
    assert len(longest) > 1


def test_one_key_a_person_at_one_and_a_millionth() -> None:
    """What the literature states for partition selection: 15 people or so are needed, with the number as well."""
    found = best([kind(F(1), F(1, 10**6), 1, False) for kind in (Threshold.truncated, Threshold.laplace)])
    assert found.least == 15
    assert 0.9 < found.early < 1  # nearly 14: what no rule can pass is a rule for whole numbers, not for reaches
    # Desfontaines, Voss, Gipson and Mandayam 2022, Theorem 1: the most that any rule shows of n people.
    e, d, most = math.e, 1e-6, [0.0]
    while len(most) < 40:
        most.append(min(e * most[-1] + d, 1 - (1 - most[-1] - d) / e, 1.0))
    for n in range(1, 40):
        shown = float(sum((found.chance(y, n)[0] for y in range(found.lowest, n + 40)), F(0)))
        assert shown <= most[n] + 1e-12
        assert shown >= most[n] * 0.95 - 1e-12


@pytest.mark.parametrize("delta", [F(0), F(1, 10**31), F(1, 2)])
def test_bad_deltas(delta: F) -> None:
    for kind in KINDS:
        with pytest.raises(BadEffort, match="delta"):
            made(kind, 1, False, delta)
    with pytest.raises(BadEffort, match="keys"):
        Threshold.laplace(F(1), DELTA, 0, False)


# -- how a count that is shown is read --------------------------------------------------------------------------------


def law_of(threshold: Threshold, count: int) -> dict[int, float]:
    reach = threshold.noise.quantile(1 - 1e-13)
    seen = range(threshold.lowest, max(threshold.least, count) + reach + 1)
    told = {y: float(threshold.chance(y, count)[1]) for y in seen}
    whole = math.fsum(told.values())
    return {y: p / whole for y, p in told.items()}


@pytest.mark.parametrize("threshold", [*Threshold.settings(False), Threshold.gaussian(F(1, 40), F(1, 10**6), 1, False)])
def test_margins_hold_given_that_a_key_is_shown(threshold: Threshold) -> None:
    reading = threshold.reading()
    for count in range(0 if threshold.domain else 1, threshold.least + 12):
        told = law_of(threshold, count)
        for confidence in (0.5, 0.95, 0.999):
            ends = {y: reading.interval(y, confidence) for y in told}
            missed = math.fsum(p for y, p in told.items() if not ends[y][0] <= count <= ends[y][2])
            assert missed <= 1 - confidence + 1e-9, (count, confidence)
        middles = {y: reading.interval(y, 0.95)[1] for y in told}
        assert math.fsum(p for y, p in told.items() if middles[y] <= count) >= 0.5 - 1e-9
        # Never below the truth more than half of the time, but for the step from one whole number to the next.
        assert math.fsum(p for y, p in told.items() if middles[y] >= count - 1) >= 0.5 - max(told.values())


def test_of_keys_that_nobody_has_as_many_are_drawn_as_if_each_had_got_noise() -> None:
    bits = SeededBits(5)
    for noise in (DiscreteLaplace(F(3)), DiscreteGaussian(F(30))):
        threshold = Threshold(noise, 9, 1, False, 10**8)
        assert threshold.delta == 0
        assert threshold.cost() == noise.cost(1)
        passing = math.fsum(math.exp(noise.log_probability(k)) for k in range(9, 200))
        ranks, noisy = threshold.strays(20_000, bits)
        assert len(set(ranks.tolist())) == len(ranks)
        assert 0 <= ranks.min() < ranks.max() < 20_000
        chances = [math.exp(noise.log_probability(k)) for k in range(9, 30)]
        seen = [int((noisy == k).sum()) for k in range(9, 30)]
        rest = [passing - math.fsum(chances), 1 - passing]
        assert p_value([*seen, len(noisy) - sum(seen), 20_000 - len(noisy)], [*chances, *rest]) > 1e-6
        wrong = [c * 1.3 for c in chances]
        assert p_value([*seen, 20_000 - sum(seen)], [*wrong, 1 - math.fsum(wrong)]) < 1e-6
        tenths = np.bincount(ranks * 10 // 20_000, minlength=10).tolist()
        assert p_value(tenths, [0.1] * 10) > 1e-6


def test_thresholds_over_all_keys_let_few_pass_that_nobody_has() -> None:
    for noise in (DiscreteLaplace(F(5)), DiscreteGaussian(F(40))):
        threshold = Threshold.over(noise, 10**8, 3, True)
        for least, within in ((threshold.least, True), (threshold.least - 1, False)):
            passing = math.fsum(math.exp(noise.log_probability(k)) for k in range(least, least + 300))
            assert (10**8 * passing <= float(STRAYS)) is within
        assert threshold.reading().fewest == 0
        assert Threshold.restored(threshold.describe()) == threshold
    with pytest.raises(BadEffort, match="without delta"):
        Threshold(Truncated(F(1), 5), 6, 1, False, 10).cost()


def test_what_is_shown_is_too_high_and_what_is_read_is_not() -> None:
    threshold = Threshold.gaussian(F(1, 40), F(1, 10**6), 1, False)
    told, reading = law_of(threshold, 15), threshold.reading()
    assert math.fsum(p * y for y, p in told.items()) > threshold.least
    assert math.fsum(p for y, p in told.items() if reading.interval(y, 0.95)[1] <= 15) >= 0.5


def test_nothing_below_the_threshold_is_shown_and_order_is_kept() -> None:
    threshold = made("laplace", 1, False)
    counts = np.arange(1, 2001) % 30 + 1
    shown, noisy = threshold.show(counts, SecureBits())
    assert noisy.min() >= threshold.least
    assert np.all(np.diff(shown) > 0)
    assert set(np.flatnonzero(counts > threshold.least + 25)) <= set(shown.tolist())
    assert [len(part) for part in threshold.show(np.zeros(0, dtype=np.int64), SecureBits())] == [0, 0]
    inside = Truncated(F(3), 4).sample(5000, SecureBits())
    assert (inside.min(), inside.max()) == (-4, 4)
