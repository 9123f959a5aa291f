"""The local model's theorems as planners: against enumeration where a universe is small, against simulation
elsewhere.
"""

import itertools
import math

import numpy as np
import pytest

from dodona.bounds.alda_simon import (
    balanced_extension,
    best_forster_bound,
    forster_bound,
    imbalance,
    least_rows,
    margin_bounds,
    plan_class,
    plan_matrix,
    sign_matrix,
    sq_dimension,
    theorem_7_rows,
    theorem_8_dimension,
)
from dodona.bounds.klnrs import lemma_5_6_rows, masked_parity_failure, one_bit_rows, plan_queries, theorem_5_7_rows
from dodona.errors import BadEffort, Unsupported


def test_parities_are_orthogonal_and_their_bounds_meet():
    for bits in (2, 3, 5):
        signs = sign_matrix("parity", bits)
        assert forster_bound(signs) == pytest.approx(math.sqrt(2**bits - 1))
        assert sq_dimension(signs) == 2**bits - 1
        assert imbalance(signs) == 0
        lower, upper = margin_bounds(signs, rounds=40)
        assert lower == pytest.approx(upper, rel=1e-6) == pytest.approx(1 / math.sqrt(2**bits - 1))


def test_monomials_have_large_margins():
    signs = sign_matrix("monomial", 4)
    assert signs.shape == (16, 80)
    lower, upper = margin_bounds(signs)
    assert 1 / 8 < lower <= upper  # 1/(2k) is promised
    best, weights = best_forster_bound(signs)
    assert best >= forster_bound(signs)
    assert weights.sum() == pytest.approx(1)
    even = balanced_extension(signs)
    assert not even.sum(axis=0).any()
    assert len(even) == round(len(signs) * (1 + imbalance(signs)))
    # A clause is the complement of the monomial of its opposites.
    clauses = {tuple(column) for column in sign_matrix("clause", 2).T}
    assert clauses == {tuple(-column) for column in sign_matrix("monomial", 2).T}


@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_no_response_beats_the_bound_on_parities(epsilon):
    """Exact statistical differences of real schemes on parities of three bits stay under sqrt(2 n U) and 4 n
    U^(1/3).
    """
    signs = sign_matrix("parity", 3)
    u = math.expm1(epsilon) ** 2 / forster_bound(signs) ** 2
    grown = math.exp(epsilon)
    response = np.full((8, 8), 1.0) + (grown - 1) * np.eye(8)  # k-ary randomised response
    windows = np.array([[grown if (y - x) % 8 < 3 else 1.0 for y in range(8)] for x in range(8)])
    for channel in (response, windows):
        chances = channel / channel.sum(axis=1, keepdims=True)
        for n in (1, 2, 3):
            differences = []
            for column in signs.T:
                zero, one = (chances[column == side].mean(axis=0) for side in (-1, 1))
                power = [
                    abs(math.prod(zero[list(ys)]) - math.prod(one[list(ys)]))
                    for ys in itertools.product(range(8), repeat=n)
                ]
                differences.append(sum(power) / 2)
            assert np.mean(differences) <= math.sqrt(2 * n * u)
            assert np.quantile(differences, 7 / 8) <= 4 * n * u ** (1 / 3)


def test_parity_is_hopeless_and_monomials_are_not():
    parity = plan_class("parity", 40, 1)
    assert not parity.feasible
    assert parity.rows_needed > 10**10
    assert "parity" in str(parity)
    assert plan_class("parity", 41, 1).rows_needed == pytest.approx(2 * parity.rows_needed, rel=1e-6)
    assert plan_class("parity", 20, 1, rows=100).outcome == "infeasible"
    assert plan_class("parity", 4, 1, rows=10**6).outcome == "vacuous"
    for name in ("monomial", "clause", "decision-list", "box"):
        verdict = plan_class(name, 10, 1)
        assert verdict.feasible, name
        assert plan_class(name, 10, 1, rows=verdict.rows_needed - 1).feasible is False
        assert plan_class(name, 10, 1, rows=verdict.rows_needed).error <= 0.05 + 1e-9


def test_unbalanced_classes_weaken_the_bound():
    assert least_rows(100, 1, 0.0).rows > least_rows(100, 1, 0.001).rows > least_rows(100, 1, 0.1).rows > 0
    limits = least_rows(1000, 1.0)
    assert limits.printed < limits.rows
    assert limits.rows == pytest.approx(1000**2 / (18 * math.expm1(1) ** 2))
    near = least_rows(1000, 1.0, 1e-12)
    assert near.rows == pytest.approx(limits.rows, rel=0.01)


def test_theorem_7_is_enough_in_simulation():
    """The literal scheme (15) on (f, omega, n)-random databases, f a monomial of three bits."""
    k, alpha, beta, epsilon = 3, 0.2, 0.2, 2.0
    rng = np.random.default_rng(0)
    points = np.array(list(itertools.product((0, 1), repeat=k)))
    u = np.concatenate([1 - 2 * points, np.full((8, 1), math.sqrt(k))], axis=1) / math.sqrt(2 * k)
    weights, least = np.ones(k), k
    v = np.concatenate([-weights / 2, [-(least - 0.5 - k / 2) / math.sqrt(k)]])
    v /= np.linalg.norm(v)
    true = points.sum(axis=1) == k
    one, zero = float((u[true] @ v).mean()), float((-u[~true] @ v).mean())
    n = theorem_7_rows(k + 1, (one + zero) / 2, alpha, epsilon, beta)
    failures = 0
    for trial in range(30):
        omega = trial / 29
        ones = round(omega * n)
        inner = np.concatenate([np.full(ones, one), (u[~true] @ v)[rng.integers(0, 7, n - ones)]])
        noise = rng.laplace(0, 2 * math.sqrt(k + 1) / epsilon, (n, k + 1)) @ v
        estimate = ((inner + noise).mean() + zero) / (one + zero)
        failures += abs(estimate - ones / n) > alpha
    assert failures <= beta * 30


def test_lemma_5_6_and_one_bit_are_enough_in_simulation():
    tau, beta, epsilon = 0.1, 0.2, 1.0
    rng = np.random.default_rng(1)
    laplace, one_bit = lemma_5_6_rows(tau, beta, epsilon), one_bit_rows(tau, beta, epsilon)
    assert one_bit < laplace / 10
    failures = np.zeros(2)
    for _ in range(60):
        values = rng.choice([-1.0, 1.0], size=laplace, p=[0.3, 0.7])
        noisy = (values + rng.laplace(0, 2 / epsilon, laplace)).mean()
        few = values[:one_bit]
        kept = rng.random(one_bit) < 1 / (1 + math.exp(-epsilon))
        bits = np.where(kept, few, -few).mean() / math.tanh(epsilon / 2)
        failures += [abs(noisy - 0.4) > tau, abs(bits - 0.4) > tau]
    assert (failures <= beta * 60).all()


def test_fresh_rows_or_a_split_budget():
    small = plan_queries(10, 0.05, 1)
    assert small.rows_needed == small.details["fresh_rows"] < small.details["split_rows"]
    large = plan_queries(10, 0.05, 200)
    assert large.rows_needed == large.details["split_rows"] < large.details["fresh_rows"]
    assert plan_queries(10, 0.05, 1, rows=small.rows_needed).feasible
    assert not plan_queries(10, 0.05, 1, rows=small.rows_needed // 2).feasible
    assert theorem_5_7_rows(10, 0.05, 0.05, 1) == small.details["laplace_rows"]


def test_theorem_8_and_5_16_numbers():
    assert theorem_8_dimension(2**10, 3**10, 0.1, 0.1) == math.ceil(
        8 * math.log(4 * (2**10 + 3**10) / 0.1) + 128 / 0.01 * math.log(8 * 3**10 / 0.1)
    )
    assert masked_parity_failure(30, 100) == pytest.approx(0.5 - 100 / 2**13)
    assert masked_parity_failure(3, 1000) == 0


def test_bad_wishes_are_refused():
    for call in (
        lambda: plan_class("halfmoon", 3, 1),
        lambda: plan_class("parity", 0, 1),
        lambda: plan_class("parity", True, 1),
        lambda: plan_class("monomial", 3, -1),
        lambda: plan_queries(0, 0.1, 1),
        lambda: plan_queries(3, 0.1, float("nan")),
        lambda: lemma_5_6_rows(0, 0.1, 1),
    ):
        with pytest.raises(BadEffort):
            call()
    with pytest.raises(Unsupported, match="by name"):
        sign_matrix("monomial", 14)


def test_a_matrix_gets_the_verdict_its_class_gets():
    by_matrix, by_name = plan_matrix(sign_matrix("parity", 6), 0.1), plan_class("parity", 6, 0.1)
    assert by_matrix.rows_needed == by_name.rows_needed > 100
    assert plan_matrix(sign_matrix("parity", 6), 0.1, rows=10).outcome == "infeasible"
    assert plan_matrix(sign_matrix("monomial", 3), 0.1).rows_needed < 50
    for wrong in (np.zeros((2, 2)), np.ones(3), np.ones((0, 2))):
        with pytest.raises(BadEffort, match="-1 and 1"):
            plan_matrix(wrong, 1)
