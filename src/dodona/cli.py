"""The command line: ``dodona``. Thin: each command reads a ``survey.toml``, asks the library, and prints.

Exit codes: 0 done; 1 internal fault; 2 refused, nothing was charged; 3 the budget does not allow it, nothing was
charged; 4 the ledger cannot be trusted or reached; 5 charged, but the answer was lost; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dodona import __version__
from dodona.cli_audit import audit
from dodona.cli_plan import plan_app
from dodona.cli_server import KeyFile, Server, key_app, serve
from dodona.errors import AnswerLost, BudgetSpent, DodonaError, LedgerError, Refused

if TYPE_CHECKING:
    from dodona.answer import Numbers

FAULT, REFUSED, SPENT, LEDGER, LOST, INTERRUPTED = 1, 2, 3, 4, 5, 130

app = typer.Typer(
    help="Ask questions of sensitive data and get answers with a proof of privacy.\n\n"
    "Start: dodona sample survey.parquet --schema survey.toml; then price, ask and sql with survey.toml.",
    epilog="Exit codes: 0 done; 1 internal fault; 2 refused, nothing charged; 3 budget spent, nothing charged; "
    "4 ledger; 5 charged but the answer was lost; 130 interrupted.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: quick to start, and readable in any terminal
    pretty_exceptions_enable=False,  # a traceback's locals would show rows
)
schema_app = typer.Typer(
    help="Draft and check the survey.toml that states what is public.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(schema_app, name="schema")
app.add_typer(plan_app, name="plan")
app.command()(audit)
app.add_typer(key_app, name="key")
app.command()(serve)

Survey = Annotated[Path, typer.Argument(metavar="SURVEY.TOML", help="What the curator states about the table.")]
Question = Annotated[str, typer.Argument(metavar="QUESTION", help="A row expression: age >= 65 AND smoker")]
Tolerance = Annotated[str | None, typer.Option(metavar="T", help="Error of the mean, at the stated confidence: 0.005.")]
Share = Annotated[str | None, typer.Option(metavar="S", help="Fraction of the whole budget to spend: 0.05 or 1/20.")]
Epsilon = Annotated[str | None, typer.Option(metavar="E", help="Spend this epsilon (pure noise).")]
Rho = Annotated[str | None, typer.Option(metavar="R", help="Spend this rho (Gaussian noise).")]
Confidence = Annotated[str, typer.Option(metavar="C", help="Probability of the error bars.")]
Analyst = Annotated[str | None, typer.Option(help="Who asks; stands in the ledger.  [default: the login name]")]
RequestId = Annotated[
    str | None, typer.Option(metavar="ID", help="Your name for this request: a retry gets the same answer, uncharged.")
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


def main() -> None:
    """The ``dodona`` command. One line on stderr and an exit code for every failure; never a traceback."""
    try:
        app(prog_name="dodona")
    except DodonaError as error:
        _fail(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception:  # HOSTILE R12: what it says could tell of the data
        _complain("internal fault", "no detail is shown, since it could tell of the data. Please report the command.")
        sys.exit(FAULT)


def _fail(error: DodonaError) -> None:
    kinds: list[tuple[type[DodonaError], str, int]] = [
        (BudgetSpent, "budget", SPENT),
        (Refused, "refused", REFUSED),
        (LedgerError, "ledger", LEDGER),
        (AnswerLost, "answer lost", LOST),
    ]
    _, word, code = next(kind for kind in kinds if isinstance(error, kind[0]))
    _complain(word, str(error))
    sys.exit(code)


def _complain(word: str, message: str) -> None:
    from dodona.show import clean, paint, say

    say(f"{paint(f'dodona: {word}:', 'error', sys.stderr)} {clean(message)}", sys.stderr)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dodona {__version__}")
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Version.")] = False,
) -> None:
    if "DODONA_SEED" in os.environ:
        raise Refused("DODONA_SEED must not be set: noise comes from the operating system, and no seed exists for it.")


@app.command()
def sample(
    data: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write: .parquet or .csv.")],
    rows: Annotated[int, typer.Option(metavar="N", help="How many made-up people.")] = 100_000,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the made-up data; noise never has one.")] = 1,
    schema: Annotated[Path | None, typer.Option(metavar="TOML", help="Also write its complete survey.toml.")] = None,
    force: Force = False,
) -> None:
    """Write a made-up but plausible survey, to try things on."""
    from dodona.sample import refuse_overwriting, write_sample, write_schema
    from dodona.show import say

    if schema is not None:
        refuse_overwriting(schema, force)
    write_sample(data, rows, seed, overwrite=force)
    say(f"wrote {data}: {rows:,} made-up people, {data.stat().st_size / 1e6:,.1f} MB (seed {seed})")
    if schema is not None:
        write_schema(schema, data, overwrite=force)
        say(f"wrote {schema}: its public facts and a budget")


@schema_app.command()
def draft(
    data: Annotated[str, typer.Argument(metavar="FILE", help="Parquet, CSV, TSV or file.duckdb#table.")],
) -> None:
    """Print a survey.toml with column names and types; bounds, categories and budget are yours to state."""
    from dodona.draft import draft as drafted

    sys.stdout.write(drafted(data))


@schema_app.command()
def check(survey: Survey, json: Json = False) -> None:
    """Say whether configuration, data, schema and ledger fit together; reads no values and spends nothing."""
    from dodona.config import Config, open_ledger
    from dodona.privacy.open import ledger_exists, shown
    from dodona.show import facts, say, spent_line

    config = Config.read(survey)
    curator = config.open_curator("check", asking=False)
    if ledger_exists(config.ledger):
        with open_ledger(config.ledger) as ledger:
            spent, entries = ledger.spent(), ledger.head()[0]
        kept = f"{shown(config.ledger)}, {entries:,} entries"
    else:
        spent, entries, kept = 0, 0, f"{shown(config.ledger)}, made with the first question"
    rows = "private" if curator.rows is None else f"{curator.rows:,}"
    if json:
        public = {"name": curator.name, "rows": curator.rows, "neighbours": config.neighbours}
        unit = None if config.unit is None else config.unit.describe()
        return _dump(
            {
                "fits": True,
                **public,
                "unit": unit,
                "columns": config.schema.describe(),
                "entries": entries,
                "spent": spent,
            }
        )
    pairs = [
        ("data", f"{config.data} as {curator.name}"),
        ("rows", f"{rows} ({config.neighbours} neighbours)"),
        ("protects", "one row" if config.unit is None else str(config.unit)),
        ("columns", f"{len(config.schema)}, all there and of a fitting type"),
        ("ledger", kept),
        ("budget", spent_line(config.budget, spent)),
    ]
    return say(facts(pairs) + "\nEverything fits.")


@app.command()
def price(
    survey: Survey,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A row expression or a SELECT.")],
    tolerance: Tolerance = None,
    share: Share = None,
    epsilon: Epsilon = None,
    rho: Rho = None,
    confidence: Confidence = "0.95",
    server: Server = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Say what a question would cost and how good its answer would be; reads no row, spends nothing."""
    from dodona.config import Config
    from dodona.show import accuracy, cost, facts, paint, say, spent_line

    effort: dict[str, Any] = {"tolerance": tolerance, "share": share, "epsilon": epsilon, "rho": rho}
    effort["confidence"] = confidence
    if server is not None:
        from dodona import cli_remote

        return cli_remote.price(cli_remote.opened(server, survey, key_file), question, effort, json)
    curator = Config.read(survey).open_curator("price", asking=False)
    offer = curator.price(question, **effort)
    if json:
        error = {"margin": _plain(offer.margin), "tolerance": _plain(offer.tolerance), "rows": offer.rows}
        known = {"question": question, "affordable": offer.affordable, "confidence": offer.confidence}
        return _dump({**known, **error, "sensitivity": offer.sensitivity, "cost": vars(offer.cost)})
    verdict = "Affordable; nothing was spent." if offer.affordable else "NOT affordable with what is left."
    pairs = [
        ("would cost", cost(offer.cost)),
        ("accuracy", accuracy(offer)),
        ("noise", f"{offer.cost.mechanism}; {offer.sensitivity}"),
        ("budget now", spent_line(curator.budget, curator.ledger.spent())),
    ]
    return say(facts(pairs) + "\n" + paint(verdict, "bold"))


@app.command()
def ask(
    survey: Survey,
    question: Question,
    tolerance: Tolerance = None,
    share: Share = None,
    epsilon: Epsilon = None,
    rho: Rho = None,
    confidence: Confidence = "0.95",
    analyst: Analyst = None,
    request_id: RequestId = None,
    server: Server = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Answer a question about the rows, with noise; charged to the budget. State exactly one effort."""
    from dodona.config import Config
    from dodona.show import clean, facts, number, paint, receipt, say, sure

    effort: dict[str, Any] = {"tolerance": tolerance, "share": share, "epsilon": epsilon, "rho": rho}
    effort |= {"confidence": confidence, "request_id": request_id}
    if server is not None:
        from dodona import cli_remote

        return cli_remote.ask(cli_remote.opened(server, survey, key_file, analyst), question, effort, json)
    curator = Config.read(survey).open_curator(analyst or _login())
    answer = curator.ask(question, **effort)
    rows = answer.rows
    total, margin = float(answer.total), float(answer.margin)
    if json:
        known = {"question": question, "total": total, "total_margin": margin, "confidence": answer.confidence}
        per_row = {} if rows is None else {"mean": answer.mean, "mean_margin": margin / max(rows, 1)}
        return _dump({**known, **per_row, "rows": rows, "cost": vars(answer.cost)})
    pairs = [] if rows is None else [("mean", number(total / max(rows, 1), margin / max(rows, 1)))]
    pairs += [("total", number(total, margin) + ("" if rows is None else f" over {rows:,} rows"))]
    pairs = [(name, paint(value, "bold")) for name, value in pairs]
    say(
        f"{clean(question)}  ({sure(answer.confidence)} sure)\n"
        + facts([*pairs, *receipt(answer.cost, curator.ledger)])
    )
    return None


@app.command()
def sql(
    survey: Survey,
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="SELECT ... FROM survey WHERE ... GROUP BY ...")],
    tolerance: Tolerance = None,
    share: Share = None,
    epsilon: Epsilon = None,
    rho: Rho = None,
    confidence: Confidence = "0.95",
    analyst: Analyst = None,
    request_id: RequestId = None,
    server: Server = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Answer a SELECT with COUNT, SUM, AVG, VARIANCE or STDDEV, WHERE and GROUP BY; charged to the budget."""
    from dodona.config import Config
    from dodona.show import facts, grid, receipt, say, sure

    effort: dict[str, Any] = {"tolerance": tolerance, "share": share, "epsilon": epsilon, "rho": rho}
    effort |= {"confidence": confidence, "request_id": request_id}
    if server is not None:
        from dodona import cli_remote

        return cli_remote.sql(cli_remote.opened(server, survey, key_file, analyst), statement, effort, json)
    curator = Config.read(survey).open_curator(analyst or _login())
    rows = curator.sql(statement, **effort)
    if json:
        return _dump(
            {
                "columns": rows.columns,
                "records": rows.to_dicts(),
                "confidence": rows.confidence,
                "cost": vars(rows.cost),
            }
        )
    say(grid(rows))
    pairs = [("error bars", f"each {sure(rows.confidence)} sure"), *receipt(rows.cost, curator.ledger)]
    return say("\n" + facts(pairs))


@app.command()
def explain(
    survey: Survey,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A row expression or a SELECT.")],
    tolerance: Tolerance = None,
    share: Share = None,
    epsilon: Epsilon = None,
    rho: Rho = None,
    confidence: Confidence = "0.95",
) -> None:
    """Show how a question is read, what one row can change, its noise and its statement; spends nothing."""
    from dodona.config import Config
    from dodona.show import clean, say

    config = Config.read(survey)
    curator = config.open_curator("explain", asking=False)
    stated = any(effort is not None for effort in (tolerance, share, epsilon, rho))
    efforts = {"tolerance": tolerance, "share": share, "epsilon": epsilon, "rho": rho} if stated else {"share": 1}
    explained = curator.explain(question, **efforts, confidence=confidence)
    say("\n".join(map(clean, explained.split("\n"))) + "\nNothing was run, nothing was spent.")


@app.command()
def ledger(
    survey: Annotated[Path, typer.Argument(metavar="SURVEY.TOML", help="Or the .ledger file itself.")],
    verify: Annotated[bool, typer.Option("--verify", help="Check every hash and sum from the first entry on.")] = False,
    start: Annotated[int | None, typer.Option(metavar="N", help="From entry N on.  [default: the latest]")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, metavar="K", help="How many entries.")] = 20,
    json: Json = False,
) -> None:
    """Show what was asked, by whom, what it cost and what is left; or verify it all, offline."""
    from dodona.config import Config, open_ledger
    from dodona.privacy.pure import pure_spent
    from dodona.show import facts, history, page, say, short, spent_line

    path = survey if survey.suffix == ".ledger" else Config.read(survey).ledger
    with open_ledger(path) as book:
        budget = book.genesis.budget
        if verify:
            found = book.verify()
            if json:
                return _dump({"verified": True, **vars(found)})
            whole = f"{found.entries:,} entries: every hash and every sum holds."
            return say(facts([("verified", whole), ("head", found.head), ("budget", spent_line(budget, found.spent))]))
        spent, (last, head) = book.spent(), book.head()
        shown = page(book, start, limit, last)
        if json:
            amounts = {"capacity": budget.capacity, "spent": spent, "left": budget.capacity - spent}
            listed = [vars(entry) for entry in shown]
            return _dump({"budget": budget.as_dict(), "unit": budget.unit, **amounts, "head": head, "entries": listed})
        say(history(book, shown, last))
        epsilon, delta = (float(bound) for bound in budget.guarantee(spent, pure_spent(book)))
        whole = f" of {short(budget.epsilon)}" if budget.epsilon is not None else ""
        promise = f"so far epsilon {epsilon:.3g}{whole}" + (f" at delta {delta:.3g}" if delta else ", pure")
        return say("\n" + facts([("budget", spent_line(budget, spent)), ("promise", promise)]))


def _login() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "curator"


def _plain(values: Numbers) -> float | list[Any]:
    return values if isinstance(values, float) else values.tolist()


def _dump(data: dict[str, Any]) -> None:
    import json

    sys.stdout.write(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
