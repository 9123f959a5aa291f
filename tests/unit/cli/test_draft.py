"""A draft of a file that nobody prepared: what it says, what it asks, and what it must not say."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dodona as dd
from dodona.cli import app
from dodona.cli.draft import Draft
from dodona.config import Config
from dodona.errors import Refused


@pytest.fixture
def customers(tmp_path: Path) -> Path:
    """With semicolons, a decimal comma, dirt, dates by day, quoted line breaks, in cp1252."""
    draw = random.Random(3)
    rows = ["Kunde;Alter;Betrag;Datum;Stadt;Notiz;Kündigung;Leer"]
    for i in range(400):
        age = draw.choice(["", "n/a"]) if i % 25 == 0 else str(draw.randint(18, 90))
        city = draw.choice(["Köln", "Bonn ", "bonn", "Aachen"])
        day = f"{draw.randint(1, 28):02}.{draw.randint(1, 12):02}.2025"
        rows.append(f'{i:05};{age};{i % 97},{i % 10}5;{day};{city};"Text; mit\n{i}";{i % 2};')
    file = tmp_path / "Kunden 2025.csv"
    file.write_text("\n".join(rows) + "\n", encoding="cp1252", newline="")
    return file


def test_a_look_that_was_permitted_finds_types_forms_and_lists(customers: Path) -> None:
    text = Draft.of(str(customers), look=True).text()
    drafted = tomllib.loads(text)
    assert drafted["columns"] == {
        "Kunde": {"type": "text", "max_length": 80},
        "Alter": {"type": "integer", "low": "?", "high": "?"},
        "Betrag": {"type": "real", "low": "?", "high": "?"},
        "Datum": {"type": "date", "low": "?", "high": "?", "format": "%d.%m.%Y"},
        "Stadt": {"type": "category", "values": ["Aachen", "Bonn", "Köln"], "trim": True, "fold": "case"},
        "Notiz": {"type": "text", "max_length": 80},
        "Kündigung": {"type": "flag"},
        "Leer": {"type": "text", "max_length": 80},
    }
    assert drafted["data"]["delimiter"] == ";"
    assert drafted["data"]["decimal"] == ","
    assert drafted["name"] == drafted["population"] == "kunden_2025"
    (line,) = [line for line in text.splitlines() if line.startswith("Stadt")]
    assert "found in the first 400 records" in line


def test_without_permission_no_value_and_no_type_is_told(customers: Path) -> None:
    drafted = tomllib.loads(Draft.of(str(customers)).text())
    assert all(column == {"type": "?"} for column in drafted["columns"].values())


ANSWERS = ["y", "", "1", "1e-6", "", "18", "99", "0", "100", "2025-01-01", "soon", "2025-12-31", "y", "", ""]


def test_new_asks_writes_checks_and_makes_the_ledger(customers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(customers.parent)
    done = CliRunner().invoke(app, ["new", customers.name], input="\n".join(ANSWERS) + "\n")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "it fits Kunden 2025.csv: 400 rows" in done.output
    assert "survey.ledger was made" in done.output
    columns = Config.read("survey.toml").schema.describe()
    assert list(columns) == ["Alter", "Betrag", "Datum", "Stadt", "Kündigung"]
    assert (columns["Alter"]["low"], columns["Alter"]["high"]) == (18, 99)
    by_month = dd.open("survey.toml").sql(
        "SELECT MONTH(Datum) AS m, COUNT(*) AS n FROM kunden_2025 GROUP BY MONTH(Datum)", share=0.5
    )
    assert len(by_month) == 13  # and those without a date


def test_a_moved_folder_opens_its_ledger(customers: Path, tmp_path: Path) -> None:
    place = customers.parent / "here"
    place.mkdir()
    (place / "k.csv").write_bytes(customers.read_bytes())
    arguments = ["new", str(place / "k.csv"), "-o", str(place / "survey.toml")]
    assert CliRunner().invoke(app, arguments, input="\n".join(ANSWERS) + "\n").exit_code == 0
    dd.open(place / "survey.toml").ask("Alter > 40", share=0.25)
    moved = place.rename(tmp_path / "there")
    assert float(dd.open(moved / "survey.toml").ledger.spent()) > 0


def test_new_with_a_unit_protects_whole_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text("patient,cost\n" + "".join(f"p{i % 40},{i}\n" for i in range(200)))
    answers = ["y", "nobody", "patient", "4", "1", "0", "0", "200"]
    done = CliRunner().invoke(app, ["new", "visits.csv"], input="\n".join(answers) + "\n")
    assert done.exit_code == 0, (done.output, done.exception)
    config = Config.read("survey.toml")
    assert config.neighbours == "add-remove"
    assert config.unit is not None
    assert config.unit.column == "patient"
    assert "It must be one of: patient, cost" in done.output


def test_new_never_overwrites_and_never_writes_an_empty_survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x\n1\n2\n")
    assert isinstance(CliRunner().invoke(app, ["new", "a.csv"], input="y\n\n\n\n\n").exception, Refused)
    assert not Path("survey.toml").exists()
    Path("survey.toml").write_text("mine")
    assert isinstance(CliRunner().invoke(app, ["new", "a.csv"]).exception, Refused)
    assert Path("survey.toml").read_text() == "mine"
