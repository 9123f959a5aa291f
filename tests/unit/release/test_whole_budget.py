"""A release that is given exactly the whole budget fits in it, however its parts round."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dodona import release
from dodona.engines.table import Table
from dodona.oracles.curator import Curator
from dodona.oracles.effort import Effort
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Real, Schema

SCHEMA = Schema({"a": Flag(), "b": Flag(), "c": Flag(), "x": Real(0, 1), "y": Real(0, 1)})
RELEASES = {
    "conjunctions": lambda o, s: release.conjunctions(o.select_columns("a", "b", "c"), width=2, method="adaptive", **s),
    "intervals": lambda o, s: release.intervals(o, "x", bits=6, **s),
    "halfspaces": lambda o, s: release.halfspaces(o, ["x", "y"], **s),
}


def curator(budget: Budget) -> Curator:
    generator = np.random.default_rng(3)
    bits = {name: generator.random(600) < 0.4 for name in "abc"}
    return Curator(Table({**bits, **{n: generator.random(600) for n in "xy"}}, SCHEMA), budget=budget)


@pytest.mark.parametrize("amount", ["0.7", "1", "1.1", "0.3333333333333333"])
@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("kind", ["epsilon", "rho"])
def test_the_whole_budget_is_enough(name: str, kind: str, amount: str) -> None:
    budget: Any = Budget(**{kind: amount})
    held = curator(budget)
    RELEASES[name](held, {kind: amount})
    assert 0 <= held.left < 0.05 * float(amount)


@pytest.mark.parametrize("epsilon", ["0.454", "0.522", "0.581", "1.14"])  # budgets whose parts the ledger rounds up
@pytest.mark.parametrize("name", RELEASES)
def test_the_rho_of_a_budget_is_enough(name: str, epsilon: str) -> None:
    budget = Budget(epsilon=epsilon, delta="1e-6")
    held = curator(budget)
    RELEASES[name](held, {"rho": budget.rho})
    assert 0 <= held.left < 0.05 * float(budget.rho)


@pytest.mark.parametrize("fractions", [[1 / 3] * 3, [0.1] * 10, [0.07, 0.33, 0.6], [Fraction(1, 7)] * 7])
def test_parts_of_a_whole_do_not_exceed_it(fractions: list[Any]) -> None:
    whole = Fraction(10, 3)
    parts = [Effort("rho", whole).part(fraction).amount for fraction in fractions]
    assert 0.999999 * whole < sum(parts) <= whole
