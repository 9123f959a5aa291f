"""The public doors: every name is there, opens, and no other name is promised by accident."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dodona

NAMES = {
    "Answer", "Budget", "Category", "Collected", "Contributions", "Cost", "Csv", "Curator", "Dataset",
    "Date", "Exact", "Features", "Flag", "Gate", "Integer", "Local", "Nearest", "Oracle", "Outer",
    "Partition", "Price", "Public", "Query", "Real", "Remembering", "Rows", "Schema", "Selection", "Shuffled", "Stack",
    "Synopsis", "Table", "Text", "Timestamp", "Unit", "Value", "bucket", "connect", "linear", "load", "open",
    "parse", "stat",
}  # fmt: skip
SOURCE = Path(dodona.__file__).parent


def test_the_names_are_these():
    assert set(dodona.__all__) == NAMES
    assert all(getattr(dodona, name) is not None for name in NAMES)
    with pytest.raises(AttributeError):
        _ = dodona.nothing


def test_the_version_is_one_and_the_changelog_has_it():
    root = SOURCE.parents[1]
    assert tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"] == dodona.__version__
    headings = [line for line in (root / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert dodona.__version__ in headings[0]


@pytest.mark.parametrize("room", ["concepts", "learn", "release", "local"])
def test_rooms_open_all_their_names(room):
    module = importlib.import_module(f"dodona.{room}")
    names = [name for name in dir(module) if not name.startswith("_")]
    assert names
    assert all(getattr(module, name) is not None for name in names)
    with pytest.raises(AttributeError):
        _ = module.nothing


def test_importing_dodona_opens_no_heavy_room():
    heavy = ("numpy", "duckdb", "sqlglot", "sklearn", "scipy", "pandas", "pyarrow")
    code = f"import sys, dodona; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_every_mechanism_has_its_proof_note_beside_it():
    """Tools without a claim of their own are covered by the notes of the mechanisms that use them."""
    tools = {"__init__", "bits", "fixed", "symmetric", "mechanism"}
    files = {path.stem for path in (SOURCE / "mechanisms").glob("*.py")} - tools
    notes = {path.stem for path in (SOURCE / "mechanisms").glob("*.md")}
    assert {name for name in files - notes if name.split("_")[0] not in notes} == set()


def test_files_stay_small():
    long = {
        str(path.relative_to(SOURCE)): text.count("\n")
        for path in SOURCE.rglob("*.py")
        if (text := path.read_text()).count("\n") > 400
    }
    assert long == {}
