"""A mechanism is added by its own file: dropped into the package, it is drawn by curators, audited and checked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ASKED = """
import json
from fractions import Fraction
import numpy as np
import dodona as dd
from dodona.audit.suite import every_check
from dodona.mechanisms.mechanism import noise_families
from dodona.query.sensitivity import Norms
from dodona.testing import SeededBits, seeded_curator
from dodona.testing.mechanisms import check_mechanism

table = dd.Table({"x": np.arange(50) % 2 == 0}, dd.Schema({"x": dd.Flag()}))
curator = seeded_curator(table, dd.Budget(epsilon=100), 0)
answers = [curator.ask("x", epsilon=1), curator.ask("x", epsilon=1), curator.ask("x", tolerance=Fraction(1, 5))]
gaussian = seeded_curator(table, dd.Budget(rho=1), 0).ask("x", share=Fraction(1, 2))
for family in noise_families("epsilon"):
    check_mechanism(family.for_cost(Norms(Fraction(1), Fraction(1), Fraction(1)), Fraction(1)), bits=SeededBits(1))
names = ("two-sided geometric", "sampler: two-sided geometric", "Curator.ask, Laplace (replace)",
         "noise of Curator.ask, Laplace (replace)")
lines = {check.name: [audit.holds for audit in check.work()] for check in every_check() if check.name in names}
print(json.dumps({
    "drawn": [each.cost.mechanism for each in (*answers, gaussian)],
    "wrong": [abs(each.total - 25) > 20 for each in answers],
    "margin": answers[2].margin,
    "families": [family.name for family in noise_families("epsilon")],
    "lines": lines,
}))
"""


def told(source: Path) -> dict[str, Any]:
    """What a fresh process says that finds the package in ``source``."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    run = subprocess.run([sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_a_file_dropped_into_the_package_is_drawn_audited_and_checked(tmp_path: Path) -> None:
    """One file is added and none is edited."""
    shutil.copytree(ROOT / "src" / "dodona", tmp_path / "dodona", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "examples" / "skeletons" / "noise.py", tmp_path / "dodona" / "mechanisms" / "geometric.py")
    found = told(tmp_path)
    assert found["families"] == ["discrete Laplace", "two-sided geometric"]
    # Less error is predicted of it; at a tolerance the other is no dearer, and a budget in rho buys neither.
    assert found["drawn"] == ["two-sided geometric"] * 2 + ["discrete Laplace", "discrete Gaussian"]
    assert not any(found["wrong"])
    assert 0 < found["margin"] <= 10
    assert len(found["lines"]) == 4
    for line, held in found["lines"].items():
        assert held, line
        assert all(held), line


def test_without_it_nothing_of_it_is_left() -> None:
    found = told(ROOT / "src")
    assert found["drawn"] == ["discrete Laplace"] * 3 + ["discrete Gaussian"]
    assert set(found["lines"]) == {"Curator.ask, Laplace (replace)", "noise of Curator.ask, Laplace (replace)"}
