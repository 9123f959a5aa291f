"""Algorithm 2, sign mended: it stops by itself with every member within its error; and learning from release."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.grid import Grid
from dodona.engines.table import Table
from dodona.errors import BadEffort, Unsupported
from dodona.learn.agnostic import AgnosticLearner
from dodona.oracles.effort import Effort
from dodona.oracles.exact import Exact
from dodona.oracles.fronts import LABEL, Mixed
from dodona.privacy.budget import Budget
from dodona.query.expr import Column
from dodona.query.schema import Flag, Schema
from dodona.query.statistic import Value, as_expr
from dodona.release import conjunctions, fitted_by, learn_by_release, multiplicative_weights
from dodona.release.weights import _as_synopsis, member_by_choice, rounds_needed, tolerance_of
from dodona.synopses.cells import DenseWeights
from dodona.testing.oracles import seeded_curator

NAMES = ("a", "b", "c", "d")
SCHEMA = Schema({name: Flag(missing=False) for name in NAMES})
CLASS = Conjunctions.over(NAMES, 2)


def table(rows: int = 4000) -> Table:
    rng = np.random.default_rng(0)
    bits = rng.random((rows, 4)) < [0.3, 0.3, 0.7, 0.5]
    bits[:, 1] |= bits[:, 0]
    return Table({name: bits[:, i] for i, name in enumerate(NAMES)}, SCHEMA, name="t")


def worst(synopsis: object, truth: Exact) -> float:
    members = list(CLASS.members(SCHEMA))
    return max(abs(float(synopsis.ask(m).mean) - float(truth.ask(m).mean)) for m in members)  # type: ignore[attr-defined]


def test_stops_by_itself_with_every_member_close() -> None:
    truth = Exact(table())
    synopsis = multiplicative_weights(truth, CLASS, beta=0.1)
    assert "stopped by itself" in synopsis.header.accuracy
    assert synopsis.header.notes["rounds"] < rounds_needed(16, 0.1)
    # An exact learner: a member that is off by x is found with advantage x/2, and (5) stops at beta/2.
    assert worst(synopsis, truth) <= 0.1 + 1e-9


def test_every_step_lowers_the_potential() -> None:
    """Psi = RE(D || D_t) falls by at least 7 beta^2/32 a step (the mended bound), with the mended sign only."""
    truth, beta = Exact(table()), 0.2
    grid = Grid.of(SCHEMA, NAMES)
    data = np.asarray(truth.ask(grid.marginal((0, 1, 2, 3))).mean).ravel()
    held = data > 0
    potentials = []
    for rounds in range(1, 12):
        synopsis = multiplicative_weights(truth, CLASS, beta=beta, rounds=rounds)
        model = synopsis.body.table((0, 1, 2, 3)) / 4000  # type: ignore[attr-defined]
        potentials.append(float(np.sum(data[held] * np.log(data[held] / model[held]))))
        if "stopped" in synopsis.header.accuracy:
            break
    drops = -np.diff([math.log(16) - float(-np.sum(data[held] * np.log(data[held]))), *potentials])
    assert np.all(drops[:-1] >= 7 * beta**2 / 32 - 1e-12)


def test_the_learner_may_be_any_of_ours() -> None:
    truth = Exact(table())
    ours = multiplicative_weights(truth, CLASS, beta=0.2, learner=fitted_by(AgnosticLearner(CLASS)), share=1)
    own = multiplicative_weights(truth, CLASS, beta=0.2, learner=member_by_choice(CLASS))
    np.testing.assert_allclose(ours.body.arrays()["cells"], own.body.arrays()["cells"])


def test_spends_no_more_than_its_part_and_improves() -> None:
    held = table(200_000)
    curator = seeded_curator(held, Budget(epsilon=4), 1)
    synopsis = multiplicative_weights(curator, CLASS, beta=0.1, rounds=40, share=0.5)
    assert 2.0 - 1e-6 <= curator.left < 4
    assert worst(synopsis, Exact(held)) < 0.2
    with pytest.raises(BadEffort, match="beta"):
        multiplicative_weights(curator, CLASS, beta=0.7, share=0.1)


def test_theorem_5_1_is_refused_before_anything_is_spent_where_noise_alone_would_stop_it() -> None:
    small, budget = Conjunctions.over(("a", "b"), 1), Budget(epsilon="0.2")
    curator, rounds = seeded_curator(table(4000), budget, 1), rounds_needed(4, 0.5)
    off = tolerance_of(curator, small, rounds, Effort.divisible(share=1))
    needed = math.ceil(4000 * off / 0.0625)
    with pytest.raises(
        BadEffort, match=rf"within beta/8 = 0\.0625.*about {needed:,} rows, or {off / 0.0625:.3g} times the eps"
    ):
        multiplicative_weights(curator, small, beta=0.5, share=1)
    assert curator.left == 0.2
    # That many rows do: nothing of the price depends on a row, so a stated number is enough to see it.
    zeros = {n: np.zeros(4, bool) for n in NAMES}
    enough = Table(zeros, SCHEMA, name="t", rows=needed, neighbours="add-remove")
    assert tolerance_of(seeded_curator(enough, budget, 1), small, rounds, Effort.divisible(share=1)) <= 0.0625


def test_noise_stops_no_round_and_what_is_promised_is_certified() -> None:
    held = table(4000)
    truth = Exact(held)
    for seed in range(2):
        synopsis = multiplicative_weights(
            seeded_curator(held, Budget(epsilon="0.1"), seed), CLASS, beta=0.1, rounds=6, share=1
        )
        assert synopsis.header.notes["rounds"] == 6
        assert "without stopping by itself; certified" in synopsis.header.accuracy
        margins = {float(np.asarray(synopsis.ask(m, confidence=0.5).margin)) / 4000 for m in CLASS.members(SCHEMA)}
        assert 0.1 < worst(synopsis, truth) <= max(margins)
        assert max(margins) == pytest.approx(float(synopsis.body.certified) / 4000)  # type: ignore[attr-defined]


def test_the_certificate_of_an_exact_table_is_its_worst_error() -> None:
    truth = Exact(table())
    synopsis = multiplicative_weights(truth, CLASS, beta=0.3, rounds=2)
    assert worst(synopsis, truth) * 4000 <= synopsis.body.certified <= worst(synopsis, truth) * 4000 + 6  # type: ignore[attr-defined]


def test_half_data_half_model_is_one_oracle() -> None:
    truth = Exact(table())
    grid = Grid.of(SCHEMA, NAMES)
    model = _as_synopsis(truth, grid, DenseWeights(grid), 4000)
    for label in (True, False):
        mixed = Mixed(truth, model, NAMES, label=label)
        assert mixed.rows == 8000
        side = Column(LABEL) if label else as_expr(f'NOT "{LABEL}"')
        of_data = Value(as_expr("a"))
        assert float(mixed.ask(Value(side)).total) == 4000
        assert float(mixed.ask(of_data).total) == float(truth.ask("a").total) + 2000
        with pytest.raises(Unsupported, match="Scores"):
            mixed.select(["a", "b"])


def test_dense_weights_match_the_formula_and_refuse_the_impossible() -> None:
    grid = Grid.of(SCHEMA, NAMES)
    weights = DenseWeights(grid)
    weights.update((1, 3), np.array([0.0, 1.0, 0.5, 0.0]), 0.7)
    q = np.array([[0.0, 1.0], [0.5, 0.0]])[None, :, None, :] + np.zeros((2, 2, 2, 2))
    direct = np.exp(0.7 * q)
    np.testing.assert_allclose(weights.flat(), (direct / direct.sum()).ravel())
    np.testing.assert_allclose(weights.marginal((1,)), (direct / direct.sum()).sum(axis=(0, 2, 3)))
    many = [f"x{i}" for i in range(27)]
    with pytest.raises(Unsupported, match=r"2\^26"):
        DenseWeights(Grid.of(Schema({name: Flag(missing=False) for name in many}), many))


def test_a_release_gives_an_agnostic_learner() -> None:
    held = table(20_000)
    truth, target = Exact(held), as_expr("b AND (c OR d)")
    small = Conjunctions.over(("b", "c"), 2)
    best = max(float(truth.ask(Value(as_expr(f"({m}) = ({target})"))).mean) for m in small.members(SCHEMA))
    for oracle in (truth, seeded_curator(held, Budget(epsilon=2), 3)):
        found = learn_by_release(
            lambda o, effort: conjunctions(o, width=2, columns=("b", "c"), **effort), oracle, small, target, share=1
        )
        right = float(truth.ask(Value(as_expr(f"({found}) = ({target})"))).mean)
        assert right >= best - 0.01
