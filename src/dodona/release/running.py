"""Continual release: how many rows there are up to each period, told again as each period ends, and paid for once.

``running(oracle, "day", every="month", share=0.2)`` pays for all periods between the dates that the schema states, and
publishes those that are over. The same call a month later reads the rows again, draws noise for the one period that has
ended since, and costs nothing: the ledger holds what was paid, and each period's noisy numbers. Two ways, the one of
less predicted error unless named:

* ``root``: y = R x + z, R the square root of the running sums L L, a lower-triangular matrix, so that y_t needs no row
  after period t; published is L y, whose errors are those of the best factorisation known (Fichtenberger, Henzinger and
  Upadhyay 2023): sigma sqrt(sum_{k<=t} c_k^2), with sigma^2 = sum_k c_k^2/(2 rho), c_k = C(2k, k)/4^k;
* ``tree``: counts of runs of periods, each told once its last period is over, least squares (Dwork, Naor, Pitassi and
  Rothblum 2010; Chan, Shi and Song 2011).

Nothing secret is kept between periods: both ways need the published numbers alone (``oracles/instalments.py``). What is
told protects a row whose date never changes: a date of birth, of a visit, of a sale, not of the last change. A row that
arrives after its period is over is counted in later periods only, and not in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.errors import AnswerLost, BadQuery, Unsupported
from dodona.oracles.answer import Finding
from dodona.oracles.effort import Divisible, Effort
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query import calendar
from dodona.query.candidates import MOST_PERIODS, Running
from dodona.query.schema import Date, Schema, Timestamp
from dodona.release._ranges import TOEPLITZ, prefix_curve, rising
from dodona.release.registry import Case, Release, Setting, registered, whole_cost
from dodona.synopses.forest import Forest
from dodona.synopses.ranges import Axis, Ranges
from dodona.synopses.running import Running as Published

Floats = NDArray[np.float64]
EVERY = ("hour", "day", "week", "month", "quarter", "year")
METHODS = ("root", "tree")
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_DAYS = {"day": 1, "week": 7}
_MONDAY = 4  # 1970-01-05
_BRANCHINGS = (2, 3, 4, 6, 8, 16, 32)


def running(
    oracle: Oracle,
    column: str,
    *,
    every: str = "month",
    periods: int | None = None,
    method: str = "best",
    renew: int = 0,
    **stated: Unpack[Divisible],
) -> Synopsis:
    """A synopsis of the counts up to the end of each of the first ``periods``; unless stated, of those that are over.

    The effort is that of all periods up to the schema's last date, charged with the first. Asked again with the same
    settings it costs nothing, on any handle of the same ledger. ``renew``: how often the numbers of a period may be
    drawn anew where they were lost before anyone saw them (``AnswerLost``); each such draw is charged by itself, once.
    """
    effort = Effort.divisible(**stated)
    spans = Spans.of(oracle.schema, column, every)
    over = spans.over if periods is None else periods
    if isinstance(over, bool) or not isinstance(over, int) or not 1 <= over <= spans.count:
        raise BadQuery(
            f"periods must be a whole number of {every}s that are over, 1 to {spans.count:,}. Got {over!r}."
            if periods is not None
            else f"no {every} of {spans.column} is over yet: the first ends at {spans.told(1)}."
        )
    offer = _offers(oracle, spans, effort, method)[0]
    bills, totals = [], []
    for period in range(over):
        finding = _part(oracle, Running(spans.column, spans.edges, offer.branching, period), effort, renew)
        bills.append(finding.cost)
        totals.append(finding.value)
    told = np.concatenate([np.array(value["totals"]) for value in totals])
    spread = np.concatenate([np.array(value["spread"]) for value in totals])
    plain, noise = _by_root(told, spread) if not offer.branching else _by_tree(spans, offer.branching, totals)
    axis, ends = spans.axis(over)
    deviation = float(np.sqrt(np.mean(np.square(offer.errors[:over]))))
    ranges = Ranges(
        oracle.schema,
        axis,
        ends,
        rising(plain, oracle.rows),
        deviation,
        noise,
        bills[-1].normal or not spread.any(),
        plain,
    )
    paid = oracle.price(Running(spans.column, spans.edges, offer.branching, 0).whole, effort=effort.part()).cost
    bill = replace(bills[-1], amount=paid.amount, share=paid.share)
    about = (
        f"how many rows there are in any run of {every}s of {spans.column} before {spans.told(over)}, each row there "
        "when its period ended, and its date fixed"
    )
    accuracy = f"a running total is off by about {deviation:.3g} rows (root mean square over the {every}s told)"
    words = f"{offer.words}, {spans.count:,} {every}s paid for once"
    header = Header(oracle.name, about, accuracy, words, oracle.schema, oracle.rows, bill, {"method": offer.name})
    return Synopsis(header, Published(oracle.schema, ranges))


def _part(oracle: Oracle, asked: Running, effort: Effort, renew: int) -> Finding:
    """The numbers of one period; of the first draw that was not lost."""
    for again in range(renew):
        try:
            return oracle.run(replace(asked, again=again), effort=effort)
        except AnswerLost:
            continue
    return oracle.run(replace(asked, again=renew), effort=effort)


def plan_running(
    oracle: Oracle,
    column: str,
    *,
    every: str = "month",
    periods: int | None = None,
    method: str = "best",
    renew: int = 0,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """What each way would promise, best first: root mean square error of the running totals as they are told, in rows,
    over all periods. Nothing is spent; the cost is that of all periods together.
    """
    del periods, renew
    effort, spans = Effort.divisible(**stated), Spans.of(oracle.schema, column, every)
    known = Outlook(
        f"running totals of {spans.column} over {spans.count:,} {every}s",
        Outcome.FEASIBLE,
        cost=whole_cost(oracle, effort),
        measure="a running total",
        scale="rows",
    )
    return Outlooks(
        replace(known, error=offer.error, why=f"{offer.words}.", method=offer.name)
        for offer in _offers(oracle, spans, effort, method)
    )


# -- periods, from the schema's dates ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spans:
    """Periods of ``column``, a date or time: ``edges`` in its own steps, the last one just after its last value."""

    column: str
    step: int
    edges: tuple[float, ...]

    @staticmethod
    def of(schema: Schema, name: str, every: str) -> Spans:
        """From the first date that the schema states to the last; the first and last may be cut."""
        own = schema.find(name)
        kind = None if own is None else schema[own]
        if own is None or not isinstance(kind, Date | Timestamp):
            raise BadQuery(f"periods are of a date or a time. Got {name!r}. Columns: {', '.join(schema)}.")
        if every not in EVERY or (every == "hour" and isinstance(kind, Date)):
            raise BadQuery(f"every must be one of {', '.join(EVERY)} (hours of times only). Got {every!r}.")
        low, end = int(kind.low), int(kind.high) + 1
        per_day = calendar.DAY // kind.step
        first, last = low // per_day, (end - 1) // per_day
        if every == "hour":
            hour = calendar.STEPS["hour"] // kind.step
            starts = range((low // hour + 1) * hour, end, hour)
        elif every in _DAYS:
            width = _DAYS[every]
            days = first - (first - _MONDAY) % width if width > 1 else first
            starts = range((days + width) * per_day, end, width * per_day)
        else:
            many = _MONTHS[every]
            month, until = calendar.months_of(first) // many + 1, calendar.months_of(last) // many
            if until - month > MOST_PERIODS:
                raise _too_many(until - month)
            found = [calendar.first_of(count * many) * per_day for count in range(month, until + 1)]
            return Spans(own, kind.step, tuple(map(float, (low, *found, end))))
        if len(starts) >= MOST_PERIODS:
            raise _too_many(len(starts) + 1)
        return Spans(own, kind.step, tuple(map(float, (low, *starts, end))))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.edges) - 1

    @property
    def over(self) -> int:
        """How many have ended by now (UTC)."""
        now = (datetime.now(UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6 / self.step
        return sum(edge <= now for edge in self.edges[1:])

    def told(self, place: int) -> str:
        """The moment at which a period begins, in words."""
        return calendar.iso_text(int(self.edges[place]), self.step)

    def axis(self, over: int) -> tuple[Axis, NDArray[np.int64]]:
        """The cells of the first ``over`` periods, and where each period begins and ends among them."""
        whole = np.array(self.edges[: over + 1], dtype=np.int64)
        width = int(np.gcd.reduce(np.diff(whole)))
        ends = (whole - whole[0]) // width
        if ends[-1] > 2**22:
            raise Unsupported(
                f"the {over:,} periods begin at moments that have no larger step in common than {width} of the "
                f"column's: state {self.column}'s first value at the beginning of a period."
            )
        return Axis(self.column, self.edges[0], float(width), int(ends[-1]), True), ends


def _too_many(count: int) -> Unsupported:
    return Unsupported(
        f"the schema's dates have {count:,} such periods, and at most {MOST_PERIODS:,} are paid for at once: take "
        "longer periods, or state bounds that are as near as the plan reaches."
    )


# -- ways to tell them ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Offer:
    """``errors``: standard deviation of each running total when its period ends, in rows. ``branching``: 0 for the
    root.
    """

    name: str
    words: str
    branching: int
    errors: Floats

    @property
    def error(self) -> float:
        """The root mean square over all periods."""
        return float(np.sqrt(np.mean(np.square(self.errors))))


def _offers(oracle: Oracle, spans: Spans, effort: Effort, method: str) -> list[Offer]:
    """Best first; nothing is spent."""
    if method not in ("best", *METHODS):
        raise BadQuery(f"method must be best, {', '.join(METHODS)}. Got {method!r}.")
    found: list[Offer] = []

    def spread(branching: int) -> float:
        whole = Running(spans.column, spans.edges, branching, 0).whole
        return float(np.max(oracle.price(whole, effort=effort.part()).spread))

    if method in ("best", "root"):
        errors = root_errors(spans.count, spread(0))
        found.append(Offer("root", "square root of the running sums", 0, errors))
    if method in ("best", "tree"):
        ways = {way for way in _BRANCHINGS if way < spans.count} | {max(spans.count, 2)}
        trees = [Offer("tree", _in_words(way, spans), way, tree_errors(spans.count, way, spread(way))) for way in ways]
        found.append(min(trees, key=lambda offer: (offer.error, offer.branching)))
    return sorted(found, key=lambda offer: offer.error)


def _in_words(branching: int, spans: Spans) -> str:
    return f"a tree of {branching}" if branching < spans.count else "each period by itself"


def root_errors(periods: int, spread: float) -> Floats:
    """sigma sqrt(sum_{k<=t} c_k^2)."""
    if not spread:
        return np.zeros(periods)
    response = np.diff(TOEPLITZ.curve(np.eye(1, periods)[0]))
    return np.asarray(spread * np.sqrt(np.cumsum(np.square(np.cumsum(response)))))


def tree_errors(periods: int, branching: int, spread: float) -> Floats:
    """By the runs that are over when a period is: those of the digits of its number, each with what is below it."""
    below, span, variance = spread * spread, 1, np.zeros(periods)
    number = np.arange(1, periods + 1)
    while span <= periods:
        counted = span * branching < periods
        digits = number // span % branching if counted else number // span
        variance += digits * below
        if not counted:
            break
        below = spread * spread * branching * below / (spread * spread + branching * below) if spread else 0.0
        span *= branching
    return np.sqrt(variance)


def _by_root(totals: Floats, spread: Floats) -> tuple[Floats, Any]:
    return TOEPLITZ.curve(totals), TOEPLITZ.carried(len(totals), float(spread.max()))


def _by_tree(spans: Spans, branching: int, values: list[Mapping[str, Any]]) -> tuple[Floats, Forest]:
    """The runs that are over, made to agree."""
    over, places = len(values), Running(spans.column, spans.edges, branching, 0).spans
    nodes = [(level, run) for level in reversed(range(len(places))) for run in range(-(-spans.count // places[level]))]
    closed = [(level, run) for level, run in nodes if min((run + 1) * places[level], spans.count) <= over]
    at = {node: place for place, node in enumerate(closed)}
    parents = np.array([at.get((level + 1, run // branching), -1) for level, run in closed], dtype=np.int64)
    counts, variances = np.zeros(len(closed)), np.zeros(len(closed))
    for period, value in enumerate(values):
        ended = [level for level in range(len(places)) if _ends(period, places[level], spans.count)]
        for level, total, spread in zip(ended, value["totals"], value["spread"], strict=True):
            place = at[level, period // places[level]]
            counts[place], variances[place] = total, spread * spread
    forest = Forest(parents, variances)
    return prefix_curve(forest.fit(counts)[forest.leaves]), forest


def _ends(period: int, span: int, periods: int) -> bool:
    return period == min((period // span + 1) * span, periods) - 1


def running_totals(synopsis: Synopsis, confidence: float = 0.95) -> list[tuple[str, float, float]]:
    """(end of the period, rows before it, margin) of each period told."""
    if not isinstance(synopsis.body, Published):
        raise Unsupported("running totals come from dodona.release.running. This is another synopsis.")
    return synopsis.body.told(confidence)


def _cases() -> list[Case]:
    days = Schema({"day": Date("2020-01-01", "2021-12-31"), "z": Date("2020-01-01", "2020-12-31")})
    times = Schema({"at": Timestamp("2020-01-01", "2020-01-03 23:59:59"), "z": Date("2020-01-01", "2020-12-31")})

    def visits(rows: int, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        start = np.datetime64("2020-01-01")
        drawn = (random.beta(2, 3, rows) * 730).astype(int)
        return {"day": start + drawn, "z": start + random.integers(0, 366, rows)}

    def calls(rows: int, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        start = np.datetime64("2020-01-01T00:00:00")
        return {
            "at": start + (random.random(rows) * 3 * 86_400).astype(int),
            "z": np.datetime64("2020-01-01") + random.integers(0, 366, rows),
        }

    inside = (
        "day < '2020-06-01'",
        "day >= '2020-02-01' AND day < '2020-09-01'",
        "day < '2020-02-01' OR day = '2020-05-05'",
    )
    edge = ("day < '2021-01-01'", "day < '2020-01-02'", "day < '2020-03-15'")
    outside = ("day >= '2020-06-01'", "day < '2021-01-02'", "z < '2020-06-01'", "TRUE")
    found = [
        Case(
            f"months by {way}",
            days,
            visits,
            {"column": "day", "every": "month", "periods": 12, "method": way},
            "Running",
            inside,
            edge,
            outside,
            delta=way == "root",
        )
        for way in METHODS
    ]
    hours = ("at < '2020-01-02 12:00:00'", "at >= '2020-01-01 06:00:00' AND at < '2020-01-02 18:00:00'")
    settings = {"column": "at", "every": "hour", "periods": 72}
    found.append(
        Case(
            "hours, all told", times, calls, settings, "Running", hours, ("at >= '2020-01-01'",), ("z < '2020-06-01'",)
        )
    )
    return found


RELEASE = registered(
    Release(
        running,
        plan_running,
        "Running totals: how many rows up to each period, paid for once, told as periods end",
        (
            Setting("column", "column", "Column", types=("date", "timestamp")),
            Setting("every", "choice", "How long a period is.", choices=EVERY, start="month"),
            Setting("periods", "whole", "How many are over; left out: those that ended before now.", least=1),
            Setting("method", "choice", "How they are told.", choices=("best", *METHODS)),
            Setting(
                "renew",
                "whole",
                "How often lost numbers may be drawn anew, each for a further charge.",
                least=0,
                most=1000,
            ),
        ),
        ("Running",),
        _cases,
        place=3,
    )
)
