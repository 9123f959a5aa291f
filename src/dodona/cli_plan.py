"""``dodona plan``: is it possible, with what error, from how many rows, by which theorem; before touching any data.

Each plan shows the trust models side by side where the papers speak of both: the price of privacy, and of distrust.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dodona.bounds.base import Verdict

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
    delta: Annotated[str, typer.Option(help="For the trusted curator.")] = "1e-6",
    beta: Beta = "0.05",
) -> None:
    """Answer many statistical queries: with a trusted curator, and with nobody trusted."""
    from dodona.bounds.klnrs_local import plan_queries
    from dodona.bounds.sulq import statistical_queries

    tau, failure = _real(tolerance, "tolerance"), _real(beta, "beta")
    trusted = statistical_queries(rows, [tau] * count, epsilon, delta, failure)
    _show("a trusted curator", [trusted])
    local = plan_queries(count, tolerance, epsilon, rows=rows, beta=beta)
    _show("nobody trusted", [local])
    if trusted.rows and local.rows:
        typer.echo(f"\nthe price of distrust: {local.rows / trusted.rows:,.0f} times the rows")


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
    from dodona.bounds.klnrs_local import plan_queries
    from dodona.bounds.learning import plan_learn

    verdicts = plan_learn(name, dimension, width=width, alpha=alpha, beta=beta, epsilon=epsilon, rows=rows)
    _show("a trusted curator", verdicts)
    if name == "parities" and width >= dimension:
        typer.echo("\nnobody trusted: impossible from any number of rows polynomial in the bits (KLNRS Corollary 5.15)")
        return
    members = _members(name, dimension, width)
    if members > 10**7:
        typer.echo(f"\nnobody trusted: asking each of {members:.3g} members is out of reach; use `dodona plan local`")
        return
    half = str(_real(alpha, "alpha") / 2)
    _show("nobody trusted, asking every member at once", [plan_queries(members, half, epsilon, rows=rows, beta=beta)])


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

    _show("nobody trusted", [plan_class(name, bits, epsilon, rows=rows, tolerance=tolerance, beta=beta)])


def _members(name: str, dimension: int, width: int) -> int:
    import math

    from dodona.bounds.learning import LOG_SIZES

    size = LOG_SIZES[name](dimension, width)
    return round(math.exp(size)) if size < 40 else 10**18


def _real(text: str, name: str) -> float:
    from dodona.privacy.numbers import exact

    return float(exact(text, name))


def _show(who: str, verdicts: Sequence[Verdict]) -> None:
    """A verdict as a short block: who is trusted, the outcome, then what it takes."""
    for verdict in verdicts:
        rows = "no number of rows named" if verdict.rows is None else f"{verdict.rows:,} rows"
        error = "" if verdict.error is None else f", error {verdict.error:.3g}"
        typer.echo(f"\n{who}: {verdict.outcome.value.upper()}")
        typer.echo(f"  what     {verdict.what}")
        typer.echo(f"  needs    {rows}{error}")
        for name, value in verdict.details.items():
            typer.echo(f"           {name.replace('_', ' ')} {value:,.6g}")
        typer.echo(f"  by       {verdict.theorem}")
        if verdict.why:
            typer.echo(f"  note     {verdict.why}")
