"""The claimed costs, checked from computed probabilities (HOSTILE V1 and V12)."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential, PermuteAndFlip, RandomizedResponse
from dodona.mechanisms.fixed import exp_bracket
from dodona.testing.oracles import SeededBits


def shrink(epsilon):
    """A rational just below e^-epsilon: P <= e^epsilon Q certainly holds if P_high * shrink <= Q_low."""
    digits = 160 + int(2 * epsilon)
    return Fraction(exp_bracket(epsilon, digits)[0], 1 << digits)


@given(st.fractions(min_value=Fraction(1, 50), max_value=10**6), st.integers(1, 10**6))
def test_laplace_epsilon_by_the_rational_inequality(scale, shift):
    """P(k)/P(k - d) = exp((|k - d| - |k|)/t): the exponent is rational, no exponential is needed."""
    epsilon = DiscreteLaplace(scale).cost(shift).epsilon
    grid = {s * k + o for k in (0, 1, shift // 2, shift, 2 * shift, 10**9) for s in (1, -1) for o in (-1, 0, 1)}
    exponents = [Fraction(abs(k - shift) - abs(k)) / scale for k in grid]
    assert max(exponents) == epsilon  # attained: the claim is tight
    assert min(exponents) == -epsilon


@settings(max_examples=30, deadline=None)
@given(st.fractions(min_value=Fraction(1, 4), max_value=50, max_denominator=1000), st.integers(1, 6))
def test_laplace_epsilon_by_certified_probabilities(scale, shift):
    mechanism = DiscreteLaplace(scale)
    epsilon = mechanism.cost(shift).epsilon
    factor = shrink(epsilon) * (1 - Fraction(1, 1 << 80))
    for k in range(-8, 9):
        assert mechanism.probability(k)[1] * factor <= mechanism.probability(k - shift)[0]


@pytest.mark.parametrize("sigma", [Fraction(1, 2), Fraction(1), Fraction(5, 2), Fraction(12)])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_gaussian_rho_by_renyi_divergence(sigma, shift):
    """D_alpha(X || X + d) <= rho * alpha, summed with mpmath from the definition, independent of the claim's proof."""
    rho = DiscreteGaussian(sigma**2).cost(shift**2).rho
    with mpmath.workdps(60):
        s = mpmath.mpf(sigma.numerator) / sigma.denominator
        reach = int(40 * s) + 40
        log_z = mpmath.log(mpmath.fsum(mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)) for k in range(-reach, reach)))
        for alpha in map(mpmath.mpf, ("1.01", "1.5", "2", "7.3", "20")):
            centre = -int((alpha - 1) * shift)
            total = mpmath.fsum(
                mpmath.exp(-(alpha * k * k + (1 - alpha) * (k - shift) ** 2) / (2 * s * s))
                for k in map(mpmath.mpf, range(centre - reach, centre + reach))
            )
            divergence = (mpmath.log(total) - log_z) / (alpha - 1)
            claim = mpmath.mpf(rho.numerator) / rho.denominator * alpha
            assert divergence <= claim * (1 + mpmath.mpf(10) ** -40)
            if alpha in (2, 20):  # whole shifts of the lattice: equality (CKS20 Proposition 5)
                assert divergence >= claim * (1 - mpmath.mpf(10) ** -40)


def renyi(p, q, alpha):
    total = mpmath.fsum(a**alpha * b ** (1 - alpha) for a, b in zip(p, q, strict=True))
    return mpmath.log(total) / (alpha - 1)


def neighbours(scores):
    for moves in itertools.product((-1, 0, 1), repeat=len(scores)):
        yield [score + move for score, move in zip(scores, moves, strict=True)]


@pytest.mark.parametrize("kind", [PermuteAndFlip, Exponential])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_selection_epsilon_and_rho_over_all_small_scores(kind, epsilon):
    mechanism = kind(epsilon, Fraction(1))
    cost = mechanism.cost()
    factor = shrink(cost.epsilon) * (1 - Fraction(1, 1 << 80))
    rho = float(cost.rho)
    table = {}

    def chances(scores):
        key = tuple(score - max(scores) for score in scores)
        if key not in table:
            table[key] = mechanism.probabilities(np.array(key, dtype=np.int64))
        return table[key]

    for k, values in ((2, range(-3, 1)), (3, range(-2, 1))):
        for scores in itertools.product(values, repeat=k):
            p = chances(scores)
            for other in neighbours(scores):
                q = chances(other)
                assert all(high * factor <= low for (_, high), (low, _) in zip(p, q, strict=True))
                plain = [[float(low) for low, _ in side] for side in (p, q)]
                for alpha in (1.05, 2.0, 6.0):
                    assert renyi(*plain, alpha) <= rho * alpha * (1 + 1e-9) + 1e-12


def test_v12_permute_and_flip_may_not_claim_the_bounded_range_rho():
    """[0, 0] against [1, -1]: its Renyi divergence is within epsilon^2/2 but beyond epsilon^2/8 times alpha."""
    epsilon = Fraction(1)
    mechanism = PermuteAndFlip(epsilon, Fraction(1))
    p, q = ([float(low) for low, _ in mechanism.probabilities(np.array(s))] for s in ([0, 0], [1, -1]))
    worst = max(renyi(a, b, alpha) / alpha for a, b in ((p, q), (q, p)) for alpha in (1.01, 1.5, 2.0, 4.0))
    assert Fraction(1, 8) < worst <= mechanism.cost().rho
    exponential = Exponential(epsilon, Fraction(1))
    p, q = ([float(low) for low, _ in exponential.probabilities(np.array(s))] for s in ([0, 0], [1, -1]))
    assert all(renyi(a, b, alpha) <= alpha / 8 for a, b in ((p, q), (q, p)) for alpha in (1.01, 1.5, 2.0, 4.0))


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 1 << 20), st.fractions(min_value=Fraction(1, 10**9), max_value=100))
@example(2, Fraction(393, 10))  # e^epsilon just below the 2^60 at which odds are capped
@example(1 << 20, Fraction(415, 10))
def test_response_ratio_is_at_most_e_to_epsilon_exactly(k, epsilon):
    mechanism = RandomizedResponse(k, epsilon)
    truth, other = mechanism.probability(0, 0), mechanism.probability(1, 0)
    digits = 400
    above = Fraction(exp_bracket(epsilon, digits)[1], 1 << digits)  # >= e^-epsilon
    assert truth * above <= other
    assert truth + (k - 1) * other == 1


@given(st.integers(0, 10**6), st.sampled_from([Fraction(1, 2), Fraction(3), Fraction(10**4)]), st.integers(1, 40))
def test_batches_and_single_draws_come_from_one_law(seed, scale, n):
    """Same support and type whatever the batch; draws are integers, and reproducible from the words alone."""
    for mechanism in (DiscreteLaplace(scale), DiscreteGaussian(scale**2)):
        first, again = (mechanism.sample(n, SeededBits(seed)) for _ in range(2))
        assert first.dtype == np.int64
        assert first.tolist() == again.tolist()


@pytest.mark.parametrize("mechanism", [DiscreteLaplace(Fraction(1)), DiscreteGaussian(Fraction(1))])
def test_v1_releases_on_0_and_on_1_share_one_integer_support(mechanism):
    zero = mechanism.sample(100_000, SeededBits(1))
    one = 1 + mechanism.sample(100_000, SeededBits(2))
    assert zero.dtype == one.dtype == np.int64
    for values in (zero, one):  # every integer in reach appears, none has probability zero under the other
        assert set(range(-3, 5)) <= set(values.tolist())
    assert all(mechanism.probability(int(k))[0] > 0 for k in np.union1d(zero, one))
