"""SuLQ's theorems as planners: the printed and the mended statements, against direct computation and simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dodona.bounds import Outcome, Outlook, sulq
from dodona.errors import BadEffort
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import sulq_epsilon_of


def test_a_verdict_is_frozen_and_readable():
    verdict = Outlook("10 queries", "feasible", "Theorem 0", 0.01, 1234, Cost.pure(Fraction(1)), "Done.", {"rounds": 7})
    assert verdict.feasible
    assert verdict.outcome is Outcome.FEASIBLE
    assert str(verdict) == (
        "10 queries: feasible, error at most 0.01, needs 1,234 rows, costs epsilon 1, rounds 7 (Theorem 0). Done."
    )
    with pytest.raises(AttributeError):
        verdict.error = 1
    with pytest.raises(TypeError):
        verdict.details["rounds"] = 8
    with pytest.raises(ValueError, match="maybe"):
        Outlook("x", "maybe", "t")


@pytest.mark.parametrize("epsilon", [0.1, 1, 5])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_theorem_1_mended(epsilon, delta):
    """R = T/(sqrt(2L + 2 eps) - sqrt(2L))^2, above the printed 2 T L/eps^2; and it is exactly enough."""
    big_l, queries = math.log(1 / delta), 50
    variance = sulq.variance_for(queries, epsilon, delta)
    closed = queries / (math.sqrt(2 * big_l + 2 * epsilon) - math.sqrt(2 * big_l)) ** 2
    assert float(variance) == pytest.approx(closed, rel=1e-9)
    assert float(variance) > 2 * queries * big_l / epsilon**2
    spent = sulq_epsilon_of(Fraction(queries) / (2 * variance), Fraction(str(delta)))
    assert float(spent) == pytest.approx(epsilon, rel=1e-9)
    assert sulq.queries_for(float(variance) * 1.000001, epsilon, delta) == queries
    assert sulq.queries_for(float(variance) * 0.999999, epsilon, delta) == queries - 1


def test_interactive_says_feasible_infeasible_and_vacuous():
    plans = [sulq.interactive(rows, 100, 1, 1e-6, 0.01) for rows in (20_000, 5_000, 50)]
    assert [plan.outcome for plan in plans] == [Outcome.FEASIBLE, Outcome.INFEASIBLE, Outcome.VACUOUS]
    room = plans[0].details["questions that this tolerance leaves room for"]
    assert sulq.interactive(20_000, int(room), 1, 1e-6, 0.01).feasible
    assert not sulq.interactive(20_000, int(room) + 1, 1, 1e-6, 0.01).feasible
    needed = plans[0].rows_needed
    assert sulq.interactive(needed, 100, 1, 1e-6, 0.01).feasible
    assert not sulq.interactive(needed - 1, 100, 1, 1e-6, 0.01).feasible


def test_theorem_5_mended_is_kept_by_simulation_and_as_printed_is_not():
    """All q errors within tau with probability 0.95; a VARIANCE of tau, as printed, misses by far (ERRATA 8)."""
    q, tau, failure = 40, 0.01, 0.05
    plan = sulq.statistical_queries(10**6, [tau] * q, 1, 1e-6, failure)
    rows = plan.rows_needed
    rho = float(sulq._rho(1, 1e-6))
    mended = math.sqrt(q / (2 * rho)) / rows  # equal split of rho over q queries
    rng = np.random.default_rng(0)
    worst = np.abs(rng.normal(0, mended, (4000, q))).max(axis=1)
    assert (worst > tau).mean() <= failure
    printed = np.abs(rng.normal(0, math.sqrt(tau), (4000, q))).max(axis=1)
    assert (printed > tau).mean() > 0.99
    assert sulq.statistical_queries(rows, [tau] * q, 1, 1e-6, failure).feasible
    assert sulq.statistical_queries(rows - 1, [tau] * q, 1, 1e-6, failure).outcome is Outcome.INFEASIBLE
    assert sulq.statistical_queries(50, [tau] * q, 1, 1e-6, failure).outcome is Outcome.VACUOUS


def test_theorem_3_counts_rounds_by_the_square_of_the_margin():
    assert sulq.perceptron_rounds(1.0, 0.1) == 3200
    assert sulq.perceptron_rounds(2.0, 0.2) == 3200
    plans = [sulq.perceptron(rows, 5, 0.3, 1, 1e-6) for rows in (10**6, 10**5, 10**3)]
    assert [plan.outcome for plan in plans] == [Outcome.FEASIBLE, Outcome.INFEASIBLE, Outcome.VACUOUS]
    assert sulq.perceptron(plans[0].rows_needed, 5, 0.3, 1, 1e-6).feasible


def test_theorem_3_holds_for_the_noisy_perceptron_it_speaks_of():
    """The paper's algorithm, run: it stops within the rounds promised, with at most the promised rows wrong."""
    rng = np.random.default_rng(1)
    rows, d, margin = 400_000, 3, 0.35
    points = rng.normal(size=(rows, d))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    direction = np.array([1.0, 0.0, 0.0])
    points = points[np.abs(points @ direction) >= margin]
    points *= np.sign(points @ direction)[:, None]
    plan = sulq.perceptron(len(points), d, margin, 1, 1e-6)
    stops, sigma = plan.details["stops at misclassified rows"], math.sqrt(plan.details["variance"])
    w = np.array([-1.0, 0.3, 0.2])
    done = 0
    for _ in range(int(plan.details["rounds"]) + 1):
        wrong = points @ w <= 0
        count = wrong.sum() + rng.normal(0, sigma)
        if count < stops:
            break
        done += 1
        w = w + (points[wrong].sum(axis=0) + rng.normal(0, sigma, d)) / count
    else:
        pytest.fail("more rounds than promised")
    assert done >= 1
    assert (points @ w <= 0).sum() <= stops * 1.2


@pytest.mark.parametrize("norm", [0.0, 2.0])
def test_lemma_2_covers_simulated_centres(norm):
    rng = np.random.default_rng(2)
    d, variance, rows, failure = 6, 400.0, 300, 0.05
    bound = sulq.kmeans_error(norm, d, variance, rows, failure)
    centre = np.full(d, norm / math.sqrt(d))
    counts = rows + rng.normal(0, math.sqrt(variance), 4000)
    sums = rows * centre + rng.normal(0, math.sqrt(variance), (4000, d))
    errors = np.linalg.norm(sums / counts[:, None] - centre, axis=1)
    assert (errors > bound).mean() <= failure
    assert (errors > bound / 3).mean() > failure  # a bound, but not an idle one
    assert sulq.kmeans_error(1, d, variance, 30, failure) == math.inf


def test_lemma_4_covers_simulated_gains():
    """The chosen attribute's gain is within the bound of the best one's, over noisy tables of counts."""
    rng = np.random.default_rng(3)
    t, d, rows, variance = 3, 5, 60_000, 9.0
    bound = sulq.id3_gain_error(rows, variance, t, d)
    tables = rng.multinomial(rows, rng.dirichlet(np.ones(t * t), d).ravel() / d, 1).reshape(d, t, t).astype(float)
    tables *= (rows / tables.sum(axis=(1, 2)))[:, None, None]

    def value(cells, columns):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nansum(cells * np.log(cells / columns[..., None]), axis=(1, 2))

    truth = value(tables, tables.sum(axis=2)) / rows
    for _ in range(200):
        noisy = np.maximum(tables + rng.normal(0, 3, tables.shape), 1e-9)
        columns = np.maximum(tables.sum(axis=2) + rng.normal(0, 3, (d, t)), 1e-9)
        chosen = int(np.argmax(value(noisy, columns)))
        assert truth.max() - truth[chosen] <= bound
    assert sulq.id3_gain_error(10, variance, t, d) == math.inf


def test_lemma_4_needs_its_logarithm():
    """Skipping cells below |T|/gamma loses |T|/gamma times ln(gamma), not |T|/gamma as printed."""
    rows, gamma = 1e6, 1000.0
    x = rows / gamma
    assert x * math.log(rows / x) > 6 * x
    plan = sulq.id3_node(30_000, 25.0, 4, 10, gain=0.1)
    assert not plan.feasible
    assert sulq.id3_node(float(plan.rows_needed), 25.0, 4, 10, gain=0.1).feasible
    assert sulq.id3_node(100, 25.0, 4, 10, gain=0.1).outcome is Outcome.VACUOUS


@pytest.mark.parametrize(
    "call",
    [
        lambda: sulq.variance_for(0, 1, 1e-6),
        lambda: sulq.variance_for(True, 1, 1e-6),
        lambda: sulq.variance_for(5, math.nan, 1e-6),
        lambda: sulq.variance_for(5, 1, 0),
        lambda: sulq.variance_for(5, 1, 1),
        lambda: sulq.interactive(100, 5, 1, 1e-6, tolerance=2),
        lambda: sulq.statistical_queries(100, [], 1, 1e-6),
        lambda: sulq.statistical_queries(100, [0.0], 1, 1e-6),
        lambda: sulq.perceptron(100, 2, 0.0, 1, 1e-6),
        lambda: sulq.perceptron(100, 2, 2.0, 1, 1e-6),
        lambda: sulq.kmeans_error(1, 2, 1.0, 10, 0),
    ],
)
def test_what_makes_no_sense_is_refused(call):
    with pytest.raises(BadEffort):
        call()
