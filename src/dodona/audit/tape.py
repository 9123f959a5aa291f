"""Tape enumeration: what the sampler that ships really draws, with certified bounds on every probability (HOSTILE 5.3).

The sampler runs on a source that branches instead of drawing (``lazy.py``), the likeliest branch first. Every run that
ends adds the exact mass of its tapes to its outcome; what is left unexplored is the residual r. So for each outcome o
of mass m, m <= P(o) <= m + r, whatever the sampler's author believed it does.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dodona.audit.lazy import Postponed, Run, Undecided

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
