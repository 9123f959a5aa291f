"""The shapes of responses, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field, RootModel

from dodona.oracles.answer import Bill, Expected, Finding, Selection
from dodona.query.plan import Segment
from dodona.server.guard import TITLES

Numbers = float | list[Any]
PLAIN = (Bill, Expected, Finding, Segment, Selection)
"""Our own values that travel as they are: their shapes are their fields. Those that hold arrays are described below."""


class Price(BaseModel):
    """What a question would cost; one number stands for an array of equal ones."""

    question: str
    cost: Bill
    shape: list[int]
    spread: Numbers
    margin: Numbers
    tolerance: Numbers
    confidence: float
    rows: int | None
    sensitivity: str
    affordable: bool
    proven: bool
    grain: Numbers | None
    columns: list[Expected]
    mean_margin: Numbers | None


class Answer(BaseModel):
    """Noisy sums over rows with their error: ``total`` within ``margin``, and per row ``mean`` within ``mean_margin``.

    The two of the mean are null where the number of rows is private. ``low`` and ``high`` are the ends of the mean, or,
    where there is none, of the total.
    """

    question: str
    total: Numbers
    spread: Numbers
    margin: Numbers
    confidence: float
    rows: int | None
    shape: list[int]
    segments: list[Segment]
    cost: Bill
    proven: bool
    leaves_out: list[str]
    grain: Numbers | None
    mean: Numbers | None
    mean_margin: Numbers | None
    low: Numbers
    high: Numbers


class Rows(BaseModel):
    """A SELECT's table: each estimate by its column's name, its margin beside it as NAME_margin.

    A number that is lost in noise also has NAME_note, which says so. ``told``: what noise has decided beside the
    numbers, such as which rows are shown.
    """

    columns: list[str]
    records: list[dict[str, Any]]
    confidence: float
    proven: bool
    told: list[str]
    leaves_out: list[str]
    notes: list[str]
    cost: Bill
    answer: Answer


class Free(RootModel[Answer | Rows]):
    """An answer from what is published."""


class Named(BaseModel):
    """A dataset's name."""

    name: str


class DatasetPage(BaseModel):
    """Datasets the key opens."""

    items: list[Named]
    next: str | None


class Asker(BaseModel):
    """The caller, as one dataset's ledger knows them."""

    name: str
    role: str
    share: str | None
    spent: float
    left: float
    keys_left: float


class Dataset(BaseModel):
    """The public facts of a dataset, and what the caller can spend on it."""

    name: str
    columns: dict[str, Any] = Field(alias="schema")
    rows: int | None
    neighbours: str
    whose: str | None
    unit: str
    budget: dict[str, Any]
    left: float
    keys_left: float
    analyst: Asker


class Joined(BaseModel):
    """The public facts of tables joined: what each column is, and what it is called by its table; or of people."""

    name: str
    columns: dict[str, Any] = Field(alias="schema")
    rows: int | None
    tables: dict[str, dict[str, str]]
    conditions: list[Any]


class Charge(BaseModel):
    """One charge of a ledger."""

    entry: int
    time: str
    analyst: str
    text: str
    cost: float
    share: float
    keys: float


class LedgerPage(BaseModel):
    """Charges in order, and totals."""

    items: list[Charge]
    next: int | None
    unit: str
    total: float
    spent: float
    left: float


class Key(BaseModel):
    """A key without its secret."""

    id: str
    analyst: str
    role: str
    share: str | None
    datasets: list[str] | None
    created: str
    expires: str | None
    revoked: str | None


class NewKey(Key):
    """A key with its token, shown this once."""

    token: str


class KeyPage(BaseModel):
    """All keys."""

    items: list[Key]
    next: str | None


class Synopsis(BaseModel):
    """What is known of a published synopsis; ``draws``: whether it gives made-up rows."""

    id: str
    about: str
    accuracy: str
    method: str
    rows: int | None
    cost: Bill
    columns: list[str]
    draws: bool


class SynopsisPage(BaseModel):
    """Published synopses."""

    items: list[Synopsis]
    next: str | None


class Progress(BaseModel):
    """How far a release is: questions asked, the share of the budget spent, and the most it may spend."""

    asked: int
    share: float
    most: float | None


class Release(BaseModel):
    """A release: running, done, refused or lost."""

    id: str
    kind: str
    state: str
    progress: Progress
    synopsis: str | None
    detail: str | None


class ReleaseCost(BaseModel):
    """What a release would spend at most, and what would be left after it."""

    amount: float
    unit: str
    share: float
    left: float


class Promise(BaseModel):
    """One method of a release: its predicted error in rows (null where it cannot be known before), what that is an
    error of, and how sure it is: with the confidence stated, or on average where that is null.
    """

    method: str
    error: float | None
    words: str
    measure: str
    scale: str
    confidence: float | None
    outcome: str
    rows_needed: int | None
    theorem: str
    why: str


class SettingShown(BaseModel):
    """A keyword of a release: what it takes, its limits, and what a form proposes."""

    name: str
    kind: str
    words: str
    types: list[str]
    choices: list[str]
    least: float | None
    most: float | None
    start: Any
    required: bool


class KindShown(BaseModel):
    """A release that can be started."""

    name: str
    title: str
    gives: list[str]
    settings: list[SettingShown]


class KindsPage(BaseModel):
    """The releases that can be started."""

    items: list[KindShown]
    next: str | None


class ReleasePrice(BaseModel):
    """A release before anything is spent; the first method is the one that would be taken."""

    kind: str
    cost: ReleaseCost
    affordable: bool
    methods: list[Promise]


class ReleasePage(BaseModel):
    """All releases of a dataset."""

    items: list[Release]
    next: str | None


class Started(BaseModel):
    """A release that has begun."""

    id: str


class Health(BaseModel):
    """Whether every ledger can be used."""

    status: str


class Problem(BaseModel):
    """Why a request was refused or failed."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    charged: bool | None
    price: float | None = None
    left: float | None = None
    unit: str | None = None


# What the OpenAPI description says of a route beyond its address: bodies, headers, responses, problems.
#
# Bodies are read by our own strict reader, not by the framework, so they are described here, from the same classes that
# check them.


_REF = "#/components/schemas/{model}"
_BODIES: dict[str, type[BaseModel]] = {}
_ONCE = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Your name for this request: a retry is neither charged twice nor given new noise.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]{1,128}$"},
}
_ALWAYS = (401, 403, 404, 408, 429, 500, 503)
_WITH_BODY = (400, 409, 413, 415, 422)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem documents at these statuses."""
    content = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
    return {status: {"description": "A problem document.", "content": content} for status in statuses}


def reads(shown: type[Any], status: int = 200) -> dict[str, Any]:
    """A route without a body."""
    return {"response_model": shown, "status_code": status, "responses": problems(*_ALWAYS, 422)}


def asks(body: type[BaseModel], shown: type[Any], status: int = 200, *, example: Any = None) -> dict[str, Any]:
    """A route with a body; ``example``: one that the demo's survey answers, for the description and ``/docs``."""
    _BODIES[body.__name__] = body
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": _REF.format(model=body.__name__)}}}
    if example is not None:
        content["application/json"]["example"] = example
    return {
        "response_model": shown,
        "status_code": status,
        "responses": problems(*_ALWAYS, *_WITH_BODY),
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


def asks_once(body: type[BaseModel], shown: type[Any], *, example: Any = None) -> dict[str, Any]:
    """A route with a body whose retry is safe."""
    route = asks(body, shown, example=example)
    route["openapi_extra"] = {**route["openapi_extra"], "parameters": [_ONCE]}
    return route


def description(app: FastAPI) -> dict[str, Any]:
    """The whole document."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = made.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        described: list[type[BaseModel]] = [*_BODIES.values(), Problem]
        for kind in described:
            own = kind.model_json_schema(ref_template=_REF, mode="validation")
            schemas.update(own.pop("$defs", {}))
            schemas[kind.__name__] = own
        schemas["Problem"]["properties"]["code"]["enum"] = sorted(TITLES)
        for value in PLAIN:  # a field that may be left out of the value is always in the response
            own = schemas[value.__name__]
            own["required"] = list(own["properties"])
            for field in own["properties"].values():
                field.pop("default", None)
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, methods in made["paths"].items():
            for route in methods.values():
                route["responses"].pop("422", None) if path in _OPEN else None
                if path not in _OPEN and "security" not in route:
                    route["security"] = [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema


_OPEN = frozenset({"/healthz"})
