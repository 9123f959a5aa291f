"""Answers are data: columns, frames, files, a page's table and a picture, with the error beside each number."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dodona as dd
from dodona.errors import BadQuery
from dodona.oracles.answer import Bill
from dodona.oracles.rows import LOST, Estimate, Rows
from dodona.testing.oracles import seeded_curator

BILL = Bill(0.1, "epsilon", 0.1, 0.9, "replace", "discrete Laplace")
TABLE = Rows(
    ("g", "n", "mean"),
    (
        ("a|b", Estimate(120.0, 8.0), Estimate(3.25, 0.5)),
        ("<b>", Estimate(-3.0, 8.0), Estimate(2.0, np.inf, True, LOST)),
        (None, None, Estimate(1.5, 0.25)),
    ),
    0.95,
    BILL,
)


def test_columns_have_their_errors_and_whole_numbers_stay_whole() -> None:
    found = TABLE.to_dict()
    assert [*found] == ["g", *(f"{name}{end}" for name in ("n", "mean") for end in ("", "_margin", "_low", "_high"))]
    assert found["n"] == [120, -3, None]
    assert all(value is None or type(value) is int for value in found["n"])
    assert (found["n_low"][0], found["n_high"][1]) == (112.0, 5.0)
    assert found["mean"] == [3.25, None, 1.5]
    assert found["mean_margin"] == [0.5, None, 0.25]


def test_frames_hold_the_same() -> None:
    frame, arrow = TABLE.to_pandas(), TABLE.to_arrow()
    assert str(frame["n"].dtype) == "Int64"
    assert arrow.schema.field("n").type == pa.int64()
    for other in (pl.DataFrame(TABLE), TABLE.to_polars()):
        assert other.to_dict(as_series=False) == TABLE.to_dict()
    assert pd.DataFrame(arrow.to_pandas())["n_high"].tolist()[:2] == [128.0, 5.0]
    assert frame.loc[0, "mean_low"] == 2.75
    assert frame.attrs["notes"] == TABLE.notes()
    assert arrow.schema.metadata[b"notes"].decode() == "; ".join(TABLE.notes())
    assert TABLE.notes()[0] == "± at 95 %, proven"


def test_files_and_pages_escape_what_labels_hold(tmp_path: Path) -> None:
    text = TABLE.to_csv(tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes().decode() == text
    records = list(csv.DictReader(io.StringIO(text)))
    assert [record["g"] for record in records] == ["a|b", "<b>", ""]
    assert {record["notes"] for record in records} == {"; ".join(TABLE.notes())}
    assert "a\\|b" in TABLE.to_markdown()
    page = TABLE._repr_html_()
    assert "<td>&lt;b&gt;</td>" in page
    assert LOST in page
    assert "<b>" not in page
    assert "epsilon 0.1" in page


def test_columns_of_one_name_stay_apart() -> None:
    doubled = Rows(("n", "n", "n_low"), ((Estimate(1.0, 1.0), Estimate(2.0, 1.0), "x"),), 0.95, BILL)
    found = doubled.to_dict()
    assert len(found) == 3 + 2 * 3
    assert (found["n"], found["n_"], found["n_low"]) == ([1], [2], ["x"])


def test_records_and_columns_are_found_by_place_and_name() -> None:
    assert TABLE[0] == next(iter(TABLE))
    assert TABLE["n"][0] == Estimate(120.0, 8.0)
    with pytest.raises(BadQuery, match="the columns are g, n, mean"):
        TABLE["m"]


def test_a_picture_has_a_bar_for_each_number_that_says_something() -> None:
    ax = TABLE.plot("mean")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a|b", "NULL"]
    assert ax.get_ylabel() == "mean"
    with pytest.raises(BadQuery, match="no column of this table has an error"):
        Rows(("g",), (("a",),), 0.95, BILL).plot()


def test_an_answer_is_a_table_of_its_totals() -> None:
    columns = {"age": np.arange(100) % 10, "g": np.array(["a", "b"])[np.arange(100) % 2]}
    schema = dd.Schema({"age": dd.Integer(0, 9), "g": dd.Category("a", "b")})
    curator = seeded_curator(dd.Table(columns, schema, name="people"), dd.Budget(epsilon=4), 1)
    one = curator.ask("age", share="0.1")
    found = one.to_dict()
    assert isinstance(one.total, float)
    assert found["total_high"] == [one.total + one.margin]
    assert found["mean"] == [one.mean]
    several = curator.ask(dd.Partition(dd.parse("g"), dd.Value(dd.parse("age"))), share="0.1")
    found = several.to_dict()
    assert len(found["total"]) == np.size(several.total)
    assert found["total"] == np.ravel(several.total).tolist()
    assert "age" in repr(curator)
    assert "80.00% left of Budget(epsilon=4)" in repr(curator)
    assert "<table>" in several._repr_html_()
    assert several.plot().get_ylabel() == "mean"
