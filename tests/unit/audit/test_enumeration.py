"""Tape enumeration: exact laws of real samplers, planted bugs proved wrong (HOSTILE, methods 3, M3, V10)."""

import itertools
from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest

from dodona.audit.enumeration import LazyInt, Run, Undecided, tape, tape_audit
from dodona.audit.mechanisms import noise_tape
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential, PermuteAndFlip, RandomizedResponse
from dodona.mechanisms.bernoulli import flip, heads
from dodona.mechanisms.bits import below, integer, integer_below
from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.inversion import symmetric
from dodona.papers.stitched import Stitched


def exp_of(x):
    low, high = exp_bracket(x, 160)
    return F(low, 1 << 160), F(high, 1 << 160)


def uniform(bound):
    return lambda outcome: (F(0 <= outcome < bound, bound),) * 2


# -- undecided integers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 8, 33])
def test_uniform_integers_are_uniform(bound):
    one = tape(lambda bits: int(integer_below(bound, bits)), residual=F(1, 10**4))
    many = tape(lambda bits: int(below(bound, 1, bits)[0]), residual=F(1, 10**4))
    for found in (one, many):
        assert set(found.masses) == set(range(bound))
        assert tape_audit("uniform", found, uniform(bound)).holds
        assert found.residual <= F(1, 10**4)


def test_whole_bits_need_no_residual_at_all():
    found = tape(lambda bits: int(integer(3, bits)), residual=F(0))
    assert found.masses == {k: F(1, 8) for k in range(8)}
    assert found.residual == 0


@pytest.mark.parametrize("x", [F(1, 3), F(1), F(7, 3)])
def test_coins_have_their_exact_bias(x):
    for coin in (lambda bits: flip(x, bits), lambda bits: heads(x, integer(40, bits), 40, bits)):
        found = tape(coin, residual=F(1, 200))
        low, high = found.bounds(True)
        assert low <= exp_of(x)[1]
        assert exp_of(x)[0] <= high
        assert found.residual <= F(1, 200)


def test_joined_and_split_words_keep_their_mass():
    def both(bits):
        (word,) = bits.words(1).tolist()
        low, high = word & 7, word >> 62
        return int(low), int(high)

    found = tape(both, residual=F(0))
    assert found.masses == {pair: F(1, 32) for pair in itertools.product(range(8), range(4))}
    joined = tape(lambda bits: int(integer(66, bits) >> 63), residual=F(0))
    assert joined.masses == {k: F(1, 8) for k in range(8)}


def test_what_cannot_be_followed_stays_in_the_residual():
    def partly(bits):
        (word,) = bits.words(1).tolist()
        return 0 if word < 1 << 63 else hash(word)  # 2^63 values: nobody can list them

    found = tape(partly)
    assert found.masses == {0: F(1, 2)}
    assert found.residual == F(1, 2)


def test_a_number_used_after_it_became_part_of_another_is_refused():
    run = Run(())
    first, second = run.words(2).tolist()
    assert isinstance(first, LazyInt)
    _ = first << 64 | second
    with pytest.raises(Undecided):
        bool(first < 5)
    whole = Run(()).words(1)[0]
    assert not whole < 5
    with pytest.raises(Undecided):  # the low bits are no longer independent of what is known
        _ = whole & 7


def test_array_paths_agree_with_the_scalar_ones():
    """Nine draws go the array way: one word undecided, the others fixed, must give the same law as one draw alone."""

    class OneOpen:
        def __init__(self, run, place):
            self._run, self._place = run, place

        def words(self, n):
            held = self._run.words(n)
            for i in range(n):
                if i != self._place:
                    held[i] = 1 << 62
            return held

    for mechanism in (DiscreteLaplace(F(1)), DiscreteGaussian(F(2))):
        for place in (0, 4, 8):
            found = tape(lambda run, m=mechanism, i=place: int(m.sample(9, OneOpen(run, i))[i]), residual=F(1, 10**6))
            assert tape_audit("array", found, mechanism.probability).holds
            assert len(found.masses) > 8


# -- real samplers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise",
    [
        DiscreteLaplace(F(1)),
        DiscreteLaplace(F(1, 3)),
        DiscreteLaplace(F(7, 2)),
        DiscreteGaussian(F(1)),
        DiscreteGaussian(F(9)),
        Stitched(F(4), F(1, 4)),
        Stitched(F(1, 10), F(1)),
    ],
    ids=repr,
)
def test_small_noise_is_drawn_as_stated(noise):
    """Scale 1 to a residual of 1e-9: the goal is 1e-3 (M3)."""
    audit = noise_tape("noise", noise, F(1, 10**9))
    assert audit.holds, audit
    assert audit.residual <= F(1, 10**9)


@pytest.mark.parametrize(
    "noise", [DiscreteLaplace(F(17)), DiscreteGaussian(F(4200)), Stitched(F(500), F(1, 20))], ids=repr
)
def test_blocks_and_coins_draw_as_stated(noise):
    """From scale 16 on a draw is a table symbol, uniform bits within a block, and a coin that may retry."""
    audit = noise_tape("noise", noise, F(1, 10), most_runs=300)
    assert audit.holds, audit
    assert audit.outcomes > 40


@pytest.mark.parametrize("kind", [PermuteAndFlip, Exponential])
def test_selections_are_drawn_as_stated(kind):
    scores = np.array([2, 0, 1, 2], dtype=np.int64)
    mechanism = kind(F(1), F(1))
    stated = mechanism.probabilities(scores)
    found = tape(lambda bits: mechanism.sample(scores, bits), residual=F(1, 10**4))
    assert tape_audit("choice", found, stated.__getitem__).holds
    assert found.residual <= F(1, 10**4)
    other = kind(F(1), F(1, 2)).probabilities(scores)
    assert not tape_audit("choice", found, other.__getitem__).holds


# -- planted bugs -----------------------------------------------------------------------------------------------------


def geometric(bits, *, first=0, even=False, bias=None):
    """CKS20's discrete Laplace of scale 1 by coins of exp(-1); each keyword plants one bug."""

    def coin():
        if bias is not None:
            width, edge = bias
            return integer(width, bits) < edge
        r = 1
        while integer_below(r, bits) < 1:
            r += 1
        return (r % 2 == 0) if even else (r % 2 == 1)

    magnitude = first
    while coin():
        magnitude += 1
    return magnitude


def laplace(bits, *, keep_minus_zero=False, sign_last=None, retry=True, **bugs):
    while True:
        magnitude, negative = int(geometric(bits, **bugs)), integer_below(2, bits) == 1
        if negative and magnitude == 0 and not keep_minus_zero:
            if retry:
                continue
            return 1
        return -magnitude if negative and sign_last is None else (sign_last or 1) * magnitude


STATED = DiscreteLaplace(F(1)).probability


def test_the_sampler_that_the_bugs_are_planted_in_is_right():
    found = tape(laplace, residual=F(1, 50), most_runs=400)
    assert tape_audit("coins", found, STATED).holds
    assert found.residual < F(1, 4)


def no_rejection(bits):
    """A modulus instead of rejection: 3 of 8 and 2 of 8."""
    return int(integer(3, bits)) % 3


def at_most(bits):
    """3 itself is let through."""
    value = integer(2, bits)
    while not value <= 3:
        value = integer(2, bits)
    return int(value)


def one_word_for_both(bits):
    (word,) = bits.words(1).tolist()
    symbol = symmetric(F(1), 1, 0)._table.draw_one(word, bits)
    return (symbol >> 1) if word < 1 << 63 else -(symbol >> 1)


def truncated(bits):
    return max(-4, min(4, int(DiscreteLaplace(F(1)).sample(1, bits)[0])))


def symbols_off_by_one(bits):
    symbol = 1 + symmetric(F(1), 1, 0)._table.draw_one(bits.words(1).tolist()[0], bits)
    return (symbol >> 1) ^ -(symbol & 1)


def no_second_zero(bits):
    symbol = symmetric(F(1), 1, 0)._table.draw_one(bits.words(1).tolist()[0], bits)
    return -(symbol >> 1) if symbol & 1 else symbol >> 1


def never_retried(bits):
    """What the coin throws away is returned all the same."""
    sampler = symmetric(F(1, 20), 1, 1)
    first, second = bits.words(2).tolist()
    symbol = sampler._table.draw_one(first, bits)
    draw = sampler._finish(symbol, second, bits)
    return int(draw if draw is not None else (symbol >> 1 << 1) ^ -(symbol & 1))


def laplace_for_gaussian(bits):
    return int(DiscreteLaplace(F(1)).sample(1, bits)[0])


SCORES = np.array([1, 0, 1], dtype=np.int64)


def first_heads(bits):
    """Permute-and-flip without the permutation."""
    gaps = SCORES.max() - SCORES
    return next(i for i, gap in enumerate(gaps.tolist()) if gap == 0 or flip(F(gap, 2), bits))


def response_off_by_one(bits):
    response = RandomizedResponse(3, F(1))
    a, _ = response._odds
    drawn = below(response._total, 1, bits)
    return 0 if drawn[0] < a else 1 + int(below(3, 1, bits)[0]) % 3


MUTANTS = {
    "keeps -0 (V10)": (lambda bits: laplace(bits, keep_minus_zero=True), STATED),
    "noise halved": (lambda bits: int(DiscreteLaplace(F(1, 2)).sample(1, bits)[0]), STATED),
    "one never zero": (lambda bits: laplace(bits, first=1), STATED),
    "<= for < in a rejection": (at_most, uniform(3)),
    "even for odd": (lambda bits: laplace(bits, even=True), STATED),
    "one bit too few": (lambda bits: int(integer(2, bits)), uniform(8)),
    "coin of 8 bits": (lambda bits: laplace(bits, bias=(8, 94)), STATED),
    "sign forgotten": (lambda bits: laplace(bits, sign_last=1), STATED),
    "-0 becomes 1": (lambda bits: laplace(bits, retry=False), STATED),
    "one word for sign and size": (one_word_for_both, STATED),
    "tails cut off": (truncated, STATED),
    "symbols off by one": (symbols_off_by_one, STATED),
    "zero on both sides": (no_second_zero, STATED),
    "never retried": (never_retried, DiscreteLaplace(F(20)).probability),
    "Laplace for Gaussian": (laplace_for_gaussian, DiscreteGaussian(F(1)).probability),
    "no rejection": (no_rejection, uniform(3)),
    "first heads wins": (first_heads, PermuteAndFlip(F(1), F(1)).probabilities(SCORES).__getitem__),
    "response off by one": (response_off_by_one, lambda o: (RandomizedResponse(3, F(1)).probability(o, 0),) * 2),
}


@pytest.mark.parametrize("name", list(MUTANTS))
def test_planted_bugs_are_proved_wrong(name):
    sampler, stated = MUTANTS[name]
    audit = tape_audit(name, tape(sampler, residual=F(1, 10**4), most_runs=250), stated)
    assert not audit.holds, audit
    assert "PROVED WRONG" in str(audit)


def test_there_are_enough_planted_bugs():
    assert len(MUTANTS) >= 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise", [DiscreteLaplace(F(20)), DiscreteGaussian(F(1024)), Stitched(F(500), F(1, 20))], ids=repr
)
def test_blocks_and_coins_to_a_small_residual(noise):
    audit = noise_tape("noise", noise, F(1, 1000), most_runs=60_000)
    assert audit.holds, audit
    assert audit.residual <= F(1, 200)
