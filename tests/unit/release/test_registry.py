"""The registry: every release states itself, and what it states is true of what it makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.errors import BadQuery
from dodona.oracles.synopsis import KINDS
from dodona.release.registry import (
    Case,
    Release,
    Setting,
    find_release,
    offered_releases,
    registered,
    registered_releases,
)
from dodona.synopses import load
from dodona.testing import seeded_curator

EVERY = [(found, case) for found in registered_releases().values() for case in found.cases()]


def published(found: Release, case: Case) -> tuple[Any, Outlooks, Any]:
    """(the curator, the plan, the synopsis) of a case, at all of a small budget."""
    columns = dict(case.draw(case.rows, np.random.default_rng(1)))
    table = dd.Table(columns, case.schema, neighbours=case.neighbours, name="t", unit=case.unit)
    budget = dd.Budget(epsilon=2, delta="1e-6", keys=case.keys) if case.delta else dd.Budget(epsilon=2)
    curator = seeded_curator(table, budget, 1)
    before = curator.left
    plan = found.plan(curator, **case.settings, share="0.9")
    assert curator.left == before  # a plan spends nothing
    return curator, plan, found.make(curator, **case.settings, share="0.9")


@pytest.mark.parametrize(("found", "case"), EVERY, ids=[f"{found.name}, {case.name}" for found, case in EVERY])
def test_what_a_release_states_is_true_of_what_it_makes(found: Release, case: Case, tmp_path: Path) -> None:
    curator, plan, synopsis = published(found, case)
    assert synopsis.body.kind == case.gives
    assert case.gives in found.gives
    assert set(found.gives) <= set(KINDS)
    taken = plan[0]
    assert taken.method
    assert taken.what
    assert taken.measure
    assert taken.unit == synopsis.header.cost.unit == curator.budget.unit
    assert synopsis.header.cost.amount <= taken.price * (1 + 1e-9)  # never more than was planned
    synopsis.save(tmp_path / "case.synopsis")
    again = load(tmp_path / "case.synopsis")
    assert case.inside
    assert case.outside
    for question in (*case.inside, *case.edge):
        assert again.ask(question).to_json() == synopsis.ask(question).to_json()


def test_every_release_has_a_case_and_its_own_file() -> None:
    assert {found.name for found, _ in EVERY} == set(registered_releases())
    for name, found in registered_releases().items():
        assert getattr(release, name) is found.make
        assert getattr(release, f"plan_{name}") is found.plan
        assert found.plan.__module__ == found.make.__module__


def test_what_is_offered_can_be_stated_as_plain_data() -> None:
    assert {"conjunctions", "intervals", "boxes", "halfspaces", "cuts"} <= set(offered_releases())
    assert "small_database" not in offered_releases()  # its class of concepts is a value of Python
    for found in offered_releases().values():
        assert json.loads(json.dumps(found.described()))["name"] == found.name
    with pytest.raises(BadQuery, match="must be of the kind conjunctions"):
        find_release("small_database")


def make(oracle: dd.Oracle, column: str, *, width: int = 2, share: float = 1) -> Any:
    """Never called."""


def plan(oracle: dd.Oracle, column: str, *, width: int = 2, share: float = 1) -> Any:
    """Never called."""


COLUMN, WIDTH = Setting("column", "column", "Column"), Setting("width", "whole", "Width")


def test_settings_that_are_not_the_functions_own_are_refused() -> None:
    def narrow(oracle: dd.Oracle, column: str, *, share: float = 1) -> Any:
        """A plan that lacks a setting."""

    for settings, planner in (
        ((COLUMN,), plan),
        ((COLUMN, WIDTH, Setting("seed", "whole", "")), plan),
        ((COLUMN, WIDTH), narrow),
    ):
        with pytest.raises(ValueError, match="settings"):
            registered(Release(make, planner, "A title", settings, ("Rows",), lambda: ()))
    with pytest.raises(ValueError, match="kind"):
        Setting("column", "colour", "Column")
    assert "make" not in registered_releases()


def test_a_name_belongs_to_one_release() -> None:
    boxes = registered_releases()["boxes"]
    with pytest.raises(ValueError, match="twice"):
        registered(boxes)


def test_required_settings_are_asked_for_and_unknown_ones_refused() -> None:
    intervals = registered_releases()["intervals"]
    assert intervals.checked({"column": "age"}) == {"column": "age"}
    with pytest.raises(BadQuery, match="must be given column"):
        intervals.checked({"bits": 3})
    with pytest.raises(BadQuery, match="takes the settings column, by, bits, method"):
        intervals.checked({"column": "age", "effort": 3})  # an effort is stated apart, never as a setting


def test_outlooks_are_found_by_place_and_by_method() -> None:
    first, second = (Outlook("x", Outcome.FEASIBLE, method=name, error=1.0) for name in ("tree", "circle"))
    theorem = Outlook("x", Outcome.VACUOUS, "Theorem 0")
    found = Outlooks([first, second, theorem])
    assert found[0] is found["tree"] is first
    assert found[1:] == (second, theorem)
    assert found.methods == ("tree", "circle")
    with pytest.raises(KeyError):
        found["nets"]


def test_a_price_is_an_outlook_too() -> None:
    table = dd.Table({"a": np.arange(100) % 2 == 0}, dd.Schema({"a": dd.Flag()}))
    curator = seeded_curator(table, dd.Budget(epsilon=1), 0)
    price = curator.price("a", share="1/2", confidence=0.9)
    outlook = price.outlook
    assert (outlook.error, outlook.confidence, outlook.measure) == (price.tolerance, 0.9, "the mean")
    assert (outlook.price, outlook.unit, outlook.method) == (0.5, "epsilon", price.cost.mechanism)
    assert outlook.feasible
    printed = curator.price("SELECT a, COUNT(*) AS n FROM data GROUP BY a", share="1/2")
    assert (printed.outlook.error, printed.outlook.measure) == (printed.columns[0].margin, "a printed number")
    curator.ask("a", share=1)
    late = curator.price("a", share="1/2").outlook
    assert (late.feasible, late.affordable) == (False, False)
    assert "more than is left" in str(late)
    assert dd.Exact(table).price("a").outlook.cost is None


def test_a_kind_of_body_belongs_to_one_class() -> None:
    """Or a file could be read by a class that did not write it."""
    from dodona.synopses.ranges import Ranges

    with pytest.raises(ValueError, match="twice"):
        type("Another", (Ranges,), {"kind": "Ranges"})
    assert KINDS["Ranges"] is Ranges
    shared = type("Shared", (Ranges,), {})  # without a kind of its own it is a base that kinds may share
    assert shared not in KINDS.values()
