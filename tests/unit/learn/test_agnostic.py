"""The generic learner as an estimator: from oracles and arrays, what it refuses, and what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dodona.concepts.boxes import Boxes, Thresholds
from dodona.concepts.concept import Agreement, Finite
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.parities import Parities
from dodona.concepts.trees import Trees
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, BudgetSpent
from dodona.learn.agnostic import AgnosticLearner, CompressionLearner, distinct_labelings
from dodona.learn.sq.stat import Hypothesis
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.expr import Column
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.testing.oracles import seeded_curator

SCHEMA = Schema(
    {"age": Integer(0, 99), "pay": Real(0, 10), "sex": Category("Female", "Male"), "smoker": Flag(), "ill": Flag()}
)


def survey(n: int = 4000, seed: int = 0, noise: float = 0.05) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {
        "age": rng.integers(0, 100, n),
        "pay": rng.random(n) * 10,
        "sex": np.array(["Female", "Male"])[rng.integers(0, 2, n)],
        "smoker": rng.random(n) < 0.5,
    }
    rows["ill"] = ((rows["age"] >= 60) & rows["smoker"]) ^ (rng.random(n) < noise)
    return rows


def test_learns_a_box_or_tree_from_a_curator_and_predicts_frames() -> None:
    rows = survey()
    curator = seeded_curator(Table(rows, SCHEMA), Budget(epsilon=1), seed=1)
    concepts = Trees.over(["age", "smoker", "sex"], 2, {"age": [20, 40, 60, 80]})
    learner = AgnosticLearner(concepts, share=0.5).fit(curator, "ill")
    assert learner.cost_.amount == pytest.approx(0.5)
    assert learner.receipt_[0].mechanism == "permute-and-flip"
    frame = pd.DataFrame({name: rows[name] for name in SCHEMA if name != "ill"})
    predicted = learner.predict(frame)
    assert np.mean(predicted == rows["ill"]) > 0.93
    assert set(predicted.tolist()) <= {False, True}
    asked = Exact(Table(rows, SCHEMA)).ask(learner.hypothesis_.condition)
    assert asked.mean == pytest.approx(predicted.mean())
    assert asked.mean == pytest.approx(Exact(Table(rows, SCHEMA)).ask(learner.hypothesis_.sql).mean)
    assert "WHEN" in str(learner)


def test_same_learner_on_exact_and_by_the_exponential_mechanism() -> None:
    rows = survey(noise=0.0)
    concepts = Conjunctions.over(["age", "smoker"], 2, {"age": [0, 60, 99]})
    exact = AgnosticLearner(concepts).fit(Exact(Table(rows, SCHEMA)), "ill")
    assert exact.hypothesis_.sql == "(((age >= 60) AND (age <= 99)) AND smoker)"
    assert str(exact.cost_).startswith("free")
    noisy = AgnosticLearner(concepts, mechanism="exponential").fit(
        seeded_curator(Table(rows, SCHEMA), Budget(epsilon=1), seed=2), "ill"
    )
    assert noisy.hypothesis_ == exact.hypothesis_
    assert noisy.receipt_[0].mechanism == "exponential"


def test_learns_from_arrays_in_a_pipeline_and_clones() -> None:
    rng = np.random.default_rng(3)
    points = rng.random((3000, 2))
    labels = np.where(points[:, 1] > 0.5, "high", "low")
    learner = AgnosticLearner(Thresholds("x1", (0.25, 0.5, 0.75)), epsilon=1, bounds=(0, 1), classes=["high", "low"])
    fitted = make_pipeline(FunctionTransformer(), clone(learner)).fit(points, labels)
    assert fitted.score(points, labels) > 0.99
    default = AgnosticLearner(epsilon=1, bounds=(0, 1), classes=["high", "low"]).fit(points, labels)
    assert default.score(points, labels) > 0.99
    assert default.classes_.tolist() == ["high", "low"]


def test_through_a_view_only_the_view_s_columns_count() -> None:
    rows = survey(noise=0.0)
    view = Exact(Table(rows, SCHEMA)).select_columns("smoker", "age", "ill")
    learner = AgnosticLearner(Trees.over(["age", "smoker"], 2, {"age": [60]})).fit(view, "ill")
    predicted = learner.predict(pd.DataFrame({"age": rows["age"], "smoker": rows["smoker"]}))
    assert np.array_equal(predicted, rows["ill"])
    with pytest.raises(BadQuery, match="not a column"):
        AgnosticLearner(Thresholds("pay", (5.0,))).fit(view, "ill")


def test_constant_and_contradictory_labels_are_learned_like_any_others() -> None:
    for labels in (np.zeros(500, bool), np.ones(500, bool), np.arange(500) % 2 == 0):
        rows = {**survey(500), "ill": labels}
        curator = seeded_curator(Table(rows, SCHEMA), Budget(epsilon=1), seed=4)
        learner = AgnosticLearner(Conjunctions.over(["sex", "smoker"], 2)).fit(curator, "ill")
        assert learner.cost_.amount == pytest.approx(1)


@pytest.mark.parametrize(
    ("concepts", "said"),
    [
        (Thresholds("ill", (0.5,)), "not a column"),
        (Finite.of(["ill"]), "not a column"),
        (Trees.over(["age", "pay"], 3, {"age": list(range(1, 90)), "pay": [1, 2, 3]}), "20,000,000 members"),
        (Thresholds("age", (60.0, 30.0)), "must increase"),
        (Parities.over(["smoker"] * 30), "at most 19 columns"),
        ("conjunctions", "class of dodona.concepts"),
        (Boxes.over({"sex": [1]}), "must be a number"),
    ],
)
def test_bad_classes_are_refused_before_anything_is_charged(concepts: Any, said: str) -> None:
    curator = seeded_curator(Table(survey(50), SCHEMA), Budget(epsilon=1), seed=0)
    with pytest.raises(BadQuery, match=said):
        AgnosticLearner(concepts).fit(curator, "ill")
    assert curator.left == 1


def test_labels_must_be_two_values() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(BadQuery, match="two values"):
        AgnosticLearner(epsilon=1, bounds=(0, 1), classes=[0, 1, 2]).fit(rng.random((30, 2)), np.arange(30) % 3)
    with pytest.raises(BadQuery, match="listed values"):
        AgnosticLearner().fit(Exact(Table(survey(50), SCHEMA)), "age")
    with pytest.raises(BadEffort, match="epsilon="):
        AgnosticLearner(bounds=(0, 1)).fit(rng.random((30, 2)), np.arange(30) % 2)


def test_a_share_that_is_not_left_is_refused() -> None:
    curator = seeded_curator(Table(survey(50), SCHEMA), Budget(epsilon=1), seed=0)
    learner = AgnosticLearner(Conjunctions.over(["sex"], 1), share=0.8)
    learner.fit(curator, "ill")
    with pytest.raises(BudgetSpent):
        learner.fit(curator, "ill")


def test_plan_charges_nothing_and_names_the_theorem() -> None:
    curator = seeded_curator(Table(survey(4000), SCHEMA), Budget(epsilon=1), seed=0)
    learner = AgnosticLearner(Conjunctions.over(["sex", "smoker"], 2))
    verdict = learner.plan(curator, "ill", alpha=0.1)
    assert verdict.feasible
    assert "Theorem 3.4" in str(verdict)
    assert not learner.plan(curator, "ill", alpha=0.001).feasible
    assert curator.left == 1


def test_asking_for_scores_is_refused() -> None:
    curator = seeded_curator(Table(survey(50), SCHEMA), Budget(epsilon=1), seed=0)
    with pytest.raises(BadQuery, match="no totals of its own"):
        curator.ask(Agreement(Conjunctions.over(["sex"], 1), Column("ill")), share=0.1)


def test_distinct_labelings_keep_one_member_for_each_way_to_label_the_domain() -> None:
    concepts = Conjunctions.over(["sex", "smoker"], 2)
    points = {"sex": np.array(["Female", "Male", "Male"]), "smoker": np.array([True, True, True])}
    kept = distinct_labelings(concepts, SCHEMA, points)
    known = Schema({name: SCHEMA[name] for name in points})
    labelings = {tuple(Hypothesis(m, known).predict(points).tolist()) for m in concepts.members(known)}
    own = [tuple(Hypothesis(m, known).predict(points).tolist()) for m in kept.members(known)]
    assert len(own) == len(set(own)) == len(labelings)
    assert kept.size(SCHEMA) < concepts.size(SCHEMA)
    rows = survey(noise=0.0)
    found = AgnosticLearner(kept).fit(Exact(Table({**rows, "ill": rows["smoker"]}, SCHEMA)), "ill")
    assert found.concepts_ == kept


def test_compression_stops_at_the_first_class_that_is_good_enough() -> None:
    rows = survey(8000, noise=0.0)
    classes = [Conjunctions.over(["sex", "smoker", "age"], w, {"age": [0, 60, 99]}) for w in (1, 2, 3)]
    curator = seeded_curator(Table(rows, SCHEMA), Budget(epsilon=1), seed=5)
    learner = CompressionLearner(classes, alpha=0.05).fit(curator, "ill")
    assert learner.rounds_ == 2
    assert learner.stopped_
    assert learner.cost_.amount == pytest.approx(3 / 7)
    assert learner.mistakes_ < 0.02
    short = CompressionLearner(classes, alpha=0.35, share=0.5).fit(curator, "ill")
    assert short.rounds_ == 1
    with pytest.raises(BadQuery, match="at least one class"):
        CompressionLearner().fit(curator, "ill")
