"""How many people a survey takes until its shares are known well enough: told before it is made."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from dodona.oracles.local.offer import Offer, Tier
from dodona.server.surveys.estimates import CONFIDENCE
from dodona.server.surveys.survey import Question, Survey


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
