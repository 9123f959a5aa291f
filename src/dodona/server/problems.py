"""Refusals and faults as ``application/problem+json`` (RFC 9457), each with one code of a fixed list.

``charged`` says whether the request was charged: false, true, or null where it cannot be known. A detail speaks of the
request, the schema and the ledger only (HOSTILE R1); a fault has one fixed text (R12).
"""

from __future__ import annotations

import json
from typing import Any

from dodona import errors

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
