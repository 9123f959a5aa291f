"""Ranges over one ordered column, published once (Blum, Ligett and Roth 2008, section 4).

``intervals(oracle, "age", share=0.5)`` is a synopsis that answers every range, union of ranges, quantile and histogram
of the column, for ever. Methods, chosen by predicted error unless named:

* ``tree``: counts by level, least squares, isotonic regression of the cumulative curve;
* ``quantile buckets``: private cut points first, for large domains;
* ``factorisation``: the square root of the prefix sums, for Gaussian noise (a budget with delta > 0);
* ``circle``: the fourth root of the ranges on a circle, for Gaussian noise: less in the mean over ranges;
* ``binary search``: the paper's own (Theorem 4.2, mended), kept under its name; never chosen for you.

With all of an (epsilon, delta) budget (``share=1``) a method may also spend it as one pure epsilon, where that promises
less error (``dodona.privacy.pocket``): few counts of many rows are better with Laplace noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dodona.bounds.base import Outcome, Verdict
from dodona.errors import BadQuery, Unsupported
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.release.portion import Portion, combined
from dodona.release.ranges_factor import CIRCLE, TOEPLITZ, factor_offer
from dodona.release.ranges_offer import MOST_LEAVES, Offer, tree_offer
from dodona.release.ranges_quantile import quantile_offer
from dodona.release.ranges_search import search_offer
from dodona.synopses.axis import Axis
from dodona.synopses.base import Header, Synopsis
from dodona.synopses.ranges import Ranges

METHODS = ("tree", "quantile buckets", "factorisation", "circle", "binary search")


def intervals(
    oracle: Oracle,
    column: str,
    *,
    bits: int | None = None,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    method: str = "best",
) -> Synopsis:
    """A synopsis of all ranges of ``column`` at ``bits`` bits (whole numbers: at their own precision)."""
    portion = Portion.of(share, epsilon, rho)
    axis = Axis.of(oracle.schema, column, bits)
    offer = min(offers(oracle, axis, portion, method), key=lambda offered: offered.error)
    made = offer.make()
    body = Ranges(oracle.schema, axis, made.edges, made.curve, made.deviation)
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
        {"method": offer.name},
    )
    return Synopsis(header, body)


def plan_intervals(
    oracle: Oracle,
    column: str,
    *,
    bits: int | None = None,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> list[Verdict]:
    """What each method would promise, best first: mean absolute error of a random range, in rows. Nothing is spent."""
    axis, portion = Axis.of(oracle.schema, column, bits), Portion.of(share, epsilon, rho)
    found = [*offers(oracle, axis, portion), *offers(oracle, axis, portion, "binary search")]
    ranked = sorted(found, key=lambda offer: offer.error)
    what = f"ranges of {axis}"
    return [
        Verdict(
            f"{what} by {offer.name}", Outcome.FEASIBLE, offer.words, offer.error, details={"rows off": offer.error}
        )
        for offer in ranked
    ]


def offers(oracle: Oracle, axis: Axis, portion: Portion, method: str = "best") -> list[Offer]:
    """The ways to publish the axis with their predicted errors; nothing is spent."""
    if method not in (*METHODS, "best"):
        raise BadQuery(f"method must be best, {', '.join(METHODS)}. Got {method!r}.")
    wanted = [name for name in METHODS if name != "binary search"] if method == "best" else [method]
    found = _found(oracle, axis, portion, wanted)
    pure = oracle.purely() if portion.whole else None
    if pure is not None:  # methods of one question choose their noise themselves
        several = [name for name in wanted if name in ("quantile buckets", "binary search")]
        as_one = "all of the budget as one pure epsilon"
        found += [
            replace(offer, name=f"{offer.name}, pure", words=f"{offer.words}; {as_one}")
            for offer in _found(pure, axis, portion, several)
        ]
    if not found:
        raise Unsupported(f"{method} does not fit {axis}: take method='best', or other bits.")
    return found


def _found(oracle: Oracle, axis: Axis, portion: Portion, wanted: list[str]) -> list[Offer]:
    named: dict[str, Callable[[], Offer | None]] = {
        "tree": lambda: tree_offer(oracle, axis, portion) if axis.cells <= MOST_LEAVES else None,
        "quantile buckets": lambda: quantile_offer(oracle, axis, portion),
        "factorisation": lambda: factor_offer(oracle, axis, portion, TOEPLITZ),
        "circle": lambda: factor_offer(oracle, axis, portion, CIRCLE),
        "binary search": lambda: search_offer(oracle, axis, portion),
    }
    return [offer for offer in (named[name]() for name in wanted) if offer is not None]
