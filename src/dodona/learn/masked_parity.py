"""Learners of MASKED-PARITY on any oracle (KLNRS section 5.3): in two rounds, and in one.

The adaptive learner A_MP asks d counts (a histogram), reads r off them, then asks one count that depends on r. The
nonadaptive one must ask about every parity at once, since it cannot know which one will matter: Theorem 5.16 says that
no nonadaptive learner does much better, and ``benchmarks/local.py`` draws the price.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dodona.concepts.masked_parity import MaskedParity
from dodona.concepts.parities import walsh_hadamard
from dodona.errors import BadQuery
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number, exact
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.statistic import Gate, Partition, Query, Stack, Value

MOST_BITS_AT_ONCE = 15


@dataclass(frozen=True)
class Learned:
    """The concept found: r = ``mask``, a = ``negated``; ``rounds`` of questions were asked."""

    mask: tuple[bool, ...]
    negated: bool
    rounds: int


def learn_in_two_rounds(oracle: Oracle, concepts: MaskedParity, *, share: Number = 1) -> Learned:
    """A_MP (Proposition 5.18): half of the share for r, half for a.

    Round 1: E[(i = j) and b and y] is r_j/(2d): true above 1/(4d). Round 2: E[not b and y != parity] is a/2: true
    above 1/4.
    """
    half = exact(share, "share") / 2
    first = np.asarray(oracle.ask(_bits_of_r(concepts), share=half).mean)
    mask = tuple(bool(mean > 1 / (4 * concepts.bits)) for mean in first)
    second = float(oracle.ask(_disagreement(concepts, mask), share=half).mean)
    return Learned(mask, second > 0.25, 2)


def learn_in_one_round(oracle: Oracle, concepts: MaskedParity, *, share: Number = 1) -> Learned:
    """Everything in one question: r as before, and the joint counts of x and y where b = 0.

    The correlation of y with the parity of r is read off afterwards: sum over x of (n_{x,+} - n_{x,-}) (-1)^(r.x) is
    +1/2 or -1/2 of the rows, by a; but its noise is that of 2^d cells.
    """
    if concepts.bits > MOST_BITS_AT_ONCE:
        raise BadQuery(
            f"one round asks about 2^d cells: bits must be at most {MOST_BITS_AT_ONCE}. Got {concepts.bits}."
        )
    code: Expr = Literal(0.0)
    for name in concepts.names:
        doubled = Call("mul", (code, Literal(2.0)))
        code = Call("add", (doubled, Call("if", (Column(name), Literal(1.0), Literal(0.0)))))
    signed = Call("if", (Column("label"), Literal(-1.0), Literal(1.0)))
    joint = Gate(Call("not", (Column("half"),)), Partition(code, Value(signed)))
    answer = oracle.ask(Stack((_bits_of_r(concepts), joint)), share=share)
    means = np.asarray(answer.mean, dtype=np.float64).ravel()
    mask = tuple(bool(mean > 1 / (4 * concepts.bits)) for mean in means[: concepts.bits])
    spectrum = walsh_hadamard(means[concepts.bits :])
    number = int("".join("1" if used else "0" for used in mask), 2)
    return Learned(mask, float(spectrum[number]) < 0, 1)


def _bits_of_r(concepts: MaskedParity) -> Query:
    wanted = Call("and", (Column("half"), Column("label")))
    return Gate(wanted, Partition(Column("index"), Value(Literal(1.0))))


def _disagreement(concepts: MaskedParity, mask: tuple[bool, ...]) -> Query:
    parity = concepts.parity(mask)
    differs = Call("or", (_and_not(Column("label"), parity), _and_not(parity, Column("label"))))
    return Value(Call("and", (Call("not", (Column("half"),)), differs)))


def _and_not(first: Expr, second: Expr) -> Expr:
    return Call("and", (first, Call("not", (second,))))
