"""The curator's routes: keys."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dodona.errors import Refused
from dodona.server import outputs
from dodona.server.auth import require
from dodona.server.bodies import KeyBody
from dodona.server.catalogue import json_response
from dodona.server.describe import asks, problems, reads
from dodona.server.keys import Key
from dodona.server.problems import not_found
from dodona.server.requests import read_body
from dodona.server.service import Service

router = APIRouter(prefix="/v1/keys", tags=["keys"])


@router.get("", **reads(outputs.KeyPage))
async def keys(request: Request) -> Response:
    """All keys ever made, without their secrets."""
    service: Service = request.app.state.service
    await require(request, "curator")
    return json_response({"items": [shown(key) for key in service.keys.all()], "next": None})


@router.post("", **asks(KeyBody, outputs.NewKey, 201))
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


@router.delete("/{id}", status_code=204, responses=problems(401, 403, 404, 429, 500, 503))
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
