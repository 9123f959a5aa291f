"""Schemas say what the data may not: refusals, round trips, V6."""

import math

import pytest

from dodona.errors import BadSchema
from dodona.query.schema import Category, Flag, Integer, Real, Schema, required
from dodona.query.unit import Unit


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
        ({"a": {"type": "words"}}, "real, integer, date, timestamp, category, flag, text"),
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("age", "AGE"),
        ("été", "ÉTÉ"),  # in the case of a letter that only some engines fold
        ("caf\u00e9", "cafe\u0301"),  # one accent, encoded in two ways
        ("CAFE\u0301", "caf\u00e9"),
        ("straße", "STRASSE"),
        ("\u212a", "k"),  # the Kelvin sign
        ("\u0130", "i"),  # as Java compares, and Spark with it
        ("\u0131", "I"),
        ("\u0345\u0301", "\u0301\u0345"),  # marks in another order, one of which folds to a letter
    ],
)
def test_names_that_some_engine_could_take_for_one_are_refused(one: str, other: str) -> None:
    with pytest.raises(BadSchema, match="must differ in more than upper and lower case"):
        Schema({one: Flag(), other: Flag()})
    with pytest.raises(BadSchema, match="must not be a column of the schema"):
        Unit(other, max_rows=1).checked(Schema({one: Flag()}))


def test_a_question_may_change_the_case_of_a_to_z_and_nothing_else() -> None:
    schema = Schema({"Été": Flag(), "Kelvin": Flag(), "straße": Flag(), "long": Flag()})
    assert [schema.find(name) for name in ("Été", "ÉtÉ", "KELVIN", "STRAßE", "LONG")] == [
        *("Été", None, "Kelvin", "straße", "long")
    ]
    for other in ("été", "E\u0301te\u0301", "\u212aelvin", "STRASSE", "strasse", "\u017fong"):
        assert schema.find(other) is None


def test_half_a_character_is_no_name() -> None:
    for name in ("\ud800", "a\udfff", "a\x00", ""):
        with pytest.raises(BadSchema, match="must be text"):
            Schema({name: Flag()})


@pytest.mark.parametrize(
    ("column", "counts_as"),
    [
        ({"type": "flag", "required": True}, False),
        ({"type": "integer", "low": 1, "high": 5, "required": True}, 1),
        ({"type": "real", "low": -1, "high": 5, "required": True, "missing": 2}, 2),
        ({"type": "category", "values": ["x", "y"], "required": True}, "x"),
    ],
)
def test_a_required_column_is_never_missing_and_a_stray_gap_has_a_value(column, counts_as):
    schema = Schema.read({"c": column})
    assert schema["c"].missing == counts_as
    assert schema.describe()["c"] == column
    assert Schema.read(schema.describe()) == schema
    assert required(schema["c"]) == schema["c"]


def test_required_is_true_or_false():
    with pytest.raises(BadSchema, match="required"):
        Schema.read({"c": {"type": "flag", "required": "yes"}})
    assert required(Category("a", "b", public=True)) == Category("a", "b", public=True, required=True)
