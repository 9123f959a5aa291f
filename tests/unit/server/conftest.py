"""One small survey behind the application, in a thread and on loopback: each test gets its own copy."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

import dodona as dd
from dodona.server.app import make_app
from dodona.server.settings import Settings
from tests.support.servers import add_key, listening, write_survey

SCHEMA = dd.Schema(
    {
        "age": dd.Integer(0, 99),
        "sex": dd.Category("Female", "Male"),
        "smoker": dd.Flag(),
        "income": dd.Real(0, 1000),
    }
)
EFFORT = {"share": "0.01"}


def columns(rows=500, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "age": rng.integers(0, 100, rows),
        "sex": np.array(["Female", "Male"])[rng.integers(0, 2, rows)],
        "smoker": rng.random(rows) < 0.3,
        "income": rng.gamma(2.0, 120.0, rows),
    }


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The files, with keys: hashing them is slow, so it is done once."""
    folder = tmp_path_factory.mktemp("made")
    write_survey(folder, columns(), SCHEMA, {"epsilon": 4, "delta": 1e-6})
    write_survey(folder, columns(seed=1), SCHEMA, {"epsilon": 1}, name="hidden")
    keys = {
        "curator": add_key(folder, "boss"),
        "a": add_key(folder, "analyst-a", "0.3", datasets=["people"]),
        "b": add_key(folder, "analyst-b", "0.3", datasets=["people"]),
        "expired": add_key(folder, "late", "0.1", expires="2020-01-01"),
    }
    return folder, keys


@pytest.fixture
def house(made, tmp_path):
    """A client of a fresh application; ``house.post("ask", ...)`` asks as analyst a."""
    folder, keys = made
    for file in Path(folder).iterdir():
        shutil.copy(file, tmp_path)
    paths = (str(tmp_path / "people.toml"), str(tmp_path / "hidden.toml"))
    app = make_app(Settings(paths, str(tmp_path), tick=0.001, audit=str(tmp_path / "audit.log"), rate=10_000))
    with listening(app) as url, httpx.Client(base_url=url, timeout=30) as client:

        def send(method, path, key="a", **more):
            headers = {} if key is None else {"Authorization": f"Bearer {keys.get(key, key)}"}
            return client.request(method, path, headers={**headers, **more.pop("headers", {})}, **more)

        def post(route, body, key="a", dataset="people", **more):
            data = body if isinstance(body, bytes | str) else json.dumps(body)
            headers = {"Content-Type": "application/json", **more.pop("headers", {})}
            return send("POST", f"/v1/datasets/{dataset}/{route}", key, content=data, headers=headers, **more)

        def spent():
            return send("GET", "/v1/datasets/people/ledger", "curator").json()["spent"]

        yield SimpleNamespace(
            client=client,
            url=url,
            send=send,
            post=post,
            keys=keys,
            folder=tmp_path,
            spent=spent,
            service=app._app.state.service,
        )
