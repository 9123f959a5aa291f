"""Queries are values: JSON and text give back what went in; bad JSON is refused, never a crash."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Literal, expr_from_json
from dodona.query.statistic import (
    Features,
    Gate,
    Nearest,
    Outer,
    Partition,
    Stack,
    Value,
    query_from_json,
)
from dodona.query.text import parse

finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)
leaves = st.one_of(
    st.builds(Column, st.text(min_size=1, max_size=8).filter(lambda s: "\x00" not in s)),
    st.builds(Literal, st.one_of(finite, st.booleans(), st.text(max_size=8), st.none())),
)
OPS = ["add", "sub", "mul", "div", "eq", "lt", "and", "or"]
exprs = st.recursive(
    leaves, lambda inner: st.builds(Call, st.sampled_from(OPS), st.tuples(inner, inner)), max_leaves=12
)
features = st.builds(
    Features,
    st.lists(exprs, min_size=2, max_size=2).map(tuple),
    st.one_of(st.none(), st.floats(1e-3, 1e3)),
)
points = st.lists(st.tuples(finite.filter(lambda x: abs(x) < 1e100), st.floats(-1, 1)), min_size=1, max_size=3).map(
    tuple
)
queries = st.recursive(
    st.one_of(st.builds(Value, exprs), features, st.builds(Outer, features)),
    lambda inner: st.one_of(
        st.builds(Stack, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Gate, exprs, inner),
        st.builds(Partition, exprs, inner),
        st.builds(Nearest, features, points, inner),
    ),
    max_leaves=4,
)


@given(queries)
def test_json_gives_back_the_query(query):
    assert query_from_json(json.loads(json.dumps(query.to_json()))) == query


simple = st.recursive(
    st.one_of(
        st.sampled_from([Column("x"), Column("odd name"), Literal(True), Literal(None), Literal("it's")]),
        st.builds(Literal, st.floats(min_value=0, max_value=1e12)),
    ),
    lambda inner: st.one_of(
        st.builds(Call, st.sampled_from(OPS), st.tuples(inner, inner)),
        st.builds(lambda a: Call("not", (a,)), inner),
        st.builds(lambda a: Call("neg", (a,)), inner),
        st.builds(lambda a: Call("is_null", (a,)), inner),
        st.builds(lambda a, b, c: Call("if", (a, b, c)), inner, inner, inner),
        st.builds(lambda a, b: Call("in", (a, b)), inner, inner),
        st.builds(lambda a, b, c: Call("between", (a, b, c)), inner, inner, inner),
        st.builds(lambda a, b: Call("coalesce", (a, b)), inner, inner),
    ),
    max_leaves=5,
)


@given(simple)
def test_text_gives_back_the_expression(expr):
    assert parse(str(expr)) == expr


junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["col", "lit", "op", "args", "value", "stack", "gate", "of", "where"]), inner),
    ),
    max_leaves=8,
)


@given(junk)
def test_junk_is_refused_not_crashed_on(data):
    for read in (query_from_json, expr_from_json):
        try:
            read(data)
        except BadQuery:
            continue


def test_deep_and_wide_json_is_refused():
    deep = {"lit": 1}
    for _ in range(1000):
        deep = {"op": "neg", "args": [deep]}
    with pytest.raises(BadQuery):
        expr_from_json(deep)
    query = {"value": {"lit": 1}}
    for _ in range(100):
        query = {"stack": [query]}
    with pytest.raises(BadQuery):
        query_from_json(query)


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text):
    try:
        parse(text)
    except BadQuery:
        return


TOKENS = "x 1 ( ) + - * / % & = <> < AND OR NOT IN IS NULL CASE WHEN THEN ELSE END , 'a' . BETWEEN ABS MOD IF"


@given(st.lists(st.sampled_from(TOKENS.split()), max_size=14))
def test_any_tokens_parse_or_are_refused(tokens):
    try:
        parse(" ".join(tokens))
    except BadQuery:
        return
