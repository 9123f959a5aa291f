"""The private copy of a CSV file: what is stored of it, how it is written, and what is left of it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from dodona.cli.draft import Draft
from dodona.config import Config
from dodona.engines.csv import Csv
from dodona.engines.csv import records as csv_records
from dodona.engines.duckdb import DuckDBEngine
from dodona.engines.duckdb import copy as csv_copy
from dodona.engines.table import Table
from dodona.errors import BadSchema, BadTable
from dodona.oracles.curator import Curator
from dodona.privacy.budget import Budget
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Stack, Value, as_expr
from dodona.query.unit import Unit

SCHEMA = Schema({"age": Real(0, 100), "town": Category("Oslo", "a\nb", "c,d", 'e"f', "é"), "ill": Flag()})


def sums(source: Table | DuckDBEngine, *texts: str) -> list[float]:
    engine = source.engine if isinstance(source, Table) else source
    plan = compile_query(Stack(tuple(Value(as_expr(text)) for text in texts)), engine.schema, level=False)
    return [float(x) for x in engine.totals(plan.program) * plan.units]


def file(folder: Path, content: bytes | str, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_record_is_a_row_however_many_lines_it_has(tmp_path: Path) -> None:
    many = "\n" * 500
    path = file(tmp_path, f'age,note,town\n41,"{many}",Oslo\n7,"x ""y"", z\r\n\r",Oslo\n')
    table = Table(path, Schema({"age": Real(0, 100), "town": Category("Oslo")}))
    assert table.public_rows == 2
    assert sums(table, "age", "age IS NULL", "town = 'Oslo'") == [48, 0, 2]


def test_labels_with_signs_of_every_kind_are_found(tmp_path: Path) -> None:
    path = file(tmp_path, 'age,town,ill\n1,"a\nb",1\n2,"c,d",t\n"3\n","e""f",FALSE\n4,é,\n')
    columns = ("a\nb", "c,d", 'e"f', "é")
    found = sums(Table(path, SCHEMA), "age", "ill", *(f"town = '{name}'" for name in columns))
    assert found == [10, 2, 1, 1, 1, 1]


def test_the_peers_read_the_same(tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {
            "age": [1.5, 2.25, None, 80.125] * 25,
            "town": ["Oslo", "a\nb", 'e"f', "c,d"] * 25,
            "note": ["", "a\r\nb", '"', ",,\n"] * 25,
        }
    )
    for how in ({"quoting": 1}, {"quoting": 0}, {"lineterminator": "\r\n"}):
        path = tmp_path / "rows.csv"
        rows.to_csv(path, index=False, **how)
        ours = sums(Table(path, Schema({k: SCHEMA[k] for k in ("age", "town")})), "1", "age", "town = 'c,d'")
        read = pd.read_csv(path)
        assert ours == [len(read), read["age"].sum(), (read["town"] == "c,d").sum()]
        said = "count(*), sum(age), count(*) FILTER (town = 'c,d')"
        peer = duckdb.sql(f"SELECT {said} FROM read_csv('{path}', quote = '\"', escape = '\"', parallel = false)")
        assert ours == list(peer.fetchall()[0])


def test_the_rows_keep_their_order_and_several_pieces_are_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path, "n\n" + "".join(f"{i}\n" for i in range(3000)))
    monkeypatch.setattr(csv_records, "BLOCK", 1000)
    monkeypatch.setattr(csv_copy, "PIECE", 4000)
    engine = DuckDBEngine(path, Schema({"n": Integer(0, 3000)}), threads=1)  # as ``reports`` reads
    assert len(engine._source.files) > 2
    assert sums(engine, "n", "1") == [3000 * 2999 / 2, 3000]
    ordered = [
        row[0]
        for row in engine._connection()[1].cursor().execute(f"SELECT c0 FROM {engine._source.relation}").fetchall()
    ]
    assert ordered == list(range(3000))


def test_a_very_long_record_beside_others_in_the_real_reader(tmp_path: Path) -> None:
    long = b"x" * (csv_records.LONGEST - 2)
    path = file(
        tmp_path, b"age,note\n1," + long + b"\n2," + long + b"y\n3,z\n4," + b'"' + b"\n," * len(long) + b'"\n5,'
    )
    assert sums(Table(path, Schema({"age": Real(0, 100)})), "1", "age", "age IS NULL") == [5, 9, 2]


@pytest.mark.parametrize(
    ("content", "csv", "expected"),
    [
        ("age;town\n1,5;Oslo\n2.5;c,d\n", Csv(delimiter=";", decimal=","), [2, 1.5, 0]),  # 2.5 is no number there
        ("age|town\n'1'|'c,d'\n", Csv(delimiter="|", quote="'"), [1, 1, 0]),
        ("1.5\tOslo\n2\tc,d\n", Csv(delimiter="\t", header=False), [2, 3.5, 0]),
        ("x,1.5,Oslo\ny,2,Oslo\n", Csv(header=("id", "age", "town")), [2, 3.5, 0]),
        ("age,town\n1,\xe9\n", Csv(encoding="latin-1"), [1, 1, 0]),
        ('age,town\n1,a"\n2,"\n', Csv(quote=""), [2, 3, 2]),
    ],
)
def test_how_a_file_is_written_is_stated(content: str, csv: Csv, expected: list[float], tmp_path: Path) -> None:
    path = file(tmp_path, content.encode("latin-1"), "rows.txt")
    schema = Schema({"age": Real(0, 100), "town": Category("Oslo", "c,d", "é")})
    assert sums(Table(path, schema, csv=csv), "1", "age", "town IS NULL") == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"delimiter": ""},
        {"delimiter": "ab"},
        {"delimiter": "\n"},
        {"delimiter": '"'},
        {"delimiter": "\x10"},
        {"quote": ","},
        {"quote": None},
        {"decimal": ";"},
        {"encoding": "shift-jis"},
        {"encoding": "utf-7"},
        {"encoding": 8},
        {"header": ()},
        {"header": ("a", "a")},
        {"header": "a"},
    ],
    ids=str,
)
def test_a_way_of_writing_that_could_not_be_read_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadSchema, match="Got"):
        Csv(**wrong)  # type: ignore[arg-type]


def test_a_csv_statement_needs_a_csv_file(tmp_path: Path) -> None:
    for source in ("x.parquet", "x.duckdb#t", {"age": [1.0]}, "spark:x"):
        with pytest.raises(BadTable, match="csv says"):
            Table(source, SCHEMA, csv=Csv())
    with pytest.raises(BadTable, match="header = false") as error:
        Table(file(tmp_path, "987654,Oslo\n1,Oslo\n"), SCHEMA)
    assert "987654" not in str(error.value)


def test_an_appended_line_never_costs_a_question(tmp_path: Path) -> None:
    schema = Schema({"age": Real(0, 100)})
    for line in (b"\xff\xfe\n", b"9" * (1 << 25) + b"\n", b'"', b"1,2,3\n", b"\x00\n"):
        path = file(tmp_path, "age\n" + "50\n" * 100)
        table = Table(path, schema, neighbours="add-remove", population="p")
        curator = Curator(table, Budget(epsilon=10))
        with path.open("ab") as out:
            out.write(line)
        before = curator.ledger.spent()
        try:
            curator.ask("age", epsilon=1)
        except BadTable:
            assert curator.ledger.spent() == before
        with pytest.raises(BadTable, match="anew"):
            table.engine.check()
        if line == b'"':
            with pytest.raises(BadTable, match="line 102"):
                Table(path, schema)
        else:
            assert sums(Table(path, schema, neighbours="add-remove"), "1", "age IS NULL") == [101, 1]


def test_a_file_that_is_not_the_one_that_was_read_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "age\n50\n")
    engine = DuckDBEngine(path, Schema({"age": Real(0, 100)}))
    engine.check()
    stamp = path.stat()
    for change in (lambda: file(tmp_path, "age\n51\n", "new.csv").rename(path), path.unlink):
        change()
        with pytest.raises(BadTable, match="anew"):
            engine.check()
        assert sums(engine, "age") == [50]
        if path.exists():
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            with pytest.raises(BadTable, match="anew"):
                engine.check()


def test_without_a_header_no_record_says_how_many_fields_there_are(tmp_path: Path) -> None:
    schema = Schema({"age": Real(0, 100), "town": Category("Oslo")})
    for first in ("1,Oslo", "1", "1,Oslo,3"):
        table = Table(file(tmp_path, f"{first}\n2,Oslo\n"), schema, csv=Csv(header=False))
        assert sums(table, "1", "age >= 2", "age > 0 AND town = 'Oslo'")[:2] == [2, 1]


def test_no_record_takes_more_memory_than_stated(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("wb") as out:
        out.write(b'age,note\n1,"')
        for _ in range(64):
            out.write(b"x" * (1 << 20))
        out.write(b'"\n2,y\n')
    largest = 0
    records, found = csv_records.read_records(str(path), Csv(), 2), []
    for lines, _ in records:
        largest = max(largest, len(records.gi_frame.f_locals["records"]._begun))
        found.append(lines)
    assert b"".join(found) == b",\n2,y\n"
    assert largest <= csv_records.LONGEST


def test_units_of_a_csv_keep_their_ids_apart(tmp_path: Path) -> None:
    path = file(tmp_path, 'who,x\n"a\nb",1\n"a b",1\n"a\nb",1\n"a,b",1\na\x10Nb,1\n')
    engine = DuckDBEngine(path, Schema({"x": Real(0, 1)}), unit=Unit("who", 1), public_rows=False)
    assert sums(engine, "x") == [4]


def test_a_forked_worker_reads_the_same_copy(tmp_path: Path) -> None:
    engine = DuckDBEngine(file(tmp_path, "age\n5\n6\n"), Schema({"age": Real(0, 100)}))
    child = os.fork()
    if child == 0:
        os._exit(int(sums(engine, "age")[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11


OPENING = """
import sys, time
from dodona.engines.table import Table
from dodona.query.schema import Real, Schema
table = Table(sys.argv[1], Schema({"age": Real(0, 100)}))
print("open", flush=True)
time.sleep(60)
"""


def test_nothing_of_a_csv_stays_behind_after_kill_9(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = file(tmp_path, b"age\n" + b"50\n" * 400_000 + b"\xff\n")
    for wait in (0.0, None):  # while it is opened, and once it is open
        found: set[str] = set()
        environment = {**os.environ, "TMPDIR": str(scratch)}
        run = subprocess.Popen([sys.executable, "-c", OPENING, path], stdout=subprocess.PIPE, env=environment)
        try:
            assert run.stdout is not None
            if wait is None:
                assert run.stdout.readline() == b"open\n"
            else:
                end = time.monotonic() + 60
                while not _copies(run.pid, scratch) and time.monotonic() < end:
                    time.sleep(0.001)
                assert _copies(run.pid, scratch)
            run.send_signal(signal.SIGKILL)
            run.wait()
            found = {str(place) for place in scratch.rglob("*") if place.is_file() and place.stat().st_size}
        finally:
            run.kill()
            run.wait()
            assert run.stdout is not None
            run.stdout.close()
        assert not found


def _copies(process: int, folder: Path) -> list[str]:
    """The files without a name that a process holds under a folder."""
    held = []
    for number in Path(f"/proc/{process}/fd").iterdir():
        try:
            held.append(os.readlink(number))
        except OSError:
            continue
    return [place for place in held if place.startswith(str(folder)) and place.endswith("(deleted)")]


def test_a_draft_fixes_how_a_file_is_written(tmp_path: Path) -> None:
    path = file(tmp_path, "größe;ort\n1,5;Oslo\n2,25;'x\n".encode("cp1252"))
    text = Draft.of(str(path)).text()
    assert "1,5" not in text
    assert "Oslo" not in text
    for gap, fill in (('epsilon = "?"', "epsilon = 1"), ('delta = "?"', "delta = 0")):
        text = text.replace(gap, fill)
    text = text.replace('{ type = "?" }', '{ type = "real", low = 0, high = 9 }', 1)
    text = text.replace('{ type = "?" }', '{ type = "category", values = ["Oslo"] }', 1)
    (tmp_path / "survey.toml").write_text(text, encoding="utf-8")
    config = Config.read(tmp_path / "survey.toml")
    assert config.csv == Csv(delimiter=";", encoding="cp1252", decimal=",")
    assert sums(config.open_table(), "größe", "ort = 'Oslo'") == [3.75, 1]


def test_a_draft_of_a_file_without_a_header_shows_no_row(tmp_path: Path) -> None:
    text = Draft.of(str(file(tmp_path, "41|Ada\n42|Bob\n"))).text()
    assert "Ada" not in text
    assert 'header = ["column1", "column2"]' in text
    assert 'delimiter = "|"' in text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('delimiter = ";"', "path"),
        ('path = "a.csv"\nsign = ";"', "'sign'"),
        ('path = "a.csv"\ndelimiter = 3', "delimiter"),
        ("path = 3", "data must be text"),
    ],
)
def test_settings_of_the_data_are_checked(data: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "survey.toml"
    path.write_text(f'[budget]\nepsilon = 1\n[columns]\na = {{ type = "flag" }}\n[data]\n{data}\n')
    with pytest.raises(BadSchema, match=words):
        Config.read(path)
