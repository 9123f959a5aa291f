"""People, not rows: every engine keeps the same rows of each unit, and a unit moves no sum by more than is charged."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.errors import BadQuery, BadSchema, BadTable, Unsupported
from dodona.query.plan import compile_query
from dodona.query.sensitivity import Norms
from dodona.query.text import parse
from dodona.testing.engines import arrow_table
from dodona.testing.strategies import random_query, random_schema, random_table

SCHEMA = dd.Schema(
    {
        "cost": dd.Real(-10, 100),
        "age": dd.Integer(0, 120),
        "ward": dd.Category("a", "b", "c"),
        "smoker": dd.Flag(),
    }
)
QUERIES = [
    dd.Stack((dd.Value(parse("cost")), dd.Value(parse("age")), dd.Value(parse("1")))),
    dd.Partition(parse("ward"), dd.Stack((dd.Value(parse("1")), dd.Value(parse("cost"))))),
    dd.Gate(parse("smoker"), dd.Value(parse("cost * age"))),
    dd.Outer(dd.Features((parse("cost"), parse("age")))),
]


def rows(count: int, units: int, seed: int = 0) -> pa.Table:
    """Visits of patients, with gaps everywhere."""
    draw = np.random.default_rng(seed)
    whose = pa.array(draw.integers(0, units, count), mask=draw.random(count) < 0.05)
    return pa.table(
        {
            "patient": whose,
            "cost": pa.array(draw.normal(30, 40, count).round(2), mask=draw.random(count) < 0.1),
            "age": pa.array(draw.integers(0, 130, count), mask=draw.random(count) < 0.1),
            "ward": pa.array(draw.choice(["a", "b", "c", "d"], count).tolist(), mask=draw.random(count) < 0.1),
            "smoker": pa.array(draw.random(count) < 0.3, mask=draw.random(count) < 0.1),
        }
    )


def totals(source: object, unit: dd.Unit, query: dd.Query, schema: dd.Schema = SCHEMA) -> list[int]:
    table = dd.Table(source, schema, neighbours="add-remove", unit=unit, name="visits")
    plan = compile_query(query, schema, level=False)
    return [int(total) for total in table.engine.totals(plan.program)]


UNITS = [
    dd.Unit("patient", 1),
    dd.Unit("patient", 3),
    dd.Unit("patient", 4, ("ward",), 1),
    dd.Unit("patient", 3, (), 2, 2),
]


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("text", [False, True])
def test_files_and_memory_keep_the_same_rows(tmp_path, unit, text):
    table = rows(3_000, 400)
    if text:
        table = table.set_column(0, "patient", table.column("patient").cast(pa.string()))
    pq.write_table(table, tmp_path / "visits.parquet")
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=100))
    for query in QUERIES:
        expected = totals(table, unit, query)
        assert totals(shuffled, unit, query) == expected
        assert totals(str(tmp_path / "visits.parquet"), unit, query) == expected
    frame = table.select(["patient"]).to_pandas(integer_object_nulls=True)["patient"]
    assert totals(reader, unit, QUERIES[0]) == totals(table.to_pandas().assign(patient=frame), unit, QUERIES[0])
    import polars as pl

    assert totals(pl.from_arrow(table), unit, QUERIES[0]) == totals(table, unit, QUERIES[0])


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_hostile_rows_are_kept_alike(tmp_path_factory, data):
    """Edge values of every type: NaN, infinities, NULL, extremes: the same rows in DuckDB and in memory."""
    drawn = data.draw(random_schema())
    table = arrow_table(data.draw(random_table(drawn)))
    schema = dd.Schema({name: _private(column) for name, column in drawn.items()})
    whose = data.draw(st.lists(st.sampled_from([None, 1, 2]), min_size=table.num_rows, max_size=table.num_rows))
    table = table.append_column("whose unit", pa.array(whose, pa.int32()))
    file = tmp_path_factory.mktemp("hostile") / "rows.parquet"
    pq.write_table(table, file)
    unit = dd.Unit("whose unit", data.draw(st.integers(1, 3)))
    query = data.draw(random_query(schema))
    try:
        compile_query(query, schema, level=False)
    except BadQuery:
        reject()
    assert totals(str(file), unit, query, schema) == totals(table, unit, query, schema)


def _private(column):
    described = column.describe()
    described.pop("public", None)
    return dd.Schema.read({"x": described})["x"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(UNITS), st.sampled_from(QUERIES))
def test_a_unit_moves_sums_by_at_most_what_is_charged(seed, unit, query):
    """With and without one unit, whatever its rows: each norm of the difference stays within the derived bound."""
    table = rows(60, 6, seed)
    gone = table.filter(pa.compute.not_equal(table.column("patient"), pa.scalar(0)).fill_null(True))
    plan = compile_query(query, SCHEMA, level=False)
    charged = unit.norms(query, plan.reach.under("add-remove"), plan.program)
    change = np.array(totals(table, unit, query)) - np.array(totals(gone, unit, query))
    weights = np.zeros(plan.dimension, dtype=object)
    for weight, places in plan.places.items():
        weights[places] = weight
    moved = [abs(Fraction(int(value)) / weight) for value, weight in zip(change, weights, strict=True)]
    assert sum(moved) <= charged.l1
    assert sum(value * value for value in moved) <= charged.l2_squared
    assert max(moved) <= charged.linf


def charged(unit: dd.Unit, query: dd.Query) -> Norms:
    plan = compile_query(query, SCHEMA, level=True)
    return unit.norms(query, plan.reach.under("add-remove"), plan.program)


def test_the_bounds_are_reached():
    """A unit with its rows in one cell, or one in each, attains the norms, so nothing is over-charged."""
    count = dd.Partition(parse("ward"), dd.Value(parse("1")))
    plain, grouped = charged(UNITS[1], count), charged(UNITS[2], count)
    assert (plain.l1, plain.l2_squared, plain.linf) == (3, 9, 3)
    assert (grouped.l1, grouped.l2_squared, grouped.linf) == (4, 4, 1)
    assert charged(dd.Unit("patient", 5, "ward", 2), count).l2_squared == 2 * 2**2 + 1
    assert charged(UNITS[2], dd.Gate(parse("smoker"), dd.Partition(parse("smoker"), count))).l2_squared == 4
    other = dd.Partition(parse("smoker"), dd.Value(parse("1")))
    assert charged(UNITS[2], other).l2_squared == 16  # its cells do not tell the wards apart
    assert charged(UNITS[2], dd.Stack((count, other))).l2_squared == 2 * 16


def test_the_choice_is_not_of_the_smallest():
    """The mean over kept rows is near the mean over all: which rows are kept does not depend on their size."""
    table = rows(40_000, 4_000)
    total, count = totals(table, dd.Unit("patient", 2), dd.Stack((dd.Value(parse("age")), dd.Value(parse("1")))))
    everyone, number = totals(
        table, dd.Unit("patient", 10**6), dd.Stack((dd.Value(parse("age")), dd.Value(parse("1"))))
    )
    assert count < number / 3
    assert total / count == pytest.approx(everyone / number, abs=4 * 40 / math.sqrt(count))


def test_a_curator_charges_for_the_unit(tmp_path):
    pq.write_table(rows(2_000, 300), tmp_path / "visits.parquet")
    budget = dd.Budget(epsilon=1, delta=1e-6)

    def curator(unit):
        table = dd.Table(tmp_path / "visits.parquet", SCHEMA, neighbours="add-remove", rows=2_000, unit=unit)
        return dd.Curator(table, budget)

    one, four = curator(dd.Unit("patient", 1)), curator(dd.Unit("patient", 4))
    ratio = four.price("age > 60", share=0.1).spread / one.price("age > 60", share=0.1).spread
    assert ratio == pytest.approx(4, rel=0.01)
    price = four.price("age > 60", tolerance=0.05)
    assert price.cost.amount == pytest.approx(16 * one.price("age > 60", tolerance=0.05).cost.amount, rel=0.01)
    answer = four.ask("age > 60", share=0.1)
    assert "one patient with at most 4 row(s)" in answer.cost.neighbours
    assert "one patient with at most 4 row(s)" in price.sensitivity
    best = four.select(["age > 60", "smoker"], epsilon=0.2)
    assert best.margin == pytest.approx(4 * one.select(["age > 60", "smoker"], epsilon=0.2).margin, rel=0.1)
    grouped = curator(dd.Unit("patient", 4, ("ward",), 1))
    by_ward = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
    assert grouped.price(by_ward, share=0.1).spread[0] == pytest.approx(
        four.price(by_ward, share=0.1).spread[0] / 2, rel=0.01
    )


def test_one_person_with_a_million_rows_counts_with_a_few(tmp_path):
    """HOSTILE V36."""
    crowd = rows(500, 100)
    flood = pa.table({**{n: crowd.column(n) for n in crowd.column_names}})
    many = pa.table(
        {
            "patient": pa.array(np.full(1_000_000, 7)),
            "cost": pa.array(np.full(1_000_000, 100.0)),
            "age": pa.array(np.full(1_000_000, 120)),
            "ward": pa.array(["a"] * 1_000_000),
            "smoker": pa.array(np.ones(1_000_000, bool)),
        }
    )
    both = pa.concat_tables([flood, many.cast(flood.schema)])
    without = flood.filter(pa.compute.not_equal(flood.column("patient"), pa.scalar(7)).fill_null(True))
    unit, count = dd.Unit("patient", 3), dd.Stack((dd.Value(parse("1")), dd.Value(parse("age"))))
    pq.write_table(both, tmp_path / "flood.parquet")
    for source in (both, str(tmp_path / "flood.parquet")):
        moved = np.array(totals(source, unit, count)) - np.array(totals(without, unit, count))
        assert moved[0] <= 3
        assert moved[1] <= 360


def test_what_does_not_fit_is_refused(tmp_path):
    table = rows(50, 10)
    with pytest.raises(BadTable, match="add-remove"):
        dd.Table(table, SCHEMA, unit=dd.Unit("patient", 2))
    with pytest.raises(BadTable, match="unit column 'person'"):
        dd.Table(table, SCHEMA, neighbours="add-remove", unit=dd.Unit("person", 2))
    with pytest.raises(BadSchema, match="must not be a column"):
        dd.Table(table, SCHEMA, neighbours="add-remove", unit=dd.Unit("age", 2))
    public = dd.Schema({**SCHEMA, "ward": dd.Category("a", "b", "c", public=True)})
    with pytest.raises(BadSchema, match="public"):
        dd.Table(table, public, neighbours="add-remove", unit=dd.Unit("patient", 2))
    floating = table.set_column(0, "patient", table.column("patient").cast(pa.float64()))
    pq.write_table(floating, tmp_path / "f.parquet")
    for source in (floating, str(tmp_path / "f.parquet")):
        with pytest.raises(BadTable, match="whole numbers or text"):
            dd.Table(source, SCHEMA, neighbours="add-remove", unit=dd.Unit("patient", 2))
    for bad in ({"max_rows": 0}, {"max_rows": True}, {"max_rows": 2, "group": ("ward",)}):
        with pytest.raises(BadSchema):
            dd.Unit("patient", **bad)
    with pytest.raises(BadSchema, match="max_rows_per_group must be at most"):
        dd.Unit("patient", 2, "ward", 3)
    with pytest.raises(BadSchema, match="group must name columns"):
        dd.Unit("patient", 2, "town", 1).checked(SCHEMA)
    kept = dd.Table(table, SCHEMA, neighbours="add-remove", unit=dd.Unit("patient", 2), name="visits")
    with pytest.raises(Unsupported):
        dd.Local(kept, epsilon=1)


def test_a_unit_reads_back_from_what_it_writes():
    for unit in UNITS:
        assert dd.Unit.read(unit.describe()) == unit
    for bad in (
        None,
        {},
        {"max_rows_per_group": 2},
        {"column": "p", "max_rows": 1, "x": 1},
        {"column": "p", "max_rows": 1, "group": 3},
    ):
        with pytest.raises(BadSchema):
            dd.Unit.read(bad)


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("text", [False, True])
def test_postgresql_keeps_the_same_rows(postgres, unit, text):
    table = rows(800, 120)
    if text:
        table = table.set_column(0, "patient", table.column("patient").cast(pa.string()))
    kind = "text" if text else "bigint"
    with postgres.connect() as admin:
        admin.execute("DROP TABLE IF EXISTS visits")
        admin.execute(f"CREATE TABLE visits (patient {kind}, cost float8, age bigint, ward text, smoker boolean)")
        with admin.cursor().copy("COPY visits FROM STDIN") as copy:
            for row in table.to_pylist():
                copy.write_row(list(row.values()))
        admin.commit()
    for query in QUERIES:
        assert totals(postgres.url() + "#public.visits", unit, query) == totals(table, unit, query)


@pytest.mark.xdist_group("spark")
def test_spark_keeps_the_same_rows(spark, tmp_path):
    table = rows(800, 120)
    pq.write_table(table, tmp_path / "visits.parquet")
    frame = spark.read.parquet(str(tmp_path / "visits.parquet"))
    for unit in UNITS[1:]:
        for query in QUERIES[:3]:
            assert totals(frame, unit, query) == totals(table, unit, query)
