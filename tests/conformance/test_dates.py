"""Dates and times give the reference's integers wherever rows live: broken, infinite, BC and zoned ones too.

The reference is Python's own ``datetime`` for what is stored, then ``reference_totals`` for what is asked.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dodona.engines.engine import Engine
from dodona.engines.table import Table
from dodona.errors import BadTable
from dodona.query import calendar
from dodona.query.calendar import DAY, STEPS
from dodona.query.plan import compile_query
from dodona.query.schema import Date, Schema, Timestamp
from dodona.query.select import parse_select
from dodona.query.statistic import Losses, Query, Stack
from dodona.testing.reference import reference_totals

EPOCH = datetime(1970, 1, 1)
FAR = 10**17  # of any step: beyond every bound

SCHEMA = Schema(
    {
        "d": Date("0001-01-01", "9999-12-31"),
        "near": Date("1999-12-31", "2030-02-28", missing="2000-02-29"),
        "ts": Timestamp("1890-01-01", "2110-12-31T23:59:59"),
        "tz": Timestamp("1960-01-01", "2060-01-01T00:00", step="minute"),
        "fine": Timestamp("1950-01-01", "2050-01-01", step="millisecond"),
        "far": Timestamp("0001-01-01", "9999-12-31T23:00", step="hour"),
        "iso": Date("1900-01-01", "2100-01-01"),
        "said": Timestamp("1900-01-01", "2100-01-01", step="second", format="%d/%m/%Y %H:%M:%S"),
    }
)
QUERIES = [
    "SELECT YEAR(near), COUNT(*) FROM t GROUP BY YEAR(near)",
    "SELECT DATE_TRUNC('month', ts), COUNT(*) FROM t GROUP BY DATE_TRUNC('month', ts)",
    "SELECT DATE_TRUNC('week', near), COUNT(*) FROM t GROUP BY DATE_TRUNC('week', near)",
    "SELECT DATE_TRUNC('quarter', iso), COUNT(*) FROM t GROUP BY DATE_TRUNC('quarter', iso)",
    "SELECT QUARTER(tz), MONTH(d), COUNT(*) FROM t GROUP BY QUARTER(tz), MONTH(d)",
    "SELECT near, COUNT(*) FROM t GROUP BY near",
    "SELECT SUM(DAY(d)), SUM(WEEKDAY(d)), SUM(DAYOFYEAR(d)), SUM(WEEK(d)), SUM(ISODOW(ts)), SUM(YEAR(far)) FROM t",
    "SELECT SUM(HOUR(fine)), SUM(MINUTE(fine)), SUM(SECOND(said)), SUM(HOUR(far)), SUM(MINUTE(tz)) FROM t",
    "SELECT SUM(DATEDIFF('month', d, ts)), SUM(DATEDIFF('hour', tz, fine)) FROM t",
    "SELECT SUM(DATEDIFF('day', '2000-01-01', said)) FROM t",
    "SELECT SUM(DATEDIFF('hour', near, ts)), SUM(DATEDIFF('second', iso, '2000-01-01')) FROM t",
    "SELECT SUM(d - iso), SUM(DATEDIFF(near, '2010-01-01')) FROM t",
    "SELECT COUNT(*) FROM t WHERE ts BETWEEN '1999-12-31 23:59:59' AND '2024-02-29' OR said < '1970-01-01'",
    "SELECT COUNT(*) FROM t WHERE near + INTERVAL '1' MONTH < DATE '2024-03-01' AND near + 7 >= '2000-03-01'",
    "SELECT SUM(DAY(near - INTERVAL 13 MONTH)), SUM(MONTH(ts + INTERVAL '11 months')), COUNT(d), COUNT(said) FROM t",
    "SELECT COUNT(*) FROM t WHERE fine >= tz OR ts = iso OR CAST(fine AS DATE) = near",
    "SELECT BUCKET(near, '2000-01-01', '2004-02-29', '2030-01-01'), COUNT(*) FROM t "
    "GROUP BY BUCKET(near, '2000-01-01', '2004-02-29', '2030-01-01')",
]
READABLE = "%d/%m/%Y %H:%M:%S"
BROKEN = [
    "2023-02-29",
    "2100-02-29",
    "2024-13-01",
    "0000-01-01",
    "2024-1-1",
    "infinity",
    "0044-03-15 BC",
    "",
    "20240101",
]
BROKEN += ["2024-01-01\n", "2024-04-31", "2024-00-10", "2024-01-00", "２０２４-01-01", "now", "2024-01-01T25:00", "-"]


def moments() -> list[datetime]:
    """The edges of the calendar, and times around them; then any."""
    chosen = random.Random(7)
    days = [
        date(y, m, d)
        for y in (1, 4, 100, 400, 1582, 1899, 1900, 1999, 2000, 2023, 2024, 2100, 9999)
        for m, d in ((1, 1), (2, 28), (3, 1), (12, 31), (10, 15))
    ]
    days += [date(y, 2, 29) for y in (4, 400, 1904, 2000, 2024, 9996)]
    found = [datetime(day.year, day.month, day.day) for day in days]
    found += [at + timedelta(days=1, microseconds=-1) for at in found if at.year < 9999]
    low, high = datetime(1880, 1, 1), datetime(2120, 1, 1)
    found += [low + (high - low) * chosen.random() for _ in range(120)]
    return found


MOMENTS = moments()
ROWS = len(MOMENTS) + 3  # NULL, minus infinity and infinity at the end


def micro(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def texts() -> tuple[list[str | None], list[str | None]]:
    """Two columns of texts: dates in ISO and times in a format of their own, each with broken ones among them."""
    iso: list[str | None] = [at.date().isoformat() for at in MOMENTS]
    said: list[str | None] = [at.strftime("%d/%m/") + f"{at.year:04}" + at.strftime(" %H:%M:%S") for at in MOMENTS]
    for place, text in enumerate(BROKEN):
        iso[3 * place], said[3 * place + 1] = text, text
    return [*iso, None, "-infinity", "infinity"], [*said, None, "-infinity", "infinity"]


ISO, SAID = texts()


def reference_rows() -> list[dict[str, int | None]]:
    """What every engine must take the rows for: whole steps, beyond the bounds where they are."""
    ends: list[int | None] = [None, -FAR, FAR]
    instants = [micro(at) for at in MOMENTS]
    columns = {
        name: [*(at // step for at in instants), *ends]
        for name, step in (("d", DAY), ("near", DAY), ("ts", STEPS["second"]), ("tz", STEPS["minute"]))
    }
    columns["fine"] = [*(at // STEPS["millisecond"] for at in instants), *ends]
    columns["far"] = [*(at // STEPS["hour"] for at in instants), *ends]
    columns["iso"] = [None if text in BROKEN else at // DAY for text, at in zip(ISO, instants, strict=False)] + [
        None
    ] * 3
    columns["said"] = [
        None if text in BROKEN else at // STEPS["second"] for text, at in zip(SAID, instants, strict=False)
    ] + [None] * 3
    return [{name: values[row] for name, values in columns.items()} for row in range(ROWS)]


def check(engine: Engine, *, losses: bool = True) -> None:
    """The totals of all statements are the reference's, in one program; and what cleaning did to each column."""
    schema, texts = SCHEMA, QUERIES
    rows = reference_rows()
    queries: list[Query] = [parse_select(text, schema, "t").query for text in texts]
    queries += [Losses(tuple(schema))] if losses else []
    program = compile_query(Stack(tuple(queries)), schema, level=False).program
    expected = reference_totals(program, rows)
    found = [int(total) for total in engine.totals(program)]
    assert found == expected, [
        text
        for text, query in zip([*texts, "losses"], queries, strict=False)
        for own in [compile_query(query, schema, level=False).program]
        if [int(total) for total in engine.totals(own)] != reference_totals(own, rows)
    ]


STORED = {"d": "DATE", "near": "DATE", "ts": "TIMESTAMP", "tz": "TIMESTAMP WITH TIME ZONE", "fine": "TIMESTAMP"}
STORED |= {"far": "TIMESTAMP", "iso": "VARCHAR", "said": "VARCHAR"}


def insert(run: Any, sign: str) -> None:
    """Fills a table ``t`` of a database; the zone of a time that has one is not UTC."""
    places = ", ".join([sign] * len(STORED))
    for row in range(ROWS):
        if row < len(MOMENTS):
            text = MOMENTS[row].isoformat(sep=" ")
            ahead = (
                MOMENTS[row] + timedelta(hours=5, minutes=30) if MOMENTS[row].year < 9999 else MOMENTS[row]
            ).isoformat()
            zoned = ahead + ("+05:30" if MOMENTS[row].year < 9999 else "+00:00")
            cells = [text[:10], text[:10], text, zoned, text, text]
        else:
            cells = [[None, "-infinity", "infinity"][row - len(MOMENTS)]] * 6
        run(f"INSERT INTO t VALUES ({places})", [*cells, ISO[row], SAID[row]])


def days(values: Any) -> Any:
    return [None if at is None else min(max(at // DAY, -(2**31)), 2**31 - 1) for at in values]


def counts(unit: int) -> list[int | None]:
    return [*(micro(at) // unit for at in MOMENTS), None, -(2**62), 2**62]


def arrow_source() -> pa.Table:
    far: Any = [*(micro(at) for at in MOMENTS), None, -(2**62), 2**62]
    kept = {"d": pa.array(days(far), pa.int32()).cast(pa.date32()), "near": pa.array(counts(DAY), pa.int64())}
    kept["near"] = pa.array(
        [None if at is None else at * 86_400_000 if abs(at) < 2**32 else at for at in counts(DAY)], pa.int64()
    ).cast(pa.date64(), safe=False)
    kept["ts"] = pa.array(far, pa.int64()).cast(pa.timestamp("us"))
    kept["tz"] = pa.array(counts(1_000_000), pa.int64()).cast(pa.timestamp("s", tz="Asia/Kolkata"))
    kept["fine"] = pa.array(counts(1_000), pa.int64()).cast(pa.timestamp("ms"))
    kept["far"] = kept["ts"]
    return pa.table({**kept, "iso": pa.array(ISO), "said": pa.array(SAID).dictionary_encode()})


def test_arrow_gives_the_references_integers():
    check(Table(arrow_source(), SCHEMA).engine)


def test_numpy_pandas_polars_and_lists_give_the_references_integers():
    table = arrow_source()
    raw = {
        name: table.column(name).cast(pa.int64() if name != "d" else pa.int32()) for name in ("d", "ts", "tz", "fine")
    }
    units = {"d": "D", "ts": "us", "tz": "s", "fine": "ms"}
    arrays: dict[str, Any] = {
        name: np.array([np.iinfo(np.int64).min if at is None else at for at in column.to_pylist()]).view(
            f"datetime64[{units[name]}]"
        )
        for name, column in raw.items()
    }
    arrays |= {
        "near": arrays["d"],
        "far": arrays["ts"],
        "iso": np.array(ISO, dtype=object),
        "said": np.array(SAID, dtype=object),
    }
    check(Table(arrays, SCHEMA).engine)
    check(Table(pd.DataFrame(arrays).astype({"iso": "string", "said": "category"}), SCHEMA).engine)
    micros = table.column("ts").cast(pa.int64()).cast(pa.timestamp("us", tz="Asia/Kolkata"))
    columns = {name: table.column(name) for name in ("d", "ts", "fine", "far", "iso", "said")}
    check(Table(pl.DataFrame(columns | {"near": table.column("d"), "tz": micros}), SCHEMA).engine)


def test_lists_of_pythons_own_dates_and_times_give_the_references_integers():
    from datetime import timezone

    zone = timezone(timedelta(hours=-3))
    ends: list[Any] = [None, datetime.min, datetime.max]
    zoned = [at.replace(tzinfo=UTC).astimezone(zone) if at.year not in (1, 9999) else at for at in MOMENTS]
    source = {
        "d": [*(at.date() for at in MOMENTS), None, date.min, date.max],
        "near": [*MOMENTS, *ends],
        "ts": [*MOMENTS, *ends],
        "tz": [*zoned, pd.NaT, datetime.min, datetime.max],
        "fine": [*MOMENTS, *ends],
        "far": [*MOMENTS, *ends],
        "iso": ISO,
        "said": SAID,
    }
    check(Table(source, SCHEMA).engine, losses=False)  # none of Python's own lies beyond the bounds


@pytest.fixture
def duck(tmp_path: Path) -> Path:
    connection = duckdb.connect(str(tmp_path / "held.duckdb"))
    connection.execute("SET TimeZone = 'America/New_York'")
    connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, kind in STORED.items())})")
    connection.begin()
    insert(connection.execute, "?")
    connection.commit()
    connection.execute(f"COPY t TO '{tmp_path}/t.parquet'")
    connection.close()
    return tmp_path


def test_duckdb_files_give_the_references_integers(duck: Path):
    check(Table(str(duck / "held.duckdb") + "#t", SCHEMA).engine)
    check(Table(str(duck / "t.parquet"), SCHEMA).engine)


def test_nanoseconds_are_cut_not_rounded(tmp_path: Path):
    """A time just before midnight stays in its day, also where a database would round it up to the next."""
    late = np.array(["2023-12-31T23:59:59.999999999", "1969-12-31T23:59:59.999999999"], dtype="datetime64[ns]")
    table = pa.table({"x": pa.array(late)})
    pq.write_table(table, tmp_path / "late.parquet")
    connection = duckdb.connect(str(tmp_path / "late.duckdb"))
    connection.execute(f"CREATE TABLE late AS FROM '{tmp_path}/late.parquet'")
    connection.close()
    for kind in (Date("1960-01-01", "2030-01-01"), Timestamp("1960-01-01", "2030-01-01", step="microsecond")):
        schema = Schema({"x": kind})
        query = parse_select("SELECT SUM(YEAR(x)), SUM(DAY(x)) FROM late", schema, "late").query
        program = compile_query(query, schema, level=False).program
        for source in (
            table,
            {"x": late},
            pd.DataFrame({"x": late}),
            str(tmp_path / "late.parquet"),
            str(tmp_path / "late.duckdb") + "#late",
        ):
            assert [*Table(source, schema).engine.totals(program)] == [2023 + 1969, 62]


def test_csv_fields_give_the_references_integers(tmp_path: Path):
    """As texts: what a file holds is read by the schema's format, and an infinity is no date there."""
    path = tmp_path / "t.csv"
    lines = ["d,near,ts,tz,fine,far,iso,said"]
    for row in range(len(MOMENTS)):
        iso = MOMENTS[row].isoformat()
        cells = [
            iso[:10],
            iso[:10],
            iso,
            iso + "Z",
            iso.replace("T", " "),
            iso[:16] + "-00:00",
            ISO[row] or "",
            SAID[row] or "",
        ]
        lines.append(",".join('"' + cell + '"' for cell in cells))
    lines += [",,,,,,,"] * 3
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [*reference_rows()[: len(MOMENTS)], *[dict.fromkeys(SCHEMA)] * 3]
    engine = Table(str(path), SCHEMA).engine
    for text in QUERIES:
        program = compile_query(parse_select(text, SCHEMA, "t").query, SCHEMA, level=False).program
        assert [int(total) for total in engine.totals(program)] == reference_totals(program, rows), text


def test_postgresql_gives_the_references_integers(postgres: Any):
    with postgres.connect() as admin:
        admin.execute("SET TimeZone = 'Asia/Kolkata'")
        made = ", ".join(f"{name} {kind}" for name, kind in STORED.items())
        admin.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t ({made})")
        with admin.transaction():
            insert(admin.execute, "%s")
    check(Table(f"{postgres.url()}#t", SCHEMA).engine)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_spark_gives_the_references_integers(spark: Any, tmp_path: Path):
    """Minus infinity and infinity are the ends of its own calendar."""
    ends: list[Any] = [None, -(2**62), 2**62]
    far = pa.array([*(micro(at) for at in MOMENTS), *ends], pa.int64())
    day = pa.array([*(micro(at) // DAY for at in MOMENTS), None, -(2**30), 2**30], pa.int32()).cast(pa.date32())
    stored = {"d": day, "near": day, "ts": far.cast(pa.timestamp("us")), "tz": far.cast(pa.timestamp("us", tz="UTC"))}
    stored |= {
        "fine": far.cast(pa.timestamp("us", tz="UTC")),
        "far": stored["ts"],
        "iso": pa.array(ISO),
        "said": pa.array(SAID),
    }
    pq.write_table(pa.table(stored), tmp_path / "t.parquet")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        check(Table(f"spark:{tmp_path}/t.parquet", SCHEMA).engine)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_every_day_of_ten_thousand_years_is_the_same_day_in_a_database(tmp_path: Path):
    """The database computes our calendar, and its own beside it: one pass, no day differs."""
    pq.write_table(
        pa.table({"d": pa.array(np.arange(calendar.FIRST, calendar.LAST + 1, dtype=np.int32)).cast(pa.date32())}),
        tmp_path / "all.parquet",
    )
    schema = Schema({"d": Date("0001-01-01", "9999-12-31")})
    table = Table(str(tmp_path / "all.parquet"), schema)
    text = "SELECT SUM(YEAR(d) * 31 + MONTH(d)), SUM(DAY(d) * MONTH(d)), SUM(WEEKDAY(d) * DAY(d)), SUM(WEEK(d)), "
    text += "SUM(DAYOFYEAR(d) * QUARTER(d)), SUM(DATEDIFF('day', DATE_TRUNC('month', d), d)) FROM t"
    program = compile_query(parse_select(text, schema, "t").query, schema, level=False).program
    own = text.replace("FROM t", f"FROM '{tmp_path}/all.parquet'")
    expected = duckdb.sql(own).fetchall()[0]
    assert [int(total) for total in table.engine.totals(program)] == [int(total) for total in expected]


def test_a_column_of_numbers_is_no_date():
    with pytest.raises(BadTable, match="declared date and must be stored as date or timestamp or text"):
        Table({"d": np.arange(3)}, Schema({"d": Date("2020-01-01", "2021-01-01")}))
