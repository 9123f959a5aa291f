"""Runs every test that the map names and notes what it ran, in docs/map_run.json: sizes and times of docs/map.md.

``python docs/tools/map_run.py``: all of them; ``--check``: says which rows name code that none of their tests runs.
``--new``: only tests that it has not seen. Names after it: only tests whose name contains one of them.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "map_run.json"
sys.path.insert(0, str(ROOT))


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row of the map, with its paper."""
    data = tomllib.loads((ROOT / "docs" / "map.toml").read_text(encoding="utf-8"))
    for paper, entries in data["statements"].items():
        for entry in entries:
            yield paper, entry


def resolve(dotted: str) -> Any:
    """What a dotted name inside ``dodona`` stands for."""
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


def mapped() -> list[str]:
    """The tests that the map names."""
    return sorted({test for _, entry in rows() for test in entry.get("tests", ())})


def run(tests: list[str]) -> dict[str, dict[str, Any]]:
    """Each test with its seconds, the rows of its largest table, and which of the map's code it ran."""
    from tests.support.touched import is_run

    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "tests.support.touched", "--no-header"]
        subprocess.run(
            [*command, *(f"tests/{test}" for test in tests)],
            cwd=ROOT,
            check=False,
            env={**os.environ, "TOUCHED": str(told)},
        )
        lines = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    names = sorted({dotted for _, entry in rows() for dotted in entry.get("code", ())})
    code = {dotted: resolve(dotted) for dotted in names}
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        test = line["test"].split("[")[0].removeprefix("tests/")
        held = found.setdefault(test, {"seconds": 0.0, "rows": 0, "ran": set()})
        held["seconds"] += line["seconds"]
        held["rows"] = max(held["rows"], line["rows"])
        held["ran"] |= set(line["ran"])
    for held in found.values():
        held["seconds"] = round(held["seconds"], 1)
        held["ran"] = [dotted for dotted in names if is_run(code[dotted], held["ran"])]
    return found


def idle(record: dict[str, dict[str, Any]]) -> list[str]:
    """What rows name and none of their tests runs, in words."""
    found = []
    for paper, entry in rows():
        ran = {dotted for test in entry.get("tests", ()) for dotted in record.get(test, {}).get("ran", ())}
        missing = [dotted for dotted in entry.get("code", ()) if dotted not in ran]
        found += [f"{paper} {entry['name']}: no test of it runs {dotted}" for dotted in missing]
    return found


def main(arguments: list[str]) -> int:
    """Runs and writes, or says what is idle."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if "--check" not in arguments:
        wanted = mapped()
        new = [test for test in wanted if test not in record]
        named = [test for test in wanted if any(word in test for word in arguments)]
        chosen = new if arguments == ["--new"] else named if arguments else wanted
        record = {test: held for test, held in (record | run(chosen)).items() if test in wanted}
        lines = [f"{json.dumps(test)}: {json.dumps(record[test])}" for test in sorted(record)]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    missing = idle(record)
    print("\n".join(missing) or "every row's tests run its code")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
