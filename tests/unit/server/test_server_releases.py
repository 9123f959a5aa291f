"""Releases over HTTP whose data are not the usual table: halfspaces of two columns, cuts of a graph."""

import shutil
import time

import httpx
import numpy as np
import pytest

import dodona as dd
from dodona.server.app import make_app
from dodona.server.settings import Settings
from tests.support.servers import listening, write_survey

VERTICES = 8


@pytest.fixture
def graph(made, tmp_path):
    """Requests of the curator's to a server of one graph: a ring, each edge twenty times."""
    folder, keys = made
    shutil.copy(folder / "dodona.keys", tmp_path)
    u = np.tile(np.arange(VERTICES), 20)
    ends = dd.Schema({"u": dd.Integer(0, VERTICES - 1), "v": dd.Integer(0, VERTICES - 1)})
    survey = write_survey(tmp_path, {"u": u, "v": (u + 1) % VERTICES}, ends, {"epsilon": 40}, name="ring")
    app = make_app(Settings((str(survey),), str(tmp_path), tick=0.001, audit=str(tmp_path / "audit.log"), rate=10_000))
    headers = {"Authorization": f"Bearer {keys['curator']}"}
    with listening(app) as url, httpx.Client(base_url=f"{url}/v1/datasets/ring", headers=headers, timeout=30) as client:
        yield client


def test_halfspaces_have_their_price_before_anything_is_spent(house, monkeypatch):
    for data in house.service.datasets:
        monkeypatch.setattr(data.table.engine, "totals", None)  # no row is read
    errors = []
    for share in ("0.25", "0.01"):
        settings = {"columns": ["age", "income"], "probes": 200}
        body = {"kind": "halfspaces", "settings": settings, "effort": {"share": share}}
        found = house.send("POST", "/v1/datasets/people/releases/price", "curator", json=body)
        assert found.status_code == 200, found.text
        assert found.json()["cost"]["share"] == pytest.approx(float(share))
        (method,) = found.json()["methods"]
        assert (method["method"], method["words"]) == ("probes", "a random halfspace, 95 times of 100")
        errors.append(method["error"])
    assert 0 < errors[0] < errors[1]
    assert house.spent() == 0


def test_cuts_are_priced_released_and_read(graph, tmp_path):
    body = {"kind": "cuts", "settings": {"tail": "u", "head": "v"}, "effort": {"epsilon": "20"}}
    price = graph.post("/releases/price", json=body)
    assert price.status_code == 200, price.text
    (method,) = price.json()["methods"]
    assert (price.json()["cost"]["amount"], method["method"]) == (20, "degrees and blocks")
    assert 0 < method["error"] < 160 / 2  # the number of edges is public here
    assert graph.get("/ledger").json()["spent"] == 0
    started = graph.post("/releases", json=body)
    assert started.status_code == 202, started.text
    for _ in range(600):
        state = graph.get(f"/releases/{started.json()['id']}").json()
        if state["state"] != "running":
            break
        time.sleep(0.1)
    assert state["state"] == "done", state
    spent = graph.get("/ledger").json()["spent"]
    assert 0 < spent <= 20 * (1 + 1e-9)
    (tmp_path / "got.synopsis").write_bytes(graph.get(f"/synopses/{state['synopsis']}").content)
    half = dd.load(tmp_path / "got.synopsis").body.cut(list(range(VERTICES // 2)))
    assert np.isfinite(float(getattr(half, "total", half)))
    assert graph.get("/ledger").json()["spent"] == spent


def test_keys_are_affordable_where_both_amounts_fit(made, tmp_path):
    folder, keys = made
    shutil.copy(folder / "dodona.keys", tmp_path)
    schema, promise = dd.Schema({"code": dd.Integer(0, 999)}), {"epsilon": 2, "delta": 1e-6, "keys": 1e-8}
    survey = write_survey(tmp_path, {"code": np.repeat([3, 5], 200)}, schema, promise, name="codes")
    app = make_app(Settings((str(survey),), str(tmp_path), tick=0.001, audit=str(tmp_path / "audit.log"), rate=10_000))
    headers = {"Authorization": f"Bearer {keys['curator']}"}
    with (
        listening(app) as url,
        httpx.Client(base_url=f"{url}/v1/datasets/codes", headers=headers, timeout=30) as client,
    ):
        body = {"kind": "keys", "settings": {"column": "code", "delta": 1e-8}, "effort": {"share": "0.1"}}
        price = client.post("/releases/price", json=body)
        assert price.status_code == 200, price.text
        assert price.json()["affordable"]
        question = {"keys": {"column": "code", "each": 1, "delta": "1/100000000"}}
        ran = client.post("/run", json={"procedure": question, "effort": {"share": "0.1"}})
        assert ran.status_code == 200, ran.text
        again = client.post("/releases/price", json=body).json()
        assert (again["affordable"], again["methods"][0]["outcome"]) == (False, "infeasible")
