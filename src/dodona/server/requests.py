"""Reading requests: the body within its limits, the idempotency key, the question as a value.

Their shapes are checked on the way in and described in OpenAPI.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect, Request

from dodona.errors import BadQuery
from dodona.oracles.effort import Effort
from dodona.query.unit import MOST_ROWS, Bounds
from dodona.server.guard import MOST_BYTES, Problem, too_large


class Written(float):
    """A number of JSON with its text, where the nearest double is not that number."""

    text: str

    @staticmethod
    def of(text: str) -> float:
        """As a double where that says the same, exactly; else with its text."""
        value = Written(text)
        value.text = text
        return float(value) if Decimal(repr(float(value))) == Decimal(text) else value


def _as_written(value: Any) -> Any:
    """The text of a number that no double holds."""
    return value.text if isinstance(value, Written) else value


Amount = Annotated[
    str | int | float,
    BeforeValidator(_as_written),
    Field(
        description='A number that bears privacy, taken exactly as it is written: 0.05, or text: "0.05", "1/20".',
        json_schema_extra={
            "anyOf": [
                {"type": "string", "pattern": "^[0-9./eE+-]{1,90}$"},
                {"type": "number", "minimum": 0, "maximum": 1000000},
            ]
        },
    ),
]
_AMOUNTS = frozenset({"tolerance", "share", "epsilon", "rho", "confidence"})
"""Where a number's text is kept: everywhere else it is a double."""
Text = Annotated[str, Field(min_length=1, max_length=4096)]
Number = float | list[Any]
Most = Annotated[int, Field(ge=1, le=MOST_ROWS)]


class Strict(BaseModel):
    """Unknown fields are refused (a misspelt privacy parameter must not pass silently), and types are not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EffortBody(Strict):
    """Exactly one of tolerance, share, epsilon and rho."""

    tolerance: Amount | None = None
    share: Amount | None = None
    epsilon: Amount | None = None
    rho: Amount | None = None
    confidence: Amount = "0.95"

    def effort(self) -> Effort:
        """As the library's value."""
        return Effort.of(**self.model_dump())


class BoundsBody(Strict):
    """With how many rows, and in how many groups, one person counts; what is not stated is as the dataset says."""

    max_rows: Most | None = None
    max_groups: Most | None = None
    max_rows_per_group: Most | None = None

    def bounds(self) -> Bounds:
        """As the library's value."""
        return Bounds(**self.model_dump())


class PeopleBody(Strict):
    """People made of their rows: the inner SELECT, and what may be stated of them."""

    select: Text
    max_groups: Most | None = None
    max_rows: Most | None = None
    rows: Annotated[int, Field(ge=1, le=2**40)] | None = None


class Sourced(Strict):
    """What may be asked of several tables, of people made of rows, and with so much of each person."""

    source: Text | None = Field(
        None,
        alias="from",
        description="Tables joined, as FROM writes them: visits JOIN zips USING (zip). A SELECT says it by itself.",
    )
    people: PeopleBody | None = None
    bounds: BoundsBody | None = None


class FreeBody(Strict):
    """One question, as exactly one of text, SELECT or value. Asked of a published synopsis it needs no effort."""

    question: Text | None = Field(None, description="A row expression: age >= 65 AND smoker.")
    sql: Text | None = Field(
        None, description="A SELECT: aggregates under WHERE and GROUP BY, finished by HAVING, ORDER BY and the like."
    )
    query: dict[str, Any] | None = Field(None, description="A query as `to_json` of dodona.query writes it.")

    def given(self) -> tuple[str, Any]:
        """The one form that is there, by name."""
        found = [(name, getattr(self, name)) for name in ("question", "sql", "query")]
        there = [pair for pair in found if pair[1] is not None]
        if len(there) != 1:
            raise BadQuery("exactly one of question, sql and query must be given.")
        return there[0]


class QuestionBody(FreeBody, Sourced):
    """One question with its effort."""

    effort: EffortBody


class SqlBody(Strict):
    """A SELECT with its effort."""

    sql: Text
    effort: EffortBody


class JoinBody(Strict):
    """Tables joined, as FROM writes them, or people made of rows: one of the two."""

    source: Text | None = Field(None, alias="from")
    people: PeopleBody | None = None


class LossesBody(Sourced):
    """Columns whose losses are counted, all of them unless stated, with the effort."""

    columns: Annotated[list[Annotated[str, Field(max_length=255)]], Field(min_length=1, max_length=300)] | None = None
    effort: EffortBody


class SelectBody(Sourced):
    """Candidates: a list of row expressions, or the coordinates or scores of one query."""

    candidates: Annotated[list[Text], Field(min_length=1, max_length=1000)] | None = None
    query: dict[str, Any] | None = None
    mechanism: Annotated[str, Field(max_length=40)] = "best"
    effort: EffortBody


class RunBody(Sourced):
    """A procedure that only a trusted server can run."""

    procedure: dict[str, Any]
    effort: EffortBody


class KeyBody(Strict):
    """A key to be made."""

    analyst: Annotated[str, Field(min_length=1, max_length=64)]
    role: Annotated[str, Field(pattern="^(analyst|curator|shuffler)$")] = "analyst"
    share: Amount | None = None
    expires: Annotated[str, Field(max_length=40)] | None = None
    datasets: Annotated[list[Annotated[str, Field(max_length=255)]], Field(max_length=1000)] | None = None


class ReleaseBody(Sourced):
    """A release to be made: a kind and its settings, with the part of the budget it may spend."""

    kind: Annotated[str, Field(max_length=40)]
    settings: dict[str, Any] = Field(default_factory=dict)
    effort: EffortBody


Body = TypeVar("Body", bound=Strict)


def checked(kind: type[Body], data: Any) -> Body:
    """The body as a value, or a ``Problem`` that names the fields at fault and nothing of their contents."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        places = sorted({".".join(map(str, part["loc"][:3])) or "the body" for part in error.errors()})[:5]
        faults = sorted({part["type"] for part in error.errors()})[:5]
        detail = f"these must be as described in /openapi.json: {', '.join(places)} ({', '.join(faults)})."
        raise Problem(422, "bad-request", detail) from None


# JSON as we accept it: what Python's reader lets through by default is refused here (HOSTILE V55).
#
# Before parsing: size and nesting, by one pass over the bytes. While parsing: NaN, Infinity, numbers beyond a double,
# integers of more than 19 digits, a name that stands twice in one object, lone surrogates.


DEEPEST = 128
"""Brackets inside brackets. A row expression of n levels takes 2n of them, a query around it some 16."""
_DIGITS = 19
_EXACT = 15
"""Characters that are a number which a double holds as it is written: it has 15 digits at least."""
# A string, whole; or one bracket. Strings are consumed so that brackets inside them do not count.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_OPEN, _CLOSE = frozenset(b"[{"), frozenset(b"]}")


def parse(body: bytes) -> Any:
    """The value in ``body``, or ``Problem`` "bad-json"."""
    if len(body) > MOST_BYTES:
        raise too_large()
    _check_depth(body)
    try:
        return json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except Problem:
        raise
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise _bad("it is not JSON in UTF-8") from None


def _check_depth(body: bytes) -> None:
    depth = 0
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first in _OPEN:
            depth += 1
            if depth > DEEPEST:
                raise _bad(f"it nests more than {DEEPEST} levels")
        elif first in _CLOSE:
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _bad("a name stands twice in one object")
    for name, value in pairs:
        _check_text(name)
        _check_text(value)
        if isinstance(value, Written | list) and name not in _AMOUNTS:
            made[name] = _doubles(value)
    return made


def _doubles(value: Any) -> Any:
    """Numbers as doubles, in lists as well; objects within have been seen already."""
    if isinstance(value, list):
        return [_doubles(one) if isinstance(one, Written | list) else one for one in value]
    return float(value)


def _check_text(value: Any) -> None:
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _bad("a text holds half a surrogate pair") from None


def _constant(name: str) -> Any:
    raise _bad(f"{name} is not a number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _bad("a number is beyond the range of a double")
    return Written.of(text) if len(text) > _EXACT else value


def _int(text: str) -> int:
    if len(text) > _DIGITS:
        raise _bad(f"a whole number has more than {_DIGITS} digits")
    return int(text)


def _bad(why: str) -> Problem:
    return Problem(400, "bad-json", f"the body must be plain JSON; {why}.")


SECONDS = 20.0
_KEY = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)


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
    body: Any = checked(kind, parse(await read_bytes(request)))
    return body  # type: ignore[no-any-return]


def idempotency_key(request: Request) -> str | None:
    """The caller's name for this request; namespaced by analyst in the ledger."""
    given = request.headers.get("idempotency-key")
    if given is not None and not _KEY.fullmatch(given):
        raise Problem(422, "bad-request", "an Idempotency-Key must be 1 to 128 visible ASCII characters.")
    return given
