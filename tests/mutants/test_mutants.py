"""Planted privacy bugs (HOSTILE, methods 6, M4): each is caught by the tests it names, and the sound copy passes.

The ``.toml`` files beside this one list them: a file, a piece of its text, what stands there instead, what that
breaks, and the tests that must fail; and, where ``dodona audit`` is to find it, lines of the audit that must fail.
A piece that is no longer there, or no longer unique, fails loudly: the mutant must be written anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "dodona"
LISTS = sorted(HERE.glob("*.toml"))
MUTANTS: list[dict[str, Any]] = [
    mutant for listed in LISTS for mutant in tomllib.loads(listed.read_text(encoding="utf-8"))["mutant"]
]
AUDITED = [mutant for mutant in MUTANTS if "audit" in mutant]
GROUPS = 10  # the sound copy runs every killer once, in this many pieces
Forge = Callable[[dict[str, Any]], dict[str, Any]]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants run in forked processes")


def audited(line: str) -> str:
    """The test of a line of the audit."""
    return f"tests/unit/audit/test_suite.py::test_a_line_of_the_audit_holds[{line}]"


@pytest.fixture(scope="session")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    """A process that runs tests against a copy of the package with one bug planted in it: see ``forge.py``."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(SOURCE, copy / "dodona", copy_function=shutil.copy2)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        "PYTHONPATH": str(copy),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "DODONA_PLANTED": "1",
    }
    files = sorted({killer.partition("::")[0] for piece in killers_once() for killer in piece})
    command = [sys.executable, str(HERE / "forge.py"), str(copy), *files]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    def run(job: dict[str, Any]) -> dict[str, Any]:
        print(json.dumps(job), file=process.stdin, flush=True)
        found: dict[str, Any] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
        return found

    with process:
        yield run
        process.stdin.close()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_a_planted_bug_is_caught(mutant: dict[str, Any], forge: Forge) -> None:
    found = (SOURCE / mutant["file"]).read_text(encoding="utf-8").count(mutant["old"])
    assert found == 1, f"{mutant['file']} holds the mutant's text {found} times; write the mutant anew"
    result = forge({key: mutant[key] for key in ("file", "old", "new")} | {"tests": mutant["killers"]})
    assert result["code"] == 1, f"{mutant['breaks']}: it lives (pytest said {result['code']}).\n{result['said']}"


@pytest.mark.parametrize("mutant", AUDITED, ids=lambda mutant: mutant["name"])
def test_the_audit_finds_a_planted_bug(mutant: dict[str, Any], forge: Forge) -> None:
    """Each line that the mutant names, by itself: ``dodona audit`` would say that it does not hold."""
    for line in mutant["audit"]:
        result = forge({key: mutant[key] for key in ("file", "old", "new")} | {"tests": [audited(line)]})
        assert result["code"] == 1, f"{line!r} holds in spite of it (pytest said {result['code']}).\n{result['said']}"


def killers_once() -> list[list[str]]:
    """Every killer and line of the audit once, in pieces of whole files, so that a file's fixtures are made once."""
    named = {killer for mutant in MUTANTS for killer in mutant["killers"]}
    named |= {audited(line) for mutant in AUDITED for line in mutant["audit"]}
    outer = {killer for killer in named if not any(_holds(other, killer) for other in named)}
    files: dict[str, list[str]] = {}
    for killer in sorted(outer):
        files.setdefault(killer.partition("::")[0], []).append(killer)
    pieces = [list(files.values())[group::GROUPS] for group in range(GROUPS)]
    return [[killer for file in piece for killer in file] for piece in pieces]


def _holds(outer: str, inner: str) -> bool:
    """Whether a test's name is of a whole folder, file or set of parameters that the other is part of."""
    return outer != inner and inner.startswith((f"{outer}/", f"{outer}::", f"{outer}["))


@pytest.mark.parametrize("killers", killers_once(), ids=range(GROUPS))
def test_the_sound_copy_passes_every_killer(killers: list[str], forge: Forge) -> None:
    result = forge({"file": "", "old": "", "new": "", "tests": killers})
    assert result["code"] == 0, result["said"]


def test_the_text_of_every_mutant_is_there_once() -> None:
    """What planting also asserts, one by one; here for all at once, for who has just changed the text."""
    files = {mutant["file"]: (SOURCE / mutant["file"]).read_text(encoding="utf-8") for mutant in MUTANTS}
    stale = [mutant["name"] for mutant in MUTANTS if files[mutant["file"]].count(mutant["old"]) != 1]
    assert not stale, f"write these anew: {stale}"


def test_every_mutant_is_python() -> None:
    """What is around a piece may have moved on: then what is planted does not even compile, and breaks nothing."""
    broken = []
    for mutant in MUTANTS:
        text = (SOURCE / mutant["file"]).read_text(encoding="utf-8").replace(mutant["old"], mutant["new"])
        if mutant["file"].endswith(".py"):
            try:
                compile(text, mutant["file"], "exec", dont_inherit=True)
            except SyntaxError as error:
                broken.append(f"{mutant['name']}: {error}")
    assert not broken, f"write these anew: {broken}"


def test_there_are_enough_and_each_is_another() -> None:
    assert len(MUTANTS) >= 60
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant["file"], mutant["old"], mutant["new"]) for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant["breaks"] and mutant["killers"] for mutant in MUTANTS)
