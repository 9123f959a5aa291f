"""Set functions whose values are statistical queries: f(S) is the mean over rows of a condition that depends on S.

Elements are numbered 0..n-1 and stand at ``places``: at most one element of a place can be in a set (the alphabet [p]
of Gupta, Hardt, Roth and Ullman 2011, section 3: a place with p - 1 elements). A function says what f(S) asks of a row,
and what the mean of f over the sets between B and the complement of C asks of one, in closed form, so that it is ONE
query.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Schema

Members = frozenset[int]
NOTHING: Members = frozenset()


class SetFunction(ABC):
    """Abstract; kinds are final. ``monotone``: f only grows, so that no second decomposition is needed."""

    monotone: bool

    @property
    @abstractmethod
    def places(self) -> tuple[int, ...]:
        """The place of each element."""

    @abstractmethod
    def value(self, chosen: Members) -> Expr:
        """What f(S) asks of a row: a condition, or a number in [0, 1]."""

    @abstractmethod
    def mean(self, chosen: Members, left_out: Members) -> Expr:
        """The mean of f over random sets that contain ``chosen`` and none of ``left_out``; a number in [0, 1]."""

    @property
    def elements(self) -> int:
        """How many elements there are."""
        return len(self.places)

    def literals(self) -> tuple[Expr, ...]:
        """The condition of each element, where an element is one; empty where it is not."""
        return ()


@dataclass(frozen=True)
class Disjunctions(SetFunction):
    """f(S): the rows on which some condition of S is true (coverage: rows covered by some set of S). Lemma 4.1.

    ``conditions``: by place, its p - 1 conditions; with two, the second must be the negation of the first. ``width``:
    the mean is over sets of exactly so many (Theorem 3.6, ERRATA 15), or None: each place is empty or one of its
    elements, all alike.
    """

    conditions: tuple[tuple[Expr, ...], ...]
    width: int | None = None
    monotone = True

    def __post_init__(self) -> None:
        sizes = {len(own) for own in self.conditions}
        if not self.conditions or not sizes <= {1, 2} or len(sizes) > 1:
            raise BadQuery(
                "disjunctions take one condition for each place, or for each place a condition and its negation."
            )
        if self.width is not None and not 1 <= self.width <= len(self.conditions):
            raise BadQuery(f"width must be 1 to {len(self.conditions)}. Got {self.width!r}.")

    @staticmethod
    def of(schema: Schema, columns: Sequence[str], width: int | None = None, *, both: bool = False) -> Disjunctions:
        """Of true/false columns; ``both``: with their negations."""
        found = []
        for name in columns:
            own = schema.find(name)
            column = schema[own] if own is not None else None
            if own is None or (not isinstance(column, Flag) and not isinstance(column, Category)):
                raise BadQuery(
                    f"{name!r} must be a true/false column here. Bucket a number first: use release.conjunctions with "
                    f"edges=, or a condition such as {name} >= 40."
                )
            if isinstance(column, Category):
                raise BadQuery(
                    f"{name!r} lists values; state a condition such as {name} = {column.values[0]!r} instead."
                )
            read: Expr = Call("coalesce", (Column(own), Literal(False)))
            found.append((read, Call("not", (read,))) if both else (read,))
        return Disjunctions(tuple(found), width)

    @property
    def places(self) -> tuple[int, ...]:
        """Elements of a place stand together."""
        return tuple(place for place, own in enumerate(self.conditions) for _ in own)

    def literals(self) -> tuple[Expr, ...]:
        """The conditions in order."""
        return tuple(condition for own in self.conditions for condition in own)

    def value(self, chosen: Members) -> Expr:
        """Some condition of S."""
        tests = tuple(self.literals()[i] for i in sorted(chosen))
        return Call("or", tests) if len(tests) > 1 else tests[0] if tests else Literal(False)

    def mean(self, chosen: Members, left_out: Members) -> Expr:
        """1 where a condition of B is true, else 1 - Pr[no random condition is].

        A place that may take either of a condition and its negation always has one true: it counts the same for every
        row. Of the places that may take one condition only, let t be true. Of m free places, m2 of them double, none of
        the chosen is true with chance (2/3)^m2 2^-t; for sets of w, k = w - |B| of them chosen, with chance
        C(m - t, k) / e_k, e_k = sum_j C(m2, j) 2^j C(m - m2, k - j) the number of all such sets.
        """
        taken, allowed = {self.places[i] for i in chosen}, self._allowed(left_out)
        free = [own for place, own in enumerate(allowed) if place not in taken and own]
        singles = [own[0] for own in free if len(own) == 1]
        m, m2 = len(free), len(free) - len(singles)
        k = None if self.width is None else min(max(self.width - len(chosen), 0), m)
        values = [1 - _missed(m, m2, t, k) for t in range(len(singles) + 1)]
        ones: list[Expr] = [Call("if", (test, Literal(1.0), Literal(0.0))) for test in singles]
        rest = _looked_up(_sum(ones), values) if ones else Literal(values[0])
        return Call("if", (self.value(chosen), Literal(1.0), rest)) if chosen else rest

    def _allowed(self, left_out: Members) -> list[list[Expr]]:
        found: list[list[Expr]] = [[] for _ in self.conditions]
        for i, (place, literal) in enumerate(zip(self.places, self.literals(), strict=True)):
            if i not in left_out:
                found[place].append(literal)
        return found


def _missed(m: int, m2: int, true: int, k: int | None) -> float:
    """The chance that no true condition is chosen."""
    if k is None:
        return float((2 / 3) ** m2 * 2.0**-true)
    every = sum(math.comb(m2, j) * 2**j * math.comb(m - m2, k - j) for j in range(k + 1))
    return float(math.comb(m - true, k) / every)


def _looked_up(count: Expr, values: Sequence[float]) -> Expr:
    """values[count], by halving, so that the expression stays shallow."""
    if len(values) == 1:
        return Literal(values[0])
    half = len(values) // 2

    def pick(low: int, high: int) -> Expr:
        if high - low == 1:
            return Literal(values[low])
        middle = (low + high) // 2
        return Call("if", (Call("lt", (count, Literal(float(middle)))), pick(low, middle), pick(middle, high)))

    return Call("if", (Call("lt", (count, Literal(float(half)))), pick(0, half), pick(half, len(values))))


@dataclass(frozen=True)
class CutFunction(SetFunction):
    """f(S): the edges (rows) with exactly one end in S; ``tail`` and ``head`` are the columns of the ends. Fact C.1."""

    tail: str
    head: str
    vertices: int
    monotone = False

    @property
    def places(self) -> tuple[int, ...]:
        """Each vertex by itself."""
        return tuple(range(self.vertices))

    def _in(self, column: str, members: Members) -> Expr:
        if not members:
            return Literal(False)
        return Call("in", (Column(column), *(Literal(float(v)) for v in sorted(members))))

    def value(self, chosen: Members) -> Expr:
        """One end in S, the other not."""
        return Call("ne", (self._in(self.tail, chosen), self._in(self.head, chosen)))

    def mean(self, chosen: Members, left_out: Members) -> Expr:
        """An edge with a free end is cut half of the time; with two fixed ends it is cut or not."""
        fixed = chosen | left_out
        both = Call("and", (self._in(self.tail, fixed), self._in(self.head, fixed)))
        cut = Call("if", (self.value(chosen), Literal(1.0), Literal(0.0)))
        return Call("if", (both, cut, Literal(0.5)))


@dataclass(frozen=True)
class OwnFunction(SetFunction):
    """A user's own: ``of(S)`` gives the row expression of f(S), in [0, 1]. Means are over ``samples`` public random
    sets.

    Whether it is submodular is checked on the answers seen.
    """

    count: int
    of: Callable[[Members], Expr]
    monotone: bool = False
    samples: int = 64

    @property
    def places(self) -> tuple[int, ...]:
        """Each element by itself."""
        return tuple(range(self.count))

    def value(self, chosen: Members) -> Expr:
        """As stated."""
        return self.of(chosen)

    def mean(self, chosen: Members, left_out: Members) -> Expr:
        """The mean over the sampled sets, as one number of a row."""
        random = np.random.default_rng([len(chosen), *sorted(chosen), *sorted(left_out)])  # public, the same each time
        free = [e for e in range(self.count) if e not in chosen and e not in left_out]
        picks = random.random((self.samples, len(free))) < 0.5
        sets = [chosen | frozenset(itertools.compress(free, pick.tolist())) for pick in picks]
        terms = [
            Call("if", (test, Literal(1.0), Literal(0.0))) if _boolean(test) else test for test in map(self.of, sets)
        ]
        return Call("mul", (Literal(1 / self.samples), _sum(terms)))


def _boolean(expr: Expr) -> bool:
    tests = {"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "in", "between", "is_null"}
    return (isinstance(expr, Call) and expr.op in tests) or (isinstance(expr, Literal) and isinstance(expr.value, bool))


def _sum(terms: Sequence[Expr]) -> Expr:
    """By halving, so that the expression stays shallow."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return Call("add", (_sum(terms[:half]), _sum(terms[half:])))
