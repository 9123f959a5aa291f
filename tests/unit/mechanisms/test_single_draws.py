"""One draw at a time, as ordinary questions take it: word for word what the definition says, and its exact law.

Arrays of draws go another way through the same sampler, and have tests of their own; these see the single path alone.
"""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dodona.audit.mechanisms import noise_tape
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace
from dodona.mechanisms import inversion as sampler_module
from dodona.mechanisms.inversion import Symmetric, symmetric
from dodona.testing.oracles import SeededBits

NOISE = [
    DiscreteLaplace(Fraction(3, 2)),
    DiscreteLaplace(Fraction(20)),
    DiscreteLaplace(Fraction(1000)),
    DiscreteGaussian(Fraction(4)),
    DiscreteGaussian(Fraction(70**2)),
    DiscreteGaussian(Fraction(10**6)),
]


class Recorded:
    """Seeded words, all of them kept."""

    def __init__(self, seed):
        self._inner, self.tape = SeededBits(seed), []

    def words(self, n):
        piece = self._inner.words(n)
        self.tape += piece.tolist()
        return piece


class Definition:
    """The sampler's definition in real numbers of 60 digits, read off ``inversion.py``'s first lines; slow."""

    def __init__(self, sampler):
        self.rate, self.power, self.shift = sampler._rate, sampler._power, sampler._shift
        base, weights = 1 << self.shift, []
        with mpmath.workdps(60):
            for symbol in range(2 * 4000):
                weights.append(self._weight((symbol >> 1) * base + (symbol & 1)))
                if symbol & 1 and weights[-2] < mpmath.mpf(10) ** -40:
                    break
            total, so_far, self.edges = mpmath.fsum(weights), mpmath.mpf(0), []
            for weight in weights:
                so_far += weight / total
                self.edges.append(int(mpmath.floor(so_far * 2**128)))

    def _weight(self, size):
        return mpmath.exp(-mpmath.mpf(self.rate.numerator) / self.rate.denominator * mpmath.mpf(size) ** self.power)

    def draw(self, tape, at):
        """The value of the draw that starts at word ``at``, and where the next one starts."""
        while True:
            symbol = int(np.searchsorted(np.array(self.edges, dtype=object), tape[at] << 64, side="right"))
            h, sign = symbol >> 1, symbol & 1
            if not self.shift:
                return (-h - 1 if sign else h), at + 1
            low, coin = tape[at + 1] >> 64 - self.shift, tape[at + 1] % 2**40
            start = (h << self.shift) + sign
            with mpmath.workdps(60):
                kept = self._weight(start + low) / self._weight(start)
            size, at = (h << self.shift) + low, at + 2
            if coin < kept * 2**40:
                return (-size - 1 if sign else size), at


def _sampler(mechanism) -> Symmetric:
    """The very object that ``sample`` uses: it is kept by its parameters."""
    made = []
    real = Symmetric.sample

    def spy(self, n, bits):
        made.append(self)
        return real(self, n, bits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Symmetric, "sample", spy)
        mechanism.sample(1, SeededBits(0))
    return made[0]


@pytest.mark.parametrize("mechanism", NOISE, ids=str)
@pytest.mark.parametrize("at_once", [1, 8])
def test_single_draws_are_word_for_word_the_definition(mechanism, at_once, monkeypatch):
    """Rejected proposals take fresh words for everything; several draws of one call share none.

    A coin near its edge takes more bits; here from elsewhere, so that the tape holds proposals alone.
    """
    definition, bits, more = Definition(_sampler(mechanism)), Recorded(20263), SeededBits(1)
    real = sampler_module.heads
    monkeypatch.setattr(sampler_module, "heads", lambda x, prefix, width, _: real(x, prefix, width, more))
    draws = [int(k) for _ in range(600 // at_once) for k in mechanism.sample(at_once, bits)]
    at, expected = 0, []
    while at < len(bits.tape):
        value, at = definition.draw(bits.tape, at)
        expected.append(value)
    assert draws == expected


def test_the_single_path_is_the_one_that_is_tested():
    """Up to 8 draws at once go one by one; a change of that rule must move these tests along."""
    sampler = symmetric(Fraction(1, 20), 1, 1)
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        real = Symmetric.one
        patch.setattr(Symmetric, "one", lambda self, bits: calls.append(self) or real(self, bits))
        for n in (1, 8, 9):
            sampler.sample(n, SeededBits(1))
    assert len(calls) == 9


@pytest.mark.parametrize(
    ("mechanism", "residual"),
    [
        (DiscreteLaplace(Fraction(2, 3)), Fraction(1, 10**4)),
        (DiscreteGaussian(Fraction(1, 2)), Fraction(1, 10**4)),
        (DiscreteLaplace(Fraction(16)), Fraction(1, 20)),
        (DiscreteGaussian(Fraction(70**2)), Fraction(1, 50)),
    ],
    ids=str,
)
def test_a_single_draw_has_the_stated_law_by_all_its_tapes(mechanism, residual):
    """Bit by bit: certified bounds on every probability; with a table alone, and with low bits and a coin."""
    audit = noise_tape(str(mechanism), mechanism, residual, 12_000)
    assert audit.holds, audit
    assert audit.residual <= residual, audit
