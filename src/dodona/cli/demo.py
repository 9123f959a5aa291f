"""``make demo``: a made-up survey, asked privately, step by step; with the true answers beside the private ones.

Only a demonstration may show true answers: these people do not exist. Everything lands in ``./demo``, made afresh.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from dodona.cli.show import facts, number, paint, percent, say, spent_line, sure, table
from dodona.config import Config
from dodona.config import open as open_survey
from dodona.errors import DodonaError, Refused
from dodona.oracles.curator import Curator
from dodona.oracles.dataset import Dataset
from dodona.oracles.exact import Exact
from dodona.oracles.rows import Estimate
from dodona.privacy.ledger.whole import pure_spent
from dodona.sample import write_sample, write_schema

ROWS = 200_000
LEDGERS = tuple(
    f"{name}.{kind}" for name in ("survey", "clinic") for kind in ("ledger", "ledger.lock", "ledger-journal")
)
OWNED = ("survey.parquet", "survey.toml", "visits.parquet", "patients.parquet", "clinic.toml", *LEDGERS)
CLINIC = """\
population = "patients of the clinic"
neighbours = "add-remove"
unit = "patient"                # what a person is called: one budget for all of each

[budget]
epsilon = 1

[tables.visits]                 # several rows a person; 4 of them count unless a question says otherwise
data = "visits.parquet"
unit = { column = "patient", max_rows = 4 }
columns.ward = { type = "category", values = ["A", "B", "C"] }
columns.cost = { type = "integer", low = 0, high = 1000 }

[tables.patients]
data = "patients.parquet"
unit = { column = "id", max_rows = 1 }
columns.age = { type = "integer", low = 0, high = 110 }
"""


def main(folder: Path = Path("demo"), rows: int = ROWS) -> None:
    """The whole report."""
    started = time.perf_counter()
    _fresh(folder)
    _title("1. A survey of people who do not exist")
    write_sample(folder / "survey.parquet", rows)
    write_schema(folder / "survey.toml", folder / "survey.parquet")
    config = Config.read(folder / "survey.toml")
    say(f"{folder}/survey.parquet: {rows:,} made-up rows. {folder}/survey.toml says what is public:\n")
    say(_indent((folder / "survey.toml").read_text(encoding="utf-8")))

    curator = config.open_curator("demo", create=True)
    truth = Exact(config.open_table())
    before = curator.ledger.spent()
    say("\nEvery question below is charged to one budget, for the lifetime of the data:")
    say(_indent(spent_line(curator.budget, before)))

    _questions(curator, truth)
    _statement(curator, truth)
    _selection(curator, truth)
    _people(folder, rows // 10)
    _retry(curator)
    _refusals(curator)
    _reckoning(curator, before)
    say(f"\nDone in {time.perf_counter() - started:.1f} s. Go on by yourself:\n")
    here, command = f"{folder}/survey.toml", "dodona" if shutil.which("dodona") else ".venv/bin/dodona"
    say(_indent(f"{command} ask {here} 'obese AND smoker' --tolerance 0.005\n{command} ledger {here} --verify"))


def _fresh(folder: Path) -> None:
    """An empty folder; whatever in it is not ours is left alone, and stops us."""
    if folder.exists():
        strange = [entry.name for entry in folder.iterdir() if entry.name not in OWNED]
        if strange:
            raise Refused(f"{folder}/ must hold nothing but an earlier demo. Got {', '.join(sorted(strange)[:3])}.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _questions(curator: Curator, truth: Exact) -> None:
    _title("2. Ask: price first, then the answer")
    say("The noise is fresh at every run. Only a demo may show the truth: nobody is real.\n")
    rows = []
    for question, tolerance in (
        ("age >= 65 AND smoker", "0.005"),
        ("disease AND NOT obese", "0.005"),
        ("LEAST(income, 60000) / 1000", "0.2"),
        ("hours BETWEEN 35 AND 45", "0.002"),
    ):
        price = curator.price(question, tolerance=tolerance)
        answer = curator.ask(question, tolerance=tolerance)
        margin = float(answer.margin) / (answer.rows or 1)
        digits = number(float(answer.mean), margin).partition(" ± ")[0].partition(".")[2]
        real = f"{float(truth.ask(question).mean):.{len(digits)}f}"
        rows.append([question, percent(price.cost.share), number(float(answer.mean), margin), real])
    say(table(["question (mean over rows)", "price", "private answer (95 %)", "true"], rows, "lrrr"))


def _statement(curator: Curator, truth: Exact) -> None:
    _title("3. SQL: every key of the schema appears, whatever the data hold")
    text = "SELECT sex, region, COUNT(*) AS n, AVG(hours) AS hours\nFROM survey WHERE age >= 18 GROUP BY sex, region"
    say(_indent(f"{text}   -- 2 % of the budget") + "\n")
    private, real = curator.sql(text, share="1/50"), truth.sql(text)
    rows = []
    for mine, true in zip(private, real, strict=True):
        pairs = [
            cell.lost or f"{cell.value:,.{digits}f}"
            for cell, digits in zip(true, (0, 0, 0, 2), strict=True)
            if isinstance(cell, Estimate)
        ]
        rows.append([*map(str, mine), *pairs])
    say(table(["sex", "region", "n", "hours", "true n", "true hours"], rows, "llrrrr"))


def _selection(curator: Curator, truth: Exact) -> None:
    _title("4. Select: which is most common?")
    choices = ["smoker", "obese", "disease", "children >= 3"]
    chosen = curator.select(choices, share="1/100")
    real = truth.select(choices)
    say(f"Of {', '.join(choices)}: {paint(choices[chosen.index], 'bold')} (truly {choices[real.index]}).")
    near = f"Within {chosen.margin:,.0f} people of the best, {sure(chosen.confidence)} sure"
    say(f"{near}; cost {percent(chosen.cost.share)}.")


def _people(folder: Path, patients: int) -> None:
    _title("5. People, not rows: two tables about the same patients, one budget")
    write_clinic(folder, patients)
    (folder / "clinic.toml").write_text(CLINIC, encoding="utf-8")
    say(f"{patients:,} made-up patients and their visits; {folder}/clinic.toml:\n\n{_indent(CLINIC)}")
    data = open_survey(folder / "clinic.toml", analyst="demo", create=True)
    assert isinstance(data, Dataset)
    inner = "(SELECT patient, LEAST(SUM(cost), 2000) AS spent\n FROM visits GROUP BY patient)"
    rows = []
    for what, text in (
        ("what a patient spends", f"SELECT AVG(spent) AS x FROM {inner}"),
        (
            "visits of the over 65s",
            "SELECT COUNT(*) AS x FROM visits JOIN patients\n ON visits.patient = patients.id WHERE age > 65",
        ),
        ("patients seen in ward C", "SELECT COUNT(DISTINCT patient) AS x FROM visits WHERE ward = 'C'"),
        ("spent, 1,000 a patient at most", "SELECT SUM(cost) AS x FROM visits OPTIONS (clip = 1000)"),
    ):
        (mine,), (real,) = data.sql(text, share="1/20"), Exact(data.reader(text)._table).sql(text)
        assert isinstance(mine[0], Estimate)
        assert isinstance(real[0], Estimate)
        rows.append([what, str(mine[0]), f"{real[0].value:,.{1 if real[0].value < 5000 else 0}f}"])
        say(_indent(text) + "\n")
    say(table(["of a whole person, 5 % of the budget each", "private answer (95 %)", "true"], rows, "lrr"))


def write_clinic(folder: Path, patients: int) -> None:
    """Visits, from one to seven a patient, and how old each is; by fixed hashes, as the survey."""
    import duckdb

    chance = "(hash({}, 7) >> 11)::DOUBLE * 1.1102230246251565e-16"
    owner = f"floor({patients} * {chance.format('i')})::BIGINT"
    cost = f"floor(1000 * pow({chance.format('hash(i, 1)')}, 3))::INTEGER"
    ward = f"['A', 'B', 'C'][1 + floor(3 * {chance.format('hash(i, 2)')})::INTEGER]"
    visits = f"SELECT {owner} AS patient, {ward} AS ward, {cost} AS cost FROM range({4 * patients}) AS numbers(i)"
    age = f"floor(95 * {chance.format('hash(i, 3)')})::INTEGER"
    aged = f"SELECT i AS id, {age} AS age FROM range({patients}) AS numbers(i)"
    connection = duckdb.connect()
    try:
        for name, text in (("visits", visits), ("patients", aged)):
            connection.execute(f"COPY ({text}) TO '{folder / name}.parquet' (FORMAT parquet)")
    finally:
        connection.close()


def _retry(curator: Curator) -> None:
    _title("6. A retry costs nothing and tells nothing new")
    question, name = "children = 0", "demo-1"
    first = curator.ask(question, tolerance="0.005", request_id=name)
    middle = curator.ledger.spent()
    again = curator.ask(question, tolerance="0.005", request_id=name)
    same = "the same answer" if again == first else "ANOTHER ANSWER"
    free = "nothing was charged" if curator.ledger.spent() == middle else "IT WAS CHARGED"
    say(f"{question!r} asked twice under one request id:\n{same}, and {free} the second time.")


def _refusals(curator: Curator) -> None:
    _title("7. What is refused, before anything is read or charged")
    before = curator.ledger.head()
    for question, share, why in (
        ("agee >= 65", "1/100", "no such column"),
        ("income - AVG(income)", "1/100", "looks at more than one row"),
        ("1 / hours", "1/100", "has no bounds"),
        ("smoker", "1", "costs more than what is left: a spent budget looks like this"),
    ):
        try:
            curator.ask(question, share=share)
        except DodonaError as error:
            say(f"{paint(question, 'bold')}   ({why})\n{_wrap(f'{type(error).__name__}: {error}')}")
    unchanged = "unchanged" if curator.ledger.head() == before else "CHANGED"
    say(f"The ledger is {unchanged} by all this.")


def _reckoning(curator: Curator, before: int) -> None:
    _title("8. The budget, before and after")
    book = curator.ledger
    spent = book.spent()
    epsilon, delta = map(float, curator.budget.guarantee(spent, pure_spent(book)))
    found = book.verify()
    promise = f"epsilon {epsilon:.3g} of {float(curator.budget.epsilon or 0):g} at delta {delta:.0e}"
    pairs = [
        ("before", spent_line(curator.budget, before)),
        ("after", spent_line(curator.budget, spent)),
        ("promise", f"all answers together are {promise}"),
        ("ledger", f"verified: {found.entries} entries, every hash and sum holds"),
    ]
    say(facts(pairs))


def _title(text: str) -> None:
    say("\n" + paint(text, "bold") + "\n" + "-" * len(text))


def _indent(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _wrap(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 76, initial_indent="    ", subsequent_indent="    ")


if __name__ == "__main__":
    try:
        main()
    except DodonaError as error:
        raise SystemExit(f"demo: {error}") from None
