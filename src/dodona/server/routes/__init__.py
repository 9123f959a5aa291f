"""What the server answers, by path; here what there is: datasets and their ledgers, keys for a curator, pages as files.

Files are a fixed list, read once, no path ever made from a request. Names do not change from version to version, so a
browser may keep a file but must ask whether it is still good: an ``ETag`` of its contents answers that in one short
exchange. Nothing is loaded from anywhere else.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from dodona.errors import Refused
from dodona.server import shapes
from dodona.server.guard import not_found
from dodona.server.keys import Key
from dodona.server.requests import KeyBody, read_body
from dodona.server.service import Service, require
from dodona.server.shapes import asks, problems, reads

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many items.")]


def json_response(data: Any, status: int = 200) -> Response:
    """Plain data as it is."""
    return Response(json.dumps(data, allow_nan=False), status, media_type="application/json")


@router.get("", **reads(shapes.DatasetPage))
async def datasets(request: Request, after: Annotated[str, Query(max_length=255)] = "", limit: Limit = 100) -> Response:
    """The datasets your key opens, by name."""
    service: Service = request.app.state.service
    key = await require(request)
    names = [name for name in service.datasets.visible(key) if name > after]
    page = names[:limit]
    following = page[-1] if len(names) > limit else None
    return json_response({"items": [{"name": name} for name in page], "next": following})


@router.get("/{dataset}", **reads(shapes.Dataset))
async def dataset(request: Request, dataset: str) -> Response:
    """Its public facts, its budget, and what you can still spend."""
    service: Service = request.app.state.service
    key = await require(request)
    data = service.datasets.get(key, dataset)
    request.state.dataset = data.name
    return json_response(await service.off_loop(lambda: data.describe(key)))


@router.get("/{dataset}/ledger", **reads(shapes.LedgerPage))
async def ledger(
    request: Request,
    dataset: str,
    after: Annotated[int, Query(ge=0, le=2**63 - 1, description="Entries with larger numbers.")] = 0,
    limit: Limit = 100,
) -> Response:
    """What was charged: a curator sees every charge, an analyst their own, and everyone the totals."""
    service: Service = request.app.state.service
    key = await require(request)
    data = service.datasets.get(key, dataset)
    request.state.dataset = data.name
    return json_response(await service.off_loop(lambda: data.ledger_page(key, after, limit)))


key_routes = APIRouter(prefix="/v1/keys", tags=["keys"])


@key_routes.get("", **reads(shapes.KeyPage))
async def keys(request: Request) -> Response:
    """All keys ever made, without their secrets."""
    service: Service = request.app.state.service
    await require(request, "curator")
    return json_response({"items": [shown(key) for key in service.keys.all()], "next": None})


@key_routes.post("", **asks(KeyBody, shapes.NewKey, 201, example={"analyst": "anna", "share": 0.3}))
async def add(request: Request) -> Response:
    """A new key; its token is in this response and nowhere else."""
    service: Service = request.app.state.service
    await require(request, "curator")
    body = await read_body(request, KeyBody)
    key, token = await service.off_loop(
        lambda: service.keys.add(
            body.analyst, role=body.role, share=body.share, expires=body.expires, datasets=body.datasets
        )
    )
    request.state.about = f"made key {key.id}"
    return json_response({**shown(key), "token": token}, 201)


@key_routes.delete("/{id}", status_code=204, responses=problems(401, 403, 404, 429, 500, 503))
async def revoke(request: Request, id: str) -> Response:
    """Revoke a key: it opens nothing from the next request on."""
    service: Service = request.app.state.service
    await require(request, "curator")
    try:
        service.keys.revoke(id)
    except Refused:
        raise not_found() from None
    request.state.about = f"revoked key {id}"
    return Response(status_code=204)


def shown(key: Key) -> dict[str, Any]:
    """A key as plain data."""
    return {**vars(key), "share": None if key.share is None else str(key.share)}


_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_KEEP = "no-cache"
"""Keep it, but ask before using it."""


@dataclass(frozen=True)
class Asset:
    """One file: its bytes, plain and compressed, its type and what names this version of it."""

    body: bytes
    packed: bytes
    kind: str
    tag: str

    @staticmethod
    def of(name: str, body: bytes) -> Asset:
        """Of a file of this name."""
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        return Asset(body, gzip.compress(body, 9, mtime=0), _TYPES[name.rsplit(".", 1)[1]], tag)

    def response(self, request: Request) -> Response:
        """The file, compressed where the browser takes that; nothing but its name where the browser has it."""
        headers = {"Cache-Control": _KEEP, "ETag": self.tag, "Vary": "Accept-Encoding"}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(self.packed, media_type=self.kind, headers=headers)
        return Response(self.body, media_type=self.kind, headers=headers)


def assets() -> dict[str, Asset]:
    """All files of the page, by name."""
    folder = resources.files("dodona.server") / "static"
    known = [file for file in folder.iterdir() if file.is_file() and file.name.rsplit(".", 1)[-1] in _TYPES]
    return {file.name: Asset.of(file.name, file.read_bytes()) for file in known}


def page_routes() -> APIRouter:
    """``/`` and ``/survey/ID`` are the two documents, ``/assets/NAME`` what they load."""
    files = assets()
    routes = APIRouter(include_in_schema=False)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return files["index.html"].response(request)

    @routes.api_route("/survey/{survey}", methods=["GET", "HEAD"])
    async def survey_page(request: Request, survey: str) -> Response:
        return files["survey.html"].response(request)

    @routes.api_route("/assets/{name}", methods=["GET", "HEAD"])
    async def asset(request: Request, name: str) -> Response:
        found = files.get(name)
        if found is None or name.endswith(".html"):
            raise not_found()
        return found.response(request)

    return routes
