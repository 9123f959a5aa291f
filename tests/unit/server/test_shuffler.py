"""The shuffler: batches alone leave it, each report once, and nothing of whose they were or when they came."""

import base64
import itertools
import json
import sqlite3
import threading
from collections import Counter
from fractions import Fraction

import httpx
import pytest

from dodona.errors import LedgerUnavailable, Refused
from dodona.local.client import Client
from dodona.oracles.remote import Connection
from dodona.privacy.shuffling import central_epsilon
from dodona.server.keys import KeyStore
from dodona.server.surveys.shuffler import Shuffler, Waiting, make_shuffler
from dodona.server.surveys.survey import DELTA, Survey
from tests.support.servers import listening

STATED = {
    "title": "Travel",
    "epsilon": "1",
    "batch": 10,
    "questions": [
        {"text": "Do you own a car?", "kind": "yes-no"},
        {"text": "How do you travel?", "kind": "choice", "values": ["Bus", "Car", "On foot"]},
    ],
}


@pytest.fixture
def forwarding(house):
    """A survey at a collector, and a shuffler of it; ``forward()`` is a tick of its clock."""
    store = KeyStore(house.folder / "dodona.keys")
    key = store.add("shuffler", role="shuffler")[1]
    store.close()
    made = []

    class Forwarding:
        def __init__(self, **more):
            told = house.send("POST", "/v1/surveys", "curator", json={**STATED, **more})
            assert told.status_code == 201, told.text
            self.id, self.tokens, self.key = told.json()["id"], told.json()["tokens"], key
            self.said = []
            self.invitations = house.send("GET", f"/v1/surveys/{self.id}/invitations", None).json()["invitations"]
            self.open()
            made.append(self)

        def open(self, line=None):
            self.waiting = Waiting(house.folder / "dodona.waiting")
            self.shuffler = Shuffler(line or Connection(house.url, key), (self.id,), self.waiting, self.said.append)

        def reopen(self, line=None):
            self.waiting.close()
            self.open(line)

        def report(self, question="q1", truth=True):
            return Client(total=10).report(self.invitations[question], {"answer": truth})

        def hand_in(self, number, token=None, question="q1"):
            token = f"{number:032x}" if token is None else token
            self.shuffler.add(self.id, question, self.report(question, True if question == "q1" else "Car"), token)

        def counted(self):
            return house.send("GET", f"/v1/surveys/{self.id}/estimates", None).json()["reports"]

    yield Forwarding
    for one in made:
        one.waiting.close()


def test_fewer_than_a_batch_never_leave_and_a_batch_leaves_once(forwarding):
    one = forwarding()
    for number in range(9):
        one.hand_in(number, question=f"q{1 + number % 2}")
        one.shuffler.forward()
        assert one.counted() == 0
    one.hand_in(9)
    one.shuffler.forward()
    one.shuffler.forward()
    assert one.counted() == 10
    assert json.loads(one.shuffler.estimates[one.id])["reports"] == 10
    one.hand_in(10)
    one.shuffler.forward()
    assert one.counted() == 10


def test_what_the_collector_gets_does_not_depend_on_the_order_of_arrival(house, forwarding, tmp_path):
    """The same reports handed in in every one of several orders: the same bytes leave."""
    one = forwarding()
    reports = [("q1", one.report()) for _ in range(6)] + [("q2", one.report("q2", "Bus")) for _ in range(6)]
    bodies = set()
    for number, order in enumerate((reports, reports[::-1], reports[3:] + reports[:3], sorted(reports))):
        waiting = Waiting(tmp_path / f"{number}.waiting")
        for place, (question, report) in enumerate(order):
            waiting.add("s", question, report, f"{place:032x}", issued=False)
        assert waiting.gather("s", 10)
        ((_, _, body),) = waiting.leaving("s")
        bodies.add(json.dumps(json.loads(body)["reports"]))
        waiting.close()
    assert len(bodies) == 1
    (told,) = (json.loads(body) for body in bodies)
    assert Counter((q, base64.b64decode(r)) for q, listed in told.items() for r in listed) == Counter(reports)


def test_nothing_of_tokens_addresses_order_or_times_is_kept(house, forwarding):
    """The file of what waits: no column that could hold them, keys without order; afterwards no report at all."""
    one = forwarding(tokens=20)
    sent = []
    for number in range(12):
        report = one.report()
        sent.append(report)
        one.shuffler.add(one.id, "q1", report, one.tokens[number])
    file = house.folder / "dodona.waiting"
    columns = {
        table: [row[1] for row in one.waiting._db.execute(f"PRAGMA table_info({table})")]
        for (table,) in one.waiting._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert columns == {
        "surveys": ["id", "stated"],
        "tokens": ["hash", "used"],
        "waiting": ["survey", "name", "question", "report"],
        "leaving": ["survey", "batch", "part", "body"],
    }
    with pytest.raises(sqlite3.OperationalError, match="rowid"):  # what SQLite numbers by itself is an order
        one.waiting._db.execute("SELECT rowid FROM waiting")
    kept = [report for (report,) in one.waiting._db.execute("SELECT report FROM waiting")]
    assert sorted(kept) == sorted(sent)
    orders = {tuple(kept).index(report) for report in sent[:1]} if kept == sent else {None}
    assert orders == {None} or len(set(sent)) < 12  # 12! orders: theirs is not ours
    one.shuffler.forward()
    one.waiting.close()
    left = file.read_bytes()
    assert not any(report in left or base64.b64encode(report) in left for report in set(sent))
    assert not any(token.encode() in left for token in one.tokens)
    one.open()


def test_a_token_counts_once_and_the_collector_never_sees_it(house, forwarding):
    one = forwarding(tokens=15)
    bodies = []

    class Seen(Connection):
        def post(self, path, body, name=None):
            bodies.append(body)
            return super().post(path, body, name)

    one.reopen(Seen(house.url, one.key))
    with pytest.raises(Refused, match="links its curator gave out"):
        one.hand_in(1)
    for token in one.tokens[:11]:
        one.hand_in(0, token)
        with pytest.raises(Refused, match="counts once"):
            one.hand_in(0, token)
    one.reopen(Seen(house.url, one.key))  # a restart admits no token again
    with pytest.raises(Refused, match="counts once"):
        one.hand_in(0, one.tokens[0])
    one.shuffler.forward()
    assert one.counted() == 11
    assert set(bodies[0]) == {"batch", "part", "total", "reports"}
    assert not any(token in json.dumps(bodies) for token in one.tokens)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_line_neither_loses_nor_doubles_a_report(house, forwarding, when):
    """The line breaks before the collector has the part, or after; the process ends in between."""
    one = forwarding()

    class Breaks(Connection):
        def post(self, path, body, name=None):
            if when == "after":
                super().post(path, body, name)
            raise LedgerUnavailable("gone")

    for number in range(10):
        one.hand_in(number)
    one.reopen(Breaks(house.url, one.key))
    one.shuffler.forward()
    assert one.said
    assert one.counted() == (10 if when == "after" else 0)
    for number in range(10, 14):
        one.hand_in(number)
    one.reopen()
    one.shuffler.forward()
    assert one.counted() == 10  # the four that came since wait for a crowd of their own
    for number in range(14, 20):
        one.hand_in(number)
    one.shuffler.forward()
    assert one.counted() == 20


def test_every_history_of_arrivals_ticks_breaks_and_restarts_is_its_model(house, forwarding, monkeypatch):
    """All words of four of these operations, against a counter: at most once, batches only, none lost."""
    from dodona.server.surveys import shuffler as module

    monkeypatch.setattr(module, "PART", 4)  # several parts a batch
    one = forwarding()
    broken = {"now": False}

    class Breaks(Connection):
        def post(self, path, body, name=None):
            if broken["now"] and body["part"] == 1:
                raise LedgerUnavailable("gone")
            return super().post(path, body, name)

    line = Breaks(house.url, one.key)
    one.reopen(line)
    number, waiting, leaving, counted = 0, 0, 0, 0
    for word in itertools.product(("arrive", "tick", "broken tick", "restart"), repeat=4):
        for operation in word:
            if operation == "arrive":
                for _ in range(6):
                    one.hand_in(number)
                    number, waiting = number + 1, waiting + 1
            elif operation == "restart":
                one.reopen(line)
            else:
                broken["now"] = operation == "broken tick"
                one.shuffler.forward()
                if waiting >= 10:
                    leaving, waiting = leaving + waiting, 0
                if operation == "tick":
                    counted, leaving = counted + leaving, 0
        broken["now"] = False
        one.shuffler.forward()
        if waiting >= 10:
            leaving, waiting = leaving + waiting, 0
        counted, leaving = counted + leaving, 0
        assert one.counted() == counted
        assert counted + waiting == number


def test_the_collector_takes_batches_of_its_shuffler_alone(house, forwarding):
    one = forwarding()
    report = base64.b64encode(one.report()).decode()
    direct = {"reports": [{"question": "q1", "report": report}], "token": "0" * 32}
    refused = house.send("POST", f"/v1/surveys/{one.id}/reports", None, json=direct)
    assert refused.status_code == 422
    assert "shuffler" in refused.json()["detail"]
    part = {"batch": "a" * 32, "part": 0, "total": 10, "reports": {"q1": [report] * 10}}
    place = f"/v1/surveys/{one.id}/parts"
    for key in (None, "a", "curator"):
        assert house.send("POST", place, key, json=part).status_code in (401, 403)
        assert house.send("GET", f"/v1/surveys/{one.id}/shuffling", key).status_code in (401, 403)
    few = {**part, "total": 9, "reports": {"q1": [report] * 9}}
    assert house.send("POST", place, one.key, json=few).status_code == 409
    more = {**part, "reports": {"q1": [report] * 11}}
    assert house.send("POST", place, one.key, json=more).status_code == 409
    foreign = {**part, "reports": {"q1": [base64.b64encode(one.report("q2", "Bus")).decode()] * 10}}
    assert house.send("POST", place, one.key, json=foreign).status_code == 422
    assert one.counted() == 0
    for _ in range(2):
        assert house.send("POST", place, one.key, json=part).status_code == 204
    assert one.counted() == 10


def test_a_shufflers_key_opens_nothing_else(house, forwarding):
    key = forwarding().key
    effort = {"share": "0.01"}
    assert house.post("ask", {"question": "smoker", "effort": effort}, key).status_code == 403
    for path in ("/v1/datasets", "/v1/datasets/people", "/v1/datasets/people/ledger", "/v1/keys", "/v1/surveys"):
        assert house.send("GET", path, key).status_code == 403
    assert house.send("POST", "/v1/surveys", key, json=STATED).status_code == 403
    assert house.spent() == 0


def test_a_closed_survey_takes_no_batch_and_keeps_none(house, forwarding):
    one = forwarding()
    for number in range(10):
        one.hand_in(number)
    assert house.send("POST", f"/v1/surveys/{one.id}/close", "curator").status_code == 204
    one.shuffler.forward()
    assert one.counted() == 0
    assert one.waiting.leaving(one.id) == []
    with pytest.raises(Refused, match="closed"):
        one.hand_in(11)
    one.reopen()
    with pytest.raises(Refused, match="closed"):
        one.hand_in(12)


def test_its_form_states_what_a_batch_is_worth(house, forwarding):
    one = forwarding(batch=1000)
    told = house.send("GET", f"/v1/surveys/{one.id}", None).json()["shuffler"]
    assert told["batch"] == 1000
    assert Fraction(told["delta"]) == DELTA
    assert Fraction(told["central"]) <= central_epsilon(1, DELTA, 1000) < Fraction(1, 2)
    alone = house.send("POST", "/v1/surveys", "curator", json={**STATED, "batch": 0}).json()["id"]
    assert house.send("GET", f"/v1/surveys/{alone}", None).json().get("shuffler") is None


@pytest.mark.parametrize("batch", [-1, 1, 9, 100_001, True, "10", 10.0])
def test_a_batch_that_is_no_crowd_is_refused(house, batch):
    assert house.send("POST", "/v1/surveys", "curator", json={**STATED, "batch": batch}).status_code == 422


def test_a_survey_without_a_batch_is_not_shuffled(forwarding):
    with pytest.raises(Refused, match="must state a batch"):
        forwarding(batch=0)


def test_a_batch_never_becomes_smaller_than_respondents_were_told(house, forwarding):
    """The collector says less after a restart: nothing is forwarded to it."""
    one = forwarding(batch=20)
    for number in range(12):
        one.hand_in(number)

    class Says(Connection):
        def get(self, *path):
            told = super().get(*path)
            return {**told, "survey": {**told["survey"], "batch": 10}}

    with pytest.raises(Refused, match="must say what it said"):
        one.reopen(Says(house.url, one.key))
    one.waiting.close()
    one.open()
    one.shuffler.forward()
    assert one.counted() == 0


def test_one_process_at_a_time(house, forwarding):
    forwarding()
    with pytest.raises(LedgerUnavailable, match="this process alone"):
        Waiting(house.folder / "dodona.waiting")


def test_respondents_speak_with_the_shuffler_alone(house, forwarding, monkeypatch):
    """The whole of a respondent's visit: the collector hears nothing of it until there is a batch."""
    one = forwarding()
    asked = []
    sent = Connection.send

    def heard(self, method, path, *more, **named):
        asked.append((method, path[-1], threading.current_thread() is threading.main_thread()))
        return sent(self, method, path, *more, **named)

    monkeypatch.setattr(Connection, "send", heard)
    with listening(make_shuffler(one.shuffler, every=3600)) as url, httpx.Client(base_url=url) as client:
        for path in (
            f"/survey/{one.id}",
            "/assets/survey.js",
            f"/v1/surveys/{one.id}",
            f"/v1/surveys/{one.id}/estimates",
        ):
            assert client.get(path).status_code == 200
        form = client.get(f"/v1/surveys/{one.id}").json()
        assert form["shuffler"].pop("here") is True  # what the collector hands out takes no answers
        assert form == house.send("GET", f"/v1/surveys/{one.id}", None).json()
        assert client.get(f"/v1/surveys/{one.id}/invitations").json() == {"invitations": one.invitations}
        for number in range(12):
            body = {"question": "q1", "report": base64.b64encode(one.report()).decode()}
            body = {"reports": [body], "token": f"{number:032x}"}
            assert client.post(f"/v1/surveys/{one.id}/reports", json=body).status_code == 204
            again = client.post(f"/v1/surveys/{one.id}/reports", json=body)
            assert again.status_code == 409
            assert again.json()["reason"] == "already-counted"
        assert client.get("/v1/surveys/other").status_code == 404
        assert client.get("/survey/other").status_code == 404
        assert client.get("/assets/index.html").status_code == 404
        assert client.get("/v1/datasets").status_code == 404
        bad = {"reports": [{"question": "q1", "report": "AAAA"}], "token": "f" * 32}
        assert client.post(f"/v1/surveys/{one.id}/reports", json=bad).status_code == 422
    assert asked == []
    one.shuffler.forward()
    assert [what for _, what, _ in asked] == ["parts", "estimates"]
    assert one.counted() == 12


def test_the_survey_reads_back_with_its_batch():
    survey = Survey.read("x", STATED)
    assert Survey.read("x", survey.describe()) == survey
    assert "batch" not in Survey.read("x", {**STATED, "batch": 0}).describe()


def test_a_tick_at_which_our_own_file_cannot_be_written_is_not_the_last(forwarding, monkeypatch):
    one = forwarding()
    for number in range(10):
        one.hand_in(number)

    def full(survey, batch):
        raise LedgerUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(one.waiting, "gather", full)
        one.shuffler.forward()
    assert "the disk is full" in one.said[-1]
    one.shuffler.forward()
    assert one.counted() == 10
