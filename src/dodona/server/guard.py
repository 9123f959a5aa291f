"""Around every request: its id, security headers, one problem document for every failure, metrics and the audit log.

Refusals and faults are ``application/problem+json`` (RFC 9457), each with one code of a fixed list. ``charged`` says
whether the request was charged: false, true, or null where it cannot be known. A detail speaks of the request, the
schema and the ledger only (HOSTILE R1); a fault has one fixed text (R12).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from pathlib import PurePath
from typing import Any

from dodona import errors
from dodona.server.keys import now_text

TITLES = {
    "bad-json": "The body is not JSON as we accept it",
    "bad-request": "The request does not fit the description",
    "bad-query": "The question is outside the language",
    "bad-effort": "The effort is absent, doubled or out of range",
    "unsupported": "This dataset cannot answer that by its nature",
    "refused": "The request was refused",
    "budget-spent": "The price is more than what is left",
    "denied": "A key that allows this is needed",
    "not-found": "There is no such thing here",
    "no-method": "That method has no meaning here",
    "too-large": "The request is too large",
    "media-type": "The body must be application/json",
    "too-many": "Too many requests",
    "timeout": "The request did not arrive in time",
    "ledger": "The ledger cannot be reached or trusted",
    "answer-lost": "Charged, but the answer was lost",
    "fault": "Internal fault",
}
"""Every code there is, with its title."""


class Problem(Exception):
    """A refusal that is already in its outward form."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        charged: bool | None = False,
        headers: dict[str, str] | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.charged = status, code, detail, charged
        self.headers, self.more = headers or {}, more or {}

    def body(self, request_id: str) -> bytes:
        """The document."""
        return json.dumps(
            {
                "type": f"about:blank#{self.code}",
                "title": TITLES[self.code],
                "status": self.status,
                "code": self.code,
                "detail": self.detail,
                "request_id": request_id,
                "charged": self.charged,
                **self.more,
            }
        ).encode()


def denied(status: int = 401) -> Problem:
    """One refusal for every key that is absent, unknown, expired, revoked or of the wrong role (V56)."""
    headers = {"WWW-Authenticate": 'Bearer realm="dodona"'} if status == 401 else {}
    return Problem(
        status, "denied", "a valid key that allows this is needed: Authorization: Bearer KEY.", headers=headers
    )


def not_found() -> Problem:
    """One refusal for what does not exist and for what the caller may not see (V57)."""
    return Problem(404, "not-found", "there is nothing of that name that your key allows.")


def fault() -> Problem:
    """Whatever went wrong inside: one fixed text (R12)."""
    return Problem(500, "fault", "an internal fault; no detail is shown.", charged=None)


MOST_BYTES = 1 << 20
"""The longest body of a request."""


def too_large() -> Problem:
    """The refusal of a body beyond the limit."""
    return Problem(413, "too-large", f"a request's body must be at most {MOST_BYTES:,} bytes.")


def too_many(seconds: float) -> Problem:
    """A limit was reached; ``seconds`` until the next try makes sense."""
    wait = max(1, round(seconds))
    return Problem(429, "too-many", "too many requests; wait, then try again.", headers={"Retry-After": str(wait)})


_KINDS: list[tuple[type[errors.DodonaError], int, str]] = [
    (errors.BudgetSpent, 409, "budget-spent"),
    (errors.BadQuery, 422, "bad-query"),
    (errors.BadEffort, 422, "bad-effort"),
    (errors.Unsupported, 422, "unsupported"),
    (errors.BadSchema, 422, "bad-query"),
    (errors.BadTable, 422, "refused"),
    (errors.Refused, 409, "refused"),
]


def problem_of(error: Exception) -> Problem:
    """The outward form of an exception."""
    if isinstance(error, Problem):
        return error
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            return Problem(status, code, str(error), more=_amounts(error))
    if isinstance(error, errors.LedgerError):
        # After a failed write the charge may have been kept: whether is not known until the ledger is read back.
        return Problem(503, "ledger", "the ledger cannot be reached or trusted; no answer leaves.", charged=None)
    if isinstance(error, errors.AnswerLost):
        return Problem(500, "answer-lost", str(error), charged=True)
    return fault()


def _amounts(error: errors.DodonaError) -> dict[str, Any]:
    if isinstance(error, errors.BudgetSpent):
        return {"price": error.price, "left": error.left, "unit": error.unit}
    return {}


# What every response carries: nothing may be loaded from elsewhere, framed, guessed or remembered.


CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
ALWAYS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
NOT_STORED = (b"cache-control", b"no-store")
"""For answers of the API; the page's own files may be kept."""


# The audit log: one JSON object a line for every request. Who asked what kind of thing, how it ended, what it cost.
#
# No row value can be in it: it holds the route's template (never the address as sent, which could hold a secret), the
# key's id, the status and code, and the charge's number. What was asked stands in the ledger.


class Audit:
    """Appends to the file at ``path``, or writes to standard error; lines of several processes do not mix."""

    def __init__(self, path: str | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = sys.stderr.fileno() if path is None else os.open(path, flags, 0o600)
        self._owned = path is not None
        self._mutex = threading.Lock()

    def write(self, event: dict[str, Any]) -> None:
        """One line."""
        line = json.dumps({"time": now_text(), "pid": os.getpid(), **event}, ensure_ascii=True) + "\n"
        with self._mutex:
            os.write(self._file, line.encode("ascii"))

    def close(self) -> None:
        """Let the file go."""
        if self._owned:
            os.close(self._file)


# Counts for Prometheus, in its text format. They tell of requests and ledgers, never of rows.


EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Of one process. Times are those a client sees: answers' are already on the public schedule."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._requests: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """One finished request."""
        with self._mutex:
            key = (method, route, status)
            self._requests[key] = self._requests.get(key, 0) + 1
            counts = self._times.setdefault(route, [0] * (len(EDGES) + 1))
            counts[sum(seconds > edge for edge in EDGES)] += 1
            self._seconds[route] = self._seconds.get(route, 0.0) + seconds

    def text(self, budgets: Iterable[tuple[str, str, float, float]]) -> str:
        """Everything; ``budgets``: name, unit, spent and left of each dataset."""
        worker = f'worker="{os.getpid()}"'
        lines = ["# TYPE dodona_requests_total counter"]
        with self._mutex:
            for (method, route, status), count in sorted(self._requests.items()):
                labels = f'{worker},method="{method}",route="{_escape(route)}",status="{status}"'
                lines.append(f"dodona_requests_total{{{labels}}} {count}")
            lines.append("# TYPE dodona_request_seconds histogram")
            for route, counts in sorted(self._times.items()):
                lines += self._histogram(worker, route, counts)
        for which in ("spent", "left"):
            lines.append(f"# TYPE dodona_budget_{which} gauge")
            for name, unit, spent, left in budgets:
                labels = f'{worker},dataset="{_escape(name)}",unit="{unit}"'
                lines.append(f"dodona_budget_{which}{{{labels}}} {spent if which == 'spent' else left}")
        return "\n".join(lines) + "\n"

    def _histogram(self, worker: str, route: str, counts: list[int]) -> list[str]:
        labels, below, lines = f'{worker},route="{_escape(route)}"', 0, []
        for edge, count in zip((*EDGES, "+Inf"), counts, strict=True):
            below += count
            lines.append(f'dodona_request_seconds_bucket{{{labels},le="{edge}"}} {below}')
        lines.append(f"dodona_request_seconds_sum{{{labels}}} {self._seconds[route]:.6f}")
        lines.append(f"dodona_request_seconds_count{{{labels}}} {below}")
        return lines


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
MOST_HEADERS = 100


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
        state["request_id"] = request_id
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_headers(scope, request_id)]
            await send(message)

        try:
            _require_sound_headers(scope)
            await self._app(scope, _limit(scope, receive), sending)
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


def _require_sound_headers(scope: Scope) -> None:
    """Few enough, and one statement of the body's length: a proxy before us may have believed the other (RFC 9112)."""
    names, close = [name for name, _ in scope["headers"]], {"Connection": "close"}
    if len(names) > MOST_HEADERS:
        raise Problem(431, "too-large", f"a request must have at most {MOST_HEADERS} headers.", headers=close)
    lengths = [name for name in names if name in (b"content-length", b"transfer-encoding")]
    if len(lengths) > 1:
        detail = "a request must state its length once, as Content-Length or as Transfer-Encoding."
        raise Problem(400, "bad-request", detail, headers=close)


def _limit(scope: Scope, receive: Receive) -> Receive:
    """A body that is too large is refused at its announcement, or where it passes the limit; the rest is not read."""
    size = 0

    async def receiving() -> Message:
        nonlocal size
        if size == 0 and _announced_size(scope) > MOST_BYTES:
            raise too_large()
        message = await receive()
        size += len(message.get("body", b""))
        if size > MOST_BYTES:
            raise too_large()
        return message

    return receiving


def _announced_size(scope: Scope) -> int:
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
