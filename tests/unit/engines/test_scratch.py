"""What DuckDB puts on disk where memory is short: closed to others, and gone with its process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dodona.engines.duckdb import source as scratch

SPILLING = """
import sys, time
from dodona.engines.duckdb.source import connect
connection = connect((), None, "60MB", 1)
connection.execute("CREATE TEMP TABLE t AS SELECT i, 'secret' || i AS s FROM range(8000000) AS r(i)")
print("spilled", flush=True)
time.sleep(float(sys.argv[1]))
"""


def spilled(folder: Path, wait: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    run = subprocess.Popen([sys.executable, "-c", SPILLING, wait], stdout=subprocess.PIPE, env=environment, cwd=folder)
    assert run.stdout is not None
    assert run.stdout.readline() == b"spilled\n"
    return run


def test_what_is_spilled_is_closed_to_others_and_removed_after_kill_9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "gettempdir", lambda: str(tmp_path))
    with spilled(tmp_path, "60") as run:
        try:
            (own,) = tmp_path.iterdir()  # nothing beside it, such as a .tmp in the working directory
            assert sum(file.stat().st_size for file in own.iterdir()) > 2**20
            assert stat.S_IMODE(own.stat().st_mode) == 0o700
            scratch.remove_abandoned()
            assert own.exists()
        finally:
            run.send_signal(signal.SIGKILL)
    assert own.exists()
    scratch.remove_abandoned()
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_end_leaves_nothing(tmp_path: Path) -> None:
    with spilled(tmp_path, "0") as run:
        assert run.wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_has_a_folder_of_its_own() -> None:
    mine = scratch.scratch_folder()
    child = os.fork()
    if child == 0:
        other = scratch.scratch_folder()
        fine = other != mine and os.path.isdir(mine)
        scratch._remove(other, os.getpid())
        scratch._remove(mine, os.getppid())
        os._exit(0 if fine and os.path.isdir(mine) and not os.path.isdir(other) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.path.isdir(mine)
