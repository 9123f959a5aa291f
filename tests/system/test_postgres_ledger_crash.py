"""The ledger in PostgreSQL among real processes, real SIGKILLs and a server that crashes (HOSTILE V39, V49, V54)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from dodona.testing.postgres import PostgresServer

HERE = Path(__file__).parent


def command(scenario: str, url: str, *numbers: int) -> list[str]:
    return [sys.executable, str(HERE / "postgres_ledger_scenarios.py"), scenario, url, *map(str, numbers)]


def run(scenario: str, url: str, *numbers: int, limit: float = 300) -> dict[str, Any]:
    done = subprocess.run(command(scenario, url, *numbers), capture_output=True, text=True, timeout=limit, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return f"{postgres.url()}#{uuid.uuid4().hex}"


def test_v39_eight_processes_spend_exactly_the_cap(url: str) -> None:
    found = run("crowd", url, 8, 60, 100)
    assert found == {
        "acked": 100,
        "entries": 100,
        "spent": 100,
        "charged": 100,
        "lost": 0,
        "answers": 0,
        "lost_answers": 0,
        "refused": 8 * 60 - 100,
        "codes": [0],
    }


def _storm(url: str, kills: int, limit: float) -> None:
    found = run("storm", url, kills, 4, 10**6, limit=limit)
    print(f"M8, PostgreSQL: {found}")
    assert found["kills"] == kills
    assert found["lost"] == found["lost_answers"] == 0
    assert found["acked"] <= found["spent"] == found["charged"] <= found["acked"] + kills  # one in flight at each kill
    assert found["acked"] > kills // 4  # the storm left time to work


def test_v49_forty_kills(url: str) -> None:
    _storm(url, 40, 300)


@pytest.mark.slow
def test_v49_a_thousand_kills(url: str) -> None:
    _storm(url, 1000, 1800)


def test_v54_forks(url: str) -> None:
    found = run("forked", url)
    assert (found["codes"], found["lost"]) == ([0], 0)
    assert found["acked"] == found["entries"] == found["spent"] == 32


def _outage(crashes: int) -> None:
    """No answer without a charge, no overspend: what was acknowledged is there after every crash."""
    with PostgresServer() as own:
        start = command("outage", own.url(), 4, 10**6)
        with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "started\n"
            time.sleep(1.5)
            for _ in range(crashes):
                own.restart()
                time.sleep(1.0)
            found = json.loads(child.communicate("stop\n", timeout=120)[0].splitlines()[-1])
        assert child.returncode == 0
    assert (found["codes"], found["lost"], found["lost_answers"]) == ([0], 0, 0)
    assert found["unavailable"] > 0  # the crashes were felt
    assert found["acked"] > 0
    assert found["acked"] <= found["spent"] == found["charged"] <= found["acked"] + found["unavailable"]


def test_a_server_that_crashes_in_mid_charge(postgres: PostgresServer) -> None:
    _outage(2)


@pytest.mark.slow
def test_a_server_that_crashes_often(postgres: PostgresServer) -> None:
    _outage(20)
