"""Draws of the local randomisers against their exact probabilities; sums of reports against the truth."""

from fractions import Fraction

import numpy as np
import pytest

from dodona.mechanisms import SecureBits
from dodona.mechanisms.cube import CubeResponse, WalshResponse
from dodona.mechanisms.direction import DirectionResponse, public_directions
from dodona.mechanisms.response import TwoLevel, WindowResponse
from dodona.testing.mechanisms import FALSE_ALARM, p_value

N = 200_000
EPSILON = Fraction(3, 2)


def fits(observed, probabilities):
    """The draws fit, and a response a fifth more or less private does not."""
    return p_value(observed, [float(p) for p in probabilities]) > FALSE_ALARM


def test_two_level_draws():
    draw = TwoLevel(9, 4, EPSILON)
    observed = np.bincount(draw.sample(N, SecureBits()), minlength=9)
    assert fits(observed, [draw.probability(i) for i in range(9)])
    for other in (EPSILON * Fraction(4, 5), EPSILON * Fraction(6, 5)):
        wrong = TwoLevel(9, 4, other)
        assert not fits(observed, [wrong.probability(i) for i in range(9)])


def test_cube_draws():
    response = CubeResponse(3, (0, 2), EPSILON)
    reports = response.sample(np.full(N, 5), SecureBits())
    assert fits(np.bincount(reports, minlength=8), [response.probability(y, 5) for y in range(8)])
    wrong = CubeResponse(3, (0, 1), EPSILON)
    assert not fits(np.bincount(reports, minlength=8), [wrong.probability(y, 5) for y in range(8)])


def test_window_draws():
    response = WindowResponse(6, 2, EPSILON)
    multipliers, reports = response.sample(np.full(N, 4), SecureBits())
    p = response.modulus
    observed = np.bincount(multipliers * p + reports, minlength=p * p)[p:]
    model = [response.probability(y, 4, a) / (p - 1) for a in range(1, p) for y in range(p)]
    assert fits(observed, model)


def test_walsh_draws():
    response = WalshResponse(7, EPSILON)
    masks, bits = response.sample(np.full(N, 6), SecureBits())
    observed = np.bincount(masks * 2 + bits, minlength=16)[2:]
    assert fits(observed, [response.probability(y, 6, m) / 7 for m in range(1, 8) for y in (0, 1)])


@pytest.mark.parametrize(("k", "r"), [(2, 1), (8, 2)])
def test_directions_point_the_right_way(k, r):
    response, d, n, source = DirectionResponse(k, r, EPSILON), 4, 60_000, SecureBits()
    unit = np.array([0.5, -0.5, 0.1, np.sqrt(0.49)])
    seeds = source.words(n).view(np.int64)
    directions = public_directions(seeds, k, d)
    chosen = response.sample(directions @ unit, source)
    reported = directions[np.arange(n), chosen] / response.gain
    error = np.sqrt(response.variance() / n)
    np.testing.assert_allclose(reported.mean(axis=0), unit, atol=6 * error)
    across = np.linalg.svd(unit[None, :])[2][1:]
    np.testing.assert_allclose((reported @ across.T).std(axis=0), 1 / response.gain, rtol=0.03)
    along = (reported @ unit * response.gain) ** 2
    assert along.mean() == pytest.approx(response.along, rel=0.03)


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(4)])
def test_histograms_are_as_spread_as_stated(epsilon):
    response, n, source = WindowResponse.best(64, epsilon), 20_000, SecureBits()
    values = np.minimum(np.arange(n) % 80, 63)
    truth = np.bincount(values, minlength=64)
    errors = []
    for _ in range(12):
        multipliers, reports = response.sample(values, source)
        p = response.modulus
        counts = np.bincount(multipliers * p + reports, minlength=p * p).reshape(p, p)
        errors.append(response.debias(response.held(counts), n) - truth)
    found = np.array(errors)
    stated = np.sqrt([response.variance(n, float(count)) for count in truth])
    assert np.sqrt(np.mean((found / stated) ** 2)) == pytest.approx(1, abs=0.12)
    assert abs((found / stated).mean()) < 6 / np.sqrt(found.size) * 2
