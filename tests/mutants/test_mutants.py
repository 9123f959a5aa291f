"""Planted privacy bugs (HOSTILE 5.6, M4): every one is caught by the tests it names, and the sound copy passes them.

``mutants.toml`` lists them: a file, a piece of its text, what stands there instead, what that breaks, and the tests
that must fail. A piece that is no longer there, or no longer unique, fails loudly: the mutant must be written anew.
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
MUTANTS: list[dict[str, Any]] = tomllib.loads((HERE / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
GROUPS = 10  # the sound copy runs every killer once, in this many pieces
Forge = Callable[[dict[str, Any]], dict[str, Any]]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants run in forked processes")


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    """A process that runs tests against a copy of the package with one bug planted in it."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(SOURCE, copy / "dodona", copy_function=shutil.copy2)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        "PYTHONPATH": str(copy),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, str(HERE / "forge.py"), str(copy)]
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


@pytest.mark.parametrize("group", range(GROUPS))
def test_the_sound_copy_passes_every_killer(group: int, forge: Forge) -> None:
    killers = sorted({killer for mutant in MUTANTS for killer in mutant["killers"]})[group::GROUPS]
    result = forge({"file": "", "old": "", "new": "", "tests": killers})
    assert result["code"] == 0, result["said"]


def test_there_are_enough_and_each_is_another() -> None:
    assert len(MUTANTS) >= 60
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant["file"], mutant["old"], mutant["new"]) for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant["breaks"] and mutant["killers"] for mutant in MUTANTS)
