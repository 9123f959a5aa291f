"""k-means: scikit-learn's rounds without noise; with it, better than one mean, or one mean and a reason."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import sklearn.cluster as public
from sklearn.datasets import load_digits

from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.learn._lloyd import Round, centre_error, centre_margins, noise_length, pooled
from dodona.learn.kmeans import KMeans
from dodona.learn.pca import PCA
from dodona.oracles.curator import Curator
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Real, Schema
from dodona.testing.oracles import seeded_curator


def blobs(n: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Table]:
    rng = np.random.default_rng(seed)
    centres = np.array([[2.0, 2.0], [8.0, 3.0], [5.0, 8.0]])
    rows = np.clip(centres[rng.integers(0, 3, n)] + 0.5 * rng.normal(size=(n, 2)), 0, 10)
    return rows, centres, Table(rows, Schema({"a": Real(0, 10), "b": Real(0, 10)}))


def single(rows: np.ndarray) -> float:
    return float(((rows - rows.mean(axis=0)) ** 2).sum())


def ordered(centres: np.ndarray) -> np.ndarray:
    return centres[np.argsort(centres[:, 0])]


def test_rounds_equal_scikit_learns_on_exact() -> None:
    rows, _, table = blobs()
    init = np.array([[1.0, 1.0], [9.0, 1.0], [9.0, 9.0]])
    ours = KMeans(3, init=init, max_iter=50).fit(Exact(table))
    theirs = public.KMeans(3, init=init, n_init=1, max_iter=50, tol=0).fit(rows)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, atol=1e-4)
    assert np.array_equal(ours.predict(rows), theirs.labels_)
    np.testing.assert_allclose(ours.counts_, np.bincount(theirs.labels_))
    np.testing.assert_allclose(ours.centre_error_, 0, atol=1e-9)
    assert ours.ball_ is None
    assert ours.centre_confidence_ == 0.95


def test_private_seeds_find_the_clusters_on_exact() -> None:
    rows, centres, table = blobs()
    model = KMeans(3, random_state=0).fit(Exact(table))
    np.testing.assert_allclose(ordered(model.cluster_centers_), ordered(centres), atol=0.05)
    best = public.KMeans(3, n_init=3, random_state=0).fit(rows).inertia_
    assert -model.score(rows) == pytest.approx(best, rel=1e-3)
    assert model.inertia_ == pytest.approx(best, rel=1e-2)


def test_noise_moves_the_centres_little() -> None:
    _, centres, table = blobs()
    model = KMeans(3, random_state=0).fit(seeded_curator(table, Budget(epsilon=1, delta=1e-6), seed=1))
    off = np.linalg.norm(ordered(model.cluster_centers_) - ordered(centres), axis=1)
    assert off.max() < 0.2
    assert np.all(off < 5 * model.centre_error_ + 0.05)
    assert model.cost_.share == pytest.approx(1, abs=1e-9)
    assert model.note_ == ""


def test_digits_beat_one_mean() -> None:
    rows = load_digits().data
    table = Table(rows, Schema({f"x{i}": Real(0, 16) for i in range(64)}))
    model = KMeans(10, random_state=0).fit(seeded_curator(table, Budget(epsilon=1, delta=1e-6), seed=2))
    assert -model.score(rows) < 0.9 * single(rows)
    assert model.predict(rows).max() < len(model.cluster_centers_)


def test_too_much_noise_gives_one_mean_and_says_why() -> None:
    rows, _, table = blobs(n=60)
    model = KMeans(8).fit(seeded_curator(table, Budget(epsilon=0.1, delta=1e-6), seed=3))
    assert len(model.cluster_centers_) == 1
    assert "not 8" in model.note_
    assert model.note_ in model.summary()
    assert np.all((model.cluster_centers_ >= 0) & (model.cluster_centers_ <= 10))
    assert set(model.predict(rows)) == {0}


def test_one_cluster_is_the_mean() -> None:
    rows, _, table = blobs()
    model = KMeans(1).fit(Exact(table))
    np.testing.assert_allclose(model.cluster_centers_[0], rows.mean(axis=0), atol=1e-5)
    assert model.note_ == ""


def test_clusters_on_projections() -> None:
    rows = load_digits().data
    table = Table(rows, Schema({f"x{i}": Real(0, 16) for i in range(64)}))
    exact = Exact(table)
    pca = PCA(5).fit(exact)
    model = KMeans(10, random_state=0).fit(exact.project(pca))
    assert model.cluster_centers_.shape == (10, 5)
    labels = model.predict(pca.transform(rows))
    assert len(np.unique(labels)) == 10


def test_empty_cells_are_dropped_on_exact() -> None:
    _, _, table = blobs()
    init = np.array([[2.0, 2.0], [8.0, 3.0], [5.0, 8.0], [10.0, 10.0]])
    model = KMeans(4, init=init).fit(Exact(table))
    assert len(model.cluster_centers_) == 3
    assert "3 centres, not 4" in model.note_


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 61}, "number of rows"),
        ({"n_clusters": True}, "n_clusters"),
        ({"max_iter": 0}, "max_iter"),
        ({"init": "random"}, "init"),
    ],
)
def test_bad_settings_are_refused_before_any_charge(settings: dict[str, object], match: str) -> None:
    _, _, table = blobs(n=60)
    curator = Curator(table, Budget(epsilon=1000, delta=1e-6))
    with pytest.raises(BadQuery, match=match):
        KMeans(**settings).fit(curator)  # type: ignore[arg-type]
    assert curator.left == float(curator.budget.total)


def test_misshapen_init_is_refused_before_any_charge() -> None:
    _, _, table = blobs(n=600)
    curator = Curator(table, Budget(epsilon=1000, delta=1e-6))
    with pytest.raises(BadQuery, match="init"):
        KMeans(3, init=np.zeros((2, 2))).fit(curator)
    assert curator.left == float(curator.budget.total)


def test_pooling_keeps_what_noise_supports() -> None:
    answer = Round(
        counts=np.array([100.0, 90.0, 3.0]),
        sums=np.array([[100.0, 0.0], [-90.0, 0.0], [50.0, 50.0]]),
        count_spread=5.0,
        sum_spread=5.0,
    )
    cells, centres = pooled(answer, rows=193)
    assert len(centres) == len(cells.counts) == 2
    assert centres[0, 0] == pytest.approx(1, abs=0.05)
    assert centres[1, 0] == pytest.approx(-1, abs=0.05)


def test_lemma_2() -> None:
    answer = Round(np.array([100.0]), np.zeros((1, 4)), count_spread=2.0, sum_spread=3.0)
    (error,) = centre_error(answer, np.array([[3.0, 4.0, 0.0, 0.0]]))
    assert error == pytest.approx((5 * 2 + 2 * 3) / 100)


def test_margins_know_what_shrinking_moved_and_how_many_cells_were_pooled() -> None:
    """n (mean - c) = D - z: with D = S - N c known, a centre away from S/N is off by that much at least."""
    counts, full = np.array([1000.0, 1000.0]), np.array([[500.0, 0.0], [500.0, 0.0]])
    answer = Round(counts, full, 2.0, 3.0, full, np.array([1.0, 9.0]), normal=True)
    near = centre_margins(answer, np.array([[0.5, 0.0], [0.5, 0.0]]), None, 10.0)
    moved = centre_margins(answer, np.array([[0.4, 0.0], [0.4, 0.0]]), None, 10.0)
    assert near[1] == pytest.approx(3 * near[0], rel=0.02)  # nine cells have three times the noise of one
    assert np.all(moved >= 0.1)
    fail = 0.05 / 30
    width = NormalDist().inv_cdf(1 - fail / 2)
    assert near[0] == pytest.approx((3 * noise_length(2, fail, True) + 0.5 * 2 * width) / (1000 - 2 * width))
    # Noise as large as the count: nothing is known but the bounds.
    assert centre_margins(replace(answer, count_spread=900.0), full / 1000, None, 7.0).tolist() == [7.0, 7.0]


@pytest.mark.parametrize("normal", [True, False])
def test_noise_is_no_longer_than_stated(normal: bool) -> None:
    rng = np.random.default_rng(5)
    for dimension in (1, 2, 20):
        drawn = (rng.normal if normal else rng.laplace)(0, 1 if normal else 0.5**0.5, (40_000, dimension))
        beyond = np.mean(np.linalg.norm(drawn, axis=1) > noise_length(dimension, 0.01, normal))
        assert 0.002 < beyond < 0.0125


def test_plan() -> None:
    model = KMeans(5, epsilon=1, delta=1e-6, bounds=(0, 1))
    assert model.plan(1_000_000, 10).feasible
    assert not model.plan(20, 10).feasible


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 0.2, 0.3, 0.5])
def test_never_worse_than_one_private_mean_of_the_same_budget(epsilon: float) -> None:
    """Within the noise of 24 fits of each: sqrt(pi / 2) times that of their means, four times over."""
    rows = load_digits().data / 8 - 1
    found = {k: [-_fitted(k, epsilon, rows, seed).score(rows) for seed in range(24)] for k in (10, 1)}
    middle = {k: float(np.median(values)) for k, values in found.items()}
    doubt = np.sqrt(np.pi / 2 * sum(np.var(values) / len(values) for values in found.values()))
    assert middle[10] <= middle[1] + 4 * doubt


def _fitted(k: int, epsilon: float, rows: np.ndarray, seed: int) -> KMeans:
    return KMeans(k, random_state=seed, epsilon=epsilon, delta=1e-6, bounds=(-1, 1)).fit(rows)


def test_lemma_2_is_told_before_anything_is_spent() -> None:
    """By the plan: less with more rows, more with less epsilon, and nothing where there is no noise."""
    told = "centres off by at most, in half ranges (Lemma 2)"
    plans = [
        KMeans(3, epsilon=epsilon, delta=1e-6, bounds=(-1, 1)).plan(rows, 2)
        for rows, epsilon in ((100_000, 1), (1_000_000, 1), (100_000, 0.1))
    ]
    first, more, less = (plan.details[told] for plan in plans)
    assert 0 < more < first < less
