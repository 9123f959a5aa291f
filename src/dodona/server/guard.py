"""Around every request: its id, security headers, one problem document for every failure, metrics and the audit log."""

from __future__ import annotations

import re
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import PurePath
from typing import Any

from dodona.server.audit import Audit
from dodona.server.headers import ALWAYS, NOT_STORED
from dodona.server.metrics import Metrics
from dodona.server.problems import Problem, problem_of
from dodona.server.strict_json import MOST_BYTES, too_large

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, metrics: Metrics, audit: Audit) -> None:
        self._app, self._metrics, self._audit = app, metrics, audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, request_id = time.monotonic(), _request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"], state["start"] = request_id, start
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_headers(scope, request_id)]
            await send(message)

        try:
            await self._app(scope, _limited(scope, receive), sending)
        except Exception as error:  # whatever it is, it leaves in its outward form, and no log gets its words (R12)
            state["code"], state["about"] = problem_of(error).code, _where(error)
            if not status:
                await respond(problem_of(error), request_id, sending)
        finally:
            self._note(scope, status, time.monotonic() - start)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        state, method = scope["state"], scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path", "unknown")
        self._metrics.note(method, route, status, seconds)
        key = state.get("key")
        who = {} if key is None else {"key": key.id, "analyst": key.analyst, "role": key.role}
        dataset = state.get("dataset")
        about = {name: state[name] for name in ("code", "charge", "about") if state.get(name) is not None}
        what = {"request": state["request_id"], "method": method, "route": route, "status": status}
        self._audit.write(
            {**what, **who, **({"dataset": dataset} if dataset else {}), **about, "ms": round(seconds * 1e3)}
        )


_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


async def respond(problem: Problem, request_id: str, send: Send) -> None:
    """Send a problem document."""
    body = problem.body(request_id)
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _limited(scope: Scope, receive: Receive) -> Receive:
    """A body that is too large is refused at its announcement, or where it passes the limit; the rest is not read."""
    size = 0

    async def receiving() -> Message:
        nonlocal size
        if size == 0 and _announced(scope) > MOST_BYTES:
            raise too_large()
        message = await receive()
        size += len(message.get("body", b""))
        if size > MOST_BYTES:
            raise too_large()
        return message

    return receiving


def _announced(scope: Scope) -> int:
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(length) if length.isdigit() and len(length) <= 12 else MOST_BYTES + 1


def _headers(scope: Scope, request_id: str) -> list[tuple[bytes, bytes]]:
    own = [*ALWAYS, (b"x-request-id", request_id.encode())]
    return [*own, NOT_STORED] if scope["path"].startswith("/v1/") else own


def _where(error: Exception) -> str:
    """What went wrong in which line of ours: for whoever mends it. An error's own words could hold a row's value."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "dodona" in frame.filename]
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ID.fullmatch(value):
            return str(value.decode())
    return secrets.token_hex(8)
