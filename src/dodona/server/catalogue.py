"""The routes that show what there is: datasets and their ledgers."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from dodona.server import outputs
from dodona.server.auth import require
from dodona.server.describe import reads
from dodona.server.service import Service

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many items.")]


def json_response(data: Any, status: int = 200) -> Response:
    """Plain data as it is."""
    return Response(json.dumps(data, allow_nan=False), status, media_type="application/json")


@router.get("", **reads(outputs.DatasetPage))
async def datasets(request: Request, after: Annotated[str, Query(max_length=255)] = "", limit: Limit = 100) -> Response:
    """The datasets your key opens, by name."""
    service: Service = request.app.state.service
    key = await require(request)
    names = [name for name in service.datasets.visible(key) if name > after]
    page = names[:limit]
    following = page[-1] if len(names) > limit else None
    return json_response({"items": [{"name": name} for name in page], "next": following})


@router.get("/{dataset}", **reads(outputs.Dataset))
async def dataset(request: Request, dataset: str) -> Response:
    """Its public facts, its budget, and what you can still spend."""
    service: Service = request.app.state.service
    key = await require(request)
    data = service.datasets.get(key, dataset)
    request.state.dataset = data.name
    return json_response(await service.off_loop(lambda: data.describe(key)))


@router.get("/{dataset}/ledger", **reads(outputs.LedgerPage))
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
