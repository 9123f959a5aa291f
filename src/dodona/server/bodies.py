"""The shapes of requests and responses, checked on the way in and described in OpenAPI on both."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dodona.effort import Effort
from dodona.errors import BadQuery
from dodona.server.problems import Problem

Amount = Annotated[
    str | int,
    Field(
        description='A number that bears privacy: text such as "0.05" or "1/20", or a whole number; no JSON float.',
        json_schema_extra={
            "anyOf": [
                {"type": "string", "pattern": "^[0-9./eE+-]{1,90}$"},
                {"type": "integer", "minimum": 0, "maximum": 1000000},
            ]
        },
    ),
]
Text = Annotated[str, Field(min_length=1, max_length=4096)]
Number = float | list[Any]


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
        return Effort.of(self.tolerance, self.share, self.epsilon, self.rho, self.confidence)


class FreeBody(Strict):
    """One question, as exactly one of text, SELECT or value. Asked of a published synopsis it needs no effort."""

    question: Text | None = Field(None, description="A row expression: age >= 65 AND smoker.")
    sql: Text | None = Field(None, description="A SELECT with COUNT, SUM, AVG, VARIANCE, STDDEV, WHERE, GROUP BY.")
    query: dict[str, Any] | None = Field(None, description="A query as `to_json` of dodona.query writes it.")

    def given(self) -> tuple[str, Any]:
        """The one form that is there, by name."""
        found = [(name, getattr(self, name)) for name in ("question", "sql", "query")]
        there = [pair for pair in found if pair[1] is not None]
        if len(there) != 1:
            raise BadQuery("exactly one of question, sql and query must be given.")
        return there[0]


class QuestionBody(FreeBody):
    """One question with its effort."""

    effort: EffortBody


class SqlBody(Strict):
    """A SELECT with its effort."""

    sql: Text
    effort: EffortBody


class SelectBody(Strict):
    """Candidates: a list of row expressions, or the coordinates or scores of one query."""

    candidates: Annotated[list[Text], Field(min_length=1, max_length=1000)] | None = None
    query: dict[str, Any] | None = None
    mechanism: Annotated[str, Field(max_length=40)] = "best"
    effort: EffortBody


class RunBody(Strict):
    """A procedure that only a trusted server can run."""

    procedure: dict[str, Any]
    effort: EffortBody


class KeyBody(Strict):
    """A key to be made."""

    analyst: Annotated[str, Field(min_length=1, max_length=64)]
    role: Annotated[str, Field(pattern="^(analyst|curator)$")] = "analyst"
    share: Amount | None = None
    expires: Annotated[str, Field(max_length=40)] | None = None
    datasets: Annotated[list[Annotated[str, Field(max_length=255)]], Field(max_length=1000)] | None = None


class ReleaseBody(Strict):
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
