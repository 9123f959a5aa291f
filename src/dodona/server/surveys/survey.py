"""A survey of people who trust nobody: its questions, and the public form from which a browser makes a report.

Each question is one statistical query with an invitation of its own (``local/client.py``). A respondent's device draws
one question by lot, uniformly, and sends ONE report on it that costs the survey's whole epsilon; the other answers
never leave the device in any form. For small epsilon that beats answering all q questions at epsilon/q each: the
variance grows with q, not with q^2 (KLNRS Theorem 5.7 gives each query fresh people for the same reason). The lot
does not depend on the answers, so a report is epsilon-private as its randomiser is (KLNRS Definition 5.3).

A survey with a ``batch`` takes its reports from a shuffler (``shuffler.py``) alone, at least so many at a time: against
whoever sees no more than those, a respondent has the far smaller ``central`` epsilon, at ``DELTA``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from dodona.errors import BadEffort, BadQuery, BadSchema
from dodona.local.cells import Cells
from dodona.local.client import invitation
from dodona.local.groups import Box
from dodona.local.prefixes import MOST_BITS, Prefix
from dodona.local.scheme import VERSION, Scheme, scheme_for
from dodona.mechanisms.response import TwoLevel, WindowResponse
from dodona.privacy.numbers import exact
from dodona.privacy.shuffling import central_epsilon, mixture
from dodona.query.expr import Column, Literal
from dodona.query.schema import Category, Flag, Real, Schema
from dodona.query.statistic import Partition, Query, Value, bucket
from dodona.release.heavy_hitters import TextCode

MOST_QUESTIONS = 20
MOST_CHOICES = 64
LONGEST_TEXT = 500
LONGEST_LABEL = 120
LONGEST_ALPHABET = 64
LEAST_EPSILON, MOST_EPSILON = Fraction(1, 100), Fraction(10)
LEAST_BATCH, MOST_BATCH = 10, 100_000
DELTA = Fraction(1, 10**6)
COLUMN = "answer"
_ONE = Value(Literal(1.0))
_FIELDS: dict[str, tuple[str, ...]] = {
    "yes-no": (),
    "choice": ("values",),
    "number": ("edges",),
    "text": ("alphabet", "length"),
}


@dataclass(frozen=True)
class Question:
    """``kind``: yes-no, choice (one of ``values``), number (in the buckets between ``edges``) or text (the first
    ``length`` letters; those that ``alphabet`` lacks count as its first): which texts are frequent is found later.
    """

    id: str
    text: str
    kind: str
    values: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    alphabet: str = ""
    length: int = 0

    @cached_property
    def schema(self) -> Schema:
        """One column: what a respondent may answer."""
        match self.kind:
            case "yes-no":
                return Schema({COLUMN: Flag()})
            case "choice":
                return Schema({COLUMN: Category(*self.values)})
            case "text":
                return Schema({COLUMN: replace(self.code.column, missing=0)})
            case _:
                return Schema({COLUMN: Real(self.edges[0], self.edges[-1])})

    @cached_property
    def query(self) -> Query:
        """How many said yes; or how many are in each cell, those who would rather not say being in none."""
        match self.kind:
            case "yes-no" | "text":
                return Value(Column(COLUMN))
            case "choice":
                return Partition(Column(COLUMN), _ONE)
            case _:
                return Partition(bucket(COLUMN, self.edges), _ONE)

    @cached_property
    def code(self) -> TextCode:
        """Of a text question: how texts become numbers."""
        return TextCode(self.alphabet, self.length)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the estimates are about, in the answer's order."""
        listed = {"yes-no": ("Yes",), "choice": self.values, "number": bucket_labels(self.edges)}
        return listed.get(self.kind, ())

    def spelt(self, text: str) -> int:
        """The number of a text, as ``local.Client`` takes it: as the respondent's browser counts it."""
        plain = text if re.search("[A-Z]", self.alphabet) else re.sub("[A-Z]", lambda m: m[0].lower(), text)
        return int(self.code.encode([plain.lstrip(" ")])[0])

    def truth(self, symbol: int) -> bool | str | float | None:
        """The answer that ``symbol`` of the form stands for, as ``local.Client`` takes it; the last is no answer, and
        of a text 0 is, which is the empty one.
        """
        if self.kind == "text":
            return symbol
        if self.kind == "yes-no":
            return symbol == 0
        if symbol >= len(self.labels):
            return None
        return self.values[symbol] if self.kind == "choice" else self.edges[symbol]

    def scheme(self, epsilon: Fraction) -> Scheme:
        """How it is answered at this epsilon."""
        return scheme_for(self.query, self.schema, epsilon, self.randomiser)

    @property
    def randomiser(self) -> str | None:
        """The one it is asked by, where that is not the best for a mean."""
        return "prefixes" if self.kind == "text" else None

    def describe(self) -> dict[str, Any]:
        """Plain data; ``Survey.read`` is the inverse."""
        own = {field: getattr(self, field) for field in _FIELDS[self.kind]}
        plain = {field: list(value) if isinstance(value, tuple) else value for field, value in own.items()}
        return {"text": self.text, "kind": self.kind, **plain}


def bucket_labels(edges: tuple[float, ...]) -> tuple[str, ...]:
    """``18 to below 30``, ..., the last closed."""
    shown = [f"{edge:.15g}" for edge in edges]
    last = len(shown) - 2
    return tuple(
        f"{shown[i]} to {shown[i + 1]}" if i == last else f"{shown[i]} to below {shown[i + 1]}"
        for i in range(max(last + 1, 0))
    )


@dataclass(frozen=True)
class Randomiser:
    """A question's randomiser as whole numbers: ``shape`` bit (one yes/no, flipped or not) or window.

    One uniform integer below T = favoured A + (size - favoured) C gives a position: the first ``favoured`` have A
    integers each, the others C each (``mechanisms/response.py``). The position, relabelled by the answer, is what
    is reported.
    """

    shape: str
    symbols: int
    draw: TwoLevel

    @staticmethod
    def of(scheme: Scheme) -> Randomiser:
        """Of a scheme with a single group; what no browser can draw is refused."""
        (group,) = scheme.groups
        if isinstance(group, Cells) and isinstance(group.response, WindowResponse):
            return Randomiser("window", group.response.values, group.response.draw)
        if isinstance(group, Box) and group.response is not None and group.response.columns == 1:
            (part,) = group.response.parts
            return Randomiser("bit", 2, part.response.draw)
        raise BadQuery(f"a browser must be able to draw the report. Got the randomiser {scheme.name}.")

    def describe(self) -> dict[str, Any]:
        """Odds as text: JSON numbers of this size lose digits in a browser."""
        a, c = self.draw.odds
        return {
            "shape": self.shape,
            "symbols": self.symbols,
            "size": self.draw.size,
            "favoured": self.draw.favoured,
            "odds": [str(a), str(c)],
        }


def _prefixed(scheme: Scheme) -> dict[str, Any] | None:
    """The randomisers of a text question: a window for each length of prefix, drawn with ``shares`` of all."""
    groups = [group for group in scheme.groups if isinstance(group, Prefix)]
    if not groups:
        return None
    windows = [Randomiser("window", 1 << group.length, group.response.draw).describe() for group in groups]
    told = [{**window, "length": group.length} for window, group in zip(windows, groups, strict=True)]
    return {"shape": "prefixes", "bits": groups[0].bits, "shares": list(scheme.odds), "windows": told}


@dataclass(frozen=True)
class Survey:
    """``epsilon``: what one respondent's report costs, whichever question it is on. ``batch``: reports that a shuffler
    forwards at a time, at least; 0: respondents hand in their reports themselves.
    """

    id: str
    title: str
    about: str
    epsilon: Fraction
    questions: tuple[Question, ...]
    batch: int = 0

    @staticmethod
    def read(id: str, stated: Any) -> Survey:
        """From plain data, as a curator posts it; what is wrong is said in one message."""
        if not isinstance(stated, Mapping):
            raise BadQuery("a survey must be an object with title, epsilon and questions.")
        unknown = sorted(set(stated) - {"title", "about", "epsilon", "questions", "batch"})
        if unknown:
            raise BadQuery(f"a survey has title, about, epsilon, questions and batch. Got also {', '.join(unknown)}.")
        questions = stated.get("questions")
        if not isinstance(questions, list) or not 1 <= len(questions) <= MOST_QUESTIONS:
            raise BadQuery(f"questions must be a list of 1 to {MOST_QUESTIONS}.")
        epsilon = stated.get("epsilon")
        if isinstance(epsilon, bool) or not isinstance(epsilon, str | int | float):
            raise BadEffort('epsilon must be stated, as a number such as 0.5, or as text: "1/2".')
        batch = stated.get("batch", 0)
        if (
            isinstance(batch, bool)
            or not isinstance(batch, int)
            or not (batch == 0 or LEAST_BATCH <= batch <= MOST_BATCH)
        ):
            raise BadQuery(
                f"batch must be {LEAST_BATCH} to {MOST_BATCH:,} reports that a shuffler forwards at a time, or 0 where "
                "respondents hand in their reports themselves."
            )
        return Survey(
            id,
            _text(stated.get("title"), "title", 120),
            _text(stated.get("about", ""), "about", 2000, least=0),
            exact(epsilon, "epsilon", least=LEAST_EPSILON, most=MOST_EPSILON),
            tuple(_question(f"q{i + 1}", question) for i, question in enumerate(questions)),
            batch,
        )

    def describe(self) -> dict[str, Any]:
        """Plain data; ``read`` is the inverse."""
        questions = [question.describe() for question in self.questions]
        shuffled = {"batch": self.batch} if self.batch else {}
        stated = {"title": self.title, "about": self.about, "epsilon": str(self.epsilon), "questions": questions}
        return stated | shuffled

    @property
    def central(self) -> Fraction:
        """What a report of a whole batch gives away, at ``DELTA``, to whoever sees what the shuffler forwards."""
        lot = 1 / len(self.questions)
        hiding = mixture((lot, question.scheme(self.epsilon).hiding) for question in self.questions)
        general = central_epsilon(self.epsilon, DELTA, self.batch)
        return min(general, central_epsilon(self.epsilon, DELTA, self.batch, hiding))

    def invitations(self) -> dict[str, str]:
        """By question: what ``local.Client`` and ``local.Collector`` are made from."""
        return {q.id: invitation(q.query, q.schema, self.epsilon, randomiser=q.randomiser) for q in self.questions}

    def form(self) -> dict[str, Any]:
        """What a respondent's browser is told: questions, and every number its randomiser needs."""
        questions = []
        for question in self.questions:
            scheme = question.scheme(self.epsilon)
            told = {"id": question.id, **question.describe(), "labels": list(question.labels)}
            told["scheme"] = scheme.fingerprint
            questions.append({**told, "randomiser": _prefixed(scheme) or Randomiser.of(scheme).describe()})
        told = {"id": self.id, "title": self.title, "about": self.about, "epsilon": str(self.epsilon)}
        told |= {"version": VERSION, "questions": questions}
        if self.batch:
            told["shuffler"] = {"batch": self.batch, "central": str(self.central), "delta": str(DELTA)}
        return told


def _text(value: Any, what: str, most: int, least: int = 1) -> str:
    if not isinstance(value, str) or not least <= len(value.strip()) <= most or "\x00" in value:
        raise BadQuery(f"{what} must be text of {least} to {most} characters.")
    return value.strip()


def _question(id: str, stated: Any) -> Question:
    if not isinstance(stated, Mapping) or stated.get("kind") not in _FIELDS:
        raise BadQuery(f"question {id} must be an object whose kind is one of {', '.join(_FIELDS)}.")
    kind: str = stated["kind"]
    expected = {"text", "kind", *_FIELDS[kind]}
    if set(stated) != expected:
        raise BadQuery(f"question {id} of kind {kind} must state {', '.join(sorted(expected))}, and nothing else.")
    text = _text(stated["text"], f"the text of question {id}", LONGEST_TEXT)
    try:
        question = Question(id, text, kind, _values(id, stated), _edges(id, stated), *_spelling(id, stated))
        question.schema  # noqa: B018 - states what is wrong with the values
    except BadSchema as error:
        raise BadQuery(f"question {id}: {error}") from None
    return question


def _spelling(id: str, stated: Mapping[str, Any]) -> tuple[str, int]:
    if "alphabet" not in stated:
        return "", 0
    alphabet, length = stated["alphabet"], stated["length"]
    if not isinstance(alphabet, str) or not 2 <= len(alphabet) <= LONGEST_ALPHABET or not alphabet.isprintable():
        raise BadQuery(f"the alphabet of question {id} must be text of 2 to {LONGEST_ALPHABET} letters.")
    if max(map(ord, alphabet)) > 0xFFFF:
        raise BadQuery(f"the alphabet of question {id} must be of letters that any browser counts as one.")
    if isinstance(length, bool) or not isinstance(length, int):
        raise BadQuery(f"the length of question {id} must be a whole number of letters.")
    width = TextCode(alphabet, 1).width
    if not 2 <= width * length <= MOST_BITS:
        raise BadQuery(f"question {id} must take at most {MOST_BITS // width} letters of this alphabet, and two bits.")
    return alphabet, length


def _values(id: str, stated: Mapping[str, Any]) -> tuple[str, ...]:
    if "values" not in stated:
        return ()
    values: Any = stated["values"]
    if not isinstance(values, list) or not 2 <= len(values) <= MOST_CHOICES:
        raise BadQuery(f"question {id} must offer 2 to {MOST_CHOICES} values.")
    return tuple(_text(value, f"each value of question {id}", LONGEST_LABEL) for value in values)


def _edges(id: str, stated: Mapping[str, Any]) -> tuple[float, ...]:
    if "edges" not in stated:
        return ()
    edges: Any = stated["edges"]
    if not isinstance(edges, list) or not 3 <= len(edges) <= MOST_CHOICES + 1:
        raise BadQuery(f"question {id} must have 3 to {MOST_CHOICES + 1} edges: the ends of its buckets.")
    for edge in edges:
        if isinstance(edge, bool) or not isinstance(edge, int | float) or not math.isfinite(edge) or abs(edge) > 1e12:
            raise BadQuery(f"each edge of question {id} must be a number within 1e12 in size.")
    if sorted(set(edges)) != edges:
        raise BadQuery(f"the edges of question {id} must increase.")
    return tuple(float(edge) for edge in edges)
