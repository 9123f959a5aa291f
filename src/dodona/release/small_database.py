"""A small synthetic table, useful for a whole class at once (Blum, Ligett and Roth 2008, Theorem 3.1).

Among all databases of m rows over a discretised domain, one is drawn with probability proportional to
exp(epsilon q / 2), q = -max_h |h(D) - h(D')| in rows (sensitivity 1; ERRATA 11). It is exact selection, not a Markov
chain: every candidate is scored. With M of them and probability 1 - delta its worst error is, in rows, within
(2/epsilon) ln(M/delta) of that of the best database of m rows. That one is within n sqrt(ln(2|C|)/(2m)) (m rows drawn
at random are, with positive probability, by Hoeffding and a union bound: Lemma 3.2 for a listed class), provided that
every row looks like a point of the domain to every member; where values may be missing, or a cell holds two numbers,
the margin is called estimated.

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
from dataclasses import replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.bounds import releases as bounds
from dodona.concepts.concept import ConceptClass, Finite
from dodona.concepts.databases import Databases, Misfits
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.answer import Bill
from dodona.oracles.effort import NEARLY, Divisible, Effort, combined
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.schema import Category, Flag, Integer, Schema
from dodona.query.statistic import Value
from dodona.release.registry import Case, Release, Setting, registered, within
from dodona.synopses.boxes import Rows
from dodona.synopses.domain import Domain, read_by
from dodona.synopses.noise import STATED
from dodona.synopses.ranges import Axis

METHODS = ("best", "selection", "iterative")
MOST_CANDIDATES = 20_000_000
TOO_MANY = 10**300
CERTIFICATE = Fraction(1, 5)  # of the budget: it tells how good the built table is
Floats = NDArray[np.float64]


def small_database(
    oracle: Oracle,
    concepts: ConceptClass,
    *,
    size: int,
    columns: Sequence[str] | None = None,
    bits: int | None = None,
    rounds: int | None = None,
    method: str = "best",
    **stated: Unpack[Divisible],
) -> Synopsis:
    """A synthetic table of ``size`` rows over ``columns`` (those the class reads, unless given).

    ``method``: "selection" (Theorem 3.1), "iterative", or "best": selection wherever the databases can be listed.
    ``rounds``: of the iterative construction; by the noise if not given.
    """
    rows, effort = _checked_rows(oracle, size, rounds, method), Effort.divisible(**stated)
    names = [str(oracle.schema.find(c) or c) for c in columns] if columns else read_by(concepts, oracle.schema)
    domain = Domain.of(oracle.schema, names, bits)
    truths = domain.truths(concepts)
    selects = listing(domain.size, size, method)[1] and method != "iterative"
    if selects:
        points, margin, bills, words = _selected(oracle, concepts, truths, size, effort)
    else:
        points, margin, bills, words = _built(oracle, concepts, truths, size, effort, rounds)
    sure = not selects or all(_pointwise(oracle.schema, name, bits) for name in names)
    held = {name: values[points] for name, values in domain.columns.items()}
    body = Rows(oracle.schema, held, rows / size, margin, concepts, sure)
    about = f"a synthetic table of {size} rows over {', '.join(names)}, made for {concepts.describe()}"
    accuracy = f"with probability {STATED:g}, all members are within {margin / rows:.3g} of the rows at once"
    if not sure:
        accuracy += "; estimated: some rows may be no point of the domain (missing values, or numbers inside a cell)"
    notes = {"method": "selection" if selects else "iterative", "size": size}
    told = about, accuracy, words, oracle.schema, rows, combined(bills), notes
    return Synopsis(Header(oracle.name, *told), body)


def plan_small_database(
    oracle: Oracle,
    concepts: ConceptClass,
    *,
    size: int,
    columns: Sequence[str] | None = None,
    bits: int | None = None,
    rounds: int | None = None,
    method: str = "best",
    e: float | None = None,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """The table of ``size`` rows by the method it would take; with a wish ``e`` on a pure budget, then Theorem 3.1 with
    the size that it asks for.
    """
    rows, effort = _checked_rows(oracle, size, rounds, method), Effort.divisible(**stated)
    within(oracle, 0.0, e)  # refuses a wish that is none
    names = [str(oracle.schema.find(c) or c) for c in columns] if columns else read_by(concepts, oracle.schema)
    points, members = Domain.of(oracle.schema, names, bits).size, concepts.size(oracle.schema)
    candidates, listed = listing(points, size, method)
    selects = listed and method != "iterative"
    # All of an (epsilon, delta) budget in one selection buys its whole epsilon.
    payer = (oracle.purely() if selects and effort.whole else None) or oracle
    bill = payer.price(Value(concepts.typical(oracle.schema)), effort=effort.part()).cost
    if selects:
        found = [_plan_selection(rows, members, size, candidates, e, bill)]
    else:
        rounds = rounds_for(oracle, concepts, points, members, effort) if rounds is None else rounds
        found = [_plan_iterative(oracle, concepts, members, size, rounds, e, effort, bill)]
    if e is not None and bill.unit == "epsilon":
        found.append(
            bounds.small_database(rows, points, concepts.vc_dimension(oracle.schema), e, Fraction(bill.amount))
        )
    return Outlooks(found)


def _plan_selection(rows: int, members: int, size: int, candidates: int, e: float | None, bill: Bill) -> Outlook:
    """n sqrt(ln(2|C|)/(2m)) for the best database, (2/epsilon) ln(M/delta) for the choice, 1 for rounding."""
    chosen = 2 * math.log(candidates / (1 - STATED)) / bill.strength if bill.amount else 0.0
    part = best_error(rows, members, size) / rows
    outcome, needed, why = Outcome.FEASIBLE, None, ""
    if e is not None and e <= part:
        outcome, why = Outcome.INFEASIBLE, f"{size} rows promise no better than {part:.3g} of the rows: take more."
    elif e is not None:
        needed = math.ceil((chosen + 1) / (e - part))
        outcome = Outcome.FEASIBLE if rows >= needed else Outcome.INFEASIBLE
    details = {"databases": float(candidates), "rows off by the choice": chosen}
    error = part * rows + chosen + 1
    return _outlook(size, "selection", outcome, "BLR Theorem 3.1", error, needed, bill.spent, why, details)


def _plan_iterative(
    oracle: Oracle,
    concepts: ConceptClass,
    members: int,
    size: int,
    rounds: int,
    e: float | None,
    effort: Effort,
    bill: Bill,
) -> Outlook:
    """The certificate's own part is known before; how well the weights will fit is not."""
    half = effort.part(CERTIFICATE / 2)
    price = oracle.price(Value(concepts.typical(oracle.schema)), confidence=(1 + STATED) / 2, effort=half)
    # A choice among 2|C| scores at epsilon' is within (2/epsilon') ln(2|C|/delta') of the best.
    strength = price.cost.strength
    chosen = 2 * math.log(2 * members * 2 / (1 - STATED)) / strength if price.cost.amount else 0.0
    own = chosen + float(np.max(price.margin)) + 1
    judged, needed = within(oracle, own, e)
    details = {"rows off by the certificate": own, "rounds": float(rounds)}
    why = "The error is certified privately when the table is made; it is never stated below the certificate's own."
    outcome = Outcome.VACUOUS if judged is Outcome.FEASIBLE else judged
    known = size, "iterative", outcome, "Hardt, Ligett and McSherry 2012"
    return _outlook(*known, own, needed, bill.spent, why, details)


def _outlook(size: int, method: str, *known: Any) -> Outlook:
    """Both methods promise the same thing, for all members at once."""
    found = Outlook(f"a synthetic table of {size} rows", *known)
    return replace(found, method=method, measure="the worst member of the class", scale="rows", confidence=STATED)


def _checked_rows(oracle: Oracle, size: int, rounds: int | None, method: str) -> int:
    """The public number of rows, once the settings make sense."""
    if method not in METHODS:
        raise BadQuery(f"method must be best, selection or iterative. Got {method!r}.")
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 10_000_000:
        raise BadQuery(f"size must be a whole number of rows from 1 to 10,000,000. Got {size!r}.")
    if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= 10_000):
        raise BadQuery(f"rounds must be a whole number from 1 to 10,000. Got {rounds!r}.")
    if oracle.rows is None:
        raise Unsupported("a synthetic table stands for a public number of rows: state Table(..., rows=...).")
    if not oracle.rows:
        raise Unsupported("a synthetic table stands for the rows of another, and this has 0. At least one is needed.")
    return oracle.rows


def listing(points: int, size: int, method: str) -> tuple[int, bool]:
    """(how many databases of ``size`` rows there are, whether they are few enough to list).

    From C(28, 14) on they are more than are listed, and soon too many to write down: then it is ``TOO_MANY``.
    """
    many = TOO_MANY if min(points - 1, size) >= 1000 else min(math.comb(points + size - 1, size), TOO_MANY)
    listed = many <= MOST_CANDIDATES
    if method == "selection" and not listed:
        raise Unsupported(
            f"there are {'more than ' * (many == TOO_MANY)}{many:.3g} databases of {size} rows over {points:,} points; "
            f"at most {MOST_CANDIDATES:,} are listed (8 bytes each: {many * 8 / 2**30:.3g} GiB). Take fewer rows or "
            "points, or method='iterative'."
        )
    return many, listed


Made = tuple[NDArray[np.intp], float, list[Bill], str]


def _selected(oracle: Oracle, concepts: ConceptClass, truths: NDArray[np.bool_], size: int, effort: Effort) -> Made:
    rows = oracle.rows or 1
    scores = Databases(concepts, truths, size, rows)
    found = oracle.select(scores, mechanism="exponential", effort=effort.part())
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
    effort: Effort,
    rounds: int | None,
) -> Made:
    rows, (points, members) = oracle.rows or 1, truths.shape
    rounds = rounds_for(oracle, concepts, points, members, effort) if rounds is None else rounds
    part = effort.part((1 - CERTIFICATE) / (2 * rounds))
    truth = truths.astype(np.float64)
    weights = np.full(points, 1 / points)
    bills: list[Bill] = []
    measured: dict[int, list[float]] = {}
    for _ in range(rounds):
        estimates = np.rint(rows * (weights @ truth)).astype(np.int64)
        chosen = oracle.select(Misfits(concepts, estimates), effort=part)
        member = chosen.index % members
        answer = oracle.ask(Value(concepts.member(oracle.schema, member)), effort=part)
        bills += [chosen.cost, answer.cost]
        measured.setdefault(member, []).append(float(answer.total) / rows)
        weights = _refitted(weights, truth, measured)
    drawn = _drawn(weights, size)
    margin, costs = _certified(oracle, concepts, truth[drawn].sum(axis=0) * (rows / size), effort)
    words = f"iterative: multiplicative weights, {rounds} rounds of find and measure (Hardt, Ligett and McSherry 2012)"
    return drawn, margin, [*bills, *costs], words


def _certified(oracle: Oracle, concepts: ConceptClass, own: Floats, effort: Effort) -> tuple[float, list[Bill]]:
    """A bound on the error of every total in ``own``, in rows, that holds with probability ``STATED``; and its cost.

    With gap_h = c_h - own_h: the chosen h has |gap_h| at least max |gap| - s - 1 (scores are of rounded totals, 1/2 for
    each of the two), and |gap_h| <= |measured - own_h| + t.
    """
    part, each = effort.part(CERTIFICATE / 2), (1 + STATED) / 2
    chosen = oracle.select(Misfits(concepts, np.rint(own).astype(np.int64)), confidence=each, effort=part)
    member = chosen.index % len(own)
    answer = oracle.ask(Value(concepts.member(oracle.schema, member)), confidence=each, effort=part)
    gap = abs(float(answer.total) - float(own[member]))
    return gap + float(answer.margin) + chosen.margin + 1, [chosen.cost, answer.cost]


def rounds_for(oracle: Oracle, concepts: ConceptClass, points: int, members: int, effort: Effort) -> int:
    """T that balances 2 n sqrt(ln|X|/T) with T ln|C| times the noise of one count at the whole effort, within 60."""
    rows, one = oracle.rows or 1, oracle.price(Value(concepts.typical(oracle.schema)), effort=effort.part(NEARLY))
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


def _pointwise(schema: Schema, name: str, bits: int | None) -> bool:
    """Whether every row's value is a point of the domain: none may be missing, and no cell holds two numbers."""
    column = schema[name]
    if column.missing is None:
        return False
    return isinstance(column, Flag | Category) or (
        isinstance(column, Integer) and Axis.of(schema, name, bits).width == 1
    )


def _cases() -> list[Case]:
    schema = Schema({"a": Flag(missing=False), "v": Integer(0, 3, missing=0), "z": Flag()})
    members = ("a", "v >= 2", "a AND v >= 1", "NOT a")
    concepts = Finite.of(members)

    def draw(rows: int, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        return {"a": random.random(rows) < 0.8, "v": random.integers(0, 4, rows), "z": random.random(rows) < 0.5}

    return [
        Case(method, schema, draw, settings, "Rows", members, outside=("z", "a AND v >= 2", "v"))
        for method, settings in (
            ("selection", {"concepts": concepts, "size": 4}),
            ("iterative", {"concepts": concepts, "size": 200, "method": "iterative"}),
        )
    ]


RELEASE = registered(
    Release(
        small_database,
        plan_small_database,
        "A small synthetic table, useful for a class of questions",
        (
            Setting("concepts", "value", "The class it is made for."),
            Setting("size", "whole", "How many rows it has.", least=1, most=10_000_000),
            Setting("columns", "columns", "Columns", types=("category", "flag", "integer", "real")),
            Setting("bits", "bits", "Precision of the number columns.", least=1, most=20),
            Setting("rounds", "whole", "Rounds of the iterative method.", least=1, most=10_000),
            Setting("method", "choice", "How it is made.", choices=METHODS),
        ),
        ("Rows",),
        _cases,
    )
)
