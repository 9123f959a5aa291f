"""What every mechanism states of itself: its name, the settings it is audited at, and the laws it must obey.

``@registered`` above a class is all it takes: curators, ``dodona audit`` and ``check_mechanism`` find it through here
and know none by name. Modules of this package are looked through; one from elsewhere counts once it is imported.

``NoiseFamily`` is integer noise that is added to a total, and what curators draw from. Coordinate i of a plan has
weight w_i and gets the noise ``family.scaled(w_i)``; a row moves the whole vector, each coordinate divided by its
weight, by no more than its ``Norms``. So one price says it all: ``family.cost_for(norms)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dodona._doors import load_package
from dodona.mechanisms.bits import Bits
from dodona.privacy.cost import Cost
from dodona.query.sensitivity import Norms

_FEW = 8


class Law:
    """A statement that can be checked: of integer noise (``ShiftLaw``), a choice (``ChoiceLaw``), a report."""


@dataclass(frozen=True)
class ReportLaw(Law):
    """Reports 0..``reports``-1 given one of the ``holdings``, none over e^``epsilon`` times likelier for one of them.

    ``draw(holding, n, bits)``: what a sample shows of the reports, where it shows anything of this law alone.
    """

    name: str
    reports: int
    holdings: Sequence[Any]
    epsilon: Fraction
    probability: Callable[[int, Any], Fraction]
    draw: Callable[[Any, int, Bits], NDArray[np.int64]]


class Mechanism(ABC):
    """A sampler with exact probabilities and a cost. ``name``: what receipts, ledgers and the audit call it."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def label(self) -> str:
        """Its parameters in words, which tell one setting from another in the audit."""

    @classmethod
    @abstractmethod
    def settings(cls, slow: bool) -> Iterable[Self]:
        """What the audit proves: a few settings, or with ``slow`` enough for a thousand pairs."""

    @abstractmethod
    def laws(self) -> Iterable[Law]:
        """What holds of this setting; one with a public part (a multiplier, a mask) has a law for each."""

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, Self]]:  # noqa: ARG003 - who needs more settings overrides it
        """Named settings whose sampler is enumerated against the law; unless stated, the last of the quick ones."""
        return [(cls.name, list(cls.settings(False))[-1])]


class LocalMechanism(Mechanism):
    """What runs on one person's device: one report, at a pure epsilon."""

    @abstractmethod
    def cost(self) -> Cost:
        """Of one report."""

    @property
    def label(self) -> str:
        """Its epsilon."""
        return f"epsilon {self.cost().epsilon}"


def audited_epsilons(slow: bool, most: int = 160) -> list[Fraction]:
    """Two, or with ``slow`` ``most`` of them in steps of 1/20."""
    return [Fraction(n, 20) for n in range(1, most + 1)] if slow else [Fraction(1, 2), Fraction(2)]


def few_of(count: int) -> list[int]:
    """Up to eight of 0..count-1, both ends among them: holdings for a law over many."""
    return sorted({round(i * (count - 1) / (_FEW - 1)) for i in range(_FEW)})


# -- who is there -----------------------------------------------------------------------------------------------------

_REGISTERED: list[type[Mechanism]] = []
Kind = TypeVar("Kind", bound=type[Mechanism])


def registered(kind: Kind) -> Kind:
    """Class decorator: from now on this mechanism is found by all who use, audit or check mechanisms."""
    if any(other.name == kind.name for other in _REGISTERED):
        raise ValueError(f"a mechanism's name must be its own: receipts say it. Got {kind.name!r} twice.")
    _REGISTERED.append(kind)
    return kind


def registered_mechanisms() -> list[type[Mechanism]]:
    """All there are, in the order in which they were registered."""
    load_package("dodona.mechanisms")
    return list(_REGISTERED)


@dataclass(frozen=True)
class ShiftLaw(Law):
    """``noise`` X against X + d, at what ``claim(d)`` says it costs.

    ``distances``: which d are looked at, quickly and slowly. ``draws``: ways to draw X, each ``(n, bits)``.
    """

    noise: AdditiveNoise
    distances: tuple[Sequence[int], Sequence[int]]
    claim: Callable[[int], Cost]
    draws: Sequence[Callable[[int, Bits], NDArray[Any]]]


@dataclass(frozen=True)
class ShownLaw(Law):
    """What is shown of the counts of ``here`` and of ``there``, one person apart: epsilon or rho, but for ``delta``.

    A count of 0 is a key that does not occur; it is never shown, unless all keys are known.
    """

    threshold: Any
    here: tuple[int, ...]
    there: tuple[int, ...]


class AdditiveNoise(Mechanism):
    """Symmetric noise X on the integers that states its probabilities, its tails and its cost."""

    distances: ClassVar[tuple[Sequence[int], Sequence[int]]] = (1, 2, 3), range(1, 6)
    """How far it is moved to check its cost: quickly, and slowly."""

    @abstractmethod
    def sample(self, n: int, bits: Bits) -> NDArray[Any]:
        """``n`` independent exact draws, whole numbers."""

    @abstractmethod
    def probability(self, k: int) -> tuple[Fraction, Fraction]:
        """Rationals low <= P(X = k) <= high, equal to about 2^-100 of the value."""

    @abstractmethod
    def log_probability(self, k: int) -> float:
        """ln P(X = k), in double precision."""

    @property
    @abstractmethod
    def stddev(self) -> float:
        """The standard deviation of X."""

    @abstractmethod
    def tail(self, t: int) -> float:
        """P(|X| > ``t``), or a little more."""

    @abstractmethod
    def quantile(self, confidence: float) -> int:
        """The smallest integer t with P(|X| <= t) >= ``confidence``, judged by ``tail``."""

    @abstractmethod
    def scaled(self, factor: Fraction) -> Self:
        """The same shape, ``factor`` times as wide."""

    @abstractmethod
    def cost_for(self, norms: Norms) -> Cost:
        """Of a vector with this noise on each coordinate, which a row moves by at most ``norms``."""

    def cost_at(self, distance: int) -> Cost:
        """Of one number that a row moves by at most ``distance``."""
        step = Fraction(distance)
        return self.cost_for(Norms(step, step * step, step))

    def laws(self) -> Iterable[Law]:
        """Moved by each distance, it costs what it says."""
        yield ShiftLaw(self, self.distances, self.cost_at, (self.sample,))


class NoiseFamily(AdditiveNoise):
    """Noise of one shape and any width: what a curator may draw. ``unit``: what it is bought in: epsilon, rho, mu^2."""

    unit: ClassVar[str]

    @classmethod
    @abstractmethod
    def for_cost(cls, norms: Norms, amount: Fraction) -> Self:
        """The least noise whose ``cost_for(norms)`` is at most ``amount`` of the family's ``unit``."""

    @classmethod
    @abstractmethod
    def for_tolerance(cls, tolerance: int | Fraction, confidence: float) -> Self:
        """The most noise with P(|X| <= ``tolerance``) >= ``confidence``."""

    @property
    @abstractmethod
    def variance_bound(self) -> Fraction:
        """Var X or a little more, exactly: the predicted error by which families are compared."""


def noise_families(unit: str) -> list[type[NoiseFamily]]:
    """The registered families that are bought in this unit."""
    found = [kind for kind in registered_mechanisms() if getattr(kind, "unit", None) == unit]
    return [kind for kind in found if issubclass(kind, NoiseFamily)]
