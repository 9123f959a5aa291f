"""Private tables joined on whose rows they are: every row of the result is one person's, on every engine alike."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.errors import BadQuery, BadTable, Unsupported
from dodona.query.plan import compile_query
from dodona.query.text import parse
from tests.support.twins import Twins, within_reach

VISITS = dd.Schema({"zip": dd.Category("01", "02", "03"), "cost": dd.Integer(0, 100)})
PATIENTS = dd.Schema({"age": dd.Integer(0, 120), "cost": dd.Integer(0, 9, missing=0)})
ZIPS = dd.Public({"zip": ["01", "02"], "city": ["Bergen", "Oslo"]})
JOIN = "visits JOIN patients ON visits.patient = patients.id"
PLACES = ["memory", "parquet", "csv", "duckdb", "postgres", pytest.param("spark", marks=pytest.mark.slow)]
Rows = list[tuple[Any, ...]]
NUMBERS = itertools.count(1)


def tables(place: str, folder: Any, visits: Rows, patients: Rows, rows: int = 4, ids: str = "int") -> dict[str, Any]:
    import pyarrow as pa

    whose = pa.int64() if ids == "int" else pa.string()
    told = {"patient": whose, "zip": pa.string(), "cost": pa.int64()}
    known = {"id": whose, "age": pa.int64(), "cost": pa.int64()}
    made = [
        pa.table({name: pa.array([row[i] for row in held], kind) for i, (name, kind) in enumerate(kinds.items())})
        for held, kinds in ((visits, told), (patients, known))
    ]
    facts: dict[str, Any] = {"neighbours": "add-remove", "population": "t"}
    sources = [_source(place, folder, name, table) for name, table in zip(("visits", "patients"), made, strict=True)]
    return {
        "visits": dd.Table(sources[0], VISITS, unit=dd.Unit("patient", rows), **facts),
        "patients": dd.Table(sources[1], PATIENTS, unit=dd.Unit("id", rows), **facts),
        "zips": ZIPS,
    }


def _source(place: str, folder: Any, name: str, table: Any) -> Any:
    """``folder``: a folder, or of PostgreSQL and Spark a server or session."""
    import duckdb
    import pyarrow.csv
    import pyarrow.parquet

    if place == "memory":
        return table
    if place == "spark":
        kinds = ", ".join(f"{f.name} {'bigint' if f.type == 'int64' else 'string'}" for f in table.schema)
        return folder.createDataFrame([tuple(row.values()) for row in table.to_pylist()], kinds)
    if place == "postgres":
        name = f"{name}_{next(NUMBERS)}"
        kinds = ", ".join(f"{f.name} {'bigint' if f.type == 'int64' else 'text'}" for f in table.schema)
        with folder.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {name} ({kinds})")
            cursor.executemany(
                f"INSERT INTO {name} VALUES (%s, %s, %s)", [tuple(row.values()) for row in table.to_pylist()]
            )
        return f"{folder.url()}#{name}"
    if place == "duckdb":
        with duckdb.connect(str(folder / "all.duckdb")) as connection:
            connection.register("given", table)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        return f"{folder / 'all.duckdb'}#{name}"
    file = folder / f"{name}.{place}"
    (pyarrow.parquet.write_table if place == "parquet" else pyarrow.csv.write_csv)(table, file)
    return file


def drawn(seed: int = 0, people: int = 30) -> tuple[Rows, Rows]:
    draw = np.random.default_rng(seed)

    def maybe(value: Any) -> Any:
        return None if draw.random() < 0.1 else value

    def person() -> Any:
        return maybe(int(draw.integers(0, people)))

    visits = [
        (person(), maybe(str(draw.choice(["01", "02", "03", "x"]))), maybe(int(draw.integers(-5, 110))))
        for _ in range(90)
    ]
    patients = [(person(), maybe(int(draw.integers(0, 130))), maybe(int(draw.integers(0, 12)))) for _ in range(40)]
    return visits, patients


def pairs(visits: Rows, patients: Rows) -> list[tuple[Any, ...]]:
    return [(*a, *b) for a in visits for b in patients if a[0] is not None and a[0] == b[0]]


def exact(held: dict[str, Any], text: str) -> list[dict[str, Any]]:
    dataset = dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1))
    return dd.Exact(dataset["visits"]._table).sql(text).to_dicts()  # type: ignore[attr-defined]


@pytest.mark.parametrize("ids", ["int", "text"])
@pytest.mark.parametrize("place", PLACES)
def test_every_engine_joins_people_alike(tmp_path, place, ids, request):
    """All pairs of rows of one person, with INNER and LEFT, beside a public table, by ids of numbers and of texts."""
    visits, patients = drawn()
    if ids == "text":
        visits, patients = (
            [(None if r[0] is None else f"P{r[0]}'", *r[1:]) for r in rows] for rows in (visits, patients)
        )
    where = request.getfixturevalue(place) if place in ("postgres", "spark") else tmp_path
    held = tables(place, where, visits, patients, rows=100, ids=ids)
    both = pairs(visits, patients)
    row = exact(
        held, f"SELECT COUNT(*) AS n, SUM(age) AS a, SUM(visits.cost) AS c, SUM(patients.cost) AS d FROM {JOIN}"
    )[0]
    clip = [sum(min(max(r[i] or 0, 0), high) for r in both) for i, high in ((4, 120), (2, 100), (5, 9))]
    assert [round(row[name]) for name in ("n", "a", "c", "d")] == [len(both), *clip]
    lonely = [r for r in visits if r[0] is None or r[0] not in {p[0] for p in patients}]
    row = exact(held, "SELECT COUNT(*) AS n, COUNT(age) AS a FROM visits v LEFT JOIN patients p ON p.id = v.patient")[0]
    assert [round(row[name]) for name in ("n", "a")] == [len(both) + len(lonely), sum(r[4] is not None for r in both)]
    found = exact(held, f"SELECT city, COUNT(*) AS n FROM {JOIN} JOIN zips USING (zip) WHERE age > 40 GROUP BY city")
    cities = Counter({"01": "Bergen", "02": "Oslo"}[r[1]] for r in both if (r[4] or 0) > 40 and r[1] in ("01", "02"))
    assert {r["city"]: round(r["n"]) for r in found if round(r["n"])} == cities


MADE = (  # people made of rows that are joined to private and to public tables
    "SELECT old, COUNT(*) AS n, SUM(x) AS x, SUM(last) AS l FROM (SELECT visits.patient, age > 40 AS old, "
    "LEAST(SUM(visits.cost), 150) AS x, LAST(visits.cost ORDER BY patients.cost) AS last "
    f"FROM {JOIN} WHERE patients.cost < 8 GROUP BY visits.patient, age > 40) GROUP BY old",
    "SELECT city, SUM(x) AS x, COUNT(*) AS n FROM (SELECT v.patient, city, LEAST(COUNT(*), 3) AS x FROM visits v "
    "JOIN zips USING (zip) GROUP BY v.patient, city HAVING MAX(cost) > 20) GROUP BY city OPTIONS (max_groups = 2)",
)


@pytest.mark.parametrize("place", [place for place in PLACES if place != "memory"])
def test_people_are_made_of_joined_rows_alike(tmp_path, place, request):
    visits, patients = drawn(11)
    where = request.getfixturevalue(place) if place in ("postgres", "spark") else tmp_path
    here, there = (tables(at, where, visits, patients) for at in ("memory", place))
    for asked in MADE:
        assert exact(here, asked) == exact(there, asked)
    rows = exact(here, MADE[0])
    people: dict[Any, list[tuple[Any, ...]]] = {}
    for row in pairs(visits, patients):
        if row[4] is not None and (row[5] is None or row[5] < 8):
            people.setdefault((row[0], row[4] > 40), []).append(row)
    sums = {key: min(sum(min(max(r[2] or 0, 0), 100) for r in own), 150) for key, own in people.items()}
    own = {old: sum(x for (_, o), x in sums.items() if o == old) for old in (False, True)}
    assert {row["old"]: round(row["x"]) for row in rows if row["old"] in own} == own


def totals(held: dict[str, Any], query: dd.Query) -> list[int]:
    dataset = dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1))
    table = dataset[JOIN]._table  # type: ignore[attr-defined]
    program = compile_query(query, table.schema, level=False).program
    return [int(total) for total in table.engine.totals(program)]


QUERY = dd.Stack((dd.Value(parse("1")), dd.Value(parse("age")), dd.Partition(parse("zip"), dd.Value(parse("cost")))))


@pytest.mark.parametrize("many", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_rows_of_one_person_in_each_table_count_as_the_bound_says(tmp_path, many):
    """Up to a million pairs; which of them count is decided by what they hold, alike in files and in memory."""
    visits = [(1, f"0{i % 3 + 1}", i % 101) for i in range(many)] + [(2, "01", 5)]
    patients = [(1, i % 121, i % 10) for i in range(many)] + [(2, 50, 3)]
    (tmp_path / "a").mkdir()
    found = [totals(tables(place, tmp_path, visits, patients, rows=3), QUERY) for place in ("memory", "parquet")]
    assert found[0] == found[1]
    assert found[0][0] == 4
    back = tables("parquet", tmp_path / "a", visits[::-1], patients[::-1], rows=3)
    assert totals(back, QUERY) == found[0]


person = st.integers(0, 3) | st.none()
some_visits = st.lists(
    st.tuples(person, st.sampled_from(["01", "02", "x", None]), st.integers(-9, 200) | st.none()), max_size=9
)
some_patients = st.lists(st.tuples(person, st.integers(-9, 200) | st.none(), st.integers(0, 9)), max_size=6)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(some_visits, some_patients, person, st.integers(1, 4), st.sampled_from(["JOIN", "LEFT JOIN"]))
def test_a_person_in_all_tables_moves_no_sum_by_more_than_is_charged(visits, patients, gone, rows, how):
    """Twins that differ in all rows of one person, in every table: what is charged bounds what moves."""
    from_ = f"visits {how} patients ON visits.patient = patients.id"
    sides = []
    for kept in (lambda _: True, lambda row: row[0] != gone):
        held = tables("memory", Path(), [*filter(kept, visits)], [*filter(kept, patients)], rows=rows)
        dataset = dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1))
        sides.append(dataset["visits"].joined(_read(from_))[0])
    request = _request(sides[0])
    plan, noise = sides[0]._priced(request)[:2]
    found = [np.asarray(side._table.engine.totals(plan.program), dtype=object) for side in sides]
    within_reach(plan, sides[0]._norms(request, plan), *found)
    assert noise is not None


def _read(text: str) -> Any:
    from dodona.query.select import read_from

    return read_from(text)


def _request(oracle: Any) -> Any:
    from dodona.oracles.effort import Effort
    from dodona.oracles.oracle import Request

    return Request(oracle._query(QUERY), Effort.of(share=1))


@pytest.mark.parametrize("place", ["memory", "parquet", "postgres", pytest.param("spark", marks=pytest.mark.slow)])
def test_twins_that_differ_in_a_whole_person_are_clean(tmp_path, place, request):
    visits, patients = drawn(3, people=6)
    sides = []
    for number, gone in enumerate((None, 4)):
        folder = tmp_path / str(number)
        folder.mkdir()
        kept = [[row for row in rows if gone is None or row[0] != gone] for rows in (visits, patients)]
        where = request.getfixturevalue(place) if place in ("postgres", "spark") else folder
        dataset = dd.Dataset(tables(place, where, *kept), "patient", budget=dd.Budget(epsilon=1), population="t")
        sides.append(dataset["visits"]._table)  # type: ignore[attr-defined]
    twins = Twins(*sides, dd.Budget(epsilon=100))
    for text in (
        f"SELECT zip, COUNT(*) AS n, AVG(age) AS a FROM {JOIN} GROUP BY zip",
        f"SELECT city, SUM(visits.cost) AS c FROM {JOIN} JOIN zips USING (zip) WHERE age < 60 GROUP BY city",
        "SELECT COUNT(*) AS n FROM visits LEFT JOIN patients ON patients.id = visits.patient",
    ):
        twins.sql(text, share=0.1)
    assert twins.requests >= 3


def test_what_is_cut_of_joined_rows_is_the_same_in_every_place(tmp_path, postgres):
    """The bound cuts by a hash of the joined row's values, wherever the join is made."""
    visits, patients = drawn(5, people=8)
    found = [
        totals(tables(place, where, visits, patients, rows=2), QUERY) for place, where in _places(tmp_path, postgres)
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_what_is_cut_of_joined_rows_is_the_same_in_spark(tmp_path, spark):
    visits, patients = drawn(5, people=8)
    own = totals(tables("spark", spark, visits, patients, rows=2), QUERY)
    assert own == totals(tables("memory", tmp_path, visits, patients, rows=2), QUERY)


def _places(tmp_path: Path, postgres: Any) -> list[tuple[str, Any]]:
    return [("memory", tmp_path), ("parquet", tmp_path), ("postgres", postgres)]


def test_one_budget_pays_for_every_table_and_join(tmp_path):
    held = tables("parquet", tmp_path, *drawn())
    data = dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1), ledger=str(tmp_path / "l"), create=True)
    for text in ("visits", "patients", JOIN, f"{JOIN} JOIN zips USING (zip)"):
        data[text].ask("1", share=0.2)
    assert data.left == pytest.approx(0.2)
    again = dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1), ledger=str(tmp_path / "l"))
    assert again.left == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("visits JOIN patients ON visits.cost = patients.cost", "side by side.*ON visits.patient = patients.id"),
        ("visits JOIN patients ON visits.patient = patients.age", "side by side"),
        ("visits JOIN patients ON visits.zip = patients.id", "side by side"),
        ("visits JOIN patients USING (patient)", "side by side"),
        ("visits JOIN visits AS w ON visits.patient = w.patient", "joined once"),
        (
            "visits JOIN patients ON visits.patient = patients.id JOIN patients q ON visits.patient = q.id",
            "joined once",
        ),
        ("visits JOIN zips ON visits.patient = zips.zip", "nothing to say of single people"),
    ],
)
def test_joins_across_people_are_refused_with_what_works(tmp_path, text, said):
    held = tables("memory", tmp_path, *drawn())
    data = dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1))
    with pytest.raises((Unsupported, BadQuery), match=said):
        data[text]
    assert data.left == 1


def test_units_of_other_types_and_other_engines_are_refused(tmp_path):
    visits, patients = drawn()
    texts = [(None if r[0] is None else str(r[0]), *r[1:]) for r in patients]
    for place in ("memory", "parquet"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "b").mkdir()
        held = tables(place, tmp_path / place, visits, [])
        held["patients"] = tables(place, tmp_path / place / "b", [], texts, ids="text")["patients"]
        with pytest.raises(BadTable, match="of one type in all tables"):
            dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1))[JOIN]
    (tmp_path / "c").mkdir()
    held["patients"] = tables("memory", tmp_path / "c", [], patients)["patients"]
    with pytest.raises(Unsupported, match=r"all of them must be in one place.*DuckDBEngine, MemoryEngine"):
        dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1))[JOIN]


@pytest.mark.parametrize("ids", [[1, "1", None], [None, None, None], [2**70, "secret", "\ud800"]])
def test_no_id_of_a_row_makes_a_join_refuse(ids: list[Any]) -> None:
    """What one row is called decides neither whether tables are joined nor what is said; 1 is not '1'."""
    facts: dict[str, Any] = {"neighbours": "add-remove", "unit": dd.Unit("who", 4)}
    kinds = {"x": dd.Schema({"a": dd.Integer(0, 9)}), "y": dd.Schema({"b": dd.Integer(0, 9)})}
    held = {
        name: dd.Table({"who": np.array(listed, dtype=object), column: np.arange(3)}, schema, name=name, **facts)
        for (name, schema), column, listed in zip(kinds.items(), "ab", (ids, [1, *ids[1:]]), strict=True)
    }
    joined = dd.Exact(dd.Dataset(held, "who", budget=dd.Budget(epsilon=1))["x JOIN y ON x.who = y.who"]._table)
    assert joined.ask("1").total == len([id_ for id_ in (ids[0], *ids[1:]) if id_ is not None and id_ in (1, *ids[1:])])


def test_nothing_is_counted_of_a_join_before_it_is_paid_for(tmp_path: Path) -> None:
    """How many pairs there are would be told by the time it takes."""
    held = tables("parquet", tmp_path, *drawn())
    joined = dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1))[JOIN]
    assert joined._table.engine._count.opened == 0  # type: ignore[attr-defined]
    assert dd.Exact(joined._table).ask("1").total > 0  # type: ignore[attr-defined]


@pytest.mark.slow
def test_spark_counts_no_join_before_it_is_paid_for(tmp_path: Path, spark: Any) -> None:
    held = tables("spark", spark, *drawn())
    joined = dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1))[JOIN]
    assert joined._table.engine._count.opened == 0  # type: ignore[attr-defined]
    assert dd.Exact(joined._table).ask("1").total > 0  # type: ignore[attr-defined]


def test_learners_and_losses_take_joined_tables_of_a_stated_size():
    visits, patients = drawn(2, people=60)
    rich = dd.Budget(epsilon=500_000, delta=1e-6)  # noise that leaves two centres apart, however it falls
    data = dd.Dataset(tables("memory", Path(), visits, patients), "patient", budget=rich)
    joined = data["visits"].join(f"{JOIN} JOIN zips USING (zip)", rows=80)
    assert joined.rows == 80
    model = dd.learn.KMeans(2, share=0.1).fit(joined.select_columns("age", "cost"))
    assert model.cluster_centers_.shape == (2, 2)
    assert joined.losses(["age"], share=0.1).to_dicts()[-1]["what"] == "missing or no number"
    with pytest.raises(BadTable, match="whole number"):
        data["visits"].join(JOIN, rows=0)


BELOW = "(SELECT patient, cost FROM visits UNION ALL SELECT id, cost FROM patients) AS both"
ALIKE = {"cost": dd.Integer(0, 9, missing=0)}


def below(place: str, folder: Any, visits: Rows, patients: Rows, rows: int) -> dict[str, Any]:
    """The same tables, whose costs are declared alike."""
    held = tables(place, folder, visits, patients, rows)
    return {name: table if name == "zips" else _restated(table) for name, table in held.items()}


def _restated(table: dd.Table) -> dd.Table:
    return table.restated(dd.Schema({name: ALIKE.get(name, column) for name, column in table.schema.items()}))


@pytest.mark.parametrize("place", PLACES)
def test_rows_below_each_other_are_of_the_same_people(tmp_path, place, request):
    visits, patients = drawn(2)
    where = request.getfixturevalue(place) if place in ("postgres", "spark") else tmp_path
    held = below(place, where, visits, patients, rows=1000)
    costs = [(r[0], min(max(r[2] or 0, 0), 9)) for r in (*visits, *patients)]
    row = exact(held, f"SELECT COUNT(*) AS n, SUM(cost) AS c FROM {BELOW} WHERE cost > 3")[0]
    over = [cost for _, cost in costs if cost > 3]
    assert [round(row[name]) for name in ("n", "c")] == [len(over), sum(over)]
    spent = Counter[Any]()
    for whose, cost in costs:
        spent[whose] += cost
    made = f"SELECT SUM(x) AS x FROM (SELECT patient, LEAST(SUM(cost), 40) AS x FROM {BELOW} GROUP BY patient)"
    assert round(exact(held, made)[0]["x"]) == sum(min(own, 40) for own in spent.values())
    few = f"SELECT SUM(cost) AS c FROM {BELOW} OPTIONS (max_rows = 3)"
    assert exact(held, few) == exact(below("memory", tmp_path, visits, patients, rows=1000), few)
    most = max(Counter(whose for whose, _ in costs).values())
    assert most > 3
    counted_ = exact(held, f"SELECT COUNT(*) AS n FROM {BELOW} OPTIONS (max_rows = 3)")[0]["n"]
    assert round(counted_) == sum(min(n, 3) for n in Counter(whose for whose, _ in costs).values())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.integers(0, 3) | st.none(), st.integers(1, 4), st.integers(0, 99))
def test_a_person_in_tables_below_each_other_moves_no_sum_by_more_than_is_charged(gone, most, seed):
    visits, patients = drawn(seed, people=4)
    sides = [
        below(
            "memory", Path(), *([r for r in rows if not left or r[0] != gone] for rows in (visits, patients)), rows=most
        )
        for left in (False, True)
    ]
    of = "(SELECT patient, cost FROM visits UNION ALL SELECT id, cost FROM patients)"
    oracles = [dd.Dataset(held, "patient", budget=dd.Budget(epsilon=1))["visits"] for held in sides]
    joined = [oracle.read(f"SELECT COUNT(*) AS n, SUM(cost) AS c FROM {of}")[0] for oracle in oracles]
    from dodona.oracles.effort import Effort
    from dodona.oracles.oracle import Request

    request = Request(dd.Stack((dd.Value(parse("1")), dd.Value(parse("cost")))), Effort.of(share=0.5))
    plan = joined[0]._priced(request)[0]  # type: ignore[attr-defined]
    found = [np.asarray(one._table.engine.totals(plan.program), dtype=object) for one in joined]  # type: ignore[attr-defined]
    within_reach(plan, joined[0]._norms(request, plan), *found)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT cost FROM visits UNION ALL SELECT age FROM patients", "must be declared alike"),
        ("SELECT cost FROM visits UNION ALL SELECT cost FROM visits", "there twice"),
        ("SELECT zip FROM visits UNION ALL SELECT zip FROM zips", "zips is public"),
        ("SELECT cost FROM visits UNION ALL SELECT cost, age FROM patients", "as many columns each"),
        ("SELECT cost FROM visits UNION ALL SELECT dose FROM patients", "dose: not of patients"),
        ("SELECT cost FROM visits UNION ALL SELECT cost FROM others", "not a table here"),
        ("SELECT cost FROM visits UNION SELECT cost FROM patients", "read the same tables"),
    ],
)
def test_what_cannot_stand_below_each_other_is_refused(tmp_path, text, said):
    dataset = dd.Dataset(tables("memory", tmp_path, *drawn()), "patient", budget=dd.Budget(epsilon=1))
    with pytest.raises((BadQuery, Unsupported), match=said):
        dataset.sql(f"SELECT COUNT(*) FROM ({text})", share=0.1)
    assert dataset.left == 1
