"""Parities: r.x mod 2 of the bits of a row, with at most ``most`` bits in r: PARITY of KLNRS section 4 if that is all.

For a set S of bits, sum over {r.x odd} of s = (sum of s - sum of s prod_{i in S} (1 - 2 x_i)) / 2. Few bits at a time:
from products of conditions. All of them: from the table of 2^d cells, by one Walsh-Hadamard transform.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.concept import Learnable
from dodona.concepts.trees import SIGN, nth_set, pattern_sums, sets_of, splits_of
from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal, columns_of
from dodona.query.schema import Flag, Integer, Schema
from dodona.query.statistic import Partition, Products, Query, Stack, Value

# Signs of conditions and their products (Walsh characters), as expressions: how they are written and recognised.
#
# A condition b has the sign +1 where it is false or NULL and -1 where it is true; a character is the product of the
# signs of some conditions. Any Boolean function of w conditions is a combination of the 2^w characters inside them.


MOST_BITS = 12
NONE: frozenset[str] = frozenset()


def sign(condition: Expr) -> Expr:
    """-1 where the condition is true, +1 elsewhere."""
    return Call("if", (condition, Literal(-1.0), Literal(1.0)))


def character(conditions: Sequence[Expr], scale: float = 1.0) -> Expr:
    """``scale`` times the product of the conditions' signs."""
    product = functools.reduce(lambda a, b: Call("mul", (a, b)), map(sign, conditions)) if conditions else Literal(1.0)
    return product if scale == 1.0 else Call("mul", (Literal(scale), product))


def masks_up_to(columns: int, order: int) -> list[tuple[int, ...]]:
    """The sets of 1..``order`` of ``columns`` positions, small ones first."""
    return [s for j in range(1, order + 1) for s in itertools.combinations(range(columns), j)]


def characters(conditions: Sequence[Expr], masks: Sequence[tuple[int, ...]], scales: Sequence[float]) -> Query:
    """One vector query: the scaled character of each mask."""
    exprs = [character([conditions[i] for i in mask], s) for mask, s in zip(masks, scales, strict=True)]
    return Stack(tuple(map(Value, exprs)))


Recognised = tuple[tuple[Expr, ...], tuple[tuple[int, ...], ...], tuple[float, ...]]


def characters_of(query: Query) -> Recognised | None:
    """(conditions, masks, scales) of a query that ``characters`` could have made; None for any other.

    The query is data, so an oracle may look at its structure and answer it in the way that fits it best.
    """
    if not isinstance(query, Stack) or not all(type(part) is Value for part in query.parts):
        return None
    places: dict[Expr, int] = {}
    masks: list[tuple[int, ...]] = []
    scales: list[float] = []
    for part in query.parts:
        found = _factors(part.expr)  # type: ignore[attr-defined]
        if found is None:
            return None
        scale, conditions = found
        mask = tuple(sorted(places.setdefault(condition, len(places)) for condition in conditions))
        if len(set(mask)) < len(mask):
            return None
        masks.append(mask)
        scales.append(scale)
    return (tuple(places), tuple(masks), tuple(scales)) if places else None


def _factors(expr: Expr) -> tuple[float, list[Expr]] | None:
    match expr:
        case Literal(float(value)):
            return value, []
        case Call("if", (condition, Literal(-1.0), Literal(1.0))):
            return 1.0, [condition]
        case Call("mul", (a, b)):
            left, right = _factors(a), _factors(b)
            return None if left is None or right is None else (left[0] * right[0], left[1] + right[1])
    return None


def spectrum(truth: Callable[[tuple[bool, ...]], bool], width: int) -> dict[tuple[int, ...], float]:
    """Coefficients c_S with f(b) = sum_S c_S prod_{i in S} sign(b_i), of a Boolean function of ``width`` bits."""
    points = list(itertools.product((False, True), repeat=width))
    values = np.array([float(truth(point)) for point in points])
    signs = np.array([[-1.0 if bit else 1.0 for bit in point] for point in points]).reshape(len(points), width)
    subsets = [s for j in range(width + 1) for s in itertools.combinations(range(width), j)]
    return {s: float(np.mean(values * signs[:, list(s)].prod(axis=1))) for s in subsets}


Truth = Callable[[Mapping[Expr, bool]], bool]


def boolean(
    expr: Expr, known: Mapping[Expr, int], nullable: frozenset[str] = NONE
) -> tuple[Truth, tuple[int, ...]] | None:
    """A Boolean combination of ``known`` conditions: how it is evaluated, and which it reads; None for anything
    else.

    A point tells which conditions are true. Of a condition over ``nullable`` columns, not true may mean missing, and
    NOT of it is then missing too: NOT goes inwards (De Morgan's laws hold for three values), and stands only before a
    condition whose opposite is known, or that cannot be missing.
    """
    used: set[int] = set()
    truth = _truth(expr, known, nullable, used)
    if truth is None or len(used) > MOST_BITS:
        return None
    return truth, tuple(sorted(used))


def nullable_in(conditions: Iterable[Expr], schema: Schema) -> frozenset[str]:
    """The columns these conditions read that may be missing."""
    read = frozenset(name for condition in conditions for name in columns_of(condition))
    return frozenset(name for name in read if name in schema and schema[name].missing is None)


def opposite(expr: Expr) -> Expr:
    """NOT ``expr``, moved inwards by one step; NULL where ``expr`` is."""
    match expr:
        case Literal(bool(value)):
            return Literal(not value)
        case Call("not", (inner,)):
            return inner
        case Call("and" | "or" as op, args):
            return Call("or" if op == "and" else "and", tuple(Call("not", (arg,)) for arg in args))
        case Call(op, args) if op in _OPPOSITES:
            return Call(_OPPOSITES[op], args)
    return Call("not", (expr,))


_OPPOSITES = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


def _truth(expr: Expr, known: Mapping[Expr, int], nullable: frozenset[str], used: set[int]) -> Truth | None:
    if expr in known:
        used.add(known[expr])
        return lambda point: point[expr]
    match expr:
        case Literal(bool(value)):
            return lambda _: value
        case Call("not", (inner,)):
            if columns_of(inner) & nullable:
                turned = opposite(inner)
                return None if turned == expr else _truth(turned, known, nullable, used)
            one = _truth(inner, known, nullable, used)
            return None if one is None else lambda point: not one(point)
        case Call("and" | "or" as op, args):
            found = [_truth(arg, known, nullable, used) for arg in args]
            if any(part is None for part in found):
                return None
            parts = [part for part in found if part is not None]
            join = all if op == "and" else any
            return lambda point: join(part(point) for part in parts)
        case Call("ne", (a, b)) if Call("eq", (a, b)) in known and not columns_of(expr) & nullable:
            return _truth(Call("not", (Call("eq", (a, b)),)), known, nullable, used)
    return None


def require_flags(conditions: Sequence[Expr]) -> None:
    """Refuses a list with repeats, which would make characters ambiguous."""
    if len(set(conditions)) < len(conditions):
        raise BadQuery("the conditions of a class must differ from each other.")


def flags(names: Sequence[str]) -> tuple[Expr, ...]:
    """Columns that are conditions by themselves."""
    return tuple(Column(name) for name in names)


def packed(rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows of up to 62 bits as whole numbers, first column lowest."""
    return np.asarray((rows.astype(np.int64) << np.arange(rows.shape[1], dtype=np.int64)).sum(axis=1))


# ruff: noqa: ARG002 - members of one contract share one signature


FEW = 3  # bits in r up to which products are cheaper than the whole table
MOST_TABLE_BITS = 19
_KEY_BITS = 15


@dataclass(frozen=True)
class Parities(Learnable):
    """Parities of at most ``most`` of the ``columns`` (flags, or categories of two values; a missing bit is 0)."""

    columns: tuple[str, ...]
    most: int

    @staticmethod
    def over(columns: Sequence[str], most: int | None = None) -> Parities:
        """From a plain list; all parities unless ``most`` is given."""
        return Parities(tuple(columns), len(columns) if most is None else most)

    def bits(self, schema: Schema) -> tuple[Expr, ...]:
        """One condition per column, never NULL."""
        splits = [splits_of(schema, (name,), ())[-1] for name in self.columns]
        return tuple(Call("coalesce", (split, Literal(False))) for split in splits)

    @property
    def _most(self) -> int:
        return max(0, min(self.most, len(self.columns)))

    def size(self, schema: Schema) -> int:
        """Sets of at most ``most`` bits."""
        return sum(math.comb(len(self.columns), size) for size in range(self._most + 1))

    def member(self, schema: Schema, index: int) -> Expr:
        """Small sets first, each size in order; the empty parity is FALSE."""
        d = len(self.columns)
        for size in range(self._most + 1):
            if index < math.comb(d, size):
                bits = self.bits(schema)
                return parity_of([bits[place] for place in nth_set(d, size, index)])
            index -= math.comb(d, size)
        raise IndexError(index)

    def vc_dimension(self, schema: Schema) -> int:
        """d for all parities (the unit vectors are shattered); else at most log2 of the size."""
        return min(len(self.columns), int(math.log2(self.size(schema))))

    def describe(self) -> str:
        """In words."""
        return f"parities of at most {self.most} of {len(self.columns)} bits"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """Products of few bits, or the table of all cells."""
        bits = self.bits(schema)
        if self._most <= FEW:
            return Products(bits, signed, self._most)
        if len(bits) > MOST_TABLE_BITS:
            raise BadQuery(
                f"parities of more than {FEW} bits must be over at most {MOST_TABLE_BITS} columns, as all 2^d cells "
                f"are counted. Got {len(bits)}: lower most= to {FEW}, or use ParityLearner, which solves and lists not."
            )
        groups = [bits[start : start + _KEY_BITS] for start in range(0, len(bits), _KEY_BITS)]
        inner: Query = Value(signed)
        return functools.reduce(lambda of, group: Partition(_code(group), of), reversed(groups), inner)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Half of what the sign of the parity takes off the whole."""
        d = len(self.columns)
        if self._most <= FEW:
            characters = [pattern_sums(totals, d, sets_of(d, size), SIGN).ravel() for size in range(self._most + 1)]
            return np.concatenate([_half(totals[0] - part) for part in characters])
        spectrum = walsh_hadamard(totals.reshape(-1))
        bit = 1 << np.arange(d, dtype=np.int64)[::-1]  # the first column is the highest bit of a cell's number
        wanted = [bit[sets_of(d, size)].sum(axis=1) for size in range(self._most + 1)]
        return np.asarray(_half(spectrum[0] - spectrum[np.concatenate(wanted)]))


def parity_of(bits: Sequence[Expr]) -> Expr:
    """Whether an odd number of the conditions is true, as MOD of a sum."""
    if not bits:
        return Literal(False)
    if len(bits) == 1:
        return bits[0]
    ones: list[Expr] = [Call("if", (bit, Literal(1.0), Literal(0.0))) for bit in bits]
    return Call("eq", (Call("mod", (_sum(ones), Literal(2.0))), Literal(1.0)))


def _sum(terms: Sequence[Expr]) -> Expr:
    """As a balanced tree, so that many terms do not nest deeply."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return Call("add", (_sum(terms[:middle]), _sum(terms[middle:])))


def walsh_hadamard(cells: NDArray[Any]) -> NDArray[Any]:
    """sum over cells c of cells[c] (-1)^(c.r), for every r: d 2^d additions."""
    out = np.array(cells)
    step = 1
    while step < out.size:
        halves = out.reshape(-1, 2, step)
        first, second = halves[:, 0].copy(), halves[:, 1].copy()
        halves[:, 0], halves[:, 1] = first + second, first - second
        step *= 2
    return out


def _half(values: NDArray[Any]) -> NDArray[Any]:
    """The difference of a sum and a signed sum is even where the sums are whole."""
    return np.asarray(values // 2 if values.dtype.kind == "i" else values / 2)


def _code(bits: Sequence[Expr]) -> Expr:
    """The number whose binary digits are the conditions, the first one highest."""
    highest = len(bits) - 1
    digits: list[Expr] = [
        Call("if", (bit, Literal(float(1 << (highest - place))), Literal(0.0))) for place, bit in enumerate(bits)
    ]
    return _sum(digits)


# MASKED-PARITY (KLNRS section 5.3): the class that two rounds of questions learn and one round cannot.
#
# c_{r,a}(x, i, b) = (-1)^(r.x + a) where b = 0, and (-1)^(r_i) where b = 1, over x in {0, 1}^d, i in 0..d-1 and b in
# {0, 1}. A label of -1 is stored as true.


@dataclass(frozen=True)
class MaskedParity:
    """``bits`` = d: columns x0.., ``index`` in 0..d-1, ``half`` (b) and ``label``."""

    bits: int

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 2 <= self.bits <= 62:
            raise BadQuery(f"bits must be a whole number from 2 to 62. Got {self.bits!r}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of x."""
        return tuple(f"x{place}" for place in range(self.bits))

    @property
    def schema(self) -> Schema:
        """The public facts; nothing is missing in this class."""
        flag = Flag(missing=False)
        columns: dict[str, Integer | Flag] = dict.fromkeys(self.names, flag)
        return Schema({**columns, "index": Integer(0, self.bits - 1, missing=0), "half": flag, "label": flag})

    def parity(self, mask: tuple[bool, ...]) -> Expr:
        """Whether r.x is odd."""
        return parity_of([Column(name) for name, used in zip(self.names, mask, strict=True) if used])

    def concept(self, mask: tuple[bool, ...], negated: bool) -> Expr:
        """c_{r,a} = -1 as a row condition."""
        parity = self.parity(mask)
        masked = Call("not", (parity,)) if negated else parity
        bit: Expr = Literal(False)
        for place, used in enumerate(mask):
            if used:
                bit = Call("or", (Call("eq", (Column("index"), Literal(float(place)))), bit))
        return Call("if", (Column("half"), bit, masked))

    def sample(self, rows: int, mask: tuple[bool, ...], negated: bool, seed: int) -> dict[str, NDArray[np.generic]]:
        """Rows drawn uniformly and labelled by c_{r,a}: made-up data for experiments."""
        generator = np.random.default_rng(seed)
        x = generator.integers(0, 2, (rows, self.bits)).astype(bool)
        index, half = generator.integers(0, self.bits, rows), generator.integers(0, 2, rows).astype(bool)
        used = np.array(mask)
        parity = (x[:, used].sum(axis=1) % 2 == 1) ^ negated
        label = np.where(half, used[index], parity)
        columns: dict[str, NDArray[np.generic]] = {name: x[:, place] for place, name in enumerate(self.names)}
        return {**columns, "index": index, "half": half, "label": label}
