"""Noise at the door: generated requests from the OpenAPI description, and fuzzed question texts.

No 5xx, no charge for what was refused, no row value in any response. The rows hold numbers and words that stand in no
schema and no request, so that they would be recognised anywhere.
"""

import asyncio
import contextlib
import json
import random
import re
from concurrent.futures import Executor, Future

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import sampled_from
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

import dodona as dd
from dodona.server.app import make_app
from dodona.server.settings import Settings
from tests.support.servers import add_key, in_thread, write_survey

SECRETS = ("Quetzalcoatl", "8675309", "31337.03125")
SCHEMA = dd.Schema(
    {
        "age": dd.Integer(0, 99),
        "code": dd.Integer(0, 10_000_000),
        "weight": dd.Real(0, 50_000),
        "town": dd.Category("North", "South"),
        "smoker": dd.Flag(),
    }
)


def columns(rows=50):
    rng = np.random.default_rng(0)
    town = np.array(["North", "South", "Quetzalcoatl"])[np.arange(rows) % 3]
    return {
        "age": rng.integers(0, 100, rows),
        "code": np.full(rows, 8675309),
        "weight": np.full(rows, 31337.03125),
        "town": town,
        "smoker": rng.random(rows) < 0.5,
    }


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    surveys = [write_survey(folder, columns(), SCHEMA, {"epsilon": 100_000}, name=name) for name in ("people", "crowd")]
    keys = {"curator": add_key(folder, "boss"), "analyst": add_key(folder, "ann", "0.5")}
    server = in_thread(folder, surveys, tick=0.001, rate=1e6, running=1000)
    with server as url, httpx.Client(base_url=url, timeout=60) as client:
        yield url, keys, client, folder


def charges(client, keys):
    headers = {"Authorization": f"Bearer {keys['curator']}"}
    return client.get("/v1/datasets/people/ledger?limit=1", headers=headers).json()["spent"]


def assert_silent(text):
    for secret in SECRETS:
        assert secret not in text


# -- requests made from the description -------------------------------------------------------------------------------

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    ignored_auth,
    unsupported_method,
]


DEAR = {"/v1/keys": 10, "/v1/datasets/{dataset}/releases": 10}
"""Each request to these hashes a key slowly, or starts a thread that computes: so many times fewer are sent."""


@pytest.mark.parametrize("examples", [5, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_requests_made_from_the_description(door, examples, mode):
    """As described, and then not as described; mostly of things that are there, two of three by the curator."""
    url, keys, client, folder = door
    described = naming(client.get("/openapi.json").json(), there(client, keys["curator"]), mode)
    if mode is GenerationMode.NEGATIVE:  # the key is always right here: what else is wrong must be refused
        del described["components"]["securitySchemes"]
        for routes in described["paths"].values():
            for route in routes.values():
                route.pop("security", None)
    else:
        likely(described["components"]["schemas"])
    schema = schemathesis.openapi.from_dict(described)
    met = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        fewer = DEAR.get(operation.path, 1) if operation.method.upper() == "POST" else 1
        _fuzz(operation, url, keys, max(2, examples // fewer), mode, met)
    sent = sum(met.values())
    by_status = {status: sum(n for (_, s), n in met.items() if s == status) for _, status in sorted(met)}
    print(f"{sent} requests, {mode.value}: {by_status}")
    assert sent >= 10 * examples
    assert by_status.get(404, 0) < 3 * sent / 4  # an address alone can only be wrong by naming what is not there
    if mode is GenerationMode.POSITIVE:
        good = {path for path, status in met if status < 300}
        assert good >= {"/v1/datasets/{dataset}", "/v1/datasets/{dataset}/ledger", "/v1/keys"}
    assert_silent((folder / "audit.log").read_text())


def there(client, curator):
    """Names that exist, by the parameter of an address: a dataset, a key of nobody's, a release, a survey."""
    headers = {"Authorization": f"Bearer {curator}"}
    spare = client.post("/v1/keys", json={"analyst": "spare", "share": "0.01"}, headers=headers)
    body = {"kind": "intervals", "settings": {"column": "age", "bits": 3}, "effort": {"epsilon": "1"}}
    release = client.post("/v1/datasets/crowd/releases", json=body, headers=headers)
    asked = {"title": "t", "about": "a", "epsilon": "1", "questions": [{"text": "q", "kind": "yes-no"}]}
    survey = client.post("/v1/surveys", json=asked, headers=headers)
    made = [response.json() for response in (spare, release, survey)]
    assert all("id" in one for one in made), made
    key, release, survey = (one["id"] for one in made)
    return {
        "/v1/keys": {"id": key},
        "/v1/datasets": {"dataset": "crowd", "id": release},
        "/v1/surveys": {"survey": survey},
    }


def naming(described, names, mode):
    """The description, with what exists as the only values of an address's parameters.

    What is not as described is to be wrong behind the address too: there it is part of the path of routes with a body.
    """
    paths = {}
    for path, routes in described["paths"].items():
        known = names.get("/".join(path.split("/")[:3]), {})
        for method, route in routes.items():
            placed = path
            if mode is GenerationMode.NEGATIVE and "requestBody" in route:
                placed = path.format(**known)
                route["parameters"] = [one for one in route.get("parameters", ()) if one["in"] != "path"]
            for one in route.get("parameters", ()):
                if one["in"] == "path":
                    one["schema"] = {"type": "string", "enum": [known[one["name"]]]}
            paths.setdefault(placed, {})[method] = route
    return {**described, "paths": paths}


def likely(schemas):
    """Bodies that get past the door: questions of this dataset, efforts with exactly one of their four."""
    selects = [text.replace("people", "crowd") for text in VALID if text.startswith("SELECT")]
    for name in ("QuestionBody", "FreeBody", "SqlBody"):
        texts = {"question": list(VALID[:3]), "sql": selects}
        for field in set(texts) & set(schemas[name]["properties"]):
            schemas[name]["properties"][field] = {"type": "string", "enum": texts[field]}
    one = {"type": "object", "properties": {"epsilon": {"enum": ["0.01", "1/20"]}}, "required": ["epsilon"]}
    schemas["EffortBody"] = {"anyOf": [{**one, "additionalProperties": False}, schemas["EffortBody"]]}


def _fuzz(operation, url, keys, examples, mode, met):
    try:
        cases = operation.as_strategy(generation_mode=mode)
    except Unsatisfiable:
        return

    @given(case=cases, role=sampled_from(("curator", "curator", "analyst")))
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(case, role):
        headers = {"Authorization": f"Bearer {keys[role]}"}
        response = case.call(base_url=url, headers=headers)
        place = operation.path, response.status_code
        met[place] = met.get(place, 0) + 1
        assert_silent(response.content.decode("utf-8", "replace"))
        case.validate_response(response, checks=CHECKS, headers=headers)

    with contextlib.suppress(Unsatisfiable):  # a route without parameters has nothing to get wrong
        run()


# -- fuzzed question texts --------------------------------------------------------------------------------------------

WORDS = re.findall(
    r"\S+",
    "age code weight town smoker nothing people 'North' 'South' 'x' 1 0 -1 1e308 1e309 0.1 9999999999999999999 NULL "
    "TRUE FALSE AND OR NOT IN IS BETWEEN CASE WHEN THEN ELSE END ( ) ( ) , + - * / % & = <> < <= > >= . ; -- /* */ "
    "ABS SQRT LN EXP POWER FLOOR CEIL MOD LEAST GREATEST COALESCE BUCKET SELECT COUNT(*) SUM AVG FROM WHERE GROUP BY "
    "AS n HAVING ORDER LIMIT UNION WITH OVER CAST random() now() pg_read_file('x') read_text('/etc/passwd') * "
    "(SELECT 1) \" ` ' \\ \x00 é 中 \U0001f600 ٣ 1_000 0x1F :: || @ # $ {{7*7}} <img src=x> ' OR 1=1; $$ ",
)
VALID = (
    "age >= 65 AND smoker",
    "CASE WHEN town = 'North' THEN weight ELSE 0 END",
    "POWER(age, 2) / 3 + SQRT(code)",
    "SELECT town, COUNT(*) AS n, AVG(age) FROM people WHERE smoker GROUP BY town",
)


def text(rng):
    """A soup of tokens, or a valid question with a few characters or tokens changed."""
    if rng.random() < 0.5:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 30)))
    parts = list(rng.choice(VALID))
    for _ in range(rng.randint(0, 4)):
        where = rng.randrange(len(parts) + 1)
        kind = rng.random()
        if kind < 0.4:
            parts[where:where] = [rng.choice(WORDS)]
        elif kind < 0.7:
            parts[where : where + rng.randint(1, 5)] = []
        else:
            parts[where:where] = [chr(rng.randrange(1, 0x2FF))] * rng.randint(1, 3)
    return "".join(parts)


def request(rng, turn):
    """Half priced, half asked."""
    question = text(rng)
    form = "sql" if question.lstrip()[:6].upper() == "SELECT" and rng.random() < 0.5 else "question"
    body = json.dumps({form: question, "effort": {"epsilon": "0.001"}}).encode("utf-8", "surrogatepass")
    return "ask" if turn % 2 else "price", question, body


class Tally:
    """Checks every response; what is refused leaves the ledger as it was, to the last unit."""

    def __init__(self):
        self.counts, self.asked = {}, 0.0

    def note(self, route, question, status, body):
        self.counts[status] = self.counts.get(status, 0) + 1
        assert status in (200, 400, 409, 422), (question, body)
        found = json.loads(body)
        if status == 200 and route == "ask":
            self.asked += found["cost"]["amount"]
            return
        assert status == 200 or found["charged"] is False
        assert_silent(body.replace(question, ""))

    def check_spent(self, spent):
        assert spent == pytest.approx(self.asked, rel=1e-6, abs=1e-9)

    def check(self, count, spent, folder):
        self.check_spent(spent)
        assert self.counts[200] > count / 50
        assert self.counts[422] > count / 5
        assert_silent((folder / "audit.log").read_text())
        print(f"{count} texts: {self.counts}")


def test_fuzzed_texts(door):
    _, keys, client, folder = door
    count, rng, tally = 300, random.Random(300), Tally()
    headers = {"Authorization": f"Bearer {keys['analyst']}", "Content-Type": "application/json"}
    spent = charges(client, keys)
    for turn in range(count):
        route, question, body = request(rng, turn)
        response = client.post(f"/v1/datasets/people/{route}", content=body, headers=headers)
        tally.note(route, question, response.status_code, response.text)
    tally.check(count, charges(client, keys) - spent, folder)


class Here(Executor):
    """Does the work at once, in the thread that hands it over: handing it to others took most of the time."""

    def submit(self, work, /, *given, **named):
        done = Future()
        try:
            done.set_result(work(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_hundred_thousand_fuzzed_texts(tmp_path, part):
    """Ten times 10,000, handed to the whole application without a socket or a thread between; what was charged is
    compared with what was answered after every 1,000.
    """
    count, rng, tally = 10_000, random.Random(100_000 + part), Tally()
    survey = write_survey(tmp_path, columns(), SCHEMA, {"epsilon": 100_000})
    key = add_key(tmp_path, "ann", "0.9")
    app = make_app(
        Settings((str(survey),), str(tmp_path), audit=str(tmp_path / "audit.log"), tick=1e-6, rate=1e9, running=1000)
    )
    service = app._app.state.service
    for pool in ("_quick", "_waiting", "_work", "_heavy"):
        getattr(service, pool).shutdown()
        setattr(service, pool, Here())
    headers = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]

    async def all_of_them():
        for turn in range(count):
            route, question, body = request(rng, turn)
            status, found = await handed(app, f"/v1/datasets/people/{route}", headers, body)
            tally.note(route, question, status, found.decode())
            if turn % 1000 == 999:
                tally.check_spent(next(iter(service.datasets)).figures()[2])

    asyncio.run(all_of_them())
    tally.check(count, next(iter(service.datasets)).figures()[2], tmp_path)
    service.close()


async def handed(app, path, headers, body):
    """Status and body of what the application says to a POST."""
    sent = []
    address = {"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
    about = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
    ends = {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8400)}

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    await app({**about, **address, **ends, "headers": headers}, receive, send)
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:])
