"""Releases: the curator starts one, it runs in the background, and ends in a synopsis everyone may ask for nothing.

Its state is a small file beside the synopses, so that every server process can tell of it. A process that dies leaves
its releases "running" with its number; whoever looks next says "lost": what was charged stays charged.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import secrets
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from dodona.errors import DodonaError, Refused
from dodona.server import outputs
from dodona.server.auth import require
from dodona.server.bodies import ReleaseBody
from dodona.server.catalogue import json_response
from dodona.server.counted import Counted
from dodona.server.datasets import Dataset
from dodona.server.describe import asks, reads
from dodona.server.keys import Key
from dodona.server.problems import not_found
from dodona.server.release_plans import priced, settings_of, units_of
from dodona.server.requests import read_body
from dodona.server.service import Service
from dodona.server.synopses import SUFFIX

router = APIRouter(prefix="/v1/datasets/{dataset}/releases", tags=["releases"])
_FAULTS = (TypeError, ValueError, KeyError, IndexError, AttributeError)
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)


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


@router.post("", **asks(ReleaseBody, outputs.Started, 202))
async def start(request: HttpRequest, dataset: str) -> Response:
    """Begin a release in the background; follow it by its id."""
    service, key, data = await _opened(request, dataset)
    body = await read_body(request, ReleaseBody)
    settings = settings_of(body)
    budget = data.config.budget
    most = units_of(body.effort.effort(), budget) / budget.capacity
    state = State(secrets.token_hex(8), body.kind, "running", 0, 0.0, None, None, os.getpid(), most)
    data.folder.mkdir(exist_ok=True)
    await service.off_loop(lambda: state.write(data.folder))
    # Daemonic: a server that is told to stop does not wait for hours; the release is then lost, and says so.
    threading.Thread(target=_make, args=(data, key, state, settings), daemon=True, name=f"release {state.id}").start()
    request.state.about = f"release {state.id} of {body.kind}"
    return json_response({"id": state.id}, 202)


@router.post("/price", **asks(ReleaseBody, outputs.ReleasePrice))
async def price(request: HttpRequest, dataset: str) -> Response:
    """What a release would cost, and how far off its synopsis would be; reads no row, charges nothing."""
    service, key, data = await _opened(request, dataset)
    body = await read_body(request, ReleaseBody)
    settings_of(body)  # what is wrong by name is refused here, at no cost

    def work() -> dict[str, Any]:
        return priced(body, data.asker(key), data.config.budget, data.book.left_to(key.analyst))

    return json_response(await service.planned(work))


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


async def _opened(request: HttpRequest, dataset: str) -> tuple[Service, Key, Dataset]:
    service: Service = request.app.state.service
    key = await require(request, "curator")
    data = service.datasets.get(key, dataset)
    request.state.dataset = data.name
    return service, key, data


def _make(data: Dataset, key: Key, begun: State, settings: dict[str, Any]) -> None:
    """Runs in its own thread. Settings were checked by name only: a wrong value is refused by the release itself."""
    state = begun

    def tell(asked: int, share: float) -> None:
        nonlocal state
        state = replace(state, asked=asked, share=share)
        state.write(data.folder)

    try:
        make = getattr(importlib.import_module("dodona.release"), begun.kind)
        synopsis = make(Counted(data.asker(key), f"release {begun.id}", tell), **settings)
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
