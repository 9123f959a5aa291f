"""Reading requests: the body within its limits, the idempotency key, the question as a value."""

from __future__ import annotations

import asyncio
import re
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request

from dodona.server.bodies import checked
from dodona.server.problems import Problem
from dodona.server.strict_json import parse

SECONDS = 20.0
_KEY = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)
Body = TypeVar("Body", bound=BaseModel)


async def read_bytes(request: Request) -> bytes:
    """The body (``guard`` keeps its size), refused where it is of another type, or too slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "media-type", "the body must be sent as application/json.")
    try:
        async with asyncio.timeout(SECONDS):
            return await request.body()
    except (TimeoutError, ClientDisconnect):
        raise Problem(408, "timeout", f"a body must arrive within {SECONDS:g} seconds.") from None


async def read_body(request: Request, kind: type[Body]) -> Body:
    """The body as a checked value."""
    body: Any = checked(kind, parse(await read_bytes(request)))  # type: ignore[type-var]
    return body  # type: ignore[no-any-return]


def idempotency_key(request: Request) -> str | None:
    """The caller's name for this request; namespaced by analyst in the ledger."""
    given = request.headers.get("idempotency-key")
    if given is not None and not _KEY.fullmatch(given):
        raise Problem(422, "bad-request", "an Idempotency-Key must be 1 to 128 visible ASCII characters.")
    return given
