"""What a schema says of words: cleaning, aliases, the other value, and open text."""

from __future__ import annotations

from typing import Any

import pytest

import dodona as dd
from dodona.errors import BadSchema
from dodona.query.columns import required
from dodona.query.schema import Schema
from dodona.query.words import Cleaning


def test_cleaning_says_which_listed_value_a_text_means() -> None:
    city = dd.Category("Oslo", "Ås", fold="case", trim=True, aliases={"Oslo": ["Kristiania "]}, other=True)
    assert city.values == ("Oslo", "Ås", "other")
    assert city.cleaning.codes(city.values) == {"oslo": 0, "Ås": 1, "other": 2, "kristiania": 0}
    assert city.cleaning.text("\t OSLÅ\r\n") == "oslÅ"  # only A to Z have two cases
    assert city.cleaning.text("oslo\u00a0") == "oslo\u00a0"  # and only ASCII has blanks


@pytest.mark.parametrize(
    "column",
    [
        dd.Category("Oslo", "Bergen", fold="case", trim=True, aliases={"Oslo": ["O.", "Kristiania"]}, other="Bergen"),
        dd.Category("a", "b", aliases={"a": ["A"]}, required=True),
        dd.Category(1, 2, 3, other=3),
        dd.Text(20),
        dd.Text(20, trim=True, fold="case", missing="none", public=True),
        dd.Text(3, required=True),
    ],
)
def test_a_described_column_is_read_again_and_counts_in_the_digest(column: Any) -> None:
    schema = Schema({"c": column})
    assert Schema.read(schema.describe()) == schema
    assert schema.digest != Schema({"c": dd.Category("Oslo", "Bergen")}).digest
    assert required(column).missing is not None
    assert repr(eval(repr(column), {"Category": dd.Category, "Text": dd.Text})) == repr(column)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: dd.Category("a", "A", fold="case"), "still differ"),
        (lambda: dd.Category("a", "b", aliases={"a": ["x"], "b": ["x"]}), "one value"),
        (lambda: dd.Category("a", "b", aliases={"a": ["b"]}), "one value"),
        (lambda: dd.Category("a", "b", aliases={"c": ["x"]}), "listed"),
        (lambda: dd.Category("a", "b", aliases={"a": "x"}), "must list"),
        (lambda: dd.Category("a", "b", aliases={"a": [1]}), "must be text"),
        (lambda: dd.Category(1, 2, fold="case"), "texts"),
        (lambda: dd.Category(1, 2, other=True), "other must be"),
        (lambda: dd.Category("a", "b", other="c"), "other must be"),
        (lambda: dd.Category("a", fold="all"), "fold"),
        (lambda: dd.Category("a", trim=1), "trim"),  # type: ignore[arg-type]
        (lambda: dd.Text(0), "max_length"),
        (lambda: dd.Text(True), "max_length"),
        (lambda: dd.Text(5, missing="longer"), "missing"),
        (lambda: dd.Text(5, missing="\x00"), "missing"),
        (lambda: Schema.read({"t": {"type": "text"}}), "max_length"),
        (lambda: Schema.read({"t": {"type": "text", "max_length": 3, "aliases": {}}}), "unknown"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any, why: str) -> None:
    with pytest.raises(BadSchema, match=why):
        make()


def test_a_plain_category_is_as_it_was() -> None:
    assert dd.Category("a", "b").cleaning == Cleaning()
    assert dd.Category("a", "b").describe() == {"type": "category", "values": ["a", "b"]}
