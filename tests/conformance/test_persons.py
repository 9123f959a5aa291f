"""A person first: what rows come to, person by person, is alike everywhere and moves as far as is charged."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona.errors import BadQuery, BudgetSpent, Refused, Unsupported
from dodona.oracles.effort import Effort
from dodona.oracles.fronts import quoted
from dodona.oracles.oracle import Request
from dodona.query.persons import read_persons
from dodona.query.plan import compile_query
from dodona.query.unit import Bounds
from dodona.testing.oracles import seeded_curator

SCHEMA = dd.Schema(
    {
        "cost": dd.Real(-10, 100),
        "age": dd.Integer(0, 120),
        "day": dd.Integer(0, 365),
        "ward": dd.Category("a", "b", "c"),
        "old": dd.Flag(),
    }
)
UNIT = dd.Unit("patient", 4)
INNER = (
    "SELECT patient, ward, LEAST(GREATEST(SUM(cost), -20), 300) AS x, MIN(cost) AS least, MAX(age) AS most, "
    "LEAST(COUNT(*), 5) AS n, LEAST(COUNT(cost), 3) AS known, AVG(cost) AS mean, FIRST(age ORDER BY day) AS first, "
    "ARG_MAX(ward, day) AS last FROM visits WHERE age > 20 OR old GROUP BY patient, ward"
)


def rows(count: int, people: int, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "patient": pa.array(draw.integers(0, people, count), mask=draw.random(count) < 0.05),
            "cost": pa.array(draw.normal(30, 40, count).round(2), mask=draw.random(count) < 0.1),
            "age": pa.array(draw.integers(0, 130, count), mask=draw.random(count) < 0.1),
            "day": pa.array(draw.integers(0, 30, count), mask=draw.random(count) < 0.1),
            "ward": pa.array(draw.choice(["a", "b", "c", "d"], count).tolist(), mask=draw.random(count) < 0.1),
            "old": pa.array(draw.random(count) < 0.3, mask=draw.random(count) < 0.1),
        }
    )


def table(source: object, unit: dd.Unit = UNIT) -> dd.Table:
    return dd.Table(source, SCHEMA, neighbours="add-remove", unit=unit, name="visits")


def values(found: dd.Rows) -> list[list[object]]:
    return [[getattr(cell, "value", cell) for cell in record] for record in found]


QUESTIONS = [
    f"SELECT ward, COUNT(*), SUM(x), AVG(least), AVG(most), SUM(n), SUM(known), SUM(mean), SUM(first) FROM ({INNER}) "
    "GROUP BY ward OPTIONS (max_groups = 2)",
    f"SELECT last, COUNT(*) FROM ({INNER}) AS p WHERE p.n >= 2 GROUP BY last",
    "SELECT visits, COUNT(*) AS people FROM (SELECT patient, LEAST(COUNT(*), 12) AS visits FROM visits "
    "GROUP BY patient) GROUP BY visits",
    "SELECT COUNT(*) FROM (SELECT patient FROM visits WHERE old GROUP BY patient "
    "HAVING COUNT(*) >= 2 AND SUM(cost) > 40)",
    "SELECT AVG(x) FROM (SELECT patient, SUM(age) AS x FROM visits GROUP BY patient) OPTIONS (max_rows = 9)",
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_files_and_memory_make_the_same_people(tmp_path, question):
    stored = rows(1_500, 200)
    pq.write_table(stored, tmp_path / "visits.parquet")
    shuffled = stored.take(np.random.default_rng(1).permutation(stored.num_rows))
    expected = values(dd.Exact(table(stored)).sql(question))
    assert values(dd.Exact(table(shuffled)).sql(question)) == expected
    assert values(dd.Exact(table(str(tmp_path / "visits.parquet"))).sql(question)) == expected


def test_people_are_what_their_rows_come_to():
    """By a loop over people, without any engine."""
    stored = rows(400, 60, seed=4).to_pylist()
    people: dict[object, list[dict[str, object]]] = defaultdict(list)
    for row in stored:
        people[row["patient"]].append(row)
    clip = lambda x, low, high: min(max(x, low), high)  # noqa: E731
    grid = lambda x: math.trunc(Fraction(x) * 2**17)  # noqa: E731 - of numbers up to 100
    sums = [
        clip(sum(grid(clip(row["cost"], -10, 100)) for row in own if row["cost"] is not None), 0, 150 * 2**17)
        for own in people.values()
    ]
    inner = "SELECT patient, GREATEST(LEAST(SUM(cost), 150), 0) AS x FROM visits GROUP BY patient"
    oracle = dd.Exact(table(rows(400, 60, seed=4))).persons(inner)
    assert oracle.ask("x > 149.9999").total == sum(total > 149.9999 * 2**17 for total in sums)
    assert float(oracle.ask("x").total) == pytest.approx(sum(sums) / 2**17, abs=len(sums) * 2**-16)
    firsts = []
    for own in people.values():
        dated = sorted(row["day"] for row in own if row["day"] is not None)
        firsts += dated[:1]
    days = dd.Exact(table(rows(400, 60, seed=4))).persons(
        "SELECT patient, MIN(day) AS first FROM visits GROUP BY patient"
    )
    assert days.ask("first").total == sum(min(day, 365) for day in firsts)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("groups", "unit"), [(1, UNIT), (2, UNIT), (3, dd.Unit("patient", 1))])
def test_a_person_moves_sums_over_people_by_at_most_what_is_charged(seed, groups, unit):
    stored = rows(50, 5, seed)
    gone = stored.filter(pa.array([patient != 0 for patient in stored.column("patient").to_pylist()]))
    made = read_persons(INNER, SCHEMA, "visits", "patient", groups=groups)
    tables = [table(source, unit).persons(made) for source in (stored, gone)]
    of = dd.Stack(tuple(dd.Value(dd.parse(name)) for name in ("x", "n", "mean", "1")))
    for query in (of, dd.Partition(dd.parse("ward"), of), dd.Gate(dd.parse("n > 1"), of)):
        plan = compile_query(query, made.schema, level=False)
        charged = tables[0].unit.norms(query, plan.reach.under("add-remove"), plan.program)
        with_one, without = ([int(x) for x in each.engine.totals(plan.program)] for each in tables)
        weights = np.zeros(plan.dimension, dtype=object)
        for weight, places in plan.places.items():
            weights[places] = weight
        moved = [abs(Fraction(a - b) / w) for a, b, w in zip(with_one, without, weights, strict=True)]
        assert sum(moved) <= charged.l1
        assert sum(x * x for x in moved) <= charged.l2_squared
        assert max(moved) <= charged.linf


def test_the_reach_is_that_of_one_value_in_so_many_groups():
    """g max|x| in L1 and sqrt(g) max|x| in L2, attained where the groups are those of the question."""
    made = read_persons(
        "SELECT patient, ward, LEAST(COUNT(*), 7) AS n FROM visits GROUP BY patient, ward",
        SCHEMA,
        "visits",
        "patient",
        groups=2,
    )
    people = table(rows(30, 4)).persons(made)
    by, alone = dd.Partition(dd.parse("ward"), dd.Value(dd.parse("n"))), dd.Value(dd.parse("n"))
    norms = []
    for query in (by, alone):
        plan = compile_query(query, made.schema, level=True)
        norms.append(people.unit.norms(query, plan.reach.under("add-remove"), plan.program))
    assert (norms[0].l1, norms[0].l2_squared, norms[0].linf) == (14, 2 * 49, 7)
    assert (norms[1].l1, norms[1].l2_squared, norms[1].linf) == (14, 14**2, 14)


def test_one_person_who_is_all_rows_counts_as_one():
    stored = pa.table(
        {
            "patient": np.zeros(100_000, int),
            "cost": np.full(100_000, 100.0),
            "age": np.full(100_000, 120),
            "day": np.arange(100_000) % 365,
            "ward": ["a"] * 100_000,
            "old": np.ones(100_000, bool),
        }
    )
    inner = "SELECT patient, GREATEST(LEAST(SUM(cost), 500), 0) AS x FROM visits GROUP BY patient"
    assert values(dd.Exact(table(stored)).sql(f"SELECT COUNT(*), SUM(x) FROM ({inner})")) == [[1, 500]]


CLIPPED = "SELECT ward, SUM(cost) AS s, COUNT(*) AS n, COUNT(DISTINCT patient) AS p FROM visits WHERE age > 20 "
WRITTEN = (
    "SELECT ward, SUM(s) AS s, SUM(n) AS n, COUNT(*) AS p FROM (SELECT patient, ward, GREATEST(LEAST(SUM(cost), 150), "
    "-150) AS s, LEAST(COUNT(*), 3) AS n FROM visits WHERE age > 20 GROUP BY patient, ward) GROUP BY ward "
    "HAVING SUM(s) > 0 ORDER BY ward DESC OPTIONS (max_groups = 2)"
)


def test_a_clip_is_of_each_persons_sum(tmp_path):
    """As if people had been written out, on every way to say it, at their price."""
    stored = rows(1_500, 200)
    pq.write_table(stored, tmp_path / "visits.parquet")
    asked = (
        CLIPPED
        + "GROUP BY ward HAVING SUM(cost) > 0 ORDER BY ward DESC OPTIONS (clip = 150, max_rows = 3, max_groups = 2)"
    )
    expected = values(dd.Exact(table(stored)).sql(WRITTEN))
    assert len(expected) == 3
    assert values(dd.Exact(table(stored)).sql(asked)) == expected
    assert values(dd.Exact(table(tmp_path / "visits.parquet")).sql(asked)) == expected
    curator = dd.Curator(table(stored), dd.Budget(epsilon=10))
    assert str(curator.price(asked, share=0.1).margin) == str(curator.price(WRITTEN, share=0.1).margin)
    whole = "SELECT patient, GREATEST(LEAST(SUM(cost), 150), -150) AS s FROM visits WHERE old GROUP BY patient"
    once = dd.Exact(table(stored)).persons(whole).ask("s").total
    bounded = dd.Exact(table(stored)).bounded(clip=150)
    assert bounded.ask(dd.Gate(dd.parse("old"), dd.Value(dd.parse("cost")))).total == once
    assert bounded.sql("SELECT SUM(cost) AS s FROM visits WHERE old").to_dicts()[0]["s"] == pytest.approx(once)
    assert bounded.sql("SELECT SUM(cost) FILTER (WHERE old) AS s FROM visits").to_dicts()[0]["s"] == pytest.approx(once)
    mean = bounded.bounded(max_rows=1000).sql("SELECT AVG(cost) AS m FROM visits OPTIONS (clip = 4000)")
    assert mean.to_dicts()[0]["m"] == pytest.approx(
        dd.Exact(table(stored, dd.Unit("patient", 10**6))).sql("SELECT AVG(cost) AS m FROM visits").to_dicts()[0]["m"],
        abs=1e-2,
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("SELECT COUNT(*) FROM visits OPTIONS (clip = 5)", "has no bound: write LEAST"),
        ("SELECT MEDIAN(cost) FROM visits OPTIONS (clip = 5)", "SUM, AVG, COUNT"),
        ("SELECT SUM(cost) FROM visits OPTIONS (clip = 5, max_rows_per_group = 2)", "leave out max_rows_per_group"),
        ("SELECT SUM(cost) FROM visits OPTIONS (clip = 0)", "clip must be a number"),
        ("SELECT SUM(cost) FROM visits OPTIONS (max_rows = 2.5)", "but for clip"),
        ("SELECT ward, SUM(cost) FROM visits GROUP BY ROLLUP (ward) OPTIONS (clip = 5)", "takes keys"),
        ("WITH a AS (SELECT SUM(cost) FROM visits) SELECT 1 FROM a OPTIONS (clip = 5)", "one SELECT over rows"),
        (
            "SELECT SUM(x) FROM (SELECT patient, MAX(age) AS x FROM visits GROUP BY patient) OPTIONS (clip = 5)",
            "leave out max_rows_per_group and clip",
        ),
    ],
)
def test_what_cannot_be_clipped_is_refused_before_a_charge(asked, said):
    curator = dd.Curator(table(rows(50, 9)), dd.Budget(epsilon=1))
    with pytest.raises(BadQuery, match=said):
        curator.sql(asked, share=0.5)
    bounded = curator.bounded(clip=5)
    for refused in (
        lambda: bounded.select(["old"], share=0.5),
        lambda: bounded.ask(dd.Partition(dd.parse("ward"), dd.Value(dd.parse("cost"))), share=0.5),
    ):
        with pytest.raises((Unsupported, Refused, BadQuery)):
            refused()
    assert curator.left == 1


def test_a_clip_without_a_sum_is_refused():
    """Whoever hands a request with a clip to a curator gets no answer without it."""
    curator = dd.Curator(table(rows(50, 9)), dd.Budget(epsilon=1))
    query, bounds = dd.Value(dd.parse("cost")), Bounds(clip=5.0)
    with pytest.raises(BadQuery, match="a clip is of the sums that a SELECT states"):
        curator.answer(Request(query, Effort.of(share=0.5), bounds=bounds))
    assert curator.left == 1


def test_people_are_paid_for_by_the_ledger_of_their_rows(tmp_path):
    place = tmp_path / "visits.ledger"
    curator = dd.Curator(table(rows(500, 80)), dd.Budget(epsilon=1), place, create=True)
    asked = f"SELECT ward, SUM(x) AS x FROM ({INNER}) GROUP BY ward OPTIONS (max_groups = 2)"
    price = curator.price(asked, epsilon=0.5)
    answer = curator.sql(asked, epsilon=0.5)
    assert price.cost.amount == pytest.approx(0.5)
    assert curator.left == pytest.approx(0.5)
    whom = "add-remove of one patient with at most 2 row(s), at most 1 per ward, of people made by SELECT patient"
    assert answer.cost.neighbours.startswith(whom)
    inner = "SELECT patient, LEAST(COUNT(*), 9) AS n FROM visits GROUP BY patient"
    people = curator.persons(inner)
    assert people.whose == "patient"
    people.ask("n > 3", epsilon=0.4, request_id="mine")
    for other in (
        curator.persons(inner.replace("9", "8")),
        curator.persons(inner.replace(" AS n FROM", " AS n FROM  ")),
    ):
        with pytest.raises(Exception, match="request"):
            other.ask("n > 3", epsilon=0.4, request_id="mine")
    with pytest.raises(BudgetSpent):
        people.ask("n > 3", epsilon=0.2)
    assert "LEAST(SUM" in next(entry.what for entry in curator.ledger.entries() if "SELECT" in entry.what).replace(
        "LEAST(GREATEST(SUM", "LEAST(SUM"
    )


def test_what_people_are_made_of_is_part_of_what_was_asked(tmp_path):
    """The same words over other bounds of a row are another question; nor are the published numbers of some people
    those of others.
    """
    place, inner = tmp_path / "visits.ledger", "SELECT patient, LEAST(GREATEST(SUM(cost), -9), 300) AS x FROM visits"
    held, asked = rows(200, 40), f"SELECT SUM(x) FROM ({inner} GROUP BY patient)"
    narrow = dd.Schema({**SCHEMA, "cost": dd.Real(-10, 10)})
    first, second = (
        dd.Curator(
            dd.Table(held, schema, neighbours="add-remove", unit=UNIT, name="visits", population="p"),
            dd.Budget(epsilon=9, delta=1e-6),
            place,
            create=True,
        )
        for schema in (SCHEMA, narrow)
    )
    first.sql(asked, epsilon=0.1, request_id="mine")
    with pytest.raises(Refused, match="request id"):
        second.sql(asked, epsilon=0.1, request_id="mine")
    youngest, oldest = (
        first.persons(f"SELECT patient, {named}(age) AS age FROM visits GROUP BY patient", rows=40)
        for named in ("MIN", "MAX")
    )
    published = dd.release.intervals(oldest, "age", share=0.1)
    oldest.attach(published, estimates=True)
    with pytest.raises(Unsupported, match="protect"):
        youngest.attach(published, estimates=True)
    with pytest.raises(Unsupported, match="made of rows"):
        youngest._table.restated(youngest.schema)


def test_people_of_which_some_are_asked_have_a_price_and_an_explanation(tmp_path):
    curator = dd.Curator(table(rows(200, 40)), dd.Budget(epsilon=9))
    asked = "SELECT COUNT(*) FROM (SELECT patient, MAX(age) AS m FROM visits GROUP BY patient HAVING SUM(age) > 2)"
    oracle, select = curator.read(asked)
    assert quoted(oracle, Request.of(select, Effort.of(epsilon=0.1))).cost.amount == pytest.approx(0.1)
    assert "(having 1)" in curator.explain(asked, epsilon=0.1)


def test_people_and_rows_are_not_taken_for_each_other():
    inner = "SELECT patient, LEAST(COUNT(*), 9) AS n FROM visits GROUP BY patient"
    with pytest.raises(BadQuery, match="two statements"):
        dd.Exact(table(rows(60, 9))).sql(f"SELECT SUM(n) AS n FROM ({inner}) UNION ALL SELECT COUNT(*) FROM visits")


def test_people_are_ordered_by_whatever_column_comes_first(tmp_path):
    """Also by the one that the program reads first."""
    held = rows(300, 40)
    pq.write_table(held, tmp_path / "visits.parquet")
    asked = "SELECT SUM(z) FROM (SELECT patient, ARG_MAX(age, day) AS z FROM visits WHERE day > 3 GROUP BY patient)"
    here, there = (values(dd.Exact(table(source)).sql(asked)) for source in (held, tmp_path / "visits.parquet"))
    assert here == there


def test_learners_and_releases_take_people():
    curator = seeded_curator(table(rows(2_000, 300)), dd.Budget(epsilon=200), 1)
    people = curator.persons(
        "SELECT patient, GREATEST(LEAST(SUM(cost), 300), 0) AS cost, LEAST(COUNT(*), 12) AS n "
        "FROM visits GROUP BY patient",
        rows=300,
    )
    model = dd.learn.KMeans(2, share=0.2).fit(people)
    assert model.cluster_centers_.shape == (2, 2)
    ranges = dd.release.intervals(people, "n", share=0.2)
    assert ranges.ask("n >= 0").total == pytest.approx(301, abs=20)
    with pytest.raises(Unsupported):
        dd.Local(table(rows(20, 3)), epsilon=1)


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        ("SELECT patient, SUM(cost) AS x FROM visits GROUP BY patient", "has no bound"),
        ("SELECT patient, COUNT(*) AS x FROM visits GROUP BY patient", "has no bound"),
        ("SELECT patient, LEAST(COUNT(*), -3) AS x FROM visits GROUP BY patient", "low end below"),
        ("SELECT patient, day FROM visits GROUP BY patient", "neither an aggregate nor a key"),
        ("SELECT patient, FIRST(cost) AS f FROM visits GROUP BY patient", "by a column"),
        ("SELECT patient, cost FROM visits GROUP BY patient, cost", "listed value"),
        ("SELECT patient, MIN(cost) AS patient FROM visits GROUP BY patient", "another name"),
        ("SELECT patient, MIN(cost) AS a, MAX(cost) AS a FROM visits GROUP BY patient", "another name"),
        ("SELECT patient, COUNT(DISTINCT ward) AS a FROM visits GROUP BY patient", "COUNT takes"),
        ("SELECT patient, MIN(cost) AS a FROM visits GROUP BY patient ORDER BY a", "nothing else"),
        ("SELECT MIN(patient) AS a FROM visits GROUP BY patient", "not a column"),
        ("SELECT patient FROM visits GROUP BY ward", "GROUP BY patient"),
        ("SELECT patient, MIN(cost) AS a FROM elsewhere GROUP BY patient", "reads visits"),
    ],
)
def test_what_makes_no_people_is_refused_before_a_charge(inner, said):
    curator = dd.Curator(table(rows(20, 3)), dd.Budget(epsilon=1))
    with pytest.raises(BadQuery, match=said):
        curator.persons(inner)
    assert curator.left == 1


def test_people_are_made_only_where_it_is_known_whose_rows_they_are():
    plain = dd.Table(rows(20, 3), SCHEMA, name="visits")
    with pytest.raises(Unsupported, match="whose"):
        dd.Curator(plain, dd.Budget(epsilon=1)).persons("SELECT patient FROM visits GROUP BY patient")
    once = "SELECT COUNT(*) FROM (SELECT patient FROM visits GROUP BY patient)"
    with pytest.raises(BadQuery, match="one place"):
        dd.Exact(table(rows(20, 3))).sql(f"{once} UNION ALL {once}")
    curator = dd.Curator(table(rows(20, 3)), dd.Budget(epsilon=1))
    curator._table.engine.makes_persons = False
    with pytest.raises(Unsupported):
        curator.persons("SELECT patient, LEAST(COUNT(*), 3) AS n FROM visits GROUP BY patient").ask("n", share=0.1)
    assert curator.left == 1


def test_postgresql_makes_the_same_people(postgres):
    stored = rows(600, 90)
    with postgres.connect() as admin:
        admin.execute("DROP TABLE IF EXISTS visits")
        admin.execute(
            "CREATE TABLE visits (patient bigint, cost float8, age bigint, day bigint, ward text, old boolean)"
        )
        with admin.cursor().copy("COPY visits FROM STDIN") as copy:
            for row in stored.to_pylist():
                copy.write_row(list(row.values()))
        admin.commit()
    for question in QUESTIONS:
        expected = values(dd.Exact(table(stored)).sql(question))
        assert values(dd.Exact(table(postgres.url() + "#public.visits")).sql(question)) == expected


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_spark_makes_the_same_people(spark, tmp_path):
    stored = rows(600, 90)
    pq.write_table(stored, tmp_path / "visits.parquet")
    frame = spark.read.parquet(str(tmp_path / "visits.parquet"))
    for question in QUESTIONS[:2]:
        assert values(dd.Exact(table(frame)).sql(question)) == values(dd.Exact(table(stored)).sql(question))
