"""``make demo``: a made-up survey, asked privately, step by step; with the true answers beside the private ones.

Only a demonstration may show true answers: these people do not exist. Everything lands in ``./demo``, made afresh.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from dodona.cli.show import facts, number, paint, percent, say, spent_line, sure, table
from dodona.config import Config
from dodona.errors import DodonaError, Refused
from dodona.oracles.curator import Curator
from dodona.oracles.exact import Exact
from dodona.oracles.rows import Estimate
from dodona.privacy.ledger.whole import pure_spent
from dodona.sample import write_sample, write_schema

ROWS = 200_000
OWNED = ("survey.parquet", "survey.toml", "survey.ledger", "survey.ledger.lock", "survey.ledger-journal")


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


def _retry(curator: Curator) -> None:
    _title("5. A retry costs nothing and tells nothing new")
    question, name = "children = 0", "demo-1"
    first = curator.ask(question, tolerance="0.005", request_id=name)
    middle = curator.ledger.spent()
    again = curator.ask(question, tolerance="0.005", request_id=name)
    same = "the same answer" if again == first else "ANOTHER ANSWER"
    free = "nothing was charged" if curator.ledger.spent() == middle else "IT WAS CHARGED"
    say(f"{question!r} asked twice under one request id:\n{same}, and {free} the second time.")


def _refusals(curator: Curator) -> None:
    _title("6. What is refused, before anything is read or charged")
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
    _title("7. The budget, before and after")
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
