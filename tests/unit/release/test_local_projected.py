"""Random projection (Alda-Simon Theorem 8): taken where it lowers the predicted error, left where it does not."""

import functools
import math

import numpy as np
import pytest

from dodona import release
from dodona.concepts.arrangement import Threshold, decision_list, monomial
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.margins import Projection, levels
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.oracles.exact import Exact
from dodona.oracles.local import Local
from dodona.query.schema import Flag, Integer, Schema
from dodona.query.statistic import Stack, Value, as_expr
from dodona.release.arrangement import least_dimension
from dodona.synopses import load
from dodona.testing.oracles import SeededBits

K, ROWS = 128, 20_000
NAMES = tuple(f"b{i}" for i in range(K))
SCHEMA = Schema(dict.fromkeys(NAMES, Flag(missing=False)))
CONCEPTS = Conjunctions.over(NAMES, 2)


@functools.cache
def table(omega):
    """Definition 5 for b3 AND NOT b7: a fraction omega of the rows uniform where it is true, the rest where not."""
    rng = np.random.default_rng(4)
    bits = rng.random((ROWS, K)) < 0.5
    ones = np.arange(ROWS) < omega * ROWS
    pairs = np.array([(False, False), (False, True), (True, True)])[rng.integers(0, 3, ROWS)]
    bits[:, 3], bits[:, 7] = np.where(ones, True, pairs[:, 0]), np.where(ones, False, pairs[:, 1])
    return Table({name: bits[:, i] for i, name in enumerate(NAMES)}, SCHEMA, name="rows")


def local(omega=0.5, epsilon=4, randomiser="laplace"):
    oracle = Local(table(omega), epsilon, randomiser=randomiser)
    oracle._bits = SeededBits(1)
    return oracle


def test_it_is_taken_for_laplace_noise_on_each_coordinate_and_left_for_the_best_randomiser():
    (laplace,) = release.plan_arrangement(local(), CONCEPTS, order=1, project=True)
    plain, projected = (f"error by margins, {which}" for which in ("not projected", "projected"))
    found = laplace.details
    assert laplace.method == "projection"
    assert laplace.error == found[projected] < 0.85 * found[plain]
    assert least_dimension(CONCEPTS.size(SCHEMA)) <= found["dimension"] < K
    assert "(15)" in str(laplace)
    assert f"projected to {found['dimension']:.0f}" in str(laplace)
    assert found["dimension by Theorem 8"] > found["dimension"]
    (best,) = release.plan_arrangement(local(randomiser=None), CONCEPTS, order=1, project=True)
    assert best.method == "signs"
    assert best.details[plain] < best.details[projected]
    assert best.details[plain] < found[projected]  # so the planner's own choice stays the better one
    assert "not projected" in str(best)


def test_answers_err_as_predicted_on_random_databases(tmp_path):
    off = []
    for omega in (0.0, 0.6):
        synopsis = release.arrangement(local(omega, epsilon=16), CONCEPTS, order=1, project=True)
        assert synopsis.body.kind == "Projected"
        answer = synopsis.ask("b3 AND NOT b7")
        off.append(answer.mean - omega)
        assert abs(off[-1]) <= answer.margin / ROWS
        noise = synopsis.body._one(Value(as_expr("b3 AND NOT b7")))[1]
        assert abs(off[-1]) < 4 * noise
    synopsis.save(tmp_path / "p.synopsis")
    again = load(tmp_path / "p.synopsis")
    assert again.ask("b3 AND NOT b7").mean == answer.mean
    assert "projected to" in str(again)
    with pytest.raises(Unsupported, match="conjunctions, disjunctions"):
        again.ask("b3 = b7")


def test_an_exact_oracle_is_not_projected_and_order_two_cannot_be():
    synopsis = release.arrangement(Exact(table(0.5)), CONCEPTS, order=1, project=True)
    assert synopsis.body.kind == "Arrangement"
    assert "not projected" in str(synopsis)
    with pytest.raises(BadQuery, match="order=1"):
        release.arrangement(Exact(table(0.5)), CONCEPTS, order=2, project=True)


def test_the_query_is_what_the_projection_says():
    projection = Projection(K, 5)
    conditions = [as_expr(name) for name in NAMES]
    few = np.random.default_rng(2).random((40, K)) < 0.3
    small = Table({name: few[:, i] for i, name in enumerate(NAMES)}, SCHEMA, name="few")
    asked = np.asarray(Exact(small).ask(projection.query(conditions)).mean)
    np.testing.assert_allclose(asked, projection.apply(few).mean(axis=0), atol=1e-4)
    assert set(np.unique(projection.matrix)) == {-1, 1}
    assert Projection(K, 5).matrix[0, :8].tolist() == projection.matrix[0, :8].tolist()
    assert Projection(K, 5, seed=1).matrix.tolist() != projection.matrix.tolist()


@pytest.mark.parametrize(
    "rule",
    [
        monomial(((0, True), (5, False))),
        decision_list([(0, True, True), (3, False, False), (4, True, True)], False),
        Threshold((1, 2, 6), (3, -2, 1), 1),
    ],
    ids=str,
)
def test_over_many_projections_levels_are_kappa_times_the_plain_ones(rule):
    """E[S'] = kappa d' (2 <w, b> - sum w), for any bits: unbiased over the draw of the matrix."""
    plain = levels(rule)
    wanted = [2 * value - sum(rule.weights) for value in (plain.zero.value, plain.one.value)]
    found = np.array(
        [
            [level.value / 16 / p.kept for level in (p.levels(rule, samples=300).zero, p.levels(rule, samples=300).one)]
            for p in (Projection(10, 16, seed) for seed in range(80))
        ]
    )
    error = found.std(axis=0) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - wanted) <= 4 * error + 0.02).all()


def test_named_randomisers_are_checked():
    with pytest.raises(BadEffort, match="laplace"):
        Local(table(0.5), 1, randomiser="gauss")
    schema = Schema({"x": Integer(0, 9)})
    made = Table({"x": np.arange(5000) % 10}, schema, name="numbers")
    oracle = Local(made, 6, randomiser="laplace")
    oracle._bits = SeededBits(3)
    answer = oracle.ask(Stack((Value(as_expr("x")), Value(as_expr("x >= 5")))), share=1)
    truth = np.array([22_500, 2500])
    spread = np.asarray(answer.spread)
    # Scale Delta/epsilon with Delta = 9 + 1, for both numbers alike.
    assert spread == pytest.approx(math.sqrt(2 * 5000) * 10 / 6, rel=0.05)
    assert (np.abs(np.asarray(answer.total) - truth) < 4 * spread).all()
    assert "(15)" in answer.cost.mechanism
    with pytest.raises(Unsupported, match="side by side"):
        Local(made, 6, randomiser="laplace").price("SELECT count(*) FROM numbers GROUP BY x", share=1)
