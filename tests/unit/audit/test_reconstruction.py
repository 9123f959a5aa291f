"""Reconstruction attacks: they win against exact answers and fail against a budget (HOSTILE A16, V46, M15)."""

from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest

import dodona as dd
from dodona.audit.attacks import (
    by_averaging,
    by_differencing,
    by_least_squares,
    by_linear_program,
    privacy_limit,
    reconstruct,
    salary,
    secrets_table,
    subset_sums,
)
from dodona.audit.watched import scratch_curator
from dodona.errors import BadQuery, BudgetSpent

ROWS = 48
SECRETS = np.random.default_rng(3).random(ROWS) < 0.5


def curator(epsilon):
    return lambda table: scratch_curator(table, dd.Budget(epsilon=epsilon))


def test_exact_answers_give_everything_away():
    for found in reconstruct(dd.Exact, SECRETS, queries=120, seed=0):
        assert found.recovered == ROWS, found
        assert found.fraction == 1.0


def test_a_budget_keeps_its_promise():
    """One run at full budget (M15): no attack beats e^epsilon/(1 + e^epsilon) by more than luck."""
    for epsilon in (F(1, 4), 1):
        for found in reconstruct(curator(epsilon), SECRETS, queries=120, seed=1):
            assert found.fraction <= privacy_limit(float(epsilon), ROWS), found


def test_without_a_global_budget_the_same_noise_gives_way():
    """A16's control: epsilon 1 for each of 512 questions is 512 in all, and most bits are back."""
    inside, answers = subset_sums(curator(512 * 2)(secrets_table(SECRETS)), ROWS, 256, 2)
    for method in (by_linear_program, by_least_squares):
        assert (method(inside, answers) == SECRETS).mean() > 0.95


def test_averaging_and_differencing():
    exact = dd.Exact(secrets_table(SECRETS))
    assert all(by_averaging(exact, row, 3) == SECRETS[row] for row in range(6))
    assert all(by_differencing(exact, row) == SECRETS[row] for row in range(6))
    rows = range(40)
    table = secrets_table(SECRETS)
    averaged = np.mean([by_averaging(curator(F(1, 2))(table), row, 4) == SECRETS[row] for row in rows])
    differenced = np.mean([by_differencing(curator(F(1, 2))(table), row) == SECRETS[row] for row in rows])
    assert max(averaged, differenced) <= privacy_limit(0.5, len(rows))


def test_averaging_stops_where_the_budget_does():
    oracle = curator(1)(secrets_table(SECRETS))
    by_averaging(oracle, 0, 5)
    with pytest.raises(BudgetSpent):
        oracle.ask("secret", share=F(1, 1000))


def employees(salaries):
    schema = dd.Schema({"id": dd.Integer(0, len(salaries) - 1, public=True), "salary": dd.Integer(0, 255)})
    return dd.Table({"id": np.arange(len(salaries)), "salary": np.array(salaries)}, schema, name="staff")


def test_the_salary_example():
    """SuLQ section 1: two large sums and a binary search tell a salary exactly; under a budget they tell nothing."""
    rng = np.random.default_rng(0)
    pay = rng.integers(0, 256, 200)
    exact = dd.Exact(employees(pay))
    assert [salary(exact, person, 0, 255) for person in range(5)] == pay[:5].tolist()
    oracle = scratch_curator(employees(pay), dd.Budget(epsilon=1))
    guesses = [salary(scratch_curator(employees(pay), dd.Budget(epsilon=1)), person, 0, 255) for person in range(8)]
    assert sum(guess == truth for guess, truth in zip(guesses, pay[:8], strict=True)) <= 2
    salary(oracle, 0, 0, 255)
    with pytest.raises(BudgetSpent):
        oracle.ask("salary >= 9", share=F(1, 100))
    with pytest.raises(BadQuery):
        salary(exact, 0, 5, 4)


@pytest.mark.slow
def test_a_hundred_reconstructions_stay_within_the_bound():
    """M15, the release column."""
    for epsilon in (F(1, 2), 2):
        fractions = {}
        for seed in range(100):
            secrets = np.random.default_rng(seed).random(ROWS) < 0.5
            for found in reconstruct(curator(epsilon), secrets, queries=96, seed=seed):
                fractions.setdefault(found.attack, []).append(found.fraction)
                assert found.fraction <= privacy_limit(float(epsilon), ROWS)
        for attack, each in fractions.items():
            assert np.mean(each) <= privacy_limit(float(epsilon), ROWS * 100), attack
