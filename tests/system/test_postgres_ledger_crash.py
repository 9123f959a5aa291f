"""The ledger in PostgreSQL among real processes, real SIGKILLs and a server that crashes (HOSTILE V39, V49, V54)."""

from __future__ import annotations

import json
import subprocess
import uuid

import pytest

from tests.support.ledgers import command, scenario
from tests.support.postgres import PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return f"{postgres.url()}#{uuid.uuid4().hex}"


def _storm(url: str, kills: int, limit: float) -> None:
    found = scenario("storm", url, kills, 4, 10**6, limit=limit)
    print(f"M8, PostgreSQL: {found}")
    assert found["kills"] == kills
    assert found["lost"] == found["lost_answers"] == 0
    assert found["acked"] <= found["spent"] == found["charged"] <= found["acked"] + kills  # one in flight at each kill
    assert found["acked"] > kills // 4  # the storm left time to work


@pytest.mark.slow
def test_v49_a_thousand_kills(url: str) -> None:
    _storm(url, 1000, 1800)


def test_v54_forks(url: str) -> None:
    found = scenario("forked", url)
    assert (found["codes"], found["lost"]) == ([0], 0)
    assert found["acked"] == found["entries"] == found["spent"] == 32


def _outage(crashes: int) -> None:
    """No answer without a charge, no overspend: what was acknowledged is there after every crash."""
    with PostgresServer() as own:
        start = command("outage", own.url(), 4, 10**6)
        with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:

            def wait_for(word: str) -> None:
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write(f"{word}\n")
                child.stdin.flush()
                assert child.stdout.readline() == f"{word}\n"

            for _ in range(crashes):
                wait_for("ack")
                own.kill()
                wait_for("unavailable")
                own.start()
            wait_for("ack")
            found = json.loads(child.communicate("stop\n", timeout=120)[0].splitlines()[-1])
        assert child.returncode == 0
    assert (found["codes"], found["lost"], found["lost_answers"]) == ([0], 0, 0)
    assert found["unavailable"] >= crashes  # each was felt
    assert found["acked"] > crashes
    assert found["acked"] <= found["spent"] == found["charged"] <= found["acked"] + found["unavailable"]


def test_a_server_that_crashes_in_mid_charge(postgres: PostgresServer) -> None:
    _outage(2)


@pytest.mark.slow
def test_a_server_that_crashes_often(postgres: PostgresServer) -> None:
    _outage(20)
