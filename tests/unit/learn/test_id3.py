"""ID3: the gain of the paper without noise, none of it from pure noise, trees that print, plot and predict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dodona as dd
from dodona.errors import BadQuery
from dodona.learn import ID3
from dodona.learn.id3.leaves import split_of
from dodona.testing import seeded_curator

SCHEMA = dd.Schema(
    {
        "age": dd.Integer(0, 99),
        "colour": dd.Category("red", "green", "blue"),
        "smoker": dd.Flag(),
        "risk": dd.Category("low", "high"),
    }
)


def people(rows: int = 8000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age, colour = rng.integers(0, 100, rows), np.array(["red", "green", "blue"])[rng.integers(0, 3, rows)]
    smoker = rng.random(rows) < 0.3
    high = np.where(age >= 50, smoker | (colour == "blue"), colour == "red")
    return pd.DataFrame({"age": age, "colour": colour, "smoker": smoker, "risk": np.where(high, "high", "low")})


def entropy(table: np.ndarray) -> float:
    """|T| H(L|A), in nats."""
    return -sum(n * math.log(n / row.sum()) for row in table for n in row if n > 0)


def test_gain_without_noise_is_the_papers() -> None:
    table = np.array([[30.0, 10.0], [5.0, 25.0], [0.0, 12.0]])
    split = split_of(table, (0, 1, 2), 7, 0.0, False, 2)
    assert split is not None
    assert split.attribute == 7
    assert split.branches == ((0,), (1,), (2,))
    assert split.gain == pytest.approx(entropy(table.sum(axis=0)[None]) - entropy(table))


def test_buckets_are_merged_into_the_best_runs() -> None:
    """Against all ways to cut seven buckets in two."""
    rng = np.random.default_rng(3)
    table = rng.integers(0, 40, (7, 3)).astype(float)
    whole = entropy(table.sum(axis=0)[None])
    best = max(whole - entropy(np.stack([table[:i].sum(axis=0), table[i:].sum(axis=0)])) for i in range(1, 7))
    split = split_of(table, tuple(range(7)), 0, 0.0, True, 2)
    assert split is not None
    assert split.gain == pytest.approx(best)


def test_pure_noise_is_hardly_ever_split() -> None:
    rng = np.random.default_rng(0)
    even = np.full((8, 2), 500.0)
    believed = sum(
        split_of(even + rng.normal(0, 60, (8, 2)), tuple(range(8)), 0, 60.0, False, 2) is not None for _ in range(300)
    )
    assert believed < 60
    told = np.where(np.arange(8)[:, None] < 4, [900.0, 100.0], [100.0, 900.0])
    assert split_of(told + rng.normal(0, 60, (8, 2)), tuple(range(8)), 0, 60.0, True, 2) is not None


def test_negative_counts_have_no_logarithm() -> None:
    table = np.array([[-40.0, 3.0], [200.0, -15.0], [-3.0, -8.0]])
    split = split_of(table, (0, 1, 2), 0, 20.0, True, 3)
    assert split is None or math.isfinite(split.gain)


def test_exact_finds_the_rule() -> None:
    data = people()
    model = ID3(edges={"age": [25, 50, 75]}).fit(dd.Exact(dd.Table(data, SCHEMA)), y="risk")
    assert (model.predict(data.drop(columns="risk")) == data["risk"]).all()
    chances = model.predict_proba(data.drop(columns="risk"))
    np.testing.assert_allclose(chances.max(axis=1), 1.0)
    text = model.export_text()
    assert "age < 50" in text
    assert "smoker in {True}" in text
    assert text.count("class") == model.get_n_leaves()


def test_noise_on_many_rows_changes_little() -> None:
    data = people(20_000)
    curator = seeded_curator(dd.Table(data, SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 0)
    model = ID3(share=0.5).fit(curator, y="risk")
    assert (model.predict(data.drop(columns="risk")) == data["risk"]).mean() > 0.97
    assert model.cost_.share == pytest.approx(0.5, rel=1e-6)
    assert model.cost_.share <= 0.5


def test_where_nothing_can_be_told_it_answers_with_the_majority() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(1000) < 0.2).astype(int)
    points = rng.uniform(-1, 1, (1000, 3))
    model = ID3(epsilon=0.5, delta=1e-6, bounds=(-1, 1), classes=[0, 1])
    found = [np.mean(model.fit(points, y).predict(points) == y) for _ in range(8)]
    assert np.median(found) == pytest.approx(np.mean(y == 0))


def test_few_rows_are_planned_on_a_sketch() -> None:
    data = people(600)
    curator = seeded_curator(dd.Table(data, SCHEMA), dd.Budget(epsilon=0.5, delta=1e-6), 0)
    before = curator.left
    outlook = ID3().plan(curator, y="risk")
    assert any("sketch" in part.what for part in outlook.parts)
    assert curator.left == before
    model = ID3().fit(curator, y="risk")
    assert model.cost_.share == pytest.approx(1.0, rel=1e-6)
    assert np.isfinite(model.predict_proba(data.drop(columns="risk"))).all()


def test_an_unlisted_value_stops_above_the_branches() -> None:
    data = people()
    model = ID3(edges={"age": [50]}).fit(dd.Exact(dd.Table(data, SCHEMA)), y="risk")
    strange = pd.DataFrame({"age": [10, 10], "colour": ["red", "purple"], "smoker": [False, False]})
    assert model.predict(strange).tolist() == ["high", "low"]
    certain, unsure = model.predict_proba(strange)
    assert certain.max() == 1.0
    assert unsure.max() < 1.0


def test_a_missing_number_is_in_the_middle() -> None:
    data = people()
    model = ID3(edges={"age": [25, 75]}).fit(dd.Exact(dd.Table(data, SCHEMA)), y="risk")
    rows = pd.DataFrame({"age": [np.nan, 49.5], "colour": ["red", "red"], "smoker": [False, False]})
    first, second = model.predict_proba(rows)
    np.testing.assert_allclose(first, second)


@pytest.mark.parametrize("settings", [{"max_depth": 0}, {"n_bins": 1}, {"max_branches": 1}, {"edges": {"size": [1]}}])
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    curator = seeded_curator(dd.Table(people(), SCHEMA), dd.Budget(epsilon=1, delta=1e-6), 0)
    before = curator.left
    with pytest.raises(BadQuery, match="must"):
        ID3(**settings).fit(curator, y="risk")
    assert curator.left == before


def test_the_picture_has_every_node() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    model = ID3(edges={"age": [50]}).fit(dd.Exact(dd.Table(people(), SCHEMA)), y="risk")
    axes = model.plot()
    texts = [text.get_text() for text in axes.texts]
    assert sum("rows" in text for text in texts) == len(model.tree_.nodes())
    assert any(text.startswith("by age") for text in texts)
    plt.close(axes.figure)
    _, given = plt.subplots()
    assert model.plot(given) is given
    plt.close(given.figure)


def test_a_picture_of_a_large_tree_keeps_its_boxes_apart_and_says_what_it_leaves_out() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(5)
    rows = rng.random((4000, 6))
    labels = (rows > 0.5).sum(axis=1) % 2
    schema = dd.Schema({f"x{i}": dd.Real(0, 1) for i in range(6)} | {"y": dd.Flag()})
    table = dd.Table({f"x{i}": rows[:, i] for i in range(6)} | {"y": labels == 1}, schema)
    model = ID3(edges={f"x{i}": [0.5] for i in range(6)}).fit(dd.Exact(table), y="y")
    assert model.get_n_leaves() > 30
    figure, axes = plt.subplots(figsize=(8, 5))
    model.plot(axes)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts if "rows" in text.get_text()]
    assert len(boxes) > 3
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert any("leaves" in text.get_text() for text in axes.texts)
    plt.close(figure)
    _, axes = plt.subplots()
    model.plot(axes, max_depth=1)
    assert sum("rows" in text.get_text() for text in axes.texts) == 3
    plt.close(axes.figure)
