"""An oracle in front of another, and the plainest: one that says with how much of its rows a person counts."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Unpack

from dodona.engines.table import Table
from dodona.errors import Unsupported
from dodona.oracles.answer import Answer, Finding, Price, Selection
from dodona.oracles.oracle import Given, Oracle, Request
from dodona.query.persons import OfPeople, read_persons
from dodona.query.schema import Schema
from dodona.query.unit import Bounds


class Front(Oracle):
    """An oracle in front of another: whatever it does not change is as ``behind``.

    A front that changes questions says how in ``_asked``; one that looks at what was charged for does so in ``_given``.
    """

    def __init__(self, behind: Oracle) -> None:
        self._behind = behind

    def _asked(self, request: Request) -> Request:
        """The request as it is put to the oracle behind."""
        return request

    def _given(self, given: Given) -> Given:
        """What the oracle behind gave, as it is handed on."""
        return given

    @property
    def schema(self) -> Schema:
        """As behind."""
        return self._behind.schema

    @property
    def rows(self) -> int | None:
        """As behind."""
        return self._behind.rows

    @property
    def name(self) -> str:
        """As behind."""
        return self._behind.name

    @property
    def whose(self) -> str | None:
        """As behind."""
        return self._behind.whose

    @property
    def sees_totals(self) -> bool:
        """As behind."""
        return self._behind.sees_totals

    @property
    def free(self) -> bool:
        """As behind."""
        return self._behind.free

    def answer(self, request: Request) -> Answer:
        """Answered behind."""
        return self._given(self._behind.answer(self._asked(request)))

    def estimate(self, request: Request) -> Price:
        """Priced behind."""
        return self._behind.estimate(self._asked(request))

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Chosen behind."""
        return self._given(self._behind.choose(self._asked(request), mechanism))

    def perform(self, request: Request) -> Finding:
        """Run behind."""
        return self._given(self._behind.perform(self._asked(request)))

    def purely(self) -> Oracle | None:
        """The same in front of what the oracle behind gives."""
        pure = self._behind.purely()
        if pure is None:
            return None
        front = copy(self)
        front._behind = pure
        return front


class Bounded(Front):
    """``behind``, asked under ``bounds`` (``query.unit.Bounds``); what a question states itself goes first.

    The table states the usual bounds, and each question may state its own: the charge is for what was stated, so tight
    bounds cost less noise, and wide ones leave out less. Learners and releases are bounded alike: hand them this
    oracle.
    """

    def __init__(self, behind: Oracle, bounds: Bounds) -> None:
        super().__init__(behind)
        require_people(behind)
        self._bounds = bounds

    def _asked(self, request: Request) -> Request:
        return replace(request, bounds=self._bounds if request.bounds is None else request.bounds.over(self._bounds))


def require_people(oracle: Oracle) -> None:
    """Refuses bounds where nobody can keep to them."""
    if oracle.whose is None:
        raise Unsupported(
            f"{type(oracle).__name__} cannot leave out rows of a person: that needs who holds the rows and knows whose "
            'they are. Ask a Curator of Table(..., unit=dd.Unit("patient"), neighbours="add-remove"), without bounds '
            "elsewhere."
        )


def persons_of(
    oracle: Oracle, table: Table, select: str, on: Callable[[Table], Oracle], **stated: Unpack[OfPeople]
) -> Oracle:
    """The oracle of the people that a SELECT makes of a table's rows; HAVING is a condition of each question."""
    require_people(oracle)
    bounds = Bounds(stated.get("max_rows"), stated.get("max_groups"))
    made = read_persons(select, table.schema, table.name, oracle.whose, groups=bounds.max_groups, rows=bounds.max_rows)
    people = on(table.persons(made, stated.get("rows")))
    if made.having is None:
        return people
    from dodona.oracles.fronts import Where  # which knows curators

    gated = Where(people, made.having)
    return gated.select_columns(*(name for name in made.schema if name not in made.hidden)) if made.hidden else gated
