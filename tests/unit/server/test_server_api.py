"""The API as its callers meet it: roles, shares, retries, refusals, and nothing charged that was refused."""

import json
import re
import threading
import time

import numpy as np
import pytest

import dodona as dd
from dodona.errors import AnswerLost
from dodona.query.statistic import Partition, Products, Stack, Value, as_expr

QUESTION = {"question": "age >= 65 AND smoker", "effort": {"share": "0.01"}}
PROBLEM = {"type", "title", "status", "code", "detail", "request_id", "charged"}


def code(response):
    assert response.headers["content-type"] == "application/problem+json"
    assert set(response.json()) >= PROBLEM
    return response.json()["code"]


def test_price_then_ask(house):
    price, before = house.post("price", QUESTION), house.spent()
    assert price.status_code == 200, price.text
    assert before == 0
    offer = price.json()
    assert offer["affordable"]
    answer = house.post("ask", QUESTION).json()
    assert answer["margin"] == offer["margin"]
    assert answer["cost"]["amount"] == offer["cost"]["amount"]
    assert house.spent() == pytest.approx(answer["cost"]["amount"], rel=1e-12)
    dd.Answer.from_json(json.dumps(answer))


def test_three_forms_of_a_question_cost_the_same(house):
    forms = [
        {"question": "age >= 65"},
        {"query": Value(as_expr("age >= 65")).to_json()},
        {"sql": "SELECT COUNT(*) AS n FROM people WHERE age >= 65"},
    ]
    offers = [house.post("price", {**form, "effort": {"tolerance": "0.05"}}).json() for form in forms]
    assert len({offer["cost"]["amount"] for offer in offers}) == 1


def test_sql_gives_a_table(house):
    body = {"sql": "SELECT sex, COUNT(*) AS n, AVG(income) FROM people GROUP BY sex", "effort": {"share": "0.1"}}
    table = house.post("sql", body).json()
    assert [record["sex"] for record in table["records"]] == ["Female", "Male"]
    assert all(record["n ±"] > 0 for record in table["records"])
    assert table["answer"]["cost"] == table["cost"]


def test_select_and_run(house):
    chosen = house.post("select", {"candidates": ["FALSE", "age >= 0"], "effort": {"share": "0.2"}})
    assert chosen.json()["index"] == 1
    query = Stack((Value(as_expr("age >= 0")), Value(as_expr("FALSE")))).to_json()
    assert house.post("select", {"query": query, "effort": {"share": "0.05"}}).json()["index"] == 0
    parity = {"bits": [{"col": "smoker"}], "label": {"col": "smoker"}, "parts": 1, "repeats": 1, "part_rows": 50}
    body = {"procedure": {"parity": {**parity, "test_rows": 50}}, "effort": {"epsilon": "0.1"}}
    found = house.post("run", body)
    assert found.status_code == 200, found.text
    assert set(found.json()["value"]) == {"r", "wrong"}


# -- retries (V42) ----------------------------------------------------------------------------------------------------


def test_a_retry_is_neither_charged_twice_nor_given_new_noise(house):
    name = {"Idempotency-Key": "my request"[3:]}
    first = house.post("ask", QUESTION, headers=name)
    spent = house.spent()
    again = [house.post("ask", QUESTION, headers=name).text for _ in range(3)]
    assert again == [first.text] * 3
    assert house.spent() == spent
    other = house.post("ask", {**QUESTION, "question": "age >= 66"}, headers=name)
    assert (other.status_code, code(other)) == (409, "refused")
    assert house.spent() == spent
    mine = house.post("ask", QUESTION, "b", headers=name)  # b's name for a request is not a's
    assert mine.json()["total"] != first.json()["total"] or mine.json()["cost"]["seq"] != first.json()["cost"]["seq"]
    assert house.spent() == pytest.approx(2 * spent)


def test_the_same_name_at_once_is_charged_once(house):
    answers = []
    headers = {"Idempotency-Key": "together"}

    def send():
        answers.append(house.post("ask", QUESTION, headers=headers).text)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 1, answers
    assert house.send("GET", "/v1/datasets/people/ledger", "curator").json()["items"][1:] == []


@pytest.mark.parametrize("name", ["", "a b", "é", "a" * 129])
def test_odd_names_are_refused(house, name):
    response = house.post("ask", QUESTION, headers={"Idempotency-Key": name.encode()})
    assert response.status_code in (400, 422)
    assert house.spent() == 0


def test_without_a_name_each_request_is_a_new_question(house):
    first, second = house.post("ask", QUESTION).json(), house.post("ask", QUESTION).json()
    assert first["cost"]["seq"] != second["cost"]["seq"]


def test_a_fault_after_the_charge_is_charged_and_says_nothing(house, monkeypatch):
    """V45: not refunded, one fixed text; the same name again finds the loss, a new name is charged again."""
    engine = next(iter(house.service.datasets)).table.engine

    def broken(_):
        raise RuntimeError("row 17 holds 4711")

    monkeypatch.setattr(engine, "totals", broken)
    monkeypatch.setattr("dodona.server.questions._TRIES", 2)
    headers = {"Idempotency-Key": "lost"}
    for _ in range(2):
        response = house.post("ask", QUESTION, headers=headers)
        assert (response.status_code, code(response)) == (500, "answer-lost")
        assert response.json()["charged"] is True
        assert "4711" not in response.text
        assert response.json()["detail"] == str(AnswerLost())
    spent = house.spent()
    assert spent > 0
    house.post("ask", QUESTION)
    assert house.spent() == pytest.approx(2 * spent)
    assert "4711" not in (house.folder / "audit.log").read_text()


# -- who may what (V56, V57, R11) -------------------------------------------------------------------------------------


def test_every_bad_key_gets_the_same_refusal(house):
    token = house.keys["a"]
    other = token[:-1] + ("A" if token[-1] != "A" else "B")
    bodies = set()
    for key in (None, "garbage", "expired", other, "ddn_0123456789abcdef_" + "x" * 43, "Bearer", token + "x"):
        response = house.send("GET", "/v1/datasets", key, headers={"X-Request-Id": "same"})
        assert response.status_code == 401
        bodies.add(response.text)
    in_url = house.client.get(f"/v1/datasets?key={token}&access_token={token}", headers={"X-Request-Id": "same"})
    bodies.add(in_url.text)
    assert len(bodies) == 1
    wrong_role = house.send("GET", "/v1/keys", "a", headers={"X-Request-Id": "same"})
    assert wrong_role.status_code == 403
    assert wrong_role.text == bodies.pop().replace("401", "403")
    log = (house.folder / "audit.log").read_text()
    assert token.split("_", 2)[2] not in log


def test_revocation_holds_at_once(house):
    made = house.send("POST", "/v1/keys", "curator", json={"analyst": "c", "share": "0.1"})
    assert made.status_code == 201, made.text
    token = made.json()["token"]
    assert house.send("GET", "/v1/datasets", token).status_code == 200
    assert house.send("DELETE", f"/v1/keys/{made.json()['id']}", "curator").status_code == 204
    assert house.send("GET", "/v1/datasets", token).status_code == 401
    assert house.send("DELETE", "/v1/keys/none", "curator").status_code == 404
    listed = house.send("GET", "/v1/keys", "curator")
    assert token not in listed.text
    assert "token" not in listed.json()["items"][0]


def test_unknown_and_forbidden_datasets_look_alike(house):
    for method, route in (("GET", ""), ("GET", "/ledger"), ("GET", "/synopses"), ("POST", "/price"), ("POST", "/ask")):
        found = set()
        for name in ("hidden", "nosuch"):
            response = house.send(method, f"/v1/datasets/{name}{route}", "a", headers={"X-Request-Id": "same"})
            assert response.status_code == 404
            found.add((response.content, tuple(sorted(k for k in response.headers))))
        assert len(found) == 1
    assert house.send("GET", "/v1/datasets", "a").json() == {"items": [{"name": "people"}], "next": None}
    names = [item["name"] for item in house.send("GET", "/v1/datasets", "curator").json()["items"]]
    assert names == ["hidden", "people"]
    first = house.send("GET", "/v1/datasets?limit=1", "curator").json()
    assert (first["items"], first["next"]) == ([{"name": "hidden"}], "hidden")
    assert house.send("GET", "/v1/datasets?limit=1&after=hidden", "curator").json()["items"] == [{"name": "people"}]


def test_an_analyst_sees_their_own_charges_and_the_totals(house):
    for key in ("a", "b", "a"):
        house.post("ask", QUESTION, key)
    mine = house.send("GET", "/v1/datasets/people/ledger", "a").json()
    everyones = house.send("GET", "/v1/datasets/people/ledger", "curator").json()
    assert {item["analyst"] for item in mine["items"]} == {"analyst-a"}
    assert [len(page["items"]) for page in (mine, everyones)] == [2, 3]
    assert mine["spent"] == everyones["spent"]
    first = house.send("GET", "/v1/datasets/people/ledger?limit=1", "a").json()
    second = house.send("GET", f"/v1/datasets/people/ledger?limit=1&after={first['next']}", "a").json()
    assert first["items"] + second["items"] == mine["items"]
    assert set(everyones["items"][0]) == {"entry", "time", "analyst", "text", "cost", "share"}


def test_shares_hold_and_their_sum_never_passes_the_lifetime(house):
    """Ten of a's three tenths fit, the next is refused; b and the curator together stop at the lifetime (V43, R6)."""
    tenth = {**QUESTION, "effort": {"share": "0.1"}}
    assert [house.post("ask", tenth).status_code for _ in range(4)] == [200, 200, 200, 409]
    refused = house.post("ask", tenth)
    assert code(refused) == "budget-spent"
    assert set(refused.json()) >= {"price", "left", "unit"}
    assert house.post("price", tenth).json()["affordable"] is False
    assert house.post("price", tenth, "b").json()["affordable"] is True
    assert [house.post("ask", tenth, "b").status_code for _ in range(4)] == [200, 200, 200, 409]
    assert [house.post("ask", tenth, "curator").status_code for _ in range(5)] == [200, 200, 200, 200, 409]
    page = house.send("GET", "/v1/datasets/people/ledger", "curator").json()
    assert page["spent"] <= page["total"]
    smallest = {**QUESTION, "effort": {"rho": "1e-12"}}
    if page["left"] == 0:
        assert house.post("ask", smallest).status_code == 409  # V44
    about = house.send("GET", "/v1/datasets/people", "a").json()
    assert about["analyst"]["left"] < 1e-9 * page["total"]  # whole units, rounded: a few of 10^13 may be left
    next(iter(house.service.datasets)).ledger.verify()


# -- what is refused (V55, V60) and what is never said ----------------------------------------------------------------

REFUSED = [
    ({**QUESTION, "seed": 1}, "bad-request"),
    ({**QUESTION, "effort": {"share": "0.01", "seed": 1}}, "bad-request"),
    ({**QUESTION, "effort": {"share": 0.01}}, "bad-request"),
    ({**QUESTION, "effort": {"share": True}}, "bad-request"),
    ({**QUESTION, "effort": {}}, "bad-effort"),
    ({**QUESTION, "effort": {"share": "0.1", "epsilon": "1"}}, "bad-effort"),
    *(({**QUESTION, "effort": {"epsilon": e}}, "bad-effort") for e in ("0", "-1", "NaN", "inf", "1e-400", "1e400", "")),
    ({"effort": {"share": "0.01"}}, "bad-query"),
    ({"question": "age", "sql": "SELECT 1", "effort": {"share": "0.01"}}, "bad-query"),
    ({"question": "nothing > 1", "effort": {"share": "0.01"}}, "bad-query"),
    ({"question": "(" * 300 + "age" + ")" * 300, "effort": {"share": "0.01"}}, "bad-query"),
    ({"question": "a" * 5000, "effort": {"share": "0.01"}}, "bad-request"),
    ({"question": "age; DROP TABLE people --", "effort": {"share": "0.01"}}, "bad-query"),
    ({"sql": "SELECT * FROM people", "effort": {"share": "0.01"}}, "bad-query"),
    ({"query": {"value": {"col": 3}}, "effort": {"share": "0.01"}}, "bad-query"),
    ({"query": {}, "effort": {"share": "0.01"}}, "bad-query"),
    ([1, 2], "bad-request"),
    ("[" * 100_000, "bad-json"),
    ('{"question": "age", "question": "age", "effort": {"share": "0.01"}}', "bad-json"),
    ('{"question": "age", "effort": {"share": NaN}}', "bad-json"),
    ('{"question": "age", "effort": {"epsilon": 1e400}}', "bad-json"),
    ('{"question": "age", "effort": {"epsilon": ' + "1" * 5001 + "}}", "bad-json"),
]


@pytest.mark.parametrize("route", ["price", "ask"])
def test_refused_without_charge(house, route):
    for body, expected in REFUSED:
        response = house.post(route, body)
        assert (code(response), response.status_code // 100) == (expected, 4), (body, response.text)
        assert response.json()["charged"] is False
    assert house.spent() == 0


def test_large_bodies_are_refused_before_they_are_read(house):
    response = house.post("ask", b" " * (2 << 20))
    assert (response.status_code, code(response)) == (413, "too-large")

    def endless():
        for _ in range(200):
            yield b" " * 65536

    response = house.send(
        "POST", "/v1/datasets/people/ask", content=endless(), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413
    wrong = house.send("POST", "/v1/datasets/people/ask", content=b"{}", headers={"Content-Type": "text/plain"})
    assert (wrong.status_code, code(wrong)) == (415, "media-type")


def test_an_answer_too_wide_is_refused_before_the_charge(house):
    wide = Partition(
        as_expr("age"), Partition(as_expr("FLOOR(income)"), Partition(as_expr("sex"), Value(as_expr("1"))))
    )
    response = house.post("ask", {"query": Stack((wide,) * 4).to_json(), "effort": {"share": "0.01"}})
    assert (response.status_code, code(response)) == (422, "bad-query")
    conditions = tuple(as_expr(f"age >= {i}") for i in range(64))
    response = house.post(
        "ask", {"query": Products(conditions, as_expr("1"), 4).to_json(), "effort": {"share": "0.01"}}
    )
    assert response.status_code == 422
    assert house.spent() == 0


def test_unknown_addresses_and_methods(house):
    assert code(house.send("GET", "/v2/datasets")) == "not-found"
    assert code(house.send("PUT", "/v1/datasets")) == "no-method"
    assert house.send("GET", "/v1/datasets/people/ledger?limit=0").status_code == 422
    assert house.send("GET", "/v1/datasets/people/ledger?after=x").status_code == 422


def test_labels_are_text(house):
    """V59: what an asker writes is kept as text, in the ledger and in the log."""
    evil = "sex = '''); DELETE FROM charges;--' OR sex = '<img src=x onerror=alert(1)>'"
    response = house.post("ask", {"question": evil, "effort": {"share": "0.01"}})
    assert response.status_code in (200, 422)
    house.post("ask", QUESTION)
    assert next(iter(house.service.datasets)).ledger.verify().entries >= 2


def test_headers_and_ids(house):
    response = house.send("GET", "/v1/datasets", headers={"X-Request-Id": "my-id.1"})
    assert response.headers["x-request-id"] == "my-id.1"
    made = house.send("GET", "/v1/datasets", headers={"X-Request-Id": "not an id\x7f"}).headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{16}", made)
    for path in ("/v1/datasets", "/healthz", "/nowhere", "/openapi.json"):
        headers = house.send("GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    assert response.headers["cache-control"] == "no-store"


def test_too_many_requests(house):
    house.service.gate._requests.rate = house.service.gate._requests.burst = 1.0
    house.service.gate._requests._levels.clear()
    statuses = [house.send("GET", "/v1/datasets").status_code for _ in range(3)]
    assert statuses[0] == 200
    assert 429 in statuses
    assert house.send("GET", "/v1/datasets", "curator").status_code == 200  # of one key only


# -- operations -------------------------------------------------------------------------------------------------------


def test_health_turns_red_with_the_ledger(house):
    assert house.client.get("/healthz").json() == {"status": "ok"}
    (house.folder / "people.ledger").unlink()
    red = eventually(lambda: house.client.get("/healthz"), lambda found: found.status_code == 503)  # kept a second
    assert (red.status_code, red.json()) == (503, {"status": "red"})
    lost = house.post("ask", QUESTION)
    assert (lost.status_code, code(lost)) == (503, "ledger")


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
    assert (found.status_code, code(found)) == (500, "fault")
    assert found.headers["content-type"] == "application/problem+json"
    log = eventually((house.folder / "audit.log").read_text, lambda text: '"broken-one"' in text)
    (line,) = [line for line in map(json.loads, log.splitlines()) if line["request"] == "broken-one"]
    assert (line["status"], line["code"]) == (500, "fault")
    assert re.fullmatch(r"RuntimeError at \w+\.py:\d+", line["about"])
    assert "4711" not in found.text + log + "".join(capfd.readouterr())


def test_a_hole_where_an_expression_must_stand_is_refused(house):
    for text in ("SELECT SUM() FROM people", "SELECT COUNT() FROM people", "SELECT AVG() FROM people GROUP BY sex"):
        found = house.post("price", {"sql": text, "effort": {"share": "0.1"}})
        assert (found.status_code, code(found)) == (422, "bad-query"), text


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


def test_price_reads_no_row(house, monkeypatch):
    """V40: priced alike on any data, since no row is read."""
    for data in house.service.datasets:
        monkeypatch.setattr(data.table.engine, "totals", None)
    assert house.post("price", QUESTION).status_code == 200
    assert house.spent() == 0


def test_a_release_and_its_synopsis(house):
    body = {"kind": "intervals", "settings": {"column": "age", "bits": 4}, "effort": {"share": "0.2"}}
    assert house.send("POST", "/v1/datasets/people/releases", "a", json=body).status_code == 403
    started = house.send("POST", "/v1/datasets/people/releases", "curator", json=body)
    assert started.status_code == 202, started.text
    path = f"/v1/datasets/people/releases/{started.json()['id']}"
    for _ in range(200):
        state = house.send("GET", path, "curator").json()
        if state["state"] != "running":
            break
        time.sleep(0.1)
    assert state["state"] == "done", state
    assert state["progress"]["asked"] >= 1
    assert 0 < state["progress"]["share"] <= 0.2 + 1e-9
    spent = house.spent()
    listed = house.send("GET", "/v1/datasets/people/synopses").json()["items"]
    assert [item["id"] for item in listed] == [state["synopsis"]]
    free = house.post(f"synopses/{state['synopsis']}/ask", {"question": "age >= 50"})
    assert free.status_code == 200, free.text
    assert abs(free.json()["total"] - 250) < 150
    counted = house.post(
        f"synopses/{state['synopsis']}/ask", {"sql": "SELECT COUNT(*) AS n FROM people WHERE age < 50"}
    )
    assert counted.status_code == 200, counted.text
    outside = house.post(f"synopses/{state['synopsis']}/ask", {"question": "income > 5"})
    assert (outside.status_code, code(outside)) == (422, "unsupported")
    assert house.spent() == spent
    file = house.send("GET", f"/v1/datasets/people/synopses/{state['synopsis']}").content
    (house.folder / "got.synopsis").write_bytes(file)
    assert np.isfinite(dd.load(house.folder / "got.synopsis").ask("age >= 50").total)
    assert house.send("GET", "/v1/datasets/people/releases", "curator").json()["items"][0]["state"] == "done"


@pytest.mark.parametrize(
    ("kind", "settings", "first"),
    [
        ("conjunctions", {"width": 2, "columns": ["sex", "smoker"]}, "a conjunction, on average"),
        ("intervals", {"column": "age", "bits": 4}, "a random range, on average"),
        ("boxes", {"columns": ["age", "income"], "bits": 4}, "a random box, 95 times of 100"),
    ],
)
def test_a_release_has_its_price_before_anything_is_spent(house, monkeypatch, kind, settings, first):
    for data in house.service.datasets:
        monkeypatch.setattr(data.table.engine, "totals", None)  # no row is read
    body = {"kind": kind, "settings": settings, "effort": {"share": "0.25"}}
    assert house.send("POST", "/v1/datasets/people/releases/price", "a", json=body).status_code == 403
    found = house.send("POST", "/v1/datasets/people/releases/price", "curator", json=body)
    assert found.status_code == 200, found.text
    price = found.json()
    whole = house.send("GET", "/v1/datasets/people", "curator").json()["left"]
    assert price["cost"]["share"] == pytest.approx(0.25)
    assert price["cost"]["amount"] + price["cost"]["left"] == pytest.approx(whole)
    assert price["affordable"]
    assert price["methods"][0]["words"] == first
    dearer = {**body, "effort": {"share": "1/100"}}
    worse = house.send("POST", "/v1/datasets/people/releases/price", "curator", json=dearer).json()["methods"][0]
    assert 0 < price["methods"][0]["error"] < worse["error"]
    assert house.spent() == 0


@pytest.mark.parametrize(
    ("kind", "settings", "status"),
    [
        ("intervals", {"column": ["age"]}, 422),
        ("intervals", {}, 422),
        ("boxes", {"columns": ["age"]}, 422),
        ("cuts", {"tail": "age", "head": "income"}, 422),
        ("cuts", {"tail": "age", "head": "age"}, 200),
    ],
)
def test_a_release_that_cannot_be_priced_is_refused(house, kind, settings, status):
    body = {"kind": kind, "settings": settings, "effort": {"share": "0.25"}}
    assert house.send("POST", "/v1/datasets/people/releases/price", "curator", json=body).status_code == status
    assert house.spent() == 0


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "os.system", "settings": {}, "effort": {"share": "0.1"}},
        {"kind": "intervals", "settings": {"seed": 1}, "effort": {"share": "0.1"}},
        {"kind": "intervals", "settings": {"column": "age"}, "effort": {"tolerance": "0.1"}},
    ],
)
def test_odd_releases_are_refused(house, body):
    assert house.send("POST", "/v1/datasets/people/releases", "curator", json=body).status_code == 422
    assert house.spent() == 0


def test_a_release_with_a_wrong_setting_ends_refused(house):
    body = {"kind": "intervals", "settings": {"column": ["age"]}, "effort": {"share": "0.1"}}
    started = house.send("POST", "/v1/datasets/people/releases", "curator", json=body).json()
    for _ in range(100):
        state = house.send("GET", f"/v1/datasets/people/releases/{started['id']}", "curator").json()
        if state["state"] != "running":
            break
        time.sleep(0.05)
    assert state["state"] == "refused"
    assert house.spent() == 0
