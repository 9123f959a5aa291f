"""The benchmarks stay alive: each has a quick way, and the quick way runs."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks" / "results").glob("*.json")), ids=lambda f: f.stem)
def test_kept_results_are_of_a_full_run(file: Path) -> None:
    result = json.loads(file.read_text(encoding="utf-8"))
    assert result["quick"] is False
    assert {"name", "about", "when", "machine", "seconds", "rows", "text", "plots"} <= set(result)
