"""Boxes over two and three columns."""

import numpy as np
import pytest

from dodona.engines.table import Table
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Integer, Real, Schema
from dodona.release.boxes import box_sums, boxes, random_boxes, shared_out
from dodona.synopses import load
from dodona.testing.oracles import seeded_curator

SCHEMA = Schema({"x": Integer(0, 40, missing=0), "y": Integer(0, 9, missing=0), "z": Real(0, 1, missing=0)})


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    columns = {"x": rng.binomial(40, 0.3, 20_000), "y": rng.integers(0, 10, 20_000), "z": rng.beta(2, 5, 20_000)}
    return Table(columns, SCHEMA, name="t")


@pytest.mark.parametrize("columns", [["x", "y"], ["x", "y", "z"]])
def test_without_noise_boxes_are_exact(table, columns, tmp_path):
    synopsis = boxes(Exact(table), columns, bits=[None, None, 3][: len(columns)])
    for question in (
        "x BETWEEN 5 AND 12 AND y < 4",
        "x < 3 OR y = 9",
        "x + y > 20",
        *(["z < 0.5"] if len(columns) > 2 else []),
    ):
        assert synopsis.ask(question).total == pytest.approx(Exact(table).ask(question).total, abs=0.01), question
    synopsis.save(tmp_path / "b.synopsis")
    assert load(tmp_path / "b.synopsis").ask("x < 9 AND y > 2").total == synopsis.ask("x < 9 AND y > 2").total


def test_with_noise_they_are_about_right_and_within_margins(table):
    synopsis = boxes(seeded_curator(table, Budget(epsilon=1), 2), ["x", "y"], share=1)
    for question in ("x BETWEEN 5 AND 12 AND y < 4", "x < 3 OR y = 9", "x >= 12"):
        answer = synopsis.ask(question)
        assert abs(answer.total - Exact(table).ask(question).total) < max(answer.margin, 150)


def test_refusals(table):
    with pytest.raises(BadQuery, match="two or three"):
        boxes(Exact(table), ["x"])
    with pytest.raises(Unsupported, match=r"Corollary 5\.2"):
        boxes(Exact(table), ["x", "z"])
    with pytest.raises(Unsupported, match=r"joint cells; .* GiB of memory\. .* 6 fewer in all"):
        boxes(Exact(table), ["x", "z"], bits=20)
    with pytest.raises(BadQuery, match="name each once"):
        boxes(Exact(table), ["x", "X"])
    with pytest.raises(Unsupported, match="x, y"):
        boxes(Exact(table), ["x", "y"]).ask("z < 0.5")


def test_box_sums_count_cells():
    rng = np.random.default_rng(0)
    cells = rng.random((6, 5, 4))
    found = random_boxes(cells.shape, 30, rng)
    for (a, b), (c, d), (e, f) in found:
        assert box_sums(cells, np.array([[[a, b], [c, d], [e, f]]]))[0] == pytest.approx(cells[a:b, c:d, e:f].sum())


def test_sharing_out_keeps_totals_and_shrinks_only_noise():
    rng = np.random.default_rng(1)
    leaf = rng.poisson(100, (16, 16)).astype(float)
    top = leaf.reshape(4, 4, 4, 4).sum(axis=(1, 3))
    for shrink in (True, False):
        cells = shared_out([top, leaf], [1e-9, 1e-9], shrink=shrink)
        np.testing.assert_allclose(cells, leaf, rtol=1e-5)
    flat = shared_out([top, rng.normal(0, 1e6, (16, 16))], [1e-6, 1e12])
    np.testing.assert_allclose(flat.reshape(4, 4, 4, 4).sum(axis=(1, 3)), top, rtol=1e-6)
