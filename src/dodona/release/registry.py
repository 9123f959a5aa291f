"""Which releases there are: each states itself once, in its own file, and everyone else finds it here.

``registered(Release(...))`` at the end of a release's file is all it takes. From then on it is planned and priced
(``plan``), started over HTTP, offered on the curator's page (``GET /v1/datasets/{dataset}/releases/kinds``), planned
by ``dodona plan release``, and judged by the law that margins hold. Modules of this room are looked through; one from
elsewhere counts once it is imported. Saving and loading follow from the ``Body`` it gives: a class that derives from
``oracles.synopsis.Body`` and states a ``kind`` is found by that kind.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona._doors import load_package
from dodona.bounds import Outcome, Outlooks
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle, Question
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.cost import Cost
from dodona.query.expr import Call, Column
from dodona.query.schema import Schema
from dodona.query.unit import Unit

KINDS_OF_SETTING = ("columns", "column", "whole", "number", "truth", "choice", "edges", "bits", "names", "value")
EFFORTS = frozenset({"share", "epsilon", "rho", "effort", "confidence", "stated"})


@dataclass(frozen=True)
class Setting:
    """One keyword of a release; which are required, and what the others are unless given, its function says.

    ``kind``: "columns" or "column" (names, of columns of these ``types``: "integer", "real", "category", "flag"),
    "whole" or "number" (from ``least`` to ``most``), "truth", "choice" (one of ``choices``), "edges" (how many buckets,
    or their edges by column), "bits" (a whole number, or one for each column), "names" (what each of some names has:
    another name, or a whole number), or "value": a value of Python, such as a class of concepts, which no request and
    no form can state. ``words``: for a person who fills
    in a form. ``start``: what the form proposes; where it is None and the setting is not required, the form leaves
    it out.
    """

    name: str
    kind: str
    words: str
    types: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    start: Any = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS_OF_SETTING:
            raise ValueError(f"a setting must be of a kind {', '.join(KINDS_OF_SETTING)}. Got {self.kind!r}.")

    def read(self, text: str) -> Any:
        """The value that is written so: names and numbers with commas between them, edges as age:0,18,65;pay:0,10."""
        parts = [part.strip() for part in text.split(",")]
        try:
            if self.kind == "columns":
                return parts
            if self.kind == "whole" or (self.kind == "bits" and len(parts) == 1):
                return int(text)
            if self.kind == "bits":
                return [int(part) for part in parts]
            if self.kind == "number":
                return float(text)
            if self.kind == "truth":
                return {"true": True, "false": False}[text.lower()]
            if self.kind == "edges" and text.strip().isdecimal():
                return int(text)
            if self.kind == "names":
                pairs = [pair.rpartition(":") for pair in text.split(";") if pair.strip()]
                return {name.strip(): _name_or_number(value.strip()) for name, _, value in pairs}
            if self.kind == "edges":
                named = [line.partition(":") for line in text.split(";")]
                return {name.strip(): [float(edge) for edge in ends.split(",")] for name, _, ends in named}
        except (ValueError, KeyError):
            raise BadQuery(f"{self.name} must be {_WRITTEN[self.kind]}. Got {text!r}.") from None
        return text


def _name_or_number(text: str) -> str | int:
    if not text:
        raise ValueError("nothing stands there")
    return int(text) if text.isdecimal() else text


_WRITTEN = {
    "whole": "a whole number",
    "bits": "a whole number, or one for each column with commas between them",
    "number": "a number",
    "truth": "true or false",
    "names": "names and what they have, written as Oslo:East;East:Norway",
    "edges": "a number of buckets, or edges written as age:0,18,65;pay:0,10",
}


@dataclass(frozen=True)
class Case:
    """A small example of a release, for the law that margins hold: it publishes, asks, and compares with ``Exact``.

    ``schema`` and ``draw(rows, random)``: the public facts, and the columns of a table of ``rows`` rows drawn from
    ``random``, none missing (the law hides values of columns that the schema lets be missing). ``settings``: the
    release's keywords but for its effort. ``gives``: the kind of body it publishes. ``neighbours``: of the table.
    ``delta``: whether the budget needs one (methods for Gaussian noise do); others are tried with and without.

    ``inside``: questions of the class. ``edge``: questions at its edge, which are still answered (the widest, the
    emptiest, one that ends where the column does). Both must be within their margins. ``outside``: questions that must
    be refused (``Unsupported``). At least one inside and one outside.
    """

    name: str
    schema: Schema
    draw: Callable[[int, np.random.Generator], Mapping[str, NDArray[Any]]]
    settings: Mapping[str, Any]
    gives: str
    inside: tuple[Question, ...]
    edge: tuple[Question, ...] = ()
    outside: tuple[Question, ...] = ()
    neighbours: str = "replace"
    delta: bool = False
    keys: float = 0.0
    """The part of its delta that the budget sets aside for keys that nobody listed."""
    rows: int = 400
    """The fewest rows at which the example makes sense."""
    unit: Unit | None = None
    """Whose rows they are: what is drawn has the column."""


@dataclass(frozen=True)
class Release:
    """``name``: that of ``make``, as ``dodona.release`` and requests say it. ``title``: a line for a person.

    ``make(oracle, **settings, **effort)`` publishes. ``plan`` takes the same and spends nothing; its first outlook is
    the way ``make`` would take. ``settings``: every keyword of ``make`` but its effort, the needed ones first.
    ``gives``: the kinds of bodies it can publish. ``cases``: examples, at least one; made when first asked for.
    ``place``: in lists, the smaller first, then by name.
    """

    make: Callable[..., Synopsis]
    plan: Callable[..., Outlooks]
    title: str
    settings: tuple[Setting, ...]
    gives: tuple[str, ...]
    cases: Callable[[], Iterable[Case]] = field(repr=False)
    place: int = 100

    @property
    def name(self) -> str:
        """As ``dodona.release`` and requests say it."""
        return self.make.__name__

    @property
    def offered(self) -> bool:
        """Whether a request can state all of its settings, so that a server can make it."""
        return all(setting.kind != "value" for setting in self.settings)

    def required(self, name: str) -> bool:
        """Whether ``make`` has no default for this setting."""
        return inspect.signature(self.make).parameters[name].default is inspect.Parameter.empty

    def checked(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, all by names that are known and none missing; values are judged by the release itself."""
        names = [setting.name for setting in self.settings]
        if not set(settings) <= set(names):
            raise BadQuery(f"{self.name} takes the settings {', '.join(names)}.")
        lacking = [name for name in names if self.required(name) and name not in settings]
        if lacking:
            raise BadQuery(f"{self.name} must be given {', '.join(lacking)}.")
        return dict(settings)

    def described(self) -> dict[str, Any]:
        """As plain data, for a form that offers it."""
        told = [{**vars(setting), "required": self.required(setting.name)} for setting in self.settings]
        return {"name": self.name, "title": self.title, "gives": list(self.gives), "settings": told}


def whole_cost(oracle: Oracle, effort: Effort) -> Cost | None:
    """What the whole effort is charged as, by a question that costs what it is asked with; None where it is free."""
    missing = Call("is_null", (Column(next(iter(oracle.schema))),))
    return oracle.price(missing, effort=effort.part()).cost.spent


def within(oracle: Oracle, error: float, e: float | None) -> tuple[Outcome, int | None]:
    """Whether an error in rows is at most the fraction ``e`` of the public number of rows, and the rows from which it
    is: noise is in rows, whatever their number. Without a wish nothing is judged.
    """
    if e is None:
        return Outcome.FEASIBLE, None
    if isinstance(e, bool) or not 0 < e < 1:
        raise BadEffort(f"e must lie strictly between 0 and 1. Got {e!r}.")
    if not oracle.rows:
        raise Unsupported("an error that is a fraction of the rows needs their public number: Table(..., rows=...).")
    needed = math.ceil(error / e)
    return Outcome.FEASIBLE if oracle.rows >= needed else Outcome.INFEASIBLE, needed


_REGISTERED: dict[str, Release] = {}


def registered(release: Release) -> Release:
    """From now on it is found by all who plan, make, offer or judge releases."""
    if release.name in _REGISTERED:
        raise ValueError(f"a release's name must be its own: requests say it. Got {release.name!r} twice.")
    stated = [setting.name for setting in release.settings]
    for function in (release.make, release.plan):
        taken = [name for name in inspect.signature(function).parameters if name not in EFFORTS][1:]
        if function is release.make and sorted(taken) != sorted(stated):
            raise ValueError(f"{release.name} takes {', '.join(taken)}, and states the settings {', '.join(stated)}.")
        if not set(stated) <= set(taken):
            raise ValueError(f"the plan of {release.name} must take all its settings. It takes {', '.join(taken)}.")
    _REGISTERED[release.name] = release
    return release


def registered_releases() -> dict[str, Release]:
    """All there are, by name, in the order of lists."""
    load_package("dodona.release", optional=True)
    return dict(sorted(_REGISTERED.items(), key=lambda found: (found[1].place, found[0])))


def offered_releases() -> dict[str, Release]:
    """Those that a server can make, by name."""
    return {name: release for name, release in registered_releases().items() if release.offered}


def find_release(name: str) -> Release:
    """The one of this name, among those that can be stated as plain data."""
    found = offered_releases()
    if name not in found:
        raise BadQuery(f"a release must be of the kind {', '.join(found)}. Got {name!r}.")
    return found[name]
