"""Bounds are a question's own: the same people and budget under any of them, cut after the filter, alike everywhere."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.errors import BadQuery, BadSchema, BadTable, Refused, Unsupported
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.statistic import Distinct, Losses
from dodona.query.unit import Bounds, Unit
from dodona.testing.engines import IDS, WHOSE, memory_engine
from dodona.testing.oracles import seeded_curator
from dodona.testing.strategies import RawColumn, random_bounds, random_query, random_schema, random_table

SCHEMA = dd.Schema({"cost": dd.Real(0, 100), "ward": dd.Category("a", "b", "c"), "old": dd.Flag()})
BUDGET = dd.Budget(epsilon=1, delta=1e-6)


def visits(unit: dd.Unit, people: int = 40, seed: int = 3, name: str = "visits") -> dd.Table:
    """Each person has six visits, two of them flagged old, in wards that go round."""
    rng, count = np.random.default_rng(seed), 6 * people
    columns = {
        "patient": np.repeat(np.arange(people), 6),
        "cost": rng.uniform(0, 100, count),
        "ward": np.array(["a", "b", "c"])[np.arange(count) % 3],
        "old": np.arange(count) % 6 < 2,
    }
    return dd.Table(columns, SCHEMA, neighbours="add-remove", unit=unit, name=name, rows=count)


def moved(table: dict[str, RawColumn], schema: dd.Schema, unit: Unit, query: dd.Query, gone: object) -> list[int]:
    """What the totals lose with all rows of one person."""
    rows = len(table[WHOSE].values)
    kept = [i for i in range(rows) if table[WHOSE].values[i] != gone]
    rest = {name: RawColumn(column.physical, [column.values[i] for i in kept]) for name, column in table.items()}
    program = replace(compile_query(query, schema, level=False).program, unit=unit)
    both = (memory_engine(schema, columns, Unit(WHOSE, 1)).totals(program) for columns in (table, rest))
    before, after = ([int(x) for x in totals] for totals in both)
    return [a - b for a, b in zip(before, after, strict=True)]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_person_moves_any_question_by_at_most_what_is_charged(data):
    """Any schema, table, question and bounds; one person comes or goes, or is another person: twice as far at most."""
    drawn = data.draw(random_schema())
    schema = dd.Schema({name: _private(column) for name, column in drawn.items()})
    table = data.draw(random_table(schema, 12))
    rows = len(next(iter(table.values())).values)
    ids = data.draw(st.lists(st.sampled_from(IDS[:3]), min_size=rows, max_size=rows))
    table = {WHOSE: RawColumn("text", ids), **table}
    unit = Unit(WHOSE, data.draw(st.integers(1, 4))).within(data.draw(random_bounds()))
    query = data.draw(st.one_of(random_query(schema), _different(schema)))
    try:
        plan = compile_query(query, schema, level=False)
        charged = unit.norms(query, plan.reach.under("add-remove"), plan.program)
    except BadQuery:
        reject()
    weights = np.zeros(plan.dimension, dtype=object)
    for weight, places in plan.places.items():
        weights[places] = weight
    changes = [moved(table, schema, unit, query, gone) for gone in IDS[:2]]
    sizes = [[abs(Fraction(x) / w) for x, w in zip(change, weights, strict=True)] for change in changes]
    for size in sizes:
        assert sum(size) <= charged.l1
        assert sum(x * x for x in size) <= charged.l2_squared
        assert max(size) <= charged.linf
    other = [abs(Fraction(a - b) / w) for a, b, w in zip(*changes, weights, strict=True)]  # one in place of another
    assert sum(other) <= 2 * charged.l1
    assert sum(x * x for x in other) <= 4 * charged.l2_squared


@st.composite
def _different(draw, schema):
    """How many different values there are, of all rows or of each group."""
    listed = [name for name, column in schema.items() if isinstance(column, dd.Category | dd.Flag | dd.Integer)]
    if not listed:
        reject()
    counted = Distinct(Column(draw(st.sampled_from(listed))))
    return dd.Partition(Column(draw(st.sampled_from(listed))), counted) if draw(st.booleans()) else counted


def _private(column):
    described = column.describe()
    described.pop("public", None)
    return dd.Schema.read({"x": described})["x"]


def test_rows_are_cut_after_the_filter():
    """Two old visits of each person: with two rows a person, no old visit is left out, whatever the others are."""
    exact = dd.Exact(visits(dd.Unit("patient", 2)))
    count = "SELECT COUNT(*) AS n FROM visits"
    assert exact.sql(f"{count} WHERE old").records[0][0].value == 80
    assert exact.sql(count).records[0][0].value == 80
    one = exact.bounded(max_rows=1)
    assert one.sql(f"{count} WHERE old").records[0][0].value == 40
    assert one.sql(f"{count} WHERE old OPTIONS (max_rows = 2)").records[0][0].value == 80
    # Parts with filters of their own: the rows are of all parts together, and those that none counts take no place.
    parts = dd.Stack(tuple(dd.Gate(dd.parse(w), dd.Value(dd.parse("1"))) for w in ("old", "ward = 'a' AND cost < 0")))
    assert list(one.ask(parts).total) == [40, 0]


def test_groups_of_a_question_are_bounded():
    exact = dd.Exact(visits(dd.Unit("patient", 6)))
    by = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
    totals = lambda text: [record[1].value for record in exact.sql(text) if record[0] != "(other)"]  # noqa: E731
    assert totals(by) == [80, 80, 80]
    assert totals(f"{by} OPTIONS (max_rows_per_group = 1)") == [40, 40, 40]
    assert sum(totals(f"{by} OPTIONS (max_groups = 2)")) == 160
    assert sum(totals(f"{by} OPTIONS (max_groups = 2, max_rows_per_group = 1)")) == 80
    assert sum(totals(f"{by} options(MAX_GROUPS=1 , max_rows = 1)")) == 40


def test_people_are_counted_each_once():
    exact = dd.Exact(visits(dd.Unit("patient", 6)))
    assert exact.sql("SELECT COUNT(DISTINCT patient) AS p FROM visits").records[0][0].value == 40
    assert exact.sql("SELECT COUNT(DISTINCT patient) FROM visits WHERE old AND cost > 200").records[0][0].value == 0
    by = "SELECT ward, COUNT(DISTINCT patient) AS p FROM visits WHERE NOT old GROUP BY ward"
    assert [record[1].value for record in exact.sql(by)][:3] == [40, 40, 40]
    few = exact.sql(f"{by} OPTIONS (max_groups = 1)")
    assert sum(record[1].value for record in few) == 40
    both = exact.sql("SELECT COUNT(DISTINCT patient) AS p, COUNT(*) AS n FROM visits").records[0]
    assert [cell.value for cell in both] == [40, 240]
    both = exact.sql("SELECT COUNT(DISTINCT patient) AS p, COUNT(DISTINCT ward) AS w FROM visits").records[0]
    assert [cell.value for cell in both] == [40, 3]
    with pytest.raises(BadQuery, match="whose rows count"):
        exact.sql("SELECT COUNT(DISTINCT patient) FILTER (WHERE old) FROM visits")


def test_charges_follow_the_bounds_that_were_stated():
    curator = dd.Curator(visits(dd.Unit("patient", 4)), BUDGET)
    count = "SELECT COUNT(*) AS n FROM visits"
    four, one = (curator.price(f"{count}{own}", share=0.1).margin for own in ("", " OPTIONS (max_rows = 1)"))
    assert float(np.max(four)) == pytest.approx(4 * float(np.max(one)), rel=0.05)
    assert curator.bounded(max_rows=1).price(count, share=0.1).margin == one
    by = "SELECT ward, COUNT(DISTINCT patient) AS p FROM visits GROUP BY ward"
    wide = float(np.max(curator.price(f"{by} OPTIONS (max_groups = 3)", share=0.1).spread))
    tight = float(np.max(curator.price(f"{by} OPTIONS (max_groups = 1)", share=0.1).spread))
    assert wide == pytest.approx(3**0.5 * tight, rel=0.02)  # sqrt(g) in L2
    bill = curator.sql(f"{by} OPTIONS (max_groups = 1)", share=0.1).cost
    assert "one patient with at most 4 row(s), at most 1 per group, at most 1 group(s)" in bill.neighbours
    told = curator.sql(f"{by} OPTIONS (max_groups = 2)", share=0.1).leaves_out
    assert any("at most 1 with the same group, in at most 2 groups" in sentence for sentence in told)
    answer = curator.bounded(max_rows=2).select(["old", "NOT old"], share=0.1)
    assert "at most 2 row(s)" in answer.cost.neighbours


def test_the_bounds_are_part_of_what_was_asked():
    """One name for two questions that differ in their bounds is refused, and costs nothing."""
    curator = dd.Curator(visits(dd.Unit("patient", 4)), BUDGET)
    first = curator.ask("old", share=0.1, request_id="mine")
    charge = next(entry for entry in curator.ledger.entries() if entry.request_id == "mine")
    assert 'unit={"column": "patient", "max_rows": 4}' in charge.detail
    left = curator.left
    assert curator.ask("old", share=0.1, request_id="mine").total == first.total
    with pytest.raises(Refused):
        curator.bounded(max_rows=1).ask("old", share=0.1, request_id="mine")
    looser = dd.Curator.sharing(visits(dd.Unit("patient", 5)), curator.ledger, analyst="curator")
    with pytest.raises(Refused):
        looser.ask("old", share=0.1, request_id="mine")
    assert curator.left == left


def test_a_ledger_is_of_the_people_whatever_the_bounds(tmp_path):
    place = tmp_path / "visits.ledger"
    dd.Curator(visits(dd.Unit("patient", 2)), BUDGET, place, create=True).ask("old", share=0.6)
    for unit in (dd.Unit("patient", 9), dd.Unit("patient", 4, ("ward",), 1), dd.Unit("patient")):
        again = dd.Curator(visits(unit), BUDGET, place)
        assert again.left < 0.41 * float(again.budget.total)
    with pytest.raises(Refused):  # another column says whose rows they are: other people
        dd.Curator(_renamed(visits(dd.Unit("patient", 2))), BUDGET, place)
    with pytest.raises(Refused):
        dd.Curator(dd.Table({"old": [True]}, dd.Schema({"old": dd.Flag()}), name="visits"), BUDGET, place)


def _renamed(table: dd.Table) -> dd.Table:
    columns = {"person": np.zeros(6, int), "cost": np.zeros(6), "ward": np.array(["a"] * 6), "old": np.zeros(6, bool)}
    return dd.Table(columns, SCHEMA, neighbours="add-remove", unit=dd.Unit("person", 2), name=table.name)


@pytest.mark.parametrize(
    "former",
    ["one patient with at most 2 row(s)", "one patient with at most 2 row(s), at most 1 per ward and old"],
)
def test_a_ledger_written_with_bounds_in_its_population_is_the_same_one(tmp_path, monkeypatch, former):
    """HOSTILE R5: what was spent under the older text is spent, under whatever bounds the table is opened now."""
    place, table = tmp_path / "visits.ledger", visits(dd.Unit("patient", 2))
    monkeypatch.setattr(Unit, "whom", property(lambda _: former))
    dd.Curator(visits(dd.Unit("patient", 2)), BUDGET, place, create=True).ask("old", share=0.7)
    monkeypatch.undo()
    with sqlite3.connect(place) as db:
        assert former in json.loads(db.execute("SELECT statement FROM genesis").fetchone()[0])["population"]
    for unit in (dd.Unit("patient", 2), dd.Unit("patient", 7)):
        kept = dd.Curator(visits(unit), BUDGET, place)
        assert kept.left < 0.31 * float(kept.budget.total)
    assert not table.protects("memory:visits; one patients with at most 2 row(s)")
    assert not table.protects("memory:visit; one patient with at most 2 row(s)")
    assert not table.protects("memory:visits; one patient")
    assert not table.protects("memory:visits")


def test_what_is_outside_the_house_of_bounds_is_refused_before_a_charge():
    people = visits(dd.Unit("patient", 2))
    curator = dd.Curator(people, BUDGET)
    for text in (
        "SELECT COUNT(*) FROM visits OPTIONS (max_rows = 0)",
        "SELECT COUNT(*) FROM visits OPTIONS (max_rows = 2, max_rows = 3)",
        "SELECT COUNT(*) FROM visits OPTIONS (most = 2)",
        "SELECT COUNT(*) FROM visits OPTIONS (max_rows = -2)",
        "SELECT COUNT(*) FROM visits OPTIONS ()",
        "SELECT COUNT(*) FROM visits OPTIONS (max_rows = 2) WHERE old",
        "SELECT COUNT(*) FROM visits WHERE ward = 'a OPTIONS (max_rows = 2)",
    ):
        with pytest.raises(BadQuery):
            curator.sql(text, share=0.1)
    with pytest.raises(BadSchema):
        curator.bounded(max_rows=True)
    count = dd.Value(dd.parse("1"))
    two = dd.Stack((dd.Partition(dd.parse("ward"), count), dd.Partition(dd.parse("old"), count)))
    with pytest.raises(BadQuery, match="several ways of grouping"):
        curator.bounded(max_groups=1).ask(two, share=0.1)
    boundless = dd.Curator(visits(dd.Unit("patient")), BUDGET)
    with pytest.raises(BadQuery, match="how many count"):
        boundless.ask("old", share=0.1)
    assert boundless.bounded(max_rows=2).ask("old", share=0.1).rows == 240
    rows = dd.Table({"old": np.ones(9, bool)}, dd.Schema({"old": dd.Flag()}), name="t")
    for oracle in (dd.Curator(rows, BUDGET), dd.Exact(rows), dd.Local(rows, epsilon=1)):
        with pytest.raises(Unsupported, match="cannot leave out rows of a person"):
            oracle.bounded(max_rows=2)
        with pytest.raises(Unsupported, match="cannot leave out rows of a person"):
            oracle.sql("SELECT COUNT(*) FROM t OPTIONS (max_rows = 1)", share=0.1)
    assert curator.left == float(curator.budget.total)


def test_groups_that_are_added_up_are_not_apart():
    """Prefix sums over groups overlap: so many rows a group say nothing of the length of what all of them add."""
    from dodona.query.statistic import PrefixRoots

    unit, cells = dd.Unit("patient", 4, (), 1), dd.bucket("cost", [0, 25, 50, 75, 100])
    plan = compile_query(PrefixRoots(cells), SCHEMA, level=True)
    row = plan.reach.under("add-remove")
    assert unit.norms(PrefixRoots(cells), row, plan.program).l2_squared == 16 * row.l2_squared
    parted = dd.Partition(cells, dd.Value(dd.parse("1")))
    plan = compile_query(parted, SCHEMA, level=True)
    assert unit.norms(parted, plan.reach.under("add-remove"), plan.program).l2_squared == 4


def test_groups_without_a_bound_on_rows_are_refused():
    curator = dd.Curator(visits(dd.Unit("patient")), BUDGET)
    by = dd.Partition(dd.parse("ward"), dd.Value(dd.parse("1")))
    with pytest.raises(BadQuery, match="how many count"):
        curator.bounded(max_groups=2).ask(by, share=0.1)
    assert curator.bounded(max_groups=2, max_rows_per_group=1).ask(by, share=0.1).cost.amount > 0


def test_a_synopsis_answers_for_its_own_bounds():
    curator = seeded_curator(visits(dd.Unit("patient", 2)), dd.Budget(epsilon=50), 1)
    curator.attach(dd.release.intervals(curator, "cost", bits=3, share=0.5), estimates=True)
    assert curator.price("cost >= 50", tolerance=0.5).cost.amount == 0
    assert curator.bounded(max_rows=1).price("cost >= 50", tolerance=0.5).cost.amount > 0


def test_an_engine_that_knows_the_tables_bounds_alone_is_not_asked_for_others():
    from dodona.testing.engines import PassingEngine

    class Plain(PassingEngine):
        def keeps(self, program):
            return program.unit is None

    people = visits(dd.Unit("patient", 2))
    people.engine = Plain(people.engine)
    curator = dd.Curator(people, BUDGET)
    assert curator.ask("old", share=0.1)
    for ask in (
        lambda o: o.ask("old", share=0.1),
        lambda o: o.select(["old", "NOT old"], share=0.1),
        lambda o: o.quantile("cost", share=0.1),
    ):
        left = curator.left
        with pytest.raises(Unsupported, match="own bounds cannot be kept"):
            ask(curator.bounded(max_rows=1))
        assert curator.left == left


def test_losses_are_counted_under_a_questions_bounds():
    people = visits(dd.Unit("patient", 2))
    exact = dd.Exact(people).bounded(max_rows=5)
    assert exact.losses(["ward"]).records[-1][-1].value == 40  # one of six visits of each
    curator = seeded_curator(people, BUDGET, 1)
    price = curator.bounded(max_rows=5).price(Losses(("ward",)), share=0.2)
    assert float(np.max(price.margin)) > 2 * float(np.max(curator.price(Losses(("ward",)), share=0.2).margin))


def test_releases_and_learners_run_under_bounds():
    curator = seeded_curator(visits(dd.Unit("patient")), dd.Budget(epsilon=50), 1).bounded(max_rows=1)
    ranges = dd.release.intervals(curator, "cost", bits=3, share=0.5)
    assert ranges.ask("cost >= 0").total == pytest.approx(40, abs=15)
    assert "at most 1 row(s)" in ranges.header.cost.neighbours


def test_bounds_and_units_are_plain_data():
    for unit in (dd.Unit("p"), dd.Unit("p", 3, (), 2, 1), dd.Unit("p", None, (), 2), dd.Unit(None, 36)):
        assert dd.Unit.read(unit.describe()) == unit
    assert Bounds.read({"max_rows": 2}).over(Bounds(3, 1)) == Bounds(2, 1)
    for bad in (None, {"max_rows": 0}, {"rows": 1}, {"max_groups": True}):
        with pytest.raises(BadSchema):
            Bounds.read(bad)
    grouped = dd.Unit("p", 4, ("ward",), 2)
    assert grouped.within(Bounds(1)) == dd.Unit("p", 1, ("ward",), 1)
    assert grouped.within(Bounds(None, 2)) == dd.Unit("p", 4, (), None, 2)
    assert dd.Unit("p", 2).within(Bounds(None, None, 5)) == dd.Unit("p", 2, (), 2)


def test_a_unit_without_a_column_leaves_out_nothing_and_reaches_as_far_as_is_promised(tmp_path):
    def table(most: int) -> dd.Table:
        columns = {"old": np.ones(100, bool), "cost": np.full(100, 5.0), "ward": np.array(["a"] * 100)}
        return dd.Table(columns, SCHEMA, neighbours="add-remove", unit=dd.Unit(None, most), name="months")

    place = tmp_path / "months.ledger"
    curator, one = dd.Curator(table(36), BUDGET, place, create=True), dd.Curator(table(1), BUDGET)
    assert dd.Exact(table(36)).ask("old").total == 100
    ratio = float(curator.price("old", share=0.1).spread) / float(one.price("old", share=0.1).spread)
    assert ratio == pytest.approx(36, rel=0.02)
    answer = curator.ask("old", share=0.1)
    assert "one person of at most 36 row(s)" in answer.cost.neighbours
    assert any("presumed that one person has at most 36" in sentence for sentence in answer.leaves_out)
    assert len(curator.losses(["ward"], share=0.1)) == 2  # nothing is beyond a limit
    with pytest.raises(Unsupported, match="cannot leave out rows of a person"):
        curator.bounded(max_rows=2)
    with pytest.raises(BadQuery, match="nobody knows whose rows"):
        table(36).bounded(Bounds(2))
    with pytest.raises(BadQuery):
        curator.sql("SELECT COUNT(DISTINCT patient) FROM months", share=0.1)
    with pytest.raises(Refused):  # what was charged for 36 rows protects nobody who has 72
        dd.Curator(table(72), BUDGET, place)
    assert dd.Curator(table(36), BUDGET, place).left < float(BUDGET.total)


@pytest.mark.parametrize("named", ['p; one "patient"', "p; one patient with at most 2 row(s)", "p; public age (0)"])
def test_a_population_says_nothing_of_units(named):
    """Else rows, each protected alone, would be paid for by the ledger of people, whom it promises more."""
    with pytest.raises(BadTable, match="said by unit"):
        dd.Table({"cost": np.zeros(2)}, dd.Schema({"cost": dd.Real(0, 1)}), neighbours="add-remove", population=named)
    with pytest.raises(BadTable, match="said by unit"):
        dd.Dataset({"visits": visits(dd.Unit("patient", 2))}, budget=BUDGET, population=named)
