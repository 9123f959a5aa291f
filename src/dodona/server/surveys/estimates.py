"""What a survey's reports say so far: shares of those who reported, with margins that hold for any answers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel

from dodona.local.collector import Collector
from dodona.oracles.collected import Collected
from dodona.oracles.local.offer import Offer, Tier
from dodona.release.heavy_hitters import heavy_hitters
from dodona.server.surveys.store import SurveyStore
from dodona.server.surveys.survey import COLUMN, Question, Survey
from dodona.synopses.keys import Hitters

CONFIDENCE = 0.95
MOST_TEXTS = 20
NO_TEXT = "(no text)"
RARE = "texts that noise could have made up are not listed, and nobody is promised that the most frequent ones are"


def estimated(survey: Survey, store: SurveyStore) -> dict[str, Any]:
    """Shares among those who reported on each question, unbiased for any answers, with margins that hold for any."""
    collectors = store.collectors(survey)
    questions = []
    for question in survey.questions:
        collector = collectors[question.id]
        told = {"id": question.id, "text": question.text, "kind": question.kind, "reports": collector.reports}
        if not collector.reports:
            found = _NOTHING
        elif question.kind == "text":  # every report is looked at: not for each visitor
            read = partial(_texts, question, collector)
            found = store.remembered(f"{survey.id} {question.id}", collector.reports, read)
        else:
            found = _shares(question, Collected(collector, question.schema))
        questions.append({**told, **found})
    total = sum(collector.reports for collector in collectors.values())
    return {"id": survey.id, "title": survey.title, "reports": total, "confidence": CONFIDENCE, "questions": questions}


def _texts(question: Question, collector: Collector) -> dict[str, Any]:
    """The frequent ones, with shares: margins hold whichever are shown. ``reports``: at the time of looking."""
    oracle = Collected(collector, question.schema)
    body = heavy_hitters(oracle, COLUMN, top=MOST_TEXTS).body
    assert isinstance(body, Hitters)
    counts, margins = body.counts(CONFIDENCE)
    shares = [
        {
            "label": question.code.decode(int(key)) or NO_TEXT,
            "share": float(n) / oracle.rows,
            "margin": float(m) / oracle.rows,
        }
        for key, n, m in zip(body.listed, counts, margins, strict=True)
    ]
    return {"estimates": shares, "proven": True, "leaves_out": [RARE], "reports": oracle.rows}


_NOTHING: dict[str, Any] = {"estimates": [], "proven": True, "leaves_out": []}


def _shares(question: Question, oracle: Collected) -> dict[str, Any]:
    answer = oracle.ask(question.query, confidence=CONFIDENCE)
    means, margins = (np.atleast_1d(np.asarray(x)) for x in (answer.mean, np.asarray(answer.margin) / oracle.rows))
    shares = [
        {"label": label, "share": float(mean), "margin": float(margin)}
        for label, mean, margin in zip(question.labels, means, margins, strict=True)
    ]
    return {"estimates": shares, "proven": answer.proven, "leaves_out": answer.leaves_out}


class Needed(BaseModel):
    """For one question: about how many people are needed for ± ``margin``; null where more than a billion."""

    text: str
    people: int | None


class PlannedSurvey(BaseModel):
    """A survey before it is made: how many people it takes until every share is known within ``margin``."""

    margin: float
    confidence: float
    questions: list[Needed]


CLEAR = 0.05
"""What a survey's shares are wanted within."""
_MOST_PEOPLE = 10**9


def needed(survey: Survey, question: Question) -> int | None:
    """How many people until each share of this question is within ``CLEAR``: each is asked one question, by lot."""
    scheme = question.scheme(survey.epsilon)

    def clear(reports: int) -> bool:
        offer = Offer((Tier((0,), 0, reports),), (scheme,), reports)
        return float(offer.margin(CONFIDENCE).max()) <= CLEAR * reports

    low, high = 0, 1
    while not clear(high):
        low, high = high, 2 * high
        if high > _MOST_PEOPLE:
            return None
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if clear(middle) else (middle, high)
    return high * len(survey.questions)


def planned(survey: Survey) -> dict[str, Any]:
    """By question; of texts that nobody listed nothing is foreseen."""
    told = [{"text": one.text, "people": needed(survey, one)} for one in survey.questions if one.kind != "text"]
    return {"margin": CLEAR, "confidence": CONFIDENCE, "questions": told}
