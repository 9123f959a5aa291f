"""HOSTILE V42 and V55-V60 through the HTTP server: strict JSON, one refusal for all, escaped names, no seeds."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dodona as dd

httpx = pytest.importorskip("httpx", reason="the server's tests need httpx")
pytest.importorskip("dodona.server.app", reason="the server is not there")

EVIL = "<img src=x onerror=alert(1)>"
SCHEMA = dd.Schema({"x": dd.Real(0, 10), "g": dd.Category(EVIL, "b"), EVIL: dd.Flag()})
EFFORT = {"effort": {"share": "0.001"}}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server on loopback over two small tables; ``ask`` posts as an analyst who may see only one of them."""
    from dodona.server.app import make_app
    from dodona.server.settings import Settings
    from tests.support.servers import add_key, listening, write_survey

    folder = tmp_path_factory.mktemp("house")
    columns = {"x": np.arange(40.0) % 10, "g": np.array([EVIL, "b"] * 20), EVIL: np.arange(40) % 2 == 0}
    paths = [write_survey(folder, columns, SCHEMA, {"epsilon": 4}, name=name) for name in ("people", "hidden")]
    keys = {
        "curator": add_key(folder, "boss"),
        "analyst": add_key(folder, "ann", "0.5", datasets=["people"]),
        "expired": add_key(folder, "late", "0.1", expires="2020-01-01"),
    }
    settings = Settings(tuple(map(str, paths)), str(folder), tick=0.001, audit=str(folder / "audit.log"), rate=10_000)
    with listening(make_app(settings)) as url, httpx.Client(base_url=url, timeout=30) as client:

        def send(method: str, path: str, key: str | None = "analyst", **more: Any) -> Any:
            headers = {} if key is None else {"Authorization": f"Bearer {keys.get(key, key)}"}
            return client.request(method, path, headers={**headers, **more.pop("headers", {})}, **more)

        def ask(
            body: Any, route: str = "ask", dataset: str = "people", key: str | None = "analyst", **more: Any
        ) -> Any:
            content = body if isinstance(body, bytes | str) else json.dumps(body)
            headers = {"Content-Type": "application/json", **more.pop("headers", {})}
            return send("POST", f"/v1/datasets/{dataset}/{route}", key, content=content, headers=headers, **more)

        def spent() -> Any:
            return send("GET", "/v1/datasets/people/ledger", "curator").json()["spent"]

        yield SimpleNamespace(send=send, ask=ask, spent=spent, keys=keys, folder=folder)


def question(**more: Any) -> dict[str, Any]:
    return {"question": "x", **EFFORT, **more}


def test_v42_a_client_that_drops_the_line_gets_its_answer_by_its_key(house: Any) -> None:
    before = house.spent()
    name = {"Idempotency-Key": "dropped"}
    with pytest.raises(httpx.TimeoutException):
        house.ask(question(), headers=name, timeout=1e-4)
    answers = [house.ask(question(), headers=name) for _ in range(2)]
    deadline = time.monotonic() + 60
    while answers[0].status_code == 409 and time.monotonic() < deadline:
        answers = [house.ask(question(), headers=name) for _ in range(2)]
    assert answers[0].status_code == 200
    assert answers[0].json()["total"] == answers[1].json()["total"]
    assert house.spent() - before == pytest.approx(0.004)


JSON_BOMBS = {
    "NaN": '{"question": "x", "effort": {"share": NaN}}',
    "Infinity": '{"question": "x", "effort": {"share": Infinity}}',
    "1e400": '{"question": "x", "effort": {"share": 1e400}}',
    "twice": '{"question": "x", "question": "x + 1", "effort": {"share": "0.001"}}',
    "digits": '{"question": "x", "effort": {"share": ' + "9" * 5001 + "}}",
    "deep": '{"question": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "large": b'{"question": "' + b"x" * (100 << 20) + b'"}',
    "true": '{"question": "x", "effort": {"share": true}}',
    "bytes": b"\xff\xfe\x00",
    "unknown": '{"question": "x", "effort": {"share": "0.001"}, "sql": "DROP"}',
}


@pytest.mark.parametrize("bomb", JSON_BOMBS)
def test_v55_odd_json_is_refused_within_a_second_and_not_charged(house: Any, bomb: str) -> None:
    before, start = house.spent(), time.thread_time()
    try:
        code = house.ask(JSON_BOMBS[bomb]).status_code
    except httpx.TransportError:
        assert bomb == "large", "only a body beyond the limit may be cut off"
        code = 413
    assert 400 <= code < 500
    assert time.thread_time() - start < 1 or bomb == "large"
    assert house.spent() == before


def test_v56_every_bad_key_gets_one_refusal(house: Any) -> None:
    added = house.send("POST", "/v1/keys", "curator", json={"analyst": "gone", "role": "analyst", "share": "0.01"})
    assert added.status_code == 201, added.text
    token, made = added.json()["token"], added.json()
    house.send("DELETE", f"/v1/keys/{made.get('id') or made['key']['id']}", "curator")
    replies = [house.ask(question(), key=key) for key in (None, "garbage", "dodona_x_y", "expired", token)]
    assert {reply.status_code for reply in replies} == {401}
    bodies = [{k: v for k, v in reply.json().items() if k not in ("request_id", "instance")} for reply in replies]
    assert all(body == bodies[0] for body in bodies)
    analyst = house.keys["analyst"]
    in_url = house.send("POST", f"/v1/datasets/people/ask?token={analyst}&key={analyst}", None, json=question())
    assert in_url.status_code == 401
    assert house.send("GET", "/v1/keys", "analyst").status_code == 403
    stored = b"".join(path.read_bytes() for path in Path(house.folder).iterdir() if path.is_file())
    for secret in house.keys.values():
        assert secret.split("_", 2)[-1].encode() not in stored, "a token is stored or logged"


def test_v57_unknown_and_forbidden_datasets_are_the_same_refusal(house: Any) -> None:
    replies = [house.ask(question(), dataset=name) for name in ("hidden", "nothing", "people2")]
    assert len({reply.status_code for reply in replies}) == 1
    assert replies[0].status_code in (403, 404)
    bodies = [{k: v for k, v in r.json().items() if k not in ("request_id", "instance")} for r in replies]
    assert bodies[0] == bodies[1] == bodies[2]
    assert len({tuple(sorted(set(r.headers) - {"x-request-id", "date"})) for r in replies}) == 1

    def alike() -> bool:
        times: dict[str, list[float]] = {"hidden": [], "nothing": []}
        for _ in range(15):
            for name, taken in times.items():
                start = time.perf_counter()
                house.ask(question(), dataset=name)
                taken.append(time.perf_counter() - start)
        middle = [statistics.median(taken) for taken in times.values()]
        return max(middle) < 3 * min(middle) + 0.02

    assert any(alike() for _ in range(10)), "a difference that is the server's is there each time, a busy machine's not"


def test_v58_names_that_are_markup_stay_names(house: Any) -> None:
    described = house.send("GET", "/v1/datasets/people")
    assert described.headers["content-type"].startswith("application/json")
    assert described.headers["x-content-type-options"] == "nosniff"
    assert EVIL in str(described.json())
    table = house.ask({"sql": "SELECT g, COUNT(*) FROM people GROUP BY g", **EFFORT}, route="sql")
    assert table.status_code == 200
    page = house.send("GET", "/", None)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert EVIL not in page.text


def test_v59_what_an_asker_writes_is_kept_as_text(house: Any) -> None:
    label = "'); DELETE FROM entries;--"
    reply = house.ask(question(), headers={"Idempotency-Key": "delete-entries"})
    assert reply.status_code == 200
    refused = house.ask({"question": label, **EFFORT})
    assert 400 <= refused.status_code < 500
    assert house.send("GET", "/v1/datasets/people/ledger", "curator").json()["spent"] > 0


def test_v60_a_seed_in_a_request_is_refused(house: Any) -> None:
    before = house.spent()
    for more in ({"seed": 1}, {"random_state": 1}, {"noise": False}, {"debug": True}):
        assert house.ask(question(**more)).status_code in (400, 422)
    assert house.spent() == before
    answers = {house.ask(question()).json()["total"] for _ in range(4)}
    assert len(answers) > 1


def test_v60_a_server_does_not_start_with_a_seed_in_its_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, house: Any
) -> None:
    """There is no setting for one: neither the settings nor the environment can name a seed."""
    from dodona.server.settings import Settings

    with pytest.raises(TypeError):
        Settings(("people.toml",), str(tmp_path), seed=1)  # type: ignore[call-arg]
    copied = tmp_path / "people.toml"
    shutil.copy(house.folder / "people.toml", copied)
    shutil.copy(house.folder / "people.parquet", tmp_path)
    copied.write_text("seed = 1\n" + copied.read_text())
    from dodona.config import Config
    from dodona.errors import BadSchema

    with pytest.raises(BadSchema):
        Config.read(copied)
