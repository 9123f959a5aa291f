"""Spark with executors in processes of their own, one killed in mid-query; a standalone cluster; Spark Connect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.spark import SparkMissing, require

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]
SCENARIOS = Path(__file__).with_name("spark_scenarios.py")


@pytest.mark.parametrize("name", ["cluster", "kill", "standalone", "connect"])
def test_scenario(name: str, tmp_path: Path) -> None:
    try:
        require(connect=name == "connect")
    except SparkMissing as missing:
        pytest.skip(str(missing))
    command = [sys.executable, str(SCENARIOS), name, str(tmp_path)]
    # A session of its own, so that executors, whose parent is the JVM, can be ended with it.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as scenario:
        try:
            said, complained = scenario.communicate(timeout=900)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(scenario.pid, signal.SIGKILL)
    assert scenario.returncode == 0, complained[-3000:]
    assert said.strip().endswith("ok")
