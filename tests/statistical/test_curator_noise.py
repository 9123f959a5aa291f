"""The noise that reaches an answer is the noise that was paid for: distribution, scale, and no other."""

import numpy as np
import pytest
from scipy import stats

import dodona as dd
from dodona.testing import seeded_curator
from dodona.testing.oracles import conformance_table

FALSE_ALARM = 1e-6


def noise_of(budget, query, effort, draws, factor=1.0):
    """Standardised errors of many answers; ``factor`` pretends the curator claims another scale."""
    table = conformance_table(rows=50)
    truth = np.asarray(dd.Exact(table).ask(query).total).ravel()
    curator = seeded_curator(table, budget, seed=11)
    errors = []
    while len(errors) * len(truth) < draws:
        answer = curator.ask(query, **effort)
        errors.append((np.asarray(answer.total).ravel() - truth) / (np.asarray(answer.spread).ravel() * factor))
    return np.concatenate(errors)


VECTOR = dd.Partition(dd.bucket("income", np.linspace(0, 1000, 2001)), dd.Value(dd.parse("income")))


@pytest.mark.parametrize("factor", [1.0, 0.9, 1.1])
@pytest.mark.parametrize(
    ("budget", "effort", "law"),
    [
        (dd.Budget(rho=10**6), {"rho": 1}, stats.norm()),
        (dd.Budget(epsilon=10**6), {"epsilon": 1}, stats.laplace(scale=2**-0.5)),
    ],
)
def test_answers_carry_the_claimed_noise_and_not_ten_percent_more_or_less(budget, effort, law, factor):
    errors = noise_of(budget, VECTOR, effort, 60_000, factor)
    p = stats.kstest(errors, law.cdf).pvalue
    assert (p > FALSE_ALARM) == (factor == 1.0)


def test_coordinates_are_independent():
    errors = noise_of(dd.Budget(rho=10**6), VECTOR, {"rho": 1}, 60_000).reshape(-1, 2000)
    first, second = errors[:, :-1].ravel(), errors[:, 1:].ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(len(first))


def test_v1_every_answer_lies_on_the_published_grid():
    curator = seeded_curator(conformance_table(rows=50), dd.Budget(epsilon=10**6), seed=5)
    answer = curator.ask(VECTOR, epsilon=1)
    unit = 2.0 ** -(24 - 10)  # income is in [0, 1000]: 24 bits below 2^10
    steps = np.asarray(answer.total) / unit
    assert np.array_equal(steps, np.round(steps))
