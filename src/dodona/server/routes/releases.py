"""Releases and what they leave: a curator starts one, it runs in the background, and ends in a synopsis that everyone
may list, download, and ask for nothing.

The state of a release is a small file beside the synopses, so that every server process can tell of it. A process that
dies leaves its releases "running" with its number; whoever looks next says "lost": what was charged stays charged.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, Response

from dodona.bounds import Outlook
from dodona.errors import BadQuery, DodonaError, Refused
from dodona.oracles.effort import Effort
from dodona.oracles.finishing import finish
from dodona.oracles.fronts import Counted
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.budget import KEY_UNITS, Budget
from dodona.query.select import is_select
from dodona.release.registry import find_release, offered_releases
from dodona.server import shapes as outputs
from dodona.server.datasets import Dataset
from dodona.server.guard import not_found
from dodona.server.keys import Key
from dodona.server.requests import FreeBody, ReleaseBody, read_body
from dodona.server.routes import json_response
from dodona.server.routes.questions import outward, request_of, table
from dodona.server.service import Service, require
from dodona.server.shapes import asks, problems, reads
from dodona.synopses import load

SUFFIX = ".synopsis"
_FAULTS = (TypeError, ValueError, KeyError, IndexError, AttributeError)


def settings_of(body: ReleaseBody) -> dict[str, Any]:
    """The keywords of the release, its part of the budget among them; names are checked here, values by the release."""
    return {**find_release(body.kind).checked(body.settings), "effort": _effort_of(body)}


def promised(body: ReleaseBody, oracle: Oracle) -> list[Outlook]:
    """What each method promises, the one that would be taken first; a method that stands twice is told at its best."""
    try:
        found = find_release(body.kind).plan(oracle, **settings_of(body))
    except _FAULTS:
        raise BadQuery(f"a setting of {body.kind} has a wrong value, or one is missing.") from None
    return [found[method] for method in dict.fromkeys(found.methods)]


def _promise(outlook: Outlook) -> dict[str, Any]:
    """The outward form of one way; ``words``: what the error is an error of, for a person."""
    often = "on average" if outlook.confidence is None else f"{100 * outlook.confidence:g} times of 100"
    told = ("method", "error", "measure", "scale", "confidence", "outcome", "rows_needed", "theorem", "why")
    return {name: getattr(outlook, name) for name in told} | {"words": f"{outlook.measure}, {often}"}


def priced(body: ReleaseBody, oracle: Oracle, budget: Budget, left: int, keys_left: int) -> dict[str, Any]:
    """The outward form: cost, what would be left, and the promises; ``keys_left``: of the delta for open keys."""
    settings_of(body)
    units = body.effort.effort().most(budget)
    cost = {
        "amount": float(budget.amount(units)),
        "unit": budget.unit,
        "share": float(Fraction(units, budget.capacity)),
        "left": float(budget.amount(max(left - units, 0))),
    }
    ways = promised(body, oracle)
    keys = max((round(way.cost.delta * KEY_UNITS) for way in ways if way.cost is not None), default=0)
    affordable = units <= left and keys <= keys_left
    return {"kind": body.kind, "cost": cost, "affordable": affordable, "methods": [_promise(way) for way in ways]}


def _effort_of(body: ReleaseBody) -> Effort:
    effort = body.effort.effort()
    if effort.kind == "tolerance":
        raise BadQuery("a release states its cost as share, epsilon or rho; its error follows, and is published.")
    return effort


def _oracle(data: Dataset, key: Key, body: ReleaseBody) -> Oracle:
    """What it is made of: a table, tables joined or people, with so much of each person."""
    oracle = data.joined(key, body.source, body.people)
    return oracle if body.bounds is None else oracle.bounded(**body.bounds.model_dump())


router = APIRouter(prefix="/v1/datasets/{dataset}/releases", tags=["releases"])
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_RELEASE = {"kind": "intervals", "settings": {"column": "age"}, "effort": {"share": 0.05}}


@dataclass(frozen=True)
class State:
    """Where a release stands: ``share`` spent of the ``most`` it may spend; ``process`` runs it."""

    id: str
    kind: str
    state: str
    asked: int
    share: float
    synopsis: str | None
    detail: str | None
    process: int
    most: float | None = None

    def shown(self) -> dict[str, Any]:
        """As the API shows it."""
        ended = self.state == "running" and not _lives(self.process)
        state = "lost" if ended else self.state
        progress = {"asked": self.asked, "share": self.share, "most": self.most}
        known = {"id": self.id, "kind": self.kind, "state": state, "progress": progress}
        return {**known, "synopsis": self.synopsis, "detail": self.detail}

    def write(self, folder: Path) -> None:
        """Whole or not at all."""
        scratch = folder / f"{self.id}.{secrets.token_hex(4)}.part"
        scratch.write_text(json.dumps(asdict(self)))
        os.replace(scratch, folder / f"{self.id}.json")


@router.post("", **asks(ReleaseBody, outputs.Started, 202, example=_RELEASE))
async def start(request: HttpRequest, dataset: str) -> Response:
    """Begin a release in the background; follow it by its id."""
    service, key, data = await _opened(request, dataset)
    body = await read_body(request, ReleaseBody)
    settings = await service.off_loop(lambda: settings_of(body))  # the first one imports every release
    oracle = await service.off_loop(lambda: _oracle(data, key, body))
    budget = data.config.budget
    most = body.effort.effort().most(budget) / budget.capacity
    state = State(secrets.token_hex(8), body.kind, "running", 0, 0.0, None, None, os.getpid(), most)
    data.folder.mkdir(exist_ok=True)
    await service.off_loop(lambda: state.write(data.folder))
    # Daemonic: a server that is told to stop does not wait for hours; the release is then lost, and says so.
    threading.Thread(
        target=_make, args=(data, oracle, state, settings), daemon=True, name=f"release {state.id}"
    ).start()
    request.state.about = f"release {state.id} of {body.kind}"
    return json_response({"id": state.id}, 202)


@router.post("/price", **asks(ReleaseBody, outputs.ReleasePrice, example=_RELEASE))
async def price(request: HttpRequest, dataset: str) -> Response:
    """What a release would cost, and how far off its synopsis would be; reads no row, charges nothing."""
    service, key, data = await _opened(request, dataset)
    body = await read_body(request, ReleaseBody)

    def work() -> dict[str, Any]:
        budget, left = data.config.budget, data.book.left_to(key.analyst)
        return priced(body, _oracle(data, key, body), budget, left, data.keys_left_to(key))

    return json_response(await service.planned(work))


@router.get("/kinds", **reads(outputs.KindsPage))
async def kinds(request: HttpRequest, dataset: str) -> Response:
    """The releases that can be started here, with the settings a form needs to ask for."""
    service, _, _ = await _opened(request, dataset)
    listed = await service.off_loop(lambda: [release.described() for release in offered_releases().values()])
    return json_response({"items": listed, "next": None})


@router.get("", **reads(outputs.ReleasePage))
async def releases(request: HttpRequest, dataset: str) -> Response:
    """All releases of a dataset, newest first."""
    service, _, data = await _opened(request, dataset)

    def listed() -> list[dict[str, Any]]:
        files = sorted(data.folder.glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        return [_read(file).shown() for file in files[:1000]]

    return json_response({"items": await service.off_loop(listed), "next": None})


@router.get("/{id}", **reads(outputs.Release))
async def release(request: HttpRequest, dataset: str, id: str) -> Response:
    """How far a release is, and its synopsis when it is done."""
    _, _, data = await _opened(request, dataset)
    file = data.folder / f"{id}.json"
    if not _ID.fullmatch(id) or not file.is_file():
        raise not_found()
    return json_response(_read(file).shown())


async def _opened(request: HttpRequest, dataset: str, role: str | None = "curator") -> tuple[Service, Key, Dataset]:
    service: Service = request.app.state.service
    key = await require(request, role)
    data = service.datasets.get(key, dataset)
    request.state.dataset = data.name
    return service, key, data


def _make(data: Dataset, oracle: Oracle, begun: State, settings: dict[str, Any]) -> None:
    """Runs in its own thread. Settings were checked by name only: a wrong value is refused by the release itself."""
    state = begun

    def tell(asked: int, share: float) -> None:
        nonlocal state
        state = replace(state, asked=asked, share=share)
        state.write(data.folder)

    try:
        synopsis = find_release(begun.kind).make(Counted(oracle, f"{begun.kind}:{begun.id}", tell), **settings)
        synopsis.save(data.folder / f"{begun.id}{SUFFIX}")
        ended = replace(state, state="done", synopsis=begun.id)
    except Refused as error:
        ended = replace(state, state="refused", detail=str(error))
    except DodonaError:
        ended = replace(state, state="lost", detail="the ledger or an internal fault stopped it.")
    except _FAULTS:
        ended = replace(state, state="refused" if not state.asked else "lost", detail="a setting has a wrong value.")
    except Exception:  # R12: no detail
        ended = replace(state, state="lost", detail="an internal fault stopped it.")
    ended.write(data.folder)


def _read(file: Path) -> State:
    return State(**json.loads(file.read_text()))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


synopsis_routes = APIRouter(prefix="/v1/datasets/{dataset}/synopses", tags=["synopses"])


@synopsis_routes.get("", **reads(outputs.SynopsisPage))
async def synopses(request: HttpRequest, dataset: str) -> Response:
    """What is published of a dataset, newest first."""
    service, _, data = await _opened(request, dataset, None)

    def listed() -> list[dict[str, Any]]:
        files = sorted(data.folder.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime, reverse=True)
        return [_describe(file.stem, _load(str(file))) for file in files[:1000] if _ID.fullmatch(file.stem)]

    return json_response({"items": await service.off_loop(listed), "next": None})


@synopsis_routes.get(
    "/{id}",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}}, **problems(401, 404, 429, 500, 503)},
)
async def download(request: HttpRequest, dataset: str, id: str) -> Response:
    """The synopsis as a file, for ``dodona.load``."""
    _, _, data = await _opened(request, dataset, None)
    file = _file(data, id)
    return FileResponse(file, media_type="application/octet-stream", filename=f"{id}{SUFFIX}")


class MadeUp(BaseModel):
    """Made-up rows, each a list in the order of ``columns``. ``left_out``: columns the synopsis knows nothing of."""

    columns: list[str]
    rows: list[list[Any]]
    left_out: list[str]


MOST_DRAWN = 100_000
"""Made-up rows in one response."""


@synopsis_routes.get("/{id}/rows", **reads(MadeUp))
async def rows(
    request: HttpRequest,
    dataset: str,
    id: str,
    rows: Annotated[int, Query(ge=0, le=MOST_DRAWN, description="How many made-up rows.")] = 100,
) -> Response:
    """Made-up rows, drawn from what is published: nothing is charged, and no row is anyone's."""
    service, _, data = await _opened(request, dataset, None)
    file = _file(data, id)

    def work() -> dict[str, Any]:
        synopsis = _load(str(file))
        drawn = synopsis.sample(rows).to_dict()
        left = [name for name in data.config.schema if name not in drawn]
        return {
            "columns": list(drawn),
            "rows": [list(row) for row in zip(*drawn.values(), strict=True)],
            "left_out": left,
        }

    return Response(json.dumps(await service.planned(work), default=str), media_type="application/json")


@synopsis_routes.post("/{id}/ask", **asks(FreeBody, outputs.Free, example={"question": "age BETWEEN 30 AND 44"}))
async def ask(request: HttpRequest, dataset: str, id: str) -> Response:
    """A question answered from what is published: nothing is charged."""
    service, _, data = await _opened(request, dataset, None)
    file = _file(data, id)
    body = await read_body(request, FreeBody)

    def work() -> dict[str, Any] | str:
        synopsis = _load(str(file))
        form, value = body.given()
        effort = Effort.none()
        if form == "sql" or (form == "question" and is_select(value)):
            select, answer = synopsis.statement(value, effort, None, lambda oracle, request: oracle.answer(request))
            return table(finish(select, answer), answer)
        return outward(synopsis.answer(request_of((form, value), effort)))

    found = await service.off_loop(work)
    return Response(found, media_type="application/json") if isinstance(found, str) else json_response(found)


def _file(data: Dataset, id: str) -> Path:
    file = data.folder / f"{id}{SUFFIX}"
    if not _ID.fullmatch(id) or not file.is_file():
        raise not_found()
    return file


@lru_cache(maxsize=32)
def _load(path: str) -> Synopsis:
    """A synopsis is never written twice under one name, so it may be kept."""
    return load(path)


def _draws(synopsis: Synopsis) -> bool:
    """Whether made-up rows can be drawn from it."""
    try:
        synopsis.sample(0)
    except Refused:
        return False
    return True


def _describe(id: str, synopsis: Synopsis) -> dict[str, Any]:
    head = synopsis.header
    known = {"about": head.about, "accuracy": head.accuracy, "method": head.method, "rows": head.rows}
    return {"id": id, **known, "cost": vars(head.cost), "columns": list(head.schema), "draws": _draws(synopsis)}
