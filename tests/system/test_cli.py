"""The command line as a user meets it: real processes where that matters, the same ``main`` in this one elsewhere."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dodona.config import Config, open_ledger
from dodona.learn import LogisticRegression
from dodona.privacy import Budget, SqliteLedger
from dodona.privacy.budget import KEY_UNITS
from dodona.privacy.ledger import KEYS
from tests.support.commands import DODONA, QUESTION, Outcome, dodona, edited, fingerprint, make_ledger, refused

SELECT = "SELECT sex, region, COUNT(*) AS n, AVG(income) FROM survey WHERE age >= 18 GROUP BY sex, region"


Call = Callable[..., Outcome]


# -- the commands of the tour, as real processes ---------------------------------------------------------------------


def test_the_tour_from_nothing(tmp_path: Path) -> None:
    made = dodona("sample", "survey.parquet", "--rows", 5000, "--schema", "survey.toml", cwd=tmp_path)
    assert made.code == 0, made.err
    assert "5,000 made-up people" in made.out
    assert "survey.ledger was made, a new ledger" in made.out
    checked = dodona("schema", "check", "survey.toml", cwd=tmp_path)
    assert checked.code == 0, checked.err
    assert checked.out.endswith("Everything fits.\n")
    priced = dodona("price", "survey.toml", QUESTION, "--tolerance", "0.05", cwd=tmp_path)
    assert priced.code == 0, priced.err
    assert "Affordable" in priced.out
    answered = dodona("ask", "survey.toml", QUESTION, "--tolerance", "0.05", "--analyst", "ann", cwd=tmp_path)
    assert answered.code == 0, answered.err
    assert "±" in answered.out
    assert re.search(r"receipt +charge 1, ", answered.out)
    assert "\x1b" not in answered.out
    listed = dodona("sql", "survey.toml", SELECT, "--share", "0.05", cwd=tmp_path)
    assert listed.code == 0, listed.err
    assert all(key in listed.out for key in ("Female", "Male", "North", "Capital", "±"))
    shown = dodona("ledger", "survey.toml", cwd=tmp_path)
    assert shown.code == 0, shown.err
    assert "ann" in shown.out
    assert "2 shown of 4 entries" in shown.out
    verified = dodona("ledger", "survey.ledger", "--verify", cwd=tmp_path)
    assert verified.code == 0, verified.err
    assert "every hash and every sum holds" in verified.out
    os.remove(tmp_path / "survey.parquet")  # an auditor needs the ledger only
    assert dodona("ledger", "survey.toml", "--verify", "--json", cwd=tmp_path).code == 0


def test_exit_codes_of_real_processes(asked: Path) -> None:
    before = fingerprint(asked)
    assert "'agee' is not a column" in refused(dodona("ask", "survey.toml", "agee", "--share", "0.1", cwd=asked))
    spent = refused(dodona("ask", "survey.toml", QUESTION, "--share", "1", cwd=asked), 3)
    assert "still fits" in spent
    broken = asked / "broken.ledger"
    broken.write_bytes(b"not a ledger" * 100)
    refused(dodona("ledger", broken, cwd=asked), 4)
    assert fingerprint(asked) == before


def test_styling_is_for_terminals(asked: Path) -> None:
    import pty

    shown = b""
    leader, follower = pty.openpty()
    command = [DODONA, "ask", "survey.toml", "agee", "--share", "0.1"]
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    with subprocess.Popen(command, cwd=asked, stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        try:
            while chunk := os.read(leader, 65536):
                shown += chunk
        except OSError:  # the end of a terminal is an error on Linux
            pass
        assert process.wait() == 2
    os.close(leader)
    assert b"\x1b[1;31mdodona: refused:\x1b[0m" in shown


def test_an_alphabet_without_plus_minus(asked: Path) -> None:
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = dodona("price", "survey.toml", QUESTION, "--share", "0.1", cwd=asked, env=env)
    assert done.code == 0, done.err
    assert "+/-" in done.out


def test_a_seed_in_the_environment_is_refused(asked: Path) -> None:
    """V60."""
    before = fingerprint(asked)
    done = dodona("ask", "survey.toml", QUESTION, "--share", "0.1", cwd=asked, env={"DODONA_SEED": "1"})
    assert "no seed exists" in refused(done)
    assert fingerprint(asked) == before


# -- answers ---------------------------------------------------------------------------------------------------------


def test_json_everywhere(survey: Path, call: Call) -> None:
    config = survey / "survey.toml"
    assert json.loads(call("schema", "check", config, "--json").out)["rows"] == 2000
    priced = json.loads(call("price", config, QUESTION, "--share", "0.1", "--json").out)
    assert priced["affordable"] is True
    vector = json.loads(call("price", config, SELECT, "--share", "0.1", "--json").out)
    assert len(vector["margin"]) == 3  # two sexes, and those of neither
    assert [column["column"] for column in vector["columns"]] == ["n", "avg(income)"]
    answer = json.loads(call("ask", config, QUESTION, "--share", "0.1", "--json").out)
    assert answer["mean"] == pytest.approx(answer["total"] / 2000)
    assert answer["total_margin"] == pytest.approx(priced["margin"])
    assert answer["cost"]["seq"] == 1
    rows = json.loads(call("sql", config, SELECT, "--share", "0.1", "--json").out)
    assert len(rows["records"]) == 18  # with those of no sex, of no region, and of neither
    assert rows["columns"] == ["sex", "region", "n", "avg(income)"]
    book = json.loads(call("ledger", config, "--json").out)
    assert book["spent"] + book["left"] == book["capacity"]
    assert [entry["kind"] for entry in book["entries"]] == ["charge", "charge"]
    assert json.loads(call("ledger", config, "--verify", "--json").out)["verified"] is True


@pytest.mark.parametrize("words", [["check"], ["schema", "check"]], ids=" ".join)
def test_check_counts_losses_only_where_an_effort_is_stated(survey: Path, call: Call, words: list[str]) -> None:
    """Without one it spends nothing; with one it is one charge, in words and as data."""
    config = survey / "survey.toml"
    assert "Everything fits." in call(*words, config).out
    assert json.loads(call("ledger", config, "--json").out)["spent"] == 0
    stated = ["--share", "0.01", "--analyst", "ann", "--request-id", "once"]
    told = call(*words, config, *stated)
    assert told.code == 0, told.err
    assert "below 0: count as 0" in told.out
    assert "each 95 % sure, proven" in told.out
    again = json.loads(
        call(*words, config, "--share", "0.01", "--analyst", "ann", "--request-id", "once", "--json").out
    )
    assert again["columns"] == ["column", "what", "rows"]
    assert again["proven"] is True
    book = json.loads(call("ledger", config, "--json").out)
    assert [entry["analyst"] for entry in book["entries"]] == ["ann"]


def test_a_retry_is_neither_charged_nor_drawn_anew(survey: Path, call: Call) -> None:
    request = ["ask", survey / "survey.toml", QUESTION, "--share", "0.1", "--request-id", "one", "--analyst", "ann"]
    first = call(*request, "--json")
    before = fingerprint(survey)
    assert call(*request, "--json") == first
    assert fingerprint(survey) == before
    other = ["ask", survey / "survey.toml", "age", *request[3:]]
    assert "fresh id" in refused(call(*other))
    assert fingerprint(survey) == before


def test_a_bound_holds_for_the_final_value(survey: Path, call: Call) -> None:
    """V29: the range of the whole expression, not of its column, sets the noise; a missing age counts as 0."""
    shown = call("explain", survey / "survey.toml", "(COALESCE(age, 50) - 1000000) * 1000000")
    assert "changes the total by at most 7.9e+07" in shown.out  # 79e6: whole numbers are summed as they are
    assert "at most 1e+12" in call("explain", survey / "survey.toml", "(age - 1000000) * 1000000").out
    assert call("ask", survey / "survey.toml", "(age - 1000000) * 1000000", "--share", "0.1").code == 0


def test_a_row_is_in_one_group_only(survey: Path, call: Call) -> None:
    """V34: bins that touch are a CASE, whose first match takes the row."""
    bins = "CASE WHEN age BETWEEN 0 AND 30 THEN 'young' WHEN age BETWEEN 30 AND 99 THEN 'old' END"
    statement = f"SELECT {bins} AS bin, COUNT(*) AS n FROM survey GROUP BY bin"
    rows = json.loads(call("sql", survey / "survey.toml", statement, "--epsilon", "0.2", "--json").out)["records"]
    assert [row["bin"] for row in rows] == ["young", "old", "(other)"]
    assert sum(row["n"] for row in rows) == pytest.approx(2000, abs=400)


def test_known_functions_in_any_case(survey: Path, call: Call) -> None:
    """V25: exactly on the list, however it is written."""
    assert call("price", survey / "survey.toml", "aBs(age - 50) + Least(children, 3)", "--share", "0.1").code == 0


def test_add_remove_shows_no_count(survey: Path, call: Call) -> None:
    config = edited(survey, "[budget]", 'neighbours = "add-remove"\n[budget]')
    make_ledger(config)
    outcome = call("ask", config, QUESTION, "--share", "0.1")
    assert outcome.code == 0, outcome.err
    assert "mean" not in outcome.out
    assert "2,000" not in outcome.out
    checked = call("schema", "check", config)
    assert "private" in checked.out
    assert "2,000" not in checked.out
    assert "public number of rows" in refused(call("ask", config, QUESTION, "--tolerance", "0.1"))
    stated = edited(survey, "[budget]", 'neighbours = "add-remove"\nrows = 1900\n[budget]', "stated.toml")
    make_ledger(stated)
    assert "over 1,900 rows" in call("ask", stated, QUESTION, "--tolerance", "0.1").out


def test_the_ledger_pages_and_hides_control_signs(survey: Path, call: Call) -> None:
    for number in range(4):
        name = "eve\x1b[31m\nroot" if number == 3 else f"analyst{number}"
        assert call("ask", survey / "survey.toml", "age", "--share", "0.01", "--analyst", name).code == 0
    latest = call("ledger", survey / "survey.toml", "--limit", "2").out
    assert "analyst2" in latest
    assert "analyst1" not in latest
    assert "\x1b" not in latest
    assert "eve\\x1b[31m\\nroot" in latest
    page = call("ledger", survey / "survey.toml", "--start", "1", "--limit", "2").out
    assert "analyst0" in page
    assert "analyst2" not in page


def test_the_ledger_reads_as_work(survey: Path, call: Call) -> None:
    curator = Config.read(survey / "survey.toml").open_curator("ann")
    LogisticRegression(share=0.2).fit(curator, "disease")
    call("ask", survey / "survey.toml", "age", "--share", "0.01", "--analyst", "ann")
    release = ["release", survey / "survey.toml", "intervals", "-o", "age.synopsis", "--set", "column=age"]
    assert call(*release, "--share", "0.1", "--analyst", "bob").code == 0
    shown = call("ledger", survey / "survey.toml").out
    assert re.search(r"ann +LogisticRegression of disease, \d+ questions +20\.0 %", shown)
    assert len(shown.split("\n")) < 14
    assert "--each unfolds it" in shown
    unfolded = call("ledger", survey / "survey.toml", "--each", "--limit", "1000").out
    assert "LogisticRegression" not in unfolded
    assert len(unfolded.split("\n")) > len(shown.split("\n"))


def test_the_ledger_shows_both_amounts(tmp_path: Path, call: Call) -> None:
    budget = Budget(epsilon=1, delta=1e-6, keys=1e-7)
    with SqliteLedger.open(tmp_path / "k.ledger", budget, create=True) as book:
        book.grant("ann", KEY_UNITS // 10**8, KEYS)
        book.charge(amount=budget.capacity // 4, analyst="ann", request_id="k", what="names", keys=KEY_UNITS // 10**9)
    shown = call("ledger", tmp_path / "k.ledger")
    assert "granted up to delta 1e-08 for keys" in shown.out
    assert "25.0 %, delta 1e-09" in shown.out
    assert "delta 1e-09 spent, 9.9e-08 left of 1e-07 for keys that nobody listed" in shown.out
    assert "9.9e-08 left" in call("ledger", tmp_path / "k.ledger", "--verify").out
    told = json.loads(call("ledger", tmp_path / "k.ledger", "--json").out)
    assert (told["key_capacity"], told["keys_spent"]) == (budget.key_capacity, KEY_UNITS // 10**9)


def test_a_wide_result_is_stacked_in_a_narrow_terminal(
    survey: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dodona.cli.show.width", lambda: 30)
    shown = call("sql", survey / "survey.toml", SELECT, "--share", "0.1").out
    assert "region       North" in shown


# -- the ledger and lost answers -------------------------------------------------------------------------------------


def test_a_changed_ledger_is_noticed(survey: Path, call: Call) -> None:
    import sqlite3

    call("ask", survey / "survey.toml", "age", "--share", "0.5")
    with sqlite3.connect(survey / "survey.ledger") as db:
        db.execute("DROP TRIGGER entries_update")
        db.execute("UPDATE entries SET amount = 1 WHERE seq = 1")
    db.close()
    refused(call("ledger", survey / "survey.toml", "--verify"), 4)


def test_another_budget_later_is_refused(survey: Path, call: Call) -> None:
    call("ask", survey / "survey.toml", "age", "--share", "0.5")
    before = fingerprint(survey)
    richer = edited(survey, "epsilon = 1\n", "epsilon = 10\n")
    richer.write_text(richer.read_text().replace("[budget]", 'ledger = "survey.ledger"\n[budget]'))
    assert "lifetime" in refused(call("ask", richer, "age", "--share", "0.1"))
    assert fingerprint(survey) == before


def test_no_ledger_yet(survey: Path, call: Call) -> None:
    config = edited(survey, "[budget]", "[budget]")
    effort = ["--share", "0.1"]
    for command in (["ledger", config], ["ask", config, "age", *effort], ["sql", config, SELECT, *effort]):
        assert "dodona ledger new" in refused(call(*command), 4)
    assert call("price", config, "age", "--share", "0.1").code == 0
    assert "dodona ledger new" in call("schema", "check", config).out
    assert not list(survey.glob("edited.ledger*")), "asking, pricing, checking and showing make none"
    assert "was made" in call("ledger", "new", config).out
    assert call("ask", config, "age", "--share", "0.1").code == 0
    assert "is there already" in call("ledger", "new", config).out


def test_a_ledger_that_cannot_be_made(survey: Path, call: Call) -> None:
    config = edited(survey, "[budget]", 'ledger = "no/such/folder/x.ledger"\n[budget]')
    refused(call("ask", config, "age", "--share", "0.1"), 4)


def test_a_fault_after_the_charge_is_a_lost_answer(survey: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """V45: charged, not refunded, and the text tells nothing."""
    from dodona.engines.duckdb import DuckDBEngine

    def fail(*_: object) -> None:
        raise RuntimeError("row 7 holds secretvalue")

    request = ["ask", survey / "survey.toml", "age", "--share", "0.25", "--request-id", "one", "--analyst", "ann"]
    with monkeypatch.context() as patch:
        patch.setattr(DuckDBEngine, "totals", fail)
        assert "secretvalue" not in refused(call(*request), 5)
    refused(call(*request), 5)  # its outcome is unknown, so it stays spent
    with open_ledger(survey / "survey.ledger") as ledger:
        assert ledger.spent() == pytest.approx(ledger.genesis.budget.capacity / 4, rel=1e-6)
    assert "(no answer)" in call("ledger", survey / "survey.toml").out


def test_an_internal_fault_tells_nothing(survey: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12."""

    def fail(*_: object, **__: object) -> None:
        raise KeyError("secretvalue")

    monkeypatch.setattr("dodona.config.Config.read", fail)
    message = refused(call("ask", survey / "survey.toml", "age", "--share", "0.1"), 1)
    assert "secretvalue" not in message


# -- sample and draft ------------------------------------------------------------------------------------------------


def test_a_sample_never_overwrites(survey: Path, call: Call) -> None:
    before = (survey / "survey.parquet").read_bytes()
    refused(call("sample", survey / "survey.parquet", "--rows", "10"))
    refused(call("sample", survey / "new.parquet", "--rows", "10", "--schema", survey / "survey.toml"))
    assert not (survey / "new.parquet").exists()
    assert (survey / "survey.parquet").read_bytes() == before
    assert call("sample", survey / "survey.parquet", "--rows", "10", "--force").code == 0


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dodona", "sample", "big.parquet", "--rows", "200000000"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # also in the background
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heard) as process:  # noqa: PLW1509
        try:
            for _ in range(300):
                if any(tmp_path.iterdir()):
                    break
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=300) == 130
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_a_draft_must_be_filled_then_works(survey: Path, call: Call) -> None:
    config = survey / "drafted.toml"
    config.write_text(call("schema", "draft", "survey.parquet").out)
    message = refused(call("schema", "check", config))
    for gap in ("budget.epsilon", "budget.delta", "age (low, high)", "sex (values)", "income (low, high)"):
        assert gap in message
    filled = config.read_text().replace('epsilon = "?"', "epsilon = 1").replace('delta = "?"', "delta = 0")
    filled = filled.replace('low = "?", high = "?"', "low = 0, high = 100").replace('values = "?"', 'values = ["a"]')
    config.write_text(filled)
    assert call("schema", "check", config).code == 0


@pytest.mark.parametrize(
    "command", ["", "ask", "price", "sql", "explain", "ledger", "sample", "schema", "schema draft"]
)
def test_help(command: str, call: Call) -> None:
    shown = call(*command.split(), "--help")
    assert shown.code == 0
    assert "Usage: dodona" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_version(call: Call) -> None:
    from dodona import __version__

    assert call("--version").out == f"dodona {__version__}\n"


@pytest.mark.parametrize("ending", ["csv", "json", "md", "txt"])
def test_an_answer_goes_to_a_file(survey: Path, call: Call, ending: str) -> None:
    """What the file is to hold follows from its name; one that is there is refused before anything is charged."""
    out = survey / f"out.{ending}"
    done = call("sql", "survey.toml", SELECT, "--share", "0.01", "-o", out)
    assert done.code == 0, done.err
    assert f"wrote {out}" in done.out
    text = out.read_text(encoding="utf-8")
    starts = {"csv": "sex,region,n,n_margin,n_low,n_high,", "json": '{"columns": ["sex"', "md": "| sex | region | n |"}
    assert text.startswith(starts.get(ending, "sex"))
    before = fingerprint(survey)
    again = call("sql", "survey.toml", SELECT, "--share", "0.01", "-o", out)
    assert again.code == 2
    assert "is there already" in again.err
    assert fingerprint(survey) == before
    assert out.read_text(encoding="utf-8") == text
    lost = call("sql", "survey.toml", "SELECT nothing", "--share", "0.01", "-o", survey / "never")
    assert lost.code == 2
    assert not (survey / "never").exists()


def test_an_answer_is_printed_as_csv_or_markdown(survey: Path, call: Call) -> None:
    printed = call("ask", "survey.toml", QUESTION, "--share", "0.01", "--csv")
    assert printed.out.startswith("total,total_margin,total_low,total_high,mean,mean_margin,mean_low,mean_high,notes\n")
    assert "± at 95 %, proven; noise only: " in printed.out
    assert call("ask", "survey.toml", QUESTION, "--share", "0.01", "--markdown").out.startswith("| total | mean |\n")
    both = call("ask", "survey.toml", QUESTION, "--share", "0.01", "--markdown", "--json")
    assert both.code == 2
    assert "one form at a time. Got --json and --markdown" in both.err
