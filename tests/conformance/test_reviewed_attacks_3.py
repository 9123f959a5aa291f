"""Attacks by fresh eyes on what spends and on what is read, each as it was found."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona.engines.homes import home_of
from dodona.errors import BadTable, LedgerCorrupt, Refused
from dodona.server.datasets import Datasets
from dodona.server.settings import Settings
from tests.support.postgres import PostgresServer

MARK = b"\xef\xbb\xbf"  # a byte order mark


def counted(path: Path, data: bytes, what: str) -> float:
    path.write_bytes(data)
    schema = dd.Schema({"x": dd.Integer(0, 100), "y": dd.Integer(0, 9)})
    return dd.Exact(dd.Table(path, schema, neighbours="add-remove")).ask(what).total


def test_a_byte_order_mark_in_a_record_is_the_same_wherever_the_record_stands(tmp_path):
    """DuckDB takes it off the first line: removing the record before it then changed two rows."""
    inside = [b",1\n", MARK + b"50,2\n", b"7,3\n"]
    alone = counted(tmp_path / "one.csv", b"x,y\n" + inside[1], "x IS NULL")
    for place in range(3):
        records = inside[:]
        records.insert(place, records.pop(1))
        found = counted(tmp_path / f"{place}.csv", b"x,y\n" + b"".join(records), "x IS NULL")
        assert found == 1 + alone


def test_a_file_of_a_byte_order_mark_alone_is_refused_in_words(tmp_path):
    with pytest.raises(BadTable, match="column names"):
        counted(tmp_path / "x.csv", MARK, "1")


def texts(path: Path, values: list[bytes]) -> None:
    """A Parquet file whose texts may be broken: no writer of ours would make it."""
    raw = pa.array(values, type=pa.binary())
    column = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    new = path.with_name("new.parquet")
    pq.write_table(pa.table({"c": column}), new, use_dictionary=False, write_statistics=False)
    new.replace(path)


def test_a_later_row_with_a_broken_text_costs_nothing(tmp_path):
    path = tmp_path / "t.parquet"
    texts(path, [b"a", b"b"])
    table = dd.Table(path, dd.Schema({"c": dd.Category("a", "b")}), neighbours="add-remove")
    curator = dd.Curator(table, dd.Budget(epsilon=1))
    curator.ask("c = 'a'", share=0.1)
    for values in ([b"a", b"\xff\xfe"], [b"a", b"b", b"b"]):  # whatever the rows hold: open it anew
        texts(path, values)
        with pytest.raises(BadTable, match="anew"):
            curator.ask("c = 'a'", share=0.1)
        assert curator.left == pytest.approx(0.9)


def test_a_stored_answer_is_not_given_to_another_table_of_the_same_people(tmp_path):
    schema, curators = dd.Schema({"x": dd.Integer(0, 100)}), []
    for name, value in (("a", 1), ("b", 90)):
        (tmp_path / f"{name}.csv").write_text("x\n" + f"{value}\n" * 1000)
        table = dd.Table(tmp_path / f"{name}.csv", schema, population="people")
        curators.append(dd.Curator(table, dd.Budget(epsilon=10), tmp_path / "l", create=True))
    assert curators[0].ask("x", share=0.2, request_id="k").total < 2000
    with pytest.raises(Refused, match="another"):
        curators[1].ask("x", share=0.2, request_id="k")
    assert curators[1].ask("x", share=0.2, request_id="other").total > 80_000


def numbers(path: Path, values: list[int]) -> None:
    new = path.with_name("new.parquet")
    pq.write_table(pa.table({"x": values}), new)
    new.replace(path)


def test_rows_in_another_order_spend_no_second_epsilon(tmp_path):
    path, schema, rows = tmp_path / "r.parquet", dd.Schema({"x": dd.Integer(0, 2000)}), list(range(2000))
    numbers(path, rows)
    oracle = dd.Local(dd.Table(path, schema), 1, tmp_path / "l", create=True)
    oracle.ask("x", share=0.5)
    left = oracle.left
    again = dd.Local(dd.Table(path, schema), 1, tmp_path / "l")  # the same file: nothing to say
    assert again.left == left
    numbers(path, rows[::-1])
    with pytest.raises(BadTable, match="anew"):
        oracle.ask("x", share=0.5)
    assert oracle.left == left
    with pytest.raises(BadTable, match="its place"):
        dd.Local(dd.Table(path, schema), 1, tmp_path / "l")


def test_a_file_that_was_only_touched_loses_no_local_answer(tmp_path):
    path, schema = tmp_path / "r.parquet", dd.Schema({"x": dd.Integer(0, 9)})
    numbers(path, [1] * 500)
    oracle = dd.Local(dd.Table(path, schema), 1)
    os.utime(path)
    with pytest.raises(BadTable, match="anew"):
        oracle.ask("x", share=0.5)
    assert oracle.left == 1


def test_a_pattern_has_the_identity_of_the_files_it_reads(tmp_path):
    numbers(tmp_path / "p1.parquet", [1, 2])
    numbers(tmp_path / "p[1].parquet", [3, 4])  # a decoy
    pattern = str(tmp_path / "p[1].parquet")
    read = dd.Exact(dd.Table(pattern, dd.Schema({"x": dd.Integer(0, 9)}))).ask("x").total
    assert read == 3
    home = home_of(pattern)
    assert home is not None
    assert home.identities(pattern) == home.identities(str(tmp_path / "p1.parquet"))


def test_a_statement_that_people_are_disjoint_makes_no_new_budget(tmp_path):
    (tmp_path / "x.csv").write_text("x\n" + "1\n" * 50)
    settings = Settings((str(tmp_path / "s.toml"),), tmp_path)

    def served(more: str) -> Datasets:
        columns = '[budget]\nepsilon = 1\n[columns]\nx = { type = "integer", low = 0, high = 5 }\n'
        (tmp_path / "s.toml").write_text(f'data = "x.csv"\n{more}\n{columns}')
        return Datasets(settings, lambda _: None)

    first = served("")
    (dataset,) = first
    dataset.ledger.charge(amount=dataset.ledger.left(), analyst="a", request_id="r", what="q")
    first.close()
    again = served("disjoint = true")  # the same ledger: the statement alone takes nothing away
    (dataset,) = again
    assert dataset.ledger.left() == 0
    again.close()
    for more in ("", "disjoint = true\n", 'disjoint = true\nname = "other"\n'):
        with pytest.raises(LedgerCorrupt):
            served(f'{more}\nledger = "{len(more)}.ledger"')
    for more in ("", "disjoint = true"):  # a start that was refused leaves nothing behind
        again = served(more)
        (dataset,) = again
        assert dataset.ledger.left() == 0
        again.close()


def test_stored_answers_are_found_whatever_the_database_sorts_by(postgres: PostgresServer):
    """In Thai a blank does not count when texts are compared."""
    with postgres.connect() as db:
        db.execute(
            "CREATE DATABASE thai TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'th' LOCALE 'C'"
        )
    url = postgres.url().rsplit("/", 1)[0] + "/thai#answers"
    table = dd.Table({"x": [0, 1] * 50}, dd.Schema({"x": dd.Integer(0, 1)}), name="t")
    curator = dd.Curator(table, dd.Budget(epsilon=1), url, create=True)
    given = [curator.ask("x", share=0.01, request_id=f"r{i}") for i in range(12)]
    assert [curator.ask("x", share=0.01, request_id=f"r{i}") for i in range(12)] == given
    curator.ledger.close()
