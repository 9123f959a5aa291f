"""The application: every route, one way to fail, one set of headers."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from dodona import __version__
from dodona.errors import DodonaError
from dodona.server import shapes, surveys
from dodona.server.guard import Guard
from dodona.server.problems import Problem, fault, not_found, problem_of
from dodona.server.routes import catalogue, questions, releases
from dodona.server.routes.catalogue import json_response
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
    known = catalogue.router, questions.router, releases.synopsis_routes, releases.router, catalogue.key_routes
    for routes in known:
        app.include_router(routes)
    app.include_router(surveys.router(SurveyStore(settings.survey_file)))
    app.include_router(catalogue.page_routes())
    _add_operations(app, service)
    app.openapi = lambda: shapes.description(app)  # type: ignore[method-assign]
    for kind in (Problem, DodonaError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _problem)
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


async def _problem(request: Request, error: Exception) -> Response:
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
