"""``check_mechanism``: what every mechanism must pass, ours or another's. Raises AssertionError, needs no test
runner.

Exact part: support, total mass, symmetry, and the claimed cost against computed probabilities. Sampled part: a
chi-square test of draws against the exact probabilities that must also reject a scale 10 % off, both ways (the
harness is itself tested on mis-scaled samplers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms import Bits, SecureBits
from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.mechanism import AdditiveNoise, Mechanism, ReportLaw, ShiftLaw, ShownLaw
from dodona.mechanisms.selection import ChoiceLaw, Chooser

FALSE_ALARM = 1e-6
_MOST_DRAWS = 4_000_000
_MOST_REPORTS = 4096
# Certified rationals agree to 2^-100; an inequality that fails by more than this fails in truth.
_HAIR = Fraction(1, 1 << 90)


def check_mechanism(mechanism: Any, *, bits: Bits | None = None, draws: int = 60_000) -> None:
    """Check one mechanism; ``bits`` defaults to the system's, ``draws`` is raised where more are needed to see 10
    %.

    The laws it states (``Mechanism.laws``) are what is checked.
    """
    bits = SecureBits() if bits is None else bits
    assert isinstance(mechanism, Mechanism), f"check_mechanism does not know {type(mechanism).__name__}: no Mechanism."
    for law in mechanism.laws():
        if isinstance(law, ShiftLaw):
            check_shifts(law, bits, draws)
        elif isinstance(law, ChoiceLaw):
            _check_choice(law.chooser, bits, draws // 10)
        elif isinstance(law, ShownLaw):
            _check_shown(law, bits, draws)
        else:
            assert isinstance(law, ReportLaw), f"check_mechanism knows no law such as {type(law).__name__}."
            claimed = mechanism.cost().epsilon  # type: ignore[attr-defined]
            assert law.epsilon <= (claimed or 0), f"{law.name}: the cost says less than the law's epsilon."
            check_reports(law, bits, draws)


def p_value(observed: Sequence[float], probabilities: Sequence[float]) -> float:
    """Pearson's chi-square p-value; cells are taken as they come, so make them large enough (5 expected or more)."""
    chi2 = import_module("scipy.stats").chi2  # only tests need SciPy

    counts, expected = np.asarray(observed), np.asarray(probabilities) * np.sum(observed)
    if np.any(counts[expected < 1e-9] > 0):
        return 0.0  # an outcome the model calls impossible
    kept = expected >= 1e-9
    statistic = float((((counts - expected) ** 2)[kept] / expected[kept]).sum())
    return float(chi2.sf(statistic, max(1, int(kept.sum()) - 1)))


def mass(mechanism: AdditiveNoise, start: int, stop: int) -> float:
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


def cells(mechanism: AdditiveNoise, draws: int) -> list[int]:
    """Edges e_0 < e_1 < ... of cells [e_i, e_i+1) of near-equal width, none expected to hold fewer than 5 of
    ``draws``.
    """
    reach = mechanism.quantile(1 - min(0.5, 40 / draws))
    step = max(1, -(-reach // 32))
    positive = list(range(1, reach + 2, step))
    return [1 - edge for edge in reversed(positive)] + positive


def check_noise_samples(
    mechanism: AdditiveNoise,
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

    def model(candidate: AdditiveNoise) -> list[float]:
        inside = [mass(candidate, a, b) for a, b in pairwise(edges)]
        outside = max(0.0, 1 - math.fsum(inside)) / 2
        return [outside, *inside, outside]

    good = p_value(observed, model(mechanism))
    assert good > alarm, f"draws do not match the probabilities (p = {good:.1e})."
    for factor in (Fraction(9, 10), Fraction(11, 10)):
        bad = p_value(observed, model(mechanism.scaled(factor)))
        assert bad < alarm, f"draws cannot be told from {float(factor)} times the scale (p = {bad:.1e})."


def check_noise_probabilities(mechanism: AdditiveNoise) -> None:
    """Symmetric, positive at every integer looked at, mass 1, tails and quantiles honest."""
    reach = mechanism.quantile(0.999)
    for k in _points(mechanism):
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


def check_shifts(law: ShiftLaw, bits: Bits, draws: int) -> None:
    """Probabilities, the claim at each distance, and every way to draw."""
    noise = law.noise
    check_noise_probabilities(noise)
    for distance in law.distances[0]:
        cost = law.claim(distance)
        if cost.epsilon is not None:
            _check_epsilon(noise, distance, cost.epsilon)
        follows = cost.epsilon is not None and cost.rho >= cost.epsilon**2 / 2  # then it needs no check of its own
        for alpha in () if follows or noise.stddev > 100 else (1.25, 2.0, 8.0, 64.0):
            bound = float(cost.rho) * alpha * (1 + 1e-9) + 1e-12
            assert renyi(noise, distance, alpha) <= bound, "rho is under-claimed."
    for draw in law.draws:
        check_noise_samples(noise, draw, bits, draws)


def _check_epsilon(noise: AdditiveNoise, shift: int, epsilon: Fraction) -> None:
    """P(k) <= e^epsilon P(k - d) at distance d, with certified rationals on both sides."""
    shrunk = _inverse_exp(epsilon)[0]
    for k in {sign * (k + off) for k in _points(noise) for sign in (1, -1) for off in (0, shift)}:
        low = noise.probability(k)[0]
        assert low * shrunk <= noise.probability(k - shift)[1], f"epsilon is under-claimed at {k}."


def _points(noise: AdditiveNoise) -> list[int]:
    reach = noise.quantile(0.999)
    return sorted({0, 1, 2, 3, reach // 2, reach, reach + 1})


def _inverse_exp(epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Rationals around e^-epsilon."""
    digits = 128 + math.ceil(epsilon * 3)
    low, high = exp_bracket(epsilon, digits)
    return Fraction(low, 1 << digits), Fraction(high, 1 << digits)


def renyi(mechanism: AdditiveNoise, shift: int, alpha: float) -> float:
    """The Renyi divergence of order ``alpha`` between X and X + ``shift``, from the log-probabilities."""
    spread = int(14 * mechanism.stddev) + 14
    centre = -int((alpha - 1) * shift)
    logs = [
        alpha * mechanism.log_probability(k) + (1 - alpha) * mechanism.log_probability(k - shift)
        for k in range(centre - spread, centre + spread + shift + 1)
    ]
    top = max(logs)
    return (top + math.log(math.fsum(math.exp(value - top) for value in logs))) / (alpha - 1)


def _check_choice(mechanism: Chooser, bits: Bits, draws: int) -> None:
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
    assert mechanism.cost().rho == min(epsilon**2 / mechanism.divisor, epsilon**2 / 2), "rho is not as bought."
    shrunk = _inverse_exp(epsilon)[0]
    for moves in np.ndindex(3, 3, 3, 3, 3):
        near = mechanism.probabilities(scores + step * (np.array(moves, dtype=np.int64) - 1))
        for (low, _), (_, high) in zip(found, near, strict=True):
            assert low * shrunk <= high, "epsilon is under-claimed."


def _check_shown(law: ShownLaw, bits: Bits, draws: int) -> None:
    """Keys are shown as often as the law says, with the counts it says."""
    for count in {count for count in (*law.here, *law.there) if count or law.threshold.domain}:
        many = np.full(draws, count, dtype=np.int64)
        shown, noisy = law.threshold.show(many, bits) if count else law.threshold.strays(draws, bits)
        lowest = law.threshold.lowest
        assert noisy.min(initial=lowest) >= lowest, "a key below the threshold is shown."
        reach = law.threshold.noise.quantile(0.99)
        values = range(lowest, max(law.threshold.least, count) + reach)
        chances = [float(law.threshold.chance(y, count)[1]) for y in values]
        observed, hidden = [int(np.count_nonzero(noisy == y)) for y in values], 0.0
        for often, noise, least in law.threshold.ways:
            below = range(min(count, least) - 20 * reach - 20, least)
            hidden += float(often) * math.fsum(math.exp(noise.log_probability(y - count)) for y in below)
        far = len(shown) - sum(observed)
        rest = max(1 - math.fsum(chances) - hidden, 0.0)
        good = p_value([draws - len(shown), far, *observed], [hidden, rest, *chances])
        assert good > FALSE_ALARM, f"keys of {count} people are not shown as the law says (p = {good:.1e})."


def check_reports(law: ReportLaw, bits: Bits, draws: int) -> None:
    """Positive on one common support, summing to 1, within e^epsilon for any two holdings, and drawn so."""
    assert law.reports <= _MOST_REPORTS, f"{law.name}: at most {_MOST_REPORTS} reports can be checked one by one."
    table = [[law.probability(report, held) for report in range(law.reports)] for held in law.holdings]
    for chances in table:
        assert sum(chances) == 1, f"{law.name}: the probabilities do not sum to 1."
        assert min(chances) > 0, f"{law.name}: a report is impossible for some holding."
    for held in law.holdings:
        assert law.probability(law.reports, held) == law.probability(-1, held) == 0, f"{law.name}: support is too wide."
    shrunk = _inverse_exp(law.epsilon)[1]
    for report, column in enumerate(zip(*table, strict=True)):
        assert max(column) * shrunk <= min(column), f"{law.name}: epsilon is under-claimed at report {report}."
    for held, chances in ((law.holdings[0], table[0]), (law.holdings[-1], table[-1])):
        seen = np.asarray(law.draw(held, draws, bits))
        assert 0 <= seen.min() <= seen.max() < law.reports, f"{law.name}: a draw is no report."
        good = p_value(np.bincount(seen, minlength=law.reports).tolist(), [float(chance) for chance in chances])
        assert good > FALSE_ALARM, f"{law.name}: draws do not match the probabilities (p = {good:.1e})."
