"""The API as strangers use it: every example of its description is answered, and the clients in other languages run."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from dodona.sample import write_sample, write_schema
from dodona.server.app import command
from tests.support.commands import make_ledger
from tests.support.servers import add_key, in_thread

PATIENCE = 120.0
"""Seconds: a busy machine is no fault of the server."""
CLIENTS = Path(__file__).parents[2] / "examples" / "clients"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The survey that `dodona sample` writes, and a curator's key."""
    folder = tmp_path_factory.mktemp("served")
    write_sample(folder / "survey.csv", 3000)
    write_schema(folder / "survey.toml", folder / "survey.csv")
    make_ledger(folder / "survey.toml")
    key = add_key(folder, "anyone")
    with in_thread(folder, [folder / "survey.toml"], tick=0.001) as url:
        yield url, key


@pytest.mark.parametrize(
    ("client", "needs"),
    [("ask.sh", ["sh", "curl"]), ("ask.mjs", ["node"]), ("ask.R", ["Rscript"])],
)
def test_a_client_in_another_language_runs_as_it_stands(served, client, needs):
    missing = [program for program in needs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: `make system` says what tests need.")
    url, key = served
    told = {**os.environ, "DODONA_URL": url, "DODONA_KEY": key}
    done = subprocess.run([needs[0], str(CLIENTS / client)], env=told, capture_output=True, text=True, check=False)
    if client == "ask.R" and "there is no package called" in done.stderr:
        pytest.skip("R's packages curl and jsonlite are not installed: `make system` says what tests need.")
    assert done.returncode == 0, done.stderr
    wanted = ["mean_margin", '"mean"'] if client == "ask.sh" else ["North", "(other)"]
    assert all(word in done.stdout for word in wanted), done.stdout


def test_every_example_of_the_description_is_answered(served):
    url, key = served
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE) as line:
        paths = line.get("/openapi.json").json()["paths"]
        asked = 0
        for path, methods in sorted(paths.items(), key=lambda one: "{id}" in one[0]):
            content = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
            if "example" not in content:
                continue
            real = path.replace("{dataset}", "survey")
            if "{id}" in real:
                real = real.replace("{id}", published(line))
            reply = line.post(real, json=content["example"])
            assert reply.status_code in (200, 201, 202), (path, reply.text)
            asked += 1
        assert asked >= 8


def published(line):
    """The id of a synopsis, once a release has made one."""
    while True:
        items = line.get("/v1/datasets/survey/releases").json()["items"]
        done = [item["synopsis"] for item in items if item["state"] == "done"]
        if done:
            return done[0]
        assert items, "no release was begun"
        assert all(item["state"] == "running" for item in items), items


def test_the_api_as_a_page_has_every_route_and_nothing_from_elsewhere(served):
    url, _ = served
    page = httpx.get(f"{url}/docs", timeout=PATIENCE)
    assert page.status_code == 200
    paths = httpx.get(f"{url}/openapi.json", timeout=PATIENCE).json()["paths"]
    for path, methods in paths.items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page.text
    assert not re.search(r"<script|(?:src|href)=\"(?:https?:)?//", page.text)
    assert "curl -X POST" in page.text
    assert url in page.text


def test_a_number_of_json_is_taken_as_it_is_written(served):
    """0.1 is a tenth, and what no double holds is not rounded to one."""
    url, key = served
    head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "X-Request-Id": "walk-1"}
    spent = []
    for share in ("0.01", '"0.01"', '"1/100"', "1e-2", "0.010000000000000000000000000001"):
        body = f'{{"question": "smoker", "effort": {{"share": {share}}}}}'
        reply = httpx.post(f"{url}/v1/datasets/survey/price", content=body, headers=head, timeout=PATIENCE)
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-request-id"] == "walk-1"
        spent.append(reply.json()["cost"]["amount"])
    assert len(set(spent[:4])) == 1
    assert spent[4] == pytest.approx(spent[0])
    for wrong in ("true", "-0.1", "1e400", "[0.1]"):
        body = f'{{"question": "smoker", "effort": {{"share": {wrong}}}}}'
        assert httpx.post(
            f"{url}/v1/datasets/survey/price", content=body, headers=head, timeout=PATIENCE
        ).status_code in (400, 422)


def test_an_answer_has_its_mean_and_margin_under_plain_names(served):
    url, key = served
    head = {"Authorization": f"Bearer {key}"}
    asked = {"question": "age >= 40", "effort": {"share": 0.05}}
    price = httpx.post(f"{url}/v1/datasets/survey/price", json=asked, headers=head, timeout=PATIENCE).json()
    found = httpx.post(f"{url}/v1/datasets/survey/ask", json=asked, headers=head, timeout=PATIENCE).json()
    assert found["mean"] == pytest.approx(found["total"] / 3000)
    assert found["mean_margin"] == pytest.approx(found["margin"] / 3000)
    assert (found["low"], found["high"]) == pytest.approx(
        (found["mean"] - found["mean_margin"], found["mean"] + found["mean_margin"])
    )
    assert price["mean_margin"] == pytest.approx(found["mean_margin"])


def test_an_example_is_a_command_that_can_be_pasted():
    told = command("post", "/v1/datasets/{dataset}/ask", {"question": "sex = 'Female'"}, "http://here")
    assert told.startswith("curl -X POST http://here/v1/datasets/survey/ask")
    quoted = told.rsplit("-d ", 1)[1]
    shown = subprocess.run(["sh", "-c", f"printf %s {quoted}"], capture_output=True, text=True, check=True).stdout
    assert json.loads(shown) == {"question": "sex = 'Female'"}
    assert sys.platform == "win32" or "\\\n" in told
