"""What the command line refuses, with one line and nothing charged: questions, efforts, configurations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import QUESTION, Outcome, edited, fingerprint, make_ledger, refused

Call = Callable[..., Outcome]


HOSTILE = {
    "V13": ["CASE WHEN age=7 THEN error('x') ELSE 0 END"],
    "V16": ["(SELECT count(*) FROM survey)", "age IN (SELECT age FROM survey)", "EXISTS(SELECT 1)"],
    "V17": ["row_number() OVER ()", "lag(age) OVER (ORDER BY age)"],
    "V18": ["age - avg(age)", "max(age)"],
    "V19": ["random()", "now()", "current_user", "nextval('s')", "getvariable('a')", "current_date"],
    "V20": ["read_text('secret.txt')", "pg_read_file('secret.txt')", "query_to_xml('x', true, true, '')"],
    "V21": ["length(repeat('a', CASE WHEN age=77 THEN 50000000 ELSE 1 END))"],
    "V22": ["age; DROP TABLE survey", "age -- c", "age) FROM survey --", "age /* c */"],
    "V23": ["(" * n + "age" + ")" * n for n in (100, 1000, 40_000)]
    + ["NOT " * 1000 + "smoker", "CASE WHEN smoker THEN " * 100 + "1" + " END" * 100, "age" + " + 1" * 20_000],
    "V24": ["other.age", "rowid", "*", "survey.age", "hours", '"hours"', "person_id"],
    "V25": ["frobnicate(age)", '"abs"(age)', "main.abs(age)", "pg_catalog.abs(age)"],
    "V26": ["regexp_matches(sex, '(a+)+$')", "sex ~ '(a+)+$'", "sex SIMILAR TO 'a'", "sex LIKE age"],
    "types": ["sex + 1", "age AND smoker", "sex = 'Other'", "1 / hours2", "smoker > 'a'", "age & 0.5", "", "SELECT 1"],
    "unbounded": ["1 / (age - 50)", "EXP(age * 1000)"],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_questions_are_refused_uncharged(case: str, asked: Path, call: Call) -> None:
    """V13, V16-V26: refused; the ledger stays the same to the byte. ``hours`` is in the file, not in this schema."""
    config = edited(asked, 'hours = { type = "real", low = 0, high = 80 }\n', "")
    config.write_text('ledger = "survey.ledger"\n' + config.read_text())
    before = fingerprint(asked)
    for text in HOSTILE[case]:
        message = refused(call("ask", config, "--share", "1/1000", "--", text))
        assert "secret" not in message or "'secret.txt'" in text
        assert len(message) < 1000
    assert fingerprint(asked) == before


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM survey",
        "SELECT age FROM survey",
        "SELECT COUNT(*) FROM other",
        "SELECT COUNT(*) FROM survey, survey",
        "SELECT COUNT(*) FROM survey JOIN survey USING (age)",
        "SELECT SUM(DISTINCT age) FROM survey",
        "SELECT COUNT(*) FROM survey ORDER BY age",
        "SELECT COUNT(*) FROM survey HAVING age > 1",
        "SELECT COUNT(*) FROM survey LIMIT age",
        "SELECT MEDIAN(sex) FROM survey",
        "SELECT MAX(income) FROM survey",
        "SELECT income, COUNT(*) FROM survey GROUP BY income",  # V31: no public keys
        "SELECT COUNT(*) FROM survey GROUP BY BUCKET(age, 0, 10, 10, 20)",  # V34: overlapping bins
        "SELECT SUM(1 / (age - 50)) FROM survey",
        "WITH t AS (SELECT 1) SELECT COUNT(*) FROM survey",
        "SELECT COUNT(*) FROM read_text('secret.txt')",
        "SELECT COUNT(*) FROM survey UNION SELECT COUNT(*) FROM survey",
        "DELETE FROM survey",
        "COPY survey TO 'x'",
    ],
)
def test_hostile_statements_are_refused_uncharged(statement: str, asked: Path, call: Call) -> None:
    before = fingerprint(asked)
    refused(call("sql", asked / "survey.toml", statement, "--share", "1/1000"))
    assert fingerprint(asked) == before


@pytest.mark.parametrize(
    "effort",
    [
        [],
        ["--share", "0.1", "--epsilon", "0.1"],
        *(
            ["--epsilon", bad]
            for bad in ("0", "-1", "NaN", "inf", "1e-400", "1e400", "5e-324", "true", "", "one", "1e9")
        ),
        ["--epsilon", "1_000"],
        ["--epsilon", "٣"],
        ["--rho", "0"],
        ["--share", "1.5"],
        ["--tolerance", "0"],
        ["--tolerance", "1e-12"],
        ["--share", "0.1", "--confidence", "1"],
        ["--share", "0.1", "--confidence", "NaN"],
        ["--share", "0.1", "--analyst", "x" * 300],
    ],
)
def test_bad_efforts_are_refused_uncharged(effort: list[str], asked: Path, call: Call) -> None:
    """V7."""
    before = fingerprint(asked)
    refused(call("ask", asked / "survey.toml", "income", *effort))
    assert fingerprint(asked) == before


def test_usage_errors_are_refusals(asked: Path, call: Call) -> None:
    for arguments in (
        ["ask", asked / "survey.toml", QUESTION, "--share", "0.1", "--seed", "1"],  # V60
        ["ask", asked / "survey.toml"],
        ["frobnicate"],
        ["ledger", asked / "survey.toml", "--limit", "0"],
    ):
        outcome = call(*arguments)
        assert outcome.code == 2
        assert outcome.out == ""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[budget]", "seed = 1\n[budget]", "'seed'"),  # V60
        ("low = 0, high = 200000", "low = 0", "must state high"),  # V30
        ("low = 0, high = 200000", "low = 5, high = 5", "low must be below high"),  # V6
        ("low = 0, high = 200000", 'low = 0, high = "NaN"', "finite number"),
        ("low = 0, high = 200000", "low = 0, high = nan", "finite number"),
        ('["Female", "Male"]', '["a", "a"]', "differ"),  # V33
        ("epsilon = 1\n", 'epsilon = "?"\n', "budget.epsilon"),
        ("epsilon = 1\n", "epsilon = 0\n", "epsilon must be a number"),
        ("epsilon = 1\n", "epsilon = nan\n", "epsilon must be a number"),
        ("epsilon = 1\n", "epsilon = true\n", "epsilon must be a number"),
        ("epsilon = 1\n", "epsilon = 1\nrho = 1\n", "exactly one"),
        ('data = "survey.parquet"', 'data = "missing.parquet"', "must exist"),
        ('data = "survey.parquet"', 'data = "empty.parquet"', "not be empty"),
        ('data = "survey.parquet"', 'data = "text.parquet"', "must be Parquet"),
        ('data = "survey.parquet"', 'data = "survey.xlsx"', ".parquet"),
        ("age = {", "years = {", "'years'"),
        ('hours = { type = "real", low = 0, high = 80 }', 'hours = { type = "category", values = ["a"] }', "hours"),
        ("[columns]", "[columns", "TOML"),
    ],
)
def test_bad_configurations_are_refused(old: str, new: str, says: str, survey: Path, call: Call) -> None:
    (survey / "empty.parquet").touch()
    (survey / "text.parquet").write_text("age,sex\n1,secretvalue\n")
    config = edited(survey, old, new)
    for command in (["schema", "check", config], ["ask", config, "age", "--share", "0.1"]):
        message = refused(call(*command))
        assert says in message
        assert "secretvalue" not in message
    assert not (survey / "edited.ledger").exists()


def test_rho_needs_a_budget_that_has_it(survey: Path, call: Call) -> None:
    pure = edited(survey, "delta = 1e-6\n", "")
    make_ledger(pure)
    assert "pure epsilon" in refused(call("ask", pure, "age", "--rho", "0.01"))
    assert call("ask", pure, "age", "--share", "0.1").code == 0


def test_a_refused_tolerance_says_options_that_work(asked: Path, call: Call) -> None:
    """In the words of a command line, and followed to the letter."""
    survey, mean = asked / "survey.toml", "SELECT AVG(income) FROM survey WHERE age > 60"
    for command in ("price", "sql"):
        message = refused(call(command, survey, mean, "--tolerance", "0.5"))
        assert "State --share, --epsilon or --rho instead; the price of the same statement" in message
    assert "avg(income): ±" in call("price", survey, mean, "--share", "0.01").out
    assert call("price", survey, "SELECT COUNT(income), SUM(income) FROM survey", "--tolerance", "1e9").code == 0
    assert call("price", survey, "income", "--tolerance", "50000").code == 0
