"""The routes of what is already published: list, download, and ask for nothing."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, Response

from dodona.oracle import Request
from dodona.query.select import is_select, parse_select
from dodona.report import finish
from dodona.server import outputs
from dodona.server.auth import require
from dodona.server.bodies import FreeBody
from dodona.server.catalogue import json_response
from dodona.server.datasets import Dataset
from dodona.server.describe import asks, problems, reads
from dodona.server.problems import not_found
from dodona.server.questions import question_of, table
from dodona.server.requests import read_body
from dodona.server.service import Service
from dodona.synopses.base import Synopsis
from dodona.synopses.file import load

router = APIRouter(prefix="/v1/datasets/{dataset}/synopses", tags=["synopses"])
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
SUFFIX = ".synopsis"


@router.get("", **reads(outputs.SynopsisPage))
async def synopses(request: HttpRequest, dataset: str) -> Response:
    """What is published of a dataset, newest first."""
    service, data = await _opened(request, dataset)

    def listed() -> list[dict[str, Any]]:
        files = sorted(data.folder.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime, reverse=True)
        return [_shown(file.stem, _loaded(str(file))) for file in files[:1000] if _ID.fullmatch(file.stem)]

    return json_response({"items": await service.off_loop(listed), "next": None})


@router.get(
    "/{id}",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}}, **problems(401, 404, 429, 500, 503)},
)
async def download(request: HttpRequest, dataset: str, id: str) -> Response:
    """The synopsis as a file, for ``dodona.load``."""
    _, data = await _opened(request, dataset)
    file = _file(data, id)
    return FileResponse(file, media_type="application/octet-stream", filename=f"{id}{SUFFIX}")


@router.post("/{id}/ask", **asks(FreeBody, outputs.Free))
async def ask(request: HttpRequest, dataset: str, id: str) -> Response:
    """A question answered from what is published: nothing is charged."""
    service, data = await _opened(request, dataset)
    file = _file(data, id)
    body = await read_body(request, FreeBody)

    def work() -> dict[str, Any] | str:
        synopsis = _loaded(str(file))
        form, value = body.given()
        effort = synopsis.effort(None, None, None, None, "0.95")
        if form == "sql" or (form == "question" and is_select(value)):
            select = parse_select(value, synopsis.schema, synopsis.name)
            answer = synopsis.answer(Request(select.query, effort))
            return table(finish(select, answer), answer)
        query, _ = question_of((form, value), synopsis.schema, synopsis.name)
        return synopsis.answer(Request(query, effort)).to_json()

    found = await service.off_loop(work)
    return Response(found, media_type="application/json") if isinstance(found, str) else json_response(found)


async def _opened(request: HttpRequest, dataset: str) -> tuple[Service, Dataset]:
    service: Service = request.app.state.service
    key = await require(request)
    data = service.datasets.get(key, dataset)
    request.state.dataset = data.name
    return service, data


def _file(data: Dataset, id: str) -> Path:
    file = data.folder / f"{id}{SUFFIX}"
    if not _ID.fullmatch(id) or not file.is_file():
        raise not_found()
    return file


@lru_cache(maxsize=32)
def _loaded(path: str) -> Synopsis:
    """A synopsis is never written twice under one name, so it may be kept."""
    return load(path)


def _shown(id: str, synopsis: Synopsis) -> dict[str, Any]:
    head = synopsis.header
    known = {"about": head.about, "accuracy": head.accuracy, "method": head.method, "rows": head.rows}
    return {"id": id, **known, "cost": vars(head.cost), "columns": list(head.schema)}
