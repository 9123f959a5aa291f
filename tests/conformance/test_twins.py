"""Twin tests (HOSTILE, methods 5, M6): neighbouring tables behind one oracle look alike, whatever is asked of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dodona as dd
from dodona.engines.memory import MemoryEngine
from dodona.errors import AnswerLost, DodonaError
from dodona.oracles.groups import Atoms
from dodona.query.expr import Column
from dodona.query.schema import Schema
from dodona.query.sensitivity import Reach
from dodona.query.statistic import Gate, Partition, as_expr
from dodona.query.unit import Unit
from dodona.testing.engines import arrays, arrow_table
from dodona.testing.oracles import SCHEMA
from dodona.testing.strategies import RawColumn, random_query, random_schema, raw_column
from tests.support.twins import Twins, drawing

FEW = 2_000
MANY = 100_000
REQUESTS, PAIRS = 8, 4
OF_A_FILE = 32  # opening a file takes as long as ten questions
KINDS = st.sampled_from(["ask", "ask", "ask", "price", "select"])
BUDGETS = (dd.Budget(epsilon=1000), dd.Budget(epsilon=1000, delta=1e-6), dd.Budget(rho=1000))
EFFORTS: tuple[dict[str, Any], ...] = ({"share": 0.001}, {"epsilon": "1/7"}, {"tolerance": 0.5})


def _without(columns: Mapping[str, RawColumn], dropped: int) -> dict[str, RawColumn]:
    return {
        name: RawColumn(c.physical, [v for i, v in enumerate(c.values) if i != dropped]) for name, c in columns.items()
    }


def _table(columns: Mapping[str, RawColumn], schema: Schema, neighbours: str, file: Path | None) -> dd.Table:
    public = {"neighbours": neighbours, "rows": 10 if neighbours == "add-remove" else None, "name": "t"}
    if file is None:
        return dd.Table(arrays(columns), schema, population="twins", **public)
    pq.write_table(arrow_table(columns), file)
    return dd.Table(file, schema, population="twins", **public)


def _run(examples: int, folder: Path | None = None, each: int = REQUESTS) -> int:
    """How many requests were compared: each example is one schema, ``each`` requests, several pairs of tables."""
    compared = 0

    @drawing(examples // (each * PAIRS) + 1)
    @given(st.data())
    def alike(data: st.DataObject) -> None:
        nonlocal compared
        schema = data.draw(random_schema())
        neighbours = data.draw(st.sampled_from(["replace", "add-remove"]))
        budget = data.draw(st.sampled_from(BUDGETS))
        rows = data.draw(st.sampled_from([PAIRS + 1, PAIRS + 2, 12]))
        columns = {name: data.draw(raw_column(column, rows)) for name, column in schema.items()}
        requests = [
            (data.draw(KINDS), data.draw(random_query(schema)), data.draw(st.sampled_from(EFFORTS)))
            for _ in range(each)
        ]
        for pair in range(PAIRS):
            # replace: each twin lacks another row; add-remove: one lacks a row that the other has
            dropped = (pair, rows - 1 if neighbours == "replace" else rows)
            files = [None if folder is None else folder / f"{i}.parquet" for i in range(2)]
            tables = [
                _table(_without(columns, row), schema, neighbours, file)
                for row, file in zip(dropped, files, strict=True)
            ]
            twins = Twins(tables[0], tables[1], budget)
            for kind, query, effort in requests:
                try:
                    getattr(twins, kind)(query, **effort)
                except AnswerLost:
                    raise AssertionError(f"{query} was charged and failed") from None
                except DodonaError:
                    pass  # a refusal, and the same one for both
            compared += twins.requests

    alike()
    print(f"M6: {compared:,} requests on twins {'in memory' if folder is None else 'in files'}")
    return compared


def test_m06_two_thousand_twins_in_memory() -> None:
    assert _run(FEW) >= FEW


def test_m06_twins_in_files(tmp_path: Path) -> None:
    assert _run(64, tmp_path) >= 64


@pytest.mark.slow
@pytest.mark.parametrize("place", ["memory", "files"])
def test_m06_a_hundred_thousand_twins(place: str, tmp_path: Path) -> None:
    done = _run(MANY) if place == "memory" else _run(MANY, tmp_path, OF_A_FILE)
    assert done >= MANY


def _people(changed: Mapping[str, Any] | None, rows: int = 400) -> dd.Table:
    rng = np.random.default_rng(5)
    columns: dict[str, Any] = {
        "age": rng.integers(0, 100, rows).astype(float),
        "sex": np.array(["Female", "Male"], dtype=object)[rng.integers(0, 2, rows)],
        "smoker": (rng.random(rows) < 0.3).astype(float),
        "income": rng.gamma(2.0, 120.0, rows),
    }
    for name, value in (changed or {}).items():
        columns[name][3] = value
    return dd.Table(columns, SCHEMA, name="people", population="people")


STRANGE = {
    "extreme": {"age": 99, "income": 1e308, "smoker": 1.0},
    "missing": {"age": np.nan, "sex": None, "smoker": np.nan, "income": np.nan},
    "foreign": {"age": -(2.0**63), "sex": "'); DROP TABLE people; --", "smoker": 7.0, "income": -np.inf},
}


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("budget", BUDGETS[:2], ids=["pure", "concentrated"])
def test_whole_algorithms_on_twins(strange: str, budget: dd.Budget) -> None:
    """Every learner is a client of an oracle, so it runs on twins as it is: one run checks each of its requests."""
    from dodona import release
    from dodona.learn import PCA, GaussianNB, KMeans, LogisticRegression

    numbers = ("age", "income")
    for fit in (
        lambda oracle: KMeans(n_clusters=2, max_iter=2, random_state=0).fit(oracle.select_columns(*numbers)),
        lambda oracle: PCA(n_components=1).fit(oracle.select_columns(*numbers)),
        lambda oracle: GaussianNB().fit(oracle.select_columns(*numbers, "smoker"), "smoker"),
        lambda oracle: LogisticRegression(max_iter=3).fit(oracle.select_columns(*numbers, "smoker"), "smoker"),
        lambda oracle: release.conjunctions(oracle, width=2, columns=("sex", "smoker"), share=0.01),
        lambda oracle: release.intervals(oracle, "income", bits=6, share=0.01),
        lambda oracle: oracle.sql("SELECT sex, COUNT(*), AVG(income) FROM people GROUP BY sex", share=0.01),
    ):
        twins = Twins(_people(None), _people(STRANGE[strange]), budget)
        fit(twins)
        assert twins.requests >= 1


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("budget", BUDGETS[:2], ids=["pure", "concentrated"])
def test_losses_tell_of_a_row_through_noise_only(strange: str, budget: dd.Budget) -> None:
    """A value at a bound or far beyond it, missing or foreign: the same refusals, charges, shapes and margins."""
    twins = Twins(_people(None), _people(STRANGE[strange]), budget)
    for effort in ({"share": 0.01}, {"tolerance": 0.5}, {"epsilon": "1/10"}):
        assert len(twins.losses(**effort)) == 10  # type: ignore[arg-type]
        assert len(twins.select_columns("sex").losses(**effort)) == 2  # type: ignore[arg-type]
    assert twins.requests == 6


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 40])
def test_losses_tell_of_a_person_with_any_number_of_rows_through_noise_only(rows: int) -> None:
    """What one person's rows beyond the limit add is bounded, however many they are."""
    unit = dd.Unit("who", 3)
    schema = Schema({"x": dd.Real(0, 1)})

    def visits(more: int) -> dd.Table:
        x, who = np.r_[np.linspace(-1, 2, 60), np.full(more, 7.0)], np.r_[np.arange(60) % 12, np.full(more, 99)]
        return dd.Table({"x": x, "who": who}, schema, neighbours="add-remove", unit=unit, name="v")

    twins = Twins(visits(0), visits(rows), BUDGETS[0])
    for effort in ({"share": 0.01}, {"epsilon": "1/10"}):
        found = twins.losses(**effort)  # type: ignore[arg-type]
        assert [record[0] for record in found] == ["x", "x", "x", "(unit)"]


def test_public_columns_stay_and_only_their_atoms_pay() -> None:
    schema = Schema({"town": dd.Category("a", "b", public=True), "ill": dd.Flag()})
    towns = np.array(["a", "b"] * 20, dtype=object)
    tables = [dd.Table({"town": towns, "ill": np.arange(40) % 3 == k}, schema, population="t") for k in (0, 0)]
    tables[1] = dd.Table({"town": towns, "ill": np.r_[False, np.arange(1, 40) % 3 == 0]}, schema, population="t")
    twins = Twins(tables[0], tables[1], dd.Budget(epsilon=1))
    twins.ask("ill AND town = 'a'", epsilon="1/10")
    twins.sql("SELECT town, COUNT(*) FROM data WHERE ill GROUP BY town", epsilon="1/10")


# -- the harness itself is tested on broken copies ---------------------------------------------------------------------


def test_a_sensitivity_that_is_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reach, "parted", lambda self: Reach(self.size, self.change))
    twins = Twins(_people(None), _people({"sex": "Female"}), BUDGETS[0])
    twins.sql("SELECT COUNT(*) FROM people WHERE smoker", share=0.01)
    other = Twins(_people({"sex": "Male"}), _people({"sex": "Female"}), BUDGETS[0])
    with pytest.raises(AssertionError, match="one row moves"):
        other.sql("SELECT sex, COUNT(*) FROM people GROUP BY sex", share=0.01)


@pytest.mark.parametrize("leak", ["error", "price", "order", "shape"])
def test_what_tells_of_a_row_is_caught(leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryEngine.totals

    def leaking(self: MemoryEngine, program: Any) -> Any:
        totals = real(self, program)
        rich = bool(self._columns["income"][0][3] == 1000)
        if leak == "error" and rich:
            raise ZeroDivisionError
        return totals.astype(object) if leak == "shape" and rich else totals

    monkeypatch.setattr(MemoryEngine, "totals", leaking)
    twins = Twins(_people(None), _people({"income": 1e9}), BUDGETS[0])
    second = twins._twins[1].curator
    if leak == "price":
        second._budget = dd.Budget(epsilon=999)
    if leak == "order":
        charged = second._charged

        def reads_first(*arguments: Any) -> Any:
            second._table.engine.totals(second._plans.of(arguments[0].query, level=False).program)
            return charged(*arguments)

        monkeypatch.setattr(second, "_charged", reads_first)
    with pytest.raises(AssertionError):
        twins.price("income", share=0.01) if leak == "price" else twins.ask("income", share=0.01)


def test_the_folder_is_left_clean(tmp_path: Path) -> None:
    _run(1, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["0.parquet", "1.parquet"]


# -- people, not rows --------------------------------------------------------------------------------------------------


def _unit(data: st.DataObject, schema: Schema) -> Unit:
    grouping = [name for name, column in schema.items() if not isinstance(column, dd.Real)]
    group = tuple(data.draw(st.lists(st.sampled_from(grouping), unique=True, max_size=2))) if grouping else ()
    most = data.draw(st.integers(1, 5))
    return Unit("whose of it", most, group, data.draw(st.integers(1, most)) if group else None)


def _units(examples: int, folder: Path | None = None) -> int:
    """Twins that differ in all rows of one person: others' rows must be kept or left out as before."""
    compared = 0

    @drawing(examples // REQUESTS + 1)
    @given(st.data())
    def alike(data: st.DataObject) -> None:
        nonlocal compared
        schema = data.draw(random_schema())
        rows, unit = data.draw(st.sampled_from([1, 9, 24])), _unit(data, schema)
        columns = {name: data.draw(raw_column(column, rows)) for name, column in schema.items()}
        whose = data.draw(st.lists(st.sampled_from([0, 1, 2, None]), min_size=rows, max_size=rows))
        gone = data.draw(st.sampled_from(whose))
        tables = []
        for number, kept in enumerate([list(range(rows)), [i for i in range(rows) if whose[i] != gone]]):
            held = {n: RawColumn(c.physical, [c.values[i] for i in kept]) for n, c in columns.items()}
            own = np.array([whose[i] for i in kept], dtype=object)
            facts: dict[str, Any] = {"neighbours": "add-remove", "rows": 10, "name": "t", "population": "t"}
            source: Any = {**arrays(held), unit.column: own}
            if folder is not None:
                source = folder / f"{number}.parquet"
                people = pa.array(own.tolist(), pa.int64())
                pq.write_table(arrow_table(held).append_column(unit.column, people), source)
            tables.append(dd.Table(source, schema, unit=unit, **facts))
        twins = Twins(tables[0], tables[1], data.draw(st.sampled_from(BUDGETS)))
        for _ in range(REQUESTS):
            query = data.draw(random_query(schema))
            for name in unit.group:  # the case in which a person counts for less than all of their rows
                query = Partition(as_expr(Column(name)), query) if data.draw(st.booleans()) else query
            try:
                getattr(twins, data.draw(KINDS))(query, **data.draw(st.sampled_from(EFFORTS)))
            except AnswerLost:
                raise AssertionError(f"{query} was charged and failed") from None
            except DodonaError:
                pass
        compared += twins.requests

    alike()
    print(f"M6: {compared:,} requests on twins of units {'in memory' if folder is None else 'in files'}")
    return compared


def test_m06_twins_that_differ_in_a_whole_person() -> None:
    assert _units(400) >= 400


@pytest.mark.slow
@pytest.mark.parametrize("place", ["memory", "files"])
def test_m06_many_twins_that_differ_in_a_whole_person(place: str, tmp_path: Path) -> None:
    count = 10_000 if place == "memory" else 2_000
    assert _units(count, None if place == "memory" else tmp_path) >= count


# -- public groups -----------------------------------------------------------------------------------------------------


def _public(data: st.DataObject) -> Schema:
    """A random schema whose categories and flags may be public, with at least one of each kind of column."""
    towns = dd.Category("a", "b", missing=data.draw(st.sampled_from([None, "b"])), public=True)
    flag = dd.Flag(missing=data.draw(st.sampled_from([None, True])), public=data.draw(st.booleans()))
    return Schema({"town": towns, "member": flag, **data.draw(random_schema(2))})


def _atom(table: dd.Table, row: int) -> int:
    """The number of a row's atom, from its cleaned public values: last public column fastest, missing last."""
    atom, engine = 0, table.engine
    assert isinstance(engine, MemoryEngine)
    for name in table.schema.public:
        column, (values, null) = table.schema[name], engine._columns[name]
        known = len(column.values) if isinstance(column, dd.Category) else 2
        code = known if null is not None and null[row] else int(values[row])
        atom = atom * (known + (column.missing is None)) + code
    return atom


def _spared(examples: int) -> int:
    """How many questions were charged to others than the row that changed, and did not notice it."""
    spared = 0

    @drawing(examples)
    @given(st.data())
    def alike(data: st.DataObject) -> None:
        nonlocal spared
        schema = _public(data)
        columns = {name: data.draw(raw_column(column, 6)) for name, column in schema.items()}
        changed = {
            name: RawColumn(c.physical, c.values if schema[name].public else [c.values[1], *c.values[1:]])
            for name, c in columns.items()
        }
        tables = [dd.Table(arrays(held), schema, name="t", population="t") for held in (columns, changed)]
        twins = Twins(tables[0], tables[1], BUDGETS[0])
        first, second = twins._twins
        for _ in range(4):
            query = data.draw(random_query(schema, 2))
            gates = st.sampled_from(["town = 'a'", "NOT member", "town IN ('a', 'b')", "town IS NULL"])
            for gate in data.draw(st.lists(gates, min_size=1, max_size=2)):
                query = Gate(as_expr(gate), query)
            with suppress(DodonaError):
                twins.ask(query, share=0.001)
            scope = first.charges[0].entry.scope if first.charges else None
            if scope is not None and _atom(tables[0], 0) not in scope:
                spared += 1
                assert all(np.array_equal(a, b) for a, b in zip(first.inputs, second.inputs, strict=True)), str(query)

    alike()
    return spared


def test_whoever_does_not_pay_changes_nothing() -> None:
    """Charges in parallel (SuLQ 3.1.2): a row of an atom outside the charged scope must not move one of the sums."""
    assert _spared(60) > 10


@pytest.mark.slow
def test_whoever_does_not_pay_changes_nothing_in_many_questions() -> None:
    assert _spared(3000) > 500


def test_a_scope_that_spares_who_should_pay_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Atoms, "touched", lambda _self, _scopes: (0,))
    with pytest.raises(AssertionError):
        _spared(3000)  # the first example that shows it is the last
