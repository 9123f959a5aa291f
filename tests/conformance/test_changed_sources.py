"""What was checked when a source was opened is checked again: before the charge, and in the snapshot of the sum.

A column whose type changes under an open table is refused and nothing is charged. Where it changes between the check
and the sum, the answer is lost whatever the rows hold: no value decides between an answer and a loss (HOSTILE R2, R14).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona.engines.duckdb.dialect import DuckDBDialect
from dodona.engines.sql.compile import Compiled
from dodona.engines.sql.dialect import Physical
from dodona.engines.sql.windows import bounded_relation
from dodona.errors import AnswerLost, BadTable
from dodona.query.plan import compile_query
from dodona.query.statistic import Stack, Value, as_expr
from dodona.testing.oracles import seeded_curator

SCHEMA = dd.Schema({"x": dd.Real(0, 9), "n": dd.Integer(0, 9), "g": dd.Category("a", "b"), "f": dd.Flag()})
NUMBERS = dd.Schema({name: SCHEMA[name] for name in ("x", "n", "f")})  # texts may be broken: such files are opened anew
QUESTION = "x + n"
TYPED: dict[str, Any] = {"x": [1.0, 2.0, 3.0], "n": [1, 2, 3], "g": ["a", "b", "a"], "f": [True, False, True]}
Change = Callable[[str], None]
"""Makes the column ``x`` one of texts, of which one is the given cell."""


def texts(cell: str) -> pa.Table:
    return pa.table(TYPED | {"x": ["1", cell, "3"]})


def parquet(folder: Path, _: Any) -> tuple[Any, Change]:
    path = folder / "rows.parquet"
    pq.write_table(pa.table(TYPED), path)
    return path, lambda cell: pq.write_table(texts(cell), path)


def replaced_parquet(folder: Path, _: Any) -> tuple[Any, Change]:
    path = folder / "rows.parquet"
    pq.write_table(pa.table(TYPED), path)

    def change(cell: str) -> None:
        pq.write_table(texts(cell), folder / "new.parquet")
        os.replace(folder / "new.parquet", path)

    return path, change


def several_parquet(folder: Path, _: Any) -> tuple[Any, Change]:
    for name in ("1.parquet", "2.parquet"):
        pq.write_table(pa.table(TYPED), folder / name)
    return folder / "*.parquet", lambda cell: pq.write_table(texts(cell), folder / "2.parquet")


def database(folder: Path, _: Any) -> tuple[Any, Change]:
    path = folder / "rows.duckdb"
    typed = pa.table(TYPED)  # noqa: F841  read by name
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT * FROM typed")

    def change(cell: str) -> None:  # DuckDB itself lets nobody write to the file while it is open
        other = folder / "other.duckdb"
        shutil.copy(path, other)
        with duckdb.connect(str(other)) as connection:
            connection.execute("ALTER TABLE people ALTER x TYPE VARCHAR")
            connection.execute("UPDATE people SET x = ? WHERE n = 2", [cell])
        os.replace(other, path)

    return f"{path}#people", change


def postgres_table(_: Path, server: Any) -> tuple[Any, Change]:
    with server.connect() as db:
        db.execute("DROP TABLE IF EXISTS altered CASCADE")
        db.execute("CREATE TABLE altered (x float8, n int, g text, f bool)")
        db.cursor().executemany("INSERT INTO altered VALUES (%s, %s, %s, %s)", list(zip(*TYPED.values(), strict=True)))

    def change(cell: str) -> None:
        with server.connect() as db:
            db.execute("ALTER TABLE altered ALTER x TYPE text")
            db.execute("UPDATE altered SET x = %s WHERE n = 2", (cell,))

    return f"{server.url()}#altered", change


def postgres_remade(folder: Path, server: Any) -> tuple[Any, Change]:
    source, _ = postgres_table(folder, server)

    def change(cell: str) -> None:
        with server.connect() as db:
            db.execute("DROP TABLE altered; CREATE TABLE altered (x text, n int, g text, f bool)")
            db.execute("INSERT INTO altered VALUES (%s, 1, 'a', true)", (cell,))

    return source, change


def postgres_view(folder: Path, server: Any) -> tuple[Any, Change]:
    """A view over a view; the one below is redefined, by an expression that raises on a cell."""
    source, _ = postgres_table(folder, server)
    with server.connect() as db:
        db.execute("CREATE VIEW below AS SELECT * FROM altered; CREATE VIEW sight AS SELECT * FROM below")

    def change(cell: str) -> None:
        with server.connect() as db:
            written = "'" + cell + "'"
            db.execute(
                f"CREATE OR REPLACE VIEW below AS SELECT (CASE WHEN n = 2 THEN {written} ELSE '1' END)::float8 AS x, "
                "n, g, f FROM altered"
            )

    return source.replace("#altered", "#sight"), change


def spark_files(folder: Path, _: Any) -> tuple[Any, Change]:
    pq.write_table(pa.table(TYPED), folder / "rows.parquet")
    return f"spark:{folder}", lambda cell: pq.write_table(texts(cell), folder / "rows.parquet")


PLACES: dict[str, Callable[[Path, Any], tuple[Any, Change]]] = {
    "parquet": parquet,
    "parquet, replaced": replaced_parquet,
    "parquet, one of several": several_parquet,
    "duckdb": database,
    "postgres": postgres_table,
    "postgres, remade": postgres_remade,
    "postgres, view": postgres_view,
    "spark": spark_files,
}


@pytest.fixture(params=[pytest.param(p, marks=pytest.mark.slow) if p == "spark" else p for p in PLACES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], tuple[dd.Curator, Change]]:
    """Makes a curator over rows in one place after the other, and what changes their types."""
    named = request.param.partition(",")[0]
    server = request.getfixturevalue(named) if named in ("postgres", "spark") else None
    numbers = iter(range(10))

    def made() -> tuple[dd.Curator, Change]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        source, change = PLACES[request.param](folder, server)
        table = dd.Table(source, SCHEMA, neighbours="add-remove", rows=3, name="t", population="t")
        return dd.Curator(table, dd.Budget(epsilon=4)), change

    return made


Place = Callable[[], tuple[dd.Curator, Change]]


@pytest.mark.parametrize("cell", ["2", "7x"])
def test_a_type_that_changed_is_refused_and_nothing_is_charged(place: Place, cell: str) -> None:
    curator, change = place()
    curator.ask(QUESTION, epsilon=1)
    change(cell)
    for ask in (
        lambda: curator.ask(QUESTION, epsilon=1),
        lambda: curator.select(["x > 1", "f"], epsilon=1),
        lambda: curator.sql("SELECT g, COUNT(*) FROM t GROUP BY g", epsilon=1),
    ):
        with pytest.raises(BadTable, match="open the table anew") as caught:
            ask()
        assert "7x" not in str(caught.value)
        assert caught.value.__cause__ is None
    assert curator.left == 3


@pytest.mark.parametrize("moment", ["before the snapshot", "in the snapshot"])
def test_no_value_decides_what_comes_of_a_change_between_check_and_sum(
    place: Place, moment: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if moment == "in the snapshot" and "postgres" in request.node.name:
        pytest.skip("PostgreSQL holds a lock: the change waits for the end of the snapshot")
    outcomes = []
    for cell in ("2", "7x", "infinity", ""):
        curator, change = place()
        curator.ask(QUESTION, epsilon=1)
        engine = curator._table.engine
        with monkeypatch.context() as patch:
            if moment == "before the snapshot":
                check = engine.check
                patch.setattr(engine, "check", lambda check=check, change=change, cell=cell: (check(), change(cell)))
            else:
                real, left = Compiled.statements, [change]

                def statements(self: Compiled, exact: Any, cell: str = cell, left: list[Change] = left) -> Any:
                    if left:
                        left.pop()(cell)
                    return real(self, exact)  # noqa: B023

                patch.setattr(Compiled, "statements", statements)
            with pytest.raises(AnswerLost):
                curator.ask(QUESTION, epsilon=1)
        outcomes.append(curator.left)
    assert set(outcomes) == {2}


def test_rows_that_come_and_go_are_no_change(tmp_path: Path) -> None:
    """Under add-remove a file of the same columns is answered from, however many rows it has now."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(TYPED), path)
    table = dd.Table(path, NUMBERS, neighbours="add-remove", rows=3)
    curator = dd.Curator(table, dd.Budget(epsilon=10**6))
    for count in (1, 5, 200):
        pq.write_table(pa.table({name: (values * count)[:count] for name, values in TYPED.items()}), path)
        assert curator.ask("n >= 0", epsilon=10**5).total == pytest.approx(count, abs=0.1)
    extended = pa.table(TYPED).append_column("more", pa.array(["u", "v", "w"]))
    pq.write_table(extended, path)
    assert curator.ask("n >= 0", epsilon=10**5).total == pytest.approx(3, abs=0.1)


def test_another_number_of_rows_is_refused_before_the_charge_where_it_is_public(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(TYPED), path)
    curator = dd.Curator(dd.Table(path, NUMBERS), dd.Budget(epsilon=1))
    pq.write_table(pa.concat_tables([pa.table(TYPED)] * 2), path)
    with pytest.raises(BadTable, match="open the table anew"):
        curator.ask(QUESTION, epsilon=1)
    assert curator.left == 1
    pq.write_table(pa.table(TYPED | {"x": [4.0, 5.0, 6.0]}), path)
    curator.ask(QUESTION, epsilon=1)


@pytest.mark.parametrize("place", [parquet, database])
def test_a_source_that_is_gone_is_refused_in_words_without_its_path(place: Any, tmp_path: Path) -> None:
    source, _ = place(tmp_path, None)
    curator = dd.Curator(dd.Table(source, SCHEMA), dd.Budget(epsilon=1))
    os.remove(str(source).partition("#")[0])
    with pytest.raises(BadTable, match="open the table anew") as caught:
        curator.ask(QUESTION, epsilon=1)
    assert str(tmp_path) not in str(caught.value)  # a server shows this text to analysts
    assert curator.left == 1


def test_a_join_is_of_the_files_whose_texts_were_read(tmp_path: Path) -> None:
    """A join is opened when it is first asked for; a file that changed before is not the one that was read."""
    path = tmp_path / "rows.parquet"

    def write(last: bytes) -> None:
        cells = pa.array([b"a", b"b", last], pa.binary())
        words = pa.Array.from_buffers(pa.string(), 3, cells.buffers())  # as a writer that checks nothing does
        pq.write_table(pa.table({"who": ["u", "v", "w"], "word": words}), path, store_schema=False)

    write(b"c")
    pq.write_table(pa.table({"who": ["u", "v", "w"], "rooms": [1, 2, 3]}), tmp_path / "homes.parquet")
    facts: dict[str, Any] = {"unit": dd.Unit("who", 1), "neighbours": "add-remove"}
    visits = dd.Table(path, dd.Schema({"word": dd.Text(3)}), **facts)
    homes = dd.Table(tmp_path / "homes.parquet", dd.Schema({"rooms": dd.Integer(0, 9)}), **facts)
    dataset = dd.Dataset({"visits": visits, "homes": homes}, "who", budget=dd.Budget(epsilon=1))
    write(b"\xff\xfe")
    for question in ("COUNT(*)", "SUM(rooms)"):
        with pytest.raises(BadTable, match="open the table anew"):
            dataset.sql(f"SELECT {question} FROM visits JOIN homes ON visits.who = homes.who", epsilon=1)
    assert dataset.ledger.entries() == []


def test_a_local_question_about_a_changed_source_charges_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(TYPED), path)
    local = dd.Local(dd.Table(path, SCHEMA), 1)
    pq.write_table(texts("7x"), path)
    for ask in (lambda: local.ask("f", share=0.5), lambda: local.select(["f", "n > 1"], share=0.5)):
        with pytest.raises(BadTable, match="open the table anew"):
            ask()
    assert local.ledger.entries() == []


def test_a_procedure_is_run_although_rows_have_gone(tmp_path: Path) -> None:
    """Of a private number of rows, whether one more or less was there at opening decides nothing."""
    from dodona.query.candidates import ParityProcedure

    procedure = ParityProcedure((as_expr("n = 1"), as_expr("f")), as_expr("x > 5"), 2, 2, 20, 20)
    path = tmp_path / "rows.parquet"
    for count in (100, 99, 90, 101):
        many = pa.table({name: (values * 40)[:100] for name, values in TYPED.items()})
        pq.write_table(many, path)
        table = dd.Table(path, NUMBERS, neighbours="add-remove", rows=100)
        curator = seeded_curator(table, dd.Budget(epsilon=1), 0)  # of the rows that go, some have a part to play
        pq.write_table(pa.concat_tables([many, many]).slice(0, count), path)
        assert curator.run(procedure, epsilon=1).cost.amount == 1


# -- no cast can raise, whatever a type has become --------------------------------------------------------------------

BECOMES = {
    "text": "'7x'",
    "empty": "''",
    "blob": "'\\xFF'::BLOB",
    "date": "DATE '2020-01-01'",
    "huge": "170141183460469231731687303715884105727::HUGEINT",
    "double": "1e308::DOUBLE",
    "nan": "'nan'::DOUBLE",
    "list": "[1, 2]",
    "boolean": "true",
    "decimal": "99999999999999999999999999999999999999::DECIMAL(38, 0)",
}
KINDS = {
    "x": (("DOUBLE", "float"), ("DECIMAL(9,2)", "decimal"), ("BIGINT", "integer"), ("BOOLEAN", "boolean")),
    "n": (("INTEGER", "integer"), ("DOUBLE", "float")),
    "g": (("VARCHAR", "text"),),
    "f": (("BOOLEAN", "boolean"), ("TINYINT", "integer")),
}
EVERY = Stack(tuple(Value(as_expr(text)) for text in ("x", "n", "g = 'a'", "f", "x IS NULL")))


@pytest.mark.parametrize("value", BECOMES.values(), ids=BECOMES)
def test_no_cast_raises_on_duckdb_whatever_a_type_has_become(value: str) -> None:
    program = compile_query(EVERY, SCHEMA, level=False).program
    connection = duckdb.connect()
    for name, kinds in KINDS.items():
        for kind, family in kinds:
            held = {n: Physical(n, *KINDS[n][0][::-1]) for n in SCHEMA} | {name: Physical(name, family, kind)}
            columns = ", ".join(f"{value} AS {n}" for n in SCHEMA)
            for whose in (Physical("w", "text", "VARCHAR"), Physical("w", "integer", "INTEGER")):
                dialect = DuckDBDialect(SCHEMA, held, whose)
                relation = dialect.relation(f"(SELECT {columns}, {value} AS w) AS t")
                bounded = bounded_relation(SCHEMA, dd.Unit("w", 2), dialect, relation)
                exact = dict.fromkeys(range(len(program.blocks)), True)
                for statement in Compiled(program, dialect, *bounded).statements(exact):
                    connection.execute(statement.text).fetchall()
