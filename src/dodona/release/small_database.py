"""A small synthetic table, useful for a whole class at once (Blum, Ligett and Roth 2008, Theorem 3.1).

Among all databases of m rows over a discretised domain, one is drawn with probability proportional to
exp(epsilon q / 2), q = -max_h |h(D) - h(D')| in rows (sensitivity 1; ERRATA 11). It is exact selection, not a Markov
chain: every candidate is scored. With M of them and probability 1 - delta its worst error is, in rows, within
(2/epsilon) ln(M/delta) of that of the best database of m rows. That one is within n sqrt(ln(2|C|)/(2m)) (m rows drawn
at random are, with positive probability, by Hoeffding and a union bound: Lemma 3.2 for a listed class), provided that
every row looks like a point of the domain to every member; missing values and members that cut a cell are not covered.

Where they are too many to list, a private iterative construction is used instead, under its own guarantee:
multiplicative weights over the points of the domain (Hardt, Ligett and McSherry 2012), each of T rounds finding a bad
member privately and measuring it; then m rows in proportion to the weights. It is not a draw from Theorem 3.1's
distribution, and its own theorem (2 n sqrt(ln|X|/T) plus the noise of T rounds) has constants too large to be of use.
So its error is certified instead, with a fifth of the budget: the finished table's worst member is chosen privately,
within s of the worst, and its error measured as g, within t; no member then errs by more than |g| + s + t, each of the
two steps failing with probability 1/40. This holds for the rows as they are, with no assumption on domain or rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Bill
from dodona.concepts.base import ConceptClass
from dodona.errors import BadQuery, Unsupported
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.statistic import Value
from dodona.release.database_scores import Databases, Misfits
from dodona.release.domain import Domain, read_by
from dodona.release.portion import NEARLY, Portion, combined
from dodona.synopses.base import Header, Synopsis
from dodona.synopses.rows import STATED, Rows

MOST_CANDIDATES = 20_000_000
CERTIFICATE = Fraction(1, 5)
"""The part of the budget that tells how good the built table is."""
Floats = NDArray[np.float64]


def small_database(
    oracle: Oracle,
    concepts: ConceptClass,
    *,
    size: int,
    columns: Sequence[str] | None = None,
    bits: int | None = None,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    rounds: int | None = None,
    method: str = "best",
) -> Synopsis:
    """A synthetic table of ``size`` rows over ``columns`` (those the class reads, unless given).

    ``method``: "selection" (Theorem 3.1), "iterative", or "best": selection wherever the databases can be listed.
    ``rounds``: of the iterative construction; by the noise if not given.
    """
    if method not in ("best", "selection", "iterative"):
        raise BadQuery(f"method must be best, selection or iterative. Got {method!r}.")
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 10_000_000:
        raise BadQuery(f"size must be a whole number of rows from 1 to 10,000,000. Got {size!r}.")
    if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= 10_000):
        raise BadQuery(f"rounds must be a whole number from 1 to 10,000. Got {rounds!r}.")
    if oracle.rows is None:
        raise Unsupported("a synthetic table stands for a public number of rows: state Table(..., rows=...).")
    if not oracle.rows:
        raise Unsupported("a synthetic table stands for the rows of another, and this has 0. At least one is needed.")
    portion = Portion.of(share, epsilon, rho)
    names = [str(oracle.schema.find(c) or c) for c in columns] if columns else read_by(concepts, oracle.schema)
    domain = Domain.of(oracle.schema, names, bits)
    truths = domain.truths(concepts)
    candidates, listed = listing(domain.size, size)
    if method == "selection" and not listed:
        raise Unsupported(
            f"there are {candidates:.3g} databases of {size} rows over {domain.size:,} points; at most "
            f"{MOST_CANDIDATES:,} are listed (8 bytes each: {candidates * 8 / 2**30:.3g} GiB). Take method='iterative'."
        )
    if listed and method != "iterative":
        points, margin, bills, words = _selected(oracle, concepts, truths, size, portion)
    else:
        points, margin, bills, words = _built(oracle, concepts, truths, size, portion, rounds)
    body = Rows(oracle.schema, {n: v[points] for n, v in domain.columns.items()}, oracle.rows / size, margin)
    about = f"a synthetic table of {size} rows over {', '.join(names)}, made for {concepts.describe()}"
    off = f"{margin / oracle.rows:.3g} of the rows"
    accuracy = f"with probability {STATED:g}, all members of the class are within {off} at once"
    notes = {"method": words.split(":")[0], "size": size}
    return Synopsis(
        Header(oracle.name, about, accuracy, words, oracle.schema, oracle.rows, combined(bills), notes), body
    )


def listing(points: int, size: int) -> tuple[int, bool]:
    """(how many databases of ``size`` rows there are, whether they are few enough to list)."""
    candidates = math.comb(points + size - 1, size)
    return candidates, candidates <= MOST_CANDIDATES and size < 127


Made = tuple[NDArray[np.intp], float, list[Bill], str]


def _selected(oracle: Oracle, concepts: ConceptClass, truths: NDArray[np.bool_], size: int, portion: Portion) -> Made:
    rows = oracle.rows or 1
    scores = Databases(concepts, truths, size, rows)
    found = oracle.select(scores, mechanism="exponential", **portion.part())
    points = np.array(scores.points_of(found.index), dtype=np.intp)
    words = f"selection: one of {scores.count(oracle.schema):,} databases by the exponential mechanism (Theorem 3.1)"
    # Scores round n k/m to whole rows: up to 1/2 for the best, and again for the chosen one.
    return points, best_error(rows, truths.shape[1], size) + found.margin + 1, [found.cost], words


def best_error(rows: int, members: int, size: int) -> float:
    """What some database of ``size`` rows errs by at most: n sqrt(ln(2|C|)/(2m)), and n at worst."""
    return rows * min(1.0, math.sqrt(math.log(2 * members) / (2 * size)))


def _built(
    oracle: Oracle,
    concepts: ConceptClass,
    truths: NDArray[np.bool_],
    size: int,
    portion: Portion,
    rounds: int | None,
) -> Made:
    rows, (points, members) = oracle.rows or 1, truths.shape
    rounds = rounds_for(oracle, concepts, points, members, portion) if rounds is None else rounds
    part = portion.part((1 - CERTIFICATE) / (2 * rounds))
    truth = truths.astype(np.float64)
    weights = np.full(points, 1 / points)
    bills: list[Bill] = []
    measured: dict[int, list[float]] = {}
    for _ in range(rounds):
        estimates = np.rint(rows * (weights @ truth)).astype(np.int64)
        chosen = oracle.select(Misfits(concepts, estimates), **part)
        member = chosen.index % members
        answer = oracle.ask(Value(concepts.member(oracle.schema, member)), **part)
        bills += [chosen.cost, answer.cost]
        measured.setdefault(member, []).append(float(answer.total) / rows)
        weights = _refitted(weights, truth, measured)
    drawn = _drawn(weights, size)
    margin, costs = _certified(oracle, concepts, truth[drawn].sum(axis=0) * (rows / size), portion)
    words = f"iterative: multiplicative weights, {rounds} rounds of find and measure (Hardt, Ligett and McSherry 2012)"
    return drawn, margin, [*bills, *costs], words


def _certified(oracle: Oracle, concepts: ConceptClass, own: Floats, portion: Portion) -> tuple[float, list[Bill]]:
    """A bound on the error of every total in ``own``, in rows, that holds with probability ``STATED``; and its cost.

    With gap_h = c_h - own_h: the chosen h has |gap_h| at least max |gap| - s - 1 (scores are of rounded totals, 1/2 for
    each of the two), and |gap_h| <= |measured - own_h| + t.
    """
    part, each = portion.part(CERTIFICATE / 2), (1 + STATED) / 2
    chosen = oracle.select(Misfits(concepts, np.rint(own).astype(np.int64)), confidence=each, **part)
    member = chosen.index % len(own)
    answer = oracle.ask(Value(concepts.member(oracle.schema, member)), confidence=each, **part)
    gap = abs(float(answer.total) - float(own[member]))
    return gap + float(answer.margin) + chosen.margin + 1, [chosen.cost, answer.cost]


def rounds_for(oracle: Oracle, concepts: ConceptClass, points: int, members: int, portion: Portion) -> int:
    """T that balances 2 n sqrt(ln|X|/T) with T ln|C| times the noise of one count at the whole portion, within 60."""
    rows, one = oracle.rows or 1, oracle.price(Value(concepts.member(oracle.schema, 0)), **portion.part(NEARLY))
    noise = max(float(np.max(one.spread)) * math.log(max(members, 2)), 1e-9)
    return int(np.clip((rows * math.sqrt(math.log(max(points, 2))) / noise) ** (2 / 3), 1, min(60, 4 * members)))


def _refitted(weights: Floats, truth: Floats, measured: dict[int, list[float]]) -> Floats:
    """Multiplicative updates towards all answers so far, a few passes: exp(+eta h) where the answer is above."""
    targets = {member: float(np.mean(answers)) for member, answers in measured.items()}
    for _ in range(10):
        for member, target in targets.items():
            gap = target - float(weights @ truth[:, member])
            weights = weights * np.exp(gap * truth[:, member])
            weights = weights / weights.sum()
    return np.asarray(weights)


def _drawn(weights: Floats, size: int) -> NDArray[np.intp]:
    """``size`` points in proportion: systematic sampling, so each point comes floor or ceil of its share times."""
    places = (np.arange(size) + 0.5) / size
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)
