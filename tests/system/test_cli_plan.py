"""``dodona plan``: verdicts for each trust model, side by side, from theorems alone."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

import dodona as dd
from dodona.cli import app
from dodona.errors import Refused
from dodona.oracles.collected import side_by_side
from tests.support.servers import write_survey


def run(*words):
    return CliRunner().invoke(app, ["plan", *words])


def rows_needed(text):
    return [int(found.replace(",", "")) for found in re.findall(r"needs\s+([\d,]+) rows", text)]


def test_queries_show_the_price_of_distrust():
    shown = run("queries", "--count", "100", "--tolerance", "0.01", "--epsilon", "1", "--rows", "100000")
    assert shown.exit_code == 0
    trusted, each, shuffled, local = rows_needed(shown.output)
    assert each < trusted  # one answer by itself is within the tolerance more often than all of them are
    assert "SuLQ Theorem 1" in shown.output
    assert local > 100 * trusted
    assert trusted < shuffled < local / 2
    assert "an anonymous shuffler" in shown.output
    assert "price of distrust" in shown.output
    assert "SuLQ Theorem 5" in shown.output
    assert "Theorem 5.7" in shown.output


def test_one_question_by_each_who_could_be_trusted(tmp_path):
    """At one promise: a curator errs least, rows that trust nobody most, a crowd is between; nothing is charged."""
    rng = np.random.default_rng(0)
    schema = dd.Schema({"age": dd.Integer(0, 100), "ill": dd.Flag()})
    data = {"age": rng.integers(0, 100, 5000), "ill": rng.random(5000) < 0.2}
    survey = write_survey(tmp_path, data, schema, {"epsilon": 1, "delta": 1e-6}, name="data")
    shown = run("question", str(survey), "SELECT COUNT(*) FROM data WHERE ill", "--epsilon", "1")
    assert shown.exit_code == 0, shown.output
    errors = [float(found) for found in re.findall(r"error ([\d.]+)", shown.output)]
    assert len(errors) == 3
    assert errors[0] * 2 < errors[1] < errors[2] / 2
    for who in ("a trusted curator: FEASIBLE", "an anonymous shuffler: FEASIBLE", "nobody trusted: FEASIBLE"):
        assert who in shown.output


def test_who_cannot_answer_is_listed_with_the_reason():
    table = dd.Table({"x": np.arange(50) % 2}, dd.Schema({"x": dd.Flag()}), neighbours="add-remove", rows=50)
    curator, shuffled, local = side_by_side(table, "x", 1, 1e-6)
    assert curator.feasible
    assert not shuffled.feasible
    assert not local.feasible
    assert "neighbours='replace'" in local.why


def test_learning_conjunctions_with_and_without_privacy_and_trust():
    shown = run("learn", "--class", "conjunctions", "--bits", "64", "--width", "3", "--epsilon", "1").output
    assert "Theorem 3.4" in shown
    assert "rows without privacy" in shown
    assert len(rows_needed(shown)) == 2
    few = run("learn", "--class", "conjunctions", "--bits", "64", "--width", "3", "--epsilon", "1", "--rows", "100")
    assert "FEASIBLE" not in few.output.replace("INFEASIBLE", "")


def test_parity_is_learnable_when_somebody_is_trusted_and_hopeless_otherwise():
    shown = run("learn", "--class", "parities", "--bits", "20", "--width", "20", "--epsilon", "1/2").output
    assert "Theorem 4.4" in shown
    assert "Corollary 5.15" in shown
    local = run("local", "--class", "parity", "--bits", "20", "--epsilon", "1").output
    assert "INFEASIBLE" in local
    assert "doubles" in local
    monomial = run("local", "--class", "monomial", "--bits", "20", "--epsilon", "1").output
    assert ": FEASIBLE" in monomial


@pytest.mark.parametrize(
    "words",
    [
        ("local", "--class", "nonsense", "--bits", "3", "--epsilon", "1"),
        ("local", "--class", "parity", "--bits", "0", "--epsilon", "1"),
        ("local", "--class", "parity", "--bits", "3", "--epsilon", "nan"),
        ("learn", "--class", "nonsense", "--bits", "3", "--epsilon", "1"),
        ("queries", "--count", "0", "--tolerance", "0.1", "--epsilon", "1", "--rows", "10"),
    ],
)
def test_bad_plans_are_refused(words):
    shown = run(*words)
    assert shown.exit_code != 0
    assert isinstance(shown.exception, Refused)


@pytest.fixture
def survey(tmp_path):
    rng = np.random.default_rng(0)
    schema = dd.Schema({"age": dd.Integer(0, 99), "pay": dd.Integer(0, 63), "ill": dd.Flag()})
    columns = {"age": rng.integers(0, 100, 900), "pay": rng.integers(0, 64, 900), "ill": rng.random(900) < 0.2}
    return str(write_survey(tmp_path, columns, schema, {"epsilon": 2}))


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("intervals", ("column=age",), ("tree", "ranges of age", "rows (a random range)")),
        ("boxes", ("columns=age,pay", "bits=4,3"), ("boxes over", "rows (a random box)")),
        ("conjunctions", ("width=2", "edges=age:0,18,65,100;pay:0,32,64"), ("blocks", "ill, age, pay")),
        ("halfspaces", ("columns=age, pay", "translated=false", "probes=40"), ("VACUOUS", "40 probes")),
    ],
)
def test_a_release_is_planned_with_settings_as_text(survey, kind, settings, words):
    stated = [word for setting in settings for word in ("--set", setting)]
    shown = run("release", survey, kind, *stated, "--share", "1/2")
    assert shown.exit_code == 0, shown.output
    assert all(part in shown.output.replace("age, pay, ill", "ill, age, pay") for part in words), shown.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nonsense",), "conjunctions, intervals"),
        (("small_database", "--set", "size=3"), "must be of the kind"),  # its class is no text
        (("intervals", "--share", "1"), "column"),
        (("intervals", "--set", "column=age"), "exactly one"),
        (("boxes", "--set", "columns=age,pay", "--set", "bits=x", "--share", "1"), "whole number"),
        (("halfspaces", "--set", "columns=age,pay", "--set", "translated=perhaps", "--share", "1"), "true or false"),
        (("conjunctions", "--set", "width=2", "--set", "edges=age:a", "--share", "1"), "age:0,18,65"),
        (("intervals", "--set", "column=age", "--set", "seed=1", "--share", "1"), "takes the settings"),
    ],
)
def test_a_release_that_cannot_be_planned_is_refused(survey, words, told):
    found = run("release", survey, *words).exception
    assert isinstance(found, Refused)
    assert told in str(found)


def test_a_class_is_planned_by_name_by_prefixes_and_of_a_survey(tmp_path):
    shown = run("class", "monomial", "--size", "3", "--epsilon", "1").output
    assert "a trusted curator: FEASIBLE" in shown
    assert "gamma 2 at least 2.6" in shown
    trusted, local, bound = rows_needed(shown)
    assert trusted < local
    assert bound >= 1
    assert "4.2321 to 4.5114" in run("class", "prefixes", "--size", "65536", "--epsilon", "1").output
    assert "gamma 2 at least" in run("class", "prefixes", "--size", "32", "--epsilon", "1").output
    schema = dd.Schema({"age": dd.Integer(0, 100, missing=0), "ill": dd.Flag(missing=False)})
    data = {"age": np.arange(50), "ill": np.arange(50) % 2 == 0}
    survey = str(write_survey(tmp_path, data, schema, {"epsilon": 1, "delta": 1e-6}, name="data"))
    wanted = ("--condition", "age >= 40", "--condition", "age >= 40 AND ill", "--epsilon", "1")
    assert "3 points" in run("class", "listed", survey, *wanted).output
    made = run("class", "boxes", survey, "--columns", "age", "--cuts", "20,40", "--epsilon", "1").output
    assert "5 of 3 points" in made
    assert run("class", "circles", survey, "--columns", "age", "--epsilon", "1").exit_code == 2
    assert run("class", "boxes", "--epsilon", "1").exit_code == 2


def test_the_map_of_classes_in_rows():
    shown = run("map", "--bits", "12", "--epsilon", "1").output
    for name in ("conjunctions", "decision-lists", "parities", "points", "thresholds", "masked parity"):
        assert name in shown
    assert "no fewer than" in next(line for line in shown.splitlines() if line.startswith("parities"))


def test_functions_of_sets_and_what_nobody_can_do():
    shown = run("submodular", "--elements", "20", "--epsilon", "1").output
    assert "VACUOUS" in shown
    assert "Theorem 3.5" in shown
    found = ("separator", "--dimension", "5", "--margin", "0.3", "--epsilon", "1", "--rows", "1000000")
    assert "SuLQ Theorem 3" in run(*found).output
    walls = run("barrier", "--columns", "30", "--alpha", "0.001").output
    for theorem in ("Theorem B.3", "Theorem B.1", "equation (19)", "Theorem 5.1, mended", "BLR Theorem 5.1"):
        assert theorem in walls
