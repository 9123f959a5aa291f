"""GHRU's theorems as planners, parities from conjunctions (19), and the statistical-query dimension."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dodona.bounds import Outcome
from dodona.bounds.releases import (
    conjunction_barrier,
    parity_error,
    queries_for_parities,
    release_by_learning,
    sq_dimension,
    submodular_release,
    threshold,
)
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Refused
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Schema
from dodona.release import conjunctions, parity
from dodona.testing import seeded_curator


def test_the_printed_threshold_is_tiny() -> None:
    """Far below any gain worth a piece: 1.5e-3 at alpha = beta = 0.1."""
    assert threshold(0.1, 0.1, monotone=False) == pytest.approx(1.54e-3, rel=0.01)
    alpha = beta = 0.1
    assert threshold(alpha, beta, monotone=False) == pytest.approx(
        alpha**2 / (math.log(2 / beta) * (5 * alpha / 3 + 2))
    )
    assert threshold(alpha, beta, monotone=True) > threshold(alpha, beta, monotone=False)
    assert threshold(alpha, beta, monotone=True, width=True) < threshold(alpha, beta, monotone=True)


def test_concentration_at_the_threshold() -> None:
    """Corollary A.3 and Lemma A.4 at t = alpha/alpha' with E Z = 1/alpha' give exactly beta."""
    for alpha, beta in itertools.product((0.05, 0.3), (0.01, 0.2)):
        for monotone, c in ((False, 5 / 6), (True, 1 / 3)):
            small = threshold(alpha, beta, monotone=monotone)
            t = alpha / small
            assert 2 * math.exp(-(t**2) / (2 * (1 / small + c * t))) == pytest.approx(beta)


def test_vacuous_where_the_constants_say_so() -> None:
    verdict = submodular_release(20, 0.1, 0.1, rows=10**7, epsilon=1)
    assert verdict.outcome is Outcome.VACUOUS
    assert "every subset" in verdict.why
    small = submodular_release(4, 0.9, 0.9, rows=10**9, epsilon=1, monotone=True)
    assert small.rows_needed is not None
    assert submodular_release(4, 0.9, 0.9, rows=1, epsilon=1, monotone=True).outcome is not Outcome.FEASIBLE


def test_rounds_of_release_by_learning() -> None:
    verdict = release_by_learning(2**16, 0.2, 0.1)
    assert verdict.details["rounds"] == math.ceil(32 * math.log(2**16) / (7 * 0.01))
    assert verdict.details["rounds"] <= 8 * math.log(2**16) / 0.01  # the statement's T covers it
    with pytest.raises(BadEffort, match="beta"):
        release_by_learning(16, 0.1, 0.2)


def test_parities_follow_from_conjunctions_exactly() -> None:
    bits = np.random.default_rng(0).random((500, 5)) < 0.4
    names = list("abcde")
    truth = Exact(
        Table({n: bits[:, i] for i, n in enumerate(names)}, Schema({n: Flag(missing=False) for n in names}), name="t")
    )
    for width in range(1, 6):
        for chosen in itertools.combinations(range(5), width):
            exact = np.mean(bits[:, chosen].sum(axis=1) % 2)
            found, off = parity(truth, [names[i] for i in chosen])
            assert found == pytest.approx(exact)
            assert off == 0
    synopsis = conjunctions(truth, width=3)
    assert parity(synopsis, ["a", "b", "c"])[0] == pytest.approx(np.mean(bits[:, :3].sum(axis=1) % 2))
    with pytest.raises(BadQuery, match="1 to 16"):
        parity(truth, [])
    with pytest.raises(Refused, match="at most 3"):  # wider than what was published
        parity(synopsis, ["a", "b", "c", "d"])


def test_a_parity_lies_between_none_and_all_however_large_the_noise() -> None:
    bits = np.random.default_rng(1).random((60, 4)) < 0.5
    table = Table({n: bits[:, i] for i, n in enumerate("abcd")}, Schema({n: Flag(missing=False) for n in "abcd"}))
    shown = [parity(seeded_curator(table, Budget(epsilon=0.05), seed), list("abcd"), share=1) for seed in range(8)]
    assert all(0 <= found <= 1 == off for found, off in shown)
    assert len({found for found, _ in shown} & {0.0, 1.0}) == 2


def test_the_error_of_a_parity_is_three_to_the_width() -> None:
    """The worst case of (19): every conjunction off by alpha in the worst direction."""
    for width in range(1, 8):
        worst = sum(math.comb(width, i) * 2.0 ** (i - 1) for i in range(1, width + 1))
        assert parity_error(width, 1.0) == pytest.approx(worst)


def test_sq_dimension_of_parities_is_their_number() -> None:
    """Observation B.1; and conjunctions, which correlate, have a smaller one than there are of them."""
    points = np.array(list(itertools.product((0, 1), repeat=6)))
    parities = np.array(
        [(points[:, list(s)].sum(axis=1) % 2).astype(bool) for w in (1, 2) for s in itertools.combinations(range(6), w)]
    )
    assert sq_dimension(parities) == len(parities)
    every = np.array([points[:, list(s)].all(axis=1) for w in (1, 2) for s in itertools.combinations(range(6), w)])
    assert sq_dimension(every) < len(every)
    assert sq_dimension(np.repeat(parities[:1], 5, axis=0)) == 1


def test_the_barrier() -> None:
    loose, tight = conjunction_barrier(100, 0.3), conjunction_barrier(100, 1e-4)
    assert loose.outcome is Outcome.VACUOUS
    assert tight.outcome is Outcome.INFEASIBLE
    width = int(tight.details["parity_width"])
    assert parity_error(width, 1e-4) <= 0.25 < parity_error(width + 1, 1e-4)
    assert tight.details["sq_dimension"] == sum(math.comb(100, j) for j in range(width + 1))
    assert conjunction_barrier(1000, 1e-4).details["queries"] > tight.details["queries"]
    assert queries_for_parities(4096).details["queries"] == pytest.approx(8.0)
    with pytest.raises(BadEffort, match="at least 16"):
        queries_for_parities(5)
