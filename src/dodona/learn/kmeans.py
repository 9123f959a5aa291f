"""k-means through an oracle (SuLQ 4.2), with private seeds and only as many centres and rounds as the noise supports.

1. A private mean, and how far rows lie from it (``_location.py``), twice: the second time from nearer.
2. A noisy second-moment matrix (``_moments.py``): the directions above the noise. Centres lie where the rows
   vary, so the rounds are asked along these directions only; noise in the others is never paid for.
3. Seeds need no row: k-means on points drawn from the normal distribution with that matrix. With rows to spare, one
   finer partition is asked first and its noisy cells are clustered.
4. Rounds of Lloyd's update, as many as leave each well above the noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import KMeans as PublicKMeans
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from dodona.bounds import Outlook
from dodona.bounds.sulq import kmeans_error
from dodona.errors import BadQuery
from dodona.learn import _lloyd as lloyd
from dodona.learn._encoding import Feature, alike, held_rows
from dodona.learn._learner import Learner, Recorded, counted_rounds, finish, rounds, task_of
from dodona.learn._supervised import fit_outlook, prospect
from dodona.privacy.numbers import Number

# Where k-means begins: centres found on synthetic points, so no row is looked at.


Matrix = NDArray[np.float64]

SYNTHETIC = 2000
FINE_STRENGTH = 60.0  # from here on a finer partition pays
CELL_STRENGTH = 12.0  # rows in a cell of the finer partition over the noise of its count
MOST_CELLS = 128


def from_spectrum(frame: lloyd.Frame, k: int, random: np.random.RandomState) -> Matrix:
    """Centres of points drawn from the normal distribution with the frame's second moments."""
    values, vectors = np.linalg.eigh(frame.variances)
    points = random.normal(size=(max(SYNTHETIC, 20 * k), len(values))) * np.sqrt(np.maximum(values, 1e-12))
    return _cluster(points @ vectors.T, None, k, random)


def cells_for(frame: lloyd.Frame, k: int, strength: float) -> int:
    """How many cells a finer partition may have; 0 where the rows do not bear one."""
    if strength < FINE_STRENGTH:
        return 0
    # a quarter of what is left: half the strength
    cells = int(min(MOST_CELLS, k * strength / 2 / CELL_STRENGTH))
    return cells if cells >= 2 * k and cells <= frame.rows else 0


def from_cells(answer: lloyd.Round, rows: int, k: int, random: np.random.RandomState) -> Matrix:
    """Centres of the cells' noisy means, weighted by their noisy counts."""
    cells, means = lloyd.pooled(answer, rows)
    return _cluster(means, np.maximum(cells.counts, 1e-9), k, random)


def _cluster(points: Matrix, weights: Matrix | None, k: int, random: np.random.RandomState) -> Matrix:
    """Public k-means; points that coincide are moved apart by a hair, so that there are k of them."""
    starts = 5 if weights is not None else 1
    search = PublicKMeans(min(k, len(points)), n_init=starts, max_iter=50, random_state=random)
    apart = points + 1e-9 * random.normal(size=points.shape)
    with threadpool_limits(1):  # so few points are not worth waking other cores for
        return np.asarray(search.fit(apart, sample_weight=weights).cluster_centers_)


ROUND_STRENGTH = 25.0  # a round for each so many
CODE_SHARE = Fraction(1, 4)  # of what is left, for the finer partition


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, Learner):  # type: ignore[misc]
    """``n_clusters`` centres that minimise the squared distances of rows to the nearest one, learned with noise.

    Distances are in the columns' own units, as scikit-learn's. ``max_iter``: at most so many rounds. ``init``:
    "private", or an array of centres that are public. ``random_state``: for the search on synthetic points; never for
    noise. On an oracle: ``share`` of its whole budget. On arrays: all of ``epsilon`` and ``delta``, with ``bounds``.

    After the fit: ``cluster_centers_`` (perhaps fewer than asked: ``note_`` says why), ``counts_`` (noisy sizes),
    ``inertia_`` (a private estimate, or None), ``n_iter_``, ``cost_``, ``receipt_``. ``centre_error_``: with
    ``centre_confidence_``, all centres at once are within this of the means of their rows: those nearest to them in the
    last round, each drawn into the ball of radius ``ball_`` that the rounds used (None: as they are). It is estimated.
    """

    states_errors = True

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        max_iter: int = 20,
        init: Any = "private",
        random_state: Any = None,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        share: Number = 1,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.init = init
        self.random_state = random_state
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.share = share

    def fit(self, X: Any, y: Any = None) -> KMeans:  # noqa: ARG002, N803 - scikit-learn's signature
        """Learns from an oracle, an array or a data frame."""
        task = task_of(self, X)
        features = alike(task.features)
        k = self._checked(task.rows, len(features))
        oracle = task.recorded(self)
        self.features_, self.note_, self.inertia_, self.n_iter_ = features, "", None, 0
        self.centre_confidence_, self.ball_ = lloyd.CONFIDENCE, None
        random = check_random_state(self.random_state)
        needed = lloyd.rows_needed(oracle, features, k, task.share)
        if k == 1 or task.rows < needed:
            self._one(lloyd.single_mean(oracle, features, task.rows, task.share), task.rows)
            if k > 1:
                self.note_ = f"1 centre, not {k}: {k} would need about {needed:,} rows at this budget"
            finish(self, oracle)
            return self
        noise = lloyd.count_noise(oracle, features, k, task.share)
        strength = task.rows / k / noise if noise else math.inf
        frame = lloyd.frame_of(oracle, features, task.rows, task.share, strength, full=not isinstance(self.init, str))
        seeds, left = self._seeds(oracle, frame, k, strength, random)
        self._rounds(oracle, frame, seeds, left, strength)
        if len(self.cluster_centers_) < k:
            self.note_ = (
                f"{len(self.cluster_centers_)} centres, not {k}: the noise or the rows do not support the others"
            )
        finish(self, oracle)
        return self

    def _checked(self, rows: int, width: int) -> int:
        for name, value in (("n_clusters", self.n_clusters), ("max_iter", self.max_iter)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise BadQuery(f"{name} must be a positive whole number. Got {value!r}.")
        if self.n_clusters > rows:
            raise BadQuery(f"n_clusters must be at most the number of rows. Got {self.n_clusters} for {rows} rows.")
        if isinstance(self.init, str) and self.init != "private":
            raise BadQuery(f'init must be "private" or an array of public centres. Got {self.init!r}.')
        shape = (self.n_clusters, width)
        if not isinstance(self.init, str) and np.shape(self.init) != shape:
            raise BadQuery(f"init must have {shape[0]} rows of {width} numbers. Got shape {np.shape(self.init)}.")
        return int(self.n_clusters)

    def _seeds(
        self, oracle: Recorded, frame: lloyd.Frame, k: int, strength: float, random: np.random.RandomState
    ) -> tuple[Matrix, Fraction]:
        """Centres to begin with, in the frame, and the share that is left."""
        if not isinstance(self.init, str):
            return frame.inside(np.asarray(self.init, dtype=np.float64)), frame.left
        cells = cells_for(frame, k, strength)
        if cells == 0:
            return from_spectrum(frame, k, random), frame.left
        code = from_spectrum(frame, cells, random)
        answer = lloyd.ask_round(oracle, frame.exprs, code, frame.radius, frame.left * CODE_SHARE, frame.turn)
        return from_cells(answer, frame.rows, k, random), frame.left * (1 - CODE_SHARE)

    def _rounds(self, oracle: Recorded, frame: lloyd.Frame, centres: Matrix, left: Fraction, strength: float) -> None:
        """Rounds of equal shares; once centres move less than the noise does, all that is left goes to a last one."""
        wanted = int(min(self.max_iter, max(1.0, strength / ROUND_STRENGTH)))
        answers: list[lloyd.Round] = []
        cells, settled = lloyd.Round(np.zeros(0), np.zeros((0, 0)), 0.0, 0.0), False
        for done in rounds(wanted, "k-means"):
            part, before = (left if settled else left / (wanted - done)), centres
            left -= part
            answers.append(lloyd.ask_round(oracle, frame.exprs, before, frame.radius, part, frame.turn))
            cells, centres = lloyd.pooled(answers[-1], frame.rows)
            self.n_iter_ += 1
            still = before.shape == centres.shape and bool(np.all(before == centres))
            if settled or still:
                break
            settled = before.shape == centres.shape and _movement(before, centres) < _level(cells, centres)
        unit = self.features_[0].half
        shown = frame.bounded(centres, frame.beside(answers))
        self.cluster_centers_ = frame.outside(shown)
        self.counts_ = cells.counts
        self.centre_error_ = lloyd.centre_margins(cells, shown, frame.turn, frame.furthest) * unit
        self.ball_ = None if frame.radius is None else frame.radius * unit
        if frame.energy is not None:
            near = float(cells.counts @ (centres**2).sum(axis=1))
            self.inertia_ = max(frame.rows * frame.energy - near, 0.0) * unit**2

    def _one(self, found: tuple[Matrix, float], rows: int) -> None:
        mean, error = found
        middles = np.array([feature.middle for feature in self.features_])
        unit = self.features_[0].half
        self.cluster_centers_ = (middles + unit * mean)[None, :]
        self.counts_ = np.array([float(rows)])
        self.centre_error_ = np.array([error * unit])
        self.n_iter_ = 1

    features_: tuple[Feature, ...]

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: N803 - scikit-learn's name
        """The nearest centre of each row, the first of equals."""
        return np.asarray(self.transform(X).argmin(axis=1))

    def transform(self, X: Any) -> Matrix:  # noqa: N803 - scikit-learn's name
        """The distance of each row from each centre."""
        rows = self._original(X)
        return np.stack([np.linalg.norm(rows - centre, axis=1) for centre in self.cluster_centers_], axis=1)

    def fit_predict(self, X: Any, y: Any = None) -> NDArray[np.int64]:  # noqa: ARG002, N803 - scikit-learn's signature
        """``fit(X).predict(X)``."""
        return self.fit(X).predict(X)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803 - scikit-learn's signature
        """Minus the squared distances of the rows handed in from their nearest centres; it is not private."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())

    def plan(self, data: Any, n_features: int | None = None) -> Outlook:
        """What a fit would cost and tell, before it: ``data`` is an oracle, or a number of rows with ``n_features``."""
        oracle, features, rows, share = prospect(self, data, n_features)
        k = self._checked(rows, len(features))
        needed = lloyd.rows_needed(oracle, features, k, share)
        error = k * lloyd.count_noise(oracle, features, k, share) / rows
        measure = "noise of a count over the rows of a cluster"
        found = fit_outlook(self, oracle, rows, share, error, measure, needed, feasible=rows >= needed)
        # Lemma 2 for a centre as far from the middle as the box allows, with all of the share in one round.
        variance, d = lloyd.count_noise(oracle, features, k, share) ** 2, len(features)
        off = kmeans_error(math.sqrt(d), d, variance, rows / k, 1 - lloyd.CONFIDENCE)
        return replace(found, details={"centres off by at most, in half ranges (Lemma 2)": off}) if variance else found

    def _original(self, rows: Any) -> Matrix:
        check_is_fitted(self)
        encoded = held_rows(self, self.features_, rows)
        middles = np.array([feature.middle for feature in self.features_])
        return np.asarray(encoded * self.features_[0].half + middles)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def notes(self) -> list[str]:
        """How many centres and rounds, how far off, and why fewer than asked."""
        worst = float(np.max(self.centre_error_))
        told = (
            f"{len(self.cluster_centers_)} centres after {counted_rounds(self.n_iter_)}, all within {worst:.3g} of the "
            f"means of the rows that the last round counted for them ({self.centre_confidence_:.0%}, estimated)"
        )
        return [told, self.note_] if self.note_ else [told]


def _movement(before: Matrix, centres: Matrix) -> float:
    """How far the centres went, root mean square."""
    return float(np.sqrt(np.mean(((centres - before) ** 2).sum(axis=1))))


def _level(cells: lloyd.Round, centres: Matrix) -> float:
    """How far noise alone would have moved them."""
    return float(np.sqrt(np.mean(lloyd.centre_error(cells, centres) ** 2)))
