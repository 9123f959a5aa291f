"""Halfspaces published once: probes with regression, and the paper's nets."""

import numpy as np
import pytest

from dodona.engines.table import Table
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.effort import Effort
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Real, Schema
from dodona.release._mixture import base_plan, distances_query, measurable, own_spreads
from dodona.release.halfspaces import direction_net, directions, halfspace_nets, halfspaces, likeliest
from dodona.synopses import load
from dodona.synopses.halfspaces import Mixture, Scaled, kernel, raised
from dodona.testing.oracles import seeded_curator

NAMES = ("a", "b", "c")
QUESTIONS = ("a + b >= 0", "2 * a - b / 2 + 0.1 < c", "a >= 0.2", "b - 3 * c <= -0.4", "-(a) > 0.1 - c")


@pytest.fixture(scope="module")
def table():
    points = np.tanh(np.random.default_rng(1).normal([0.2, -0.1, 0.3], [0.4, 0.6, 0.3], (8000, 3)))
    columns = {**dict(zip(NAMES, points.T, strict=True)), "flag": points[:, 0] > 0}
    return Table(columns, Schema({**{n: Real(-1, 1, missing=0) for n in NAMES}, "flag": Flag()}))


def test_probes_answer_translated_halfspaces(table):
    synopsis = halfspaces(seeded_curator(table, Budget(epsilon=2), 3), NAMES, share=1)
    errors = [abs(synopsis.ask(q).mean - Exact(table).ask(q).mean) for q in QUESTIONS]
    assert max(errors) < 0.04
    both = synopsis.ask("a + b >= 0").mean + synopsis.ask("a + b < 0").mean
    assert both == pytest.approx(1, abs=1e-9)


def heaps(rows=20_000):
    """Three tight clusters of unequal sizes in four columns."""
    rng = np.random.default_rng(4)
    centres = np.array([[0.7, 0.6, -0.5, 0.1], [-0.6, 0.2, 0.5, -0.7], [0.1, -0.8, -0.6, 0.6]])
    points = np.clip(centres[rng.choice(3, rows, p=[0.6, 0.3, 0.1])] + rng.normal(0, 0.05, (rows, 4)), -1, 1)
    names = tuple("abcd")
    table = Table(dict(zip(names, points.T, strict=True)), Schema({n: Real(-1, 1, missing=0) for n in names}))
    return table, names, points


def test_clusters_are_found_and_explain_what_one_normal_cannot():
    table, names, points = heaps()
    curator = seeded_curator(table, Budget(epsilon=2), 3)
    synopsis = halfspaces(curator, names, share=1)
    body = synopsis.body
    assert "normals and" in synopsis.header.method
    assert body.base.weights.sum() == pytest.approx(1)
    assert curator.left == pytest.approx(0, abs=1e-9)
    y = np.random.default_rng(8).normal(size=(300, 5))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    truth = (points @ y[:, 1:].T >= -y[:, 0]).mean(axis=0)
    one = Mixture.normal(points.mean(axis=0), np.cov(points.T)).fraction(y)
    assert np.abs(body.fraction(y)[0] - truth).mean() < 0.02 < np.abs(one - truth).mean()


def test_the_distance_to_the_nearest_mean_is_counted_exactly():
    table, names, points = heaps(600)
    centres = np.array([[0.5, 0.5, -0.5, 0.0], [-0.5, 0.25, 0.5, -0.5], [0.0, -0.75, -0.5, 0.5]])
    inner = np.array([0.05, 0.1, 0.3])
    squares = ((points[:, None] - centres) ** 2).sum(axis=2)
    runs = np.digitize(squares.min(axis=1), inner)
    query = distances_query(Scaled.of(table.schema, names), centres, inner)
    expected = [np.bincount(runs[squares.argmin(axis=1) == j], minlength=4) for j in range(3)]
    np.testing.assert_array_equal(np.reshape(Exact(table).ask(query).total, (3, 4)), expected)


def test_each_cluster_gets_its_own_spread():
    rng = np.random.default_rng(5)
    widths, centres = np.array([0.04, 0.2]), np.array([[0.4, 0.4, -0.3], [-0.4, -0.2, 0.3]])
    which = rng.choice(2, 20_000, p=[0.7, 0.3])
    points = np.clip(centres[which] + rng.normal(size=(20_000, 3)) * widths[which][:, None], -1, 1)
    table = Table(dict(zip(NAMES, points.T, strict=True)), Schema({n: Real(-1, 1, missing=0) for n in NAMES}))
    scaled, alike = Scaled.of(table.schema, NAMES), Mixture.alike(np.ones(2) / 2, centres, 0.01 * np.eye(3))
    curator = seeded_curator(table, Budget(epsilon=1), 2)
    own, _ = own_spreads(curator, scaled, Effort.of(share=1).part(), alike, np.zeros(2))
    np.testing.assert_allclose(np.sqrt(0.01 * own.spreads), widths, rtol=0.1)
    np.testing.assert_allclose(own.weights, [0.7, 0.3], atol=0.01)
    noisy, _ = own_spreads(Exact(table), scaled, Effort.none(), alike, np.full(2, 3 * 0.0008))
    assert 0.01 * noisy.spreads[0] == pytest.approx(0.0008, rel=0.2)  # 0.04^2 less what the mean's noise explains


def test_what_one_probe_does_not_tell_of_another_is_not_carried():
    y, rng = directions(200, 3, translated=True), np.random.default_rng(1)
    smooth = 0.1 * rng.multivariate_normal(np.zeros(200), kernel(y, y))
    prior, rough, _ = likeliest(y, 0.5 + rng.normal(0, 0.02, 200), [Mixture.unknown(3)], 1e-6)
    assert 0.25 * prior < 1e-4 < rough
    prior, rough, _ = likeliest(y, 0.5 + smooth, [Mixture.unknown(3)], 1e-6)
    assert prior == pytest.approx(0.01, rel=0.7)
    assert rough < 1e-4


def test_means_too_many_for_one_expression_share_a_spread():
    assert measurable(64, 20)
    assert not measurable(64, 200)


def test_what_is_asked_before_the_probes_follows_from_the_noise_alone(table):
    plans = []
    for epsilon in (0.01, 0.2, 4):
        curator = seeded_curator(table, Budget(epsilon=epsilon), 1)
        plans.append(base_plan(curator, Scaled.of(table.schema, NAMES), Effort.of(share=1), 8000))
        assert curator.left == pytest.approx(epsilon)
    assert [plan.components for plan in plans[:2]] == [0, 1]
    assert plans[2].components >= 3
    assert all(plan.shares.probes > 0 for plan in plans)


def test_a_mixture_is_the_sum_of_its_normals():
    left, right = np.array([-1.0, 0.0]), np.array([1.0, 0.5])
    both = Mixture.alike(np.array([0.25, 0.75]), np.stack([left, right]), 0.04 * np.eye(2))
    y = np.array([[0.3, 0.8, -0.2], [0.0, 1.0, 0.0]])
    parts = [Mixture.normal(centre, 0.04 * np.eye(2)).fraction(y) for centre in (left, right)]
    np.testing.assert_allclose(both.fraction(y), 0.25 * parts[0] + 0.75 * parts[1])
    assert both.fraction(y)[1] == pytest.approx(0.75, abs=1e-5)
    assert Mixture.unknown(2).fraction(y).tolist() == [0.5, 0.5]
    np.testing.assert_allclose(np.linalg.eigvalsh(raised(np.diag([-1.0, 2.0]), 0.1)), [0.1, 2.0])


def test_without_clear_moments_probes_alone_are_asked(table):
    synopsis = halfspaces(seeded_curator(table, Budget(epsilon=0.01), 3), NAMES, share=1, probes=40)
    assert synopsis.header.method.startswith("40 probes")
    assert 0 <= synopsis.ask("a >= 0").mean <= 1


def test_nets_state_their_gamma_and_err_more(table):
    synopsis = halfspace_nets(Exact(table), NAMES, dimension=3, projections=7, gamma=0.4)
    assert synopsis.header.notes["gamma"] == 0.4
    assert "gamma = 0.4" in synopsis.header.accuracy
    errors = [abs(synopsis.ask(q).mean - Exact(table).ask(q).mean) for q in QUESTIONS]
    assert max(errors) < 0.45


def test_sums_of_three_terms_and_chained_products_are_read(table):
    synopsis = halfspaces(Exact(table), NAMES, probes=20)
    assert synopsis.ask("a + b + c >= 0.1").total == pytest.approx(synopsis.ask("(a + b) >= 0.1 - c").total)
    assert synopsis.ask("2 * 3 * a >= b").total == pytest.approx(synopsis.ask("6 * a - b >= 0").total)


@pytest.mark.parametrize("make", [halfspaces, halfspace_nets])
def test_saved_and_loaded(table, make, tmp_path):
    synopsis = make(Exact(table), NAMES)
    synopsis.save(tmp_path / "h.synopsis")
    assert load(tmp_path / "h.synopsis").ask("a >= b").total == pytest.approx(synopsis.ask("a >= b").total)


@pytest.mark.parametrize("question", ["a * b >= 0", "flag", "a = 0", "1 >= 2", "flag >= a"])
def test_other_questions_are_refused(table, question):
    with pytest.raises((Unsupported, BadQuery)):
        halfspaces(Exact(table), NAMES, probes=20).ask(question)


def test_other_columns_and_private_sizes_are_refused(table):
    with pytest.raises(BadQuery, match="number columns"):
        halfspaces(Exact(table), ("a", "flag"))
    hidden = Table({"a": np.zeros(3)}, Schema({"a": Real(-1, 1)}), neighbours="add-remove")
    with pytest.raises(Unsupported, match="public number of rows"):
        halfspaces(seeded_curator(hidden, Budget(epsilon=1), 0), ("a",), share=1)


@pytest.mark.parametrize(("dimension", "sine"), [(2, 0.3), (3, 0.3), (4, 0.5)])
def test_the_net_covers_every_direction(dimension, sine):
    net = direction_net(dimension, sine)
    directions = np.random.default_rng(0).normal(size=(2000, dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    nearest = np.max(np.abs(directions @ net.T), axis=1)
    assert np.max(np.sqrt(1 - np.minimum(nearest, 1) ** 2)) <= sine


def test_what_would_not_fit_is_refused_with_the_most_that_does(table):
    with pytest.raises(Unsupported, match="directions"):
        direction_net(6, 0.01)
    with pytest.raises(Unsupported, match="Take at most 25,000 projections"):
        halfspace_nets(Exact(table), NAMES, dimension=2, projections=10**7)
    with pytest.raises(BadQuery, match="GiB"):
        halfspaces(Exact(table), NAMES, probes=10**9)
    for probes in (0, 1.5, True):
        with pytest.raises(BadQuery, match="from 1 to 8,000"):
            halfspaces(Exact(table), NAMES, probes=probes)
    empty = Table({name: np.zeros(0) for name in NAMES}, Schema({n: Real(-1, 1, missing=0) for n in NAMES}))
    with pytest.raises(Unsupported, match="has 0"):
        halfspaces(Exact(empty), NAMES)
