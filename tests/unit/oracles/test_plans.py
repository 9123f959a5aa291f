"""Plans are kept by what a question says: priced and asked, it is compiled once; alike in Python is not the same."""

from __future__ import annotations

from typing import Any

import pytest

import dodona as dd
from dodona.oracles import noise
from dodona.oracles.noise import MOST_PLANS, Plans
from dodona.query.expr import Call, Column, Literal
from dodona.query.plan import compile_query
from dodona.query.schema import Flag, Real, Schema
from dodona.query.statistic import Value, as_expr

SCHEMA = Schema({"x": Real(0, 1), "f": Flag()})


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that were compiled, in order."""
    seen: list[str] = []

    def counting(query: Any, schema: Schema, *, level: bool) -> Any:
        seen.append(str(query))
        return compile_query(query, schema, level=level)

    monkeypatch.setattr(noise, "compile_query", counting)
    return seen


def test_a_question_that_is_priced_and_then_asked_is_compiled_once(compiled: list[str]) -> None:
    table = dd.Table({"x": [0.5] * 10, "f": [True] * 10}, SCHEMA)
    curator = dd.Curator(table, dd.Budget(epsilon=1))
    curator.price("x", epsilon=0.1)
    curator.price("x", epsilon=0.2)
    curator.ask("x", epsilon=0.2)
    assert len(compiled) == 1
    curator.ask("x", tolerance=100)  # by tolerance the noise is levelled: another plan
    assert len(compiled) == 2


def test_equal_in_python_is_not_the_same_question() -> None:
    held = Plans(SCHEMA)
    as_number, as_flag = (Value(Call("if", (Column("f"), Literal(v), Literal(v)))) for v in (1.0, True))
    assert as_number == as_flag
    number, flag = held.of(as_number, level=False), held.of(as_flag, level=False)
    assert number is not flag
    assert flag.program == compile_query(as_flag, SCHEMA, level=False).program


def test_few_are_kept_and_the_oldest_goes(compiled: list[str]) -> None:
    held = Plans(SCHEMA)
    questions = [Value(as_expr(f"LEAST(x, 0.{i})")) for i in range(1, MOST_PLANS + 2)]
    for question in [*questions, questions[-1], questions[1], questions[0]]:
        held.of(question, level=False)
    assert compiled == [*map(str, questions), str(questions[0])]
