"""Plans of boxes, halfspaces and small databases: free, and true of what is then released."""

import numpy as np
import pytest

from dodona import release
from dodona.bounds import Outcome
from dodona.concepts.concept import Finite
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.set_functions import Disjunctions
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.graphs import distinct_edges, edge_table
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Integer, Real, Schema
from dodona.release.weights import rounds_needed
from dodona.testing.oracles import seeded_curator

SCHEMA = Schema({"x": Integer(0, 15), "y": Integer(0, 7), "u": Real(-1, 1), "v": Real(-1, 1), "f": Flag()})
CLASS = Finite.of(["x >= 8", "f", "f AND x < 3"])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    whole = {"x": rng.integers(0, 16, 4000), "y": rng.integers(0, 8, 4000), "f": rng.random(4000) < 0.4}
    return Table({**whole, "u": rng.uniform(-1, 1, 4000), "v": rng.uniform(-1, 1, 4000)}, SCHEMA, name="t")


def curator(table, epsilon=1, **more):
    return seeded_curator(table, Budget(epsilon=epsilon, **more), 3)


def test_boxes(table):
    oracle = curator(table)
    (plan,) = release.plan_boxes(oracle, ["x", "y"], e=0.2, share=1)
    assert plan.feasible
    assert float(plan.cost.epsilon) == pytest.approx(1)
    assert plan.rows_needed == pytest.approx(plan.error / 0.2, abs=1)
    assert oracle.left == 1  # nothing was spent
    (half,) = release.plan_boxes(oracle, ["x", "y"], e=0.2, share="0.5")
    assert half.error == pytest.approx(2 * plan.error, rel=0.1)
    (fine,) = release.plan_boxes(oracle, ["x", "y"], e=0.001, share=1)
    assert fine.outcome is Outcome.INFEASIBLE
    assert fine.rows_needed > 4000
    made = release.boxes(oracle, ["x", "y"], share=1)
    assert made.body.deviation >= plan.details["rows off, root mean square"]  # what shrinkage changed comes on top


def test_halfspaces(table):
    oracle = curator(table, 4)
    model, theorem = release.plan_halfspaces(oracle, ["u", "v"], e=0.1, share=1, probes=40)
    assert model.outcome is Outcome.VACUOUS
    assert 0 < model.error < 4000
    assert model.details["probes"] == 40
    assert "6.5" in theorem.theorem
    assert not theorem.feasible
    assert oracle.left == 4


@pytest.mark.parametrize(("size", "words"), [(3, "selection"), (500, "iterative")])
def test_small_database(table, size, words):
    oracle = curator(table)
    own, theorem = release.plan_small_database(oracle, CLASS, size=size, e=0.7, share=1)
    assert own.method == words
    assert "3.1" in theorem.theorem
    assert oracle.left == 1
    made = release.small_database(oracle, CLASS, size=size, share=1)
    if words == "selection":
        assert own.feasible
        assert made.body.margin <= own.error + 1
    else:
        assert made.body.margin >= own.details["rows off by the certificate"] / 2  # the mechanism may beat its bound
        assert own.outcome is Outcome.VACUOUS
    strict = release.plan_small_database(curator(table), CLASS, size=size, e=0.01, share=1)[0]
    assert not strict.feasible


def test_concentrated_budgets_have_no_pure_theorem(table):
    oracle = curator(table, delta=1e-6)
    assert len(release.plan_small_database(oracle, CLASS, size=3, e=0.7, share=0.9)) == 1
    whole, theorem = release.plan_small_database(oracle, CLASS, size=3, e=0.7, share=1)  # one selection, so purely
    assert (whole.cost.epsilon, "3.1" in theorem.theorem) == (oracle.budget.epsilon, True)
    assert len(release.plan_halfspaces(oracle, ["u", "v"], e=0.1, share=1, probes=20)) == 1
    assert release.plan_boxes(oracle, ["x", "y"], e=0.2, share=1)[0].cost.epsilon is None


def test_odd_wishes_are_refused(table):
    for e in (0, 1, True):
        with pytest.raises(BadEffort, match="e must"):
            release.plan_boxes(curator(table), ["x", "y"], e=e, share=1)
    private = Table({"x": [1], "y": [1], "u": [0.0], "v": [0.0], "f": [True]}, SCHEMA, neighbours="add-remove")
    with pytest.raises(Unsupported, match="public number"):
        release.plan_boxes(curator(private), ["x", "y"], e=0.1, share=1)
    with pytest.raises(BadQuery, match="bits"):
        release.boxes(Exact(table), ["x", "y"], bits=[3])
    with pytest.raises(BadQuery, match="rounds"):
        release.small_database(Exact(table), CLASS, size=500, rounds=0)


def test_a_synopsis_is_evaluated_by_who_holds_the_data(table):
    synopsis = release.small_database(curator(table), CLASS, size=500, share=1)
    found = synopsis.evaluate(Exact(table), CLASS)
    assert found.members == 3
    assert found.worst * 4000 <= synopsis.body.margin
    assert "NOT PRIVATE" in str(found)
    oracle = curator(table)
    for noisy in (oracle, synopsis):
        with pytest.raises(Unsupported, match="Exact"):
            synopsis.evaluate(noisy, CLASS)
    assert oracle.left == 1


def test_above_its_stated_confidence_a_table_promises_nothing(table):
    synopsis = release.small_database(curator(table), CLASS, size=500, share=1)
    assert synopsis.ask("f", confidence=0.99).margin >= 4000 > synopsis.ask("f").margin


def test_public_names_are_functions_whatever_was_imported_before():
    from dodona.release.boxes import boxes

    for _ in range(2):
        assert release.boxes is boxes
        assert all(callable(getattr(release, name)) for name in dir(release))


def test_cuts_foresee_their_error_where_the_number_of_edges_is_public():
    rng = np.random.default_rng(0)
    pairs = distinct_edges(rng.integers(0, 60, (900, 2)))
    stated = edge_table(pairs, vertices=60, rows=len(pairs))
    oracle = seeded_curator(stated, Budget(epsilon=2), 1)
    (plan,) = release.plan_cuts(oracle, share=1)
    assert oracle.left == 2
    made = release.cuts(oracle, share=1)
    assert plan.method == made.header.method
    halves = [rng.permutation(60)[:30] for _ in range(200)]
    u, v = pairs.T
    off = [abs(made.body.cut(half) - np.sum(np.isin(u, half) != np.isin(v, half))) for half in halves]
    assert np.mean(off) == pytest.approx(plan.error, rel=0.4)
    (blind,) = release.plan_cuts(seeded_curator(edge_table(pairs, vertices=60), Budget(epsilon=2), 1), share=1)
    assert (blind.error, blind.outcome) == (None, Outcome.VACUOUS)
    assert "counted first" in blind.why


def test_a_parity_is_foreseen_as_it_comes_out(table):
    oracle = curator(table, epsilon=8)
    plan = release.plan_parity(oracle, ["f", "x >= 8", "u > 0"], share="1/2")
    assert oracle.left == 8
    value, off = release.parity(oracle, ["f", "x >= 8", "u > 0"], share="1/2")
    assert off == pytest.approx(plan.error)
    truth = release.parity(Exact(table), ["f", "x >= 8", "u > 0"])[0]
    assert abs(value - truth) <= plan.error
    assert plan.feasible
    assert not release.plan_parity(oracle, ["f"] * 9, epsilon="1/100").feasible


def test_weights_as_printed_say_that_a_round_gets_too_little(table):
    oracle, concepts = curator(table), Conjunctions.over(("f",), 1)
    (printed,) = release.plan_multiplicative_weights(oracle, concepts, beta=0.1, share=1)
    assert printed.outcome is Outcome.VACUOUS
    assert printed.details["rounds"] == rounds_needed(3, 0.1)
    (few,) = release.plan_multiplicative_weights(oracle, concepts, beta=0.4, rounds=2, share=1)
    assert few.feasible
    assert few.rows_needed < 4000 < printed.rows_needed
    assert few.error == 0.4 * 4000
    assert oracle.left == 1


def test_a_submodular_tree_states_its_threshold_and_the_theorem(table):
    schema = Schema({name: Flag(missing=False) for name in "abc"})
    flags = Table({name: np.arange(1000) % k == 0 for name, k in zip("abc", (2, 3, 5), strict=True)}, schema)
    oracle = seeded_curator(flags, Budget(epsilon=4), 0)
    own, theorem = release.plan_submodular(oracle, Disjunctions.of(schema, "abc", both=True), pieces=8, share=1)
    assert own.error == pytest.approx(0.25 * 1000 + own.details["rows off by noise"])
    assert "3.5" in theorem.theorem
    tree, _ = release.plan_conjunctions(oracle, width=2, method="submodular", share=1)
    assert (tree.method, oracle.left) == ("submodular", 4)


def test_nets_foresee_the_noise_of_their_answers(table):
    oracle = curator(table, epsilon=4)
    (plan,) = release.plan_halfspace_nets(oracle, ["u", "v"], share=1)
    made = release.halfspace_nets(oracle, ["u", "v"], share=1)
    assert made.body.deviation == pytest.approx(plan.details["noise, of the rows"])
    for dimension in (10**9, 1, 2.0, True):  # refused before anything of that size is made
        with pytest.raises(BadQuery, match="dimension from 2 to"):
            release.plan_halfspace_nets(oracle, ["u", "v"], dimension=dimension, share=1)
