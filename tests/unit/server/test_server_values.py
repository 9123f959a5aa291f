"""Whatever JSON is sent as candidates: a choice, or a refusal before anything is charged; never a fault or a loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.concepts import (
    Boxes,
    Conjunctions,
    DecisionLists,
    Disjunctions,
    Finite,
    Intervals,
    Parities,
    Stumps,
    Thresholds,
    Trees,
)
from dodona.concepts.concept import Agreement, Subset
from dodona.concepts.databases import Databases, Misfits
from dodona.concepts.grid import Grid, Misfit
from dodona.errors import BadQuery, Refused
from dodona.oracles.effort import Effort
from dodona.oracles.fronts import GatedScores, Shifted
from dodona.oracles.oracle import Request
from dodona.oracles.wire import candidates_of
from dodona.query.plan import compile_query
from dodona.query.statistic import as_expr

SCHEMA = dd.Schema(
    {
        "age": dd.Integer(0, 99),
        "sex": dd.Category("Female", "Male"),
        "smoker": dd.Flag(),
        "income": dd.Real(0, 1000),
    }
)
TABLE = dd.Table(
    {"age": [30, 60, 90], "sex": ["Female", "Male", "Male"], "smoker": [True, False, True], "income": [1.0, 2.0, 3.0]},
    SCHEMA,
)
AGE = Thresholds("age", (20.0, 60.0))
CLASSES = [
    *(
        AGE,
        Intervals("age", (10.0, 20.0)),
        Stumps.over(["age", "sex"], {"age": [30]}),
        Parities.over(["smoker", "sex"]),
    ),
    *(Trees.over(["age", "sex"], 2, {"age": [30, 60]}), DecisionLists.over(["sex", "smoker"], 2), Subset(AGE, (0, 1))),
    *(Disjunctions.over(["sex", "smoker"], 2), Conjunctions.over(["sex", "age"], 2, {"age": [0, 50, 99]})),
    *(Boxes.over({"age": [10, 20], "income": [100]}), Finite.of(["age > 3", "smoker"])),
]
AGREE = Agreement(AGE, as_expr("smoker"))
GRID = Grid.of(SCHEMA, ["sex", "smoker"], {})
SCORES = [
    *(Agreement(concepts, as_expr("smoker")) for concepts in CLASSES),
    GatedScores(AGREE, as_expr("age > 3")),
    Shifted(AGREE, np.zeros(compile_query(AGREE.statistics(SCHEMA), SCHEMA, level=True).dimension, dtype=np.int64)),
    Misfits(AGE, np.zeros(AGE.size(SCHEMA), dtype=np.int64)),
    Misfit(
        GRID, ((0,), (1,)), np.zeros(GRID.size((0,)) + GRID.size((1,)), dtype=np.int64), np.zeros(2, dtype=np.int64)
    ),
    Databases(AGE, np.zeros((3, AGE.size(SCHEMA)), dtype=np.bool_), 2, 3),
]
SENT: list[dict[str, Any]] = [json.loads(json.dumps(scores.to_json())) for scores in SCORES]
PLAIN = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.sampled_from(["age", "AGE", "sex", "smoker", "income", "nope", "", "AAAAAAAAAAA="])
ANY = st.recursive(
    PLAIN | NAMES | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.sampled_from(["kind", "expr"]), inner),
    max_leaves=6,
)
PIECES = ANY | st.sampled_from([part for sent in SENT for part in sent.values()]) | st.sampled_from(SENT)


def choose(data: Any) -> bool:
    """Whether a choice was made; a refusal must leave the budget alone, and anything else is raised."""
    curator = dd.Curator(TABLE, dd.Budget(epsilon=1))
    try:
        query = candidates_of(data, curator)
        curator.choose(Request(query, Effort.of(share="0.5"), None), "best")
    except Refused:
        assert curator.left == 1
        return False
    return True


def places(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        yield from places(value, (*above, key))


def put(data: Any, place: tuple[Any, ...], piece: Any) -> Any:
    if not place:
        return piece
    changed = data.copy()
    changed[place[0]] = put(data[place[0]], place[1:], piece)
    return changed


@pytest.mark.parametrize("sent", SENT, ids=lambda sent: json.dumps(sent)[:60])
def test_what_is_well_formed_is_chosen_among(sent: dict[str, Any]) -> None:
    assert choose(sent)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_json_as_candidates_is_a_choice_or_a_refusal(data: st.DataObject) -> None:
    sent: Any = data.draw(st.sampled_from(SENT) | ANY)
    for _ in range(data.draw(st.integers(0, 2))):
        sent = put(sent, data.draw(st.sampled_from(list(places(sent)))), data.draw(PIECES))
    choose(sent)


DEEP = {"kind": "Trees", "columns": ["age"], "depth": 64, "edges": [["age", list(range(1, 60))]]}
MALFORMED: list[dict[str, Any]] = [
    {"kind": "Intervals", "column": "age", "cuts": [["age", [1, 2]]]},
    {"kind": "Stumps", "columns": ["age", "sex"], "edges": []},
    {"kind": "Stumps", "columns": ["age", "income"], "edges": [["age", [30.0]]]},
    {"kind": "Boxes", "cuts": [0]},
    {"kind": "Boxes", "cuts": []},
    {"kind": "Subset", "whole": DEEP, "kept": [0], "because": "deep"},
    DEEP,
    {"kind": ["Boxes"]},
    {"kind": "Finite", "conditions": [{"expr": {"op": "nope", "args": []}}]},
]


@pytest.mark.parametrize("malformed", MALFORMED, ids=lambda data: json.dumps(data)[:60])
def test_a_malformed_class_is_refused_by_the_server_with_a_fixed_code(malformed: dict[str, Any], house: Any) -> None:
    for query in ({"agreement": {"class": malformed, "target": {"col": "smoker"}}}, {"misfits": {"class": malformed}}):
        found = house.post("select", {"query": query, "effort": {"share": "0.01"}})
        assert (found.status_code, found.json()["code"]) == (422, "bad-query")
        assert found.json()["charged"] is False


def test_scores_shifted_by_too_few_numbers_are_refused_and_not_lost() -> None:
    with pytest.raises(BadQuery, match="one number for each total"):
        candidates_of({"shifted": {"of": AGREE.to_json(), "offsets": ""}}, dd.Exact(TABLE))


def test_edges_may_be_stated_in_another_case_than_columns() -> None:
    for columns, edges in ((["AGE"], {"age": [30]}), (["age"], {"Age": [30]})):
        assert choose(json.loads(json.dumps(Agreement(Stumps.over(columns, edges), as_expr("smoker")).to_json())))


def test_boxes_are_over_distinct_columns() -> None:
    twice = {"kind": "Boxes", "cuts": [["age", [10]], ["AGE", [20]]]}
    with pytest.raises(BadQuery, match="distinct columns"):
        candidates_of({"agreement": {"class": twice, "target": {"col": "smoker"}}}, dd.Exact(TABLE))


def test_what_a_choice_does_before_its_charge_is_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that passes every check and still cannot be scored: refused while reading, whatever the fault."""

    def broken(*_: object) -> None:
        raise KeyError("a fault that no check foresaw")

    monkeypatch.setattr(Thresholds, "statistics", broken)
    with pytest.raises(BadQuery, match="as to_json writes it"):
        candidates_of(AGREE.to_json(), dd.Exact(TABLE))
