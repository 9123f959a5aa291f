"""Halfspaces published once: probes with regression, and the paper's nets."""

import numpy as np
import pytest

from dodona.engines.table import Table
from dodona.errors import BadQuery, Unsupported
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Real, Schema
from dodona.release.halfspaces import direction_net, halfspace_nets, halfspaces
from dodona.synopses.file import load
from dodona.testing.oracles import seeded_curator
from dodona.trust.exact import Exact

NAMES = ("a", "b", "c")
QUESTIONS = ("a + b >= 0", "2 * a - b / 2 + 0.1 < c", "a >= 0.2", "b - 3 * c <= -0.4", "-(a) > 0.1 - c")


@pytest.fixture(scope="module")
def table():
    points = np.tanh(np.random.default_rng(1).normal([0.2, -0.1, 0.3], [0.4, 0.6, 0.3], (8000, 3)))
    columns = {**dict(zip(NAMES, points.T, strict=True)), "flag": points[:, 0] > 0}
    return Table(columns, Schema({**{n: Real(-1, 1) for n in NAMES}, "flag": Flag()}))


def test_probes_answer_translated_halfspaces(table):
    synopsis = halfspaces(seeded_curator(table, Budget(epsilon=2), 3), NAMES, share=1)
    errors = [abs(synopsis.ask(q).mean - Exact(table).ask(q).mean) for q in QUESTIONS]
    assert max(errors) < 0.04
    both = synopsis.ask("a + b >= 0").mean + synopsis.ask("a + b < 0").mean
    assert both == pytest.approx(1, abs=1e-9)


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


def test_a_net_too_large_to_ask_is_refused():
    with pytest.raises(Unsupported, match="directions"):
        direction_net(6, 0.01)
