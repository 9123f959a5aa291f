"""What no margin speaks of is told beside every number, and how much it is can be asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.engines.engine import Engine
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Request
from dodona.oracles.rows import Estimate, Rows, totals_of
from dodona.query.statistic import Losses, query_from_json
from dodona.testing.engines import PassingEngine
from dodona.testing.oracles import seeded_curator

SCHEMA = dd.Schema(
    {
        "age": dd.Integer(18, 60),
        "ward": dd.Category("a", "b"),
        "ill": dd.Flag(missing=False),
        "cost": dd.Real(0, 100, missing=5),
    }
)


def visits(unit: dd.Unit | None = None) -> dd.Table:
    columns: dict[str, Any] = {
        "age": np.array([10.0, 70, 80, np.nan, 30.5, 40]),
        "ward": np.array(["a", "b", None, "zz", "zz", "a"], dtype=object),
        "ill": np.array([True, None, "yes", False, 2, True], dtype=object),
        "cost": np.array([-1.0, 1e9, np.inf, 50, 100, 0]),
        "who": np.array([1, 1, 1, 1, 2, 3]),
    }
    return dd.Table(columns, SCHEMA, neighbours="add-remove", unit=unit, name="visits")


def counted(rows: Rows) -> dict[tuple[Any, Any], float]:
    return {(record[0], record[1]): record[2].value for record in rows if isinstance(record[2], Estimate)}  # type: ignore[misc]


def test_each_way_a_value_is_changed_is_counted() -> None:
    assert counted(dd.Exact(visits()).losses()) == {
        ("age", "below 18: count as 18"): 1,
        ("age", "above 60: count as 60"): 2,
        ("age", "missing or no number"): 2,
        ("ward", "not listed"): 2,
        ("ward", "missing"): 1,
        ("ill", "neither true nor false"): 2,
        ("ill", "missing: count as False"): 1,
        ("cost", "below 0: count as 0"): 1,
        ("cost", "above 100: count as 100"): 2,
        ("cost", "missing or no number: count as 5.0"): 0,
    }


def test_with_a_unit_losses_are_of_the_rows_that_count_and_the_rest_is_counted() -> None:
    found = dd.Exact(visits(dd.Unit("who", 2))).losses(["ward"])
    told = counted(found)
    assert told[("(unit)", "rows beyond one person's limit")] == 2
    assert sum(value for (column, _), value in told.items() if column == "ward") <= 3
    assert "at most 2 rows of one who count, and losses are of those" in found.leaves_out
    assert (
        counted(dd.Exact(visits(dd.Unit("who", 1))).losses(["ward"]))[("(unit)", "rows beyond one person's limit")] == 1
    )


def test_losses_are_one_request_with_one_bill() -> None:
    curator = seeded_curator(visits(dd.Unit("who", 2)), dd.Budget(epsilon=1), 1)
    price = curator.price(Losses(tuple(SCHEMA)), share="1/10")
    found = curator.losses(share="1/10", request_id="once")
    assert curator.ledger.spent() == curator.budget.capacity // 10
    assert found.cost.amount == price.cost.amount
    assert np.ravel(price.margin).tolist() == [record[2].margin for record in found]  # type: ignore[union-attr]
    assert curator.losses(share="1/10", request_id="once") == found
    assert curator.ledger.spent() == curator.budget.capacity // 10
    assert query_from_json(Losses(("age",)).to_json()) == Losses(("age",))


@pytest.mark.parametrize("columns", [["nothing"], ["age", "age"], []])
def test_losses_of_what_is_no_column_are_refused_uncharged(columns: list[str]) -> None:
    curator = seeded_curator(visits(), dd.Budget(epsilon=1), 1)
    with pytest.raises(BadQuery):
        curator.losses(columns, share="1/10")
    assert curator.ledger.spent() == 0


def test_who_has_no_raw_values_refuses_losses_uncharged() -> None:
    class Plain(PassingEngine):
        """Of a third party, who knows nothing of losses."""

        def __init__(self, engine: Engine) -> None:
            super().__init__(engine)
            self.tells_losses = False

    table = dd.Table({"age": np.full(50, 30)}, dd.Schema({"age": dd.Integer(18, 60)}), name="t")
    plugged = dd.Table(Plain(table.engine), table.schema, name="t")
    curator = seeded_curator(plugged, dd.Budget(epsilon=1), 1)
    local = dd.Local(table, 1)
    for oracle in (curator, local):
        with pytest.raises(Unsupported):
            oracle.losses(share="1/10")
        assert oracle.ledger.spent() == 0


def test_every_answer_says_what_it_leaves_out() -> None:
    """A count of 2,737,767 ± 107, truth 2,938,183: the unit's limit was nowhere told."""
    curator = seeded_curator(visits(dd.Unit("who", 2)), dd.Budget(epsilon=1), 1)
    answer = curator.ask("cost", share="1/100")
    limit, clipped = "at most 2 rows of one who count", "cost below 0 counts as 0, above 100 as 100"
    assert answer.leaves_out == (limit, clipped, "a missing cost counts as 5")
    assert f"Noise only: {limit}; {clipped}" in str(answer)
    assert dd.Answer.from_json(answer.to_json()).leaves_out == answer.leaves_out
    rows = curator.sql("SELECT ward, AVG(cost) FROM visits WHERE age > 30 GROUP BY ward", share="1/100")
    assert rows.leaves_out == (
        *(limit, "age below 18 counts as 18, above 60 as 60", "a missing age adds nothing", clipped),
        *("a missing cost counts as 5", "a row without age may not meet WHERE, and then is left out"),
        "a row in none of the groups of ward is in (other)",
    )
    assert "noise only: at most 2 rows" in str(rows)
    chosen = curator.select(["ill", "age > 30"], share="1/100")
    assert limit in chosen.leaves_out
    assert dd.Selection.from_json(chosen.to_json()) == chosen


def test_an_answer_stored_before_such_things_were_told_can_still_be_read() -> None:
    answer = seeded_curator(visits(), dd.Budget(epsilon=1), 1).ask("cost", share="1/100")
    old = answer.to_json()
    for name in ("proven", "grain", "leaves_out"):
        start = old.index(f', "{name}"')
        end = old.index(', "', start + 3) if ', "' in old[start + 3 :] else len(old) - 1
        end = old.index("]", start) + 1 if name == "leaves_out" else end
        old = old[:start] + old[end:]
    read = dd.Answer.from_json(old)
    assert (read.total, read.proven, read.leaves_out, read.grain) == (answer.total, True, (), None)


def test_rows_in_no_group_are_one_more_group_at_no_cost() -> None:
    curator = seeded_curator(visits(), dd.Budget(epsilon=1), 1)
    told = curator.sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", share="1/100")
    assert [record[0] for record in told] == ["a", "b", "(other)"]
    exact = dd.Exact(visits()).sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward")
    assert [record[1].value for record in exact] == [2, 1, 3]  # type: ignore[union-attr]
    plain, other = (dd.Partition(dd.parse("ward"), dd.Value(dd.parse("1")), flag) for flag in (False, True))
    prices = [curator.price(query, share="1/100") for query in (plain, other)]
    assert prices[0].cost.amount == prices[1].cost.amount
    assert np.max(prices[0].margin) == np.max(prices[1].margin)
    assert query_from_json(other.to_json()) == other
    assert "other" not in str(plain.to_json())


def test_a_group_named_other_is_not_taken_for_the_rows_of_no_group() -> None:
    schema = dd.Schema({"g": dd.Category("(other)", "b")})
    table = dd.Table({"g": np.array(["(other)", "b", "c"], dtype=object)}, schema, name="t")
    rows = dd.Exact(table).sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    assert [(record[0], record[1].value) for record in rows] == [("(other)", 1), ("b", 1), ("(none of these)", 1)]  # type: ignore[union-attr]


def test_where_no_row_can_be_in_no_group_there_is_no_such_row() -> None:
    rows = dd.Exact(visits()).sql("SELECT ill, COUNT(*) AS n FROM visits GROUP BY ill")
    assert [record[0] for record in rows] == [False, True]


def test_a_source_in_memory_that_is_sorted_later_changes_no_loss() -> None:
    """The rows that count are chosen when the table is opened, and what cleaning did to them is kept with them."""
    columns = {"u": np.array([1, 2, 3, 4, 5, 5, 5, 5]), "n": np.array([1, 1, 1, 1, 99, 99, 99, 99])}
    schema = dd.Schema({"n": dd.Integer(0, 10)})
    table = dd.Table(columns, schema, neighbours="add-remove", unit=dd.Unit("u", 1), name="t")
    before = counted(dd.Exact(table).losses())
    columns["n"][:] = np.sort(columns["n"])[::-1]
    assert counted(dd.Exact(table).losses()) == before
    assert before["n", "above 10: count as 10"] == 1


def test_a_condition_no_public_group_can_meet_is_charged_to_everyone() -> None:
    schema = dd.Schema({"p": dd.Category("x", "y", public=True), "a": dd.Flag()})
    table = dd.Table({"p": np.array(["x", "y"]), "a": np.array([True, False])}, schema, name="t")
    curator = dd.Curator(table, budget=dd.Budget(epsilon=1))
    assert curator.ask("p = 'x' AND p = 'y' AND a", epsilon="1/10").cost.amount == 0.1


@pytest.mark.parametrize("effort", [Effort.of(share=0.1), Effort.of(tolerance=400)], ids=["share", "tolerance"])
def test_a_person_with_many_rows_moves_the_losses_by_just_what_is_charged(effort: Effort) -> None:
    schema = dd.Schema({"g": dd.Category("a", "b"), "x": dd.Integer(0, 2)})

    def curator(rows: int) -> dd.Curator:
        columns = {"who": ["p"] * rows + ["q"], "g": ["z"] * rows + ["a"], "x": [9] * rows + [1]}
        table = dd.Table(columns, schema, neighbours="add-remove", rows=10, unit=dd.Unit("who", 2))
        return dd.Curator(table, dd.Budget(rho=1))

    request, (without, charged) = Request(Losses(("g", "x")), effort), (curator(0), curator(4))
    plan, _ = charged._priced(request)
    totals = [totals_of(each._table.engine, request.query, plan) for each in (without, charged)]
    weights = {place: weight for weight, places in plan.places.items() for place in places}
    moved = [abs(int(b) - int(a)) / weights[place] for place, (a, b) in enumerate(zip(*totals, strict=True))]
    norms = charged._norms(request, plan)
    assert (sum(moved), sum(move**2 for move in moved), max(moved)) == (norms.l1, norms.l2_squared, norms.linf)
