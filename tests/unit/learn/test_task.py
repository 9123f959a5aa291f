"""What fit was handed becomes one task; what it costs is remembered."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dodona.learn as rooms
from dodona.errors import BadEffort, BadQuery, PublicLabels
from dodona.learn.base import Recorded, Spent
from dodona.learn.pca import PCA
from dodona.learn.perceptron import Perceptron
from dodona.learn.progress import rounds
from dodona.learn.task import task_of
from dodona.privacy.budget import Budget
from dodona.query.schema import Real
from dodona.testing.oracles import conformance_table, seeded_curator
from dodona.trust.curator import Curator
from dodona.trust.exact import Exact


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
    oracle = Recorded(seeded_curator(conformance_table(), Budget(epsilon=1, delta=1e-6), seed=0))
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


def test_public_names_are_lazy_and_all_listed() -> None:
    assert rooms.PCA is PCA
    assert set(rooms.__all__) == set(dir(rooms))
    with pytest.raises(AttributeError, match="Nope"):
        _ = rooms.Nope


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(rounds(3, "test")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_labels_read_from_y_are_published_with_a_warning_unless_stated() -> None:
    rng = np.random.default_rng(0)
    data, target = rng.uniform(-1, 1, (200, 2)), rng.integers(0, 2, 200)
    with pytest.warns(PublicLabels, match=r"classes=\["):
        Perceptron(epsilon=1, delta=1e-6, bounds=(-1, 1)).fit(data, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Perceptron(epsilon=1, delta=1e-6, bounds=(-1, 1), classes=[0, 1]).fit(data, target)
