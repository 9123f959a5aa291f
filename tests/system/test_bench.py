"""The benchmarks stay alive, their rows are rows, and every figure that was asked for is answered or listed."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    f for f in (ROOT / "benchmarks").glob("*.py") if not f.stem.startswith("_") and "def main(" in f.read_text()
)


def test_every_benchmark_has_a_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    ways = importlib.import_module("benchmarks._quick").WAYS
    for file in FILES:
        assert file.stem in ways or "def run(quick" in file.read_text(), file.name
    assert set(ways) <= {file.stem for file in FILES}


@pytest.mark.slow
@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_it_runs_quickly(name: str, tmp_path: Path) -> None:
    env = {**os.environ, "DODONA_RESULTS": str(tmp_path)}
    command = [sys.executable, "-m", "benchmarks", "--quick", name]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert result["name"] == name
    assert result["quick"] is True
    assert result["rows"] or result["text"].strip()


def test_an_unknown_benchmark_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "startup" in done.stderr


RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
ASKED = tomllib.loads((ROOT / "benchmarks" / "figures.toml").read_text(encoding="utf-8"))


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks._rows")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    return importlib.import_module("benchmark_page")


@pytest.mark.parametrize("file", RESULTS, ids=lambda f: f.stem)
def test_kept_results_are_of_a_full_run_and_their_rows_are_rows(file: Path, rows: ModuleType) -> None:
    result = json.loads(file.read_text(encoding="utf-8"))
    assert result["quick"] is False
    assert {"name", "about", "when", "machine", "seconds", "rows", "text", "plots"} <= set(result)
    assert rows.faults(result["rows"]) == []
    assert all(
        row.get("met") == judged.get("met")
        for row, judged in zip(result["rows"], rows.judged(result["rows"]), strict=True)
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"ours": 1.0}, "must have a case"),
        ({"case": "a"}, "must have 'ours'"),
        ({"case": "a", "ours": "fast"}, "must be a finite number"),
        ({"case": "a", "ours": 1.0, "peer": float("nan")}, "'peer' must be a finite number"),
        ({"case": "a", "ours": 1.0, "target": True}, "'target' must be a finite number"),
        ({"case": "a", "ours": 1.0, "better": "more"}, "'lower' or 'higher'"),
    ],
)
def test_a_wrong_row_is_named(rows: ModuleType, row: dict[str, Any], words: str) -> None:
    (fault,) = rows.faults([row])
    assert words in fault
    assert rows.faults([{"case": "a", "ours": 1}, {"case": "a", "ours": 2}]) == ["two rows have the case 'a'"]


def test_a_target_is_met_from_its_better_side(rows: ModuleType) -> None:
    def met(ours: float | None, target: float, better: str) -> bool | None:
        (row,) = rows.judged([{"case": "a", "ours": ours, "target": target, "better": better}])
        return row.get("met")  # type: ignore[no-any-return]

    assert (met(1, 2, "lower"), met(3, 2, "lower"), met(2, 2, "lower"), met(0, 0, "lower")) == (True, False, True, True)
    assert (met(3, 2, "higher"), met(1, 2, "higher"), met(0, 2, "higher")) == (True, False, False)
    assert met(None, 2, "lower") is None
    paired = {"case": "a", "ours": 1.31, "target": 1.3, "met": True}
    assert rows.judged([paired]) == [paired]


def test_the_plot_is_drawn_from_rows_alone(rows: ModuleType, tmp_path: Path) -> None:
    shown = [{"case": "a", "ours": 1.0, "target": 2.0, "peer": 4.0}, {"case": "b", "ours": 3.0, "peer": 2.0}]
    assert rows.draw({"name": "tried", "rows": shown}, tmp_path) == "bench-tried.png"
    assert (tmp_path / "bench-tried.png").read_bytes().startswith(b"\x89PNG")
    assert rows.draw({"name": "tried", "rows": [{"case": "a", "ours": 1.0}]}, tmp_path) is None


@pytest.mark.parametrize("entry", ASKED["figure"], ids=lambda entry: entry["asked"][:60])
def test_a_figure_has_rows_a_test_or_a_reason(entry: dict[str, Any], page: ModuleType) -> None:
    """Its rows are on the page, its test exists, or the page lists it as not measured and says why."""
    figure = page.Figure(**{**entry, "tests": tuple(entry.get("tests", ()))})
    assert figure.topic in ASKED["topics"]
    assert bool(figure.tests) != bool(figure.benchmark and figure.case)
    for test in figure.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, test
    if figure.benchmark:
        assert (ROOT / "benchmarks" / f"{figure.benchmark}.py").exists()
        assert figure.rows(page.load_results()) or figure.missing, (
            f"no row of benchmarks/results/{figure.benchmark}.json has a case that matches {figure.case!r}: mend the "
            f"pattern in benchmarks/figures.toml, or say there under 'missing' why it is not measured"
        )


def test_every_figure_is_on_the_page(page: ModuleType) -> None:
    text = page.page()
    for entry in ASKED["figure"]:
        assert entry["asked"].replace("|", "\\|") in text
    assert {entry["topic"] for entry in ASKED["figure"]} == set(ASKED["topics"])


def test_every_hostile_case_has_a_test() -> None:
    """V1 to V64 of the list of attacks, each in the name of some test."""
    named: set[int] = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"def test_(\w+)", file.read_text(encoding="utf-8")):
            named |= {int(number) for number in re.findall(r"(?:^|_)v(\d+)(?=_|$)", name)}
    assert set(range(1, 65)) <= named
