"""What ``dodona serve`` says as it starts."""

import signal
from types import SimpleNamespace

import pytest

from dodona.server.app import serve
from dodona.server.settings import Settings


class Opened(list):
    """Datasets that are there, wherever their ledgers are."""

    def close(self):
        self.clear()


@pytest.mark.parametrize(
    ("given", "own", "shared"),
    [
        ("postgresql://db/ledgers", "people.ledger", True),
        (None, "postgresql://db/ledgers#people", True),
        (None, "people.ledger", False),
    ],
)
def test_with_a_ledger_in_postgresql_it_says_what_stays_on_this_machine(tmp_path, monkeypatch, given, own, shared):
    dataset = SimpleNamespace(name="people", config=SimpleNamespace(ledger=own))
    monkeypatch.setattr("dodona.server.datasets.Datasets", lambda *_: Opened([dataset]))
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: None)
    monkeypatch.setenv("DODONA_SERVE", "")  # put back afterwards, as the signal is
    before, said = signal.getsignal(signal.SIGTERM), []
    try:
        serve(Settings(("people.toml",), str(tmp_path), ledger=given), said.append)
    finally:
        signal.signal(signal.SIGTERM, before)
    told = [line for line in said if str(tmp_path / "dodona.keys") in line and str(tmp_path / "dodona.surveys") in line]
    assert len(told) == shared
    assert all("this machine only" in line for line in told)
