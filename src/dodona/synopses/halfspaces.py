"""Published halfspaces: noisy answers to probes, carried to every other halfspace by regression or by nets.

``Halfspaces``: the fraction of a published mixture of normal distributions (``mixture.py``), and kernel regression of
what is left. For a row in a random direction, the covariance of [<x, u> >= 0] - 1/2 and [<x, v> >= 0] - 1/2 is
1/4 - angle(u, v)/(2 pi): the arc-cosine kernel of order 0 (Cho and Saul 2009), centred.

``HalfspaceNets``: the paper's own (BLR section 6): in each of m random sign projections to k dimensions the answer of
the nearest net direction, and the median over projections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dodona.errors import Unsupported
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Stack, Value
from dodona.synopses.base import Arrays, Body
from dodona.synopses.forms import Scaled
from dodona.synopses.mixture import Mixture

Floats = NDArray[np.float64]


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
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Halfspaces:  # noqa: ARG003
        """The inverse."""
        probes = arrays["probes"].reshape(len(arrays["means"]), -1)
        variances = [float(settings[name]) for name in ("noise", "prior", "rough")]
        d = probes.shape[1] - 1
        shapes = arrays["centres"].reshape(-1, d), arrays["within"].reshape(d, d)
        base = Mixture(arrays["weights"], *shapes, arrays["spreads"])
        return cls(_scaled(settings), int(settings["rows"]), probes, arrays["means"], base, *variances)

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
        """Each condition as a halfspace."""
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        means, deviations = self.fraction(_halfspaces(query, self.scaled))
        return means * self.rows, z * deviations * self.rows


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
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> HalfspaceNets:  # noqa: ARG003
        """The inverse."""
        m, d, k = (int(size) for size in settings["shape"])
        net = arrays["net"].reshape(-1, k)
        tables = arrays["projections"].reshape(m, d, k), net, arrays["means"].reshape(m, len(net))
        return cls(_scaled(settings), int(settings["rows"]), *tables, float(settings["deviation"]), settings["gamma"])

    def fraction(self, y: Floats) -> Floats:
        """The median over projections of the nearest net direction's answer."""
        projected = np.einsum("qd,mdk->mqk", y, self.projections)
        nearest = np.argmax(np.einsum("mqk,nk->mqn", projected, self.net), axis=2)
        answers = np.take_along_axis(self.means, nearest, axis=1)
        return np.asarray(np.clip(np.median(answers, axis=0), 0.0, 1.0))

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Each condition as a halfspace; the margin is for the noise alone, gamma says the rest."""
        y = _halfspaces(query, self.scaled)
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        return self.fraction(y) * self.rows, np.full(len(y), z * self.deviation * self.rows)


def _halfspaces(query: Query, scaled: Scaled) -> Floats:
    parts = query.parts if isinstance(query, Stack) else (query,)
    if not all(isinstance(part, Value) for part in parts):
        raise Unsupported(
            f"this synopsis answers halfspaces over {', '.join(scaled.columns)}, one by one or in a list."
        )
    return np.stack([scaled.read(part.expr) for part in parts if isinstance(part, Value)])


def _scaled(settings: Mapping[str, Any]) -> Scaled:
    return Scaled(*(tuple(settings[name]) for name in ("columns", "middles", "halves")))
