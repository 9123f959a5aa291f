"""Releases and learners that choose by scores run on an analyst's machine against a server: what travels is values."""

import json

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.concepts.boxes import Boxes, Halfspaces, Intervals, Thresholds
from dodona.concepts.concept import Agreement, Finite, Subset
from dodona.concepts.conjunctions import Conjunctions, Disjunctions
from dodona.concepts.databases import Databases, Misfits
from dodona.concepts.grid import Grid, Misfit
from dodona.concepts.parities import Parities
from dodona.concepts.trees import DecisionLists, Stumps, Trees
from dodona.errors import BadQuery
from dodona.oracles.exact import Exact
from dodona.oracles.fronts import GatedScores, Shifted
from dodona.oracles.view import Seen, narrowed
from dodona.oracles.wire import candidates_of
from dodona.query.plan import compile_query
from dodona.query.statistic import as_expr
from tests.support.servers import add_key, in_thread, write_survey

SCHEMA = dd.Schema(
    {
        "age": dd.Integer(0, 99),
        "a": dd.Flag(),
        "b": dd.Flag(),
        "c": dd.Flag(),
        "sex": dd.Category("Female", "Male"),
        "x": dd.Real(-1, 1),
        "y": dd.Real(-1, 1),
    }
)


def columns(rows=2000):
    rng = np.random.default_rng(3)
    bits = {name: rng.random(rows) < p for name, p in (("a", 0.2), ("b", 0.5), ("c", 0.7))}
    sex = np.array(["Female", "Male"])[rng.integers(0, 2, rows)]
    points = {name: rng.uniform(-1, 1, rows) for name in ("x", "y")}
    return {"age": rng.integers(0, 100, rows), **bits, "sex": sex, **points}


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote")
    survey = write_survey(folder, columns(), SCHEMA, {"epsilon": 100}, name="data")
    key = add_key(folder, "analyst", "1")
    with in_thread(folder, [survey], tick=0.001, rate=100_000) as url:
        yield dd.connect(url, key=key)


RELEASES = {
    "conjunctions": (lambda o: release.conjunctions(o, width=2, columns=["a", "b", "c", "sex"], share=0.02), "a AND b"),
    "submodular": (
        lambda o: release.conjunctions(o, width=2, columns=["a", "b", "c"], share=0.05, method="submodular"),
        "a AND b",
    ),
    "adaptive": (
        lambda o: release.conjunctions(o, width=2, columns=["a", "b", "c"], share=0.05, method="adaptive"),
        "a AND b",
    ),
    "intervals": (lambda o: release.intervals(o, "age", share=0.02), "age >= 50"),
    "boxes": (lambda o: release.boxes(o, ["x", "y"], bits=3, share=0.02), "x > 0 AND y > 0"),
    "halfspaces": (lambda o: release.halfspaces(o, ["x", "y"], share=0.05, probes=60), None),
    "small_database": (
        lambda o: release.small_database(o, Conjunctions(("a", "b"), 2), share=0.05, size=4),
        "a AND b",
    ),
}


@pytest.mark.parametrize("name", list(RELEASES))
def test_every_release_runs_from_afar(oracle, name):
    make, question = RELEASES[name]
    before = oracle.left
    made = make(oracle)
    assert made.header.cost.amount == pytest.approx(before - oracle.left, rel=1e-6)
    if question is not None:
        truth = Exact(dd.Table(columns(), SCHEMA)).ask(question).total
        assert abs(made.ask(question).total - truth) < 400


CLASSES = [
    Boxes((("x", (0.0, 0.5)), ("y", (0.0,)))),
    Conjunctions(("a", "b", "age"), 2, (("age", (0.0, 50.0, 99.0)),)),
    DecisionLists(("a", "b"), 2),
    Disjunctions(("a", "sex"), 2),
    Finite((as_expr("a"), as_expr("age > 5 AND b"))),
    Halfspaces(("x", "y"), 1, 3),
    Intervals("age", (10.0, 20.0)),
    Parities(("a", "b", "c"), 2),
    Stumps(("a", "sex")),
    Subset(Stumps(("a", "sex")), (0, 2), "some"),
    Thresholds("age", (50.0,), False),
    Trees(("a", "b", "c"), 2),
]


def scores():
    grid = Grid.of(SCHEMA, ["a", "sex", "age"], {"age": [0, 50, 99]})
    supports = ((0, 1), (1, 2))
    cells = sum(grid.size(s) for s in supports)
    misfit = Misfit(grid, supports, np.arange(cells), np.array([1, 2]))
    agreement = Agreement(Stumps(("a", "b")), as_expr("c"))
    view = narrowed(Exact(dd.Table(columns(20), SCHEMA)), ("b", "a", "c"))
    pair = Conjunctions(("a", "b"), 2)
    truths = np.random.default_rng(0).random((4, pair.size(SCHEMA))) < 0.5
    return [
        *(Agreement(kind, as_expr("c")) for kind in CLASSES),
        misfit,
        GatedScores(agreement, as_expr("age > 30")),
        Shifted(agreement, np.arange(compile_query(agreement.statistics(SCHEMA), SCHEMA, level=True).dimension)),
        Seen(agreement, view.schema, view),
        Databases(pair, truths, 3, 20),
        Misfits(pair, np.arange(pair.size(SCHEMA))),
    ]


@pytest.mark.parametrize("index", range(len(scores())))
def test_scores_come_back_as_they_were(index):
    """Same statistics, same tally of the same totals, same sensitivity."""
    given = scores()[index]
    oracle = Exact(dd.Table(columns(20), SCHEMA))
    read = candidates_of(json.loads(json.dumps(given.to_json())), oracle)
    assert read.to_json() == given.to_json()
    assert read.statistics(SCHEMA).to_json() == given.statistics(SCHEMA).to_json()
    for neighbours in ("replace", "add-remove"):
        assert read.sensitivity(neighbours) == given.sensitivity(neighbours)
    totals = np.asarray(oracle.ask(given.statistics(SCHEMA)).total).ravel().astype(np.int64)
    np.testing.assert_array_equal(read.tally(SCHEMA, totals), given.tally(SCHEMA, totals))


def agreement(kind, **fields):
    return {"agreement": {"class": {"kind": kind, **fields}, "target": {"col": "c"}}}


STUMPS = {"kind": "Stumps", "columns": ["a"], "edges": []}
ONE = {"agreement": {"class": STUMPS, "target": {"col": "a"}}}
NINE_TIMES = {"op": "mul", "args": [{"col": "age"}, {"lit": 9}]}
LIES = [
    agreement("Conjunctions", columns=["a", "a"], width=2, edges=[]),
    agreement("Conjunctions", columns=["a", "A"], width=2, edges=[]),
    agreement("Conjunctions", columns=["a", "b"], width=-1, edges=[]),
    agreement("Conjunctions", columns=["a", "b"], width=True, edges=[]),
    agreement("Conjunctions", columns="ab", width=1, edges=[]),
    agreement("Thresholds", column="age", cuts=[50, 10], both=True),
    agreement("Subset", whole=STUMPS, kept=[0, 99], because=""),
    agreement("Subset", whole=STUMPS, kept=[-1], because=""),
    agreement("__class__"),
    {"misfit": {"columns": ["a", "b"], "edges": {}, "supports": [[0, 0]], "expected": "", "penalties": ""}},
    {"misfit": {"columns": ["a", "a"], "edges": {}, "supports": [[0]], "expected": "", "penalties": ""}},
    {"misfit": {"columns": ["a"], "edges": {}, "supports": [[0]], "expected": "AAAA", "penalties": "!"}},
    {"seen": {"scores": ONE, "schema": {"a": {"type": "category", "values": ["p"]}}, "columns": {"a": {"col": "sex"}}}},
    {"seen": {"scores": ONE, "schema": {"a": {"type": "flag"}}, "columns": {"a": NINE_TIMES}}},
    {"databases": {"class": STUMPS, "truths": "", "points": 4, "size": 2, "rows": 9}},
    {"misfits": {"class": STUMPS, "estimates": ""}},
    {"shifted": {"of": {"shifted": {"of": {}, "offsets": ""}}, "offsets": ""}},
]


@pytest.mark.parametrize("index", range(len(LIES)))
def test_scores_that_could_break_their_promise_are_refused(index):
    with pytest.raises(BadQuery):
        candidates_of(LIES[index], Exact(dd.Table(columns(20), SCHEMA)))
