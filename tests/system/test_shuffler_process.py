"""Collector and shuffler as two real processes: killed, restarted, and a respondent's browser that meets only one."""

import base64
import json
import urllib.error
import urllib.request

import numpy as np
import pytest

import dodona as dd
from dodona.local.client import Client
from tests.support.browsers import Tab
from tests.support.servers import Process, add_key, write_survey

STATED = {
    "title": "Travel",
    "epsilon": "2",
    "batch": 10,
    "questions": [{"text": "Do you own a car?", "kind": "yes-no"}],
    "tokens": 40,
}


def send(url, path, body=None, key=None):
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=30) as response:
        return json.loads(response.read() or "null")


@pytest.fixture
def collector(tmp_path):
    write_survey(tmp_path, {"smoker": np.arange(50) % 2 == 0}, dd.Schema({"smoker": dd.Flag()}), {"epsilon": 1})
    keys = add_key(tmp_path, "boss"), add_key(tmp_path, "shuffler", role="shuffler")
    server = Process(tmp_path, [tmp_path / "people.toml"])
    made = send(server.url, "/v1/surveys", STATED, keys[0])
    yield server, keys[1], made["id"], made["tokens"]
    server.stop()


def hand_in(url, id, token):
    text = send(url, f"/v1/surveys/{id}/invitations")["invitations"]["q1"]
    report = base64.b64encode(Client(total=10).report(text, {"answer": True})).decode()
    send(url, f"/v1/surveys/{id}/reports", {"reports": [{"question": "q1", "report": report}], "token": token})


def counted(server, id):
    return send(server.url, f"/v1/surveys/{id}/estimates")["reports"]


def eventually(find, wanted):
    import time

    for _ in range(200):
        if find() == wanted:
            return
        time.sleep(0.05)
    assert find() == wanted


def test_a_shuffler_that_is_killed_loses_no_report_and_forwards_none_twice(collector, tmp_path):
    server, key, id, tokens = collector
    folder = tmp_path / "shuffler"
    folder.mkdir()
    one = Process.shuffling(folder, server.url, [id], key, "--every", "3600")
    assert f"{one.url}/survey/{id}" in one.out
    for token in tokens[:12]:
        hand_in(one.url, id, token)
    one.kill()
    assert counted(server, id) == 0
    again = Process.shuffling(folder, server.url, [id], key, "--every", "0.05")
    eventually(lambda: counted(server, id), 12)
    with pytest.raises(urllib.error.HTTPError, match="409"):
        hand_in(again.url, id, tokens[0])
    for token in tokens[12:21]:
        hand_in(again.url, id, token)
    eventually(lambda: send(again.url, f"/v1/surveys/{id}/estimates")["reports"], 12)
    assert again.stop() in (0, -15)
    assert counted(server, id) == 12
    kept = (folder / "dodona.waiting").read_bytes() + (folder / f"out.{again.port}").read_bytes()
    assert b"127.0.0.1" not in kept.replace(again.url.encode(), b"")
    assert not any(token.encode() in kept for token in tokens)


def test_a_respondents_browser_meets_the_shuffler_alone(browser, collector, tmp_path):
    server, key, id, tokens = collector
    shuffler = Process.shuffling(tmp_path, server.url, [id], key, "--every", "0.05")
    tab = Tab(browser)
    try:
        tab.page.goto(f"{shuffler.url}/survey/{id}#token={tokens[0]}")
        told = tab.page.get_by_text("belongs to a shuffler").inner_text()
        assert "at least 10" in told
        assert "rests on the shuffler" in tab.page.content()
        tab.page.get_by_role("radio", name="Yes").check()
        tab.page.get_by_role("button", name="Prepare my report").click()
        tab.page.get_by_role("button", name="Send this report").click()
        tab.page.get_by_text("waits for its batch").wait_for()
        assert {request.url.split("/")[2] for request in tab.requests} == {shuffler.url.split("/")[2]}
        assert tab.faults == []
        for token in tokens[1:10]:
            hand_in(shuffler.url, id, token)
        eventually(lambda: counted(server, id), 10)
    finally:
        tab.context.close()
        shuffler.stop()


def test_the_collectors_own_page_takes_no_answers_to_a_survey_of_a_shuffler(browser, collector):
    """It would promise a crowd, and hand the report to the collector itself, which sees whose it is."""
    server, _, id, tokens = collector
    tab = Tab(browser)
    try:
        tab.page.goto(f"{server.url}/survey/{id}#token={tokens[0]}")
        tab.page.get_by_role("heading", name="Travel").wait_for()
        assert tab.page.get_by_role("radio").count() == 0
        assert "belongs to a shuffler" not in tab.page.content()
        assert "Open the shuffler's link" in tab.page.content()
        assert tab.faults == []
    finally:
        tab.context.close()
