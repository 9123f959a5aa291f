"""The API as its callers meet it: roles, shares, retries, refusals, and nothing charged that was refused."""

import json
import re
import threading

import pytest

import dodona as dd
from dodona.errors import AnswerLost
from dodona.query.statistic import Partition, Products, Stack, Value, as_expr
from tests.support.servers import problem_code

QUESTION = {"question": "age >= 65 AND smoker", "effort": {"share": "0.01"}}


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
    offers = [house.post("price", {**form, "effort": {"tolerance": "0.05"}}).json() for form in forms[:2]]
    printed = str(round(0.05 * offers[0]["rows"]))  # a SELECT prints a total, and a tolerance is of what is printed
    offers.append(house.post("price", {**forms[2], "effort": {"tolerance": printed}}).json())
    assert len({offer["cost"]["amount"] for offer in offers}) == 1
    assert offers[2]["columns"] == [{"column": "n", "margin": float(printed), "size": None, "lost": False}]


def test_a_tolerance_that_cannot_be_kept_for_every_number_is_refused(house):
    """Was priced as a mean within 0.5, and answered 42 ± 42."""
    before = house.spent()
    for route, asked in [("price", "sql"), ("ask", "sql"), ("sql", "sql"), ("price", "question")]:
        body = {asked: "SELECT AVG(income) FROM people WHERE age > 60", "effort": {"tolerance": "0.5"}}
        refused = house.post(route, body)
        assert refused.status_code == 422
        assert "kept for every number that is printed" in refused.json()["detail"]
        assert "State share=, epsilon= or rho= instead; the price of the same statement" in refused.json()["detail"]
    assert house.spent() == before
    followed = {"sql": "SELECT AVG(income) FROM people WHERE age > 60", "effort": {"share": "0.05"}}
    (column,) = house.post("price", followed).json()["columns"]
    assert column["size"]
    assert column["margin"] > 0


def test_a_select_s_price_and_table_say_how_good_each_number_is(house):
    text = "SELECT sex, COUNT(*) AS n, AVG(income) AS mean FROM people WHERE age > 97 GROUP BY sex"
    price = house.post("price", {"sql": text, "effort": {"share": "0.01"}}).json()
    assert [column["column"] for column in price["columns"]] == ["n", "mean"]
    assert price["columns"][0]["size"] is None
    assert price["columns"][1]["size"] == price["rows"] // 3  # two sexes, and those of neither
    tables = [house.post("sql", {"sql": text, "effort": {"share": "0.01"}}).json() for _ in range(4)]
    # One time in forty noise alone looks like a row in (other): not four times.
    table = next((one for one in tables if "mean_note" in one["records"][-1]), tables[0])
    assert table["proven"] is True
    assert "a row in none of the groups of sex is in (other)" in table["leaves_out"]
    assert table["records"][-1]["sex"] == "(other)"
    assert table["records"][-1]["mean_note"] == "lost in noise"
    assert any("worth nothing at this price" in note for note in table["notes"])


def test_a_statement_is_finished_behind_the_server_too(house):
    core = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"
    text = (
        f"WITH c AS ({core}) SELECT sex, n, 100 * n / SUM(n) OVER () AS percent FROM c ORDER BY n DESC LIMIT 1; -- top"
    )
    effort = {"share": "0.01"}
    costs = [house.post("price", {"sql": one, "effort": effort}).json()["cost"]["amount"] for one in (core, text)]
    assert costs[0] == costs[1]
    table = house.post("sql", {"sql": text, "effort": effort}).json()
    assert table["columns"] == ["sex", "n", "percent"]
    assert len(table["records"]) == 1
    assert table["told"][0].startswith("noise had a part in choosing these 1 rows")
    assert table["told"][0] in table["notes"]
    refused = house.post("sql", {"sql": "SELECT MD5(sex) FROM people", "effort": effort})
    assert refused.status_code == 422
    assert "MD5 is not part of the language: the same value gives the same text" in refused.json()["detail"]


def test_losses_are_counted_with_one_charge(house):
    before = house.spent()
    table = house.post("losses", {"columns": ["age", "sex"], "effort": {"share": "0.01"}}).json()
    assert [record["column"] for record in table["records"]] == ["age"] * 3 + ["sex"] * 2
    assert all(record["rows_margin"] > 0 for record in table["records"])
    assert house.spent() - before == pytest.approx(table["cost"]["amount"])
    assert house.post("losses", {"columns": ["nothing"], "effort": {"share": "0.01"}}).status_code == 422
    assert house.post("losses", {"columns": [], "effort": {"share": "0.01"}}).status_code == 422


def test_sql_gives_a_table(house):
    body = {"sql": "SELECT sex, COUNT(*) AS n, AVG(income) FROM people GROUP BY sex", "effort": {"share": "0.1"}}
    table = house.post("sql", body).json()
    assert [record["sex"] for record in table["records"]] == ["Female", "Male", "(other)"]
    assert all(record["n_margin"] > 0 for record in table["records"])
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
    assert (other.status_code, problem_code(other)) == (409, "refused")
    assert house.spent() == spent
    mine = house.post("ask", QUESTION, "b", headers=name)  # b's name for a request is not a's
    assert mine.json()["total"] != first.json()["total"] or mine.json()["cost"]["hash"] != first.json()["cost"]["hash"]
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
    monkeypatch.setattr("dodona.server.routes.questions._TRIES", 2)
    headers = {"Idempotency-Key": "lost"}
    for _ in range(2):
        response = house.post("ask", QUESTION, headers=headers)
        assert (response.status_code, problem_code(response)) == (500, "answer-lost")
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
    assert set(everyones["items"][0]) == {"entry", "time", "analyst", "text", "cost", "share", "keys"}


def test_shares_hold_and_their_sum_never_passes_the_lifetime(house):
    """Ten of a's three tenths fit, the next is refused; b and the curator together stop at the lifetime (V43, R6)."""
    tenth = {**QUESTION, "effort": {"share": "0.1"}}
    assert [house.post("ask", tenth).status_code for _ in range(4)] == [200, 200, 200, 409]
    refused = house.post("ask", tenth)
    assert problem_code(refused) == "budget-spent"
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
        assert (problem_code(response), response.status_code // 100) == (expected, 4), (body, response.text)
        assert response.json()["charged"] is False
    assert house.spent() == 0


def test_large_bodies_are_refused_before_they_are_read(house):
    response = house.post("ask", b" " * (2 << 20))
    assert (response.status_code, problem_code(response)) == (413, "too-large")

    def endless():
        for _ in range(200):
            yield b" " * 65536

    response = house.send(
        "POST", "/v1/datasets/people/ask", content=endless(), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 413
    wrong = house.send("POST", "/v1/datasets/people/ask", content=b"{}", headers={"Content-Type": "text/plain"})
    assert (wrong.status_code, problem_code(wrong)) == (415, "media-type")


def test_an_answer_too_wide_is_refused_before_the_charge(house):
    wide = Partition(
        as_expr("age"), Partition(as_expr("FLOOR(income)"), Partition(as_expr("sex"), Value(as_expr("1"))))
    )
    response = house.post("ask", {"query": Stack((wide,) * 4).to_json(), "effort": {"share": "0.01"}})
    assert (response.status_code, problem_code(response)) == (422, "bad-query")
    conditions = tuple(as_expr(f"age >= {i}") for i in range(64))
    response = house.post(
        "ask", {"query": Products(conditions, as_expr("1"), 4).to_json(), "effort": {"share": "0.01"}}
    )
    assert response.status_code == 422
    assert house.spent() == 0


def test_unknown_addresses_and_methods(house):
    assert problem_code(house.send("GET", "/v2/datasets")) == "not-found"
    assert problem_code(house.send("PUT", "/v1/datasets")) == "no-method"
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


def test_a_hole_where_an_expression_must_stand_is_refused(house):
    for text in ("SELECT SUM() FROM people", "SELECT COUNT() FROM people", "SELECT AVG() FROM people GROUP BY sex"):
        found = house.post("price", {"sql": text, "effort": {"share": "0.1"}})
        assert (found.status_code, problem_code(found)) == (422, "bad-query"), text


def test_price_reads_no_row(house, monkeypatch):
    """V40: priced alike on any data, since no row is read."""
    for data in house.service.datasets:
        monkeypatch.setattr(data.table.engine, "totals", None)
    assert house.post("price", QUESTION).status_code == 200
    assert house.spent() == 0
