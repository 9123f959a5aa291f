"""Budgets: what may be stated, and how amounts become integers."""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from dodona.errors import BadEffort, Unsupported
from dodona.privacy import FREE, UNITS, Budget, Cost
from dodona.privacy.numbers import rho_of, sulq_rho_of

BUDGETS = [
    Budget(epsilon=1),
    Budget(epsilon=1, delta=1e-6),
    Budget(rho=0.5),
    Budget(rho="1/3", delta="1e-9"),
    Budget.sulq(2, 1e-5, queries=1000),
]


def test_units_divide_by_ten_to_the_nine_and_by_every_number_to_sixteen() -> None:
    assert all(UNITS % k == 0 for k in [*range(1, 17), 10**9])
    assert Budget(epsilon=10**6).capacity < 2**63


def test_a_pure_budget() -> None:
    budget = Budget(epsilon="1/10")
    assert (budget.unit, budget.capacity, budget.total) == ("epsilon", UNITS // 10, Fraction(1, 10))
    assert budget.units(Cost.pure(Fraction(1, 20))) == UNITS // 20
    assert budget.guarantee(UNITS // 20) == (Fraction(1, 20), 0)
    with pytest.raises(Unsupported, match=r"delta = 0 admits pure mechanisms only.*Budget\(epsilon=1, delta=1e-6\)"):
        budget.units(Cost.concentrated(Fraction(1, 100)))


def test_an_epsilon_delta_budget_is_a_rho_account() -> None:
    budget = Budget(epsilon=1, delta=1e-6)
    assert budget.unit == "rho"
    assert budget.rho == rho_of(Fraction(1), Fraction(1, 10**6))
    epsilon, delta = budget.guarantee(budget.capacity)
    assert Fraction(1) - Fraction(1, 10**10) < epsilon <= 1
    assert delta == Fraction(1, 10**6)
    assert budget.units(Cost.pure(Fraction(1, 10))) == UNITS // 200  # epsilon^2/2


def test_a_rho_budget_is_shown_at_a_small_delta() -> None:
    assert Budget(rho=0.5).guarantee(0) == (0, Fraction(1, 10**6))
    assert Budget(rho=0.5, delta=1e-9).guarantee(1)[1] == Fraction(1, 10**9)


@pytest.mark.parametrize("queries", [1, 7, 100, 12345])
def test_sulq_fits_exactly_its_queries(queries: int) -> None:
    budget = Budget.sulq(1, 1e-6, queries=queries)
    price = budget.units(Cost.concentrated(1 / (2 * budget.variance)))
    assert price * queries <= budget.capacity < price * (queries + 1)
    theorem = queries / (2 * sulq_rho_of(Fraction(1), Fraction(1, 10**6)))
    assert theorem <= budget.variance <= theorem * (1 + Fraction(queries, 10**10))
    assert budget.guarantee(price * queries)[0] <= 1


def test_only_sulq_fixes_a_variance() -> None:
    with pytest.raises(Unsupported, match=r"Budget\.sulq"):
        _ = Budget(rho=1).variance


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_rounding_is_against_the_asker(budget: Budget) -> None:
    assert budget.units(FREE) == 0
    assert budget.units(Cost(Fraction(1, 10**30), Fraction(1, 10**30))) == 1  # V44
    assert budget.amount(budget.capacity) <= (budget.rho or budget.epsilon or 0)
    assert budget.portion(Fraction(1)) == budget.total


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_json_round_trip(budget: Budget) -> None:
    assert Budget.from_dict(json.loads(json.dumps(budget.as_dict()))) == budget


@pytest.mark.parametrize(
    "fields",
    [{"epsilon": "1", "seed": 1}, {"rho": "1", "queries": 3, "delta": "1/10"}, {}, {"delta": "1/10"}, {"epsilon": "x"}],
)
def test_json_of_something_else(fields: dict[str, Any]) -> None:
    with pytest.raises(BadEffort):
        Budget.from_dict(fields)


def test_budgets_are_values() -> None:
    assert Budget(epsilon=0.1) == Budget(epsilon=Decimal("0.1")) == Budget(epsilon="1/10", delta=0)
    assert hash(Budget(rho=1)) == hash(Budget(rho=1.0))
    assert str(Budget.sulq(1, "1/1000", queries=5)) == "Budget.sulq(epsilon=1, delta=1/1000, queries=5)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Budget(epsilon=1).epsilon = Fraction(2)  # type: ignore[misc]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "1e-400", "1e400", 5e-324, True, "", "one", 1e9])
def test_v7_bad_budgets(value: Any) -> None:
    for make in (lambda: Budget(epsilon=value), lambda: Budget(rho=value), lambda: Budget.sulq(value, 0.1, queries=1)):
        with pytest.raises(BadEffort):
            make()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"delta": 1e-6},
        {"epsilon": 1, "rho": 1},
        {"epsilon": 1, "delta": 1},
        {"epsilon": 1, "delta": -1e-9},
        {"epsilon": 1, "delta": float("nan")},
        {"epsilon": 1, "delta": True},
        {"epsilon": 1, "delta": Fraction(1, 10**301)},
        {"epsilon": 1e-9, "delta": 1e-100},  # its rho is less than one unit
    ],
)
def test_bad_combinations(fields: dict[str, Any]) -> None:
    with pytest.raises(BadEffort):
        Budget(**fields)


@pytest.mark.parametrize("queries", [0, -1, True, 1.5, "3", 10**13])
def test_bad_query_counts(queries: Any) -> None:
    with pytest.raises(BadEffort):
        Budget.sulq(1, 1e-6, queries=queries)
    with pytest.raises(BadEffort, match="a query"):
        Budget.sulq(1e-3, 1e-6, queries=10**12)
