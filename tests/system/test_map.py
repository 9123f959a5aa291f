"""The map is true: every name on it leads somewhere, none is listed twice, and no algorithm of ours is missing."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dodona
import dodona.audit
import dodona.bounds
import dodona.learn
import dodona.mechanisms
import dodona.release
from tests.support.touched import is_run

ROOT = Path(__file__).resolve().parents[2]
MAP = tomllib.loads((ROOT / "docs" / "map.toml").read_text(encoding="utf-8"))
STATEMENTS = [(paper, entry) for paper, entries in MAP["statements"].items() for entry in entries]
ERRATA = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
FIELDS = {"name", "state", "what", "code", "tests", "errata", "not_code"}
STATES = {"as printed", "mended", "beyond", "no code"}
RECORD = json.loads((ROOT / "docs" / "map_run.json").read_text(encoding="utf-8"))


def resolve(dotted: str) -> Any:
    """The object a dotted name inside ``dodona`` stands for; attributes of a release module win over its room's."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["dodona", *parts[:length]]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(dotted)


def named_tests(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize(("paper", "entry"), STATEMENTS, ids=[f"{p} {e['name']}" for p, e in STATEMENTS])
def test_every_statement_leads_somewhere(paper: str, entry: dict[str, Any]) -> None:
    assert set(entry) <= FIELDS
    assert entry["what"]
    assert bool(entry.get("code")) != bool(entry.get("not_code")), "either code, or why there is none"
    assert entry.get("tests") or "not_code" in entry, "what is code is tested"
    for dotted in entry.get("code", ()):
        assert resolve(dotted) is not None
    for test in entry.get("tests", ()):
        file, _, name = test.partition("::")
        assert name in named_tests(ROOT / "tests" / file), test
    for number in entry.get("errata", ()):
        assert f'id="e{number}"' in ERRATA
    state = entry.get("state", "beyond" if paper == "beyond" else None)
    assert state in STATES
    assert (state == "no code") == ("not_code" in entry)
    assert (state == "beyond") == (paper == "beyond")
    assert state != "as printed" or not entry.get("errata"), "what has an erratum is not as printed"


def test_every_row_has_a_test_that_runs_the_code_it_names() -> None:
    """As docs/tools/map_run.py saw it: a test on a copy of a formula is not a test of ours."""
    new = {test for _, entry in STATEMENTS for test in entry.get("tests", ())} - set(RECORD)
    spec = importlib.util.spec_from_file_location("map_run", ROOT / "docs" / "tools" / "map_run.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    record = RECORD | (tool.run(sorted(new)) if new else {})  # `python docs/tools/map_run.py --new` keeps what they ran
    for paper, entry in STATEMENTS:
        ran = {dotted for test in entry.get("tests", ()) for dotted in record[test]["ran"]}
        assert set(entry.get("code", ())) <= ran, (paper, entry["name"], set(entry["code"]) - ran)


def test_what_the_record_says_is_what_runs(tmp_path: Path) -> None:
    """A few of them again; a change that a record has outlived shows where the map is made anew."""
    chosen = ["unit/bounds/test_sulq.py::test_theorem_1_mended", "unit/bounds/test_ghru.py::test_the_barrier"]
    told = tmp_path / "told"
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "tests.support.touched"]
    command += [f"tests/{test}" for test in chosen]
    environment = {**os.environ, "TOUCHED": str(told)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout
    ran: dict[str, set[str]] = {}
    for line in map(json.loads, told.read_text(encoding="utf-8").splitlines()):
        ran.setdefault(line["test"].split("[")[0].removeprefix("tests/"), set()).update(line["ran"])
    for test in chosen:
        for dotted in RECORD[test]["ran"]:
            assert is_run(resolve(dotted), ran[test]), (test, dotted)
    assert not is_run(resolve("bounds.sulq.kmeans_error"), ran[chosen[0]])


def test_nothing_in_bounds_is_called_by_tests_alone() -> None:
    """Every public planner is reached from an algorithm, a release, the command line or another that is."""
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "src" / "dodona").rglob("*.py")}
    bounds = {
        file.stem: tree for file, tree in trees.items() if file.parent.name == "bounds" and file.stem != "__init__"
    }
    calls: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for stem, tree in bounds.items():
        brought = dict(imported(tree))
        for node in tree.body:
            used = {word.id for word in ast.walk(node) if isinstance(word, ast.Name)}
            for name in names_of(node):
                calls[stem, name] = {brought.get(word, (stem, word)) for word in used}
    outside = [tree for file, tree in trees.items() if file.parent.name != "bounds"]
    waiting = {target for tree in outside for _, target in imported(tree)}
    reached: set[tuple[str, str]] = set()
    while waiting:
        one = waiting.pop()
        if one not in reached and one in calls:
            reached.add(one)
            waiting |= calls[one]
    public = {(stem, name) for stem, name in calls if not name.startswith("_") and not name.isupper()}
    assert public - reached == set()
    assert ("sulq", "perceptron_rounds") in reached


def names_of(node: ast.stmt) -> list[str]:
    """What a statement at the top of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def imported(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """(name here, (module of bounds, name there)), also of what is read off a module of bounds."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "dodona.bounds":
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dodona.bounds."):
            stem = str(node.module).rpartition(".")[2]
            for alias in node.names:
                yield alias.asname or alias.name, (stem, alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield node.attr, (modules[node.value.id], node.attr)


def test_a_dead_name_is_noticed() -> None:
    with pytest.raises(AttributeError):
        resolve("bounds.sulq.nothing")
    with pytest.raises((ModuleNotFoundError, AttributeError)):
        resolve("nowhere.at.all")


def test_no_statement_is_listed_twice() -> None:
    names = [(paper, entry["name"]) for paper, entry in STATEMENTS]
    assert len(names) == len(set(names))
    assert set(MAP["papers"]) == set(MAP["statements"])


COUNTS = {
    "SuLQ": {"Definition": 1, "Theorem": 5, "Lemma": 2},
    "BLR": {"Definition": 12, "Theorem": 10, "Lemma": 2, "Corollary": 1, "Claim": 1, "Observation": 1, "Property": 2},
    "GHRU": {"Definition": 8, "Theorem": 10, "Lemma": 9, "Corollary": 7, "Claim": 1, "Fact": 4, "Proposition": 1},
    "KLNRS": {"Definition": 14, "Theorem": 8, "Lemma": 8, "Corollary": 3, "Claim": 4, "Proposition": 1},
    "AS": {"Definition": 6, "Theorem": 9, "Lemma": 11, "Corollary": 1},
}
"""How many of each kind the papers number; restated theorems count once."""


@pytest.mark.parametrize("paper", COUNTS)
def test_every_numbered_statement_is_there(paper: str) -> None:
    names = [entry["name"] for key, entry in STATEMENTS if key == paper]
    for kind, count in COUNTS[paper].items():
        numbered = [name for name in names if re.fullmatch(rf"{kind} [A-C]?\.?\d+(\.\d+)?", name)]
        assert len(numbered) == count, (kind, numbered)


def test_errata_are_numbered_without_gaps_and_all_lead_from_the_map() -> None:
    numbers = [int(n) for n in re.findall(r'id="e(\d+)"', ERRATA)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    mapped = {number for _, entry in STATEMENTS for number in entry.get("errata", ())}
    assert mapped == set(numbers)


def test_every_erratum_cited_in_code_is_listed() -> None:
    listed = {int(n) for n in re.findall(r'id="e(\d+)"', ERRATA)}
    for file in (ROOT / "src").rglob("*.*"):
        if file.suffix in {".py", ".md"}:
            cited = re.findall(r"ERRATA (\d+)", file.read_text(encoding="utf-8"))
            assert {int(n) for n in cited} <= listed, file


def own(module: ModuleType) -> Iterator[str]:
    """Public functions and classes that a module defines itself, as dotted names inside ``dodona``."""
    for name, found in vars(module).items():
        defined = inspect.isfunction(found) or inspect.isclass(found)
        if defined and not name.startswith("_") and found.__module__ == module.__name__:
            yield f"{module.__name__}.{name}".removeprefix("dodona.")


def modules_of(room: ModuleType) -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        yield importlib.import_module(info.name)


def algorithms() -> set[str]:
    """Learners and releases by their public names, planners, and mechanisms: what has a privacy cost of its own."""
    learners = {f"{home.removeprefix('dodona.')}.{name}" for name, home in dodona.learn._homes.items()}
    releases = {
        f"{home.removeprefix('dodona.')}.{name}" for name, home in dodona.release._homes.items() if name != "load"
    }
    planners = {name for module in modules_of(dodona.bounds) for name in own(module)}
    mechanisms = {
        name
        for module in modules_of(dodona.mechanisms)
        for name in own(module)
        if inspect.isclass(kind := resolve(name)) and hasattr(kind, "cost") and not inspect.isabstract(kind)
    }
    return learners | releases | planners | mechanisms


SHARED = {"bounds.Outcome", "bounds.Outlook", "bounds.Outlooks", "bounds.Part"}
"""What every planner says, not a statement of its own."""


def test_no_algorithm_of_ours_is_missing() -> None:
    mapped = {dotted for _, entry in STATEMENTS for dotted in entry.get("code", ())}
    objects = {id(resolve(dotted)) for dotted in mapped}
    missing = {name for name in algorithms() - SHARED if id(resolve(name)) not in objects}
    assert missing == set()


def test_the_pages_made_of_data_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "tools" / "pages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
