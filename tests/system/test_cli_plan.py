"""``dodona plan``: verdicts for each trust model, side by side, from theorems alone."""

import re

import pytest
from typer.testing import CliRunner

from dodona.cli import app
from dodona.errors import Refused


def run(*words):
    return CliRunner().invoke(app, ["plan", *words])


def rows_needed(text):
    return [int(found.replace(",", "")) for found in re.findall(r"needs\s+([\d,]+) rows", text)]


def test_queries_show_the_price_of_distrust():
    shown = run("queries", "--count", "100", "--tolerance", "0.01", "--epsilon", "1", "--rows", "100000")
    assert shown.exit_code == 0
    trusted, local = rows_needed(shown.output)
    assert local > 100 * trusted
    assert "price of distrust" in shown.output
    assert "SuLQ Theorem 5" in shown.output
    assert "Theorem 5.7" in shown.output


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
