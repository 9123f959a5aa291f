"""What the OpenAPI description says of a route beyond its address: bodies, headers, responses, problems.

Bodies are read by our own strict reader, not by the framework, so they are described here, from the same classes that
check them.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from dodona.server import outputs
from dodona.server.problems import TITLES

_REF = "#/components/schemas/{model}"
_BODIES: dict[str, type[BaseModel]] = {}
_ONCE = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Your name for this request: a retry is neither charged twice nor given new noise.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]{1,128}$"},
}
_ALWAYS = (401, 403, 404, 408, 429, 500, 503)
_WITH_BODY = (400, 409, 413, 415, 422)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem documents at these statuses."""
    content = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
    return {status: {"description": "A problem document.", "content": content} for status in statuses}


def reads(shown: type[BaseModel], status: int = 200) -> dict[str, Any]:
    """A route without a body."""
    return {"response_model": shown, "status_code": status, "responses": problems(*_ALWAYS, 422)}


def asks(body: type[BaseModel], shown: type[BaseModel], status: int = 200) -> dict[str, Any]:
    """A route with a body."""
    _BODIES[body.__name__] = body
    content = {"application/json": {"schema": {"$ref": _REF.format(model=body.__name__)}}}
    return {
        "response_model": shown,
        "status_code": status,
        "responses": problems(*_ALWAYS, *_WITH_BODY),
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


def asks_once(body: type[BaseModel], shown: type[BaseModel]) -> dict[str, Any]:
    """A route with a body whose retry is safe."""
    route = asks(body, shown)
    route["openapi_extra"] = {**route["openapi_extra"], "parameters": [_ONCE]}
    return route


def description(app: FastAPI) -> dict[str, Any]:
    """The whole document."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = made.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        described: list[type[BaseModel]] = [*_BODIES.values(), outputs.Problem]
        for kind in described:
            own = kind.model_json_schema(ref_template=_REF, mode="validation")
            schemas.update(own.pop("$defs", {}))
            schemas[kind.__name__] = own
        schemas["Problem"]["properties"]["code"]["enum"] = sorted(TITLES)
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, methods in made["paths"].items():
            for route in methods.values():
                route["responses"].pop("422", None) if path in _OPEN else None
                if path not in _OPEN and "security" not in route:
                    route["security"] = [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema


_OPEN = frozenset({"/healthz"})
