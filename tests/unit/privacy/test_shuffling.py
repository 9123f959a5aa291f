"""The amplification bound against the truth: no small shuffled mechanism, enumerated, is above it."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dodona.errors import BadEffort
from dodona.privacy import shuffling
from dodona.privacy.shuffling import (
    Hiding,
    any_response,
    central_epsilon,
    local_epsilon,
    mixture,
    shuffled_delta,
    two_level,
)


def response(k, epsilon):
    """k-ary response as a table: rows are holdings."""
    table = np.ones((k, k)) + np.eye(k) * math.expm1(epsilon)
    return table / table.sum(axis=1, keepdims=True)


def shuffled(rows):
    """The law of the histogram of one report of each row: a dict from sorted reports to probability."""
    law = {(): 1.0}
    for row in rows:
        wider = {}
        for seen, chance in law.items():
            for report, p in enumerate(row):
                key = tuple(sorted((*seen, report)))
                wider[key] = wider.get(key, 0.0) + chance * p
        law = wider
    return law


def divergence(one, other, central):
    return sum(max(p - math.exp(central) * other.get(key, 0.0), 0.0) for key, p in one.items())


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_no_shuffled_k_ary_response_is_worse_than_its_bound(k, epsilon, n):
    table = response(k, epsilon)
    for central in (0.0, 0.2 * epsilon, 0.7 * epsilon, 0.95 * epsilon):
        worst = 0.0
        for others in itertools.combinations_with_replacement(range(k), n - 1):
            rest = [table[x] for x in others]
            worst = max(worst, divergence(shuffled([table[0], *rest]), shuffled([table[1], *rest]), central))
        any_bound = shuffled_delta(epsilon, central, n)
        own = shuffled_delta(epsilon, central, n, two_level(epsilon, 1, k))
        assert worst <= own * (1 + 1e-9), (central, worst, own)
        assert own <= any_bound * (1 + 1e-6)
        if n == 1:
            assert own == pytest.approx(worst, rel=0.01) or k > 2


def test_no_randomiser_of_three_holdings_is_worse_than_binary_response():
    """Tables drawn at random with all ratios within e^epsilon, extreme ones among them; others hold anything."""
    rng, epsilon = np.random.default_rng(7), 1.2
    for _ in range(150):
        outcomes = int(rng.integers(2, 6))
        levels = rng.random((3, outcomes)) if rng.random() < 0.5 else rng.integers(0, 2, (3, outcomes))
        table = np.exp(levels * epsilon) * rng.random(outcomes)
        table = np.column_stack([table, np.zeros(3)])
        table[:, -1] = table[:, :-1].sum(axis=1).max() * 1.2 - table[:, :-1].sum(axis=1)
        table /= table.sum(axis=1, keepdims=True)
        stretch = (table.max(axis=0) / table.min(axis=0)).max()
        own = math.log(stretch)  # the epsilon it really has
        if own < 1e-9:
            continue
        for others in itertools.combinations_with_replacement(range(3), 3):
            rest = [table[x] for x in others]
            one, other = shuffled([table[0], *rest]), shuffled([table[1], *rest])
            for central in (0.1 * own, 0.5 * own):
                assert divergence(one, other, central) <= shuffled_delta(own, central, 4) * (1 + 1e-9)


@pytest.mark.parametrize("linked", [False, True])
def test_rounds_chosen_by_what_was_shuffled_before_are_no_worse(linked):
    """Two rounds; how the second is asked depends on the histogram of the first, in every way there is.

    ``linked``: the observer also sees which reports of the two rounds are of one person, under a pseudonym.
    """
    first, second, n = 0.7, 0.9, 3
    tables = [response(2, second), response(2, second)[:, ::-1], np.full((2, 2), 0.5), response(2, 0.4)]
    opening = response(2, first)
    for plan in itertools.product(range(len(tables)), repeat=n + 1):
        laws = []
        for x in (0, 1):
            law = {}
            for others in ((0, 1),):
                people = (x, *others)
                for a in itertools.product((0, 1), repeat=n):
                    table = tables[plan[sum(a)]]
                    for b in itertools.product((0, 1), repeat=n):
                        chance = math.prod(opening[p, r] for p, r in zip(people, a, strict=True))
                        chance *= math.prod(table[p, r] for p, r in zip(people, b, strict=True))
                        pairs = tuple(sorted(zip(a, b, strict=True)))
                        key = pairs if linked else (sum(a), sum(b))
                        law[key] = law.get(key, 0.0) + chance
            laws.append(law)
        for central in (0.3, 0.8, 1.2):
            for one, other in (laws, laws[::-1]):
                assert divergence(one, other, central) <= shuffled_delta(first + second, central, n) * (1 + 1e-9)


def exactly(epsilon, central, n, up, down):
    """The claim's expectation by adding up all outcomes in fractions of floats."""
    big, small = Fraction(math.exp(epsilon)), Fraction(math.exp(central))
    x, y, p, q = big - small, big * small - 1, Fraction(up), Fraction(down)
    total = Fraction(0)
    for u in range(n + 1):
        for d in range(n + 1 - u):
            gain = x * u - y * d
            if gain > 0:
                ways = math.comb(n, u) * math.comb(n - u, d)
                total += ways * p**u * q**d * (1 - p - q) ** (n - u - d) * gain
    return float(total / n)


@pytest.mark.parametrize(("epsilon", "central"), [(1, 0.2), (1, 0.9), (0.1, 0.02), (4, 1), (4, 3.9)])
@pytest.mark.parametrize("n", [1, 2, 9, 60])
def test_the_sum_is_rounded_up_and_hardly(epsilon, central, n):
    ends = any_response(epsilon).ends
    truth, told = exactly(epsilon, central, n, ends, ends), shuffled_delta(epsilon, central, n)
    assert truth * (1 - 1e-12) <= told <= truth * 1.25 + 1e-30  # Robbins' bounds are loose for a handful only
    if n == 60:
        assert told <= truth * 1.02


def test_a_middle_is_spread_outwards():
    """Against the four-valued law itself."""
    epsilon, central, n = 1.5, 0.4, 7
    hiding = two_level(epsilon, 1, 5)
    big, small = math.exp(epsilon), math.exp(central)
    values = (big - small, 1 - big * small, 1 - small, 0.0)
    chances = (hiding.ends, hiding.ends, hiding.middle, 1 - 2 * hiding.ends - hiding.middle)
    truth = sum(
        math.prod(chances[i] for i in drawn) * max(sum(values[i] for i in drawn), 0.0)
        for drawn in itertools.product(range(4), repeat=n)
    )
    assert truth / n <= shuffled_delta(epsilon, central, n, hiding) <= 1.3 * truth / n


def test_binary_response_in_a_crowd_is_nearly_as_bad_as_the_bound():
    """2,000 people of whom all others hold 0: the truth is a lower bound of what any bound may say."""
    epsilon, n, delta = 1.0, 2000, 1e-6
    p = 1 / (math.exp(epsilon) + 1)
    counts = np.arange(n)
    logs = np.array([math.lgamma(n) - math.lgamma(k + 1) - math.lgamma(n - k) for k in counts])
    others = np.exp(logs + counts * math.log(p) + (n - 1 - counts) * math.log(1 - p))
    ones = [np.convolve(others, [1 - q, q]) for q in (p, 1 - p)]

    def true_delta(central):
        return max(np.maximum(one - math.exp(central) * other, 0).sum() for one, other in (ones, ones[::-1]))

    told = float(central_epsilon(epsilon, delta, n))
    assert true_delta(told) <= delta
    assert true_delta(told / 1.35) > delta


@pytest.mark.parametrize(
    ("epsilon", "rows", "most"), [(1, 10**4, 0.0433), (1, 10**5, 0.0125), (4, 10**5, 0.1184), (4, 10**6, 0.0344)]
)
def test_figures(epsilon, rows, most):
    """Below the published two-point figures of .053, .0155, .173 and .050."""
    assert 0.98 * most < central_epsilon(epsilon, "1e-6", rows) <= most


def test_more_people_hide_better_and_more_privacy_stays_more():
    told = [central_epsilon(1, "1e-6", n) for n in (1, 10, 100, 1000, 10**4, 10**5)]
    assert told[0] == 1
    assert all(a >= b for a, b in itertools.pairwise(told))
    assert central_epsilon("0.5", "1e-6", 1000) < central_epsilon(1, "1e-6", 1000) < central_epsilon(2, "1e-6", 1000)
    assert central_epsilon(1, "1e-9", 1000) > central_epsilon(1, "1e-6", 1000)
    assert central_epsilon(500, "1e-6", 1000) == 500  # no crowd hides that


def test_own_hiding_is_never_worse_than_that_of_any_response():
    for k, r in ((2, 1), (3, 1), (9, 2), (101, 27), (4, 3)):
        own = central_epsilon(1, "1e-6", 5000, two_level(1, r, k))
        assert own <= central_epsilon(1, "1e-6", 5000)
    mixed = mixture([(0.25, two_level(1, 1, 2)), (0.75, two_level(1, 1, 9))])
    assert two_level(1, 1, 9).ends < mixed.ends < two_level(1, 1, 2).ends
    assert central_epsilon(1, "1e-6", 5000, two_level(1, 1, 9)) < 0.8 * central_epsilon(1, "1e-6", 5000)


def test_the_local_epsilon_keeps_the_central_one():
    for wanted in ("0.1", 1):
        found = local_epsilon(wanted, "1e-6", 10**4)
        assert central_epsilon(found, "1e-6", 10**4) <= Fraction(wanted) * Fraction(1001, 1000)
        assert central_epsilon(found * Fraction(101, 100), "1e-6", 10**4) > Fraction(wanted)
    assert local_epsilon(2, "1e-6", 1) == 2  # alone there is nobody to hide among


def test_windows_and_columns_leave_nothing_out(monkeypatch):
    """Narrow ones only make the bound larger."""
    told = shuffled_delta(1, "0.05", 5000)
    for name, small in (("_BUCKETS", 8), ("_COLUMNS", 40), ("_REACH", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(shuffling, name, small)
            assert shuffled_delta(1, "0.05", 5000) >= told * (1 - 1e-12), name


def test_what_a_window_leaves_out_is_paid_for(monkeypatch):
    """Chernoff's bound is one; and all that lies below counts as if a person were alone."""
    n, share = 400, 0.4
    chances = [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
    with monkeypatch.context() as patch:
        patch.setattr(shuffling, "_REACH", -4)  # 60 counts, less four deviations, on either side
        counts, mass, below = shuffling._window(n, share)
        low = int(counts[0])
        assert sum(chances[:low]) <= below < 1
        assert mass.sum() + below >= 1
    whole = shuffled_delta(1, "0.5", 401)
    left = shuffling._window(400, 2 * any_response(1).ends)
    monkeypatch.setattr(shuffling, "_window", lambda n, share: (left[0], left[1], 0.25))  # noqa: ARG005
    alone = any_response(1).ends * (math.e - math.exp(0.5))
    assert shuffled_delta(1, "0.5", 401) == pytest.approx(whole + 0.25 * alone, rel=1e-6)


@pytest.mark.parametrize("rows", [0, -1, 1.5, True, None])
def test_rows_must_be_a_number_of_people(rows):
    with pytest.raises(BadEffort, match="rows must be"):
        central_epsilon(1, "1e-6", rows)


def test_delta_must_be_one():
    for delta in (0, 1, "nan", -1e-6):
        with pytest.raises(BadEffort, match="delta"):
            central_epsilon(1, delta, 10)
    assert Hiding(0.1) == Hiding(0.1, 0.0)
