"""Algorithms that no statistical query can express, as values: named, priced and logged like a query, run by a curator.

KLNRS separates the models: PARITY is learned privately by a trusted server (Theorem 4.4) and by no sequence of
statistical queries, hence by no local protocol (Corollary 5.15). So a ``Procedure`` is not asked, it is handed to
``oracle.run``: only an oracle that holds rows can run it, by an interpreter of its own. It is a frozen value; nothing
of the asker's runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dodona.errors import BadQuery
from dodona.query.expr import Expr, expr_from_json
from dodona.query.statistic import Query

MOST_BITS = 8192
MOST_RUNS = 1024


class Procedure(Query):
    """Abstract: what can be run and not asked. Concrete kinds are final."""

    @abstractmethod
    def rewritten(self, change: Callable[[Expr], Expr]) -> Procedure:
        """The same procedure with every expression changed."""


@dataclass(frozen=True)
class ParityProcedure(Procedure):
    """A*: find r with r.x = label mod 2 on most rows (KLNRS section 4), x the ``bits`` of a row; NULL counts as false.

    ``parts`` disjoint training parts of about ``part_rows`` rows, on each ``repeats`` runs of A at epsilon/``repeats``;
    the candidates are judged with noise on about ``test_rows`` others. The sizes set the chance of a row to fall in
    each part, whatever the true number of rows is. The result: ``r`` as a list of 0 and 1, or None where every run
    refused, and ``wrong``, its noisy number of errors on the test rows.
    """

    bits: tuple[Expr, ...]
    label: Expr
    parts: int
    repeats: int
    part_rows: int
    test_rows: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.bits) <= MOST_BITS:
            raise BadQuery(f"a parity must be over 1 to {MOST_BITS} bits. Got {len(self.bits)}.")
        if min(self.parts, self.repeats) < 1 or self.parts * self.repeats > MOST_RUNS:
            raise BadQuery(f"there must be 1 to {MOST_RUNS} runs. Got {self.parts} parts, {self.repeats} repeats.")
        if min(self.part_rows, self.test_rows) < 1:
            raise BadQuery(f"parts must have rows. Got {self.part_rows} to train and {self.test_rows} to test.")

    def rewritten(self, change: Callable[[Expr], Expr]) -> ParityProcedure:
        sizes = self.parts, self.repeats, self.part_rows, self.test_rows
        return ParityProcedure(tuple(map(change, self.bits)), change(self.label), *sizes)

    def to_json(self) -> dict[str, Any]:
        sizes = {name: getattr(self, name) for name in _SIZES}
        return {"parity": {"bits": [b.to_json() for b in self.bits], "label": self.label.to_json(), **sizes}}

    def __str__(self) -> str:
        return f"the parity of {len(self.bits)} bits that gives {self.label}"


_SIZES = ("parts", "repeats", "part_rows", "test_rows")


def procedure_from_json(data: Any) -> Procedure:
    """The inverse of ``to_json``; unknown shapes are refused."""
    match data:
        case {"parity": {"bits": list(bits), "label": label, **sizes}, **rest} if not rest and {*sizes} == {*_SIZES}:
            counts = [size for size in (sizes[name] for name in _SIZES) if type(size) is int]
            if len(counts) == len(_SIZES):
                return ParityProcedure(tuple(map(expr_from_json, bits)), expr_from_json(label), *counts)
    raise BadQuery("a procedure must be a parity, as to_json writes it.")
