"""What a question says is what SQL's readers take it to say, wherever rows are kept: fixed cases, exact answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.errors import BadQuery, BadTable, DodonaError
from dodona.query.plan import compile_query
from dodona.query.schema import Column
from dodona.query.select import parse_select
from dodona.query.statistic import Partition, Value, as_expr, as_query
from dodona.testing.reference import reference_totals
from tests.support import places, questions

Make = Callable[..., dd.Table]
SCHEMA = dd.Schema(
    {
        "g": dd.Category("p", "q", "r"),
        "age": dd.Integer(0, 120),
        "x": dd.Real(-5, 5),
        "smoker": dd.Flag(),
    }
)
ROWS = [
    {"g": g, "age": age, "x": x, "smoker": s}
    for g, age, x, s in (
        ("p", 3, 1.0, True),
        ("q", 7, -2.5, None),
        (None, 12, None, False),
        ("r", None, 0.0, True),
        ("p", 45, 4.0, False),
        ("zzz", 120, -9.0, None),
    )
]


def shown(table: dd.Table, text: str, *, other: bool = False) -> dict[Any, float]:
    """The exact answer of a statement with keys: its last column by the ones before; with rows in no group if asked."""
    found = {}
    for record in dd.Exact(table).sql(text):
        *keys, last = record
        if "(other)" in keys and not other:
            continue
        found[tuple(keys) if len(keys) != 1 else keys[0]] = last.value  # type: ignore[union-attr]
    return found


CASES: list[tuple[str, dict[str, int]]] = [
    ("CASE WHEN age < 5 THEN 'a' WHEN age < 10 THEN 'b' END", {"a": 1, "b": 1}),
    ("CASE WHEN age < 5 THEN 'a' WHEN age < 10 THEN 'b' ELSE NULL END", {"a": 1, "b": 1}),
    ("CASE WHEN age < 5 THEN 'a' WHEN age < 10 THEN NULL WHEN age < 20 THEN NULL END", {"a": 1}),
    ("CASE WHEN age < 5 THEN 'a' WHEN age < 10 THEN 'b' ELSE 'c' END", {"a": 1, "b": 1, "c": 4}),
    ("CASE WHEN age < 5 THEN 'a' WHEN age < 10 THEN 'b' WHEN age < 20 THEN 'c' END", {"a": 1, "b": 1, "c": 1}),
    ("CASE WHEN age < 5 THEN 'a' ELSE g END", {"a": 1, "p": 1, "q": 1, "r": 1}),
    ("CASE WHEN age < 5 THEN 'r' ELSE g END", {"r": 2, "p": 1, "q": 1}),
    (
        "CASE WHEN age < 5 THEN g WHEN age < 20 THEN 'q' WHEN age > 100 THEN 'new' END",
        {"p": 1, "q": 2, "r": 0, "new": 1},
    ),
    ("COALESCE(CASE WHEN age < 5 THEN 'a' END, g, 'none')", {"a": 1, "p": 1, "q": 1, "r": 1, "none": 2}),
]


def test_a_case_without_a_result_is_in_no_group(make: Make) -> None:
    """NULL joins no label, neither the last one nor the first, however the branches are nested."""
    table = make(ROWS)
    for case, counts in CASES:
        assert shown(table, f"SELECT {case} AS k, COUNT(*) FROM t GROUP BY k") == counts, case
        plan = compile_query(as_query(f"{case} IS NULL"), SCHEMA, level=True)
        assert reference_totals(plan.program, ROWS) == [len(ROWS) - sum(counts.values())], case


def test_a_listed_value_that_may_be_missing_is_compared_as_missing(make: Make) -> None:
    """``CASE ... END = g`` is unknown where the CASE has no result, so its contrary counts no such row either."""
    exact = dd.Exact(make(ROWS))
    assert exact.ask("CASE WHEN age < 5 THEN 'p' END = g").total == 1
    assert exact.ask("NOT (CASE WHEN age < 5 THEN 'p' END = g)").total == 0
    with pytest.raises(BadQuery, match="all be numbers, all conditions or all text"):
        exact.ask("CASE WHEN age < 5 THEN 'p' ELSE 3 END = 'p'")


KEYS: list[tuple[tuple[str, ...], str, set[Any]]] = [
    (("age",), "age BETWEEN 5 AND 17", set(range(5, 18))),
    (("AGE",), "5 <= Age AND age < 18 AND x > 0", set(range(5, 18))),
    (("FLOOR(age / 10) * 10",), "TRUE", set(range(0, 121, 10))),
    (("FLOOR(age / 10) * 10",), "age < 20", {0, 10}),
    (("g",), "g <> 'q'", {"p", "r"}),
    (("age > 100",), "age < 50", {False}),
    (("g IS NULL",), "g IN ('p', 'q')", {False}),
    (("g IS NULL",), "TRUE", {False, True}),
    (("CASE WHEN age < 5 THEN 'a' WHEN age < 3 THEN 'never' ELSE 'b' END",), "TRUE", {"a", "b"}),
    (("g", "g = 'p'"), "TRUE", {("p", True), ("q", False), ("r", False)}),
    (("g", "smoker"), "g = 'p' OR smoker", {("p", True), ("p", False), ("q", True), ("r", True)}),
    (("g", "age"), "age > 118 AND g = 'r'", {("r", 119), ("r", 120)}),
    (("age",), "age > 500", set()),
    (("BUCKET(x, -5, 0, 5)",), "x > 0", {"[-5, 0)", "[0, 5]"}),  # of a Real nothing is ruled out
]


def test_only_keys_that_can_occur_are_shown(tmp_path: Path) -> None:
    """From the schema and the statement alone: the same keys whatever the rows, and no row is lost with a key."""
    table, empty = (places.table("numpy", rows, SCHEMA, tmp_path, name="t") for rows in (ROWS, []))
    for keys, where, wanted in KEYS:
        listed = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
        text = f"SELECT {listed}, COUNT(*) FROM t WHERE {where} GROUP BY {', '.join(keys)}"
        counts = shown(table, text)
        assert set(counts) == wanted == set(shown(empty, text)), text
        known = " AND ".join(f"({key}) IS NOT NULL" for key in keys)
        assert sum(counts.values()) == dd.Exact(table).ask(f"({where}) AND {known}").total
        assert sum(shown(table, text, other=True).values()) == dd.Exact(table).ask(where).total


WIDE = dd.Schema({"w": dd.Integer(0, 2**36), "most": dd.Integer(-(2**53), 2**53), "g": dd.Category("a", "b")})


def test_whole_numbers_are_summed_in_steps_of_one(make: Make) -> None:
    """Whatever their range: no row is rounded, nothing stands in the margin, and sums beyond 2^53 are whole."""
    cells = [
        {"w": w, "most": most, "g": "ab"[i % 2]}
        for i, (w, most) in enumerate([(1, 2**53 - 1), (2**36 - 1, 2**53), (8191, -3), (None, 2**53 - 3), (5, None)])
    ]
    table = make(cells, WIDE)
    for text in ("w", "most", "w - 1", "most * 1"):
        plan = compile_query(as_query(text), WIDE, level=True)
        (total,) = table.engine.totals(plan.program)
        assert int(total) == reference_totals(plan.program, cells)[0], text
        assert not plan.rounding.any(), text
    exact = dd.Exact(table)
    assert exact.ask("w").total == 1 + 2**36 - 1 + 8191 + 5
    ((average,),) = exact.sql("SELECT AVG(w) FROM t")
    assert average.value == (1 + 2**36 - 1 + 8191 + 5) / 4  # type: ignore[union-attr]
    assert average.margin < 1e-5  # type: ignore[union-attr]
    grouped = compile_query(Partition(as_expr("g"), Value(as_expr("most"))), WIDE, level=True)
    assert list(map(int, table.engine.totals(grouped.program))) == [2**53 - 1 - 3, 2**54 - 3]


def test_wide_whole_numbers_are_added_in_pieces() -> None:
    """Enough rows for several pieces and threads; the total is beyond 64 bits."""
    rows = 200_000
    table = dd.Table({"most": np.full(rows, 2**53 - 1)}, dd.Schema({"most": WIDE["most"]}), name="t")
    plan = compile_query(as_query("most"), table.schema, level=True)
    assert list(map(int, table.engine.totals(plan.program))) == [rows * (2**53 - 1)]
    plan = compile_query(Partition(as_expr("most > 0"), Value(as_expr("0 - most"))), table.schema, level=True)
    assert list(map(int, table.engine.totals(plan.program))) == [0, -rows * (2**53 - 1)]


ENDS = dd.Schema({"x": dd.Real(-5, 7), "n": dd.Integer(-5, 7), "m": dd.Real(0, 9, missing=2)})


def test_infinities_are_clipped_and_nan_is_missing(make: Make) -> None:
    """Whatever is beyond a bound counts as the bound, also what is beyond every number; NaN is no number."""
    cells = [{"x": v, "n": v, "m": v} for v in (math.inf, math.inf, -math.inf, math.nan, None, 1e308, 3.0)]
    table = make(cells, ENDS)
    for text in ("x", "n", "m", "LEAST(x, 3)", "GREATEST(n, -1)"):
        plan = compile_query(as_query(text), ENDS, level=True)
        (total,) = table.engine.totals(plan.program)
        assert int(total) == reference_totals(plan.program, cells)[0], text
    exact = dd.Exact(table)
    asked = {"x": 19, "n": 19, "m": 34, "x IS NULL": 2, "n = 7": 3, "LEAST(x, 3)": 7}
    assert {text: exact.ask(text).total for text in asked} == asked


@pytest.mark.parametrize(
    ("column", "cells", "opens"),
    [
        (dd.Integer(0, 9), ["2020-01-01", "2021-05-06", ""] * 5, False),
        (dd.Real(0, 9), ["Oslo", "Bergen"] * 5, False),
        (dd.Real(0, 9), ["Oslo", "Bergen", ""] * 4 + ["3.5"], True),
        (dd.Real(0, 9), ["Oslo"], True),  # one record refuses nothing
        (dd.Real(0, 9), ["", ""] * 5, True),
        (dd.Real(0, 9), [], True),
        (dd.Flag(), ["yes please", "no"] * 5, False),
        (dd.Flag(), ["maybe"] * 10 + ["true"], True),
        (dd.Category(1, 2), ["Oslo", "x"] * 5, False),
        (dd.Category(1, 2), ["x"] * 10 + ["7"], True),
        (dd.Category("a"), ["Oslo", "x"] * 5, True),
    ],
)
def test_a_csv_column_is_refused_where_not_one_field_is_what_was_declared(
    column: Column, cells: list[str], opens: bool, tmp_path: Path
) -> None:
    """As Parquet refuses the type. One field that can be read is enough, and one record alone refuses nothing."""
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["c,k", *(f"{cell},1" for cell in cells)]) + "\n")
    schema = dd.Schema({"c": column, "k": dd.Integer(0, 9)})
    if opens:
        dd.Table(file, schema)
        file.write_text(file.read_text() + "2020-01-01,7\n")
        dd.Table(file, schema)
        return
    with pytest.raises(BadTable, match="column 'c' is declared") as refusal:
        dd.Table(file, schema)
    assert not any(cell in str(refusal.value) for cell in cells if cell)


def test_log_is_to_base_ten_and_whole_where_it_should_be(make: Make) -> None:
    schema = dd.Schema({"v": dd.Real(0, 1e12)})
    cells: list[dict[str, Any]] = [{"v": v} for v in (0.0, 1.0, 8.0, 10.0, 999.0, 1000.0, 1e12, 5e-324, None, 37.5)]
    asked = {
        "LOG(v)": sum(math.log10(c["v"]) for c in cells if c["v"]),
        "FLOOR(LOG(v)) = 3": 1,
        "FLOOR(LOG10(v)) = 12": 1,
        "LOG2(v) = 3": 1,
        "LOG(2, v) - LOG(0.5, v) = 6": 1,
        "LOG(v) IS NULL": 2,
        "LN(v) = LOG(v)": 1,
    }
    table = make(cells, schema)
    for text, total in asked.items():
        plan = compile_query(as_query(text), schema, level=True)
        (found,) = table.engine.totals(plan.program)
        assert int(found) == reference_totals(plan.program, cells)[0], text
        assert float(found) * plan.units[0] == pytest.approx(total, abs=1e-3), text


@pytest.mark.parametrize("text", ["LOG(1, v)", "LOG(0, v)", "LOG(v, v)", "LOG(-2, v)", "LOG()"])
def test_a_logarithm_needs_a_fixed_base(text: str) -> None:
    with pytest.raises(BadQuery):
        compile_query(as_query(text), dd.Schema({"v": dd.Real(1, 9)}), level=True)


NAMED = [
    'SELECT "g", COUNT(t.age) FROM t WHERE T."age" > 5 GROUP BY t.G',
    'SELECT t.g, COUNT(AGE) FROM "T" WHERE age > 5 GROUP BY "g"',
    "SELECT G AS Kind, COUNT(age) FROM t WHERE t.AGE > 5 GROUP BY kind",
]


def test_one_column_has_many_spellings(tmp_path: Path) -> None:
    table = places.table("numpy", ROWS, SCHEMA, tmp_path, name="t")
    for text in NAMED:
        assert shown(table, text) == {"p": 1, "q": 1, "r": 0}, text
    twice = parse_select('SELECT SUM(age), SUM(t.AGE), AVG("Age") FROM t', SCHEMA, "t")
    assert compile_query(twice.query, SCHEMA, level=True).dimension == 3  # a sum, a centred sum, a count
    for text in ("SELECT COUNT(other.age) FROM t", "SELECT COUNT(db.t.age) FROM t", "SELECT COUNT(t.*) FROM t"):
        with pytest.raises(BadQuery):
            dd.Exact(table).sql(text)


def test_the_column_that_says_whose_row_it_is_can_be_counted_and_no_more() -> None:
    schema = dd.Schema({"x": dd.Integer(0, 9)})
    columns = {"patient": ["a", "a", "b", "b", "b"], "x": [1, 2, 3, 4, 5]}
    table = dd.Table(columns, schema, unit=dd.Unit("patient", 2), neighbours="add-remove", name="t")
    for text in ("SELECT COUNT(patient) FROM t", "SELECT COUNT(t.Patient) FROM t"):
        ((count,),) = dd.Exact(table).sql(text)
        assert count.value == 4, text  # type: ignore[union-attr]
        priced = [
            dd.Curator(table, dd.Budget(epsilon=1)).price(t, epsilon=1).cost for t in (text, "SELECT COUNT(*) FROM t")
        ]
        assert priced[0] == priced[1]
    for text in (
        "SELECT SUM(patient) FROM t",
        "SELECT COUNT(*) FROM t WHERE patient = 'a'",
        "SELECT patient, COUNT(*) FROM t GROUP BY patient",
        "SELECT COUNT(patient IS NULL) FROM t",
    ):
        with pytest.raises(BadQuery):
            dd.Exact(table).sql(text)


@pytest.fixture(scope="module")
def asker() -> questions.Asker:
    return questions.Asker()


@pytest.mark.parametrize(("family", "on", "text"), list(questions.asked()), ids=lambda part: str(part)[:60])
def test_what_people_ask_is_answered_in_one_call(asker: questions.Asker, family: str, on: str, text: str) -> None:
    """And whatever reads rows is paid for."""
    assert family
    found = asker.ask(on, text)
    if isinstance(found, dd.Rows):
        assert len(found) > 0
        assert found.cost.amount > 0 or text.startswith("release.")  # what was published is free


@pytest.mark.parametrize("one", list(questions.refused()), ids=lambda one: one.ask[:60])
def test_what_is_refused_names_what_to_write_instead(asker: questions.Asker, one: questions.Refused) -> None:
    with pytest.raises(DodonaError) as refusal:
        asker.ask(one.on, one.ask)
    assert one.names in str(refusal.value), refusal.value
    assert asker.ask(one.on, one.instead) is not None


LEARNED = (
    "learn.KMeans(3, share=S).fit(people.select_columns('born', 'seen'))",
    "learn.PCA(1, share=S).fit(people.select_columns('born', 'seen', 'age'))",
    "learn.StandardScaler(share=S).fit(people.select_columns('born', 'seen'))",
    "learn.Ridge(share=S).fit(people.select_columns('born', 'seen', 'region', 'income'), 'income')",
    "learn.LogisticRegression(share=S).fit(people.select_columns('born', 'region', 'seen', 'smoker'), 'smoker')",
    "learn.GaussianNB(share=S).fit(people.select_columns('born', 'seen', 'region'), 'region')",
    "learn.ID3(share=S).fit(people.select_columns('born', 'region', 'seen', 'smoker'), 'smoker')",
    "learn.Perceptron(share=S).fit(people.select_columns('born', 'seen', 'smoker'), 'smoker')",
    "learn.AgnosticLearner(share=S).fit(people.select_columns('born', 'region', 'smoker'), 'smoker')",
    "release.conjunctions(people, columns=['region', 'born', 'smoker'], edges=4, width=2, share=S)",
    "release.intervals(people, 'seen', bits=12, share=S).median()",
    "release.boxes(people, {'born': 4, 'seen': 4}, bits=5, share=S)",
    "release.halfspaces(people, columns=['born', 'seen'], share=S)",
    "release.bounds(people, 'born', share=S)",
)


@pytest.mark.parametrize("text", LEARNED)
def test_learners_and_releases_take_dates_times_and_cleaned_categories(asker: questions.Asker, text: str) -> None:
    assert asker.ask("people", text) is not None


def test_nine_in_ten_of_them_are_answered_and_docs_say_so() -> None:
    answered, others = len(list(questions.asked())), len(list(questions.refused()))
    assert answered + others >= 165
    assert answered >= 0.9 * (answered + others)
    told = " ".join((Path(__file__).parents[2] / "docs" / "questions.md").read_text().split())
    assert f"{answered} of {answered + others}" in told
