"""Selection: exact probabilities by brute force, error bounds, large candidate sets."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dodona.errors import BadEffort
from dodona.mechanisms import Exponential, PermuteAndFlip
from dodona.testing.oracles import SeededBits, TapeBits

BOTH = pytest.mark.parametrize("kind", [PermuteAndFlip, Exponential])


def _permute_and_flip(biases):
    """McKenna and Sheldon's Algorithm 1, run over all orders: the slow reference."""
    out = [mpmath.mpf(0)] * len(biases)
    orders = list(itertools.permutations(range(len(biases))))
    for order in orders:
        alive = mpmath.mpf(1)
        for i in order:
            out[i] += alive * biases[i] / len(orders)
            alive *= 1 - biases[i]
    return out


@pytest.mark.parametrize("scores", [[0], [0, 0], [1, -1], [5, 3, 3, 0], [2, 2, 1, -4, 0]])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(6)])
def test_probabilities_agree_with_the_algorithms_as_printed(scores, epsilon):
    array = np.array(scores, dtype=np.int64)
    with mpmath.workdps(60):
        rate = mpmath.mpf(epsilon.numerator) / epsilon.denominator / 4  # sensitivity 2
        biases = [mpmath.exp(-rate * (max(scores) - score)) for score in scores]
        references = {
            PermuteAndFlip: _permute_and_flip(biases),
            Exponential: [bias / mpmath.fsum(biases) for bias in biases],
        }
        for kind, truths in references.items():
            mechanism = kind(epsilon, Fraction(2))
            for i, ((low, high), truth) in enumerate(zip(mechanism.probabilities(array), truths, strict=True)):
                assert mpmath.mpf(low.numerator) / low.denominator <= truth * (1 + mpmath.mpf(10) ** -50)
                assert truth <= mpmath.mpf(high.numerator) / high.denominator * (1 + mpmath.mpf(10) ** -50)
                assert high - low < Fraction(1, 1 << 100)
                assert mechanism.log_probability(array, i) == pytest.approx(float(mpmath.log(truth)), abs=1e-13)


@BOTH
@pytest.mark.parametrize("k", [2, 10, 1000])
@pytest.mark.parametrize("confidence", [0.6, 0.95, 0.999999])
def test_error_covers_the_worst_scores_and_tolerance_inverts_it(kind, k, confidence):
    mechanism = kind(Fraction(1, 2), Fraction(1))
    e = mechanism.error(k, confidence)
    if k <= 10:  # the worst case: one best candidate and all the others just past e
        scores = np.array([0] + [-(e + 1)] * (k - 1), dtype=np.int64)
        assert mechanism.probabilities(scores)[0][1] >= Fraction(confidence)
    least = kind.for_tolerance(k, e, confidence, 1)
    assert least.error(k, confidence) <= e
    assert least.epsilon <= mechanism.epsilon * (1 + Fraction(1, 10**6))
    assert mechanism.error(1, confidence) == 0


@BOTH
@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(1, 10**5), Fraction(1, 10**12)])
def test_a_million_candidates(kind, epsilon):
    scores = np.random.default_rng(0).integers(-(10**6), 10**6, 10**6)
    winner = kind(epsilon, Fraction(1)).sample(scores, SeededBits(1))
    assert 0 <= winner < scores.size
    if epsilon == 1:
        assert scores.max() - scores[winner] <= kind(epsilon, Fraction(1)).error(10**6, 1 - 1e-9)


@BOTH
def test_buckets_and_coins_give_the_right_frequencies(kind):
    """A small rate, so that gaps share buckets and the coin inside the bucket matters."""
    scores = np.array([0, -3, -10, -100, -101, -900, -(2**61)], dtype=np.int64)
    mechanism = kind(Fraction(1, 50), Fraction(1))
    n, source = 4000, SeededBits(5)
    counts = np.bincount([mechanism.sample(scores, source) for _ in range(n)], minlength=7)
    chances = np.array([float(low) for low, _ in mechanism.probabilities(scores[:6])] + [0.0])
    assert np.all(np.abs(counts - n * chances) <= 6 * np.sqrt(n * chances * (1 - chances)) + 1e-9)


def test_a_candidate_that_is_all_but_impossible_can_still_win():
    """The far tail is resolved with more bits, not cut off: exp(-60) needs 87 bits."""
    scores = np.array([0, -60], dtype=np.int64)
    top = 2**64 - 1
    assert Exponential(Fraction(2), Fraction(1)).sample(scores, TapeBits([top, top, *[0] * 4])) == 1
    assert Exponential(Fraction(2), Fraction(1)).sample(scores, TapeBits([top, 0, *[0] * 4])) == 0
    # Permute-and-flip: both coins show heads (words of zero resolved by zeros), then the second is chosen.
    assert PermuteAndFlip(Fraction(2), Fraction(1)).sample(scores, TapeBits([0, 0, 0, 2**63])) == 1


@BOTH
def test_costs(kind):
    cost = kind(Fraction(1, 2), Fraction(3)).cost()
    assert cost.epsilon == Fraction(1, 2)
    assert cost.rho == (Fraction(1, 8) if kind is PermuteAndFlip else Fraction(1, 32))


@BOTH
@pytest.mark.parametrize("bad", [[], [[1]], [1.0], [True]])
def test_bad_scores_are_refused(kind, bad):
    with pytest.raises(ValueError, match="scores must"):
        kind(Fraction(1), Fraction(1)).sample(np.array(bad), SeededBits(0))


@BOTH
def test_bad_parameters_are_refused(kind):
    for pair in ((0, 1), (1, 0), (0.5, 1), (math.nan, 1)):
        with pytest.raises(BadEffort):
            kind(*pair)
    for k, tolerance in ((1, 3), (5, -1)):
        with pytest.raises(BadEffort):
            kind.for_tolerance(k, tolerance, 0.95, 1)
    with pytest.raises(BadEffort):
        kind(1, 1).error(0, 0.95)
