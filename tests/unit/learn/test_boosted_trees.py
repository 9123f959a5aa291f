"""Boosted trees: what a linear model cannot draw, the linear model alone where leaves would be noise, and the price."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dodona as dd
from dodona.errors import BadQuery
from dodona.learn import BoostedTrees, LogisticRegression
from dodona.learn.boosted_trees import RandomTree, Stump, _chosen
from dodona.query.expr import Column, Literal
from dodona.testing import seeded_curator

SCHEMA = dd.Schema(
    {
        "u": dd.Real(-1, 1),
        "v": dd.Real(-1, 1),
        "kind": dd.Category("a", "b", "c"),
        "left": dd.Flag(),
        "label": dd.Category("no", "yes"),
    }
)


def crossed(rows: int, seed: int = 1) -> dict[str, np.ndarray]:
    """yes where u and v have one sign: no line tells that."""
    random = np.random.default_rng(seed)
    u, v = random.uniform(-1, 1, (2, rows))
    kind, left = random.choice(["a", "b", "c"], rows), random.random(rows) < 0.5
    return {"u": u, "v": v, "kind": kind, "left": left, "label": np.where(u * v > 0, "yes", "no")}


def right(model: object, held: dict[str, np.ndarray]) -> float:
    return float(np.mean(model.predict(_frame(held)) == held["label"]))  # type: ignore[attr-defined]


def _frame(held: dict[str, np.ndarray]) -> pd.DataFrame:
    return pd.DataFrame({name: values for name, values in held.items() if name != "label"})


def test_trees_tell_what_no_line_tells() -> None:
    table, fresh = dd.Table(crossed(2500), SCHEMA), crossed(2000, 2)
    budget = dd.Budget(epsilon=4, delta=1e-6)
    line = LogisticRegression(max_iter=5).fit(seeded_curator(table, budget, 3), y="label")
    trees = BoostedTrees(n_estimators=16, learning_rate=1.0).fit(seeded_curator(table, budget, 3), y="label")
    assert right(line, fresh) < 0.6
    assert right(trees, fresh) > 0.75
    assert "16 trees of 8 leaves" in str(trees)
    np.testing.assert_allclose(trees.predict_proba(_frame(fresh)).sum(axis=1), 1.0)


def test_where_leaves_would_be_noise_all_goes_to_the_linear_model() -> None:
    table = dd.Table(crossed(150), SCHEMA)
    curator = seeded_curator(table, dd.Budget(epsilon=0.5, delta=1e-6), 4)
    model = BoostedTrees().fit(curator, y="label")
    assert model.trees_ == []
    assert "a linear model alone" in str(model)
    assert model.cost_.share == pytest.approx(1, abs=1e-6)


def test_each_tree_is_one_question_and_the_plan_says_how_many() -> None:
    table = dd.Table(crossed(4000), SCHEMA)
    curator = seeded_curator(table, dd.Budget(epsilon=1, delta=1e-6), 5)
    outlook = BoostedTrees(n_estimators=8, share="1/2").plan(curator, y="label")
    trees = outlook.parts[-1]
    assert (trees.what, trees.times) == ("residuals by leaf", 8)
    assert trees.share == pytest.approx(0.25)
    assert curator.ledger.spent() == 0
    model = BoostedTrees(n_estimators=8, share="1/2").fit(curator, y="label")
    assert len(model.trees_) == 8
    assert curator.ledger.spent() <= curator.budget.capacity // 2 + 100


def test_a_leaf_holds_the_sum_of_its_rows() -> None:
    """The tree as a row expression and as it is applied to rows one holds are one."""
    held = crossed(500)
    names = ["u", "v"]
    stumps = (Stump(0, 0.25), Stump(1, -0.5))
    tree = RandomTree(stumps, np.zeros((4, 1)))
    leaf = _chosen(stumps, [Literal(float(i)) for i in range(4)], tuple(map(Column, names)))
    exact = dd.Exact(dd.Table(held, SCHEMA))
    counted = np.bincount(tree.leaves(np.column_stack([held[name] for name in names])), minlength=4)
    found = [float(exact.ask(f"({leaf}) = {i}").total) for i in range(4)]
    assert found == counted.tolist()


@pytest.mark.parametrize("wrong", [{"n_estimators": -1}, {"max_depth": 0}, {"learning_rate": 0}])
def test_settings_without_a_meaning_are_refused(wrong: dict[str, float]) -> None:
    curator = seeded_curator(dd.Table(crossed(500), SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 6)
    with pytest.raises(BadQuery, match="learning_rate"):
        BoostedTrees(**wrong).fit(curator, y="label")
    assert curator.ledger.spent() == 0
