"""How far linear forms of noisy sums may be off, at any confidence: the law of the noise, and sums of it.

A form is sum_i c_i (S_i + X_i) with public c_i; what is asked is a bound on |sum_i c_i X_i|.

* **One term**: |c| times what one sum stays within (``ratios.sums_of``).
* **Gaussian**: discrete noise is within a step of continuous noise (``ratios.py``), and a sum of independent normal
  noises is normal: z sqrt(sum c_i^2 s_i^2), and sum |c_i| of the steps beside it.
* **Laplace**: by Chernoff. Discrete Laplace noise of scale s has E exp(tX) <= 1/(1 - s^2 t^2), as
  (cosh t - 1)/(cosh(1/s) - 1) <= s^2 t^2 for t <= 1/s; with V = sum c_i^2 s_i^2 and m = max |c_i| s_i, and since
  -log(1 - x)/x rises, -sum log(1 - c_i^2 s_i^2 t^2) <= -(V/m^2) log(1 - m^2 t^2). So with probability 1 - a the form is
  off by at most (log(2/a) - (V/m^2) log(1 - m^2 t^2))/t, for whichever t.
* **Other noise** (published, or reports) states one margin a sum: k sums at once stay within log(k/a)/log(1/a) times
  theirs (``ratios.py``), and a form of r terms within sum |c_i| of that, k = r.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms import DiscreteLaplace
from dodona.mechanisms.rounded import GAUSSIAN
from dodona.oracles.ratios import STEPS, UP, Sums, normal_within, sums_of

Floats = NDArray[Any]
_TRIED = np.linspace(0.02, 0.98, 49)


@dataclass(frozen=True, eq=False)
class Form:
    """Linear forms of noisy sums, one a row: V, m, the stated margins and the steps added up, and how many terms."""

    variance: Floats
    widest: Floats
    stated: Floats
    grain: Floats
    terms: Floats

    def at(self, places: NDArray[np.intp]) -> Form:
        """Those rows."""
        return Form(*(part[places] for part in (self.variance, self.widest, self.stated, self.grain, self.terms)))

    @staticmethod
    def stacked(forms: Sequence[Form]) -> Form:
        """Below each other."""
        ends = ("variance", "widest", "stated", "grain", "terms")
        return Form(*(np.concatenate([getattr(one, end) for one in forms]) for end in ends))

    def leaf(self, place: int) -> Form:
        """One column of forms that stand side by side."""
        return Form(*(part[:, place] for part in (self.variance, self.widest, self.stated, self.grain, self.terms)))

    def times(self, factor: Floats) -> Form:
        """Each multiplied by a public number."""
        size = np.abs(factor)
        return Form(
            self.variance * size**2, self.widest * size, self.stated * size, self.grain * size,
            np.where(size > 0, self.terms, 0.0),
        )  # fmt: skip

    def beside(self, other: Form) -> Form:
        """The sum of two whose noises are independent."""
        return Form(
            self.variance + other.variance,
            np.maximum(self.widest, other.widest),
            self.stated + other.stated,
            self.grain + other.grain,
            self.terms + other.terms,
        )

    def summed(self, cells: NDArray[np.intp], count: int) -> Form:
        """Added up over the rows of each of ``count`` cells; their noises are independent."""

        def added(part: Floats) -> Floats:
            return np.bincount(cells, weights=part, minlength=count).astype(np.float64)

        widest = np.zeros(count)
        np.maximum.at(widest, cells, self.widest)
        return Form(added(self.variance), widest, added(self.stated), added(self.grain), added(self.terms))


def projection(spread: Floats, overlaps: Floats) -> Floats:
    """The matrix that moves measured sums to the nearest ones that are sums of the same cells.

    ``overlaps``: A A', of the matrix A that says which of the finest cells each measured sum is of. With S the spreads,
    it is S P S^-1, where P projects on the range of S^-1 A: least squares, no worse than what was measured anywhere.
    """
    values, vectors = np.linalg.eigh(overlaps / np.outer(spread, spread))
    kept = vectors[:, values > 1e-9 * values[-1]]
    return np.asarray((kept @ kept.T) * np.outer(spread, 1 / spread))


def reconciled(total: Floats, form: Form, matrix: Floats) -> tuple[Floats, Form]:
    """Measured sums moved by such a matrix, and what they may be off by; what agrees already stays as it is."""
    moved = matrix @ total
    if np.allclose(moved, total, rtol=1e-9, atol=1e-9):
        return total, form
    size = np.where(np.abs(matrix) > 1e-12, np.abs(matrix), 0.0)
    return moved, Form(
        np.square(size) @ form.variance, (size * form.widest).max(axis=1), size @ form.stated, size @ form.grain,
        np.maximum((size > 0).sum(axis=1), 2.0),
    )  # fmt: skip


@dataclass(frozen=True)
class Law:
    """The noise of an answer. ``kind``: gaussian, laplace, or stated (a margin at ``confidence`` and no more)."""

    kind: str
    confidence: float
    mechanism: str

    @staticmethod
    def of(spread: Floats, grain: Floats | None, confidence: float, mechanism: str) -> Law:
        """The family where it is a curator's, and wide enough to be treated as continuous."""
        known = dict.fromkeys(GAUSSIAN, "gaussian") | {DiscreteLaplace.name: "laplace"}
        kind = known.get(mechanism, "stated")
        if kind != "stated" and (grain is None or not bool(np.all(spread >= STEPS * grain))):
            kind = "stated"
        return Law(kind, confidence, mechanism)

    @property
    def alpha(self) -> float:
        """How often a margin may miss."""
        return 1 - self.confidence

    def form(self, spread: Floats, margin: Floats, grain: Floats | None) -> Form:
        """Each sum by itself."""
        steps = np.zeros_like(spread) if grain is None else grain
        scale = spread * UP
        if self.kind == "laplace":
            scale = spread / math.sqrt(2) * (1 + 0.1 * (steps / spread) ** 2) * UP
        return Form(scale**2, scale, margin, steps, np.ones_like(spread))

    def sums(self, total: Floats, spread: Floats, margin: Floats, grain: Floats | None, parts: int) -> Sums:
        """As ratios take them, ``parts`` of them to be kept at once."""
        return sums_of(total, spread, margin, grain, self.confidence, self.mechanism, parts)

    def added(self, total: Floats, forms: Sequence[Form], parts: int) -> Sums:
        """The same of sums that were added up, a form for each column of ``total``."""
        alpha = self.alpha / parts
        grain = np.stack([form.grain for form in forms], axis=1)
        if self.kind == "gaussian":
            scale = np.sqrt(np.stack([form.variance for form in forms], axis=1))
            return Sums(
                total,
                scale,
                grain,
                lambda k: normal_within(alpha / k),
                lambda s, t: normal_within(alpha) * np.hypot(s, t),
            )
        margin = np.stack([self.within(form, parts) for form in forms], axis=1)

        def one(k: int) -> float:  # a margin by Chernoff, or stated, grows no faster with the confidence
            return math.log(k / alpha) / math.log(1 / alpha) if 0 < alpha < 1 and margin.any() else 1.0

        return Sums(total, margin, np.zeros_like(margin), one, lambda s, t: one(2) * (s + t))

    def within(self, form: Form, parts: int) -> Floats:
        """What each form stays within; all of ``parts`` at once."""
        single = form.terms <= 1
        alone = form.stated if parts == 1 else self._one(form, parts)
        return np.asarray(np.where(single, alone, self._many(form, parts)))

    def _one(self, form: Form, parts: int) -> Floats:
        if self.kind == "gaussian":
            return form.widest * normal_within(self.alpha / parts) + form.grain
        if self.kind == "laplace":
            return form.widest * math.log(parts / self.alpha) * UP + form.grain
        return self._stated(form, parts)

    def _many(self, form: Form, parts: int) -> Floats:
        if self.kind == "gaussian":
            return np.sqrt(form.variance) * normal_within(self.alpha / parts) + form.grain
        if self.kind == "laplace":
            # Chernoff's bound of all terms; or the widest by its own tail, and that of the others, at a half each.
            rest = np.maximum(form.variance - form.widest**2, 0.0)
            others = np.minimum(form.widest, np.sqrt(rest))
            alone = form.widest * math.log(2 * parts / self.alpha)
            within = np.minimum(
                _chernoff(form.variance, form.widest, math.log(2 * parts / self.alpha)),
                alone + _chernoff(rest, others, math.log(4 * parts / self.alpha)),
            )
            return within * UP + form.grain
        return self._stated(form, parts * np.maximum(form.terms, 1.0))

    def _stated(self, form: Form, parts: float | Floats) -> Floats:
        grown = np.log(parts / self.alpha) / math.log(1 / self.alpha) if 0 < self.alpha < 1 else 1.0
        # Without noise the margin is the grid's, and no chance has a part in it.
        return np.where(form.variance > 0, (form.stated + form.grain) * grown, form.stated)


def _chernoff(variance: Floats, widest: Floats, sure: float) -> Floats:
    """What sums of Laplace noises stay within: the log(2/a) of the top of this file is ``sure``."""
    most = np.maximum(widest, 1e-150)
    ratio = np.maximum(variance / most**2, 1.0)
    least = np.full_like(most, np.inf)
    for u in _TRIED:
        least = np.minimum(least, (sure - ratio * math.log1p(-u * u)) / u)
    return np.asarray(least * widest)


STATED = Law("stated", 1.0, "")
"""Of what no noise has a part in."""
