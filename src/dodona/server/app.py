"""The application: every route, one way to fail, one set of headers; and the edge, one connection each."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import importlib
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import lru_cache
from html import escape
from typing import Any, cast

import h11
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from dodona import __version__
from dodona.errors import DodonaError
from dodona.server import shapes, surveys
from dodona.server.guard import Guard, Problem, fault, not_found, problem_of
from dodona.server.routes import json_response, key_routes, page_routes, questions, releases
from dodona.server.routes import router as dataset_routes
from dodona.server.service import Service, require
from dodona.server.settings import Settings
from dodona.server.surveys.store import SurveyStore

_LATE = ("cryptography.hazmat.primitives.ciphers", "pandas")
"""What wide questions load, where it is installed: with the process rather than with an analyst's question."""


def from_environment() -> Guard:
    """For uvicorn's workers: settings travel in the environment.

    What is loaded by then stays for good, so the collector of garbage need not look at it again: a full round over it
    would stop every thread for some 50 ms, and large requests bring on many. Threads that compute hand over to the one
    that listens after 1 ms in place of 5.
    """
    sys.setswitchinterval(0.001)
    app = make_app(Settings.from_environment())
    for name in _LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries count what is left of them at the end, and print it
    return app


def make_app(settings: Settings) -> Guard:
    """The application over its own ``Service``; opening it reads surveys, keys and ledgers, and may refuse."""
    service = Service(settings)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="Dodona",
        version=__version__,
        description="Questions about sensitive data, answered with noise and a proof of privacy.",
        lifespan=lifespan,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    known = dataset_routes, questions.router, releases.synopsis_routes, releases.router, key_routes
    for routes in known:
        app.include_router(routes)
    app.include_router(surveys.router(SurveyStore(settings.survey_file)))
    app.include_router(page_routes())
    _add_operations(app, service)
    _add_docs(app)
    app.openapi = lambda: shapes.description(app)  # type: ignore[method-assign]
    for kind in (Problem, DodonaError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, problem_response)
    return Guard(app, service.metrics, service.audit)


def _add_operations(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", response_model=shapes.Health, responses={503: {"model": shapes.Health}}, tags=["operations"])
    async def health() -> Response:
        """Red where a ledger or the key store cannot be used."""
        healthy = await service.healthy()
        return json_response({"status": "ok" if healthy else "red"}, 200 if healthy else 503)

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        """Prometheus text, for a curator's key: behind a proxy every caller seems to be this machine."""
        await require(request, "curator")
        text = await service.off_loop(lambda: service.metrics.text([data.figures() for data in service.datasets]))
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _add_docs(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        """The API as a page; examples name the address it was asked at."""
        return docs_page(app.openapi(), str(request.base_url).rstrip("/"))


async def problem_response(request: Request, error: Exception) -> Response:
    """Whatever went wrong, in its outward form."""
    found = _framework(error) if isinstance(error, HTTPException | RequestValidationError) else problem_of(error)
    request.state.code = found.code
    body = found.body(request.state.request_id)
    return Response(body, found.status, found.headers, "application/problem+json")


def _framework(error: Any) -> Problem:
    """What the framework refuses by itself, in our form."""
    if isinstance(error, RequestValidationError):
        places = sorted({".".join(map(str, part["loc"])) for part in error.errors()})[:5]
        return Problem(422, "bad-request", f"these must be as described in /openapi.json: {', '.join(places)}.")
    if error.status_code == 405:
        return Problem(405, "no-method", "that method has no meaning here.", headers=dict(error.headers or {}))
    return not_found() if error.status_code == 404 else fault()


# ``/docs``: the API as a page, made from the OpenAPI description; no script, and nothing loaded from elsewhere. Each
# route has what it is for, its fields and an example as a command that can be pasted; the tests ask the examples.


_DOCS_METHODS = ("get", "post", "delete")


def docs_page(description: Mapping[str, Any], url: str) -> HTMLResponse:
    """The whole page; ``url``: where this server is, for the examples."""
    return HTMLResponse(_DOCS_HEAD + "".join(_listed(description, url)) + "</main>\n</body>\n</html>\n")


def _listed(description: Mapping[str, Any], url: str) -> Iterator[str]:
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in description["paths"].items():
        for method in _DOCS_METHODS:
            if method in methods:
                by_tag.setdefault(methods[method].get("tags", ["more"])[0], []).append((method, path, methods[method]))
    known = description["components"]["schemas"]
    yield '<div class="card" role="navigation" aria-label="Routes"><ul>'
    for tag, routes in by_tag.items():
        links = ", ".join(f'<a href="#{_anchor(m, p)}">{escape(m.upper())} {escape(p)}</a>' for m, p, _ in routes)
        yield f"<li><strong>{escape(tag)}</strong>: {links}</li>"
    yield "</ul></div>\n"
    for tag, routes in by_tag.items():
        yield f'<h2 id="{escape(tag)}">{escape(tag)}</h2>\n'
        for method, path, route in routes:
            yield from _route(method, path, route, known, url)


def _route(method: str, path: str, route: Mapping[str, Any], known: Mapping[str, Any], url: str) -> Iterator[str]:
    yield f'<section class="card" id="{_anchor(method, path)}"><h3><code>{method.upper()} {escape(path)}</code></h3>\n'
    yield f"<p>{escape(route.get('description', ''))}</p>\n"
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    if content:
        body = known[content["schema"]["$ref"].rsplit("/", 1)[1]]
        yield from _fields("Body", body, known)
    for status, reply in route["responses"].items():
        shown = reply.get("content", {}).get("application/json", {}).get("schema", {})
        if status.startswith("2") and "$ref" in shown:
            yield from _fields(f"Response, {status}", known[shown["$ref"].rsplit("/", 1)[1]], known)
    yield f"<pre><code>{escape(command(method, path, content.get('example'), url))}</code></pre></section>\n"


def command(method: str, path: str, example: Any, url: str) -> str:
    """The route asked with curl."""
    lines = [f"curl {'' if method == 'get' else f'-X {method.upper()} '}{url}{path.replace('{dataset}', 'survey')}"]
    if not path.startswith("/healthz"):
        lines.append('-H "Authorization: Bearer $DODONA_KEY"')
    if example is not None:
        written = json.dumps(example).replace("'", "'\\''")
        lines += ['-H "Content-Type: application/json"', f"-d '{written}'"]
    return " \\\n  ".join(lines)


def _fields(title: str, shape: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in shape:
        return
    required = set(shape.get("required", ()))
    yield f"<details><summary>{escape(title)}</summary><dl>"
    for name, field in shape["properties"].items():
        needed = "" if name in required else ", may be left out"
        told = field.get("description", "")
        yield f"<dt><code>{escape(name)}</code></dt><dd>{escape(_kind(field, known))}{needed}. {escape(told)}</dd>"
    yield "</dl></details>\n"


def _kind(field: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """What a field holds, in a word or two."""
    if "$ref" in field:
        return str(field["$ref"].rsplit("/", 1)[1])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in field:
            return " or ".join(dict.fromkeys(_kind(one, known) for one in field[several]))
    if field.get("type") == "array":
        return f"list of {_kind(field.get('items', {}), known)}"
    return {"null": "nothing", "object": "an object"}.get(str(field.get("type", "any")), str(field.get("type", "any")))


def _anchor(method: str, path: str) -> str:
    return escape(f"{method}-{path.strip('/').replace('/', '-').replace('{', '').replace('}', '')}")


_DOCS_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>The API · Dodona</title>
<link rel="icon" href="/assets/leaf.svg" type="image/svg+xml">
<link rel="stylesheet" href="/assets/app.css">
</head>
<body>
<header class="top"><span class="brand"><img src="/assets/leaf.svg" alt="" width="26" height="26"> Dodona</span>
<a href="/">The page</a></header>
<main class="reference">
<section class="card"><h1>The API</h1>
<p>Every route of this server, with an example each. Keys travel in a header, questions as text, numbers that bear
privacy exactly as they are written. The same as data: <a href="/openapi.json">/openapi.json</a>.</p>
<p>A request may carry <code>X-Request-Id</code>: it is given back, and stands in the audit log. A request that can
spend may carry <code>Idempotency-Key</code>: repeated under one name it is charged once, and answered alike.</p>
</section>
"""


# The edge: how long a request may take to arrive, and how many connections one address may hold.
#
# uvicorn limits the size of a request's headers and the time between two requests. It does not limit the time a request
# takes to arrive, so a peer that sends half of one and waits keeps its connection, and counts against everyone.


HEADERS = 10.0
"""Seconds from a connection, or from the first byte of its next request, to the end of the headers."""
BODY = 30.0
"""Seconds from there to the end of the body; what reads bodies is stricter (``requests``), and says so."""
READING = 120.0
"""Seconds in which a peer must take what it was sent, once its own buffers are full."""
MOST = 900
"""Connections, above which the one that has been idle or half-sent for longest makes room for the next."""


class Edge(H11Protocol):
    """One connection. Whoever breaks a limit is hung up on: nothing was asked yet, or nobody listens."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a connection; hangs up on one beyond the limits of its address, or of the house."""
        super().connection_made(transport)
        self._awaited: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None
        self._since, self._address = self.loop.time(), self.client and self.client[0]
        self._watch()
        others = cast("set[Edge]", self.connections)
        if sum(other._address == self._address for other in others) > _most_of_one_address():
            self._hang_up()
        elif len(others) > MOST:
            idle = [other for other in others if other.cycle is None or other.cycle.response_complete]
            min(idle, key=lambda other: other._since)._hang_up()  # at least this one is

    def data_received(self, data: bytes) -> None:
        """Reads on, and looks again at how long this peer may still take."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """From here on the connection is idle."""
        super().on_response_complete()
        self._since = self.loop.time()
        self._watch()

    def pause_writing(self) -> None:
        """The peer's buffers are full: it must take what it was sent within ``READING`` seconds."""
        super().pause_writing()
        self._reader = self.loop.call_later(READING, self.transport.abort)

    def resume_writing(self) -> None:
        """The peer took what it was sent in time."""
        super().resume_writing()
        _stop(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        super().connection_lost(exc)
        _stop(self._timer)
        _stop(self._reader)

    def _hang_up(self) -> None:
        self.connections.discard(self)  # now: many may come before the loop gets to know of the end of this one
        self.transport.abort()

    def _watch(self) -> None:
        """One timer for each part of a request that the peer owes; bytes that come meanwhile do not extend it."""
        state = self.conn.their_state
        between = state is h11.IDLE and self.timeout_keep_alive_task is not None
        awaited = state if state in (h11.IDLE, h11.SEND_BODY) and not between else None
        if awaited is not self._awaited:
            self._awaited = awaited
            _stop(self._timer)
            if awaited is not None:
                seconds = HEADERS if awaited is h11.IDLE else BODY
                self._timer = self.loop.call_later(seconds, self.transport.abort)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


@lru_cache(maxsize=1)
def _most_of_one_address() -> int:
    return Settings.from_environment().connections
