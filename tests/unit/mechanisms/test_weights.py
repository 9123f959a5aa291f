"""Keys of people who have many: both prices on every pair of small tables, each person's weight, rounds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest

from dodona.audit.exact import PROVEN
from dodona.audit.mechanisms import mechanism_audit, shown_law
from dodona.errors import BadEffort
from dodona.mechanisms import DiscreteGaussian
from dodona.mechanisms.threshold import Threshold
from dodona.mechanisms.weights import EARLY, Rounds, Weighted, predicted, restored, weights
from dodona.testing.oracles import SeededBits

DELTA = F(1, 50)
SMALL = [
    Weighted.gaussian(F(1, 2), DELTA, 3, False, whole=4),
    Weighted.gaussian(F(1), DELTA, 2, True, whole=3),
    Weighted.gaussian(F(2), F(1, 300), 2, False, whole=5),
]
SPLIT = EARLY, 1 - EARLY


@pytest.mark.parametrize("threshold", list(Weighted.settings(False)), ids=lambda t: t.label)
def test_the_audit_proves_what_it_claims(threshold: Weighted) -> None:
    audits = mechanism_audit("weights", threshold)
    assert audits
    assert {audit.verdict for audit in audits} == {PROVEN}
    lower = replace(threshold, least=threshold.least - 1)
    assert lower.cost().delta > DELTA >= threshold.cost().delta > 0


# -- every pair of tables of three people and three keys ---------------------------------------------------------------


def tables(threshold: Weighted) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Totals of two neighbouring tables where they differ: two people stay, a third comes, goes or is another."""
    most = threshold.keys
    held = [set_ for size in range(most + 1) for set_ in itertools.combinations(range(3), size)]
    found = set()
    for stay in itertools.combinations_with_replacement(held, 2):
        for one, other in itertools.combinations(held, 2):
            if threshold.both or not one:
                sides = []
                for person in (one, other):
                    totals = [0, 0, 0]
                    for keys in (*stay, person):
                        for key in keys:
                            totals[key] += math.isqrt(threshold.whole**2 // len(keys))
                    sides.append(totals)
                moved = tuple(sorted((a, b) for a, b in zip(*sides, strict=True) if a != b))
                found.add((tuple(a for a, _ in moved), tuple(b for _, b in moved)))
    return found


@pytest.mark.parametrize("threshold", SMALL, ids=lambda t: t.label)
def test_rho_and_delta_hold_on_every_pair_of_small_tables(threshold: Weighted) -> None:
    """But for what one alone can show, which has at most delta, the rest is rho-concentrated: what each key shows is
    independent of the others, so divergences add.
    """
    cost = threshold.cost()
    plain = Threshold(threshold.noise, threshold.least, threshold.keys, threshold.both)
    laws = {}
    worst = 0.0
    pairs = tables(threshold)
    for count in {total for pair in pairs for side in pair for total in side}:
        laws[count] = {seen: float(p) for seen, p in shown_law(plain, count, 1e-12).items() if p}
    for here, there in pairs:
        for one, other in ((here, there), (there, here)):
            kept = [
                (laws[a], laws[b], sum(p for seen, p in laws[a].items() if seen in laws[b]))
                for a, b in zip(one, other, strict=True)
            ]
            lost = 1 - math.prod(share for _, _, share in kept)
            assert lost <= float(cost.delta) + 1e-9, (here, there)
            worst = max(worst, lost)
            for alpha in (1.25, 2.0, 4.0, 8.0):
                divergence = 0.0
                for a, b, share in kept:
                    back = sum(p for seen, p in b.items() if seen in a)
                    terms = [
                        (p / share) ** alpha * (b[seen] / back) ** (1 - alpha) for seen, p in a.items() if seen in b
                    ]
                    divergence += math.log(math.fsum(terms)) / (alpha - 1)
                assert divergence <= float(cost.rho) * alpha + 1e-3, (here, there, alpha)
    assert worst >= 0.9 * float(cost.delta)  # the bound is reached, not a guess


def test_whoever_stands_alone_with_any_number_of_keys_is_seen_no_more_often_than_delta_says() -> None:
    for keys, delta in ((3, DELTA), (20, F(1, 10**6)), (1024, F(1, 10**9))):
        threshold = Weighted.gaussian(F(28, 1000), delta, keys, False)
        chances = []
        for k, weight in enumerate(threshold.lone, 1):
            each = threshold.noise.tail(threshold.least - weight - 1) / 2
            chances.append(-math.expm1(k * math.log1p(-each)))
        assert max(chances) <= delta
        loose = 1 + float(threshold.noise.variance) / (threshold.least - threshold.lone[0]) ** 2  # the tail's bound
        assert max(chances) >= 0.97 * float(delta) / loose
        assert max(chances) <= float(threshold.delta) <= max(chances) * loose * 1.01
        assert replace(threshold, least=threshold.least - 1).delta > delta


@pytest.mark.parametrize("keys", [1, 2, 7, 1024])
def test_no_number_of_keys_weighs_more_than_all_of_them_may(keys: int) -> None:
    for whole in (32, 4096):
        shared = weights(whole, keys)
        assert all(weight > 0 and k * weight * weight <= whole * whole for k, weight in enumerate(shared, 1))
        assert all((weight + 1) ** 2 * k > whole * whole for k, weight in enumerate(shared, 1))
    for both in (False, True):
        threshold = Weighted.gaussian(F(1, 40), F(1, 10**6), keys, both)
        assert threshold.cost().rho == F(4096**2 * (2 if both else 1)) / (2 * threshold.noise.variance) <= F(1, 40)


def test_rounds_cost_the_sum_and_come_back_from_plain_data() -> None:
    for both, counts in itertools.product((False, True), (False, True)):
        ways = Rounds.gaussian(F(1, 40), F(1, 10**7), 9, both, shares=SPLIT, counts=counts)
        cost = ways.cost()
        apart = [one.cost() for one in ways.rounds]
        own = F(0) if ways.counts is None else ways.counts.cost(18 if both else 9).rho
        assert cost.rho == sum(one.rho for one in apart) + own
        assert F(1, 40) * F(999, 1000) <= cost.rho <= F(1, 40)
        assert cost.delta == sum(one.delta for one in apart) <= F(1, 10**7)
        assert (own > 0) is counts
        assert restored(ways.describe()) == ways
    plain = Threshold.gaussian(F(1, 40), F(1, 10**7), 9, False)
    assert restored(plain.describe()) == plain


def test_counts_apart_have_margins_whatever_was_found() -> None:
    ways = Rounds.gaussian(F(1, 4), F(1, 10**7), 3, False, shares=SPLIT, counts=True)
    assert ways.counts is not None
    reading, bits = ways.reading(), SeededBits(3)
    for count in (0, 1, 50):
        noisy = count + np.asarray(ways.counts.sample(20_000, bits))
        for confidence in (0.5, 0.95):
            ends = {y: reading.interval(y, confidence) for y in set(noisy.tolist())}
            held = np.mean([ends[y][0] <= count <= ends[y][2] for y in noisy.tolist()])
            assert held >= confidence - 0.01
            narrow = [abs(max(y, 0) - count) <= 0.6 * (ends[y][2] - ends[y][1]) for y in noisy.tolist()]
            assert count < 50 or np.mean(narrow) < confidence - 0.05  # margins are not far too wide


def test_the_way_that_is_predicted_to_find_most_does() -> None:
    """By drawing people of whom the prediction knows nothing but the shape."""
    random, people, each = np.random.default_rng(4), 20_000, 8
    held = random.integers(1, each + 1, people)
    common = 1 / np.arange(1, 50_001)
    key = np.searchsorted(np.cumsum(common / common.sum()), random.random(held.sum()))
    pairs = np.unique(np.stack([np.repeat(np.arange(people), held), key]), axis=1)
    ways = [
        Rounds.gaussian(F(28, 1000), F(1, 10**6), each, False, shares=shares, counts=False)
        for shares in ((F(1),), SPLIT)
    ]
    plain = Threshold.gaussian(F(28, 1000), F(1, 10**6), each, False)
    bits = SeededBits(8)
    shown = []
    for way in ways:
        left, found = pairs, 0
        for one in way.rounds:
            many = np.bincount(left[0], minlength=people)[left[0]]
            totals = np.bincount(left[1], np.array(one.lone)[many - 1], minlength=50_000).astype(np.int64)
            (there,) = np.nonzero(totals)
            keys = there[one.show(totals[there], bits)[0]]
            found += len(keys)
            left = left[:, ~np.isin(left[1], keys)]
        shown.append(found)
    totals = np.bincount(pairs[1])
    shown.insert(0, len(plain.show(totals[totals > 0], bits)[0]))
    told = [predicted(way, people) for way in (plain, *ways)]
    assert told == sorted(told)
    assert shown == sorted(shown)
    for told_of, found in zip(told, shown, strict=True):
        assert found == pytest.approx(told_of, rel=0.25)


def test_refused() -> None:
    with pytest.raises(BadEffort, match="delta"):
        Weighted.gaussian(F(1), F(0), 2, False)
    with pytest.raises(BadEffort, match="keys"):
        Weighted.gaussian(F(1), DELTA, 0, False)
    with pytest.raises(BadEffort, match="shared by 9"):
        Weighted.gaussian(F(1), DELTA, 9, False, whole=2)


def test_the_threshold_is_the_lowest_that_delta_pays_for() -> None:
    """By the noise's own terms, summed; at steps that are coarse enough for one to matter."""
    for threshold in SMALL:
        lowest = threshold.least - max(threshold.lone)
        chances = [float(threshold.noise.probability(k)[0]) for k in range(lowest, 400)]
        tails = [
            1 - (1 - math.fsum(chances[threshold.least - weight - lowest :])) ** number
            for number, weight in enumerate(threshold.lone, 1)
        ]
        assert max(tails) * (1 - 1e-12) <= threshold.delta <= max(tails) * 5 / 4


def test_noise_is_of_the_scale_that_was_paid_for() -> None:
    threshold = Weighted.gaussian(F(1, 2), DELTA, 3, False)
    assert threshold.noise == DiscreteGaussian.for_rho(4096**2, F(1, 2))
    shown, noisy = threshold.show(np.full(4000, 10**6), SeededBits(2))
    assert len(shown) == 4000
    assert np.std(noisy) == pytest.approx(4096, rel=0.05)
