"""Every refusal of the compiler (M16): each names what must hold, and none needs a row to be found."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from dodona.engines.table import Table
from dodona.errors import BadQuery, BadSchema
from dodona.oracles.exact import Exact
from dodona.query import text
from dodona.query.candidates import ParityProcedure, Scores, procedure_from_json, require_like, require_public_numbers
from dodona.query.expr import Call, Column, Expr, Literal, expr_from_json
from dodona.query.plan import compile_query
from dodona.query.program import Remembered, subsets
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.select import parse_select
from dodona.query.sensitivity import Norms, Reach
from dodona.query.statistic import (
    Features,
    Nearest,
    Outer,
    Partition,
    PrefixRoots,
    Products,
    Query,
    RangeRoots,
    Stack,
    Value,
    as_query,
    bucket,
    linear,
    query_from_json,
)
from dodona.query.text import parse
from dodona.query.types import boolean, label, number
from dodona.query.unit import Unit

SCHEMA = Schema(
    {
        "x": Real(-5, 10),
        "n": Integer(0, 9),
        "g": Category("a", "b"),
        "h": Category("c", "d"),
        "t": Category(True, False),
        "f": Flag(),
        "huge": Real(0, 1e149),
        "many": Integer(0, 9999),
        "wide": Integer(0, 19_999),
    }
)
X, ONE = Column("x"), Literal(1.0)


def refused(query: str | Expr | Query, says: str) -> None:
    with pytest.raises(BadQuery, match=says):
        compile_query(as_query(query), SCHEMA, level=False)


class Votes(Scores):
    """A kind of scores with nothing but what it must have."""

    def statistics(self, _schema: Schema) -> Query:
        return Value(ONE)

    def count(self, _schema: Schema) -> int:
        return 1

    def tally(self, _schema: Schema, totals: Any) -> Any:
        return totals

    def to_json(self) -> dict[str, Any]:
        return {"votes": 1}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (Call("nonsense", (X,)), "not an operation of the language"),
        (Call("abs", ()), "ABS takes 1 to 1 arguments"),
        (Call("dot", ()), "as many features as weights"),
        (Call("dot", (X, X, ONE)), "as many features as weights"),
        (linear(["1 / n"], [1.0]), "finite range"),
        (linear(["x"], [1e290]), "ordinary size"),
        (bucket("x", [1]), "at least two edges"),
        ("g = h", "two different lists"),
        ("g = x", "cannot compare one of listed values with a number in"),
        ("g = f", "cannot compare one of listed values with true or false"),
        ("CASE WHEN f THEN g ELSE 3 END = 'a'", "results of a CASE"),
        (Outer(Features((parse("huge * huge"),))), "too large for a number"),
        (Votes(), r"hand it to select\(\)"),
        (Partition(Column("many"), Partition(Column("many"), Value(ONE))), "at most 1000000 cells"),
        (Partition(Column("g"), PrefixRoots(Column("n"))), "inside a partition"),
        (PrefixRoots(Column("wide")), "at most 16,384 cells"),
        (Products((Column("f"),), Column("n"), 1), "must be -1, 0 or 1"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_has_no_plan(query: Any, says: str) -> None:
    refused(query, says)


def test_a_power_beyond_every_bound_is_null_where_it_is_no_number() -> None:
    refused("POWER(huge, 3)", "bound|range")
    assert compile_query(as_query("GREATEST(LEAST(POWER(huge, 3), 1), 0)"), SCHEMA, level=False).program.steps


def test_buckets_too_narrow_for_short_names_have_long_ones() -> None:
    plan = compile_query(Partition(bucket("x", [1, 1 + 1e-9, 1 + 2e-9, 1 + 3e-9]), Value(ONE)), SCHEMA, level=False)
    (labels,) = plan.segments[0].labels
    assert len(set(labels)) == len(labels) >= 3
    assert "1.000000001" in str(labels)


def test_a_category_of_truth_is_compared_with_truth() -> None:
    assert compile_query(as_query("t = TRUE OR t = FALSE"), SCHEMA, level=False).program.columns == ("t",)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Stack(()), "1 to 100000 parts"),
        (lambda: Features(()), "1 to 8192"),
        (lambda: Features((X,), 0.0), "radius"),
        (lambda: Nearest(Features((X,)), (), Value(ONE)), "list of points of 1 numbers"),
        (lambda: Nearest(Features((X,)), ((1e200,),), Value(ONE)), "centres must be finite"),
        (lambda: Products((), ONE, 1), "1 to 8192 conditions"),
        (lambda: Products((X,) * 8192, ONE, 2), "at most 2,000,000"),
        (lambda: Products((X,) * 73, ONE, 4), "more memory"),
        (lambda: ParityProcedure((), X, 1, 1, 1, 1), "1 to 8192 bits"),
        (lambda: ParityProcedure((X,), X, 0, 1, 1, 1), "1 to 1024 runs"),
        (lambda: ParityProcedure((X,), X, 1, 1, 0, 1), "parts must have rows"),
        (lambda: require_public_numbers([1 << 62, 1 << 62], 100), "sum to at most 100"),  # type: ignore[arg-type]
        (lambda: require_like([1, 2], [1]), "one public number for each total"),  # type: ignore[arg-type]
    ],
)
def test_queries_out_of_size_are_refused_as_they_are_made(make: Any, says: str) -> None:
    with pytest.raises(BadQuery, match=says):
        make()


PROCEDURE = ParityProcedure((X, ONE), X, 2, 3, 4, 5)


@pytest.mark.parametrize(
    "query",
    [
        Products((X, Column("f")), ONE, 2),
        PrefixRoots(Column("n")),
        RangeRoots(Column("n")),
        Nearest(Features((X,), 2.0), ((1.0,),), Value(ONE)),
        Outer(Features((X,), 1.0)),
    ],
    ids=str,
)
def test_there_and_back(query: Query) -> None:
    assert query_from_json(query.to_json()) == query
    assert str(query)


def test_a_procedure_there_and_back() -> None:
    assert procedure_from_json(PROCEDURE.to_json()) == PROCEDURE == PROCEDURE.rewritten(lambda expr: expr)
    assert str(PROCEDURE) == "the parity of 2 bits that gives x"
    sizes = {"parts": 1, "repeats": 1, "part_rows": 1}
    for bad in (None, {"parity": {"bits": [], "label": {}, **sizes}}, PROCEDURE.to_json() | {"more": 1}):
        with pytest.raises(BadQuery, match="must be a parity"):
            procedure_from_json(bad)
    with pytest.raises(BadQuery, match="must be a parity"):
        procedure_from_json({"parity": PROCEDURE.to_json()["parity"] | {"parts": 1.5}})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"nearest": {"features": {"exprs": [], "radius": 1}, "centres": [1], "of": {}}}, "a query must be"),
        ({"range_roots": X.to_json(), "more": 1}, "a query must be"),
        ({}, "a query must be"),
        ({"features": {"exprs": []}}, "features must be"),
        ({"features": {"exprs": [X.to_json()], "radius": True}}, "finite number"),
        ({"outer": {"exprs": [X.to_json()], "radius": 1e301}}, "finite number"),
    ],
)
def test_data_that_is_no_query(data: Any, says: str) -> None:
    with pytest.raises(BadQuery, match=says):
        query_from_json(data)


@pytest.mark.parametrize("value", [1e301, [], {}])
def test_data_that_is_no_literal(value: Any) -> None:
    with pytest.raises(BadQuery):
        expr_from_json({"lit": value})


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("FLOOR()", "not part of the language"),
        ("CEIL()", "not part of the language"),
        ("x IS 3", "IS takes NULL, TRUE or FALSE"),
        ("CASE " + "WHEN f THEN 1 " * 101 + "END", "nest at most 100"),
    ],
)
def test_texts_that_say_nothing(question: str, says: str) -> None:
    with pytest.raises(BadQuery, match=says):
        parse(question)


@pytest.mark.parametrize(
    ("select", "says"),
    [
        ("SELECT SUM(*) FROM t", r"\* is for COUNT alone"),
        ("SELECT COUNT() FROM t", "row expression is missing"),
    ],
)
def test_selects_that_say_nothing(select: str, says: str) -> None:
    with pytest.raises(BadQuery, match=says):
        parse_select(select, SCHEMA, "t")


def test_a_star_in_a_columns_place_is_refused() -> None:
    with pytest.raises(BadQuery, match=r"\* is not a value of a row"):
        text.translate(exp.Column(this=exp.Star()))


@pytest.mark.parametrize("error", [RecursionError(), sqlglot.errors.ParseError("no place given")])
def test_whatever_befalls_the_parser_is_a_refusal(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(sqlglot, "parse", failing)
    with pytest.raises(BadQuery, match=r"nested too deeply|cannot be read") as found:
        parse("x")
    assert found.value.position is None


# -- small values ------------------------------------------------------------------------------------------------------


def test_types_and_schemas_say_what_they_are() -> None:
    kinds = [number(0.0, 1.0, integral=False, nullable=False), boolean(False), label(("a",), False)]
    assert [str(kind) for kind in kinds] == ["a number in [0, 1]", "true or false", "one of listed values"]
    assert repr(Schema({"f": Flag()})).startswith("Schema({'f': Flag(")
    with pytest.raises(BadSchema, match="must be a Real, Integer, Date, Timestamp, Category, Flag or Text"):
        Schema({"f": float})  # type: ignore[dict-item]


def test_scores_count_rows_unless_they_say_otherwise() -> None:
    votes = Votes()
    assert votes.linear
    assert votes.sensitivity("replace") == 1


def test_a_remembered_function_travels_without_what_it_remembers() -> None:
    counted = Remembered(subsets)
    assert counted(5, 2) == 1 + 5 + 10
    kind, arguments = counted.__reduce__()
    assert kind(*arguments)(5, 2) == 16
    assert arguments == (subsets,)


def test_no_vector_has_no_norm_and_no_other_relation_a_reach() -> None:
    assert Norms.stack([]) == Norms(Fraction(0), Fraction(0), Fraction(0))
    with pytest.raises(BadSchema, match="'replace' or 'add-remove'"):
        Reach(Norms.stack([]), Norms.stack([])).under("alike")


@pytest.mark.parametrize(
    "given",
    [
        ("", 1),
        ("who", 1, ("g",)),
        ("who", 1, (), 2),
        (None,),
        (None, 3, (), 1),
        ("who", None, ("g",), 1),
        ("who", 1, ("g",), 1, 1),
        ("who", 0),
        ("who", True),
        ("who", 2, ("g",), 3),
    ],
)
def test_units_that_bound_nothing(given: tuple[Any, ...]) -> None:
    with pytest.raises(BadSchema):
        Unit(*given)


def test_units_as_data_and_beside_a_schema() -> None:
    unit = Unit("who", 4, "g", 2)  # type: ignore[arg-type]
    assert Unit.read(unit.describe()) == unit == Unit.read(unit.describe() | {"group": "g"})
    assert Unit.read(Unit("who", 4).describe()) == Unit("who", 4)
    assert str(unit) == "one who with at most 4 row(s), at most 2 per g"
    assert unit.checked(SCHEMA) is unit
    for bad in (None, {"max_rows": 1, "odd": 1}, {"column": "who", "max_rows": 1, "odd": 1}):
        with pytest.raises(BadSchema, match="a unit is"):
            Unit.read(bad)
    with pytest.raises(BadSchema, match="must list columns"):
        Unit.read(unit.describe() | {"group": [1]})
    public = Schema({"g": Category("a", "b", public=True)})
    for odd, schema in ((Unit("X", 1), SCHEMA), (unit, public), (Unit("who", 1, ("z",), 1), SCHEMA)):
        with pytest.raises(BadSchema):
            odd.checked(schema)


def test_a_query_too_deep_for_the_interpreter_is_refused() -> None:
    expr: Expr = X
    for _ in range(5000):
        expr = Call("neg", (expr,))
    refused(Value(expr), "nested too deeply")


def test_lists_that_interleave_too_often_are_refused() -> None:
    odd = [f"v{i}" for i in range(1, 1200, 2)]
    schema = Schema({"f": Flag(), "a": Category(*odd), "b": Category(*reversed(odd))})
    with pytest.raises(BadQuery, match="more than 256 places"):
        compile_query(as_query("CASE WHEN f THEN a ELSE b END = 'v1'"), schema, level=True)


@pytest.mark.parametrize(("question", "rows"), [("k = 0", 3), ("k = 5", 2), ("k = 2", 1), ("5 = k", 2), ("k <> 5", 4)])
def test_a_listed_whole_number_is_compared_by_its_place_in_the_list(question: str, rows: int) -> None:
    table = Table({"k": [0, 5, 2, 0, 5, 0]}, Schema({"k": Category(0, 5, 2)}))
    assert Exact(table).ask(question).total == rows
