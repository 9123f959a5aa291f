"""Published halfspaces: noisy answers to probes, carried to every other halfspace by regression or by nets.

``Halfspaces``: the fraction of a published mixture of normal distributions (below), and kernel
regression of what is left. For a row in a random direction, the covariance of [<x, u> >= 0] - 1/2 and [<x, v> >= 0] -
1/2 is 1/4 - angle(u, v)/(2 pi): the arc-cosine kernel of order 0 (Cho and Saul 2009), centred.

``HalfspaceNets``: the paper's own (BLR section 6): in each of m random sign projections to k dimensions the answer of
the nearest net direction, and the median over projections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from dodona.errors import BadQuery, Unsupported
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import Plan
from dodona.query.schema import Integer, Real, Schema, same_name
from dodona.query.statistic import Query, Stack, Value

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mixture:
    """What is published: k normal distributions of ``weights`` p_j, ``centres`` m_j and covariances s_j C (k = 0: none
    known). ``within``: C, the shape they share; ``spreads``: s_j, how wide each is.
    """

    weights: Floats
    centres: Floats
    within: Floats
    spreads: Floats

    @staticmethod
    def unknown(d: int) -> Mixture:
        """Of which nothing is known: every halfspace holds one half."""
        return Mixture(np.zeros(0), np.zeros((0, d)), np.zeros((d, d)), np.zeros(0))

    @staticmethod
    def normal(mean: Floats, covariance: Floats) -> Mixture:
        """One normal distribution."""
        return Mixture.alike(np.ones(1), np.asarray(mean)[None, :], covariance)

    @staticmethod
    def alike(weights: Floats, centres: Floats, within: Floats) -> Mixture:
        """All of one covariance."""
        return Mixture(weights, centres, within, np.ones(len(weights)))

    def widened(self, factor: float) -> Mixture:
        """Every covariance times ``factor``."""
        return replace(self, within=factor * self.within)

    def fraction(self, y: Floats) -> Floats:
        """sum_j p_j Phi((b + <w, m_j>)/sqrt(s_j w' C w)) for each y = (b, w)."""
        if not len(self.weights):
            return np.full(len(y), 0.5)
        w = y[:, 1:]
        along = np.maximum(np.einsum("qi,ij,qj->q", w, self.within, w), 1e-18)
        deviations = np.sqrt(np.outer(along, self.spreads))
        return np.asarray(ndtr((y[:, :1] + w @ self.centres.T) / deviations) @ self.weights)

    def smeared(self, y: Floats, at: Floats) -> Floats:
        """How much of it may stand for rows that all lie ``at`` above the boundary (NaN: none do), yet is beyond it:
        of each normal distribution the part beyond, as far as it is one around that point.
        """
        if not len(self.weights):
            return np.zeros(len(y))
        w, known = y[:, 1:], np.nan_to_num(at)[:, None]
        along = np.maximum(np.einsum("qi,ij,qj->q", w, self.within, w), 1e-18)
        deviations = np.sqrt(np.outer(along, self.spreads))
        beyond = ndtr(-np.abs(known) / deviations)
        around = np.exp(-np.square((y[:, :1] + w @ self.centres.T - known) / deviations) / 2)
        return np.asarray(np.where(np.isnan(at), 0.0, (beyond * around) @ self.weights))


def raised(covariance: Floats, least: float) -> Floats:
    """The matrix with no eigenvalue below ``least``: noise can make a covariance indefinite."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


# Conditions read as halfspaces: <w, x> + b >= 0 over number columns scaled to [-1, 1]. A translated one is one through
# the origin with a coordinate more, a constant 1 (BLR, remark under Definition 6.1): y = (b, w), scaled to length 1.


@dataclass(frozen=True)
class Scaled:
    """``columns`` with the middle and half the length of each range; a missing value stands in the middle.

    ``nullable``: those that may be missing. A condition on them must say so, as COALESCE(x, middle), since an oracle
    that has rows does not count a row whose value is missing. ``absent``: the scaled value that rows without one count
    with, NaN where there are none.
    """

    columns: tuple[str, ...]
    middles: tuple[float, ...]
    halves: tuple[float, ...]
    nullable: frozenset[str] = frozenset()
    absent: tuple[float, ...] = ()

    @staticmethod
    def of(schema: Schema, names: Sequence[str]) -> Scaled:
        """From the schema's ranges."""
        own = [schema.find(name) for name in names]
        found = [schema[name] if name is not None else None for name in own]
        if not names or not all(isinstance(column, Real | Integer) for column in found):
            raise BadQuery(f"halfspaces must be over number columns. Got {', '.join(names) or 'none'}.")
        ends = [(column.low, column.high) for column in found if isinstance(column, Real | Integer)]
        middles = tuple((low + high) / 2 for low, high in ends)
        halves, columns = tuple((high - low) / 2 for low, high in ends), tuple(str(name) for name in own)
        return scaled_to(schema, columns, middles, halves)

    def shared(self, y: Floats) -> Floats:
        """For each (b, w) how far above its boundary all rows lie whose columns in it are missing; NaN if none can."""
        gone = np.array(self.absent or [np.nan] * len(self.columns))
        weighed = np.where(y[:, 1:] != 0, y[:, 1:] * gone, 0.0)
        return np.asarray(y[:, 0] + weighed.sum(axis=1))

    def features(self) -> list[Expr]:
        """The columns, each in [-1, 1]; 0 where missing."""
        return [
            Call("coalesce", (Call("div", (Call("sub", (Column(name), Literal(middle))), Literal(half))), Literal(0.0)))
            for name, middle, half in zip(self.columns, self.middles, self.halves, strict=True)
        ]

    def condition(self, y: Floats) -> Expr:
        """<w, x> + b >= 0 for y = (b, w), as one fixed-point linear form."""
        form = Call("dot", (*self.features(), *(Literal(float(weight)) for weight in y[1:])))
        return Call("ge", (form, Literal(-float(y[0]))))

    def read(self, condition: Expr) -> Floats:
        """y of length 1; refuses what is no halfspace. > is read as >=: rows on the very boundary are not told
        apart.
        """
        match condition:
            case Call("ge" | "gt" | "le" | "lt" as op, (left, right)):
                gap = self._form(left) - self._form(right)
            case _:
                raise Unsupported(
                    f"this synopsis answers halfspaces over {', '.join(self.columns)}. {condition} is none."
                )
        y = gap if op in ("ge", "gt") else -gap
        middles, halves = np.array(self.middles), np.array(self.halves)
        scaled = np.append(y[0] + y[1:] @ middles, y[1:] * halves)
        length = float(np.linalg.norm(scaled))
        if not np.any(scaled[1:]):
            raise Unsupported(f"{condition} compares constants: it is true of all rows, or of none.")
        return np.asarray(scaled / length)

    def _filled(self, form: Floats, value: Any) -> Floats:
        """The form, if COALESCE fills a missing column with its middle, as the release did."""
        read = [i for i in np.flatnonzero(form[1:]) if self.columns[i] in self.nullable]
        if not read:
            return form
        at_middle = form[0] + form[1 + read[0]] * self.middles[read[0]]
        if np.count_nonzero(form[1:]) == 1 and isinstance(value, float) and abs(value - at_middle) <= 1e-9:
            return form
        raise Unsupported(
            f"this synopsis counts a missing value as the middle of its range, column by column: write "
            f"COALESCE({self.columns[read[0]]}, {self.middles[read[0]]:g})."
        )

    def _form(self, expr: Expr, *, guarded: bool = False) -> Floats:
        """(constant, weights) of a linear expression; ``guarded``: within COALESCE."""
        match expr:
            case Literal(value) if isinstance(value, float):
                return np.append(value, np.zeros(len(self.columns)))
            case Column(name):
                own = next((i for i, c in enumerate(self.columns) if same_name(name, c)), None)
                if own is None:
                    raise Unsupported(f"this synopsis knows {', '.join(self.columns)}, not {name}.")
                if self.columns[own] in self.nullable and not guarded:
                    raise Unsupported(
                        f"{name} may be missing, and this synopsis counts such a row as {self.middles[own]:g}. Write "
                        f"COALESCE({name}, {self.middles[own]:g}), or state missing= in the schema and release again."
                    )
                return np.append(0.0, np.eye(len(self.columns))[own])
            case Call("coalesce", (inner, Literal(value))):
                return self._filled(self._form(inner, guarded=True), value)
            case Call("dot", args):
                half, read = len(args) // 2, [self._form(arg, guarded=guarded) for arg in args]
                parts = [a * w[0] for a, w in zip(read[:half], read[half:], strict=True)]
                return np.asarray(np.sum(parts, axis=0))
            case Call(op, args) if op in _LINEAR:
                return _LINEAR[op](*(self._form(arg, guarded=guarded) for arg in args))
        raise Unsupported(f"this synopsis answers conditions that are linear in {', '.join(self.columns)}.")


def _constant(form: Floats) -> float:
    if np.any(form[1:]):
        raise Unsupported("this synopsis answers linear conditions: columns may be multiplied by numbers only.")
    return float(form[0])


def _times(a: Floats, b: Floats) -> Floats:
    return np.asarray(_constant(a) * b if not np.any(a[1:]) else a * _constant(b))


def _over(a: Floats, b: Floats) -> Floats:
    divisor = _constant(b)
    if divisor == 0:
        raise Unsupported("this synopsis does not divide by 0.")
    return np.asarray(a / divisor)


_LINEAR: dict[str, Callable[..., Floats]] = {
    "add": lambda *terms: np.asarray(np.sum(terms, axis=0)),  # a chain of sums is one call of many terms
    "sub": lambda a, b: a - b,
    "neg": lambda a: -a,
    "mul": lambda *factors: reduce(_times, factors),
    "div": _over,
}


def kernel(a: Floats, b: Floats) -> Floats:
    """1/4 - angle/(2 pi) of unit vectors."""
    return np.asarray(0.25 - np.arccos(np.clip(a @ b.T, -1.0, 1.0)) / (2 * np.pi))


@dataclass(frozen=True, eq=False)
class Halfspaces(Body):
    """``means``: noisy fractions of the ``rows`` rows at the ``probes`` (unit vectors, constant first).

    ``noise``: their variance; ``prior``: how much of the kernel's variance is left in the data; ``rough``: the variance
    left that no probe tells of another. ``base``: the mixture that explains the rest; of no components where none was
    asked for.
    """

    scaled: Scaled
    rows: int
    probes: Floats
    means: Floats
    base: Mixture
    noise: float
    prior: float
    rough: float

    kind = "Halfspaces"

    def arrays(self) -> Arrays:
        """Probes, their answers and the mixture."""
        mixture = {name: getattr(self.base, name).ravel() for name in ("weights", "centres", "within", "spreads")}
        return {"probes": self.probes.ravel(), "means": self.means} | mixture

    def settings(self) -> dict[str, Any]:
        """Scales and variances."""
        scales = {name: list(getattr(self.scaled, name)) for name in ("columns", "middles", "halves")}
        return {**scales, "rows": self.rows, "noise": self.noise, "prior": self.prior, "rough": self.rough}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Halfspaces:
        """The inverse."""
        probes = arrays["probes"].reshape(len(arrays["means"]), -1)
        variances = [float(settings[name]) for name in ("noise", "prior", "rough")]
        d = probes.shape[1] - 1
        shapes = arrays["centres"].reshape(-1, d), arrays["within"].reshape(d, d)
        base = Mixture(arrays["weights"], *shapes, arrays["spreads"])
        return cls(_scaled(schema, settings), int(settings["rows"]), probes, arrays["means"], base, *variances)

    @cached_property
    def _fit(self) -> tuple[Any, Floats]:
        ridge = max(self.noise + self.rough, 1e-12) / self.prior
        factor = cho_factor(kernel(self.probes, self.probes) + ridge * np.eye(len(self.probes)))
        return factor, np.asarray(cho_solve(factor, self.means - self.base.fraction(self.probes)))

    @cached_property
    def error(self) -> float:
        """The root mean square error of a halfspace drawn as the probes were, from predicting each by the others.

        The residual of probe i, left out, is alpha_i / [C^-1]_ii, C = kernel + ridge (Rasmussen and Williams 2006,
        5.12): an error of the fit (a noisy mixture and a wrong model included) less independent noise of known
        variance. So the mean square less that variance, if positive, estimates the error's. Two standard errors are
        added, to be safe; a mean of m squares of noise alone has one of at least sqrt(2/m) times the noise's variance,
        and no smaller error could be told from none.
        """
        factor, weights = self._fit
        squares = np.square(weights / np.diag(cho_solve(factor, np.eye(len(weights)))))
        doubt = max(float(squares.std()), np.sqrt(2) * self.noise) / np.sqrt(len(squares))
        return float(np.sqrt(max(float(squares.mean()) - self.noise, 0.0) + 2 * doubt))

    def fraction(self, y: Floats) -> tuple[Floats, Floats]:
        """(estimated fractions, their standard deviations) of the halfspaces ``y``, one in each row: the larger of the
        model's own and of ``error``.
        """
        factor, weights = self._fit
        cross = kernel(y, self.probes)
        left = 0.25 - np.einsum("ij,ji->i", cross, np.asarray(cho_solve(factor, cross.T)))
        known = self.base.fraction(y) + cross @ weights
        own = np.sqrt(self.prior * np.maximum(left, 0.0) + self.rough)
        return np.clip(known, 0.0, 1.0), np.maximum(own, self.error)

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Each condition as a halfspace. Rows whose values are missing lie at one point, which may be on the boundary,
        and clouds do not tell on which side of it: their part is in the margin.
        """
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        y = _halfspaces(query, self.scaled)
        means, deviations = self.fraction(y)
        margins = np.minimum(z * deviations + self.base.smeared(y, self.scaled.shared(y)), 1.0)
        return means * self.rows, margins * self.rows


@dataclass(frozen=True, eq=False)
class HalfspaceNets(Body):
    """``projections``: m sign matrices (d + 1) x k; ``net``: unit vectors of R^k; ``means``: m x |net| noisy fractions.

    ``deviation``: of one mean; ``gamma``: answers are for some halfspace within this sine of the asked one.
    """

    scaled: Scaled
    rows: int
    projections: Floats
    net: Floats
    means: Floats
    deviation: float
    gamma: float

    kind = "HalfspaceNets"

    def arrays(self) -> Arrays:
        """Projections, net and answers."""
        return {"projections": self.projections.ravel(), "net": self.net.ravel(), "means": self.means.ravel()}

    def settings(self) -> dict[str, Any]:
        """Scales and shapes."""
        scales = {name: list(getattr(self.scaled, name)) for name in ("columns", "middles", "halves")}
        shape = list(self.projections.shape)
        return {**scales, "rows": self.rows, "shape": shape, "deviation": self.deviation, "gamma": self.gamma}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> HalfspaceNets:
        """The inverse."""
        m, d, k = (int(size) for size in settings["shape"])
        net = arrays["net"].reshape(-1, k)
        tables = arrays["projections"].reshape(m, d, k), net, arrays["means"].reshape(m, len(net))
        return cls(
            _scaled(schema, settings), int(settings["rows"]), *tables, float(settings["deviation"]), settings["gamma"]
        )

    def fraction(self, y: Floats) -> Floats:
        """The median over projections of the nearest net direction's answer."""
        return np.asarray(np.clip(np.median(self._answers(y), axis=0), 0.0, 1.0))

    def _answers(self, y: Floats) -> Floats:
        """Of the nearest net direction, by projection and halfspace."""
        projected = np.einsum("qd,mdk->mqk", y, self.projections)
        nearest = np.argmax(np.einsum("mqk,nk->mqn", projected, self.net), axis=2)
        return np.take_along_axis(self.means, nearest, axis=1)

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Each condition as a halfspace. The margin, estimated: the noise of an answer, and the most by which one
        projection's answer differs from the median, since no theorem bounds what so few projections mistake.
        """
        y = _halfspaces(query, self.scaled)
        apart = np.abs(self._answers(y) - self.fraction(y)).max(axis=0)
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        return self.fraction(y) * self.rows, (z * self.deviation + apart) * self.rows


def _halfspaces(query: Query, scaled: Scaled) -> Floats:
    parts = query.parts if isinstance(query, Stack) else (query,)
    if not all(isinstance(part, Value) for part in parts):
        raise Unsupported(
            f"this synopsis answers halfspaces over {', '.join(scaled.columns)}, one by one or in a list."
        )
    return np.stack([scaled.read(part.expr) for part in parts if isinstance(part, Value)])


def missing_among(schema: Schema, columns: Sequence[str]) -> frozenset[str]:
    """Those of the columns that may be missing."""
    return frozenset(name for name in columns if schema[name].missing is None)


def _scaled(schema: Schema, settings: Mapping[str, Any]) -> Scaled:
    return scaled_to(schema, *(tuple(settings[name]) for name in ("columns", "middles", "halves")))


def scaled_to(
    schema: Schema, columns: tuple[str, ...], middles: tuple[float, ...], halves: tuple[float, ...]
) -> Scaled:
    """With what the schema says of missing values."""
    gone = []
    for name, middle, half in zip(columns, middles, halves, strict=True):
        column = schema[name]
        stated = middle if column.missing is None else column.missing
        gone.append(math.nan if column.required else (float(stated) - middle) / half)
    return Scaled(columns, middles, halves, missing_among(schema, columns), tuple(gone))
