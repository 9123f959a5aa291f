"""From a request's ``Authorization`` header to the key behind it, or one refusal for every failure (V56)."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from dodona.server.keys import Key, KeyStore, looks_like_token
from dodona.server.limits import Buckets
from dodona.server.problems import Problem, denied

FAILURES = (5.0, 50.0)
REQUESTS = (100.0, 200.0)


class Gate:
    """Checks keys. A token is hashed slowly once per process; after that a SHA-256 and a lookup suffice."""

    def __init__(self, store: KeyStore, requests: tuple[float, float] = REQUESTS) -> None:
        self._store = store
        self._failures, self._requests = Buckets(*FAILURES), Buckets(*requests)
        self._one_at_a_time: asyncio.Semaphore | None = None

    async def caller(self, request: Request, role: str | None = None) -> Key:
        """The living key of the request; of ``role``, where one is named."""
        token = _token(request)
        key = None if token is None else self._store.known(token)
        if key is None:
            key = await self._verified(token, request.client.host if request.client else "")
        self._requests.take(key.id)
        request.state.key = key
        if role is not None and key.role != role:
            raise denied(403)
        return key

    async def _verified(self, token: str | None, address: str) -> Key:
        if token is None or not looks_like_token(token):
            raise denied()
        if self._failures.empty(address):
            self._failures.take(address)  # raises: guesses from one address are few a second
        if self._one_at_a_time is None:
            self._one_at_a_time = asyncio.Semaphore(1)
        async with self._one_at_a_time:  # scrypt is costly; a flood of guesses must not take every core
            key = await asyncio.to_thread(self._store.verify, token)
        if key is None:
            if not self._failures.empty(address):
                self._failures.take(address)
            raise denied()
        return key


def _token(request: Request) -> str | None:
    """The header's token; never one in the address, where logs and histories would keep it."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and len(token) < 200 else None


async def require(request: Request, role: str | None = None) -> Key:
    """The caller of a request, by the application's gate: for any router beside ours."""
    gate: Gate = request.app.state.service.gate
    key = await gate.caller(request, role)
    _known_parameters(request)
    return key


def _known_parameters(request: Request) -> None:
    """Parameters the route does not know are refused, as unknown fields of a body are (R10)."""
    if request.url.query:
        allowed = {parameter.alias for parameter in request.scope["route"].dependant.query_params}
        given = [name for name, _ in request.query_params.multi_items()]
        if len(set(given)) != len(given) or not set(given) <= allowed:
            raise Problem(422, "bad-request", "the address has a parameter that this route does not know, or twice.")
