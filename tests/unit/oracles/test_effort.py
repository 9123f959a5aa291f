"""An effort is stated once, and handed on as a value: the same charge, the same refusals, whoever passes it on."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.errors import BadEffort, Unsupported
from dodona.oracles.effort import Effort
from dodona.oracles.fronts import Mixed, Where
from dodona.oracles.oracle import Oracle, Request
from dodona.query.candidates import ParityProcedure
from dodona.query.expr import Column
from dodona.query.statistic import as_expr, as_query
from dodona.release import intervals
from dodona.testing import seeded_curator

TABLE = dd.Table(
    {"age": np.arange(100), "a": np.arange(100) % 2 == 0, "b": np.arange(100) % 3 == 0},
    dd.Schema({"age": dd.Integer(0, 99), "a": dd.Flag(), "b": dd.Flag()}),
)


def curator() -> Any:
    return seeded_curator(TABLE, dd.Budget(epsilon=1), 1)


def test_an_effort_handed_on_is_charged_as_its_keyword_is() -> None:
    by_value, by_name = curator(), curator()
    effort = Effort.of(share="1/2", confidence=0.9)
    one, other = (
        by_value.ask("age", effort=effort.part(Fraction(3, 10))),
        by_name.ask("age", share="3/20", confidence=0.9),
    )
    assert (one.cost.amount, one.margin, one.confidence) == (other.cost.amount, other.margin, other.confidence)
    assert by_value.ledger.spent() == by_name.ledger.spent() > 0
    assert by_value.ask("age", effort=effort, confidence=0.99).confidence == 0.99


@pytest.mark.parametrize("ask", ["ask", "price", "sql", "select", "explain"])
def test_a_misspelt_effort_is_refused_with_the_names_there_are(ask: str) -> None:
    oracle = curator()
    question = "SELECT COUNT(*) FROM data" if ask == "sql" else "a"
    with pytest.raises(TypeError, match=r"tolerence: .* tolerance=, share=, epsilon=, rho=, confidence= or effort="):
        getattr(oracle, ask)(question, share=0.1, tolerence=1)
    with pytest.raises(TypeError, match=r"tolerance: .* share=, epsilon=, rho= or effort="):
        intervals(oracle, "age", share=0.1, tolerance=1)  # type: ignore[call-arg]
    assert oracle.ledger.spent() == 0


@pytest.mark.parametrize(
    ("stated", "got"),
    [
        ({"effort": Effort.none()}, "none"),
        ({"effort": Effort.of(share=1), "share": 1}, "share and share"),
        ({"effort": Effort.of(rho=1), "epsilon": 1}, "epsilon and rho"),
    ],
)
def test_a_curator_takes_no_effort_twice_and_never_none(stated: dict[str, Any], got: str) -> None:
    with pytest.raises(BadEffort, match=f"exactly one of tolerance=.* Got {got}"):
        curator().ask("age", **stated)


@pytest.mark.parametrize("effort", [Effort("share", Fraction(2)), Effort("epsilon", Fraction(0)), "0.5"])
def test_a_handed_effort_is_checked_as_a_stated_one(effort: Any) -> None:
    with pytest.raises(BadEffort):
        curator().ask("age", effort=effort)


def test_a_release_takes_no_tolerance_as_a_value_either() -> None:
    with pytest.raises(BadEffort, match=r"exactly one of share=, epsilon= or rho= must be given\. Got tolerance"):
        intervals(curator(), "age", effort=Effort.of(tolerance=1))


def test_fronts_are_free_where_the_oracle_behind_is() -> None:
    exact = dd.Exact(TABLE)
    for oracle in (exact.select_columns("age", "a"), Where(exact, as_expr("a"))):
        assert oracle.free
        assert oracle.ask("age").confidence == 1.0
    with pytest.raises(BadEffort, match="Got none"):
        Where(curator(), as_expr("a")).ask("age")


def test_no_procedure_runs_past_a_condition_or_a_model() -> None:
    """Behind the front it would see all rows, or the data alone."""
    exact = dd.Exact(TABLE)
    model = intervals(exact, "age")
    procedure = ParityProcedure((Column("a"),), Column("b"), parts=1, repeats=1, part_rows=10, test_rows=10)
    fronts: list[Oracle] = [Where(exact, as_expr("a")), Mixed(exact, model, ["age"], label=True)]
    for front in fronts:
        with pytest.raises(Unsupported, match=r"Corollary 5\.15"):
            front.perform(Request(procedure, Effort.none()))


def test_a_part_of_nothing_is_nothing_and_whole_is_a_share_of_one() -> None:
    assert Effort.none().part(Fraction(1, 3)) == Effort.none()
    assert Effort.none().keywords == {}
    assert Effort.of(share=1).whole
    assert not Effort.of(epsilon=1).whole
    assert Effort.of(rho="1/3").part(0.5).keywords == {"rho": Effort.of(rho="1/3").part(0.5).amount}
    assert dd.Exact(TABLE).answer(Request(as_query("age"), Effort.none())).confidence == 1.0
