"""Local randomisers: epsilon by computed probabilities, every report of every holding; estimates without bias."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dodona.errors import BadEffort
from dodona.mechanisms.bits import below_each, round_to_ends
from dodona.mechanisms.cube import CubeResponse, WalshResponse, fast_walsh
from dodona.mechanisms.direction import DirectionResponse, _best_favoured, public_direction, public_directions
from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.laplace import BoundedLaplace
from dodona.mechanisms.response import TwoLevel, WindowResponse
from dodona.testing.oracles import SeededBits, TapeBits

EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(7, 3), Fraction(8)]


def within(epsilon, probabilities):
    """Every pair of probabilities of one report is within e^epsilon, in certified rationals."""
    shrunk = Fraction(exp_bracket(epsilon, 256)[1], 1 << 256)  # >= e^-epsilon
    return min(probabilities) > 0 and max(probabilities) * shrunk <= min(probabilities)


@pytest.mark.parametrize("epsilon", [*EPSILONS, Fraction(45), Fraction(10**6), Fraction(1, 10**9)])
@pytest.mark.parametrize(("size", "favoured"), [(2, 1), (7, 3), (257, 69), (1 << 20, 5)])
def test_two_level_draw_is_exact(size, favoured, epsilon):
    if size == 1 << 20 and epsilon < Fraction(1, 10**6):
        with pytest.raises(BadEffort):  # so small an epsilon over so many outcomes is pure noise
            TwoLevel(size, favoured, Fraction(1, 10**15))
        return
    draw = TwoLevel(size, favoured, epsilon)
    a, c = draw.odds
    assert favoured * draw.probability(0) + (size - favoured) * draw.probability(size - 1) == 1
    assert a > c > 0
    assert draw.total < 1 << 62
    assert within(epsilon, [draw.probability(0), draw.probability(size - 1)])
    width = (draw.total - 1).bit_length()
    edge = favoured * a
    for drawn, position in ((0, 0), (a - 1, 0), (edge - 1, favoured - 1), (edge, favoured), (draw.total - 1, size - 1)):
        assert draw.sample(1, TapeBits([drawn << (64 - width)])).tolist() == [position]
    assert draw.cost().epsilon == epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("near", [(0,), (0, 2), (0, 3), (0, 1), (0, 1, 4)])
def test_cube_response_is_private_and_its_eigenvalues_are_right(near, epsilon):
    response = CubeResponse(4, near, epsilon)
    for report in range(16):
        chances = [response.probability(report, value) for value in range(16)]
        assert within(epsilon, chances)
    assert sum(response.probability(report, 5) for report in range(16)) == 1
    for mask in range(1, 16):
        kept = sum(response.probability(report, 0) * (-1) ** ((report & mask).bit_count() % 2) for report in range(16))
        assert response.eigenvalue(mask.bit_count()) == kept
    assert response.probability(16, 0) == 0
    assert response.log_probability(16, 0) == -math.inf


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("values", "width"), [(2, 1), (5, 2), (6, 3), (11, 1)])
def test_window_response_is_private_and_counts_without_bias(values, width, epsilon):
    response = WindowResponse(values, width, epsilon)
    p = response.modulus
    stray = {}
    for a in range(1, p):
        for report in range(p):
            chances = [response.probability(report, value, a) for value in range(values)]
            assert within(epsilon, chances)
            for value, other in itertools.permutations(range(values), 2):
                if (report - a * other) % p < width:
                    stray[value, other] = stray.get((value, other), 0) + chances[value] / (p - 1)
    assert set(stray.values()) == {response.stray}
    assert response.kept == width * response.probability(0, 0, 1)


def test_windows_decode_as_they_are_defined():
    response = WindowResponse(9, 4, Fraction(1))
    p = response.modulus
    counts = np.random.default_rng(0).integers(0, 5, (p, p))
    counts[0] = 0
    slow = [sum(int(counts[a, y]) for a in range(1, p) for y in range(p) if (y - a * v) % p < 4) for v in range(9)]
    assert response.held(counts).tolist() == slow


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4])
def test_windows_are_no_worse_than_optimised_unary_encoding(epsilon):
    grown = math.exp(epsilon)
    unary = 4 * grown / (grown - 1) ** 2
    response = WindowResponse.best(256, Fraction(str(epsilon)))
    assert response.variance(1, 0.0) <= unary * 1.0001
    # Subset selection at its best width over 256 values (Ye and Barg 2018): p = 257 costs half a percent.
    best = min(_subset_selection(256, w, grown) for w in range(1, 200))
    assert response.variance(1, 0.0) <= best * 1.01


def _subset_selection(k, w, grown):
    kept = w * grown / (w * grown + k - w)
    stray = (kept * (w - 1) + (1 - kept) * w) / (k - 1)
    return stray * (1 - stray) / (kept - stray) ** 2


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_walsh_response_is_private_and_unbiased(epsilon):
    response = WalshResponse(6, epsilon)
    for mask in range(1, 8):
        for report in (0, 1):
            assert within(epsilon, [response.probability(report, value, mask) for value in range(6)])
    for value in range(6):  # the exact expectation of the estimate is the indicator of the value
        scale = 10**6
        counts = np.zeros((8, 2))
        for mask in range(1, 8):
            for report in (0, 1):
                counts[mask, report] = scale * float(response.probability(report, value, mask))
        np.testing.assert_allclose(response.estimate(counts), np.eye(6)[value], atol=1e-9)


def test_fast_walsh_is_the_transform():
    values = np.random.default_rng(1).standard_normal(16)
    signs = [[(-1) ** ((m & v).bit_count() % 2) for m in range(16)] for v in range(16)]
    np.testing.assert_allclose(fast_walsh(values), np.array(signs) @ values)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_direction_response_is_private_whatever_the_directions(epsilon):
    response = DirectionResponse(6, 2, epsilon)
    nearest = [frozenset(pair) for pair in itertools.combinations(range(6), 2)]
    for report in range(6):
        assert within(epsilon, [response.probability(report, near) for near in nearest])
    assert sum(response.probability(report, nearest[0]) for report in range(6)) == 1
    assert response.probability(0, frozenset({1})) == 0


def test_direction_gain_is_right():
    for k, r, epsilon in ((2, 1, Fraction(1)), (8, 3, Fraction(2))):
        response = DirectionResponse(k, r, epsilon)
        z = np.sort(np.random.default_rng(2).standard_normal((200_000, k)), axis=1)[:, ::-1]
        expected = float(response.draw.lift) * z[:, :r].sum(axis=1).mean()
        assert response.gain == pytest.approx(expected, rel=0.01)
    # Two candidates: the larger of two normals is 1/sqrt(pi) on average.
    two = DirectionResponse(2, 1, Fraction(1))
    assert two.gain == pytest.approx(float(two.draw.lift) / math.sqrt(math.pi), rel=1e-6)
    assert DirectionResponse.best(Fraction(6)).variance() < DirectionResponse(2, 1, Fraction(6)).variance() / 2


@pytest.mark.parametrize(("epsilon", "optimum"), [(1, 316.0), (4, 21.8), (8, 6.6)])
def test_directions_are_near_the_optimum_of_privunit(epsilon, optimum):
    """n times the mean square error of a mean of unit vectors in 50 coordinates (Feldman and Talwar 2021)."""
    best = DirectionResponse.best(Fraction(epsilon))
    assert optimum < 50 * best.mean_variance(50) - 1 < 1.05 * optimum
    few = DirectionResponse.best(Fraction(epsilon), 24)
    assert few.candidates <= 24
    assert few.mean_variance(50) > best.mean_variance(50)


@pytest.mark.parametrize(("candidates", "epsilon"), [(12, 1), (24, 2), (32, 4)])
def test_as_many_are_favoured_as_gain_most(candidates, epsilon):
    gains = [DirectionResponse(candidates, r, Fraction(epsilon)).gain for r in range(1, candidates // 2 + 1)]
    assert _best_favoured(candidates, Fraction(epsilon)) == 1 + int(np.argmax(gains))


@pytest.mark.parametrize(("candidates", "dimension"), [(2, 1), (3, 5), (64, 7)])
def test_a_direction_alone_is_the_one_among_all(candidates, dimension):
    rng = np.random.default_rng(1)
    seeds, index = rng.integers(-(2**62), 2**62, 200), rng.integers(0, candidates, 200)
    among = public_directions(seeds, candidates, dimension)[np.arange(200), index]
    np.testing.assert_array_equal(public_direction(seeds, candidates, dimension, index), among)


def test_public_directions_are_normal_and_repeatable():
    seeds = np.arange(4000, dtype=np.int64)
    drawn = public_directions(seeds, 3, 5)
    assert drawn.shape == (4000, 3, 5)
    np.testing.assert_array_equal(drawn[17], public_directions(seeds[17:18], 3, 5)[0])
    flat = drawn.reshape(-1, 15)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=0.08)
    np.testing.assert_allclose(np.cov(flat.T), np.eye(15), atol=0.1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_bounded_laplace_is_private(epsilon):
    response = BoundedLaplace(10, epsilon)
    shrunk = Fraction(exp_bracket(epsilon, 256)[0], 1 << 256)
    for report in range(-40, 51, 5):
        low = response.probability(report, 0)[0]
        assert low * shrunk <= response.probability(report, 10)[1]
    assert response.cost().epsilon <= epsilon
    drawn = response.sample(np.full(20_000, 3), SeededBits(1))
    assert drawn.mean() == pytest.approx(3, abs=6 * math.sqrt(response.variance / 20_000) + 1e-9)


def test_bounds_of_any_size_are_drawn_uniformly():
    bounds = np.array([1, 2, 3, 5, 1 << 40, (1 << 61) + 12345] * 3000)
    drawn = below_each(bounds, SeededBits(3))
    assert ((drawn >= 0) & (drawn < bounds)).all()
    for bound in (2, 3, 5):
        counts = np.bincount(drawn[bounds == bound], minlength=bound)
        assert counts.min() > 0.85 * 3000 / bound
    assert drawn[bounds == 1 << 40].mean() == pytest.approx((1 << 39), rel=0.05)
    with pytest.raises(ValueError, match="positive"):
        below_each(np.array([0]), SeededBits(0))


def test_rounding_keeps_the_mean():
    values = np.tile(np.array([-3, 0, 7]), 20_000)
    ends = round_to_ends(values, np.int64(-3), np.int64(7), SeededBits(4))
    for value in (-3, 0, 7):
        assert ends[values == value].mean() == pytest.approx((value + 3) / 10, abs=0.02)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TwoLevel(1, 1, Fraction(1)),
        lambda: TwoLevel(4, 4, Fraction(1)),
        lambda: TwoLevel(4, 1, Fraction(0)),
        lambda: TwoLevel(4, 1, 0.5),
        lambda: TwoLevel(True, 1, Fraction(1)),
        lambda: CubeResponse(3, (0, 1, 2, 3), Fraction(1)),
        lambda: CubeResponse(3, (1, 0), Fraction(1)),
        lambda: CubeResponse(17, (0,), Fraction(1)),
        lambda: CubeResponse(2.0, (0,), Fraction(1)),
        lambda: WindowResponse(1, 1, Fraction(1)),
        lambda: WindowResponse(10, 11, Fraction(1)),
        lambda: WalshResponse(1, Fraction(1)),
        lambda: DirectionResponse(1, 1, Fraction(1)),
        lambda: BoundedLaplace(0, Fraction(1)),
        lambda: BoundedLaplace(5, Fraction(-1)),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(BadEffort):
        make()


@pytest.mark.parametrize(
    "sample",
    [
        lambda: CubeResponse(2, (0,), Fraction(1)).sample(np.array([4]), SeededBits(0)),
        lambda: WindowResponse(3, 1, Fraction(1)).sample(np.array([-1]), SeededBits(0)),
        lambda: WalshResponse(3, Fraction(1)).sample(np.array([3]), SeededBits(0)),
    ],
)
def test_values_out_of_range_are_refused(sample):
    with pytest.raises(ValueError, match="values must"):
        sample()
