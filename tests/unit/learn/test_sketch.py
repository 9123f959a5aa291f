"""A sketch of the rows: drawn where the rows are, with the chances of a model; trees are planned on its decisions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import dodona as dd
from dodona.learn import ID3, id3
from dodona.learn._learner import Recorded, task_of
from dodona.learn.id3.leaves import Sketch, sketched
from dodona.testing import seeded_curator

SCHEMA = dd.Schema({"a": dd.Real(0, 10), "b": dd.Real(-2, 2), "c": dd.Category("no", "yes")})


def table(rows: int = 4000) -> tuple[np.ndarray, dd.Table]:
    """Correlated columns that fill a part of their ranges; the class is decided by the first."""
    rng = np.random.default_rng(0)
    a = np.clip(rng.normal(6, 1, rows), 0, 10)
    b = np.clip(0.3 * (a - 6) + 0.2 * rng.normal(size=rows), -2, 2)
    held = {"a": a, "b": b, "c": np.where(a > 6.5, "yes", "no")}
    return np.stack([(a - 5) / 5, b / 2], axis=1), dd.Table(held, SCHEMA)


def test_drawn_rows_lie_where_the_rows_do() -> None:
    scaled, held = table()
    curator = seeded_curator(held, dd.Budget(epsilon=2, delta=1e-6), 0)
    task = task_of(ID3(), curator, "c", kind="class")
    oracle = Recorded(curator, "sketch")
    rows, chances, decided = sketched(oracle, task, Fraction(1, 2))
    np.testing.assert_allclose(rows.mean(axis=0), scaled.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(np.cov(rows.T), np.cov(scaled.T), atol=0.02)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    yes = task.classes.index("yes")
    assert np.mean((decided == yes) == (rows[:, 0] * 5 + 5 > 6.5)) > 0.9
    spent = sum(bill.share for bill in oracle.bills)
    assert spent == pytest.approx(0.5, rel=1e-6)
    assert spent <= 0.5


@pytest.mark.parametrize(("low", "leaves"), [(0.6, 1), (0.2, 2)])
def test_trees_are_planned_on_decisions(monkeypatch: pytest.MonkeyPatch, low: float, leaves: int) -> None:
    """A chance of 0.6 here and 0.9 there is one answer and no split; 0.2 and 0.9 are two."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (4000, 2))
    first = np.where(rows[:, 0] < 0, 0.9, low)
    chances = np.stack([first, 1 - first], axis=1)
    monkeypatch.setattr(id3, "sketched", lambda *_: Sketch(rows, chances, chances.argmax(axis=1)))
    held = rng.uniform(-1, 1, (900, 2))
    model = ID3(epsilon=0.5, delta=1e-6, bounds=(-1, 1), classes=[0, 1])
    monkeypatch.setattr(id3, "decide_classes", lambda *_: None)
    model.fit(held, (held[:, 0] > 0).astype(int))
    assert model.get_n_leaves() == leaves
    assert model.tree_.chances[0] == pytest.approx(first.mean(), abs=1e-3)
