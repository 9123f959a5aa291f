"""``check_mechanism``: what every mechanism must pass, ours or another's. Raises AssertionError, needs no test
runner.

Exact part: support, total mass, symmetry, and the claimed cost against computed probabilities. Sampled part: a
chi-square test of draws against the exact probabilities that must also reject a scale 10 % off, both ways (the
harness is itself tested on mis-scaled samplers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms import (
    Bits,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    PermuteAndFlip,
    RandomizedResponse,
    SecureBits,
)
from dodona.mechanisms.bounded_laplace import BoundedLaplace
from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.stitched import Stitched
from dodona.testing.responses import LAWS, check_law

Noise = DiscreteLaplace | DiscreteGaussian | Stitched
Selection = PermuteAndFlip | Exponential
FALSE_ALARM = 1e-6
_MOST_DRAWS = 4_000_000
# Certified rationals agree to 2^-100; an inequality that fails by more than this fails in truth.
_HAIR = Fraction(1, 1 << 90)


def check_mechanism(mechanism: Any, *, bits: Bits | None = None, draws: int = 60_000) -> None:
    """Check one mechanism; ``bits`` defaults to the system's, ``draws`` is raised where more are needed to see 10
    %.

    Known are integer noise (Laplace, Gaussian, stitched), selections, randomised response and every local randomiser.
    """
    bits = SecureBits() if bits is None else bits
    kind = next((each for each in type(mechanism).__mro__ if each in _CHECKS or each in LAWS), None)
    assert kind is not None, f"check_mechanism does not know {type(mechanism).__name__}."
    if kind in _CHECKS:
        _CHECKS[kind](mechanism, bits, draws)
        return
    for law in LAWS[kind](mechanism):
        assert law.epsilon <= (mechanism.cost().epsilon or 0), f"{law.name}: the cost says less than the law's epsilon."
        check_law(law, bits, draws, p_value)


def p_value(observed: Sequence[float], probabilities: Sequence[float]) -> float:
    """Pearson's chi-square p-value; cells are taken as they come, so make them large enough (5 expected or more)."""
    chi2 = import_module("scipy.stats").chi2  # only tests need SciPy

    counts, expected = np.asarray(observed), np.asarray(probabilities) * np.sum(observed)
    if np.any(counts[expected < 1e-9] > 0):
        return 0.0  # an outcome the model calls impossible
    kept = expected >= 1e-9
    statistic = float((((counts - expected) ** 2)[kept] / expected[kept]).sum())
    return float(chi2.sf(statistic, max(1, int(kept.sum()) - 1)))


def scaled(mechanism: Noise, factor: Fraction) -> Noise:
    """The same mechanism at ``factor`` times the scale."""
    return _FAMILIES[type(mechanism)].scaled(mechanism, factor)


def mass(mechanism: Noise, start: int, stop: int) -> float:
    """P(start <= X < stop), to about 1e-9: the sum, or for a long stretch the integral from start - 1/2 to stop -
    1/2.

    The two differ by about (stop - start) / (24 * scale^2) of the mass, and by Euler-Maclaurin not at all in the
    limit.
    """
    if stop - start <= 4096:
        return math.fsum(math.exp(mechanism.log_probability(k)) for k in range(start, stop))
    nodes, weights = np.polynomial.legendre.leggauss(24)
    middle, half = (start + stop - 1) / 2, (stop - start) / 2
    values = [math.exp(mechanism.log_probability(round(middle + half * float(node)))) for node in nodes]
    return float(half * np.dot(weights, values))


def cells(mechanism: Noise, draws: int) -> list[int]:
    """Edges e_0 < e_1 < ... of cells [e_i, e_i+1) of near-equal width, none expected to hold fewer than 5 of
    ``draws``.
    """
    reach = mechanism.quantile(1 - min(0.5, 40 / draws))
    step = max(1, -(-reach // 32))
    positive = list(range(1, reach + 2, step))
    return [1 - edge for edge in reversed(positive)] + positive


def check_noise_samples(
    mechanism: Noise,
    sample: Callable[[int, Bits], NDArray[np.generic]],
    bits: Bits,
    draws: int,
    alarm: float = FALSE_ALARM,
) -> None:
    """``sample`` draws from ``mechanism``, and visibly not from one of 0.9 or 1.1 times its scale.

    ``alarm``: how seldom a sound sampler fails, and how surely an unsound one must.
    """
    away = 1 - math.exp(mechanism.log_probability(0))
    draws = max(draws, min(_MOST_DRAWS, int(3000 / away) if away > 0 else _MOST_DRAWS))
    values = np.asarray(sample(draws, bits))
    assert values.dtype.kind in "iO", f"noise must be integers. Got {values.dtype}."
    if away * draws < 100:  # all but never away from zero: draws can say only that much
        assert np.count_nonzero(values) <= 10 + 10 * away * draws, "too many draws differ from 0."
        return
    edges = cells(mechanism, draws)
    where = np.searchsorted(np.array(edges, dtype=values.dtype), values, side="right")
    observed = np.bincount(where, minlength=len(edges) + 1).tolist()

    def model(candidate: Noise) -> list[float]:
        inside = [mass(candidate, a, b) for a, b in pairwise(edges)]
        outside = max(0.0, 1 - math.fsum(inside)) / 2
        return [outside, *inside, outside]

    good = p_value(observed, model(mechanism))
    assert good > alarm, f"draws do not match the probabilities (p = {good:.1e})."
    for factor in (Fraction(9, 10), Fraction(11, 10)):
        bad = p_value(observed, model(scaled(mechanism, factor)))
        assert bad < alarm, f"draws cannot be told from {float(factor)} times the scale (p = {bad:.1e})."


def check_noise_probabilities(mechanism: Noise) -> None:
    """Symmetric, positive at every integer looked at, mass 1, tails and quantiles honest, cost as claimed."""
    reach = mechanism.quantile(0.999)
    points = sorted({0, 1, 2, 3, reach // 2, reach, reach + 1})
    for k in points:
        low, high = mechanism.probability(k)
        assert 0 < low <= high <= low * (1 + _HAIR), f"P({k}) is not bracketed."
        assert (low, high) == mechanism.probability(-k), f"P({k}) differs from P({-k})."
        middle = math.log(low.numerator) - math.log(low.denominator)
        assert abs(mechanism.log_probability(k) - middle) < 1e-12 * max(1.0, abs(middle)), f"ln P({k}) is wrong."
    assert mechanism.tail(reach) <= 0.001 + 1e-15, "the quantile is too small."
    assert reach == 0 or mechanism.tail(reach - 1) > 0.001 * 0.99, "the quantile is too large."
    if reach <= 5000:
        far = mechanism.quantile(1 - 1e-15) + 1
        inside = [mechanism.probability(k) for k in range(far + 1)]
        low, high = (inside[0][side] + 2 * sum(pair[side] for pair in inside[1:]) for side in (0, 1))
        assert low <= 1 <= high + Fraction(mechanism.tail(far)), "the probabilities do not sum to 1."
    family = _FAMILIES[type(mechanism)]
    if family.cost(mechanism, 1).epsilon is not None:
        _check_epsilon(mechanism, points)
    if family.concentrated and mechanism.variance <= 10**4:
        for alpha in (1.25, 2.0, 8.0, 64.0):
            for shift in (1, 3):
                rho = float(family.cost(mechanism, shift).rho)
                assert renyi(mechanism, shift, alpha) <= rho * alpha * (1 + 1e-9) + 1e-12, "rho is under-claimed."


def _check_epsilon(mechanism: Noise, points: Sequence[int]) -> None:
    """P(k) <= e^epsilon P(k - d) for the cost claimed at distance d, with certified rationals on both sides."""
    for shift in (1, 2, 7):
        epsilon = _FAMILIES[type(mechanism)].cost(mechanism, shift).epsilon
        assert epsilon is not None
        digits = 128 + math.ceil(epsilon * 3)
        shrunk = Fraction(exp_bracket(epsilon, digits)[0], 1 << digits)  # <= e^-epsilon
        for k in {s * k for k in points for s in (1, -1)}:
            low = mechanism.probability(k)[0]
            assert low * shrunk <= mechanism.probability(k - shift)[1], f"epsilon is under-claimed at {k}."


def renyi(mechanism: Noise, shift: int, alpha: float) -> float:
    """The Renyi divergence of order ``alpha`` between X and X + ``shift``, from the log-probabilities."""
    spread = int(14 * math.sqrt(mechanism.variance)) + 14
    centre = -int((alpha - 1) * shift)
    logs = [
        alpha * mechanism.log_probability(k) + (1 - alpha) * mechanism.log_probability(k - shift)
        for k in range(centre - spread, centre + spread + shift + 1)
    ]
    top = max(logs)
    return (top + math.log(math.fsum(math.exp(value - top) for value in logs))) / (alpha - 1)


def _check_selection(mechanism: Selection, bits: Bits, draws: int) -> None:
    unit = max(1, math.ceil(mechanism.sensitivity))
    scores = np.array([3 * unit, 0, 2 * unit, 3 * unit, -unit], dtype=np.int64)
    found = mechanism.probabilities(scores)
    assert sum(low for low, _ in found) <= 1 <= sum(high for _, high in found), "the probabilities do not sum to 1."
    observed = np.bincount([mechanism.sample(scores, bits) for _ in range(draws)], minlength=5).tolist()
    good = p_value(observed, [float(low) for low, _ in found])
    assert good > FALSE_ALARM, f"draws do not match the probabilities (p = {good:.1e})."
    step = math.floor(mechanism.sensitivity)
    epsilon = mechanism.cost().epsilon
    assert epsilon is not None
    digits = 128 + math.ceil(epsilon * 3)
    shrunk = Fraction(exp_bracket(epsilon, digits)[0], 1 << digits)
    for moves in np.ndindex(3, 3, 3, 3, 3):
        near = mechanism.probabilities(scores + step * (np.array(moves, dtype=np.int64) - 1))
        for (low, _), (_, high) in zip(found, near, strict=True):
            assert low * shrunk <= high, "epsilon is under-claimed."


def _check_response(mechanism: RandomizedResponse, bits: Bits, draws: int) -> None:
    k = mechanism.k
    sums = {sum(mechanism.probability(report, value) for report in range(k)) for value in range(min(k, 8))}
    assert sums == {Fraction(1)}, "the probabilities do not sum to 1."
    digits = 128 + math.ceil(mechanism.epsilon * 3)
    shrunk = Fraction(exp_bracket(mechanism.epsilon, digits)[1], 1 << digits)  # >= e^-epsilon
    truth, other = mechanism.probability(0, 0), mechanism.probability(0, 1)
    assert truth * shrunk <= other, "epsilon is under-claimed."
    for value in (0, k - 1):
        reports = mechanism.sample(np.full(draws, value, dtype=np.int64), bits)
        observed = np.bincount(reports, minlength=k).tolist()
        good = p_value(observed, [float(mechanism.probability(report, value)) for report in range(k)])
        assert good > FALSE_ALARM, f"draws do not match the probabilities (p = {good:.1e})."


def _check_noise(mechanism: Noise, bits: Bits, draws: int) -> None:
    check_noise_probabilities(mechanism)
    check_noise_samples(mechanism, mechanism.sample, bits, draws)


def _check_bounded(mechanism: BoundedLaplace, bits: Bits, draws: int) -> None:
    """Its noise, moved to what is held; two holdings ``reach`` apart tell within the claimed epsilon."""
    check_noise_probabilities(mechanism.noise)
    for value in (0, mechanism.reach):

        def moved(n: int, source: Bits, held: int = value) -> NDArray[np.generic]:
            return mechanism.sample(np.full(n, held, dtype=np.int64), source) - held

        check_noise_samples(mechanism.noise, moved, bits, draws)
    digits = 128 + math.ceil(mechanism.epsilon * 3)
    shrunk = Fraction(exp_bracket(mechanism.epsilon, digits)[0], 1 << digits)  # <= e^-epsilon
    for report in (-5, 0, mechanism.reach // 2, mechanism.reach, mechanism.reach + 5):
        pair = mechanism.probability(report, 0), mechanism.probability(report, mechanism.reach)
        for (low, _), (_, high) in (pair, pair[::-1]):
            assert low * shrunk <= high, f"epsilon is under-claimed at report {report}."
    claimed = mechanism.cost().epsilon
    assert claimed is not None
    assert claimed <= mechanism.epsilon, "the cost is above the epsilon asked for."


@dataclass(frozen=True)
class _Family:
    """How a family of noise is stretched, and what it claims for one coordinate moved by d."""

    scaled: Callable[[Any, Fraction], Noise]
    cost: Callable[[Any, int], Any]
    concentrated: bool


_FAMILIES: dict[type, _Family] = {
    DiscreteLaplace: _Family(lambda m, f: replace(m, scale=m.scale * f), lambda m, d: m.cost(d), False),
    DiscreteGaussian: _Family(lambda m, f: replace(m, variance=m.variance * f * f), lambda m, d: m.cost(d * d), True),
    Stitched: _Family(
        lambda m, f: replace(m, core=m.core * f * f, slope=m.slope / f), lambda m, d: m.cost(d, d * d), True
    ),
}

_CHECKS: dict[type, Callable[[Any, Bits, int], None]] = {
    DiscreteLaplace: _check_noise,
    DiscreteGaussian: _check_noise,
    Stitched: _check_noise,
    BoundedLaplace: _check_bounded,
    PermuteAndFlip: lambda mechanism, bits, draws: _check_selection(mechanism, bits, draws // 10),
    Exponential: lambda mechanism, bits, draws: _check_selection(mechanism, bits, draws // 10),
    RandomizedResponse: _check_response,
}
"""Mechanism -> its check; local randomisers that are one draw with two odds are read as ``responses.LAWS``."""
