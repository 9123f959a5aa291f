"""``check_mechanism`` on the local randomisers and stitched noise, and that it sees what is wrong with broken ones."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from dodona.mechanisms.characters import CharacterResponse
from dodona.mechanisms.cube import CubeResponse, WalshResponse
from dodona.mechanisms.direction import DirectionResponse
from dodona.mechanisms.laplace import BoundedLaplace
from dodona.mechanisms.response import TwoLevel, WindowResponse
from dodona.papers.stitched import Stitched
from dodona.privacy.cost import Cost
from dodona.testing.mechanisms import check_mechanism
from dodona.testing.oracles import SeededBits

ONE = Fraction(1)
SOUND = [
    TwoLevel(7, 3, ONE),
    CubeResponse(4, (0, 1, 4), Fraction(7, 3)),
    WindowResponse(11, 3, ONE),
    WindowResponse.best(20, Fraction(1, 2)),
    WalshResponse(300, Fraction(2)),
    DirectionResponse(8, 2, Fraction(3)),
    CharacterResponse.plan(6, (1.0, 1.0), ONE),
    BoundedLaplace(5, Fraction(2)),
    Stitched(Fraction(30), Fraction(1, 4)),
    Stitched.reaching(2, 9),
]


@pytest.mark.parametrize("mechanism", SOUND, ids=lambda m: type(m).__name__)
def test_sound_randomisers_pass(mechanism):
    check_mechanism(mechanism, bits=SeededBits(7), draws=20_000)


@dataclass(frozen=True)
class UnderClaimed(CubeResponse):
    def probability(self, report, value):
        return CubeResponse(self.dimension, self.near, 2 * self.epsilon).probability(report, value)


@dataclass(frozen=True)
class Leaky(WindowResponse):
    def sample(self, values, bits):
        multipliers, _ = super().sample(values, bits)
        return multipliers, multipliers * np.asarray(values) % self.modulus


@dataclass(frozen=True)
class Short(DirectionResponse):
    def probability(self, report, nearest):
        return super().probability(report, nearest) * Fraction(9, 10)


@dataclass(frozen=True)
class Cheap(WalshResponse):
    def cost(self):
        return Cost.pure(self.epsilon / 2)


@dataclass(frozen=True)
class Narrow(BoundedLaplace):
    @property
    def noise(self):
        return BoundedLaplace(self.reach, 2 * self.epsilon).noise


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (UnderClaimed(4, (0,), ONE), "under-claimed"),
        (Leaky(11, 3, ONE), "do not match"),
        (Short(8, 2, ONE), "sum to 1"),
        (Cheap(300, ONE), "says less"),
        (Narrow(5, ONE), "under-claimed"),
        (object(), "does not know"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_broken_randomisers_are_caught(broken, why):
    with pytest.raises(AssertionError, match=why):
        check_mechanism(broken, bits=SeededBits(7), draws=20_000)
