"""The remote oracle: a lost line costs nothing twice, refusals are the library's own, keys stay on this machine."""

import json
import re
import socket
import threading

import numpy as np
import pytest

import dodona as dd
from dodona.errors import AnswerLost, BadEffort, BadQuery, BudgetSpent, LedgerUnavailable, Refused, Unsupported
from dodona.oracles import remote
from dodona.oracles.answer import Price
from dodona.oracles.effort import Effort
from dodona.oracles.remote import Connection, refusal
from dodona.testing import check_oracle
from dodona.testing.oracles import SCHEMA, conformance_table
from tests.support.servers import add_key, in_thread, write_survey

COLUMNS = {
    "age": np.arange(2000) % 100,
    "sex": np.array(["Female", "Male"])[np.arange(2000) % 2],
    "smoker": np.arange(2000) % 3 == 0,
    "income": np.linspace(0, 900, 2000),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote")
    # The rows of the conformance suite, so that its truth is this server's.
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.integers(0, 100, 2000),
        "sex": np.array(["Female", "Male"])[rng.integers(0, 2, 2000)],
        "smoker": rng.random(2000) < 0.3,
        "income": rng.gamma(2.0, 120.0, 2000),
    }
    assert conformance_table().public_rows == 2000
    survey = write_survey(folder, columns, SCHEMA, {"epsilon": 8, "delta": 1e-6})
    write_survey(folder, COLUMNS, SCHEMA, {"epsilon": 1}, name="other")
    keys = {"boss": add_key(folder, "boss"), "ann": add_key(folder, "ann", "0.1", datasets=["people"])}
    with in_thread(folder, [survey, folder / "other.toml"], tick=0.001, rate=1e6) as url:
        yield url, keys


def test_it_is_an_oracle(served):
    url, keys = served
    check_oracle(lambda _: dd.connect(url, key=keys["boss"], dataset="people"), {"share": 0.01})


def test_datasets_are_named_where_there_are_several(served):
    url, keys = served
    assert dd.connect(url, key=keys["ann"]).name == "people"
    with pytest.raises(Refused, match="other, people"):
        dd.connect(url, key=keys["boss"])
    with pytest.raises(Refused):
        dd.connect(url, key=keys["ann"], dataset="other")


def test_the_key_may_come_from_the_environment(served, monkeypatch):
    url, keys = served
    monkeypatch.delenv("DODONA_KEY", raising=False)
    with pytest.raises(Refused, match="DODONA_KEY"):
        dd.connect(url)
    monkeypatch.setenv("DODONA_KEY", keys["ann"])
    oracle = dd.connect(url)
    assert keys["ann"] not in repr(oracle)
    with pytest.raises(BudgetSpent) as caught:
        oracle.ask("age", share=0.2)
    assert caught.value.unit == "rho"
    with pytest.raises(BadQuery):
        oracle.ask("nothing", share=0.001)
    with pytest.raises(Unsupported):
        dd.connect(url, key=keys["boss"], dataset="other").ask("age", rho="0.1")


def whole(line):
    """One message: its headers and as much body as they announce; nothing where the line was hung up."""
    message = b""
    while b"\r\n\r\n" not in message:
        part = line.recv(1 << 16)
        if not part:
            return b""
        message += part
    head, _, body = message.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    while length is not None and len(body) < int(length[1]):
        body += line.recv(1 << 16)
    return head + b"\r\n\r\n" + body


class Lossy:
    """A line to ``port`` that hands on every request, and swallows the first ``losses`` responses to a POST."""

    def __init__(self, port, losses):
        self.losses, self.swallowed = losses, 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._hand_on, args=(client,), daemon=True).start()

    def _hand_on(self, client):
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            while request := whole(client):
                server.sendall(request)
                response = whole(server)
                if request.startswith(b"POST") and self.swallowed < self.losses:
                    self.swallowed += 1
                    return
                client.sendall(response)

    def close(self):
        self._listener.close()


def test_a_lost_answer_is_asked_for_again_and_charged_once(served, monkeypatch):
    """V42: the line drops after the charge; the retry, by the same name, gets the same answer."""
    monkeypatch.setattr(remote, "PAUSE", 0.001)
    url, keys = served
    direct = dd.connect(url, key=keys["boss"], dataset="people")
    lossy = Lossy(int(url.rsplit(":", 1)[1]), 3)
    try:
        oracle = dd.connect(lossy.url, key=keys["boss"], dataset="people", timeout=30)
        before = direct.left
        answer = oracle.ask("age >= 65", share=0.01)
        assert lossy.swallowed == 3
        assert before - direct.left == pytest.approx(answer.cost.amount)
    finally:
        lossy.close()


def test_a_server_that_is_not_there(monkeypatch):
    monkeypatch.setattr(remote, "PAUSE", 0.001)
    with pytest.raises(LedgerUnavailable, match="may have been charged"):
        Connection("http://127.0.0.1:9", "ddn_x").post(("v1",), {})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("bad-query", BadQuery),
        ("bad-effort", BadEffort),
        ("unsupported", Unsupported),
        ("refused", Refused),
        ("denied", Refused),
        ("ledger", LedgerUnavailable),
        ("answer-lost", AnswerLost),
        ("fault", LedgerUnavailable),
    ],
)
def test_refusals_are_the_librarys_own(code, kind):
    body = json.dumps({"code": code, "detail": "why"}).encode()
    assert type(refusal(422, body)) is kind


def test_what_is_no_problem_document():
    for body in (b"", b"<html>", b"[]", b"{}"):
        assert isinstance(refusal(502, body), LedgerUnavailable)


@pytest.mark.parametrize("amount", ["1/3", "0.1", "1e-12", "123456789/1234567891"])
def test_efforts_travel_exactly(amount):
    effort = Effort.of(epsilon=amount, confidence=0.999)
    sent = effort.to_json()
    assert Effort.of(**sent) == effort


def test_a_fraction_too_long_for_the_line_is_rounded_down():
    from fractions import Fraction

    long = Fraction(10**60 + 1, 3 * 10**60)
    sent = Effort.of(share=long).to_json()
    assert 0 <= long - Fraction(sent["share"]) < Fraction(1, 10**35)
    Effort.of(**sent)


@pytest.mark.parametrize("question", ["age >= 65", dd.Partition(dd.parse("sex"), dd.Value(dd.parse("income")))])
def test_prices_travel_whole(served, question):
    url, keys = served
    offer = dd.connect(url, key=keys["boss"], dataset="people").price(question, share=0.01)
    again = Price.from_json(offer.to_json())
    assert str(again) == str(offer)
    np.testing.assert_array_equal(again.margin, offer.margin)
    assert np.shape(again.spread) == np.shape(offer.spread)


def test_quantiles_come_over_the_line_with_their_price_and_once_for_one_name(served):
    url, keys = served
    remote = dd.connect(url, key=keys["boss"], dataset="people")
    text = "SELECT sex, MEDIAN(age) AS m FROM people GROUP BY sex"
    price = remote.price(text, share=0.02)
    assert "ranks" in str(price)
    first, again = (remote.sql(text, share=0.02, request_id="median") for _ in range(2))
    assert first == again
    assert [record["sex"] for record in first.to_dicts()] == ["Female", "Male", "(other)"]
    assert first.cost.share == pytest.approx(0.02, rel=0.01)
    ((low, high),) = remote.quantile("income", [0.25, 0.75], where="smoker", share=0.02)
    assert 0 <= low.value <= high.value
