"""What no schema lists, found privately and published: keys that enough people have, and the bounds of a column.

``keys``: search terms, product numbers, diagnoses: most real keys stand in no schema, and the data's own list is a
secret, since a value that one person alone has tells that they are there. So counts get noise, and only a key whose
noisy count reaches a threshold is shown: one that ``delta`` pays for, the chance that somebody who stands alone is seen
all the same. The budget sets that part of its delta aside: ``Budget(epsilon=1, delta=1e-6, keys=1e-7)``.
Whole numbers have bounds, so all that there can be are known, 10^8 of them or more. Then no delta is needed: each gets
noise, and of those that nobody has only the few that pass the threshold are drawn.

``bounds``: noisy counts between powers of two. The shortest run of buckets that holds almost all rows is published; it
was paid for, so it may stand in a schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.errors import BadEffort, BadQuery
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Divisible, Effort, Stated
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.privacy.numbers import Number, exact
from dodona.query.calendar import iso_text
from dodona.query.candidates import METHODS, OpenKeys
from dodona.query.expr import Column, Literal
from dodona.query.schema import Category, Date, Integer, Real, Schema, Timestamp
from dodona.query.statistic import Partition, Value, bucket
from dodona.query.unit import Unit
from dodona.release.registry import Case, Release, Setting, registered
from dodona.synopses.keys import Keys

Floats = NDArray[np.float64]
ORDERS = 60
"""Binary orders of magnitude that are told apart, from the largest that the schema allows downwards."""
_NOISE = 0.95
_EVEN = 128  # cells of dates and times, of which powers of two from 1970 on tell little


@dataclass(frozen=True)
class Bounds:
    """``low`` to ``high`` hold about the fraction ``held`` of the known values, give or take ``margin`` (estimated, at
    95 %). Where ``found`` is False nothing stood out of the noise, and they are the schema's own. ``step``: of dates
    and times, which are shown as such, the microseconds that they count.
    """

    column: str
    low: float
    high: float
    held: float
    margin: float
    found: bool
    cost: Bill
    step: int = 0

    def __str__(self) -> str:
        if not self.found:
            return f"{self.column}: nothing stands out of the noise; the schema's range stays. {self.cost}"
        held = f"{100 * self.held:.4g} % ± {100 * self.margin:.2g} % of the values (95 %, estimated)"
        low, high = (iso_text(int(end), self.step) if self.step else f"{end:g}" for end in (self.low, self.high))
        return f"{self.column} from {low} to {high}: {held}, {self.cost}"


def bounds(oracle: Oracle, column: str, *, beta: float = 0.01, **stated: Unpack[Stated]) -> Bounds:
    """The smallest range between powers of two, of dates and times between 129 of even distance, that holds about
    1 - ``beta`` of a column's values; one question.

    State bounds that surely hold in the schema (``Real(-1e9, 1e9)``), ask this once, and narrow the schema by it.
    Counts that do not stand out of the noise of all buckets together are taken to be empty.
    """
    own = oracle.schema.find(column)
    kind = None if own is None else oracle.schema[own]
    if own is None or not isinstance(kind, Real | Integer):
        raise BadQuery(f"{column!r} must be a number column. Columns: {', '.join(oracle.schema)}.")
    if isinstance(beta, bool) or not 0 < beta < 1:
        raise BadQuery(f"beta must lie strictly between 0 and 1. Got {beta!r}.")
    step = kind.step if isinstance(kind, Date | Timestamp) else 0
    if step:
        edges = np.unique(np.floor(np.linspace(kind.low, kind.high, _EVEN + 1))).tolist()
    else:
        edges = powers(kind.low, kind.high, whole=isinstance(kind, Integer))
    answer = oracle.ask(Partition(bucket(Column(own), edges), Value(Literal(1.0))), **stated)
    counts, spread = (np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (answer.total, answer.spread))
    noise = float(spread.max())
    stands_out = counts > noise * NormalDist().inv_cdf(_NOISE ** (1 / len(counts)))
    kept = np.where(stands_out, counts, 0.0).clip(0)
    if noise > 0 and not stands_out.any():
        return Bounds(own, kind.low, kind.high, 1.0, 0.0, False, answer.cost, step)
    first, last = shortest(kept, (1 - beta) * float(kept.sum()))
    all_rows = max(float(counts.sum()), 1.0)
    margin = NormalDist().inv_cdf((1 + _NOISE) / 2) * noise * math.sqrt(len(counts)) / all_rows
    held = min(max(float(counts[first : last + 1].sum()) / all_rows, 0.0), 1.0)
    return Bounds(own, edges[first], edges[last + 1], held, margin, True, answer.cost, step)


def powers(low: float, high: float, *, whole: bool) -> list[float]:
    """The ends of a range, 0, and the powers of two between them on both sides of 0."""
    top = math.ceil(math.log2(max(abs(low), abs(high), 1e-300)))
    sizes = [2.0**k for k in range(max(top - ORDERS, 0 if whole else -900), top + 1)]
    inside = {x for x in (*sizes, *(-size for size in sizes), 0.0) if low < x < high}
    return sorted({low, high} | inside)


def shortest(counts: Floats, wanted: float) -> tuple[int, int]:
    """The first and last of the fewest neighbouring buckets that hold ``wanted``; of equals, the fullest."""
    sums = np.append(0.0, np.cumsum(counts))
    for length in range(1, len(counts) + 1):
        held = sums[length:] - sums[:-length]
        if held.max() >= wanted - 1e-9:
            first = int(np.argmax(held))
            return first, first + length - 1
    return 0, len(counts) - 1


def keys(
    oracle: Oracle,
    column: str,
    *,
    delta: Number | None = None,
    each: int = 1,
    method: str | None = None,
    counts: bool = True,
    **stated: Unpack[Divisible],
) -> Synopsis:
    """The keys of ``column`` that enough people have, with counts; runs on a curator, who is trusted with the rows.

    ``each``: as many keys of one person count, chosen by what the person has alone. ``delta``: what this takes of the
    budget's part for keys; without it all whole numbers within the column's bounds get noise. With no unit, every row
    is a person.

    ``method``: "threshold" (a person adds 1 to each of their keys), "weighted" (all keys of a person share one weight)
    or "rounds" (that twice: first, for little, what is common, then the rest without it); unless stated, what is
    predicted to find most. ``counts``: False where the list is enough: a weighted sum is no count, so those are paid
    for by a quarter of the effort, which then goes into finding. A threshold's own counts are free.
    """
    asked = _asked(oracle, column, each, delta, method, counts)
    found = oracle.run(asked, **stated)
    listed, how = tuple(found.value["keys"]), found.value["threshold"]
    kind = oracle.schema[asked.column]
    schema = Schema({asked.column: Category(*listed) if listed else kind})
    body = Keys.restore(
        schema,
        {"column": asked.column, "keys": listed, "threshold": how},
        {"noisy": np.array(found.value["counts"], dtype=np.int64)},
    )
    beyond, counted = found.value["left_out"], bool(found.value["counts"]) or not listed
    if how is None:
        shown = "all keys"
    else:
        shown = f"keys whose noisy {'count' if 'least' in how else 'weight'} reached a threshold"
    what = "how many people have each of " if counted else ""
    about = f"{what}{len(listed):,} keys of {asked.column}: {shown}"
    about += f"; {beyond:,} more, rarer ones, are not listed" if beyond else ""
    accuracy = (
        "margins are proven for each key given that it is shown; which keys of fewer people are missing, nobody knows"
    )
    notes = {"method": found.cost.mechanism, "each": each}
    if asked.delta:
        notes["delta"] = str(asked.delta)
    else:
        accuracy += "; about one list in twenty has a key that nobody has"
    header = Header(oracle.name, about, accuracy, found.cost.mechanism, schema, oracle.rows, found.cost, notes)
    return Synopsis(header, body)


def plan_keys(
    oracle: Oracle,
    column: str,
    *,
    delta: Number | None = None,
    each: int = 1,
    method: str | None = None,
    counts: bool = True,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """From how many people on a key would be shown, and how far off its count would be; spends nothing."""
    asked = _asked(oracle, column, each, delta, method, counts)
    price = oracle.price(asked, effort=Effort.divisible(free=oracle.free, **stated))
    return Outlooks(
        [
            Outlook(
                f"the keys of {asked.column}",
                Outcome.FEASIBLE if price.affordable else Outcome.INFEASIBLE,
                "Desfontaines, Voss, Gipson and Mandayam 2022; Swanberg, Desfontaines and Haney 2023",
                error=float(np.max(price.margin)),
                cost=price.cost.spent,
                why=f"{price.sensitivity}.",
                method=price.cost.mechanism,
                measure="how many people have a key" if counts else "from how many people on a key is shown",
                scale="people",
                confidence=price.confidence,
                affordable=price.affordable,
            )
        ]
    )


def _asked(oracle: Oracle, column: str, each: int, delta: Number | None, method: str | None, counts: bool) -> OpenKeys:
    name = oracle.schema.find(column)
    if name is None:
        raise BadQuery(f"{column!r} must be a column of the schema: {', '.join(oracle.schema)}.")
    if delta is None:
        return OpenKeys(name, each, Fraction(0), method or "", counts)
    small = exact(delta, "delta", least=Fraction(1, 10**15), most=Fraction(1, 4))
    if small >= 1:
        raise BadEffort("delta must be far below 1.")
    return OpenKeys(name, each, small, method or "", counts)


def _cases() -> Iterable[Case]:
    def draw(rows: int, random: np.random.Generator) -> dict[str, Any]:
        common = random.geometric(0.3, rows)
        return {"code": np.minimum(common, 900) * 1000 + 7}

    yield Case(
        "numbers",
        Schema({"code": Integer(0, 10**6, missing=0)}),
        draw,
        {"column": "code", "delta": "1/10000000"},
        "Keys",
        inside=("code = 1007", "code IN (1007, 2007)"),
        outside=("code <> 1007", "1"),
        neighbours="add-remove",
        delta=True,
        keys=1e-7,
        rows=1500,
    )

    def several(rows: int, random: np.random.Generator) -> dict[str, Any]:
        common = np.minimum(random.geometric(0.5, rows), 900)
        return {"code": common * 1000 + np.arange(rows) % 3, "who": np.arange(rows) // 3}

    yield Case(
        "people with several numbers",
        Schema({"code": Integer(0, 10**6, missing=0)}),
        several,
        {"column": "code", "delta": "1/10000000", "each": 3, "method": "rounds"},
        "Keys",
        inside=("code = 1000", "code IN (1000, 2000)"),
        outside=("code <> 1000", "1"),
        neighbours="add-remove",
        delta=True,
        keys=1e-7,
        rows=9000,
        unit=Unit("who", 3),
    )
    yield Case(
        "numbers within bounds",
        Schema({"code": Integer(0, 10**8, missing=0)}),
        draw,
        {"column": "code"},
        "Keys",
        inside=("code = 1007",),
        outside=("code <> 1007", "1"),
        neighbours="add-remove",
        rows=3000,
    )


registered(
    Release(
        keys,
        plan_keys,
        "Keys that nobody listed: values that enough people have",
        (
            Setting("column", "column", "whose values are the keys", types=("integer", "text")),
            Setting(
                "delta", "number", "what it takes of the delta for keys; none: of whole numbers", least=0, most=0.25
            ),
            Setting("each", "whole", "keys of one person that count", least=1, most=1024),
            Setting("method", "choice", "how they are found; none: what should find most", choices=METHODS),
            Setting("counts", "truth", "whether how many people have each is asked too", start=True),
        ),
        ("Keys",),
        _cases,
    )
)
