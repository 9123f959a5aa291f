"""Keys that nobody listed: which values of a column enough people have, and how many have each.

Search terms, product numbers, diagnoses: most real keys stand in no schema, and the data's own list is a secret, since
a value that one person alone has tells that they are there. So counts get noise, and only a key whose noisy count
reaches a threshold is shown: one that ``delta`` pays for, the chance that somebody who stands alone is seen all the
same. The budget sets that part of its delta aside: ``Budget(epsilon=1, delta=1e-6, keys=1e-7)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Unpack

import numpy as np

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.errors import BadEffort, BadQuery
from dodona.oracles.effort import Divisible, Effort
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.privacy.numbers import Number, exact
from dodona.query.candidates import OpenKeys
from dodona.query.schema import Category, Integer, Schema
from dodona.release.registry import Case, Release, Setting, registered
from dodona.synopses.keys import Keys


def keys(oracle: Oracle, column: str, *, delta: Number, each: int = 1, **stated: Unpack[Divisible]) -> Synopsis:
    """The keys of ``column`` that enough people have, with counts; runs on a curator, who is trusted with the rows.

    ``each``: as many keys of one person count, chosen by what the person has alone. ``delta``: what this takes of the
    budget's part for keys. Each person adds 1 to the count of each of their keys; with no unit, every row is a person.
    """
    asked = _asked(oracle, column, each, delta)
    found = oracle.run(asked, **stated)
    listed, how = tuple(found.value["keys"]), found.value["threshold"]
    kind = oracle.schema[asked.column]
    schema = Schema({asked.column: Category(*listed) if listed else kind})
    body = Keys.restore(
        schema,
        {"column": asked.column, "keys": listed, "threshold": how},
        {"noisy": np.array(found.value["counts"], dtype=np.int64)},
    )
    shown = "all keys" if how is None else f"keys whose noisy count is {how['least']:,} or more"
    beyond = found.value["left_out"]
    about = f"how many people have each of {len(listed):,} keys of {asked.column}: {shown}"
    about += f"; {beyond:,} more, with lower counts, are not listed" if beyond else ""
    accuracy = (
        "margins hold for each key given that it is shown; keys of fewer people are missing, and nobody knows which"
    )
    notes = {"method": found.cost.mechanism, "each": each, "delta": str(asked.delta)}
    header = Header(oracle.name, about, accuracy, found.cost.mechanism, schema, oracle.rows, found.cost, notes)
    return Synopsis(header, body)


def plan_keys(oracle: Oracle, column: str, *, delta: Number, each: int = 1, **stated: Unpack[Divisible]) -> Outlooks:
    """From how many people on a key would be shown, and how far off its count would be; spends nothing."""
    asked = _asked(oracle, column, each, delta)
    price = oracle.price(asked, effort=Effort.divisible(free=oracle.free, **stated))
    return Outlooks(
        [
            Outlook(
                f"the keys of {asked.column}",
                Outcome.FEASIBLE if price.affordable else Outcome.INFEASIBLE,
                "Desfontaines, Voss, Gipson and Mandayam 2022; DESIGN 5",
                error=float(np.max(price.margin)),
                cost=price.cost.spent,
                why=f"{price.sensitivity}.",
                method=price.cost.mechanism,
                measure="how many people have a key",
                scale="people",
                confidence=price.confidence,
                affordable=price.affordable,
            )
        ]
    )


def _asked(oracle: Oracle, column: str, each: int, delta: Number) -> OpenKeys:
    name = oracle.schema.find(column)
    if name is None:
        raise BadQuery(f"{column!r} must be a column of the schema: {', '.join(oracle.schema)}.")
    small = exact(delta, "delta", least=Fraction(1, 10**15), most=Fraction(1, 4))
    if small >= 1:
        raise BadEffort("delta must be far below 1.")
    return OpenKeys(name, each, small)


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


registered(
    Release(
        keys,
        plan_keys,
        "Keys that nobody listed: values that enough people have",
        (
            Setting("column", "column", "whose values are the keys", types=("integer", "text")),
            Setting("delta", "number", "what it takes of the delta for keys", least=0, most=0.25, start=1e-8),
            Setting("each", "whole", "keys of one person that count", least=1, most=1024),
        ),
        ("Keys",),
        _cases,
    )
)
