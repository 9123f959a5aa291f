"""Ranges over one ordered column, published once (Blum, Ligett and Roth 2008, section 4).

``intervals(oracle, "age", share=0.5)`` is a synopsis that answers every range, union of ranges, quantile and histogram
of the column, for ever. Methods, chosen by predicted error unless named:

* ``tree``: counts by level, least squares, isotonic regression of the cumulative curve;
* ``quantile buckets``: private cut points first, for large domains;
* ``factorisation``: the square root of the prefix sums, for Gaussian noise (a budget with delta > 0);
* ``circle``: the fourth root of the ranges on a circle, for Gaussian noise: less in the mean over ranges;
* ``binary search``: the paper's own (Theorem 4.2, mended), kept under its name; never chosen for you.

With all of an (epsilon, delta) budget (``share=1``) a method may also spend it as one pure epsilon, where that promises
less error (``dodona.privacy.ledger.whole``): few counts of many rows are better with Laplace noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.bounds import releases as bounds
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.effort import NEARLY, Divisible, Effort, combined
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.release._ranges import (
    CIRCLE,
    MOST_LEAVES,
    TOEPLITZ,
    Curve,
    Offer,
    factor_offer,
    grouped_tree_offer,
    prefix_curve,
    tree_offer,
)
from dodona.release._ranges.descent import quantile_offer
from dodona.release.registry import Case, Release, Setting, registered, whole_cost
from dodona.synopses.keys import GroupedRanges, group_values
from dodona.synopses.noise import TreeNoise
from dodona.synopses.ranges import Axis, Ranges

Floats = NDArray[np.float64]
FAILURE = 0.05
METHODS = ("tree", "quantile buckets", "factorisation", "circle", "binary search")


def intervals(
    oracle: Oracle,
    column: str,
    *,
    by: str | None = None,
    bits: int | None = None,
    method: str = "best",
    **stated: Unpack[Divisible],
) -> Synopsis:
    """A synopsis of all ranges of ``column`` at ``bits`` bits (whole numbers: at their own precision).

    ``by``: in each group of a listed column. A row is in one group, so all of them cost as one.
    """
    effort = Effort.divisible(**stated)
    axis = Axis.of(oracle.schema, column, bits)
    if by is not None:
        return _in_groups(oracle, axis, by, effort, method)
    offer = min(offers(oracle, axis, effort, method), key=lambda offered: offered.error)
    made = offer.make()
    body = Ranges(oracle.schema, axis, made.edges, made.curve, made.deviation, made.noise, made.normal, made.plain)
    accuracy = f"a random range is off by about {offer.error:.3g} rows (predicted before it was made)"
    about = f"ranges, unions of ranges, quantiles and histograms of {axis}, over the rows where it is known"
    header = Header(
        oracle.name,
        about,
        accuracy,
        offer.words,
        oracle.schema,
        oracle.rows,
        combined(made.bills),
        {"method": f"{offer.name}, pure" if offer.pure else offer.name},
    )
    return Synopsis(header, body)


def _grouped_offer(oracle: Oracle, axis: Axis, by: str, effort: Effort, method: str) -> Offer:
    """Counts by level in each group of a column whose values are listed, none of them missing."""
    own = oracle.schema.find(by)
    column = None if own is None else oracle.schema[own]
    if own is None or not isinstance(column, Category | Flag):
        raise BadQuery(f"by must name a column with listed values. Got {by!r}. Columns: {', '.join(oracle.schema)}.")
    if column.missing is None:
        raise BadQuery(f"by must name a column whose missing values count as one: state missing= for {own!r}.")
    if method not in ("best", "tree"):
        raise Unsupported(f"ranges in groups are made by method='tree'. Got {method!r}.")
    return grouped_tree_offer(oracle, axis, Column(own), len(group_values(oracle.schema, own)), effort)


def _in_groups(oracle: Oracle, axis: Axis, by: str, effort: Effort, method: str) -> Synopsis:
    """One question, a curve for each group."""
    offer, own = _grouped_offer(oracle, axis, by, effort, method), str(oracle.schema.find(by))
    made = offer.make()
    assert isinstance(made.noise, TreeNoise)
    assert made.plain is not None
    known = made.edges, made.curve, made.deviation, made.noise, made.normal, made.plain
    body = GroupedRanges(oracle.schema, axis, own, *known)
    accuracy = f"a random range in a group is off by about {offer.error:.3g} rows (predicted before it was made)"
    about = f"ranges, unions of ranges, quantiles and histograms of {axis} by {own}, over the rows where it is known"
    told = oracle.name, about, accuracy, offer.words, oracle.schema, oracle.rows, combined(made.bills)
    return Synopsis(Header(*told, {"method": offer.name}), body)


def plan_intervals(
    oracle: Oracle,
    column: str,
    *,
    by: str | None = None,
    bits: int | None = None,
    method: str = "best",
    e: float | None = None,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """What each method would promise, best first: mean absolute error of a random range, in rows. Nothing is spent.

    With all of an (epsilon, delta) budget a method may stand there twice, the second time paid as one pure epsilon.
    ``e``: a wish for every range, as a fraction of the rows; then Theorem 4.2 says from how many rows on binary search
    keeps it at that epsilon.
    """
    axis, effort = Axis.of(oracle.schema, column, bits), Effort.divisible(**stated)
    if by is not None:
        found = [_grouped_offer(oracle, axis, by, effort, method)]
    else:
        found = offers(oracle, axis, effort, method)
        found += offers(oracle, axis, effort, "binary search") if method == "best" else []
    costs = {pure: whole_cost(payer, effort) for pure, payer in _payers(oracle, effort)}
    known = Outlook(f"ranges of {axis}", Outcome.FEASIBLE, measure="a random range", scale="rows")
    outlooks = [
        replace(known, error=offer.error, cost=costs[offer.pure], why=f"{offer.words}.", method=offer.name)
        for offer in sorted(found, key=lambda offer: offer.error)
    ]
    pure = [cost.epsilon for cost in costs.values() if cost is not None and cost.epsilon is not None]
    if e is not None and oracle.rows is not None and pure:
        outlooks.append(bounds.intervals(oracle.rows, math.ceil(math.log2(axis.cells)), e, pure[-1]))
    return Outlooks(outlooks)


def offers(oracle: Oracle, axis: Axis, effort: Effort, method: str = "best") -> list[Offer]:
    """The ways to publish the axis with their predicted errors; nothing is spent."""
    if method not in (*METHODS, "best"):
        raise BadQuery(f"method must be best, {', '.join(METHODS)}. Got {method!r}.")
    wanted = [name for name in METHODS if name != "binary search"] if method == "best" else [method]
    found: list[Offer] = []
    for pure, payer in _payers(oracle, effort):
        if not pure:
            found += _found(payer, axis, effort, wanted)
            continue
        several = [name for name in wanted if name in ("quantile buckets", "binary search")]
        as_one = "all of the budget as one pure epsilon"
        found += [
            replace(offer, pure=True, words=f"{offer.words}; {as_one}")
            for offer in _found(payer, axis, effort, several)  # methods of one question choose their noise themselves
        ]
    if not found:
        raise Unsupported(f"{method} does not fit {axis}: take method='best', or other bits.")
    return found


def _payers(oracle: Oracle, effort: Effort) -> list[tuple[bool, Oracle]]:
    """(whether purely, the oracle that pays so): all of an (epsilon, delta) budget can also be one pure epsilon."""
    pure = oracle.purely() if effort.whole else None
    return [(False, oracle), *([] if pure is None else [(True, pure)])]


def _found(oracle: Oracle, axis: Axis, effort: Effort, wanted: list[str]) -> list[Offer]:
    named: dict[str, Callable[[], Offer | None]] = {
        "tree": lambda: tree_offer(oracle, axis, effort) if axis.cells <= MOST_LEAVES else None,
        "quantile buckets": lambda: quantile_offer(oracle, axis, effort),
        "factorisation": lambda: factor_offer(oracle, axis, effort, TOEPLITZ),
        "circle": lambda: factor_offer(oracle, axis, effort, CIRCLE),
        "binary search": lambda: search_offer(oracle, axis, effort),
    }
    return [offer for offer in (named[name]() for name in wanted) if offer is not None]


# The paper's bucketing: binary search for intervals of equal mass (BLR section 4, Theorem 4.2, mended).
#
# From the left end on, each interval's right end is found by binary search with noisy counts, so that it holds a share
# e1/2 of the rows, give or take e2; there are at most 2/e1 intervals and b steps for each, so every count is asked at
# alpha' = alpha e1/(2b) = alpha e/(4b), with e1 = e/2 and e2 = e^2/8. The synopsis then puts e1/2 of the rows evenly
# into each interval. Every range is within e of the truth with probability 1 - delta, given
#
#     n >= 4b (ln 2b + ln(1/(e1 delta))) / (alpha e e2) = 32 b (ln 2b + ln(2/(e delta))) / (alpha e^3).
#
# The paper's proof prints Pr[Lap >= e2] <= exp(+alpha' e2 n) and loses the brackets (ERRATA 9). It also takes for
# granted that intervals of mass e1/2 exist: one value alone may have more. Such an interval cannot be split; here it
# keeps its measured count instead of e1/2, and the theorem holds for it by the same union bound.


_NO_PROMISE = 8.0  # of the rows: an error that is never reached


def search_offer(oracle: Oracle, axis: Axis, effort: Effort) -> Offer:
    """The paper's method at the least e its theorem allows for these rows. Intervals are of at least 1/8 of them, also
    where that is more than 1/2 and no promise; margins are of the e that the theorem has.
    """
    rows = max(oracle.rows or 1, 1)
    spread = float(np.max(oracle.price(_between(axis, 0, max(1, axis.cells // 2)), effort=effort.part(NEARLY)).spread))
    e = useful(axis.bits, rows, spread, FAILURE)
    own = min(e, 0.5)
    promise = f"within {e:.3g} of every range" if e == own else "these rows are too few for any promise"
    words = f"binary search for intervals of {own / 4:.3g} of the rows (Theorem 4.2, mended: {promise})"
    return Offer("binary search", words, e * rows, lambda: _searched(oracle, axis, effort, own, e, rows))


def useful(bits: int, rows: int, spread: float, failure: float) -> float:
    """The least e of Theorem 4.2: 32 b (ln 2b + ln(2/(e delta))) / (alpha e^3) <= n, alpha = sqrt(2)/``spread``."""
    if spread == 0:
        return 1 / 16
    low, high = 1e-6, _NO_PROMISE
    for _ in range(60):
        middle = math.sqrt(low * high)
        need = 32 * bits * (math.log(2 * bits) + math.log(2 / (middle * failure))) * spread / (math.sqrt(2) * middle**3)
        low, high = (low, middle) if need <= rows else (middle, high)
    return high


def _searched(oracle: Oracle, axis: Axis, effort: Effort, e: float, promised: float, rows: int) -> Curve:
    most = math.ceil(4 * axis.bits / e)
    part = effort.part(Fraction(1, most))
    wanted = e / 4 * rows
    edges, masses, bills = [0], [], []
    asked, spread = 0, 0.0
    while edges[-1] < axis.cells and asked < most:
        start, low, high = edges[-1], edges[-1] + 1, axis.cells
        count = wanted
        while asked < most:
            middle = (low + high) // 2 if low < high else low
            answer = oracle.ask(_between(axis, start, middle), effort=part)
            bills.append(answer.cost)
            asked, count, spread = asked + 1, float(answer.total), float(np.max(answer.spread))
            if low >= high:
                break
            low, high = (low, middle) if count >= wanted else (middle + 1, high)
        alone = high == start + 1
        edges.append(high)
        masses.append(max(count, 0.0) if alone or high == axis.cells else wanted)
    if edges[-1] < axis.cells:
        edges.append(axis.cells)
        masses.append(max(rows - sum(masses), 0.0))
    return Curve(np.array(edges), prefix_curve(np.array(masses)), promised * rows / 2 + spread, tuple(bills))


def _between(axis: Axis, first: int, last: int) -> Expr:
    """The rows in the cells first..last-1."""
    low, high = axis.values(np.array([first, last]))
    above: Expr = Call("ge", (Column(axis.column), Literal(float(low))))
    below: Expr = Call("lt", (Column(axis.column), Literal(float(high))))
    return above if last == axis.cells else Call("and", (above, below))


def _cases() -> list[Case]:
    ages = Schema({"age": Integer(0, 127), "z": Real(0, 1)})
    wages = Schema({"wage": Real(0, 64), "z": Real(0, 1)})

    def people(rows: int, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        drawn = random.normal(40, 15, rows).clip(0, 127).astype(int)
        return {"age": np.where(random.random(rows) < 0.2, 65, drawn), "z": random.random(rows)}

    def earners(rows: int, random: np.random.Generator) -> dict[str, Floats]:
        return {"wage": random.exponential(8, rows).clip(0, 64), "z": random.random(rows)}

    inside = ("age >= 65", "age BETWEEN 20 AND 40", "age < 18 OR age > 90", "age = 65")
    outside = ("z > 0.5", "age + z > 40", "age < 18 OR age IS NULL")
    edge = ("age >= 0", "age > 127", "age BETWEEN 0 AND 127", "age = 0")
    found = [
        Case(name, ages, people, {"column": "age", "method": name}, "Ranges", inside, edge, outside, delta=gaussian)
        for name, gaussian in zip(METHODS, (False, False, True, True, False), strict=True)
    ]
    cells = ("wage < 16", "wage >= 8 AND wage < 32")
    settings = {"column": "wage", "bits": 5}
    found.append(Case("a real column", wages, earners, settings, "Ranges", cells, ("wage < 3",), ("wage + z > 9",)))
    shops = Schema({"wage": Integer(0, 63), "shop": Category("a", "b", "c", missing="a"), "z": Real(0, 1)})

    def sellers(rows: int, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        shop = random.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1])
        return {"wage": random.poisson(12, rows).clip(0, 63), "shop": shop, "z": random.random(rows)}

    grouped = ("wage < 16 AND shop = 'a'", "wage > 9 AND shop = 'c'", "wage >= 12 AND shop <> 'b'")
    by = {"column": "wage", "by": "shop"}
    ends = ("wage >= 0", "wage > 63", "wage = 12")
    found.append(Case("in groups", shops, sellers, by, "GroupedRanges", grouped, ends, ("wage + z > 9", "z > 0.5")))
    return found


RELEASE = registered(
    Release(
        intervals,
        plan_intervals,
        "Intervals: how many rows lie in any range of one number",
        (
            Setting("column", "column", "Column", types=("integer", "real")),
            Setting("by", "column", "In each group of", types=("category", "flag")),
            Setting("bits", "bits", "Precision of a real column: 2^bits cells.", least=1, most=24),
            Setting("method", "choice", "How it is made.", choices=("best", *METHODS)),
        ),
        ("Ranges", "GroupedRanges"),
        _cases,
        place=2,
    )
)


# What a synopsis of ranges knows besides ranges, free of charge: quantiles, medians, the CDF, histograms.


def quantile(synopsis: Synopsis, fractions: float | Sequence[float]) -> float | Floats:
    """The values below which these fractions of the rows lie."""
    body = _ranges(synopsis)
    if isinstance(fractions, int | float):
        return body.quantile(fractions)
    return np.array([body.quantile(fraction) for fraction in fractions])


def median(synopsis: Synopsis) -> float:
    """The middle value."""
    return _ranges(synopsis).quantile(0.5)


def cdf(synopsis: Synopsis) -> tuple[Floats, Floats]:
    """(values, fractions of the rows below them), to be drawn as a curve."""
    return _ranges(synopsis).cdf()


def histogram(synopsis: Synopsis, bins: int = 20) -> tuple[Floats, Floats]:
    """(rows in each bin, ends of the bins), as ``numpy.histogram`` gives them."""
    return _ranges(synopsis).histogram(bins)


def _ranges(synopsis: Synopsis) -> Ranges:
    if not isinstance(synopsis.body, Ranges):
        raise Unsupported("quantiles come from a synopsis of ranges: make one with dodona.release.intervals.")
    return synopsis.body
