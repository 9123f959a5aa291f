"""Candidates by the million: scores that follow from a few totals, for a private choice among them.

A class of 10^7 hypotheses has 10^7 scores, yet all of them follow from some thousand statistics of the rows. ``Scores``
names both: ``statistics`` is an ordinary query whose totals the engines compute, and ``tally`` the exact map from those
totals to one score per candidate: most often sums and differences (how many rows a hypothesis gets right), but it may
be any function of the totals, such as the worst or the summed distance from public numbers. Only ``select`` takes it;
the map runs where the choice is made, and nothing but the chosen index leaves.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.columns import LARGEST_INTEGER
from dodona.query.expr import Call, Column, Expr, Literal, expr_from_json
from dodona.query.schema import Schema
from dodona.query.statistic import Partition, PrefixRoots, Query, Stack, Value


class Scores(Query):
    """Abstract. Neighbouring tables differ in no score by more than ``sensitivity``: every kind must keep that promise,
    since the privacy of the choice rests on it (checked in tests/laws, for each kind and both neighbour relations).
    """

    @property
    def linear(self) -> bool:
        """Whether ``tally`` is linear in the totals, up to a public constant, so that noise of mean 0 in the totals is
        noise of mean 0 in the scores. Oracles that choose by noisy totals refuse other kinds.
        """
        return True

    def sensitivity(self, neighbours: str) -> int:  # noqa: ARG002 - by default scores count rows
        """How far a score can differ between neighbouring tables. 1 is right where a row adds 0 or 1 to each score (to
        replace it moves none by more), and for distances of such counts from public numbers; others override it.
        """
        return 1

    @abstractmethod
    def statistics(self, schema: Schema) -> Query:
        """The totals the scores are made of."""

    @abstractmethod
    def count(self, schema: Schema) -> int:
        """How many candidates there are."""

    @abstractmethod
    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """One whole score per candidate from whole totals; a kind that is ``linear`` takes any numbers."""


def require_public_numbers(values: NDArray[Any], most: int) -> None:
    """Refuses numbers beside which a sum could leave 64 bits: one row would then move a score by 2^64, or make the
    choice fail where without it there is one. ``most``: of their sizes together.
    """
    held = np.asarray(values)
    if held.ndim != 1 or held.dtype != np.int64 or float(np.abs(held.astype(np.float64)).sum()) > most:
        raise BadQuery(f"the public numbers of scores must be whole, with sizes that sum to at most {most:,}.")


def require_like(values: NDArray[Any], public: NDArray[Any]) -> None:
    """Refuses to stretch one total over many public numbers: a row would count once for each of them."""
    if np.shape(values) != np.shape(public):
        raise BadQuery("scores must state one public number for each total.")


# Algorithms that no statistical query can express, as values: named, priced and logged like a query, run by a curator.
#
# KLNRS separates the models: PARITY is learned privately by a trusted server (Theorem 4.4) and by no sequence of
# statistical queries, hence by no local protocol (Corollary 5.15). So a ``Procedure`` is not asked, it is handed to
# ``oracle.run``: only an oracle that holds rows can run it, by an interpreter of its own. It is a frozen value; nothing
# of the asker's runs.


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
MOST_EACH = 1024
_RATIO = re.compile(r"[0-9]{1,60}(/[1-9][0-9]{0,60})?", re.ASCII)


METHODS = ("threshold", "weighted", "rounds")
"""How keys are found: every key of a person counts as 1; all share one weight; that in two rounds."""


@dataclass(frozen=True)
class OpenKeys(Procedure):
    """Which values of a ``column`` enough people have, and how many have each, with noise: keys that nobody listed.

    At most ``each`` values of a person count. ``delta``: the chance that one who stands alone is seen all the same; 0
    where the column's bounds say which whole numbers there are, and all of them get noise. ``method``: one of
    ``METHODS``; empty: the one that is predicted to find most. ``counts``: whether how many people have each is asked
    too. The result: ``keys``, ``counts`` (with noise), and ``threshold``, what the noise is and from which count on it
    shows.
    """

    column: str
    each: int
    delta: Fraction
    method: str = ""
    counts: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.each, bool) or not isinstance(self.each, int) or not 1 <= self.each <= MOST_EACH:
            raise BadQuery(f"each must be a whole number of keys of one person, 1 to {MOST_EACH}. Got {self.each!r}.")
        if self.method not in ("", *METHODS):
            raise BadQuery(f"method must be one of {', '.join(METHODS)}, or left out. Got {self.method!r}.")
        if not isinstance(self.counts, bool):
            raise BadQuery(f"counts must be true or false. Got {self.counts!r}.")

    def rewritten(self, change: Callable[[Expr], Expr]) -> OpenKeys:
        changed = change(Column(self.column))
        if not isinstance(changed, Column):
            raise BadQuery(f"keys are of a column as it is stored, and here {self.column} is computed: {changed}.")
        return replace(self, column=changed.name)

    def to_json(self) -> dict[str, Any]:
        stated: dict[str, Any] = {"column": self.column, "each": self.each, "delta": str(self.delta)}
        if self.method:
            stated["method"] = self.method
        return {"keys": stated if self.counts else {**stated, "counts": False}}

    def __str__(self) -> str:
        many = "" if self.each == 1 else f", at most {self.each} of a person"
        way = f", by {self.method}" if self.method else ""
        return f"the keys of {self.column}{many}{way}{'' if self.counts else ', without counts'}"


MOST_PERIODS = 16_384


@dataclass(frozen=True)
class Running(Procedure):
    """What is due once ``period`` is over, of counts that are paid for once for all periods (``release.running``).

    ``edges``: where the periods of ``column`` begin, in whole steps of it, and where the last one ends. ``branching``:
    of the tree whose runs of periods are counted, each once its last period is over; 0 for the square root of the
    running sums. A part is drawn once, whoever asks and however often. ``again``: where the part was lost before anyone
    saw it, the number of another draw, which costs by itself. The result: ``totals`` and their ``spread``.
    """

    column: str
    edges: tuple[float, ...]
    branching: int
    period: int
    again: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.periods <= MOST_PERIODS or any(a >= b for a, b in pairwise(self.edges)):
            raise BadQuery(f"edges must rise, and make 1 to {MOST_PERIODS:,} periods. Got {self.periods:,}.")
        if any(edge != math.floor(edge) or abs(edge) > LARGEST_INTEGER for edge in self.edges):
            raise BadQuery("edges must be whole numbers of a column's steps, within 2^53.")
        whole = {"branching": self.branching, "period": self.period, "again": self.again}
        for name, value in whole.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise BadQuery(f"{name} must be a whole number, 0 or more. Got {value!r}.")
        if self.branching == 1 or self.branching > MOST_PERIODS or self.again > MOST_AGAIN:
            raise BadQuery(f"branching must be 0 or from 2 to {MOST_PERIODS:,}, again at most {MOST_AGAIN}.")
        if self.period >= self.periods:
            raise BadQuery(f"period must be one of 0 to {self.periods - 1}. Got {self.period}.")

    @property
    def periods(self) -> int:
        """How many there are."""
        return len(self.edges) - 1

    @property
    def spans(self) -> tuple[int, ...]:
        """How many periods the runs of each level have, single periods first; none for the square root."""
        found = [1]
        while self.branching and found[-1] * self.branching < self.periods:
            found.append(found[-1] * self.branching)
        return tuple(found) if self.branching else ()

    @property
    def whole(self) -> Query:
        """All that is due in all periods, as one question: what is paid for."""

        def by(span: int) -> Expr:
            ends = (*self.edges[:-1:span], self.edges[-1])
            return Call("bucket", (Column(self.column), *map(Literal, ends)))

        if not self.branching:
            return PrefixRoots(by(1))
        levels = tuple(Partition(by(span), Value(Literal(1.0))) for span in self.spans)
        return levels[0] if len(levels) == 1 else Stack(levels)

    @property
    def due(self) -> tuple[int, ...]:
        """The places in ``whole`` of what the period completes."""
        if not self.branching:
            return (self.period,)
        found, first = [], 0
        for span in self.spans:
            run = self.period // span
            if self.period == min((run + 1) * span, self.periods) - 1:
                found.append(first + run)
            first += -(-self.periods // span)
        return tuple(found)

    def rewritten(self, change: Callable[[Expr], Expr]) -> Running:
        changed = change(Column(self.column))
        if not isinstance(changed, Column):
            raise BadQuery(f"periods are of a column as it is stored, and here {self.column} is computed: {changed}.")
        return replace(self, column=changed.name)

    def to_json(self) -> dict[str, Any]:
        stated = {"column": self.column, "edges": [int(edge) for edge in self.edges], "branching": self.branching}
        again = {"again": self.again} if self.again else {}
        return {"running": {**stated, "period": self.period, **again}}

    def __str__(self) -> str:
        way = f"counts by a tree of {self.branching}" if self.branching else "roots of the running sums"
        again = f", draw {self.again + 1}" if self.again else ""
        return f"{way} of {self.column}, period {self.period + 1} of {self.periods}{again}"


MOST_AGAIN = 1000


def procedure_from_json(data: Any) -> Procedure:
    """The inverse of ``to_json``; unknown shapes are refused."""
    match data:
        case {"running": {"column": str(column), "edges": list(edges), "branching": int(ways), **rest}, **more}:
            told: Any = rest
            named = {"period"} <= told.keys() <= {"period", "again"} and not more
            if named and all(type(edge) is int for edge in edges):
                return Running(column, tuple(map(float, edges)), ways, **told)
        case {"parity": {"bits": list(bits), "label": label, **sizes}, **rest} if not rest and {*sizes} == {*_SIZES}:
            counts = [size for size in (sizes[name] for name in _SIZES) if type(size) is int]
            if len(counts) == len(_SIZES):
                return ParityProcedure(tuple(map(expr_from_json, bits)), expr_from_json(label), *counts)
        case {"keys": {"column": str(column), "each": int(each), "delta": str(delta), **rest}, **more}:
            if set(rest) <= {"method", "counts"} and not more and _RATIO.fullmatch(delta):
                way: Any = rest
                return OpenKeys(column, each, Fraction(delta), **way)
    raise BadQuery("a procedure must be a parity, keys or running, as to_json writes them.")


# Whole numbers and bits as short text, exact, for values that hold thousands of them and still travel as JSON.


def packed(values: NDArray[Any]) -> str:
    """64-bit whole numbers, least byte first, in base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<i8").tobytes()).decode("ascii")


def unpacked(text: Any) -> NDArray[np.int64]:
    """The inverse of ``packed``."""
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype="<i8").astype(np.int64)
    except (TypeError, ValueError, binascii.Error):
        raise BadQuery("packed numbers must be base64 of 64-bit whole numbers.") from None


def packed_bits(values: NDArray[np.bool_]) -> str:
    """Bits, row by row, filled up with zeros to whole 64-bit words."""
    flat = np.packbits(values.ravel())
    return packed(np.pad(flat, (0, -len(flat) % 8)).view("<i8"))


def unpacked_bits(text: Any, count: int) -> NDArray[np.bool_]:
    """The first ``count`` of the bits; refused where there are fewer, or whole words more."""
    bits = np.unpackbits(unpacked(text).astype("<i8").view(np.uint8))
    if not 0 <= len(bits) - count < 64:
        raise BadQuery("packed bits must be as many as are needed here.")
    return bits[:count].astype(np.bool_)
