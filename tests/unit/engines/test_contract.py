"""The contract of an engine: what lacks a part of it is refused when it is plugged in, never after a charge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dodona as dd
from dodona.engines import engine as base
from dodona.engines.engine import Engine, Pick, Respond, RowCount
from dodona.engines.memory import MemoryEngine
from dodona.engines.people import People
from dodona.errors import BadTable, Unsupported
from dodona.query.program import Program
from dodona.query.schema import Schema
from dodona.query.unit import Unit
from dodona.testing.engines import WHOSE, PassingEngine, check_engine, memory_engine
from dodona.testing.strategies import RawColumn

SCHEMA = dd.Schema({"x": dd.Real(0, 10)})
UNIT = dd.Unit("person", 5)
COLUMNS = {"x": (np.full(125, 1.0), np.zeros(125, dtype=bool))}
PARTS = ("lasting_order", "check", "rows", "totals", "reports", "explain")


@pytest.mark.parametrize("part", PARTS)
def test_an_engine_that_lacks_a_part_cannot_be_made(part: str) -> None:
    rest = {name: getattr(MemoryEngine, name) for name in PARTS if name != part}
    partial = type("Partial", (Engine,), rest)
    with pytest.raises(TypeError, match=part):
        partial(SCHEMA, unit=None, public_rows=True)


def test_a_table_refuses_an_engine_that_does_not_state_its_promise() -> None:
    def plugged(engine: Any, **facts: Any) -> dd.Table:
        return dd.Table(engine, SCHEMA, neighbours="add-remove", **facts)

    def held(unit: Unit | None) -> MemoryEngine:
        people = None if unit is None else People(SCHEMA, COLUMNS, 125, lambda: np.arange(125))
        return MemoryEngine(SCHEMA, COLUMNS, 125, unit=unit, people=people)

    table = plugged(held(UNIT), unit=UNIT)
    assert table.engine.unit == UNIT
    for unit in (None, dd.Unit("person", 6), dd.Unit("household", 5)):
        with pytest.raises(BadTable, match="as many rows of each unit as its table promises"):
            plugged(held(unit), unit=UNIT)
    with pytest.raises(BadTable, match="as many rows of each unit as its table promises"):
        plugged(held(UNIT))
    with pytest.raises(BadTable, match="whose they are"):
        MemoryEngine(SCHEMA, COLUMNS, 125, unit=UNIT)
    with pytest.raises(BadTable, match="treat the number of rows as its table does"):
        plugged(MemoryEngine(SCHEMA, COLUMNS, 125, public_rows=True))
    with pytest.raises(BadTable, match="the schema of its table"):
        plugged(MemoryEngine(dd.Schema({"x": dd.Real(0, 11)}), COLUMNS, 125))

    class Silent(MemoryEngine):
        def __init__(self) -> None:
            self._columns, self._rows = COLUMNS, 125

    with pytest.raises(BadTable, match=r"call super\(\).__init__"):
        plugged(Silent())


def test_a_table_refuses_what_a_source_makes_of_another_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of our own: whatever stands behind a table is looked at, not only what a user hands over."""

    class Loose:
        schema = SCHEMA

    monkeypatch.setattr("dodona.engines.table.open_engine", lambda *_: Loose())
    with pytest.raises(BadTable, match=r"must derive from dodona\.engines\.engine\.Engine"):
        dd.Table({"x": np.ones(3)}, SCHEMA)


def test_local_refuses_rows_without_a_lasting_order_before_there_is_a_ledger(tmp_path: Path) -> None:
    class Shuffled(MemoryEngine):
        @property
        def lasting_order(self) -> bool:
            return False

    table = dd.Table(Shuffled(SCHEMA, COLUMNS, 125, public_rows=True), SCHEMA)
    with pytest.raises(Unsupported, match="by its place"):
        dd.Local(table, 1, tmp_path / "rows.ledger")
    assert not (tmp_path / "rows.ledger").exists()


# -- check_engine finds what is wrong --------------------------------------------------------------------------------


class IgnoresUnits(MemoryEngine):
    """States a unit and counts every row."""

    def __init__(self, schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> None:
        every = memory_engine(schema, {name: column for name, column in columns.items() if name != WHOSE})
        super().__init__(schema, every._columns, every.rows())
        self.unit = unit


class FoldsCase(PassingEngine):
    """Takes ids that differ in case for one person."""

    def __init__(self, schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> None:
        folded = dict(columns)
        if unit is not None and columns[WHOSE].physical == "text":
            ids = [None if whose is None else whose.lower() for whose in columns[WHOSE].values]
            folded[WHOSE] = RawColumn("text", ids)
        super().__init__(memory_engine(schema, folded, unit))


class SaysNothingOfUnits(PassingEngine):
    """Bounds units, and does not say so."""

    def __init__(self, schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> None:
        super().__init__(memory_engine(schema, columns, unit))
        self.unit = None


class Sound(PassingEngine):
    def __init__(self, schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> None:
        super().__init__(memory_engine(schema, columns, unit))


class ReportsEveryone(Sound):
    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        return super().reports(program, lambda a, b: pick(a, b) * 0 + np.arange(len(pick(a, b))), respond)


class ForgetsRows(Sound):
    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        return super().reports(program, lambda a, b: pick(a, b)[: max(b - a - 1, 0)], respond)


class Restless(Sound):
    """Another order at every pass."""

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        self.engine.engine_passes = vars(self.engine).get("engine_passes", 0) + 1  # type: ignore[attr-defined]
        for part in super().reports(program, pick, respond):
            yield part[::-1] if self.engine.engine_passes % 2 else part  # type: ignore[attr-defined]


class ReportsWithoutOrder(Sound):
    @property
    def lasting_order(self) -> bool:
        return False


class CountsAllRows(Sound):
    """Sums are of the rows that count; the number of rows is of all."""

    def __init__(self, schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> None:
        super().__init__(schema, columns, unit)
        self._all = len(next(iter(columns.values())).values)

    def rows(self) -> int:
        return self._all


class Rounds(Sound):
    """Adds in doubles."""

    def totals(self, program: Program) -> Any:
        return np.array([int(float(total)) for total in super().totals(program)], dtype=object)


class Wraps(Sound):
    """Adds in 64 bits."""

    def totals(self, program: Program) -> Any:
        return np.array([(int(total) + 2**63) % 2**64 - 2**63 for total in super().totals(program)], dtype=object)


@pytest.mark.parametrize(
    "wrong",
    [
        Rounds,
        Wraps,
        IgnoresUnits,
        FoldsCase,
        SaysNothingOfUnits,
        ReportsEveryone,
        ForgetsRows,
        Restless,
        ReportsWithoutOrder,
        CountsAllRows,
    ],
)
def test_check_engine_rejects(wrong: Callable[..., Engine]) -> None:
    with pytest.raises((AssertionError, BadTable, ExceptionGroup)):
        check_engine(wrong, examples=60, shrink=False)


def test_check_engine_accepts_the_same_engine_unbroken() -> None:
    check_engine(Sound, examples=30)


# -- the number of rows ----------------------------------------------------------------------------------------------


def test_nothing_is_typed_or_added_up_by_a_private_number_of_rows() -> None:
    block = base.Block((0,), 2**24)
    program = Program((), (block,))
    private = [RowCount(n, public=False) for n in (0, 1, 10**6, 2**28, base.MOST_IN_DOUBLES)]
    assert len({count.most for count in private}) == 1
    assert {base.empty_totals(block, count.most).dtype for count in private} == {np.dtype(np.int64)}
    assert all(count.in_doubles(program) == {0: False} for count in private)
    small = Program((), (base.Block((0,), 2**23),))
    assert all(count.in_doubles(small) == {0: True} for count in private)
    assert RowCount(2**28, public=True).in_doubles(program) == {0: True}
    assert RowCount(base.MOST_IN_DOUBLES + 1, public=False).in_doubles(small) == {0: False}


def test_a_table_that_outgrew_doubles_is_summed_again_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dodona.engines.duckdb import DuckDBEngine
    from dodona.query.plan import compile_query
    from dodona.query.statistic import Value, as_expr

    monkeypatch.setattr(base, "MOST_IN_DOUBLES", 10)
    ways: list[dict[int, bool]] = []
    from dodona.engines.sql.compile import Compiled

    real = Compiled.statements

    def statements(self: Compiled, exact: Any) -> Any:
        ways.append(dict(exact))
        return real(self, exact)

    monkeypatch.setattr(Compiled, "statements", statements)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": [1.0] * 8}), path)
    engine = DuckDBEngine(path, SCHEMA, public_rows=False)
    program = compile_query(Value(as_expr("x")), SCHEMA, level=False).program
    eight: NDArray[Any] = engine.totals(program)
    pq.write_table(pa.table({"x": [1.0] * 12}), path)
    assert int(engine.totals(program)[0]) * 8 == int(eight[0]) * 12
    assert ways == [{0: True}, {0: True}, {0: False}]
