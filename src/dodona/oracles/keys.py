"""Keys that nobody listed: bought, counted where the rows are, and shown where enough people have them.

Which noise: of all that the effort pays for, the one that shows a key of the fewest people. Nothing of a key that is
not shown leaves the process; the order of those that are follows from what is shown of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.mechanisms import Bits
from dodona.mechanisms.threshold import Threshold, best
from dodona.oracles.effort import Effort
from dodona.oracles.noise import pure_epsilon
from dodona.oracles.procedures import Bought, Prepared, interprets
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.budget import Budget, Cost
from dodona.query.candidates import OpenKeys
from dodona.query.schema import Category, Date, Flag, Real, Schema, Timestamp
from dodona.query.words import MOST_CATEGORIES


@interprets(OpenKeys)
def prepare_keys(asked: OpenKeys, table: Table) -> Prepared:
    """Refuses what could not be counted, before anything is charged."""
    name = table.schema.find(asked.column)
    if name is None:
        raise BadQuery(f"keys must be of a column of the schema. Got {asked.column!r}: {', '.join(table.schema)}.")
    kind = table.schema[name]
    if isinstance(kind, Category | Flag):
        raise BadQuery(f"{name!r} lists its values in the schema, so all of them are known: GROUP BY {name} is free.")
    if isinstance(kind, Real):
        raise BadQuery(f"{name!r} holds real numbers, of which hardly two people have the same: ask release.intervals.")
    if isinstance(kind, Date | Timestamp):
        raise BadQuery(f"{name!r} has a calendar, whose parts are known: GROUP BY a day, month or year of it is free.")
    if kind.public:
        raise BadQuery(f"{name!r} is public: its values are fixed and known, so nothing needs to be found.")
    if name in table.schema.lookups:
        raise BadQuery(f"{name!r} comes from a public table, so its values are known: GROUP BY {name} is free.")
    if table.unit is not None and table.unit.column is None:
        raise Unsupported("nobody knows whose rows these are, so nobody can say how many keys a person has.")
    engine = table.engine
    if not engine.counts_keys:
        raise Unsupported("this engine does not count people by the values of a column: store the rows as Parquet.")
    if table.unit is None and asked.each != 1:
        raise BadQuery(f"each must be 1 here: every row is a person of its own, with one {name}. Got {asked.each}.")
    both = table.neighbours == "replace"

    def buy(effort: Effort, budget: Budget) -> Bought:
        threshold = best(_offers(effort, budget, asked, both))
        told = f"shown from {threshold.least:,} people on; one person adds 1 to at most {asked.each} key(s)"
        return Bought(
            f"{threshold.noise.name} with a threshold",
            threshold.cost(),
            lambda engine, bits: _shown(*engine.people_by_key(name, asked.each), threshold, bits),
            threshold.noise,
            told,
        )

    def exact(engine: Engine) -> dict[str, Any]:
        values, counts = engine.people_by_key(name, asked.each)
        return _told(values, counts, None)

    return Prepared(buy, exact)


def with_listed(table: Table, found: Synopsis) -> Table:
    """The table where the keys of a synopsis are a category. What was paid for may stand in a schema."""
    settings = found.body.settings()
    if found.body.kind != "Keys" or found.name != table.name:
        raise Unsupported(
            f"keys must be those that release.keys found in {table.name!r}. Got a synopsis of {found.name!r}, "
            f"{found.header.method}."
        )
    if settings["threshold"] is None:
        raise Unsupported(
            "keys must be those that a budget paid for. These were found without noise, so what one person alone has "
            "is among them: find keys with a curator's release.keys."
        )
    name, listed = settings["column"], settings["keys"]
    if table.schema.get(name) is None or isinstance(table.schema[name], Category):
        raise BadQuery(f"{name!r} must be a column whose keys are not listed yet. Columns: {', '.join(table.schema)}.")
    if table.tables is not None or table.schema.lookups:
        raise Unsupported("keys of one table of a dataset: state them in its schema, as dd.Category(*keys).")
    if not listed:
        raise Unsupported(f"no key of {name} stood out, so there are none to group by.")
    kind = table.schema[name]
    cleaning = {word: said for word, said in kind.describe().items() if word in ("fold", "trim")}
    return table.restated(Schema({**table.schema, name: Category(*listed, **cleaning)}))


def _offers(effort: Effort, budget: Budget, asked: OpenKeys, both: bool) -> Iterator[Threshold]:
    if effort.kind == "tolerance":
        raise BadEffort("keys are found for share=, epsilon= or rho=; from how many people on is told by price().")
    budget.key_units(Cost(Fraction(0), Fraction(0), Fraction(asked.delta)))  # a pure budget has none, and says why
    if not 0 < asked.delta <= budget.keys:
        raise BadEffort(
            f"delta must be above 0 and at most the budget's part for keys, {float(budget.keys):g}. "
            f"Got {float(asked.delta):g}."
        )
    moved = asked.each * (2 if both else 1)
    pure = pure_epsilon(effort, budget, 2 * moved)
    yield Threshold.truncated(pure, asked.delta, asked.each, both)
    yield Threshold.laplace(pure, asked.delta, asked.each, both)
    if effort.kind != "epsilon":
        rho = budget.portion(effort.amount) if effort.kind == "share" else effort.amount
        yield Threshold.gaussian(rho, asked.delta, asked.each, both)


def _shown(values: NDArray[Any], counts: NDArray[np.int64], threshold: Threshold, bits: Bits) -> dict[str, Any]:
    shown, noisy = threshold.show(counts, bits)
    return _told(values[shown], noisy, threshold)


def _told(values: NDArray[Any], noisy: NDArray[np.int64], threshold: Threshold | None) -> dict[str, Any]:
    """The highest counts first, equal ones by key; as many as a schema can list."""
    keys = values.tolist()
    order = sorted(range(len(keys)), key=lambda i: (-int(noisy[i]), keys[i]))
    kept = order[:MOST_CATEGORIES]
    return {
        "keys": [keys[i] for i in kept],
        "counts": [int(noisy[i]) for i in kept],
        "left_out": len(order) - len(kept),
        "threshold": None if threshold is None else threshold.describe(),
    }
