"""The shapes of what travels about surveys, checked on the way in and described in OpenAPI on both."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from dodona.server.bodies import Amount, Strict
from dodona.server.survey import LONGEST_LABEL, LONGEST_TEXT, MOST_CHOICES, MOST_QUESTIONS

MOST_TOKENS = 10_000


class SurveyQuestionBody(Strict):
    """``kind`` yes-no, choice (with ``values``) or number (with ``edges``, the ends of its buckets)."""

    text: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
    kind: Annotated[str, Field(pattern="^(yes-no|choice|number)$")]
    values: Annotated[list[Annotated[str, Field(max_length=LONGEST_LABEL)]], Field(max_length=MOST_CHOICES)] | None = (
        None
    )
    edges: Annotated[list[float], Field(max_length=MOST_CHOICES + 1)] | None = None


class SurveyBody(Strict):
    """A survey to be made. ``tokens``: how many one-time links to give out; 0 lets anyone answer."""

    title: Annotated[str, Field(min_length=1, max_length=120)]
    about: Annotated[str, Field(max_length=2000)] = ""
    epsilon: Amount
    questions: Annotated[list[SurveyQuestionBody], Field(min_length=1, max_length=MOST_QUESTIONS)]
    tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = 0


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


class RandomiserForm(BaseModel):
    """The draw: ``odds`` [A, C] as text, A for each of the first ``favoured`` of ``size`` positions, C for the rest."""

    shape: str
    symbols: int
    size: int
    favoured: int
    odds: list[str]


class QuestionForm(BaseModel):
    """A question as a respondent's browser is told it."""

    model_config = ConfigDict(extra="allow")

    id: str
    text: str
    kind: str
    labels: list[str]
    scheme: str
    randomiser: RandomiserForm


class SurveyForm(BaseModel):
    """The public form."""

    id: str
    title: str
    about: str
    epsilon: str
    version: int
    questions: list[QuestionForm]


class Invitations(BaseModel):
    """By question: the text that ``dodona.local.Client`` answers."""

    invitations: dict[str, str]


class Share(BaseModel):
    """An estimated share of those who reported, and how far the truth may be from it."""

    label: str
    share: float
    margin: float


class QuestionEstimates(BaseModel):
    """What the reports on one question say."""

    id: str
    text: str
    kind: str
    reports: int
    estimates: list[Share]


class Estimates(BaseModel):
    """What all reports say so far."""

    id: str
    title: str
    reports: int
    confidence: float
    questions: list[QuestionEstimates]


PUBLIC: dict[str, Any] = {"security": []}
"""No key is needed."""
