"""A release is added by its own file: dropped into the package, it is planned, priced, made over HTTP, listed for the
page, saved, loaded, planned on the command line, and ready for the law that margins hold.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVED = """
import json, sys, time
from pathlib import Path
import httpx
import numpy as np
from typer.testing import CliRunner
import dodona as dd
from dodona.cli import app
from dodona.release.registry import registered_releases
from dodona.testing import seeded_curator
from tests.support.servers import add_key, in_thread, write_survey

folder = Path(sys.argv[1])
release = registered_releases()["tally"]
(case,) = release.cases()
columns = dict(case.draw(2000, np.random.default_rng(0)))
survey = write_survey(folder, columns, case.schema, {"epsilon": 4})
key = add_key(folder, "boss")
said = {}

# In the library: planned, made, saved.
table = dd.Table(columns, case.schema, name="people")
curator = seeded_curator(table, dd.Budget(epsilon=4), 0)
plan = release.plan(curator, **case.settings, share="1/2")
said["plan"] = [(outlook.method, outlook.error, float(outlook.cost.epsilon)) for outlook in plan]
said["left after planning"] = curator.left
made = release.make(curator, **case.settings, share="1/2")
made.save(folder / "library.synopsis")
said["answers"] = [made.ask(question).total for question in (*case.inside, *case.edge)]
exact = dd.Exact(table)
said["within"] = [bool(abs(made.ask(q).total - exact.ask(q).total) <= made.ask(q).margin) for q in case.inside]
said["refused"] = []
for question in case.outside:
    try:
        made.ask(question)
    except dd.errors.Unsupported as error:
        said["refused"].append(str(error))

# On the command line: planned.
shown = CliRunner().invoke(app, ["plan", "release", str(survey), "tally", "--set", "column=city", "--share", "1/2"])
said["cli"] = shown.output

# Over HTTP: listed with what a form asks for, priced, made, asked for nothing, downloaded.
with in_thread(folder, [survey], tick=0.001, rate=10_000) as url:
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"{url}/v1/datasets/people", headers=headers, timeout=30) as client:
        said["kinds"] = [kind for kind in client.get("/releases/kinds").json()["items"] if kind["name"] == "tally"]
        body = {"kind": "tally", "settings": {"column": "city"}, "effort": {"share": "1/2"}}
        said["price"] = client.post("/releases/price", json=body).json()
        started = client.post("/releases", json=body).json()
        for _ in range(600):
            state = client.get(f"/releases/{started['id']}").json()
            if state["state"] != "running":
                break
            time.sleep(0.05)
        said["state"] = state["state"]
        free = client.post(f"/synopses/{state['synopsis']}/ask", json={"question": "city = 'Oslo'"})
        said["free"] = free.json()["total"]
        (folder / "server.synopsis").write_bytes(client.get(f"/synopses/{state['synopsis']}").content)
print(json.dumps(said))
"""
LOADED = """
import json, sys
import dodona as dd
found = [dd.load(file) for file in sys.argv[1:]]
print(json.dumps({"kinds": [one.body.kind for one in found], "modules": [type(one.body).__module__ for one in found],
                  "answers": [found[0].ask(q).total for q in ("city = 'Oslo'", "city IN ('Oslo', 'Narvik')")],
                  "sql": found[1].sql("SELECT city, COUNT(*) AS n FROM people GROUP BY city").to_dicts()[0]["city"]}))
"""


def told(source: Path, script: str, *words: str) -> dict[str, Any]:
    """What a fresh process says that finds the package in ``source``."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", script, *words]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=source)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with one file more: everything else is a link to what is there, so nothing is edited."""
    folder, source = tmp_path_factory.mktemp("package"), ROOT / "src" / "dodona"
    (folder / "dodona" / "release").mkdir(parents=True)
    for file in (*source.iterdir(), *(source / "release").iterdir()):
        if file.name != "__pycache__" and file != source / "release":
            (folder / "dodona" / file.relative_to(source)).symlink_to(file)
    shutil.copy(ROOT / "examples" / "skeletons" / "release.py", folder / "dodona" / "release" / "tally.py")
    return folder


@pytest.fixture(scope="module")
def said(package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("house")
    return {**told(package, SERVED, str(folder)), "folder": str(folder)}


def test_it_is_planned_and_made_and_refuses_what_is_outside(said: dict[str, Any]) -> None:
    ((method, error, epsilon),) = said["plan"]
    assert (method, epsilon, said["left after planning"]) == ("counts", 2, 4)
    assert 0 < error < 100
    assert said["within"] == [True, True]
    assert len(said["refused"]) == 2
    assert all("city" in words for words in said["refused"])


def test_the_command_line_plans_it(said: dict[str, Any]) -> None:
    assert "FEASIBLE" in said["cli"]
    assert "the values of city" in said["cli"]


def test_the_page_and_the_server_offer_it(said: dict[str, Any]) -> None:
    (kind,) = said["kinds"]
    assert kind["title"].startswith("A tally")
    (column,) = kind["settings"]
    assert (column["kind"], column["types"], column["required"]) == ("column", ["category", "flag"], True)
    price = said["price"]
    assert price["cost"]["amount"] == 2
    (promise,) = price["methods"]
    assert (promise["method"], promise["words"]) == ("counts", "a count, 95 times of 100")
    assert promise["error"] == pytest.approx(said["plan"][0][1])
    assert said["state"] == "done"
    assert abs(said["free"] - 1200) < 150


def test_a_fresh_process_loads_what_the_library_and_the_server_saved(package: Path, said: dict[str, Any]) -> None:
    files = [str(Path(said["folder"]) / f"{name}.synopsis") for name in ("library", "server")]
    found = told(package, LOADED, *files)
    assert found["kinds"] == ["Tally", "Tally"]
    assert found["modules"] == ["dodona.release.tally"] * 2
    assert found["answers"] == pytest.approx(said["answers"][:2])
    assert found["sql"] in ("Oslo", "Bergen", "Narvik")


def test_without_its_file_nothing_of_it_is_left(said: dict[str, Any]) -> None:
    """A file of a kind that nobody states is refused; it names no module that would be imported."""
    ask = f"""
import json
import dodona as dd
from dodona.release.registry import registered_releases
try:
    dd.load({str(Path(said["folder"]) / "library.synopsis")!r})
    refused = False
except dd.errors.BadTable:
    refused = True
print(json.dumps({{"refused": refused, "known": "tally" in registered_releases()}}))
"""
    assert told(ROOT / "src", ask) == {"refused": True, "known": False}
