"""A small synthetic table, useful for a whole class at once (Blum, Ligett and Roth 2008, Theorem 3.1).

Among all databases of m rows over a discretised domain, one is drawn with probability proportional to
exp(epsilon q / 2), q = -max_h |h(D) - h(D')| in rows (sensitivity 1; ERRATA 11). It is exact selection, not a Markov
chain: every candidate is scored. With M of them and probability 1 - delta its worst error is, in rows, within
(2/epsilon) ln(M/delta) of that of the best database of m rows, which is n sqrt(VC ln(1/e)/m)-like (Lemma 3.2).

Where they are too many to list, a private iterative construction is used instead, under its own guarantee:
multiplicative weights over the points of the domain (Hardt, Ligett and McSherry 2012), each of T rounds finding a bad
member privately and measuring it. Worst error at most 2 n sqrt(ln|X|/T) + O(T ln|C|)/epsilon rows, then
sqrt(ln|C|/(2m)) n for the m rows drawn from the weights: weaker than Theorem 3.1 in T, and not a draw from its
distribution.
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
from dodona.release.portion import Portion, combined
from dodona.synopses.base import Header, Synopsis
from dodona.synopses.rows import Rows

MOST_CANDIDATES = 20_000_000
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
    if not oracle.rows:
        raise Unsupported("a synthetic table stands for a public number of rows: state Table(..., rows=...).")
    portion = Portion.of(share, epsilon, rho)
    names = [str(oracle.schema.find(c) or c) for c in columns] if columns else read_by(concepts, oracle.schema)
    domain = Domain.of(oracle.schema, names, bits)
    truths = domain.truths(concepts)
    candidates = math.comb(domain.size + size - 1, size)
    listed = candidates <= MOST_CANDIDATES and size < 127
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
    accuracy = f"its stated margin for members of the class is {margin / oracle.rows:.3g} of the rows"
    notes = {"method": words.split(":")[0], "size": size}
    return Synopsis(
        Header(oracle.name, about, accuracy, words, oracle.schema, oracle.rows, combined(bills), notes), body
    )


Made = tuple[NDArray[np.intp], float, list[Bill], str]


def _selected(oracle: Oracle, concepts: ConceptClass, truths: NDArray[np.bool_], size: int, portion: Portion) -> Made:
    rows = oracle.rows or 1
    scores = Databases(concepts, truths, size, rows)
    found = oracle.select(scores, mechanism="exponential", **portion.part())
    points = np.array(scores.points_of(found.index), dtype=np.intp)
    # The best database of this size: by sampling, sqrt(ln(2|C|)/(2m)) for some one (Hoeffding and a union bound).
    best = rows * math.sqrt(math.log(2 * truths.shape[1]) / (2 * size))
    words = f"selection: one of {scores.count(oracle.schema):,} databases by the exponential mechanism (Theorem 3.1)"
    return points, min(best, rows) + found.margin, [found.cost], words


def _built(
    oracle: Oracle,
    concepts: ConceptClass,
    truths: NDArray[np.bool_],
    size: int,
    portion: Portion,
    rounds: int | None,
) -> Made:
    rows, (points, members) = oracle.rows or 1, truths.shape
    one = float(np.max(oracle.price(Value(concepts.member(oracle.schema, 0)), **portion.part()).spread))
    if rounds is None:  # balances 2 n sqrt(ln|X|/T) with T ln|C| one: T = (n sqrt(ln|X|) / (one ln|C|))^(2/3)
        reach = rows * math.sqrt(math.log(max(points, 2))) / max(one * math.log(max(members, 2)), 1e-9)
        rounds = int(np.clip(reach ** (2 / 3), 1, min(60, 4 * members)))
    part = portion.part(Fraction(1, 2 * rounds))
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
    margin = rows * min(1.0, 2 * math.sqrt(math.log(max(points, 2)) / rounds) + math.sqrt(math.log(2 * members) / size))
    words = f"iterative: multiplicative weights, {rounds} rounds of find and measure (Hardt, Ligett and McSherry 2012)"
    return _drawn(weights, size), margin, bills, words


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
