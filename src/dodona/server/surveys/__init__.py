"""Surveys over HTTP: a curator defines them, anyone answers, anyone sees the estimates.

The form, the intake of reports and the estimates are public and need no key: a report was randomised before it was
sent, and estimates are computed from reports alone. Defining, listing and closing need a curator's key.

The shapes of what travels are checked on the way in and described in OpenAPI on both.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from dodona.errors import Refused, Unsupported
from dodona.local.client import unpacked
from dodona.local.prefixes import MOST_BITS
from dodona.server.guard import Problem, not_found
from dodona.server.requests import Amount, Strict, read_body
from dodona.server.routes import json_response
from dodona.server.service import Buckets, require
from dodona.server.shapes import asks, problems, reads
from dodona.server.surveys.estimates import PlannedSurvey, planned
from dodona.server.surveys.estimates import estimated as estimated
from dodona.server.surveys.store import AlreadyCounted, NoSuchSurvey, SurveyStore, UnknownToken
from dodona.server.surveys.survey import (
    LONGEST_ALPHABET,
    LONGEST_LABEL,
    LONGEST_TEXT,
    MOST_BATCH,
    MOST_CHOICES,
    MOST_QUESTIONS,
    Survey,
)

MOST_TOKENS = 10_000


class SurveyQuestionBody(Strict):
    """``kind`` yes-no, choice (with ``values``), number (with ``edges``, the ends of its buckets) or text (with an
    ``alphabet``, whose first letter stands for all it lacks, and the ``length`` that counts).
    """

    text: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
    kind: Annotated[str, Field(pattern="^(yes-no|choice|number|text)$")]
    values: Annotated[list[Annotated[str, Field(max_length=LONGEST_LABEL)]], Field(max_length=MOST_CHOICES)] | None = (
        None
    )
    edges: Annotated[list[float], Field(max_length=MOST_CHOICES + 1)] | None = None
    alphabet: Annotated[str, Field(min_length=2, max_length=LONGEST_ALPHABET)] | None = None
    length: Annotated[int, Field(ge=1, le=MOST_BITS)] | None = None


class SurveyBody(Strict):
    """A survey to be made. ``tokens``: how many one-time links to give out; 0 lets anyone answer. ``batch``: reports
    that a shuffler must forward at a time, at least; 0: respondents hand in their reports here.
    """

    title: Annotated[str, Field(min_length=1, max_length=120)]
    about: Annotated[str, Field(max_length=2000)] = ""
    epsilon: Amount
    questions: Annotated[list[SurveyQuestionBody], Field(min_length=1, max_length=MOST_QUESTIONS)]
    tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = 0
    batch: Annotated[int, Field(ge=0, le=MOST_BATCH)] = 0


class PartBody(Strict):
    """A part of a batch of ``total`` reports, by question: from a shuffler, counted once."""

    batch: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    part: Annotated[int, Field(ge=0, lt=1000)]
    total: Annotated[int, Field(ge=1, le=10_000_000)]
    reports: dict[str, Annotated[list[Annotated[str, Field(max_length=400)]], Field(min_length=1, max_length=10_000)]]


class ReportBody(Strict):
    """One report, in base64, on the question the lot fell on."""

    question: Annotated[str, Field(max_length=8)]
    report: Annotated[str, Field(max_length=400)]


class ReportsBody(Strict):
    """Exactly one report: a second one by the same person would cost them as much again."""

    reports: Annotated[list[ReportBody], Field(min_length=1, max_length=1)]
    token: Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="Names the report: each counts once.")]


class NewSurvey(BaseModel):
    """A survey that was made; its tokens are in this response and nowhere else."""

    id: str
    path: str
    tokens: list[str]


class Shuffling(BaseModel):
    """What a shuffler is told of a survey: all that its form is made of, and the hashes of the links given out."""

    survey: dict[str, Any]
    tokens: list[str]
    closed: bool


class ShufflerForm(BaseModel):
    """A survey whose reports go through a shuffler, and what a batch is worth: ``central`` epsilon at ``delta``."""

    batch: int
    central: str
    delta: str


class ListedSurvey(BaseModel):
    """A survey as its curator sees it."""

    id: str
    title: str
    epsilon: str
    closed: bool
    made: str
    reports: int


class SurveyPage(BaseModel):
    """All surveys, newest first."""

    items: list[ListedSurvey]
    next: str | None


class WindowForm(BaseModel):
    """The draw: ``odds`` [A, C] as text, A for each of the first ``favoured`` of ``size`` positions, C for the rest.

    ``length``: of the prefix that is reported, in bits; of a text question's windows.
    """

    shape: str
    length: int | None = None
    symbols: int
    size: int
    favoured: int
    odds: list[str]


class PrefixesForm(BaseModel):
    """A text question's: which of the ``windows`` is drawn, with ``shares`` of all; ``bits``: of the whole text."""

    shape: str
    bits: int
    shares: list[int]
    windows: list[WindowForm]


class QuestionForm(BaseModel):
    """A question as a respondent's browser is told it."""

    model_config = ConfigDict(extra="allow")

    id: str
    text: str
    kind: str
    labels: list[str]
    scheme: str
    randomiser: WindowForm | PrefixesForm


class SurveyForm(BaseModel):
    """The public form."""

    id: str
    title: str
    about: str
    epsilon: str
    version: int
    questions: list[QuestionForm]
    shuffler: ShufflerForm | None = None


class Invitations(BaseModel):
    """By question: the text that ``dodona.local.Client`` answers."""

    invitations: dict[str, str]


class Share(BaseModel):
    """An estimated share of those who reported, and how far the truth may be from it."""

    label: str
    share: float
    margin: float


class QuestionEstimates(BaseModel):
    """What the reports on one question say; ``proven`` and ``leaves_out`` as of an answer."""

    id: str
    text: str
    kind: str
    reports: int
    estimates: list[Share]
    proven: bool
    leaves_out: list[str]


class Estimates(BaseModel):
    """What all reports say so far."""

    id: str
    title: str
    reports: int
    confidence: float
    questions: list[QuestionEstimates]


PUBLIC: dict[str, Any] = {"security": []}
"""No key is needed."""


PUBLIC_RATE = (50.0, 500.0)
"""Requests a second, and at once, that one address may make without a key."""


def router(store: SurveyStore) -> APIRouter:
    """The routes over one store."""
    routes = APIRouter(prefix="/v1/surveys", tags=["surveys"])
    public = Buckets(*PUBLIC_RATE)

    async def found(request: Request, survey: str) -> Survey:
        public.take(request.client.host if request.client else "")
        try:
            return await run_in_threadpool(store.survey, survey)
        except NoSuchSurvey:
            raise not_found() from None

    @routes.get("", **reads(SurveyPage))
    async def listed(request: Request) -> Response:
        """All surveys, newest first (curator)."""
        await require(request, "curator")
        return json_response({"items": await run_in_threadpool(store.listed), "next": None})

    @routes.post("", **asks(SurveyBody, NewSurvey, 201))
    async def define(request: Request) -> Response:
        """Make a survey (curator)."""
        await require(request, "curator")
        body = await read_body(request, SurveyBody)
        survey = Survey.read(secrets.token_urlsafe(8), body.model_dump(exclude_none=True, exclude={"tokens"}))
        survey.form()  # what no browser could draw is refused now, not by the first respondent
        tokens = [secrets.token_hex(16) for _ in range(body.tokens)]
        await run_in_threadpool(store.add, survey, tokens)
        request.state.about = f"made survey {survey.id}"
        return json_response({"id": survey.id, "path": f"/survey/{survey.id}", "tokens": tokens}, 201)

    _add_plan(routes)

    @routes.post("/{survey}/close", status_code=204, responses=problems(401, 403, 404, 422, 429, 500, 503))
    async def close(request: Request, survey: str) -> Response:
        """Take no further reports; estimates stay (curator)."""
        await require(request, "curator")
        wanted = await found(request, survey)
        await run_in_threadpool(store.close_survey, wanted.id)
        request.state.about = f"closed survey {wanted.id}"
        return Response(status_code=204)

    @routes.get("/{survey}", **reads(SurveyForm), openapi_extra=PUBLIC)
    async def form(request: Request, survey: str) -> Response:
        """The public form: questions, and every number a randomiser needs."""
        return json_response((await found(request, survey)).form())

    @routes.get("/{survey}/invitations", **reads(Invitations), openapi_extra=PUBLIC)
    async def invitations(request: Request, survey: str) -> Response:
        """By question, the invitation that ``dodona.local.Client`` answers."""
        return json_response({"invitations": (await found(request, survey)).invitations()})

    @routes.post("/{survey}/reports", **_takes(ReportsBody))
    async def intake(request: Request, survey: str) -> Response:
        """Hand in one report."""
        wanted = await found(request, survey)
        body = await read_body(request, ReportsBody)
        if wanted.batch:
            raise Unsupported("this survey takes reports from its shuffler alone: answer on the shuffler's page.")
        (given,) = body.reports
        report = fitting(wanted, given.question, given.report)
        try:
            await run_in_threadpool(store.count, wanted.id, given.question, report, body.token)
        except (AlreadyCounted, UnknownToken) as refusal:
            raise counted_before(refusal) from None
        return Response(status_code=204)

    @routes.get("/{survey}/estimates", **reads(Estimates), openapi_extra=PUBLIC)
    async def estimates(request: Request, survey: str) -> Response:
        """What the reports say so far, with error bars."""
        wanted = await found(request, survey)
        return json_response(await run_in_threadpool(estimated, wanted, store))

    _add_shuffling(routes, store, found)
    return routes


def _add_plan(routes: APIRouter) -> None:
    @routes.post("/plan", **asks(SurveyBody, PlannedSurvey))
    async def plan(request: Request) -> Response:
        """How many people a survey would need; makes nothing (curator)."""
        await require(request, "curator")
        body = await read_body(request, SurveyBody)
        survey = Survey.read("plan", body.model_dump(exclude_none=True, exclude={"tokens"}))
        return json_response(await run_in_threadpool(planned, survey))


def _add_shuffling(
    routes: APIRouter, store: SurveyStore, found: Callable[[Request, str], Coroutine[Any, Any, Survey]]
) -> None:
    """What a shuffler's key opens."""

    @routes.get("/{survey}/shuffling", **reads(Shuffling))
    async def shuffling(request: Request, survey: str) -> Response:
        """What the survey's shuffler needs to know (shuffler)."""
        await require(request, "shuffler")
        wanted = await found(request, survey)
        tokens = await run_in_threadpool(store.issued, wanted.id)
        closed = await run_in_threadpool(store.closed, wanted.id)
        listed = [digest.hex() for digest in tokens]
        return json_response({"survey": wanted.describe(), "tokens": listed, "closed": closed})

    @routes.post("/{survey}/parts", **{**asks(PartBody, BaseModel, 204), "response_model": None})
    async def parts(request: Request, survey: str) -> Response:
        """Hand in a part of a batch (shuffler)."""
        await require(request, "shuffler")
        wanted = await found(request, survey)
        body = await read_body(request, PartBody)
        if not wanted.batch or body.total < wanted.batch:
            raise Refused(
                f"a batch of this survey must have at least {wanted.batch or 'no'} reports, by its statement."
            )
        given = [(name, one) for name, listed in body.reports.items() for one in listed]
        reports = await run_in_threadpool(lambda: [(name, fitting(wanted, name, one)) for name, one in given])
        if len(reports) > body.total:
            raise Refused("a batch must have as many reports as it states, or more parts.")
        await run_in_threadpool(store.count_part, wanted.id, f"{body.batch} {body.part}", reports)
        return Response(status_code=204)


def _takes(body: type[BaseModel]) -> dict[str, Any]:
    """A public route that takes a body and returns nothing."""
    described = asks(body, BaseModel, 204)
    return {**described, "response_model": None, "openapi_extra": {**described["openapi_extra"], **PUBLIC}}


def counted_before(refusal: Refused) -> Problem:
    """A token's refusal, with a word by which a browser knows which of the two it is."""
    reason = "already-counted" if isinstance(refusal, AlreadyCounted) else "unknown-token"
    return Problem(409, "refused", str(refusal), more={"reason": reason})


def fitting(survey: Survey, name: str, given: str) -> bytes:
    """The report's bytes, if they could have been made on the question of that name (V61)."""
    question = next((q for q in survey.questions if q.id == name), None)
    if question is None:
        raise Problem(422, "bad-request", "a report must name one of the survey's questions.")
    try:
        report = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise Problem(422, "bad-request", "a report must be in base64.") from None
    reason = unpacked(question.scheme(survey.epsilon), report)
    if isinstance(reason, str):
        raise Problem(422, "bad-request", f"a report must be one this survey's randomiser can make: {reason}.")
    return report
