"""Respondents' devices and collectors: the same program as engines, accounts that hold, reports that fit or are
refused.
"""

import json

import numpy as np
import pytest

from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import read_columns
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, BadTable, Unsupported
from dodona.local import Client, Collector, invitation
from dodona.local.client import holdings_of
from dodona.local.holdings import Holdings
from dodona.oracles.collected import Collected
from dodona.oracles.exact import Exact
from dodona.oracles.local import Local
from dodona.query.plan import compile_query
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Features, Outer, Products, Stack, Value, as_expr
from dodona.testing.oracles import SCHEMA, SeededBits, questions

PEOPLE = [
    {"age": 70, "sex": "Male", "smoker": True, "income": 120.5},
    {"age": None, "sex": "Other", "smoker": 2, "income": float("nan")},
    {"age": 200, "sex": None, "smoker": 0, "income": -5},
    {"age": 33.5, "sex": "Female", "smoker": 1, "income": 1e9},
    {"age": 18, "sex": "Female", "smoker": False, "income": 999},
]


def columns():
    return {name: [person[name] for person in PEOPLE] for name in SCHEMA}


def test_a_device_computes_what_an_engine_does():
    vectors, rows = read_columns(
        {
            "age": np.array([np.nan if p["age"] is None else p["age"] for p in PEOPLE]),
            "sex": np.array([p["sex"] for p in PEOPLE], dtype=object),
            "smoker": np.array([float(p["smoker"]) for p in PEOPLE]),
            "income": np.array([p["income"] for p in PEOPLE]),
        },
        SCHEMA,
    )
    engine = MemoryEngine(SCHEMA, vectors, rows)
    products = Products((as_expr("smoker"), as_expr("age >= 30")), as_expr("CASE WHEN smoker THEN 1 ELSE -1 END"), 2)
    for query in [*questions(), products]:
        program = compile_query(query, SCHEMA, level=False).program
        together = Holdings(program, engine.run(program, 0, rows), rows)
        for number, person in enumerate(PEOPLE):
            alone = holdings_of(program, person)
            for block in program.blocks:
                if block.order is not None:
                    np.testing.assert_array_equal(alone.bits(block)[0], together.bits(block)[number])
                    assert alone.weight(block)[0] == together.weight(block)[number]
                    continue
                np.testing.assert_array_equal(alone.values(block)[0], together.values(block)[number], str(query))
                if block.key is not None:
                    assert alone.cells(block)[0] == together.cells(block)[number], str(query)


def test_reports_add_up_to_the_truth():
    query = Stack((Value(as_expr("smoker")), Value(as_expr("age >= 40"))))
    text = invitation(query, SCHEMA, 2)
    rng = np.random.default_rng(0)
    people = [
        {"age": int(a), "smoker": bool(s)}
        for a, s in zip(rng.integers(0, 100, 900), rng.random(900) < 0.25, strict=True)
    ]
    first, second = Collector(text), Collector(text)
    source = SeededBits(1)
    for number, person in enumerate(people):
        report = Client(2, bits=source).report(text, person)
        assert len(report) < 64
        (first if number % 2 else second).add(report)
    both = first.merge(second)
    found = both.collected()
    truth = [np.mean([p["smoker"] for p in people]), np.mean([p["age"] >= 40 for p in people])]
    assert found.reports == 900
    assert np.all(np.abs(found.mean - truth) < 5 * found.stddev)
    oracle = Collected(Collector.load(both.save()), SCHEMA)
    np.testing.assert_allclose(oracle.ask(query).mean, found.mean)
    assert oracle.ask("smoker").mean == pytest.approx(found.mean[0])
    assert oracle.select(query).index == int(np.argmax(found.mean))
    assert oracle.price(query).cost.unit == "nothing"
    with pytest.raises(Unsupported, match="one question"):
        oracle.ask("income")


def test_equal_reports_are_of_two_people_for_all_a_collector_knows():
    """There are two reports to a yes-no question: to drop equals would leave a half as the estimate, come what may."""
    text = invitation(Value(as_expr("smoker")), SCHEMA, 1)
    reports = [Client(1, bits=SeededBits(i)).report(text, {"smoker": True, "age": 40}) for i in range(400)]
    assert len(set(reports)) == 2
    collector = Collector(text)
    assert collector.add_all(reports) == collector.reports == 400
    found = collector.collected()
    assert abs(float(found.mean) - 1) < 5 * float(found.stddev) < 1


def test_misfit_reports_are_counted_and_never_added():
    query = Value(as_expr("smoker"))
    text, other = invitation(query, SCHEMA, 1), invitation(query, SCHEMA, 2)
    report = Client(9).report(text, {"smoker": True})
    collector = Collector(text)
    assert collector.add(report)
    bad = {
        "another scheme": Client(9).report(other, {"smoker": True}),
        "another version": report[:2] + b"\x09" + report[3:],
        "not a report": b"hello, I am no report",
        "another shape": report + b"\x00" * 8,
        "out of range": report[:-8] + (1 << 40).to_bytes(8, "little"),
    }
    for reason, wrong in bad.items():
        assert not collector.add(wrong)
        assert collector.refused[reason] == 1
    assert not collector.add(b"")
    assert not collector.add("text")
    assert collector.reports == 1
    assert collector.refused["not a report"] == 3


def test_a_failed_report_is_paid_for():
    text = invitation(Value(as_expr("smoker AND age > 3")), SCHEMA, 0.6)
    client = Client(1)
    with pytest.raises(BadTable, match="age"):
        client.report(text, {"smoker": True})
    assert client.left == pytest.approx(0.4)


def test_invitations_that_do_not_fit_are_refused():
    text = invitation(Value(as_expr("smoker")), SCHEMA, 1)
    data = json.loads(text)
    for change in ({"version": 2}, {"scheme": "0" * 16}):
        with pytest.raises(BadQuery):
            Collector(json.dumps({**data, **change}))
    with pytest.raises(BadQuery):
        Collector("nonsense")
    for epsilon in (0, -1, 1e9, float("nan")):
        with pytest.raises(BadEffort):
            invitation(Value(as_expr("smoker")), SCHEMA, epsilon)


def test_collectors_of_different_invitations_do_not_merge():
    one, two = (Collector(invitation(Value(as_expr("smoker")), SCHEMA, e)) for e in (1, 2))
    with pytest.raises(Unsupported, match="same invitation"):
        one.merge(two)
    with pytest.raises(Unsupported, match="at least one report"):
        one.collected()
    with pytest.raises(BadQuery):
        Collector.load(one.save().replace('"sizes": [', '"sizes": [9'))


def test_a_copy_goes_its_own_way():
    text = invitation(Value(as_expr("smoker")), SCHEMA, 1)
    first = Collector(text)
    first.add(Client(1).report(text, {"smoker": True}))
    second = first.copy()
    second.add(Client(1).report(text, {"smoker": True}))
    assert (first.reports, second.reports) == (1, 2)
    assert (first.save(), first.scheme) == (first.copy().save(), second.scheme)


def test_every_kind_of_question_can_be_collected():
    rows = [
        {"age": a, "sex": s, "smoker": a % 3 == 0, "income": 10 * a} for a in range(100) for s in ("Female", "Male")
    ]
    table = Table({name: [row[name] for row in rows] for name in SCHEMA}, SCHEMA, name="rows")
    truth, source = Exact(table), SeededBits(5)
    for query in questions():
        text = invitation(query, SCHEMA, 25)
        collector = Collector(text)
        assert Collector.of(collector.scheme, SCHEMA).save() == collector.save()
        for row in rows:
            assert collector.add(Client(25, bits=source).report(text, row))
        found = collector.collected()
        exact = np.asarray(truth.ask(query).mean)
        assert np.all(np.abs(found.mean - exact) <= 6 * found.stddev + 1e-5), str(query)


def test_a_radius_beyond_all_rows_is_refused_and_not_an_error():
    schema = Schema({"x": Real(0, 1e-320)})
    with pytest.raises(BadQuery, match="smaller radius"):
        invitation(Outer(Features((as_expr("x"),), 1e100)), schema, 1)
    everyone = Local(Table({"x": np.zeros(3)}, schema), epsilon=1)
    with pytest.raises(BadQuery, match="smaller radius"):
        everyone.ask(Outer(Features((as_expr("x"),), 1e100)), share=0.5)
    assert everyone.left == 1
