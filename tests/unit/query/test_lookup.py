"""Columns that a public table adds: what they are, what they cost to state, and what is refused."""

from __future__ import annotations

import pytest

import dodona as dd
from dodona.errors import BadSchema
from dodona.query.plan import compile_query
from dodona.query.program import Listing
from dodona.query.schema import PublicColumns, extended
from dodona.query.statistic import as_query
from dodona.testing.reference import reference_totals

SCHEMA = dd.Schema(
    {"zip": dd.Category("01", "02", "03", missing="03"), "n": dd.Integer(0, 10**9), "x": dd.Real(0, 1), "t": dd.Text(9)}
)


def public(**columns: list) -> PublicColumns:
    return dd.Public(columns).called("zips")


def test_a_looked_up_column_is_read_by_the_value_of_its_key():
    schema, matched = extended(
        SCHEMA, public(zip=["01", "02"], city=["b", "a"], area=[2.5, 4.0]), "ZIP", "zip", shared=True
    )
    assert list(schema) == ["zip", "n", "x", "t", "city", "area"]
    assert schema.stored == ("zip", "n", "x", "t")
    assert matched not in schema
    rows = [{"zip": "01"}, {"zip": "02"}, {"zip": None}, {"zip": "01"}]
    for text, total in (("city = 'b'", 2), ("area >= 4", 1), ("city IS NULL", 1)):
        program = compile_query(as_query(text), schema, level=False).program
        assert program.columns == ("zip",)
        assert reference_totals(program, rows) == [total]


def test_whole_numbers_far_apart_are_looked_up_by_their_own_value():
    schema, _ = extended(SCHEMA, public(n=[5, 10**9, 70], w=["a", "b", "c"]), "n", "n", shared=True)
    rows = [{"n": value} for value in (4, 5, 6, 69, 70, 71, 10**9, None, 10**10)]  # the last is clipped to the bound
    for label, total in (("a", 1), ("b", 2), ("c", 1)):
        program = compile_query(as_query(f"w = '{label}'"), schema, level=False).program
        assert reference_totals(program, rows) == [total]


def test_a_column_is_never_missing_where_every_key_has_a_row():
    schema, _ = extended(SCHEMA, public(zip=["01", "02", "03"], city=["b", "a", "a"]), "zip", "zip", shared=True)
    assert schema["city"] == dd.Category("a", "b", required=True)


def test_names_of_both_tables_are_told_apart():
    schema, _ = extended(SCHEMA, public(code=["01"], X=[3.0]), "zip", "code", shared=False)
    assert "zips.X" in schema
    assert "code" in schema


def test_what_a_public_table_says_is_part_of_what_the_schema_says():
    """Two tables alike in columns, other in values: other questions, other digests, no shared plans."""
    one = extended(SCHEMA, public(zip=["01", "02"], city=["b", "a"]), "zip", "zip", shared=True)[0]
    other = extended(SCHEMA, public(zip=["01", "02"], city=["a", "b"]), "zip", "zip", shared=True)[0]
    again = extended(SCHEMA, public(zip=["01", "02"], city=["b", "a"]), "zip", "zip", shared=True)[0]
    assert dict(one) == dict(other)
    assert one != other
    assert one.digest != other.digest != SCHEMA.digest
    assert (one, hash(one), one.digest) == (again, hash(again), again.digest)


@pytest.mark.parametrize(
    ("columns", "on", "key", "said"),
    [
        ({"zip": ["01", "01"], "a": [1, 2]}, "zip", "zip", "unique"),
        ({"zip": [1, 2]}, "zip", "zip", "of one type"),
        ({"zip": ["01"]}, "x", "zip", "is real"),
        ({"zip": ["01"]}, "t", "zip", "nobody listed"),
        ({"zip": ["01"]}, "nothing", "zip", "not a column to join on"),
        ({"zip": ["01"]}, "zip", "nothing", "must have the column"),
        ({"n": list(range(70_000))}, "n", "n", "65,536 keys"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_the_reason(columns, on, key, said):
    with pytest.raises(BadSchema, match=said):
        extended(SCHEMA, public(**columns), on, key, shared=True)


def test_a_listing_holds_finite_numbers():
    for odd in ([], [float("nan")], [1.0, float("inf")]):
        with pytest.raises(ValueError, match="listing"):
            Listing(odd)
    assert Listing([1, None]).known == (1.0,)
