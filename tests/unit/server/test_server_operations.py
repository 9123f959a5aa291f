"""What an operator sees of the server: health, metrics, the audit log, and faults of our own without their words."""

import json
import re
import time
from dataclasses import fields

from dodona.server.shapes import PLAIN
from tests.support.servers import problem_code

QUESTION = {"question": "age >= 65 AND smoker", "effort": {"share": "0.01"}}


def test_health_turns_red_with_the_ledger(house):
    assert house.client.get("/healthz").json() == {"status": "ok"}
    (house.folder / "people.ledger").unlink()
    red = eventually(lambda: house.client.get("/healthz"), lambda found: found.status_code == 503)  # kept a second
    assert (red.status_code, red.json()) == (503, {"status": "red"})
    lost = house.post("ask", QUESTION)
    assert (lost.status_code, problem_code(lost)) == (503, "ledger")


def eventually(read, there):
    """What is written once the response has left may come a moment after it."""
    for _ in range(500):
        if there(found := read()):
            break
        time.sleep(0.01)
    return found


def test_a_fault_of_ours_is_a_problem_document_and_no_log_gets_its_words(house, monkeypatch, capfd):
    """R12: one fixed text for whoever asked; the kind of error and the line for whoever mends it."""

    def broken(*_, **__):
        raise RuntimeError("row 17 holds 4711")

    monkeypatch.setattr(next(iter(house.service.datasets)).book, "left", broken)
    found = house.send("GET", "/v1/datasets/people", headers={"X-Request-Id": "broken-one"})
    assert (found.status_code, problem_code(found)) == (500, "fault")
    assert found.headers["content-type"] == "application/problem+json"
    log = eventually((house.folder / "audit.log").read_text, lambda text: '"broken-one"' in text)
    (line,) = [line for line in map(json.loads, log.splitlines()) if line["request"] == "broken-one"]
    assert (line["status"], line["code"]) == (500, "fault")
    assert re.fullmatch(r"RuntimeError at \w+\.py:\d+", line["about"])
    assert "4711" not in found.text + log + "".join(capfd.readouterr())


def test_metrics_count(house):
    house.post("ask", QUESTION)
    house.post("price", {**QUESTION, "question": "nothing"})
    assert house.client.get("/metrics").status_code == 401
    assert house.send("GET", "/metrics", "a").status_code == 403

    def read():
        return house.send("GET", "/metrics", "curator").text

    text = eventually(read, lambda text: 'status="422"} 1' in text)
    assert re.search(r'dodona_requests_total\{.*route="/v1/datasets/\{dataset\}/ask",status="200"\} 1', text)
    assert re.search(r'route="/v1/datasets/\{dataset\}/price",status="422"\} 1', text)
    assert re.search(r'dodona_budget_spent\{.*dataset="people"', text)


def test_every_request_is_audited(house):
    house.post("ask", QUESTION, headers={"X-Request-Id": "the-one"})
    log = eventually((house.folder / "audit.log").read_text, lambda text: '"the-one"' in text)
    (line,) = [line for line in map(json.loads, log.splitlines()) if line["request"] == "the-one"]
    assert line["analyst"] == "analyst-a"
    assert line["charge"] >= 1
    told = {"time", "pid", "request", "method", "route", "status", "key", "analyst", "role", "dataset", "charge", "ms"}
    assert set(line) == told  # of the question nothing
    assert line["route"] == "/v1/datasets/{dataset}/ask"


def test_a_response_has_every_field_of_the_value_it_shows(house):
    shown = house.send("GET", "/openapi.json", None).json()["components"]["schemas"]
    for value in PLAIN:
        assert shown[value.__name__]["required"] == [field.name for field in fields(value)]
    assert {"seq", "hash"} <= set(shown["Bill"]["required"])
