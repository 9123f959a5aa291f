"""Reports become a synopsis: a file that answers as the oracle over the collector does, without it."""

import numpy as np
import pytest

from dodona import release
from dodona.concepts.conjunctions import Conjunctions
from dodona.errors import Unsupported
from dodona.local import Client, Collector, invitation
from dodona.oracles.collected import Collected
from dodona.query.schema import Category, Flag, Integer, Schema
from dodona.query.select import parse_select
from dodona.query.statistic import Stack, Value, as_expr
from dodona.synopses import load
from dodona.testing.oracles import SeededBits

SCHEMA = Schema({"a": Flag(missing=False), "b": Flag(missing=False), "n": Integer(0, 9), "c": Category("x", "y", "z")})


def collected(query, people=400, epsilon=3):
    text = invitation(query, SCHEMA, epsilon)
    rng = np.random.default_rng(0)
    bits, collector = SeededBits(1), Collector(text)
    for _ in range(people):
        person = {
            "a": bool(rng.random() < 0.3),
            "b": bool(rng.random() < 0.6),
            "n": int(rng.integers(10)),
            "c": "xyz"[rng.integers(3)],
        }
        assert collector.add(Client(epsilon, bits=bits).report(text, person))
    collector.add(b"junk")
    return Collected(collector, SCHEMA)


@pytest.mark.parametrize(
    "query",
    [
        Stack((Value(as_expr("a")), Value(as_expr("n")), Value(as_expr("a AND b")))),
        Value(as_expr("n")),
        parse_select("SELECT count(*), sum(n) FROM t GROUP BY c", SCHEMA, "t").query,
    ],
    ids=["numbers", "number", "cells"],
)
def test_a_synopsis_answers_as_the_oracle_does_after_saving_and_loading(query, tmp_path):
    oracle = collected(query)
    oracle.synopsis().save(tmp_path / "r.synopsis")
    synopsis = load(tmp_path / "r.synopsis")
    parts = query.parts if isinstance(query, Stack) and len(query.parts) == 3 else ()
    for question in (query, *parts):
        for confidence in (0.8, 0.99):
            theirs, ours = (each.ask(question, confidence=confidence) for each in (oracle, synopsis))
            np.testing.assert_allclose(ours.total, theirs.total, rtol=1e-12)
            np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-12)
            np.testing.assert_allclose(ours.margin, theirs.margin, rtol=1e-12)
            assert np.shape(ours.total) == np.shape(theirs.total)
    assert synopsis.rows == 400
    assert synopsis.header.notes["refused"] == {"not a report": 1}
    assert synopsis.header.cost.amount == 3
    with pytest.raises(Unsupported, match="one question"):
        synopsis.ask("b AND NOT a")


def test_reports_to_an_arrangements_question_release_the_class():
    concepts = Conjunctions.over(["a", "b"], 2)
    oracle = collected(release.arrangement_question(SCHEMA, concepts), people=3000, epsilon=6)
    synopsis = release.arrangement(oracle, concepts)
    assert synopsis.ask("a AND NOT b").mean == pytest.approx(0.12, abs=0.03)
    assert synopsis.ask("a OR b").mean == pytest.approx(0.72, abs=0.03)


def test_alda_and_simons_response_runs_on_devices_by_name():
    query = Stack((Value(as_expr("a")), Value(as_expr("b"))))
    text = invitation(query, SCHEMA, 8, randomiser="laplace")
    assert text != invitation(query, SCHEMA, 8)
    collector, bits = Collector(text), SeededBits(2)
    for i in range(1000):
        person = {"a": i % 4 == 0, "b": True, "n": 0, "c": "x"}
        assert collector.add(Client(8, bits=bits).report(text, person))
    assert "(15)" in collector.scheme.name
    found = Collector.load(collector.save()).collected()
    assert np.abs(np.asarray(found.mean) - [0.25, 1.0]).max() < 4 * np.max(found.stddev)
    q = np.exp(-8 / 2)  # discrete Laplace of scale Delta/epsilon = 2/8: variance 2 q/(1 - q)^2
    assert np.asarray(found.stddev) == pytest.approx(np.sqrt(2 * q / (1 - q) ** 2 / 1000), rel=0.01)
    assert not collector.add(Client(8, bits=bits).report(invitation(query, SCHEMA, 8), person))
