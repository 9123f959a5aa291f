"""``survey.toml``: what is read, what is refused, and that a draft says nothing about rows."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

import dodona as dd
from dodona.cli.draft import Draft
from dodona.config import Config, open_ledger
from dodona.errors import BadSchema, BadTable, LedgerCorrupt, LedgerError, LedgerMissing, Refused
from dodona.privacy.budget import Budget
from dodona.query.schema import Category, Integer
from dodona.sample import write_sample, write_schema

GOOD = """
data = "rows.csv"
[budget]
epsilon = 1
[columns]
age = { type = "integer", low = 0, high = 99 }
sex = { type = "category", values = ["?", "f", "m"], missing = "?" }
"""


def written(folder: Path, text: str, name: str = "survey.toml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_what_is_stated_is_read(tmp_path: Path) -> None:
    config = Config.read(written(tmp_path, GOOD))
    assert config.data == str(tmp_path / "rows.csv")
    assert config.ledger == tmp_path / "survey.ledger"
    assert (config.neighbours, config.rows, config.name) == ("replace", None, None)
    assert config.budget == Budget(epsilon=1)
    assert config.schema["age"] == Integer(0, 99)
    assert config.schema["sex"] == Category("?", "f", "m", missing="?")  # a value of its own, not a gap


def test_paths_are_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    written(tmp_path / "inner", 'ledger = "kept/a.ledger"\n' + GOOD.replace("rows.csv", "x.duckdb#people"))
    monkeypatch.chdir(tmp_path)
    config = Config.read("inner/survey.toml")
    assert config.data == str(tmp_path / "inner" / "x.duckdb#people")
    assert config.ledger == tmp_path / "inner" / "kept" / "a.ledger"


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("epsilon = 0.1", Budget(epsilon=Fraction(1, 10))),
        ('epsilon = "1/10"', Budget(epsilon=Fraction(1, 10))),
        ("epsilon = 1\ndelta = 1e-6", Budget(epsilon=1, delta=Fraction(1, 10**6))),
        ("rho = 0.02", Budget(rho=Fraction(1, 50))),
    ],
)
def test_budgets_are_exact(tmp_path: Path, budget: str, expected: Budget) -> None:
    assert Config.read(written(tmp_path, GOOD.replace("epsilon = 1", budget))).budget == expected


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('data = "rows.csv"', "", "must state data"),
        ('data = "rows.csv"', "data = 1", "data must be text"),
        ('data = "rows.csv"', 'data = ""', "data must be text"),
        ('data = "rows.csv"', 'data = "a"\nsede = 1', "'sede'"),
        ('data = "rows.csv"', 'data = "a"\nneighbours = "swap"', "neighbours"),
        ('data = "rows.csv"', 'data = "a"\nrows = 5', "add-remove"),
        ('data = "rows.csv"', 'data = "a"\nrows = 0\nneighbours = "add-remove"', "at least 1"),
        ('data = "rows.csv"', 'data = "a"\nrows = true\nneighbours = "add-remove"', "at least 1"),
        ("epsilon = 1", "", "exactly one"),
        ("epsilon = 1", "epsilon = 1\nunit = 3", "'unit'"),
        ("epsilon = 1", "epsilon = inf", "epsilon must be"),
        ("epsilon = 1", 'epsilon = "1e-400"', "epsilon must be"),
        ("epsilon = 1", "epsilon = 2026-01-01", "epsilon must be"),
        ("[budget]\nepsilon = 1", "budget = 1", "budget must be a table"),
        ("high = 99", "high = 99, colour = 1", "colour"),
        ('type = "integer"', 'type = "words"', "real, integer, date, timestamp, category, flag, text"),
        ("high = 99 }", "high = 99 }\nAGE = { type = 'flag' }", "upper and lower case"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(BadSchema, match=r"^survey\.toml: ") as caught:
        Config.read(written(tmp_path, GOOD.replace(old, new, 1)))
    assert says in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadSchema, match="must exist"):
        Config.read(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadSchema, match="UTF-8"):
        Config.read(tmp_path / "bytes.toml")
    with pytest.raises(BadSchema, match="readable"):
        Config.read(tmp_path)
    with (tmp_path / "huge.toml").open("wb") as file:
        file.truncate(17 * 2**20)
    with pytest.raises(BadSchema, match="MiB"):
        Config.read(tmp_path / "huge.toml")


def test_every_gap_is_named_at_once(tmp_path: Path) -> None:
    data = tmp_path / "people.parquet"
    duckdb.sql(
        "SELECT 7::INTEGER AS age, 'Ada' AS name, true AS ok, 1.5::DOUBLE AS x, 2.50::DECIMAL(9, 2) AS y, "
        "DATE '1999-12-31' AS born, TIME '12:00' AS noon, 'Ada'::ENUM('Ada', 'Bob') AS who, 3 AS \"odd name \"\"é\"\"\""
    ).write_parquet(str(data))
    text = Draft.of(str(data)).text()
    for value in ("Ada", "Bob", "1999", "2.5", "1.5", "= 7"):
        assert value not in text.partition("[columns]")[2]
    columns = tomllib.loads(text)["columns"]
    gaps = {"type": "real", "low": "?", "high": "?"}
    assert columns["age"] == {**gaps, "type": "integer"}
    assert columns["x"] == columns["y"] == gaps
    assert columns["name"] == columns["who"] == {"type": "category", "values": "?", "trim": True}
    assert columns["ok"] == {"type": "flag"}
    assert columns['odd name "é"'] == {**gaps, "type": "integer"}
    assert columns["born"] == {**gaps, "type": "date"}
    assert "# noon: left out, since TIME" in text
    with pytest.raises(BadSchema) as caught:
        Config.read(written(tmp_path, text))
    for place in ("budget.epsilon", "budget.delta", "age (low, high)", "name (values)", "y (low, high)"):
        assert place in str(caught.value)


def test_a_csv_has_no_types(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('age,"full, name"\n41,Ada\n')
    columns = tomllib.loads(Draft.of(str(tmp_path / "rows.csv")).text())["columns"]
    assert columns == {"age": {"type": "?"}, "full, name": {"type": "?"}}


def test_a_draft_of_a_database_table(tmp_path: Path) -> None:
    file = tmp_path / "x.duckdb"
    with duckdb.connect(str(file)) as db:
        db.execute("CREATE TABLE people(age INTEGER)")
    assert set(tomllib.loads(Draft.of(f"{file}#people").text())["columns"]) == {"age"}
    with pytest.raises(BadTable, match="people"):
        Draft.of(f"{file}#others").text()


def test_a_draft_proposes_required_where_the_file_says_not_null(tmp_path: Path) -> None:
    """Not for text, which may be no listed value, nor for floats, which may be NaN; and not where rows told it."""
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE t(a INTEGER NOT NULL, b INTEGER, c VARCHAR NOT NULL, d DOUBLE NOT NULL)")
    lines = [
        line
        for line in Draft.of(f"{tmp_path / 'd.duckdb'}#t").text().splitlines()
        if line[:4] in ("a = ", "b = ", "c = ", "d = ")
    ]
    assert [line[0] for line in lines if "required = true" in line] == ["a"]
    duckdb.sql("SELECT range AS a FROM range(5)").write_parquet(str(tmp_path / "d.parquet"))
    assert (
        "required = true }" not in Draft.of(str(tmp_path / "d.parquet")).text()
    )  # REQUIRED: DuckDB had looked at the rows


def test_a_draft_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadTable, match="must exist"):
        Draft.of(str(tmp_path / "none.parquet")).text()


@pytest.fixture
def survey(tmp_path: Path) -> Config:
    write_sample(tmp_path / "survey.parquet", 100)
    write_schema(tmp_path / "survey.toml", tmp_path / "survey.parquet")
    return Config.read(tmp_path / "survey.toml")


def test_the_ledger_opens_as_it_was_made(survey: Config) -> None:
    for opening in (lambda: open_ledger(survey.ledger), lambda: survey.open_curator("ann")):
        with pytest.raises(LedgerMissing, match="dodona ledger new"):
            opening()
    assert not list(survey.path.parent.glob("*.ledger*"))
    curator = survey.open_curator("ann", create=True)
    curator.ask("age", share="1/10")
    with open_ledger(survey.ledger) as ledger:
        assert ledger.genesis == curator.ledger.genesis
        assert ledger.verify().entries == 2


def test_a_price_makes_no_ledger(survey: Config) -> None:
    assert survey.open_curator("ann", asking=False).price("age", share="1/10").affordable
    assert not survey.ledger.exists()


@pytest.mark.parametrize("content", [b"x" * 2000, b"SQLite format 3\0" + bytes(2032)])
def test_what_is_no_ledger(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.ledger").write_bytes(content)
    with pytest.raises(LedgerCorrupt):
        open_ledger(tmp_path / "a.ledger")


def test_another_database_is_no_ledger(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "a.ledger") as db:
        db.execute("CREATE TABLE genesis(statement TEXT)")
        db.execute("INSERT INTO genesis VALUES('{}')")
    db.close()
    with pytest.raises(LedgerCorrupt):
        open_ledger(tmp_path / "a.ledger")


def test_an_empty_file_is_no_ledger_yet(tmp_path: Path) -> None:
    (tmp_path / "a.ledger").touch()
    with pytest.raises(LedgerMissing):
        open_ledger(tmp_path / "a.ledger")


def test_a_stated_population_survives_a_move(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows.csv").write_text("age,sex\n1,f\n2,m\n", encoding="utf-8")
        written(tmp_path / folder, 'population = "people"\n' + GOOD)
    Config.read(tmp_path / "here" / "survey.toml").open_curator("ann", create=True).ask("age > 1", epsilon="1/2")
    (tmp_path / "here" / "survey.ledger").rename(tmp_path / "there" / "survey.ledger")
    (tmp_path / "here" / "survey.ledger.lock").rename(tmp_path / "there" / "survey.ledger.lock")
    assert Config.read(tmp_path / "there" / "survey.toml").open_curator("ann").left == 0.5
    moved = Config.read(written(tmp_path / "there", GOOD))
    with pytest.raises(Refused):
        moved.open_curator("ann")


def test_a_unit_in_the_file(tmp_path):
    from dodona.config import Config
    from dodona.errors import BadSchema

    file = tmp_path / "visits.toml"
    head, tail = (
        'data = "v.parquet"\nneighbours = "add-remove"\n',
        '\n[budget]\nepsilon = 1\n[columns]\nw = {{ type = "flag" }}\n',
    )
    lines = head + "{unit}" + tail
    file.write_text(lines.format(unit='unit = { column = "p", max_rows = 4, group = ["w"], max_rows_per_group = 2 }'))
    unit = Config.read(file).unit
    assert unit is not None
    assert (unit.column, unit.max_rows, unit.group, unit.max_rows_per_group) == ("p", 4, ("w",), 2)
    file.write_text(lines.format(unit='unit = "p"'))
    assert str(Config.read(file).unit) == "one p"
    for bad in ("unit = 4", 'unit = { column = "w", max_rows = 1 }', 'unit = { column = "p", max_rows = 0 }'):
        file.write_text(lines.format(unit=bad))
        with pytest.raises(BadSchema, match="unit"):
            Config.read(file)


def test_python_opens_what_the_command_line_asks(tmp_path: Path) -> None:
    """``dd.open``: the same ledger, whoever asks; a missing one is refused unless it is to be made."""
    write_sample(tmp_path / "survey.parquet", 300)
    write_schema(tmp_path / "survey.toml", tmp_path / "survey.parquet")
    with pytest.raises(LedgerError):
        dd.open(tmp_path / "survey.toml")
    made = dd.open(tmp_path / "survey.toml", create=True, analyst="ann")
    assert isinstance(made, dd.Curator)
    spent = made.ask("smoker", share="0.1").cost.share
    assert [entry.analyst for entry in made.ledger.entries(1, 1)] == ["ann"]
    again = dd.open(tmp_path / "survey.toml")
    assert again.ledger.spent() == made.ledger.spent() > 0
    assert spent == pytest.approx(0.1)


def test_python_opens_several_tables_as_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("patient,zip\n1,a\n1,b\n2,a\n")
    (tmp_path / "patients.csv").write_text("patient,age\n1,40\n2,50\n")
    (tmp_path / "zips.csv").write_text("zip,city\na,Oslo\nb,Bergen\n")
    (tmp_path / "people.toml").write_text(
        'neighbours = "add-remove"\nunit = "patient"\nbudget.epsilon = 1\n'
        '[tables.visits]\ndata = "visits.csv"\nunit = { column = "patient", max_rows = 2 }\n'
        'columns.zip = { type = "category", values = ["a", "b"] }\n'
        '[tables.patients]\ndata = "patients.csv"\nunit = { column = "patient", max_rows = 1 }\n'
        'columns.age = { type = "integer", low = 0, high = 99 }\n'
        '[tables.zips]\npublic = true\ndata = "zips.csv"\n'
    )
    opened = dd.open(tmp_path / "people.toml", create=True)
    assert isinstance(opened, dd.Dataset)
    assert [*opened] == ["visits", "patients"]
    rows = opened.sql("SELECT city, COUNT(*) AS n FROM visits JOIN zips USING (zip) GROUP BY city", share="0.1")
    assert "Oslo" in rows["city"]
    opened["patients"].ask("age", share="0.1")
    assert opened.ledger.spent() == pytest.approx(opened.ledger.genesis.budget.capacity / 5, rel=1e-6)
    assert "patients" in repr(opened)
