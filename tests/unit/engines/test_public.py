"""Public tables: read once, from where any table may be; columns are read off the values where nothing is stated."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona.errors import BadSchema, BadTable

VALUES = {
    "zip": ["01", "02", None],
    "n": [3, 4, 5],
    "x": [0.5, None, 2.0],
    "big": [True, False, None],
    "day": [datetime.date(2024, 1, 1), datetime.date(2024, 3, 1), None],
}
STATED = dd.Schema(
    {
        "zip": dd.Category("01", "02"),
        "n": dd.Integer(0, 4),
        "x": dd.Real(0, 1),
        "big": dd.Flag(missing=False),
        "day": dd.Date("2024-01-01", "2024-12-31"),
    }
)


def sources(folder):
    import pandas as pd
    import polars as pl

    table = pa.table(VALUES)
    pq.write_table(table, folder / "t.parquet")
    text = "zip,n,x,big,day\n01,3,0.5,true,2024-01-01\n02,4,,false,2024-03-01\n,5,2.0,,\n"
    (folder / "t.csv").write_text(text)
    return {
        "arrow": table,
        "polars": pl.from_arrow(table),
        "pandas": pd.DataFrame(VALUES),
        "parquet": folder / "t.parquet",
        "mapping": VALUES,
        "csv": folder / "t.csv",
    }


@pytest.mark.parametrize("place", ["arrow", "polars", "parquet", "csv"])
def test_a_stated_schema_cleans_as_private_rows_are(tmp_path, place):
    values = dd.Public(sources(tmp_path)[place], STATED).called("t").values
    assert values["zip"] == ["01", "02", None]
    assert values["n"] == [3, 4, 4]
    assert values["x"] == [0.5, None, 1.0]
    assert values["big"] == [True, False, False]
    assert values["day"] == [19723, 19783, None]


@pytest.mark.parametrize("place", ["arrow", "polars", "pandas", "parquet", "mapping"])
def test_columns_are_read_off_the_values(tmp_path, place):
    public = dd.Public(sources(tmp_path)[place])
    assert public.schema["zip"] == dd.Category("01", "02")
    assert public.schema["x"] == dd.Real(0.5, 2)
    assert public.schema["big"] == dd.Flag()
    assert public.schema["n"] == dd.Integer(3, 5)
    assert public.schema["day"] == dd.Date("2024-01-01", "2024-03-01")
    assert public.called("t").values["day"] == [19723, 19783, None]


def test_numbers_of_a_csv_file_are_numbers_and_codes_stay_codes(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("\ufeffcode;n;x\n007;7;1,5\n010;-8;0,25\n", encoding="utf-8")
    schema = dd.Public(file, csv=dd.Csv(delimiter=";", decimal=",")).schema
    assert dict(schema) == {"code": dd.Category("007", "010"), "n": dd.Integer(-8, 7), "x": dd.Real(0.25, 1.5)}


def test_doubled_keys_and_what_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(BadSchema, match="unique"):
        dd.Public({"zip": ["01", "01"]}, key="zip")
    with pytest.raises(BadSchema, match="one kind"):
        dd.Public({"zip": ["01", 2]})
    with pytest.raises(BadTable, match="must have rows"):
        dd.Public({"zip": [None]})
    with pytest.raises(BadTable, match="state the schema"):
        dd.Public("postgresql://nowhere/base#t")
    (tmp_path / "t.csv").write_text("a,b\n1\n")
    with pytest.raises(BadTable, match="a field for each column"):
        dd.Public(tmp_path / "t.csv")
    with pytest.raises(BadTable, match="must be a file"):
        dd.Public(np.zeros((2, 2)))
