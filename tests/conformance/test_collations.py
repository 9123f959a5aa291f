"""One person is one person: texts are compared by their bytes on every engine, whatever collation a column has (R15).

Where two ids that differ were taken for one person, each of the two would decide which rows of the other count, and one
person could move a sum by twice what is charged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona.errors import BadTable
from dodona.query.plan import compile_query
from dodona.query.statistic import Partition, Stack, Value, as_expr

# They differ in case, accents, blanks, normal form, width and what an alphabet takes for the same.
IDS = ["a", "A", "á", "a\u0301", "a ", " a", "a\t", "ß", "ss", "SS", "ı", "i", "I", "İ", "ﬁ", "fi", "Å", "\u212b", "ａ"]
LABELS = ["a", "A", "á", "ß"]
ROWS_EACH, KEPT = 5, 2
SCHEMA = dd.Schema({"x": dd.Real(0, 9), "g": dd.Category(*LABELS)})
UNIT = dd.Unit("whose", KEPT)
QUERY = Stack(
    (
        Value(as_expr("1")),
        Partition(as_expr("g"), Value(as_expr("1"))),
        Value(as_expr("g = 'a'")),
        Value(as_expr("g IN ('A', 'ß')")),
        Value(as_expr("g IS NULL")),
    )
)
CELLS = {
    "whose": [whose for whose in IDS for _ in range(ROWS_EACH)],
    "x": [float(i % ROWS_EACH) for i in range(ROWS_EACH * len(IDS))],
    "g": [whose for whose in IDS for _ in range(ROWS_EACH)],  # the ids once more, of which four are labels
}
Expected = tuple[list[int], list[int]]


def found(source: Any) -> Expected:
    """The totals of all rows, and of the rows that a unit's bound leaves."""
    program = compile_query(QUERY, SCHEMA, level=False).program
    everyone = dd.Table(source, SCHEMA, neighbours="add-remove", name="t").engine
    bounded = dd.Table(source, SCHEMA, neighbours="add-remove", unit=UNIT, name="t").engine
    return [int(t) for t in everyone.totals(program)], [int(t) for t in bounded.totals(program)]


def expected() -> Expected:
    one = [len(IDS), 1, 1, 1, 1, 1, 2, len(IDS) - len(LABELS)]
    return [ROWS_EACH * count for count in one], [KEPT * count for count in one]


def numpy_texts() -> dict[str, Any]:
    kinds = {"whose": np.dtypes.StringDType(), "x": float, "g": np.dtypes.StringDType()}
    return {name: np.array(cells, dtype=kinds[name]) for name, cells in CELLS.items()}


MEMORY: dict[str, Callable[[], Any]] = {
    "arrays": lambda: {name: np.array(cells) for name, cells in CELLS.items()},
    "string arrays": numpy_texts,
    "objects": lambda: {n: np.array(c, dtype=object if n != "x" else float) for n, c in CELLS.items()},
    "arrow": lambda: pa.table(CELLS),
    "dictionary": lambda: pa.table(CELLS | {"whose": pa.array(CELLS["whose"]).dictionary_encode()}),
    "pandas": lambda: pd.DataFrame(CELLS),
    "pandas category": lambda: pd.DataFrame(CELLS).astype({"whose": "category", "g": "category"}),
    "polars": lambda: pl.DataFrame(CELLS),
    "polars categorical": lambda: pl.DataFrame(CELLS, schema_overrides={"whose": pl.Categorical, "g": pl.Categorical}),
}


@pytest.mark.parametrize("kind", MEMORY)
def test_ids_and_labels_that_differ_in_bytes_are_different_in_memory(kind: str) -> None:
    assert found(MEMORY[kind]()) == expected()


def test_ids_that_differ_after_a_nul_are_two_persons() -> None:
    for kind in (object, np.dtypes.StringDType()):
        rows = {"whose": np.array(["a\x00b", "a\x00c"] * 5, dtype=kind), "x": np.zeros(10), "g": np.array(["a"] * 10)}
        assert found(rows)[1][0] == 2 * KEPT


def test_ids_and_labels_that_differ_in_bytes_are_different_in_files(tmp_path: Path) -> None:
    pq.write_table(pa.table(CELLS), tmp_path / "t.parquet")
    assert found(tmp_path / "t.parquet") == expected()


@pytest.mark.parametrize("collation", ["", "NOCASE", "NOACCENT", "NFC", "NOCASE.NOACCENT", "NOCASE.NOACCENT.NFC", "tr"])
def test_a_collation_of_duckdb_makes_no_two_persons_one(collation: str, tmp_path: Path) -> None:
    cells = pa.table(CELLS)  # noqa: F841  read by name
    named = f"COLLATE {collation}" if collation else ""
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        if collation == "tr":
            known = connection.execute("SELECT 1 FROM pragma_collations() WHERE collname = 'tr'").fetchall()
            if not known:
                pytest.skip("DuckDB's ICU is not here")
        connection.execute(f"CREATE TABLE t (whose VARCHAR {named}, x DOUBLE, g VARCHAR {named})")
        connection.execute("INSERT INTO t SELECT * FROM cells")
    assert found(f"{tmp_path / 't.duckdb'}#t") == expected()


COLLATIONS = {
    "C": "",
    "case": "provider = icu, locale = 'und-u-ks-level2', deterministic = false",
    "accents": "provider = icu, locale = 'und-u-ks-level1', deterministic = false",
    "Turkish": "provider = icu, locale = 'tr-u-ks-level1', deterministic = false",
}


@pytest.mark.parametrize("name", COLLATIONS)
@pytest.mark.parametrize("kind", ["text", "varchar(20)", "words"])
def test_a_collation_of_postgresql_makes_no_two_persons_one(name: str, kind: str, postgres: Any) -> None:
    import psycopg

    with postgres.connect() as db:
        db.execute("DROP TABLE IF EXISTS collated; DROP DOMAIN IF EXISTS words")
        db.execute('DROP COLLATION IF EXISTS "way"')
        if COLLATIONS[name]:
            try:
                db.execute(f'CREATE COLLATION "way" ({COLLATIONS[name]})')
            except psycopg.errors.FeatureNotSupported:
                pytest.skip("PostgreSQL is built without ICU")
        named = 'COLLATE "way"' if COLLATIONS[name] else ""
        db.execute(f"CREATE DOMAIN words AS text {named}")
        named = "" if kind == "words" else named
        db.execute(f"CREATE TABLE collated (whose {kind} {named}, x float8, g {kind} {named})")
        db.cursor().executemany("INSERT INTO collated VALUES (%s, %s, %s)", list(zip(*CELLS.values(), strict=True)))
    assert found(f"{postgres.url()}#collated") == expected()


def test_a_type_with_an_equality_of_its_own_is_refused_by_postgresql(postgres: Any) -> None:
    import psycopg

    with postgres.connect() as db:
        try:
            db.execute("CREATE EXTENSION IF NOT EXISTS citext")
        except psycopg.Error:
            pytest.skip("citext is not here")
        db.execute("DROP TABLE IF EXISTS insensitive; CREATE TABLE insensitive (whose citext, x float8, g text)")
    with pytest.raises(BadTable, match="must hold whole numbers or text"):
        dd.Table(f"{postgres.url()}#insensitive", SCHEMA, neighbours="add-remove", unit=UNIT)
