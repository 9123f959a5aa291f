"""Tape enumeration: what a sampler really draws, with certified bounds on every probability (HOSTILE, methods 3).

The sampler runs on a source that branches instead of drawing (``LazyWords``), the likeliest branch first. Every run
that ends adds the exact mass of its tapes to its outcome; what is left unexplored is the residual r. So for each
outcome o of mass m, m <= P(o) <= m + r, whatever the sampler's author believed it does.

What it draws are integers that are decided only as far as they are looked at. A ``Cell`` is an integer u, uniform on
low..high-1. ``LazyInt`` is a value floor((a u + c)/m) of it. Comparing one with a number splits its cell in two; the
``Run`` takes the branch its script says, or the likelier one, and remembers the other. So a sampler that compares,
shifts and rejects runs unchanged on ``LazyWords``, and each of its runs stands for a set of tapes whose probability is
an exact fraction. What is not such an operation makes the value definite by further branching, or, where it could be
too many things, raises ``Undecided``: never a guess.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = 64
MOST_VALUES = 1 << 16


class Undecided(BaseException):
    """The sampler did what cannot be followed exactly. No ``Exception``: a curator would make it a lost answer."""


class Postponed(BaseException):
    """The run became so unlikely that others come first; it is among the forks, to be taken up again."""


class Run:
    """One execution under a ``script`` of branches; ``mass``: the probability of all tapes that take it.

    ``forks``: (mass, script) of every branch left aside beyond the script. Below the mass ``floor`` the run itself is
    left aside: the likelier branch, taken for ever, may be a loop without end.
    """

    def __init__(self, script: tuple[bool, ...], floor: Fraction = Fraction(0)) -> None:
        self._script, self._at, self._floor = script, 0, floor
        self._taken: list[bool] = []
        self.mass = Fraction(1)
        self.forks: list[tuple[Fraction, tuple[bool, ...]]] = []

    def words(self, n: int) -> LazyWords:
        """``n`` independent uniform 64-bit words, undecided."""
        held = np.empty(n, dtype=object)
        held[:] = [LazyInt(Cell(self, 0, 1 << WORD)) for _ in range(n)]
        return held.view(LazyWords)

    def below(self, cell: Cell, edge: int) -> bool:
        """Whether the cell's number is below ``edge``: known, scripted, or branched on."""
        if edge <= cell.low:
            return False
        if edge >= cell.high:
            return True
        size, left = cell.high - cell.low, edge - cell.low
        if self._at < len(self._script):
            yes = self._script[self._at]
        else:
            if self.mass < self._floor:
                self.forks.append((self.mass, tuple(self._taken)))
                raise Postponed
            yes = 2 * left >= size
            other = self.mass * Fraction(size - left if yes else left, size)
            self.forks.append((other, (*self._taken, not yes)))
        self._at += 1
        self._taken.append(yes)
        self.mass *= Fraction(left if yes else size - left, size)
        cell.low, cell.high = (cell.low, edge) if yes else (edge, cell.high)
        return yes


class Cell:
    """u uniform on low..high-1. Once joined with another it is gone; once split it is two."""

    def __init__(self, run: Run, low: int, high: int) -> None:
        self.run, self.low, self.high = run, low, high
        self.gone = False
        self.parts: tuple[int, Cell, Cell] | None = None  # (bits of the low part, low part, high part)

    def split(self, width: int) -> tuple[int, Cell, Cell]:
        """The lowest ``width`` bits and the rest: independent, while nothing is known of u."""
        if self.parts is None:
            if self.gone or self.low or self.high & (self.high - 1) or self.high < 1 << width:
                raise Undecided("bits are taken from a number of which something is known already.")
            self.parts = width, Cell(self.run, 0, 1 << width), Cell(self.run, 0, self.high >> width)
        if self.parts[0] != width:
            raise Undecided("a number is split in two ways.")
        return self.parts


class LazyInt:
    """floor((a u + c)/m), a > 0, m > 0, u the number of ``cell``."""

    __slots__ = ("_add", "_cell", "_divide", "_times")

    def __init__(self, cell: Cell, times: int = 1, add: int = 0, divide: int = 1) -> None:
        self._cell, self._times, self._add, self._divide = cell, times, add, divide

    # -- following -----------------------------------------------------------------------------------------------------

    def _settled(self) -> LazyInt:
        """The same value over a cell that still stands."""
        if self._cell.gone:
            raise Undecided("a number that became part of a longer one is used again.")
        if self._cell.parts is None:
            return self
        width, low, high = self._cell.parts
        unit = 1 << width
        if self._times == 1 and self._divide % unit == 0 and self._add % unit == 0:
            return LazyInt(high, 1, self._add // unit, self._divide // unit)._settled()
        if low.high == 1:
            return LazyInt(high, self._times * unit, self._add, self._divide)._settled()
        raise Undecided("both parts of a split number are used as one.")

    def _less(self, edge: int) -> bool:
        own = self._settled()
        # floor((a u + c)/m) < t  <=>  u < ceil((t m - c)/a)
        return own._cell.run.below(own._cell, -((own._add - edge * own._divide) // own._times))

    def _ends(self) -> tuple[int, int]:
        own = self._settled()
        low, high = own._cell.low, own._cell.high - 1
        return (own._times * low + own._add) // own._divide, (own._times * high + own._add) // own._divide

    def decided(self) -> int:
        """The value itself, by branching until only one is possible."""
        own = self._settled()
        low, high = own._ends()
        if own._cell.high - own._cell.low <= high - low:  # fewer numbers than values between the ends
            own = LazyInt(own._cell)
            low, high = own._ends()
        if high - low >= MOST_VALUES:
            raise Undecided(f"a number that could have {high - low + 1} values is used as one of them.")
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (low, middle - 1) if own._less(middle) else (middle, high)
        return self._ends()[0]

    def __lt__(self, other: Any) -> bool:
        return self._less(_known(other))

    def __le__(self, other: Any) -> bool:
        return self._less(_known(other) + 1)

    __array_ufunc__ = None  # an array of edges compared with this asks it about each of them

    def __ge__(self, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return np.array([self >= int(edge) for edge in other], dtype=np.bool_)
        return not self._less(_known(other))

    def __gt__(self, other: Any) -> bool:
        return not self._less(_known(other) + 1)

    def __eq__(self, other: object) -> bool:
        value = _known(other)
        return not self._less(value) and self._less(value + 1)

    def __ne__(self, other: object) -> bool:
        return not self == other

    # -- arithmetic that stays undecided -------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return self.decided() + other if isinstance(other, Fraction) else self._moved(_known(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._moved(-_known(other))

    def _moved(self, by: int) -> LazyInt:
        return LazyInt(self._cell, self._times, self._add + by * self._divide, self._divide)

    def __mul__(self, other: Any) -> Any:
        factor = other if isinstance(other, Fraction) else _known(other)
        own = self._undivided()
        if isinstance(factor, Fraction) or factor <= 0 or own._divide != 1:
            return self.decided() * factor
        return LazyInt(own._cell, own._times * factor, own._add * factor)

    def _undivided(self) -> LazyInt:
        """The top bits of a number of which nothing is known, as a number of their own; or the value as it is."""
        own = self._settled()
        width = own._divide.bit_length() - 1
        cell = own._cell
        whole = cell.low == 0 and cell.high & (cell.high - 1) == 0 and cell.high > own._divide
        if width and own._divide == 1 << width and (own._times, own._add) == (1, 0) and whole:
            return LazyInt(cell.split(width)[2])
        return own

    __rmul__ = __mul__

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << _known(other))

    def __rshift__(self, other: Any) -> Any:
        return LazyInt(self._cell, self._times, self._add, self._divide << _known(other))

    def __floordiv__(self, other: Any) -> Any:
        divisor = _known(other)
        return LazyInt(self._cell, self._times, self._add, self._divide * divisor)

    def __and__(self, other: Any) -> Any:
        mask = _known(other)
        own = self._settled()
        if mask & (mask + 1) or (own._times, own._add, own._divide) != (1, 0, 1):
            return self.decided() & mask
        _, low, _ = own._cell.split(mask.bit_length())
        return LazyInt(low)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, LazyInt):
            value = _known(other)
            return self if value == 0 else self.decided() | value
        high, low = self._settled(), other._settled()
        width = high._times.bit_length() - 1
        full = low._cell.low == 0 and low._cell.high == low._divide << width
        fits = high._times == 1 << width and high._divide == 1 and high._add % (1 << width) == 0
        if not (full and fits and (low._times, low._add) == (1, 0) and high._cell is not low._cell):
            return self.decided() | other.decided()
        # Independent uniform bits below those of u: together one longer uniform number.
        joined = Cell(high._cell.run, high._cell.low << width, high._cell.high << width)
        high._cell.gone = low._cell.gone = True
        return LazyInt(joined, 1, high._add)

    # -- everything else makes it definite -----------------------------------------------------------------------------

    def __index__(self) -> int:
        return self.decided()

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self.decided())

    def __bool__(self) -> bool:
        return self != 0

    def __neg__(self) -> int:
        return -self.decided()

    def __mod__(self, other: Any) -> int:
        return self.decided() % _known(other)

    def __xor__(self, other: Any) -> int:
        return self.decided() ^ _known(other)

    __rxor__ = __xor__

    def __rsub__(self, other: Any) -> int:
        return _known(other) - self.decided()

    def __rlshift__(self, other: Any) -> int:
        return _known(other) << self.decided()


class LazyWords(np.ndarray[Any, Any]):
    """An array of ``LazyInt``: reading it as another integer type changes nothing, choosing from or by it decides."""

    def view(self, *types: Any) -> Any:  # type: ignore[override]
        """As ndarray's, except that a view as integers is the array itself."""
        return self if types and types[0] in (np.int64, np.uint64) else super().view(*types)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """``np.where`` ends arithmetic on words: its result is small integers, as are indices to ``np.take``.

        ``np.searchsorted`` only compares.
        """
        if func is np.searchsorted:
            edges = np.asarray(args[0]).tolist()
            place = bisect_right if kwargs.get("side") == "right" else bisect_left
            return np.array([place(edges, value) for value in np.ravel(args[1])], dtype=np.intp)
        if func is np.take:
            return np.take(args[0], decided(args[1]), *args[2:], **kwargs)
        result = super().__array_function__(func, types, args, kwargs)
        return decided(result) if func is np.where and len(args) == 3 else result


def decided(values: Any) -> NDArray[np.int64]:
    """An array of undecided integers as int64, by branching."""
    held = np.asarray(values, dtype=object)
    return np.array([operator.index(value) for value in held.ravel()], dtype=np.int64).reshape(held.shape)


def _known(other: Any) -> int:
    return other.decided() if isinstance(other, LazyInt) else operator.index(other)


_PATIENCE = 1 << 16
Interval = tuple[Fraction, Fraction]
Law = Mapping[Any, Interval]
"""Outcome -> certified bounds of its probability."""


@dataclass(frozen=True)
class Tape:
    """``masses``: the mass found for each outcome; ``residual``: what all others and all unfinished runs may have."""

    masses: Mapping[Any, Fraction] = field(repr=False)
    residual: Fraction
    runs: int

    def bounds(self, outcome: Hashable) -> Interval:
        """P(outcome) lies in between."""
        mass = self.masses.get(outcome, Fraction(0))
        return mass, min(mass + self.residual, Fraction(1))

    def law(self) -> dict[Any, Interval]:
        """Bounds for every outcome met."""
        return {outcome: self.bounds(outcome) for outcome in self.masses}


def tape(sample: Callable[[Any], Hashable], *, residual: Fraction = Fraction(1, 1000), most_runs: int = 20_000) -> Tape:
    """Every outcome of ``sample(bits)``, until what is unexplored weighs at most ``residual``."""
    order = itertools.count()  # of equal masses, the first met is the first explored
    waiting: list[tuple[Fraction, int, tuple[bool, ...]]] = [(Fraction(-1), next(order), ())]
    open_mass, lost, runs = Fraction(1), Fraction(0), 0
    masses: dict[Any, Fraction] = {}
    while waiting and open_mass + lost > residual and runs < most_runs:
        weight, _, script = heapq.heappop(waiting)
        open_mass += weight
        run = Run(script, -weight / _PATIENCE)
        runs += 1
        try:
            outcome = sample(run)
        except Undecided:
            lost += run.mass
        except Postponed:
            pass
        else:
            masses[outcome] = masses.get(outcome, Fraction(0)) + run.mass
        for mass, branch in run.forks:
            heapq.heappush(waiting, (-mass, next(order), branch))
            open_mass += mass
    return Tape(masses, 1 - sum(masses.values(), Fraction(0)), runs)


@dataclass(frozen=True)
class TapeAudit:
    """A sampler against the law it states.

    ``wrong``: an outcome whose certified bounds exclude the stated probability, or None. ``residual``: at most so much
    mass is unaccounted, so where nothing is wrong the sampler is within it of the stated law in total variation.
    """

    sampler: str
    outcomes: int
    residual: Fraction
    runs: int
    wrong: str | None

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the stated law, and most of it was seen: what saw nothing proves nothing."""
        return self.wrong is None and self.residual <= Fraction(1, 4)

    @property
    def verdict(self) -> str:
        """In a word."""
        return "proven" if self.holds else "violated"

    def cells(self) -> tuple[str, str, str, str]:
        """The sampler, its claim, what was found, and no slack: for a table."""
        seen = self.wrong or f"{self.outcomes} outcomes, all but {float(self.residual):.1e}"
        return f"sampler: {self.sampler}", "the law it states", seen, ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        words = {"mechanism": f"sampler: {self.sampler}", "claim": "the law it states", "worst_pair": self.wrong}
        return {**words, "verdict": self.verdict, "outcomes": self.outcomes, "residual": float(self.residual)}

    def __str__(self) -> str:
        found = f"{self.sampler}: {self.outcomes} outcomes in {self.runs} runs, residual {float(self.residual):.1e}"
        return f"{found}; {'as stated' if self.wrong is None else 'PROVED WRONG: ' + self.wrong}"


def tape_audit(sampler: str, found: Tape, stated: Callable[[Any], Interval]) -> TapeAudit:
    """Whether the law of the tapes can be the ``stated`` one; an outcome never met has the mass 0 to residual."""
    wrong = None
    for outcome, mass in found.masses.items():
        low, high = stated(outcome)
        if mass > high or mass + found.residual < low:
            wrong = f"P({outcome}) is {float(mass):.6g} to {float(mass + found.residual):.6g}, stated {float(high):.6g}"
            break
    return TapeAudit(sampler, len(found.masses), found.residual, found.runs, wrong)
