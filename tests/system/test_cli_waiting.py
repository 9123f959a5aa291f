"""What a person sees who waits for a command, and what Ctrl-C does to what is charged."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dodona.config import Config, open_ledger
from dodona.engines.duckdb import DuckDBEngine
from dodona.privacy.ledger.rules import ChainLedger
from tests.support.commands import Outcome, refused

Call = Callable[..., Outcome]
ASK = ["ask", "survey.toml", "age", "--share", "0.25", "--request-id", "one", "--analyst", "ann"]


def spent(folder: Path) -> float:
    with open_ledger(folder / "survey.ledger") as ledger:
        return ledger.spent() / ledger.genesis.budget.capacity


def pressing(monkeypatch: pytest.MonkeyPatch, of: type, method: str, turns: set[int], *, times: int = 1) -> None:
    """Ctrl-C, ``times`` in a row, just before these turns of a method."""
    real, calls = getattr(of, method), [0]

    def pressed(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        for _ in range(times if calls[0] in turns else 0):
            os.kill(os.getpid(), signal.SIGINT)
        return real(*given, **named)

    monkeypatch.setattr(of, method, pressed)


def test_what_is_charged_comes_though_ctrl_c_was_pressed(survey: Path, call: Call, monkeypatch: Any) -> None:
    pressing(monkeypatch, DuckDBEngine, "totals", {1})
    done = call(*ASK)
    assert done.code == 0
    assert "charged; the answer comes" in done.err
    assert "±" in done.out
    assert spent(survey) == pytest.approx(0.25)


def test_the_second_ctrl_c_loses_it(survey: Path, call: Call, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        pressing(patch, DuckDBEngine, "totals", {1}, times=2)
        lost = call(*ASK)
        assert (lost.code, lost.out) == (5, "")
        assert "stopped before its answer came" in lost.err
    assert spent(survey) == pytest.approx(0.25)
    refused(call(*ASK), 5)  # final: it is neither drawn again nor charged again
    assert spent(survey) == pytest.approx(0.25)


def test_before_a_charge_it_ends_and_nothing_was_paid(survey: Path, call: Call, monkeypatch: Any) -> None:
    pressing(monkeypatch, Config, "open_table", {1})
    assert "nothing was charged" in refused(call(*ASK), 130)
    assert spent(survey) == 0


def test_while_a_charge_is_written_it_counts_as_charged(survey: Path, call: Call, monkeypatch: Any) -> None:
    """What comes of a commit that was broken off, nobody would know."""
    pressing(monkeypatch, ChainLedger, "_fresh", {1})
    done = call(*ASK)
    assert (done.code, spent(survey)) == (0, pytest.approx(0.25))
    assert "charged; the answer comes" in done.err


def test_ctrl_c_is_what_it_was_when_a_command_is_done(survey: Path, call: Call) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert call(*ASK).code == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_a_release_stops_between_questions_and_goes_on_later(survey: Path, call: Call, monkeypatch: Any) -> None:
    command = ["release", "survey.toml", "conjunctions", "-o", "two.synopsis", "--share", "0.5", "--analyst", "ann"]
    command += ["--set", "width=2", "--set", "columns=smoker,obese,sex,region", "--set", "method=adaptive"]
    with monkeypatch.context() as patch:
        pressing(patch, DuckDBEngine, "totals", {2})
        stopped = call(*command, "--request-id", "both")
        assert (stopped.code, stopped.out) == (130, "")
    assert "--request-id both goes on from there" in stopped.err
    first = spent(survey)
    assert 0 < first < 0.5
    assert not Path("two.synopsis").exists()
    with open_ledger(survey / "survey.ledger") as ledger:
        before = ledger.head()[0]
        charged = [entry.request_id for entry in ledger.entries() if entry.kind == "charge"]
    assert charged == ["both/0", "both/1"]
    done = call(*command, "--request-id", "both")
    assert done.code == 0, done.err
    assert spent(survey) == pytest.approx(0.5, rel=0.02)
    with open_ledger(survey / "survey.ledger") as ledger:
        names = [entry.request_id for entry in ledger.entries() if entry.kind == "charge"]
        assert names == [f"both/{number}" for number in range(len(names))]  # each was paid for once
        assert ledger.head()[0] > before


def test_a_release_that_is_broken_off_says_that_it_is_lost(survey: Path, call: Call, monkeypatch: Any) -> None:
    command = ["release", "survey.toml", "conjunctions", "-o", "two.synopsis", "--share", "0.5", "--request-id", "both"]
    command += ["--set", "columns=smoker,obese", "--set", "width=2"]
    pressing(monkeypatch, DuckDBEngine, "totals", {1}, times=2)
    stopped = call(*command)
    assert (stopped.code, stopped.out) == (5, "")
    assert "That is final" in stopped.err
    assert spent(survey) > 0


SLOW = """
import sys, time
from dodona.cli import main, waiting
from dodona.engines.duckdb import DuckDBEngine
waiting.PATIENCE = 0.2
real = DuckDBEngine.totals
def slow(*given):
    time.sleep(1.5)
    return real(*given)
DuckDBEngine.totals = slow
sys.argv = ["dodona", *{words!r}]
main()
"""


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_a_terminal_is_told_that_something_goes_on(survey: Path, terminal: str) -> None:
    leader, follower = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": terminal}
    command = [sys.executable, "-c", SLOW.format(words=ASK)]
    with subprocess.Popen(command, cwd=survey, stdout=subprocess.PIPE, stderr=follower, env=env, text=True) as process:
        os.close(follower)
        out, _ = process.communicate(timeout=120)
    shown = os.read(leader, 10_000).decode()
    os.close(leader)
    assert process.returncode == 0
    assert "±" in out
    if terminal == "dumb":
        assert set(shown.strip()) == {"."}
    else:
        assert "asking: 1 s" in shown
        assert shown.endswith("\r\x1b[K")  # and the line is clean again
