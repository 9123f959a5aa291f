"""Dates and times in questions: what they mean, which keys they give, and what a refusal says to write instead."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona import learn, release
from dodona.cli.draft import Draft
from dodona.errors import BadQuery, BadSchema, BadTable, Unsupported
from dodona.local.client import Client, in_steps, invitation
from dodona.query.compiler import Compiler
from dodona.query.expr import Literal, expr_from_json
from dodona.query.program import Builder
from dodona.query.schema import Schema
from dodona.query.statistic import Partition, Value, as_expr
from dodona.query.text import parse
from tests.support.twins import Twins

SCHEMA = dd.Schema(
    {
        "d": dd.Date("2023-11-15", "2025-02-10"),
        "t": dd.Timestamp("2024-02-28T22:00", "2024-03-01T03:00:00", step="hour"),
        "x": dd.Real(0, 1),
        "f": dd.Flag(),
        "g": dd.Category("a", "b"),
    }
)
DAYS = [date(2023, 11, 15) + timedelta(days=7 * i) for i in range(60)] + [None, date(1900, 1, 1), date(2999, 1, 1)]
ROWS: dict[str, Any] = {
    "d": DAYS,
    "t": [datetime(2024, 2, 28, 20) + timedelta(minutes=30 * i) for i in range(len(DAYS))],
    "x": np.linspace(0, 1, len(DAYS)),
    "f": np.arange(len(DAYS)) > 30,
    "g": np.array(["a", "b", "a"] * (len(DAYS) // 3)),
}
SAME = [
    ("EXTRACT(YEAR FROM d)", "YEAR(d)"),
    ("DATE_PART('month', d)", "MONTH(d)"),
    ("EXTRACT(dow FROM d)", "WEEKDAY(d)"),
    ("DAYOFWEEK(d)", "WEEKDAY(d)"),
    ("EXTRACT(doy FROM d)", "DAYOFYEAR(d)"),
    ("DATETRUNC('month', d)", "DATE_TRUNC('month', d)"),
    ("DATE_TRUNC(month, d)", "DATE_TRUNC('month', d)"),
    ("TIMESTAMP_TRUNC(d, MONTH)", "DATE_TRUNC('month', d)"),
    ("DATEDIFF(d, '2024-01-01')", "DATEDIFF('day', '2024-01-01', d)"),
    ("DATE_DIFF('week', '2024-01-01', d)", "DATEDIFF('week', '2024-01-01', d)"),
    ("d + INTERVAL '7 days'", "(d + INTERVAL '7' DAY)"),
    ("d - INTERVAL (3) MONTH", "(d + INTERVAL '-3' MONTH)"),
    ("INTERVAL 1 QUARTER + d", "(d + INTERVAL '1' QUARTER)"),
    ("DATE_SUB(d, INTERVAL 1 YEAR)", "(d + INTERVAL '-1' YEAR)"),
    ("DATE_ADD(d, 7)", "(d + 7)"),
    ("CAST(t AS DATE)", "DATE(t)"),
    ("d = DATE '2024-02-29'", "(d = DATE('2024-02-29'))"),
    ("d + INTERVAL 3 DAY + INTERVAL 1 MONTH", "((d + INTERVAL '3' DAY) + INTERVAL '1' MONTH)"),
]


@pytest.fixture(scope="module")
def exact() -> dd.Exact:
    return dd.Exact(dd.Table(ROWS, SCHEMA, name="t"))


def keys(oracle: Any, key: str) -> list[Any]:
    found = [row[0] for row in oracle.sql(f"SELECT {key} AS k, COUNT(*) AS n FROM t GROUP BY {key}")]
    assert found.pop() == "(other)"  # a date may be missing
    return found


@pytest.mark.parametrize(("text", "plain"), SAME)
def test_every_way_of_writing_it_is_one_operation(text: str, plain: str) -> None:
    assert str(parse(text)) == plain
    assert parse(plain) == parse(text) == expr_from_json(parse(text).to_json())


def test_keys_are_those_between_the_bounds_with_iso_labels(exact: dd.Exact) -> None:
    ends = [(2023, 11), (2023, 12), *((2024, month) for month in range(1, 13)), (2025, 1), (2025, 2)]
    assert keys(exact, "DATE_TRUNC('month', d)") == [f"{year}-{month:02}-01" for year, month in ends]
    assert keys(exact, "DATE_TRUNC('year', d)") == ["2023-01-01", "2024-01-01", "2025-01-01"]
    assert keys(exact, "DATE_TRUNC('quarter', d)")[:2] == ["2023-10-01", "2024-01-01"]
    assert keys(exact, "DATE_TRUNC('week', d)")[:2] == ["2023-11-13", "2023-11-20"]
    assert keys(exact, "YEAR(d)") == [2023, 2024, 2025]
    assert keys(exact, "t")[:3] == ["2024-02-28T22:00", "2024-02-28T23:00", "2024-02-29T00:00"]
    assert keys(exact, "DATE(t)") == ["2024-02-28", "2024-02-29", "2024-03-01"]
    assert len(keys(exact, "d")) == 454
    assert keys(exact, "HOUR(t)") == [*range(24)]
    assert keys(exact, "BUCKET(d, '2024-01-01', '2024-07-01', '2025-01-01')") == [
        "[2024-01-01, 2024-07-01)",
        "[2024-07-01, 2025-01-01]",
    ]


def test_answers_are_those_of_a_database_on_clipped_dates(exact: dd.Exact) -> None:
    held = [None if day is None else min(max(day, date(2023, 11, 15)), date(2025, 2, 10)) for day in DAYS]
    frame = pd.DataFrame({"d": pd.Series(held, dtype=object)})  # noqa: F841 - named in the statements below
    asked = [
        "SELECT DATE_TRUNC('month', d), COUNT(*) FROM {} GROUP BY 1 ORDER BY 1",
        "SELECT MONTH(d), COUNT(*) FROM {} WHERE d >= '2024-02-29' GROUP BY 1 ORDER BY 1",
        "SELECT WEEK(d), COUNT(*) FROM {} GROUP BY 1 ORDER BY 1",
        "SELECT SUM(DATEDIFF('month', DATE '2024-01-31', d)), SUM(ISODOW(d)), SUM(DAYOFYEAR(d)) FROM {}",
        "SELECT COUNT(*) FROM {} WHERE d BETWEEN '2024-01-01' AND '2024-02-29' OR d IN ('2023-11-15', '2025-01-08')",
        "SELECT COUNT(*) FROM {} WHERE d + INTERVAL '3' MONTH < DATE '2024-05-30'",
        "SELECT COUNT(*) FROM {} WHERE d + 7 > '2024-12-25' AND d - DATE '2024-01-01' > 5",
    ]
    for text in asked:
        own = text.format("t").replace("GROUP BY 1 ORDER BY 1", f"GROUP BY {text.split(',')[0].split('SELECT ')[1]}")
        if "DATE_TRUNC" in text:
            own = "SELECT DATE_TRUNC('month', d) AS m, COUNT(*) AS n FROM t GROUP BY m"
        rows = [tuple(str(getattr(cell, "value", cell)).removesuffix(".0") for cell in row) for row in exact.sql(own)]
        typed = duckdb.sql("SELECT CAST(d AS DATE) AS d FROM frame")  # noqa: F841
        plain = duckdb.sql(text.format("typed")).fetchall()
        expected = [tuple(str(cell)[:10] for cell in row) for row in plain if row[0] is not None]
        assert [row for row in rows if row[-1] != "0" and row[0] != "(other)"] == expected, text


REFUSED = [
    ("d > 'soon'", "'soon' is not a date such as '2024-12-31'"),
    ("d > '2024-01-01 12:00'", "lies within a day"),
    ("t > '2024-01-01 12:30'", "lies within a hour"),
    ("HOUR(d)", "HOUR takes a time kept in steps of hours or finer. Got a date"),
    ("YEAR(x)", "YEAR takes a date or a time. Got a number"),
    ("g = d", "cannot be compared with listed values"),
    ("DATE_TRUNC('fortnight', d)", "DATE_TRUNC takes one of 'millisecond'"),
    ("DATE_TRUNC('minute', t)", "has no minutes"),
    ("EXTRACT(epoch FROM d)", "EXTRACT takes one of DAY, DAYOFYEAR"),
    ("d + INTERVAL '1 month 2 days'", "a whole number of one unit"),
    ("d + INTERVAL '1' HOUR", "an INTERVAL must be of whole ones"),
    ("d + INTERVAL '9000' YEAR", "leaves the years 1 to 9999"),
    ("YEAR(d + 99999999)", "takes dates of the years 1 to 9999"),
    ("INTERVAL '1' DAY", "must be added to a date"),
    ("CURRENT_DATE", "there is no clock here"),
    ("d < NOW()", "there is no clock here"),
    ("CAST(x AS INTEGER)", "write ROUND, TRUNC, FLOOR or CEIL"),
    ("DATE_TRUNC(x + 1, d)", "a unit of time must be a word"),
    ("DATEDIFF('day', x, d)", "DATEDIFF takes a date or a time"),
    ("STRFTIME(d, '%Q')", "STRFTIME is not part of the language"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_refusals_say_what_to_write_instead(text: str, why: str) -> None:
    with pytest.raises(BadQuery, match=re.escape(why)):
        Compiler(SCHEMA, Builder()).value(parse(text))


def test_a_sum_or_average_of_dates_is_refused_and_grouping_has_its_limits(exact: dd.Exact) -> None:
    with pytest.raises(BadQuery, match=r"DATEDIFF\('day', '2024-01-01', d\)"):
        exact.sql("SELECT AVG(d) FROM t")
    wide = dd.Exact(dd.Table({"t": [datetime(2024, 1, 1)]}, dd.Schema({"t": dd.Timestamp("2020-01-01", "2026-01-01")})))
    with pytest.raises(BadQuery, match="a partition needs"):
        wide.sql("SELECT t, COUNT(*) FROM data GROUP BY t")


def test_schemas_say_dates_in_iso_and_read_them_back() -> None:
    zone = timezone(timedelta(hours=2))
    column = dd.Timestamp(datetime(2020, 1, 1, 2, tzinfo=zone), date(2021, 1, 1), missing="2020-06-01", format="%Y%m%d")
    schema = dd.Schema({"d": dd.Date(date(2020, 1, 1), "2020-12-31", public=True), "t": column})
    assert Schema.read(schema.describe()) == schema
    assert schema.describe()["t"] == {
        "type": "timestamp",
        "low": "2020-01-01T00:00:00",
        "high": "2021-01-01T00:00:00",
        "missing": "2020-06-01T00:00:00",
        "format": "%Y%m%d",
        "step": "second",
    }
    assert repr(schema["d"]) == "Date('2020-01-01', '2020-12-31', public=True)"
    assert schema["d"] != dd.Date("2020-01-01", "2020-12-31")
    assert dd.Date("2020-01-01", "2020-12-31", format="%d.%m.%Y") != dd.Date("2020-01-01", "2020-12-31")
    assert {schema["d"]: 1}[dd.Date("2020-01-01", "2020-12-31", public=True)] == 1


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: dd.Date("2020-02-30", "2021-01-01"), "low must be a date such as '2024-12-31'"),
        (lambda: dd.Date("2020-01-01T12:00", "2021-01-01"), "low must be a date"),
        (lambda: dd.Date("2021-01-01", "2020-01-01"), "low must be before high"),
        (lambda: dd.Date("2020-01-01", "2021-01-01", missing="2022-01-01"), "missing must lie between"),
        (lambda: dd.Date(0.5, 3), "low must be a date or time"),
        (lambda: dd.Date(-(10**7), 0), "years 1 to 9999"),
        (lambda: dd.Date("2020-01-01", "2021-01-01", format="%Y"), "it must have %Y, %m and %d"),
        (lambda: dd.Date("2020-01-01", "2021-01-01", format=3), "format must be text"),  # type: ignore[arg-type]
        (lambda: dd.Timestamp("2020-01-01", "2021-01-01", step="day"), "step must be one of microsecond"),
        (lambda: dd.Timestamp("0001-01-01", "9999-12-31", step="microsecond"), "state a coarser step"),
        (lambda: Schema.read({"d": {"type": "date", "low": "2020-01-01"}}), "must state high"),
        (lambda: Schema.read({"d": {"type": "date", "low": 0, "high": 9, "step": "hour"}}), "unknown settings: step"),
    ],
)
def test_schemas_refuse_what_is_no_date(make: Any, why: str) -> None:
    with pytest.raises(BadSchema, match=why):
        make()


def test_a_draft_names_dates_and_times_by_their_types(tmp_path: Path) -> None:
    table = {"day": pa.array([date(2024, 1, 1)]), "at": pa.array([datetime(2024, 1, 1)])}
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    drafted = Draft.of(str(tmp_path / "x.parquet")).text()
    assert 'day = { type = "date", low = "?", high = "?" }' in drafted
    assert 'at = { type = "timestamp", low = "?", high = "?", step = "second" }' in drafted


def test_a_person_may_answer_with_a_date_and_nothing_else_is_one() -> None:
    told = [date(2024, 2, 29), "2024-02-29", datetime(2024, 2, 29, 13), None, "nonsense", 5, "1800-01-01"]
    steps = [in_steps({"d": answer}, SCHEMA)["d"] for answer in told]
    assert steps == [19782, 19782, 19782, None, None, None, -62091]
    asked = invitation(Partition(as_expr("YEAR(d)"), Value(Literal(1.0))), SCHEMA, 2)
    assert len({len(Client(100).report(asked, {"d": answer})) for answer in told}) == 1


def test_a_synopsis_in_buckets_answers_calendar_questions_that_fall_on_its_edges() -> None:
    made = release.conjunctions(
        dd.Curator(dd.Table(ROWS, SCHEMA, name="t"), dd.Budget(epsilon=100, delta=1e-6)),
        columns=["d", "g"],
        width=2,
        edges={"d": ["2023-11-15", "2024-01-01", "2025-01-01", "2025-02-10"]},
        share=0.5,
    )
    years = [round(row[1].value) for row in made.sql("SELECT YEAR(d) AS y, COUNT(*) AS n FROM t GROUP BY y")]
    assert np.allclose(years, [8, 52, 2, 1], atol=3)
    with pytest.raises(Unsupported, match="cuts a bucket in two"):
        made.sql("SELECT MONTH(d) AS m, COUNT(*) AS n FROM t GROUP BY m")
    sample = made.sample(50)
    assert sample["d"].dtype == np.dtype("datetime64[D]")
    assert dd.Table(sample, dd.Schema({name: SCHEMA[name] for name in ("d", "g")})).engine.rows() == 50


def test_learners_read_dates_on_both_sides() -> None:
    rng = np.random.default_rng(0)
    days = np.datetime64("2023-11-15") + rng.integers(0, 450, 3000)
    late = days > np.datetime64("2024-07-01")
    table = dd.Table({"d": days, "f": late}, dd.Schema({"d": SCHEMA["d"], "f": dd.Flag()}), name="t")
    held = pd.DataFrame({"d": days})
    for model in (learn.ID3(share=0.5), learn.LogisticRegression(share=0.5)):
        model.fit(dd.Curator(table, dd.Budget(epsilon=1000, delta=1e-6)), "f")
        assert np.mean(model.predict(held) == late) > 0.9
        texts = pd.DataFrame({"d": days.astype(str)})
        assert np.array_equal(model.predict(held), model.predict(texts))


def test_what_an_answer_leaves_out_is_told_in_dates() -> None:
    curator = dd.Curator(dd.Table(ROWS, SCHEMA, name="t"), dd.Budget(epsilon=100))
    told = curator.sql("SELECT COUNT(*) FROM t WHERE d > '2024-01-01'", share=0.1).leaves_out
    assert "d below 2023-11-15 counts as 2023-11-15, above 2025-02-10 as 2025-02-10" in told
    lost = str(curator.losses(share=0.5))
    assert "below 2023-11-15" in lost
    assert "missing or no date" in lost


BROKEN = [None, np.datetime64("NaT"), "2023-02-29", "infinity", "", object(), [], 7, date.max, date.min, float("nan")]


@pytest.mark.parametrize("value", BROKEN, ids=lambda value: type(value).__name__ + str(value)[:8].strip("<"))
def test_no_date_of_a_neighbour_shows_in_anything_but_the_noised_numbers(value: Any) -> None:
    """Twins: one row's date is broken, missing or far away; refusals, prices, keys and charges stay what they were."""
    tables = [
        dd.Table({"d": pd.Series([*DAYS, own], dtype=object).to_numpy()}, dd.Schema({"d": SCHEMA["d"]}), name="t")
        for own in (date(2024, 2, 29), value)
    ]
    twins = Twins(*tables, dd.Budget(epsilon=1000))
    for text in (
        "SELECT DATE_TRUNC('month', d) AS m, COUNT(*) AS n FROM t GROUP BY m",
        "SELECT SUM(YEAR(d + INTERVAL '1' MONTH)), COUNT(d) FROM t WHERE d > '2024-01-01'",
        "SELECT AVG(DATEDIFF('week', '2024-01-01', d)) FROM t",
    ):
        twins.sql(text, share=0.01)
    assert twins.requests == 3


def total(source: Any, kind: Any, text: str) -> list[int]:
    """The sums of a statement over one column ``x``."""
    schema = dd.Schema({"x": kind})
    return [round(cell.value) for cell in next(iter(dd.Exact(dd.Table(source, schema, name="t")).sql(text)))]


def test_a_day_that_the_month_does_not_have_becomes_its_last() -> None:
    days = {"x": [date(2024, 1, 31), date(2023, 1, 30), date(2024, 3, 31)]}
    text = "SELECT SUM(DAY(x + INTERVAL '1' MONTH)), SUM(MONTH(x + INTERVAL '1' MONTH)) FROM t"
    assert total(days, dd.Date("2020-01-01", "2025-01-01"), text) == [29 + 28 + 30, 2 + 2 + 4]


def test_infinite_times_are_clipped_like_any_other(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "x.duckdb")) as held:
        held.execute("CREATE TABLE t AS SELECT unnest(['infinity'::TIMESTAMP, '-infinity', NULL]) AS x")
    kind = dd.Timestamp("2020-01-01", "2025-01-01")
    assert total(f"{tmp_path}/x.duckdb#t", kind, "SELECT SUM(YEAR(x)), COUNT(x) FROM t") == [4045, 2]


def test_a_field_that_is_no_day_is_missing(tmp_path: Path) -> None:
    fields = [
        "29/02/2024",
        "29/02/2100",
        "29/02/2023",
        "31/04/2024",
        "00/01/2024",
        "01/13/2024",
        "1/1/2024",
        "2024-01-01",
    ]
    (tmp_path / "x.csv").write_text("\n".join(["x", *fields]) + "\n")
    kind = dd.Date("2000-01-01", "2200-01-01", format="%d/%m/%Y")
    assert total(str(tmp_path / "x.csv"), kind, "SELECT SUM(YEAR(x)), COUNT(x) FROM t") == [2024, 1]


def test_a_zone_that_pandas_states_is_converted() -> None:
    late = pd.Series(pd.to_datetime(["2023-12-31 23:00"])).dt.tz_localize("America/New_York")
    assert total(pd.DataFrame({"x": late}), dd.Date("2020-01-01", "2025-01-01"), "SELECT SUM(YEAR(x)) FROM t") == [2024]


def test_a_text_that_is_not_utf8_refuses_the_file_and_never_a_question(tmp_path: Path) -> None:
    """Else one row would decide whether a question fails."""
    broken = pa.array([b"2024-01-01", b"\xff\xfe"], pa.binary())
    texts = pa.StringArray.from_buffers(2, broken.buffers()[1], broken.buffers()[2])
    pq.write_table(pa.table({"x": texts}), tmp_path / "x.parquet")
    schema = dd.Schema({"x": dd.Date("2020-01-01", "2025-01-01")})
    for source in (str(tmp_path / "x.parquet"), pa.table({"x": texts})):
        with pytest.raises(BadTable, match="UTF-8"):
            dd.Table(source, schema)


def test_a_unit_keeps_the_same_dated_rows_in_a_file_and_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    columns = {
        "who": rng.integers(0, 40, 400),
        "x": np.datetime64("2019-12-01") + rng.integers(0, 2000, 400),
        "y": np.datetime64("2020-01-01T00:00:00") + rng.integers(0, 10**8, 400),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    schema = dd.Schema({"x": dd.Date("2020-01-01", "2025-01-01"), "y": dd.Timestamp("2020-01-01", "2023-01-01")})
    found = []
    for source in (columns, str(tmp_path / "x.parquet")):
        table = dd.Table(source, schema, unit=dd.Unit("who", max_rows=3), neighbours="add-remove", rows=400, name="t")
        text = "SELECT DATE_TRUNC('month', x) AS m, COUNT(*) AS n, SUM(DAY(y)) AS s FROM t GROUP BY m"
        found.append([[getattr(cell, "value", cell) for cell in row] for row in dd.Exact(table).sql(text)])
    assert found[0] == found[1]
    assert sum(row[1] for row in found[0]) == 120
