"""What ``dodona serve`` says as it starts."""

import signal
import socket
import threading
from types import SimpleNamespace

import pytest

from dodona.errors import AddressTaken
from dodona.server.run import serve, when_it_listens
from dodona.server.settings import Settings
from tests.support.servers import free_port


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
    monkeypatch.setattr("dodona.server.run.run_workers", lambda *_: None)
    monkeypatch.setattr("dodona.server.run.when_it_listens", lambda _, work: work())
    monkeypatch.setenv("DODONA_SERVE", "")  # put back afterwards, as the signal is
    before, said = signal.getsignal(signal.SIGTERM), []
    try:
        serve(Settings(("people.toml",), str(tmp_path), ledger=given, port=free_port()), said.append)
    finally:
        signal.signal(signal.SIGTERM, before)
    told = [line for line in said if str(tmp_path / "dodona.keys") in line and str(tmp_path / "dodona.surveys") in line]
    assert len(told) == shared
    assert all("this machine only" in line for line in told)


def test_a_port_that_is_taken_is_one_sentence_and_nothing_is_made(tmp_path, monkeypatch):
    """It was uvicorn's log and exit code 1, after a curator's key was made that nobody saw."""
    monkeypatch.setattr("dodona.server.datasets.Datasets", lambda *_: pytest.fail("nothing is opened"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(AddressTaken, match=rf"^port {port} of 127.0.0.1 is taken: .* --port {port + 1}\.$"):
            serve(Settings(("people.toml",), str(tmp_path), port=port), print)
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_another_machine_is_refused_in_words(tmp_path):
    with pytest.raises(AddressTaken, match="no address of this machine"):
        serve(Settings(("people.toml",), str(tmp_path), host="192.0.2.1", insecure_listen=True), print)


def test_it_serves_only_once_it_listens():
    told = threading.Event()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        when_it_listens(bound, told.set)
        assert not told.wait(0.1)
        bound.listen()
        assert told.wait(30)
