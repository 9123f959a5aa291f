"""The parity learner as an estimator, and ``oracle.run``: who may run it, what it costs, what it tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dodona.bounds.klnrs import parity_plan
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, BudgetSpent, Unsupported
from dodona.learn.agnostic import ParityLearner
from dodona.oracles.exact import Exact
from dodona.oracles.oracle import Oracle
from dodona.privacy.budget import Budget
from dodona.query.candidates import ParityProcedure, procedure_from_json
from dodona.query.expr import Column
from dodona.query.schema import Category, Flag, Real, Schema
from dodona.testing.oracles import seeded_curator

D = 12
NAMES = [f"b{i}" for i in range(D)]
SCHEMA = Schema({**{name: Flag() for name in NAMES}, "y": Flag()})


def parity_table(
    n: int, seed: int = 0, noise: float = 0.0, neighbours: str = "replace"
) -> tuple[Table, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    x, r = rng.random((n, D)) < 0.5, rng.random(D) < 0.5
    y = ((x @ r.astype(int)) % 2 == 1) ^ (rng.random(n) < noise)
    columns = {**{name: x[:, i].copy() for i, name in enumerate(NAMES)}, "y": y}
    rows = n if neighbours == "add-remove" else None
    return Table(columns, SCHEMA, neighbours=neighbours, rows=rows), r


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("budget", [Budget(epsilon=0.5), Budget(epsilon=6), Budget(epsilon=1, delta=1e-6)])
def test_finds_the_parity_within_the_planned_rows(budget: Budget, neighbours: str) -> None:
    table, r = parity_table(30_000, neighbours=neighbours)
    found = 0
    for seed in range(6):
        learner = ParityLearner(alpha=0.1).fit(seeded_curator(table, budget, seed), "y")
        assert learner.cost_.share == pytest.approx(1, rel=1e-6)
        found += learner.parity_ is not None and bool((learner.parity_ == r).all())
    assert found >= 5


def test_predicts_prints_and_can_be_asked() -> None:
    table, r = parity_table(20_000)
    learner = ParityLearner(alpha=0.1).fit(seeded_curator(table, Budget(epsilon=1), 1), "y")
    rng = np.random.default_rng(9)
    fresh = pd.DataFrame(rng.random((200, D)) < 0.5, columns=NAMES)
    assert np.array_equal(learner.predict(fresh), (fresh.to_numpy() @ r.astype(int)) % 2 == 1)
    assert learner.mistakes_ == pytest.approx(0, abs=0.02)
    wrong = Exact(table).ask(learner.hypothesis_.mistakes(Column("y")))
    assert wrong.total == 0
    assert Exact(table).ask(learner.hypothesis_.sql).mean == pytest.approx(0.5, abs=0.02)


def test_exact_solves_and_says_none_on_contradictions() -> None:
    table, r = parity_table(200)
    assert np.array_equal(ParityLearner().fit(Exact(table), "y").parity_, r)
    noisy, _ = parity_table(2000, noise=0.3)
    learner = ParityLearner().fit(Exact(noisy), "y")
    assert learner.parity_ is None
    assert learner.hypothesis_.sql == "FALSE"
    assert "every run refused" in str(learner)


def test_contradictory_and_constant_rows_are_ordinary_input() -> None:
    """Same charge, same shape of result; which of r and None comes is the mechanism's law (tests/laws)."""
    outcomes = set()
    for columns in (
        {**{name: np.zeros(9000, bool) for name in NAMES}, "y": np.arange(9000) % 2 == 0},
        {**{name: np.ones(9000, bool) for name in NAMES}, "y": np.ones(9000, bool)},
    ):
        curator = seeded_curator(Table(columns, SCHEMA), Budget(epsilon=1), 3)
        learner = ParityLearner(alpha=0.2).fit(curator, "y")
        assert curator.left == pytest.approx(0, abs=1e-9)
        outcomes.add(learner.parity_ is None)
    assert outcomes == {True, False}


def test_too_few_rows_is_said_from_the_public_number_before_charging() -> None:
    table, _ = parity_table(500)
    curator = seeded_curator(table, Budget(epsilon=0.5), 1)
    needed = parity_plan(D, 0.05, 0.05, 0.5).rows
    with pytest.raises(BadEffort, match=f"insufficient samples.*{needed:,} rows"):
        ParityLearner().fit(curator, "y")
    assert curator.left == 0.5
    assert not ParityLearner().plan(curator, "y").feasible


class QueriesOnly(Oracle):
    """As Local is: statistical queries, and nothing else."""

    schema = SCHEMA  # type: ignore[assignment]
    rows = 10**6  # type: ignore[assignment]
    name = "people"  # type: ignore[assignment]

    def answer(self, request: Any) -> Any:
        raise NotImplementedError

    def estimate(self, request: Any) -> Any:
        raise NotImplementedError

    def choose(self, request: Any, mechanism: str) -> Any:
        raise NotImplementedError


def procedure(**changed: Any) -> ParityProcedure:
    sizes = {"parts": 2, "repeats": 1, "part_rows": 100, "test_rows": 50, **changed}
    return ParityProcedure(tuple(Column(name) for name in NAMES), Column("y"), **sizes)


def test_oracles_of_statistical_queries_refuse_by_corollary_5_15() -> None:
    with pytest.raises(Unsupported, match=r"Corollary 5\.15"):
        QueriesOnly().run(procedure(), epsilon=1)


def test_run_takes_procedures_with_an_effort_and_charges_once() -> None:
    table, _ = parity_table(400)
    curator = seeded_curator(table, Budget(epsilon=1), 2)
    with pytest.raises(BadQuery, match="takes a procedure"):
        curator.run("b0")  # type: ignore[arg-type]
    with pytest.raises(BadEffort, match="exactly one"):
        curator.run(procedure())
    with pytest.raises(Unsupported, match="rho="):
        curator.run(procedure(), rho=0.1)
    wide = Schema({"a": Real(0, 9), "y": Flag()})
    other = seeded_curator(Table({"a": np.zeros(5), "y": np.ones(5, bool)}, wide), Budget(epsilon=1), 2)
    with pytest.raises(BadQuery, match="takes conditions"):
        other.run(ParityProcedure((Column("a"),), Column("y"), 1, 1, 4, 1), epsilon=0.5)
    assert curator.left == 1
    first = curator.run(procedure(), epsilon=0.25, request_id="once")
    again = curator.run(procedure(), epsilon=0.25, request_id="once")
    assert first.value == again.value
    assert curator.left == 0.75
    with pytest.raises(BudgetSpent):
        curator.run(procedure(), epsilon=0.8)


def test_run_through_a_view() -> None:
    table, r = parity_table(20_000)
    view = seeded_curator(table, Budget(epsilon=4), 5).select_columns(*NAMES, "y")
    learner = ParityLearner(alpha=0.1).fit(view, "y")
    assert learner.parity_ is None or np.array_equal(learner.parity_, r)


def test_procedures_travel_as_plain_data() -> None:
    assert procedure_from_json(procedure().to_json()) == procedure()
    with pytest.raises(BadQuery, match="must be a parity"):
        procedure_from_json({"parity": {"bits": [], "label": {"col": "y"}, "parts": 1.5}})
    for bad in ({"parts": 0}, {"part_rows": 0}, {"repeats": 2000}):
        with pytest.raises(BadQuery):
            procedure(**bad)


def test_columns_must_be_bits() -> None:
    schema = Schema({"town": Category("a", "b", "c"), "y": Flag()})
    table = Table({"town": np.array(["a", "b"]), "y": np.array([True, False])}, schema)
    with pytest.raises(BadQuery, match="two values"):
        ParityLearner().fit(Exact(table), "y")
