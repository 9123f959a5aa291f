"""``dodona plan``: is it possible, with what error, from how many rows, by which theorem; before touching any data.

Each plan shows the trust models side by side where the papers speak of both: the price of privacy, and of distrust.
"""

from __future__ import annotations

import json as written
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dodona.cli.publish import read_settings

if TYPE_CHECKING:
    from dodona.audit.enumeration import TapeAudit
    from dodona.audit.exact import ExactAudit
    from dodona.bounds import Outlook


plan_app = typer.Typer(
    help="Say what is possible, and what it takes, before touching any data.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Epsilon = Annotated[str, typer.Option(help="What one row may lose; a number or a fraction such as 1/10.")]
Beta = Annotated[str, typer.Option(help="Probability of failure.")]
Rows = Annotated[int | None, typer.Option(help="Rows at hand; without it, the rows needed are shown.")]
ClassName = Annotated[str, typer.Option("--class", help="The class of questions or hypotheses.")]


@plan_app.command("queries")
def queries(
    count: Annotated[int, typer.Option(help="How many statistical queries.")],
    tolerance: Annotated[str, typer.Option(help="The error each mean may have.")],
    epsilon: Epsilon,
    rows: Annotated[int, typer.Option(help="Rows at hand.")],
    delta: Annotated[str, typer.Option(help="For the trusted curator, and where reports are shuffled.")] = "1e-6",
    beta: Beta = "0.05",
) -> None:
    """Answer many statistical queries: with a trusted curator, behind a shuffler, and with nobody trusted."""
    from dodona.bounds.klnrs import plan_queries, plan_shuffled
    from dodona.bounds.sulq import interactive, statistical_queries

    tau, failure = real(tolerance, "tolerance"), real(beta, "beta")
    trusted = statistical_queries(rows, [tau] * count, epsilon, delta, failure)
    show("a trusted curator, all answers at once", [trusted])
    show("a trusted curator, each by itself", [interactive(rows, count, epsilon, delta, tau, 1 - failure)])
    show("an anonymous shuffler", [plan_shuffled(count, tolerance, epsilon, delta, rows=rows, beta=beta)])
    local = plan_queries(count, tolerance, epsilon, rows=rows, beta=beta)
    show("nobody trusted", [local])
    if trusted.rows_needed and local.rows_needed:
        typer.echo(f"\nthe price of distrust: {local.rows_needed / trusted.rows_needed:,.0f} times the rows")


@plan_app.command("question")
def question(
    survey: Annotated[Path, typer.Argument(metavar="SURVEY.TOML", help="What is stated about the table.")],
    text: Annotated[str, typer.Argument(metavar="QUESTION", help="A SELECT, or an expression whose mean is wanted.")],
    epsilon: Annotated[str, typer.Option(help="The promise to whoever sees the answers, all of it for this question.")],
    delta: Annotated[str, typer.Option(help="The delta of that promise.")] = "1e-6",
) -> None:
    """One question of your table by each who could be trusted, at one promise; reads no row but to count them."""
    from dodona.config import Config
    from dodona.oracles.collected import side_by_side

    for outlook in side_by_side(Config.read(survey).open_table(), text, epsilon, delta):
        show(outlook.method, [replace(outlook, method="")])


@plan_app.command("learn")
def learn(
    name: ClassName,
    dimension: Annotated[int, typer.Option("--dimension", "--bits", help="Bits, or cuts per column.")],
    epsilon: Epsilon,
    alpha: Annotated[str, typer.Option(help="The error to reach beyond the best of the class.")] = "0.05",
    beta: Beta = "0.05",
    width: Annotated[int, typer.Option(help="Literals, rules, depth, bits of a parity, or columns of a box.")] = 1,
    rows: Rows = None,
) -> None:
    """Learn the best of a class privately: rows needed with and without privacy, and with nobody trusted."""
    from dodona.bounds.klnrs import plan_queries
    from dodona.bounds.learning import plan_learn

    verdicts = plan_learn(name, dimension, width=width, alpha=alpha, beta=beta, epsilon=epsilon, rows=rows)
    show("a trusted curator", verdicts)
    if name == "parities" and width >= dimension:
        typer.echo("\nnobody trusted: impossible from any number of rows polynomial in the bits (KLNRS Corollary 5.15)")
        return
    members = _members(name, dimension, width)
    if members > 10**7:
        typer.echo(f"\nnobody trusted: asking each of {members:.3g} members is out of reach; use `dodona plan local`")
        return
    half = str(real(alpha, "alpha") / 2)
    show("nobody trusted, asking every member at once", [plan_queries(members, half, epsilon, rows=rows, beta=beta)])


@plan_app.command("local")
def local(
    name: ClassName,
    bits: Annotated[int, typer.Option(help="Attributes of a person.")],
    epsilon: Epsilon,
    rows: Rows = None,
    tolerance: Annotated[str, typer.Option(help="The error every question of the class may have.")] = "0.05",
    beta: Beta = "0.05",
) -> None:
    """Serve a whole class by one randomised response of each person: possible, from how many, or why not."""
    from dodona.bounds.alda_simon import plan_class

    show("nobody trusted", [plan_class(name, bits, epsilon, rows=rows, tolerance=tolerance, beta=beta)])


@plan_app.command("release")
def release(
    survey: Annotated[Path, typer.Argument(metavar="SURVEY.TOML", help="What the curator states about the table.")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Which release: intervals, conjunctions, ...")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of it: width=2, columns=a,b.")
    ] = None,
    share: Annotated[str | None, typer.Option(metavar="S", help="Fraction of the whole budget: 0.05 or 1/20.")] = None,
    epsilon: Annotated[str | None, typer.Option(metavar="E", help="Spend this epsilon (pure noise).")] = None,
    rho: Annotated[str | None, typer.Option(metavar="R", help="Spend this rho (Gaussian noise).")] = None,
) -> None:
    """Say how each method of a release would do; reads no row, spends nothing. See docs for kinds and settings."""
    from dodona.config import Config
    from dodona.oracles.effort import Effort

    found, read = read_settings(kind, settings)
    effort = Effort.divisible(free=False, share=share, epsilon=epsilon, rho=rho)
    curator = Config.read(survey).open_curator("plan", asking=False)
    show(f"{kind}, a trusted curator", found.plan(curator, **read, effort=effort))


def _members(name: str, dimension: int, width: int) -> int:
    import math

    from dodona.bounds.learning import LOG_SIZES

    size = LOG_SIZES[name](dimension, width)
    return round(math.exp(size)) if size < 40 else 10**18


def real(text: str, name: str) -> float:
    """A number or a fraction, as typed."""
    from dodona.privacy.numbers import exact

    return float(exact(text, name))


def show(who: str, outlooks: Sequence[Outlook]) -> None:
    """An outlook as a short block: who is trusted, the outcome, then what it takes."""
    for outlook in outlooks:
        rows = "no number of rows named" if outlook.rows_needed is None else f"{outlook.rows_needed:,} rows"
        measured = f" {outlook.scale} ({outlook.measure})" if outlook.measure else ""
        error = "" if outlook.error is None else f", error {outlook.error:.3g}{measured}"
        typer.echo(f"\n{who}: {outlook.outcome.value.upper()}")
        typer.echo(f"  what     {outlook.what}")
        typer.echo(f"  needs    {rows}{error}")
        for name, value in outlook.details.items():
            typer.echo(f"           {name.replace('_', ' ')} {value:,.6g}")
        if outlook.theorem or outlook.method:
            typer.echo(f"  by       {', '.join(filter(None, (outlook.method, outlook.theorem)))}")
        if outlook.why:
            typer.echo(f"  note     {outlook.why}")


# ``dodona audit``: attack ourselves here and now, on this machine and this version, and print what was found.
#
# Every mechanism's claim against computed probabilities, every sampler against the law it states by going through all
# its tapes, every small end-to-end path on all pairs of neighbouring tables. It touches no data and no ledger.


FAILED, LEFT_OUT = 1, 2
_EXTRAS = {"scipy": "learn", "sklearn": "learn", "pyarrow": "arrow"}


def audit(
    slow: Annotated[bool, typer.Option("--slow", help="A thousand settings and larger tables: many minutes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    only: Annotated[str | None, typer.Option(metavar="TEXT", help="Only lines whose name contains this.")] = None,
) -> None:
    """Check every promise by computed probabilities; exit code 0 only if all hold. Reads no data, spends nothing.

    A line that needs a package which is not installed is left out and named, and then the exit code is 2.
    """
    from rich.console import Console
    from rich.progress import Progress

    from dodona.audit.suite import every_check

    chosen = [check for check in every_check(slow) if only is None or only.lower() in check.name.lower()]
    if not chosen:
        raise typer.BadParameter(f"no line of the audit has {only!r} in its name.")
    started = time.perf_counter()
    found: list[ExactAudit | TapeAudit] = []
    left_out: dict[str, str] = {}
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("auditing", total=len(chosen))
        for check in chosen:
            progress.update(task, description=check.name)
            try:
                found += check.work()
            except ModuleNotFoundError as absent:
                left_out[check.name] = (absent.name or "").split(".")[0]
            progress.advance(task)
    held = all(result.holds for result in found)
    seconds = time.perf_counter() - started
    if json:
        lines = [_fields(result) for result in found]
        told = {"holds": held, "seconds": round(seconds, 3), "checks": lines, "left_out": left_out}
        sys.stdout.write(written.dumps(told) + "\n")
    else:
        _print(found, held, seconds)
    for name, package in left_out.items():
        wanted = f"dodona[{_EXTRAS[package]}]" if package in _EXTRAS else package
        typer.echo(f"dodona: not audited: {name} needs {package}: pip install '{wanted}'.", err=True)
    if not held or left_out:
        raise typer.Exit(LEFT_OUT if held else FAILED)


def _fields(result: ExactAudit | TapeAudit) -> dict[str, Any]:
    # JSON has no infinity.
    return {key: None if value in (math.inf, -math.inf) else value for key, value in result.as_dict().items()}


def _print(found: list[ExactAudit | TapeAudit], held: bool, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("mechanism", "claim", "worst pair found", "slack", "verdict"):
        table.add_column(name, justify="right" if name == "slack" else "left", overflow="fold")
    for result in found:
        colour = "green" if result.holds else "bold red"
        table.add_row(*(Text(cell) for cell in result.cells()), Text(result.verdict, style=colour))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    # Plain print: the line is for people and scripts alike, whatever the width.
    pairs = sum(getattr(result, "pairs", 0) for result in found)
    verdict = "Every line holds." if held else "NOT every line holds."
    console.print(
        f"{verdict} {len(found)} lines, {pairs:,} pairs of neighbours, {seconds:.1f} s. "
        "'proven' is a proof for these sizes, up to the delta that --json states.",
        soft_wrap=True,
        highlight=False,
    )
