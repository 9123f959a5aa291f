"""The samplers' rare branches (M16): ties that need more bits, draws far out, formulas at the edge of doubles."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bernoulli import heads
from dodona.mechanisms.characters import CharacterResponse
from dodona.mechanisms.cube import CubeResponse, WalshResponse
from dodona.mechanisms.direction import DirectionResponse
from dodona.mechanisms.fixed import dyadic_above, exp_bracket
from dodona.mechanisms.inversion import Inversion, Ladder
from dodona.mechanisms.laplace import BoundedLaplace, DiscreteLaplace
from dodona.mechanisms.response import WindowResponse
from dodona.papers.stitched import Stitched, _chord
from dodona.papers.stitched_sampler import StitchedSampler
from dodona.testing.oracles import SeededBits

ONE = Fraction(1)
MOST = (1 << 64) - 1


class Listed:
    """Words of a list, and one word for ever after it."""

    def __init__(self, words: list[int], then: int) -> None:
        self._words, self._then = words, then

    def words(self, n: int) -> NDArray[np.uint64]:
        found = [self._words.pop(0) if self._words else self._then for _ in range(n)]
        return np.array(found, dtype=np.uint64)


@pytest.mark.parametrize(("of", "then", "up"), [("low", 0, True), ("high", MOST, False)])
def test_a_coin_that_a_hundred_and_twenty_eight_bits_leave_open_asks_for_more(of: str, then: int, up: bool) -> None:
    """u begins as exp(-1) itself does: only what follows decides."""
    low, high = exp_bracket(ONE, 128)
    assert low < high
    tie = low if of == "low" else high - 1
    assert heads(ONE, tie >> 64, 64, Listed([tie & MOST], then)) is up


def halves(depth: int) -> Ladder:
    """w_j = 2^-(j+1), of which a shallow ladder lists two: a draw beyond them needs a deeper one."""
    listed = 2 if depth <= 136 else depth
    return Ladder([(1 << depth) - (1 << depth - j - 1) for j in range(listed)], 0, (1 << depth, 1 << depth))


def test_a_word_beyond_the_listed_symbols_is_drawn_from_a_deeper_list() -> None:
    table = Inversion(halves)
    assert table.symbols == 2
    assert [table.resolve(word << 60, Listed([], 0)) for word in (0, 7, 8, 11, 12, 13, 14)] == [0, 0, 1, 1, 2, 2, 3]
    assert table.resolve(MOST, Listed([MOST], 0)) == 128
    assert table.draw(np.array([MOST], dtype=np.uint64), Listed([0], 0)).tolist() == [64]


def test_a_proposal_far_out_is_finished_in_whole_numbers() -> None:
    """One in exp(2^50) draws: the table is told to propose it."""
    sampler = StitchedSampler(Fraction(10**6), Fraction(1, 10**4), 100)
    shift = sampler._shift
    assert shift > 0
    far = (1 << 61 >> shift) + 1
    sampler._table = _Proposing(np.array([3, far, 2, far + 1] * 50))  # type: ignore[assignment]
    draws, kept = sampler._candidates(200, SeededBits(1))
    beyond = np.abs(draws) >= 1 << 59
    assert beyond.any()
    assert not kept.all()
    assert not beyond[::2].any()
    assert set(np.sign(draws[beyond])) == {-1, 1}


class _Proposing:
    def __init__(self, symbols: NDArray[Any]) -> None:
        self._symbols = symbols

    def draw(self, _words: NDArray[np.uint64], _bits: Any) -> NDArray[Any]:
        return self._symbols


def test_a_chord_through_the_origin_is_largest_at_an_end() -> None:
    assert _chord(1.0, 2.0, 1.0, 2.0) == pytest.approx(0.5)
    assert _chord(0.0, 2.0, 0.0, 3.0) == 1.5


CUBE = CubeResponse(3, (0, 1), ONE)


@pytest.mark.parametrize(
    ("response", "arguments"),
    [
        (CUBE, (2, 3)),
        (DirectionResponse(4, 2, ONE), (1, frozenset({1, 2}))),
        (WalshResponse(5, ONE), (1, 3, 2)),
        (WindowResponse(5, 2, ONE), (1, 3, 2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_logarithms_are_those_of_the_probabilities(response: Any, arguments: tuple[Any, ...]) -> None:
    assert response.log_probability(*arguments) == pytest.approx(math.log(response.probability(*arguments)))


def test_the_logarithm_of_bounded_noise() -> None:
    response = BoundedLaplace(7, ONE)
    low, _ = response.probability(3, 5)
    assert response.log_probability(3, 5) == pytest.approx(math.log(low))


def test_the_variance_of_one_walsh_report_is_bounded_by_what_is_stated() -> None:
    """By all masks and bits a person may report, exactly weighted."""
    response = WalshResponse(5, ONE)
    held, masks = 3, response.masks
    first = second = np.zeros(5)
    for mask in range(1, masks):
        for bit in (0, 1):
            chance = float(response.probability(bit, held, mask)) / (masks - 1)
            counts = np.zeros((masks, 2), dtype=np.int64)
            counts[mask, bit] = 1
            estimate = response.estimate(counts)
            first, second = first + chance * estimate, second + chance * estimate**2
    assert first == pytest.approx(np.eye(5)[held])
    spread = second - first**2
    assert (spread <= response.variance() * (1 + 1e-9)).all()
    assert spread.max() > response.variance() / 2


def test_parities_of_no_bit_are_kept_whole_and_of_too_many_refused() -> None:
    assert CUBE.eigenvalue(0) == 1
    assert CUBE.variance(1) == pytest.approx(1 / float(CUBE.eigenvalue(1)) ** 2 - 1)
    assert CubeResponse(2, (1,), ONE).variance(1) == math.inf, "as many flips as not: nothing is left of one bit"
    with pytest.raises(ValueError, match=r"order must lie in 0..3"):
        CUBE.eigenvalue(4)


def test_one_criterion_needs_one_part() -> None:
    plan = CharacterResponse.plan(6, [1.0], ONE)
    assert [part.share for part in plan.parts] == [sum(part.share for part in plan.parts)]
    t = plan.parts[0].response.dimension
    rows = plan.subsets(0)
    assert rows.shape == ((1, 6) if t == 6 else (6, t))
    assert len(set(np.bincount(rows.ravel(), minlength=6).tolist())) == 1, "each column as often as every other"
    kept = abs(float(plan.parts[0].response.eigenvalue(1)))
    assert plan.jump(1, 100) == pytest.approx(kept / (100 * plan.information(1)))
    whole = CharacterResponse.plan(1, [1.0], ONE)
    assert whole.subsets(0).tolist() == [[0]]


def test_fewer_candidates_where_no_more_are_allowed() -> None:
    few, many = DirectionResponse.best(Fraction(4), 4), DirectionResponse.best(Fraction(4))
    assert few.candidates <= 4 < many.candidates
    assert few.gain < many.gain


def test_moments_beyond_doubles() -> None:
    assert DiscreteLaplace(Fraction(1 << 40)).variance == 2.0 * (1 << 80)
    noise = Stitched(Fraction(100), Fraction(1, 5))
    assert noise.stddev == math.sqrt(noise.variance)
    with pytest.raises(BadEffort, match="at least"):
        Stitched.reaching(2, Fraction(1, 1 << 70))
    with pytest.raises(ValueError, match="positive"):
        dyadic_above(Fraction(0))
