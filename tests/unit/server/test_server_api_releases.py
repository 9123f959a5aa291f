"""Releases over the API: priced before they spend, followed, refused, and their synopses free."""

import time

import numpy as np
import pytest

import dodona as dd
from tests.support.servers import problem_code


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
    assert (outside.status_code, problem_code(outside)) == (422, "unsupported")
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
    for _ in range(1000):
        state = house.send("GET", f"/v1/datasets/people/releases/{started['id']}", "curator").json()
        if state["state"] != "running":
            break
        time.sleep(0.05)
    assert state["state"] == "refused"
    assert house.spent() == 0
