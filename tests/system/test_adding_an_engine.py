"""An engine is added by its own folder: put into the package, tables, surveys and the command line open its sources by
name, under one budget, and what is none of its sources is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SURVEY = """
data = "visits*.npz"
name = "visits"
population = "patients of a ward"
neighbours = "add-remove"
unit = { column = "patient", max_rows = 3 }
[budget]
epsilon = 1000
[columns]
days = { type = "real", low = 0, high = 10 }
ill = { type = "flag" }
"""
OPENED = """
import json
from pathlib import Path
from typer.testing import CliRunner
import dodona as dd
from dodona.cli import app
from dodona.config import Config
from dodona.engines.homes import home_of

said = {}
schema = dd.Schema({"days": dd.Real(0, 10), "ill": dd.Flag()})
try:
    whole, one = (dd.Table(source, schema, name="visits") for source in ("visits*.npz", "visits0.npz"))
    said["engine"] = type(whole.engine).__module__
    said["totals"] = [dd.Exact(table).ask("days").total for table in (whole, one)]
    home = home_of("visits*.npz")
    other = home.identities("visits1.npz")
    said["same rows"] = [home.identities(file) >= other for file in ("visits*.npz", "visits0.npz")]
    local = dd.Local(whole, 1000)
    said["reports"] = local.ask("ill", share=1).total
except dd.errors.BadTable as error:
    said["refused"] = str(error)
else:
    said["bad"] = []
    for source in ("none.npz", "broken.npz"):
        try:
            dd.Table(source, schema)
        except dd.errors.BadTable as error:
            said["bad"].append(str(error))
    runner = CliRunner()
    made = runner.invoke(app, ["ledger", "new", "survey.toml"])
    asked = runner.invoke(app, ["ask", "survey.toml", "days", "--share", "1/2", "--json"])
    said["printed"] = made.output, asked.output
    said["asked"] = json.loads(asked.stdout)["total"] if asked.stdout.startswith("{") else None
    said["left"] = Config.read("survey.toml").open_curator("analyst").left
print(json.dumps(said))
"""


def told(source: Path, folder: Path) -> dict[str, Any]:
    """What a fresh process says, beside the data, that finds the package in ``source``."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", OPENED]
    run = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def write_visits(folder: Path) -> None:
    """Two files; each of ten patients comes six times, and stays one day."""
    for number in range(2):
        columns = {"patient": np.arange(30) % 10, "days": np.ones(30), "ill": np.arange(30) % 2 == 0}
        np.savez(folder / f"visits{number}.npz", **columns)
    (folder / "broken.npz").write_bytes(b"987654.25")
    (folder / "survey.toml").write_text(SURVEY)


def test_a_folder_put_into_the_package_opens_its_sources_by_name(tmp_path: Path) -> None:
    """One folder is added and no file edited."""
    shutil.copytree(ROOT / "src" / "dodona", tmp_path / "dodona", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "dodona" / "engines" / "archives").mkdir()
    skeleton = ROOT / "examples" / "skeletons" / "engine.py"
    shutil.copy(skeleton, tmp_path / "dodona" / "engines" / "archives" / "__init__.py")
    (tmp_path / "data").mkdir()
    write_visits(tmp_path / "data")
    found = told(tmp_path, tmp_path / "data")
    assert found["engine"] == "dodona.engines.archives"
    assert found["totals"] == [60, 30]
    assert found["same rows"] == [True, False]
    assert abs(found["reports"] - 30) < 25
    assert len(found["bad"]) == 2
    assert not any("98765" in said for said in found["bad"])
    assert found["asked"] is not None, found["printed"]
    assert abs(found["asked"] - 30) < 5  # three rows of each patient count
    assert abs(found["left"] - 500) < 1e-3


def test_without_its_folder_its_sources_are_refused(tmp_path: Path) -> None:
    write_visits(tmp_path)
    assert "a source is .parquet" in told(ROOT / "src", tmp_path)["refused"]
