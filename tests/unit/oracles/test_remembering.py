"""What a curator told is told again for nothing: where it means the same, is good enough, and was told to the asker."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.errors import AnswerLost, BudgetSpent, Unsupported
from dodona.query.meaning import one_form
from dodona.query.statistic import as_query
from dodona.testing import seeded_curator

SCHEMA = dd.Schema({"age": dd.Integer(0, 99), "f": dd.Flag(), "g": dd.Flag()})
BUDGET = dd.Budget(epsilon=1, delta=1e-6)


def table(rows: int = 1000, schema: dd.Schema = SCHEMA, **more: Any) -> dd.Table:
    rng = np.random.default_rng(0)
    held = {"age": rng.integers(0, 100, rows), "f": rng.random(rows) < 0.3, "g": rng.random(rows) < 0.5}
    return dd.Table(held, schema, name="t", population="t", **more)


def opened(place: Any, *, create: bool = False, analyst: str = "me", **more: Any) -> dd.Remembering:
    return dd.Remembering(dd.Curator(table(**more), BUDGET, ledger=place, create=create, analyst=analyst))


def spent(oracle: dd.Remembering) -> int:
    return oracle._curator.ledger.spent()


def test_the_same_meaning_is_told_again_for_nothing_and_says_so():
    oracle = dd.Remembering(seeded_curator(table(), BUDGET, 1))
    first = oracle.ask("f AND g", tolerance="0.05")
    paid = spent(oracle)
    assert paid > 0
    assert "free: asked before" in str(oracle.price("g AND f", tolerance="0.05"))
    for text in ("g AND f", "NOT (NOT f OR NOT g)", "f AND g"):
        again = oracle.ask(text, tolerance="0.05")
        assert (again.total, again.margin, again.proven) == (first.total, first.margin, True)
        assert again.cost.amount == 0
        assert "free: asked before" in str(again)
    assert spent(oracle) == paid
    for text, effort in (
        ("f OR g", {"tolerance": "0.05"}),
        ("g AND f", {"tolerance": "0.04"}),
        ("f AND g", {"share": "0.3"}),
    ):
        before = spent(oracle)
        oracle.ask(text, **effort)
        assert spent(oracle) > before


def test_a_better_answer_stands_for_a_worse_one_and_not_the_other_way():
    oracle = dd.Remembering(seeded_curator(table(), BUDGET, 1))
    oracle.ask("age < 18", share="0.05")
    paid = spent(oracle)
    worse = [oracle.ask("NOT age >= 18", share=share).total for share in ("0.05", "0.01", "0.001")]
    assert len(set(worse)) == 1
    assert spent(oracle) == paid
    better = oracle.ask("age <= 17", share="0.1")
    assert spent(oracle) > paid
    assert oracle.ask("age < 18", share="0.01").total == better.total  # the best there is
    paid = spent(oracle)
    oracle.ask("age < 18", share="0.05", confidence="0.99")  # another error bar is another answer
    assert spent(oracle) > paid
    paid = spent(oracle)
    assert oracle.ask("age < 18", tolerance=float(better.margin) / 1000 * 1.01).total == better.total
    oracle.ask("age < 18", tolerance=float(better.margin) / 1000 * 0.9)
    assert spent(oracle) > paid


def test_statements_are_remembered_as_they_are_printed():
    oracle = dd.Remembering(seeded_curator(table(), BUDGET, 1))
    text = "SELECT COUNT(*) AS n FROM t WHERE f AND age < 18"
    first = oracle.sql(text, tolerance=60)
    paid = spent(oracle)
    assert list(oracle.sql("SELECT COUNT(*) AS n FROM t WHERE age <= 17 AND f", tolerance=60)) == list(first)
    assert spent(oracle) == paid
    oracle.sql(text, tolerance=61)  # an error of what is printed is kept for that very statement
    assert spent(oracle) > paid
    paid = spent(oracle)
    by_group = "SELECT f, COUNT(*) AS n FROM t GROUP BY f"
    assert list(oracle.sql(by_group, share="0.1")) == list(oracle.sql(by_group, share="0.1"))
    twice = spent(oracle) - paid
    assert twice <= Fraction(101, 1000) * BUDGET.capacity


def test_it_outlives_handles_forks_and_restarts(tmp_path):
    place = tmp_path / "l"
    first = opened(place, create=True)
    told = first.ask("f AND g", share="0.1").total
    paid = spent(first)
    assert first.ask("g AND f", share="0.1").total == told
    assert opened(place).ask("g AND f", share="0.1").total == told
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(theirs, json.dumps(first.ask("g AND f", share="0.05").total).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        assert json.loads(pipe.read()) == told
    os.waitpid(child, 0)
    beside = opened(place)
    assert (
        beside.ask("age < 30", share="0.1").total == first.ask("age <= 29", share="0.1").total
    )  # told by another handle
    assert spent(first) < 2.1 * paid
    first._curator.ledger.verify()


def test_nobody_is_told_what_another_was_nor_what_meant_something_else(tmp_path):
    place = tmp_path / "l"
    mine = opened(place, create=True)
    mine.ask("f AND g", share="0.1")
    for other in (
        opened(place, analyst="you"),
        opened(place, rows=900),
        opened(place, schema=dd.Schema({**SCHEMA, "age": dd.Integer(0, 120)})),
    ):
        before = spent(other)
        other.ask("f AND g", share="0.1")
        assert spent(other) > before


def test_how_a_person_counts_is_part_of_the_meaning():
    rng = np.random.default_rng(0)
    held = {"who": rng.integers(0, 200, 1000), "f": rng.random(1000) < 0.3}
    visits = dd.Table(held, dd.Schema({"f": dd.Flag()}), neighbours="add-remove", unit=dd.Unit("who", 3), rows=1000)
    oracle = dd.Remembering(seeded_curator(visits, BUDGET, 2))
    oracle.ask("f", share="0.1")
    paid = spent(oracle)
    oracle.bounded(max_rows=1).ask("f", share="0.1")
    assert spent(oracle) > paid
    paid = spent(oracle)
    oracle.bounded(max_rows=1).ask("f = TRUE", share="0.1")
    assert spent(oracle) == paid


def test_a_name_of_ours_that_another_question_took_is_no_memory():
    oracle = dd.Remembering(seeded_curator(table(), BUDGET, 1))
    asked = one_form(as_query("f AND g"), SCHEMA)
    from dodona.oracles.effort import Effort
    from dodona.oracles.oracle import Request

    name = oracle._name(Request(asked, Effort.of(share="0.1")))
    forged = oracle._curator.ask("age < 3", share="0.1", request_id=f"{name} 7")
    told = oracle.ask("f AND g", share="0.1")
    assert told.total != forged.total
    assert told.cost.amount > 0


def test_a_lost_answer_is_paid_anew_and_then_remembered():
    oracle = dd.Remembering(seeded_curator(table(), BUDGET, 1))
    curator = oracle._curator
    real = curator._during

    def broken(work: Any) -> Any:
        raise OSError("never told")

    curator._during = broken
    with pytest.raises(AnswerLost):
        oracle.ask("f AND g", share="0.1")
    curator._during = real
    paid = spent(oracle)
    told = oracle.ask("g AND f", share="0.1")
    assert spent(oracle) > paid
    paid = spent(oracle)
    assert oracle.ask("f AND g", share="0.1").total == told.total
    assert spent(oracle) == paid


def test_an_amount_too_long_to_stand_in_a_name_is_found_by_it_all_the_same():
    oracle = dd.Remembering(seeded_curator(table(), BUDGET, 1))
    share = Fraction(10**60 + 7, 10**61 + 9)
    told = oracle.ask("f AND g", share=share)
    paid = spent(oracle)
    assert oracle.ask("g AND f", share=share).total == told.total
    assert spent(oracle) == paid


@pytest.mark.parametrize("seed", range(3))
def test_a_model_of_asking(tmp_path, seed):
    """In whatever order, by whichever handle: one draw a meaning and effort, and what is charged is what was drawn."""
    rng = np.random.default_rng(seed)
    place = tmp_path / "l"
    handles = [opened(place, create=True)]
    groups = [["f AND g", "g AND f"], ["age < 18", "NOT age >= 18", "age <= 17"], ["f", "f = TRUE"], ["NOT f"]]
    drawn: dict[tuple[int, str], float] = {}
    for _ in range(40):
        if rng.random() < 0.15:
            handles.append(opened(place))
        handle = handles[rng.integers(len(handles))]
        group, share = int(rng.integers(len(groups))), str(rng.choice(["0.01", "0.02", "0.05"]))
        text = str(rng.choice(groups[group]))
        before = spent(handle)
        try:
            total = float(handle.ask(text, share=share).total)
        except BudgetSpent:
            continue
        best = max((one for (of, one) in drawn if of == group), default="0")
        if best >= share:
            assert spent(handle) == before
            assert total == drawn[group, best]
        else:
            assert spent(handle) > before
            drawn[group, share] = total
    charged = sum(float(share) for _, share in drawn)
    assert spent(handles[0]) == pytest.approx(charged * BUDGET.capacity, rel=1e-6)
    handles[0]._curator.ledger.verify()


def test_quantiles_choices_and_procedures_go_to_the_curator():
    oracle = dd.Remembering(seeded_curator(table(), BUDGET, 1))
    for _ in range(2):
        before = spent(oracle)
        oracle.quantile("age", 0.5, share="0.05")
        oracle.select(["f", "g"], share="0.05")
        assert spent(oracle) > before
    with pytest.raises(Unsupported, match="where its ledger is"):
        dd.Remembering(dd.Exact(table()))
