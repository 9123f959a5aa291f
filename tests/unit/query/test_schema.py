"""Schemas say what the data may not: refusals, round trips, V6."""

import math

import pytest

from dodona.errors import BadSchema
from dodona.query.schema import Category, Flag, Integer, Real, Schema


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 1), (2, 1), (math.nan, 1), (0, math.inf), (-math.inf, 0), (True, 2), ("0", 1), (None, 1), (0, 1e151)],
)
def test_v6_bounds_that_bound_nothing_are_refused(low, high):
    with pytest.raises(BadSchema):
        Real(low, high)


def test_integer_bounds_are_whole_and_representable():
    for low, high in ((0.5, 3), (0, 2**60)):
        with pytest.raises(BadSchema, match="whole"):
            Integer(low, high)


@pytest.mark.parametrize("values", [(), ("a", "a"), ("a", 1), (1.5,), (1, True)])
def test_categories_must_be_listed_once_and_of_one_kind(values):
    with pytest.raises(BadSchema):
        Category(*values)


def test_missing_must_be_a_value_of_the_column():
    with pytest.raises(BadSchema):
        Real(0, 1, missing=2)
    with pytest.raises(BadSchema):
        Category("a", "b", missing="c")
    with pytest.raises(BadSchema):
        Flag(missing=1)


def test_a_schema_reads_what_it_describes():
    schema = Schema(
        {
            "age": Integer(17, 90, missing=40),
            "weight": Real(0, 300.5),
            "sex": Category("Female", "Male", public=True),
            "code": Category(1, 2, 3),
            "smoker": Flag(missing=False),
        }
    )
    assert Schema.read(schema.describe()) == schema
    assert hash(Schema.read(schema.describe())) == hash(schema)
    assert schema.public == ("sex",)


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ({}, "at least one column"),
        ([], "table"),
        ({"a": 1}, "described by a table"),
        ({"a": {"type": "date"}}, "real, integer, category or flag"),
        ({"a": {"type": "real"}}, "low and high"),
        ({"a": {"type": "category"}}, "values"),
        ({"a": {"type": "category", "values": "xy"}}, "list"),
        ({"a": {"type": "real", "low": 0, "high": 1, "colour": 3}}, "unknown settings: colour"),
        ({"a": {"type": "flag", "public": "yes"}}, "public must be true or false"),
        ({"a": {"type": "flag"}, "A": {"type": "flag"}}, "upper and lower case"),
        ({"": {"type": "flag"}}, "1 to 255"),
    ],
)
def test_a_bad_description_is_refused_with_the_reason(described, says):
    with pytest.raises(BadSchema, match=says):
        Schema.read(described)


def test_columns_are_found_in_any_case_but_keep_their_spelling():
    schema = Schema({"Age": Integer(0, 9)})
    assert schema.find("AGE") == "Age"
    assert schema.find("ages") is None
