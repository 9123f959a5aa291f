"""What fit was handed becomes one task; what it costs is remembered."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dodona.learn as rooms
from dodona.errors import BadEffort, BadQuery
from dodona.learn._learner import Recorded, Spent, rounds, task_of
from dodona.learn.logistic import LogisticRegression
from dodona.learn.pca import PCA
from dodona.learn.perceptron import Perceptron
from dodona.oracles.curator import Curator
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Real
from dodona.testing.oracles import conformance_table, seeded_curator


def test_from_an_oracle() -> None:
    task = task_of(PCA(share=0.5), Exact(conformance_table()))
    assert task.share == Fraction(1, 2)
    assert task.names == ("age", "sex", "smoker", "income")
    assert [feature.name for feature in task.features] == ["age", "sex=Female", "sex=Male", "smoker", "income"]
    assert task.rows == 2000


def test_a_target_is_left_out_of_the_features() -> None:
    task = task_of(PCA(), Exact(conformance_table()), "SEX", kind="class")
    assert task.target == "sex"
    assert task.classes == ("Female", "Male")
    assert "sex" not in task.names
    with pytest.raises(BadQuery, match="must name a column"):
        task_of(PCA(), Exact(conformance_table()), "nope", kind="class")
    with pytest.raises(BadQuery, match="is a number"):
        task_of(PCA(), Exact(conformance_table()), "age", kind="class")


def test_from_arrays_and_frames() -> None:
    rows = np.random.default_rng(0).uniform(size=(30, 2))
    model = PCA(epsilon=1, delta=1e-6, bounds=([0, -1], [1, 2]))
    task = task_of(model, rows)
    assert isinstance(task.oracle, Curator)
    assert task.oracle.schema == {"x0": Real(0, 1, missing=0.5), "x1": Real(-1, 2, missing=0.5)}
    framed = task_of(model, pd.DataFrame(rows, columns=["a", "b"]))
    assert framed.names == ("a", "b")
    assert not model.from_oracle_


@pytest.mark.parametrize("bounds", [(0,), 5, "ab", ([0, 1, 2], 3), (None, 1)])
def test_bad_bounds(bounds: object) -> None:
    with pytest.raises(BadEffort, match="bounds"):
        task_of(PCA(epsilon=1, bounds=bounds), np.zeros((4, 2)))


def test_a_private_number_of_rows_is_refused() -> None:
    table = conformance_table(neighbours="add-remove")
    table._stated = None
    curator = Curator(table, Budget(epsilon=1, delta=1e-6))
    with pytest.raises(BadEffort, match="number of rows"):
        PCA(1).fit(curator)
    assert curator.left == float(curator.budget.total)


def test_recorded_keeps_every_bill() -> None:
    oracle = Recorded(seeded_curator(conformance_table(), Budget(epsilon=1, delta=1e-6), seed=0), "bills")
    oracle.ask("age >= 65", share=0.1)
    oracle.price("age >= 65", share=0.5)
    oracle.select(["smoker", "age >= 65"], share=0.2)
    spent = Spent.of(oracle.bills)
    assert spent.questions == 2
    assert spent.share == pytest.approx(0.3, abs=1e-6)
    assert spent.unit == "rho"
    assert "2 questions" in str(spent)
    assert "free" in str(Spent.of(()))


def test_summary_before_and_after() -> None:
    model = PCA(1)
    assert "not fitted" in model.summary()
    model.fit(Exact(conformance_table()))
    assert "cost: free" in str(model)
    assert repr(model) == "PCA(n_components=1)"


def test_a_fit_says_in_one_line_what_it_promises() -> None:
    """All of a budget is its epsilon; parts of it say their own, at its delta; what is free says that."""
    rows = np.random.default_rng(1).uniform(-1, 1, (2000, 2))
    whole = PCA(1, epsilon=0.7, delta=1e-6, bounds=(-1, 1)).fit(rows)
    assert (whole.epsilon_, whole.delta_) == (pytest.approx(0.7, abs=1e-6), 1e-6)
    assert whole.epsilon_ <= 0.7
    pure = PCA(1, epsilon=0.7, bounds=(-1, 1)).fit(rows)
    assert (pure.epsilon_, pure.delta_) == (pytest.approx(0.7), 0.0)
    curator = seeded_curator(conformance_table(), Budget(epsilon=1, delta=1e-6), seed=0)
    part = LogisticRegression(share=0.1).fit(curator, y="smoker")
    assert 0.1 < part.epsilon_ < 0.5  # a tenth of rho is about a third of epsilon
    said = f"LogisticRegression of smoker: epsilon {part.epsilon_:.3g} at delta 1e-06, 10% of the budget, "
    assert part.summary_ == f"{said}{part.cost_.questions} questions"
    exactly = seeded_curator(conformance_table(), Budget(epsilon=1, delta=1e-6, accountant="gaussian"), seed=0)
    counted = LogisticRegression(share=0.1).fit(exactly, y="smoker")
    assert counted.cost_.unit == "mu^2"
    assert (counted.epsilon_, counted.delta_) == (pytest.approx(part.epsilon_, rel=0.1), 1e-6)
    assert "at delta 1e-06" in counted.summary_
    free = PCA(1).fit(Exact(conformance_table()))
    assert (free.epsilon_, free.summary_) == (0.0, f"PCA: nothing spent, {free.cost_.counted}")


def test_public_names_are_lazy_and_all_listed() -> None:
    assert rooms.PCA is PCA
    assert set(rooms.__all__) == set(dir(rooms))
    with pytest.raises(AttributeError, match="Nope"):
        _ = rooms.Nope


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(rounds(3, "test")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


CLASSIFIERS = [
    *(rooms.AgnosticLearner, rooms.CompressionLearner, rooms.GaussianNB, rooms.ID3, rooms.LogisticRegression),
    *(rooms.ParityLearner, Perceptron, rooms.ConjunctionLearner, rooms.DecisionListLearner, rooms.WeakLearner),
]


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_no_label_of_a_row_is_ever_shown_by_classes_(kind: type) -> None:
    """A label that one row alone has must be stated by someone who knows it, not found in the data."""
    rows = np.random.default_rng(0).integers(0, 2, (200, 2)).astype(float)
    target = np.array(["ill"] * 100 + ["well"] * 99 + ["the one with kuru"])
    model = kind(epsilon=1, bounds=(0, 1))
    with pytest.raises(BadEffort, match=rf"{kind.__name__}\(classes=\[0, 1\], \.\.\.\)") as refusal:
        model.fit(rows, target)
    assert "kuru" not in str(refusal.value)
    assert not hasattr(model, "classes_")
    common = np.where(target == "ill", "ill", "well")
    assert str(_refusal(kind, rows, common)) == str(refusal.value)


def _refusal(kind: type, rows: np.ndarray, target: np.ndarray) -> BadEffort:
    with pytest.raises(BadEffort) as refusal:
        kind(epsilon=1, bounds=(0, 1)).fit(rows, target)
    return refusal.value


@pytest.mark.parametrize("labels", [["well", "ill"], [2, 7], [False, True], np.array(["x", 1], dtype=object)])
def test_a_label_that_is_not_listed_is_missing(labels: list[object]) -> None:
    rows = np.zeros((6, 1))
    target = np.array([labels[i] for i in (0, 1, 1, 0, 1, 0)], dtype=np.asarray(labels).dtype)
    for stated, codes in ((labels, [0, 1, 1, 0, 1, 0]), (labels[::-1], [1, 0, 0, 1, 0, 1])):
        model = Perceptron(epsilon=1, delta=1e-6, bounds=(-1, 1), classes=stated)
        task = task_of(model, rows, target, kind="class")
        assert model.classes_.tolist() == list(stated)
        found = [int(Exact(task.oracle._table).ask(f"target = {code}").total) for code in (0, 1)]
        assert found == [codes.count(0), codes.count(1)]
    one = task_of(Perceptron(epsilon=1, delta=1e-6, bounds=(-1, 1), classes=labels[:1]), rows, target, kind="class")
    assert int(Exact(one.oracle._table).ask("target IS NULL").total) == 3


@pytest.mark.parametrize("other", ["x", None, 0.5, 2**70, [1], (1, [2]), b"0", True])
def test_one_label_does_not_decide_what_the_others_are(other: object) -> None:
    """NumPy finds one type for a list: beside one text all numbers would be texts, and no label be listed."""
    points = np.zeros((4, 2))
    learner = Perceptron(epsilon=1, bounds=(-1, 1), classes=[0, 1, 2**53 + 1])
    task = task_of(learner, points, [0, 1, 2**53 + 1, other], kind="class")
    exact = Exact(task.oracle._table)  # type: ignore[attr-defined]
    labels = [int(exact.ask(f"target = {code}").total) for code in range(3)]
    assert labels == [1, 1 + (other is True), 1]


@pytest.mark.parametrize("classes", [[], [0, 0], [[0, 1]], "ab", 3])
def test_classes_must_be_labels_that_differ(classes: object) -> None:
    with pytest.raises(BadEffort, match="labels that differ"):
        Perceptron(epsilon=1, delta=1e-6, bounds=(-1, 1), classes=classes).fit(np.zeros((4, 1)), [0, 1, 0, 1])


def test_epsilon_of_arrays_is_not_passed_over_where_an_oracle_has_a_budget() -> None:
    """It was, and the fit then used all of the oracle's budget."""
    table = conformance_table(200)
    curator = seeded_curator(table, Budget(epsilon=2), 1)
    with pytest.raises(BadEffort, match=r"state share=, the part of the budget .* Got epsilon=1\."):
        PCA(epsilon=1).fit(curator.select_columns("age"))
    assert curator.ledger.spent() == 0
