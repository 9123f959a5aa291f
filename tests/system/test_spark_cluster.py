"""Spark with executors in processes of their own, one of which is killed in mid-query; and Spark Connect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dodona.testing.spark import SparkMissing, require

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]
SCENARIOS = Path(__file__).with_name("spark_scenarios.py")


@pytest.mark.parametrize("name", ["cluster", "kill", "connect"])
def test_scenario(name: str, tmp_path: Path) -> None:
    try:
        require(connect=name == "connect")
    except SparkMissing as missing:
        pytest.skip(str(missing))
    command = [sys.executable, str(SCENARIOS), name, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("ok")
