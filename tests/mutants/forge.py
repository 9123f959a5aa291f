"""Runs tests against a mutated copy of the package: one process that has the heavy libraries loaded, one fork a mutant.

Reads one JSON object a line, {"file", "old", "new", "tests"}, and writes one, {"code", "said", "seconds"}. The copy
is whole again after each line. ``code`` is pytest's: 0 all passed, 1 some failed; -9 ran out of time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT = 300
REPOSITORY = Path(__file__).parents[2]


def preload() -> None:
    """Everything but the package itself, so that a fork has it for nothing."""
    import concurrent.futures
    import decimal
    import multiprocessing
    import sqlite3

    import cryptography.hazmat.primitives.ciphers
    import duckdb
    import hypothesis.strategies
    import numpy.ma
    import pyarrow.parquet
    import pytest
    import sqlglot
    import sqlglot.errors

    assert all((concurrent, cryptography, decimal, duckdb, hypothesis, multiprocessing, numpy, pyarrow, pytest))
    assert all((sqlglot, sqlite3))
    assert "dodona" not in sys.modules


def run(copy: Path, job: dict[str, Any]) -> dict[str, Any]:
    start = time.monotonic()
    file = copy / "dodona" / job["file"] if job["file"] else None
    before, stamp = (file.read_text(encoding="utf-8"), file.stat()) if file else ("", None)
    if file is not None:
        assert before.count(job["old"]) == 1
        file.write_text(before.replace(job["old"], job["new"]), encoding="utf-8")
        for stale in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            stale.unlink()
    try:
        with tempfile.TemporaryFile("w+") as said:
            code = _forked(copy, job["tests"], said.fileno())
            said.seek(0)
            return {"code": code, "said": said.read()[-3000:], "seconds": time.monotonic() - start}
    finally:
        if file is not None and stamp is not None:
            file.write_text(before, encoding="utf-8")
            os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def _forked(copy: Path, tests: list[str], output: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.setsid()
            os._exit(_tested(copy, tests))
        finally:
            os._exit(70)
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -9


def _tested(copy: Path, tests: list[str]) -> int:
    import pytest

    os.chdir(REPOSITORY)
    sys.path.insert(0, str(copy))
    import dodona

    assert Path(dodona.__file__).is_relative_to(copy)
    options = ["-x", "-p", "no:cacheprovider", "-c", "pyproject.toml", "--rootdir", ".", "--tb=line", "-m", "not slow"]
    code = int(pytest.main([*options, *tests]))
    sys.stdout.flush()
    return code


def main() -> None:
    sys.dont_write_bytecode = True
    preload()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(Path(sys.argv[1]), json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
