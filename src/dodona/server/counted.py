"""An oracle that counts what is asked of it: how the progress of a release is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dodona.answer import Answer, Finding, Price, Selection
from dodona.oracle import Front, Oracle, Request
from dodona.query.schema import Schema

Given = TypeVar("Given", Answer, Finding, Selection)


class Counted(Front):
    """Hands every request on to ``behind``; after each answer calls ``tell`` with the number asked and the share spent.

    Each question has a name made of ``name`` and its number, so the ledger says which release it belongs to.
    """

    def __init__(self, behind: Oracle, name: str, tell: Callable[[int, float], None]) -> None:
        super().__init__(behind)
        self._prefix, self._tell = name, tell
        self._asked, self._share = 0, 0.0

    @property
    def schema(self) -> Schema:
        """As behind."""
        return self._behind.schema

    @property
    def rows(self) -> int | None:
        """As behind."""
        return self._behind.rows

    def answer(self, request: Request) -> Answer:
        """As behind, counted."""
        return self._noted(self._behind.answer(self._numbered(request)))

    def estimate(self, request: Request) -> Price:
        """As behind."""
        return self._behind.estimate(request)

    def choose(self, request: Request, mechanism: str) -> Selection:
        """As behind, counted."""
        return self._noted(self._behind.choose(self._numbered(request), mechanism))

    def perform(self, request: Request) -> Finding:
        """As behind, counted."""
        return self._noted(self._behind.perform(self._numbered(request)))

    def _numbered(self, request: Request) -> Request:
        return Request(request.query, request.effort, f"{self._prefix}/{self._asked}", request.text)

    def _noted(self, given: Given) -> Given:
        self._asked, self._share = self._asked + 1, self._share + given.cost.share
        self._tell(self._asked, self._share)
        return given
