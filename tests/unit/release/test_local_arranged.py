"""One vector query, then a whole class: the same code on exact, trusted and local oracles; margins and files."""

import itertools

import numpy as np
import pytest

from dodona import release
from dodona.concepts.arrangement import monomial
from dodona.concepts.boxes import Boxes
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.trees import DecisionLists
from dodona.engines.table import Table
from dodona.errors import BadQuery, BudgetSpent, Unsupported
from dodona.oracles.exact import Exact
from dodona.oracles.local import Local
from dodona.privacy.budget import Budget
from dodona.query.expr import Column
from dodona.query.schema import Category, Flag, Integer, Schema
from dodona.query.statistic import Stack, Value
from dodona.synopses import load
from dodona.testing.oracles import SeededBits, seeded_curator

NAMES = tuple(f"b{i}" for i in range(6))
SCHEMA = Schema({**dict.fromkeys(NAMES, Flag(missing=False)), "c": Category("x", "y", "z"), "n": Integer(0, 9)})


def table(rows=20_000):
    rng = np.random.default_rng(0)
    columns = {name: rng.random(rows) < 0.2 + 0.1 * i for i, name in enumerate(NAMES)}
    columns["b1"] = columns["b0"] ^ (rng.random(rows) < 0.1)
    return Table(
        {**columns, "c": np.array(["x", "y", "z"])[rng.integers(0, 3, rows)], "n": rng.integers(0, 10, rows)},
        SCHEMA,
        name="rows",
    )


def oracles():
    local = Local(table(), 2)
    local._bits = SeededBits(1)
    return {
        "exact": Exact(table()),
        "curator": seeded_curator(table(), Budget(epsilon=1, delta="1e-6"), 1),
        "local": local,
    }


@pytest.mark.parametrize("kind", ["exact", "curator", "local"])
def test_every_conjunction_is_answered_without_bias(kind):
    concepts = Conjunctions.over([*NAMES, "c"], 2)
    oracle, truth = oracles()[kind], Exact(table())
    (plan,) = release.plan_arrangement(oracle, concepts, share=1)
    synopsis = release.arrangement(oracle, concepts, share=1)
    members = [concepts.member(SCHEMA, i) for i in range(1, concepts.size(SCHEMA))]
    query = Stack(tuple(map(Value, members)))
    off = np.asarray(synopsis.ask(query).mean) - np.asarray(truth.ask(query).mean)
    margin = np.asarray(synopsis.ask(query).margin) / 20_000
    if kind == "exact":
        np.testing.assert_allclose(off, 0, atol=1e-9)
        return
    assert np.mean(np.abs(off) <= margin) > 0.9  # at 95 %, of members whose errors go together
    # Opposites of flags are members of the plan's average, values of a category have no opposite here: about equal.
    assert np.sqrt(np.mean(off**2)) == pytest.approx(plan.error, rel=0.4)
    assert synopsis.ask("NOT b0 AND c = 'y'").cost.unit == "nothing"
    with pytest.raises(Unsupported, match="c may be missing"):
        synopsis.ask("b0 AND NOT c = 'y'")
    with pytest.raises(Unsupported, match="at most 2"):
        synopsis.ask("n > 4")


def test_it_is_a_file(tmp_path):
    synopsis = release.arrangement(Exact(table()), Conjunctions.over(NAMES, 2), share=1)
    synopsis.save(tmp_path / "a.synopsis")
    again = load(tmp_path / "a.synopsis")
    assert again.ask("b0 AND NOT b3").mean == synopsis.ask("b0 AND NOT b3").mean
    assert "conjunctions of at most 2" in str(again)


def test_wide_members_are_answered_by_margins_on_random_databases():
    """Definition 5: rows uniform among those where f is true (a fraction omega) and false."""
    k, n = 6, 40_000
    rng = np.random.default_rng(3)
    literals = tuple((i, i % 2 == 0) for i in range(k))
    rule = monomial(literals)
    points = np.array(list(itertools.product((False, True), repeat=k)))
    true = np.array([rule.holds(point) for point in points])
    member = " AND ".join(name if wanted else f"NOT {name}" for name, (_, wanted) in zip(NAMES, literals, strict=True))
    schema = Schema(dict.fromkeys(NAMES, Flag(missing=False)))
    for omega in (0.0, 0.35, 1.0):
        ones = round(omega * n)
        rows = np.concatenate(
            [points[true][rng.integers(0, true.sum(), ones)], points[~true][rng.integers(0, (~true).sum(), n - ones)]]
        )
        made = Table({name: rows[:, i] for i, name in enumerate(NAMES)}, schema, name="random")
        oracle = Local(made, 3)
        oracle._bits = SeededBits(5)
        synopsis = release.arrangement(oracle, DecisionLists.over(NAMES, 2), share=1)
        answer = synopsis.ask(member)
        assert answer.mean == pytest.approx(omega, abs=0.06)


def test_boxes_have_an_arrangement():
    concepts = Boxes.over({"n": [3, 6]})
    synopsis = release.arrangement(Exact(table()), concepts, order=2, share=1)
    assert synopsis.ask("n >= 3 AND n < 6").mean == pytest.approx(Exact(table()).ask("n >= 3 AND n < 6").mean)


def test_bad_input_is_refused():
    exact = Exact(table())
    with pytest.raises(BadQuery, match="order"):
        release.arrangement(exact, Conjunctions.over(NAMES, 2), order=99, share=1)
    wide = Schema(dict.fromkeys([f"w{i}" for i in range(400)], Flag()))
    many = Table({name: [True] for name in wide}, wide, name="wide")
    with pytest.raises(BadQuery, match="too many"):
        release.arrangement(Exact(many), Conjunctions.over(tuple(wide), 3), share=1)
    local = Local(table(), 1)
    release.arrangement(local, Conjunctions.over(NAMES, 2), share=0.7)
    with pytest.raises(BudgetSpent):
        release.arrangement(local, Conjunctions.over(NAMES, 2), share=0.7)
    body = release.arrangement(exact, Conjunctions.over(NAMES, 1), share=1).body
    assert body.fraction(Column("b0"))[0] == pytest.approx(exact.ask("b0").mean)
