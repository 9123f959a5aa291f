"""Surveys over HTTP: a curator defines them, anyone answers, anyone sees the estimates.

The form, the intake of reports and the estimates are public and need no key: a report was randomised before it was
sent, and estimates are computed from reports alone. Defining, listing and closing need a curator's key.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from dodona.local.client import unpacked
from dodona.server.auth import require
from dodona.server.catalogue import json_response
from dodona.server.describe import asks, problems, reads
from dodona.server.limits import Buckets
from dodona.server.problems import Problem, not_found
from dodona.server.requests import read_body
from dodona.server.survey import Question, Survey
from dodona.server.survey_bodies import (
    PUBLIC,
    Estimates,
    Invitations,
    NewSurvey,
    ReportBody,
    ReportsBody,
    SurveyBody,
    SurveyForm,
    SurveyPage,
)
from dodona.server.survey_store import AlreadyCounted, NoSuchSurvey, SurveyStore, UnknownToken
from dodona.trust.collected import Collected

CONFIDENCE = 0.95
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
        (given,) = body.reports
        report = _fitting(wanted, given)
        try:
            await run_in_threadpool(store.count, wanted.id, given.question, report, body.token)
        except (AlreadyCounted, UnknownToken) as refusal:
            reason = "already-counted" if isinstance(refusal, AlreadyCounted) else "unknown-token"
            raise Problem(409, "refused", str(refusal), more={"reason": reason}) from None
        return Response(status_code=204)

    @routes.get("/{survey}/estimates", **reads(Estimates), openapi_extra=PUBLIC)
    async def estimates(request: Request, survey: str) -> Response:
        """What the reports say so far, with error bars."""
        wanted = await found(request, survey)
        return json_response(await run_in_threadpool(estimated, wanted, store))

    return routes


def _takes(body: type[BaseModel]) -> dict[str, Any]:
    """A public route that takes a body and returns nothing."""
    described = asks(body, BaseModel, 204)
    return {**described, "response_model": None, "openapi_extra": {**described["openapi_extra"], **PUBLIC}}


def _fitting(survey: Survey, given: ReportBody) -> bytes:
    """The report's bytes, if they could have been made on that question (V61)."""
    question = next((q for q in survey.questions if q.id == given.question), None)
    if question is None:
        raise Problem(422, "bad-request", "a report must name one of the survey's questions.")
    try:
        report = base64.b64decode(given.report, validate=True)
    except (binascii.Error, ValueError):
        raise Problem(422, "bad-request", "a report must be in base64.") from None
    reason = unpacked(question.scheme(survey.epsilon), report)
    if isinstance(reason, str):
        raise Problem(422, "bad-request", f"a report must be one this survey's randomiser can make: {reason}.")
    return report


def estimated(survey: Survey, store: SurveyStore) -> dict[str, Any]:
    """Shares among those who reported on each question, unbiased for any answers, with margins that hold for any."""
    collectors = store.collectors(survey)
    questions = []
    for question in survey.questions:
        collector = collectors[question.id]
        told = {"id": question.id, "text": question.text, "kind": question.kind, "reports": collector.reports}
        shares = _shares(question, Collected(collector, question.schema)) if collector.reports else []
        questions.append({**told, "estimates": shares})
    total = sum(collector.reports for collector in collectors.values())
    return {"id": survey.id, "title": survey.title, "reports": total, "confidence": CONFIDENCE, "questions": questions}


def _shares(question: Question, oracle: Collected) -> list[dict[str, Any]]:
    answer = oracle.ask(question.query, confidence=CONFIDENCE)
    means, margins = (np.atleast_1d(np.asarray(x)) for x in (answer.mean, np.asarray(answer.margin) / oracle.rows))
    return [
        {"label": label, "share": float(mean), "margin": float(margin)}
        for label, mean, margin in zip(question.labels, means, margins, strict=True)
    ]
