"""``dodona plan``: what whole classes of questions and functions take, from theorems alone; no row is read.

``class`` is about one class as a matrix of points by members, ``map`` about several side by side, ``submodular`` about
functions of sets, ``barrier`` about what no number of rows will do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dodona.cli.plan import Beta, Epsilon, Rows, plan_app, real, show

if TYPE_CHECKING:
    from dodona.concepts.concept import ConceptClass

MOST_COMPARED = 300  # members, each with each
NAMED = ("prefixes", "parity", "monomial", "clause")


@plan_app.command("class")
def finite(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CLASS", help=f"{', '.join(NAMED)} (--size); or, of a survey: listed, conjunctions, boxes, ..."
        ),
    ],
    epsilon: Epsilon,
    survey: Annotated[Path | None, typer.Argument(metavar="SURVEY.TOML", help="Whose columns the class reads.")] = None,
    size: Annotated[int, typer.Option(help="Bits of a named class; cells of prefixes.")] = 4,
    columns: Annotated[str, typer.Option(help="Columns of the survey: a,b,c.")] = "",
    width: Annotated[int, typer.Option(help="Literals, rules, or depth.")] = 2,
    cuts: Annotated[str, typer.Option(help="Cuts of number columns: 10,20,30.")] = "",
    condition: Annotated[list[str] | None, typer.Option(help="A member of a listed class; may be repeated.")] = None,
    bits: Annotated[int | None, typer.Option(help="Precision of number columns.")] = None,
    rows: Rows = None,
    tolerance: Annotated[str, typer.Option(help="The error every member may have.")] = "0.05",
    delta: Annotated[str, typer.Option(help="For the trusted curator.")] = "1e-6",
    beta: Beta = "0.05",
) -> None:
    """Answer any finite class as well as can be: its gamma_2, proven from both sides, and what that means in rows."""
    import numpy as np

    from dodona.bounds.alda_simon import plan_matrix, sign_matrix
    from dodona.bounds.factorisation import plan_finite, prefixes
    from dodona.bounds.releases import queries_for_parities, sq_dimension

    if name == "prefixes" and size > 1024:
        low, high = prefixes(size)
        typer.echo(f"prefix counts of {size:,} cells: gamma_2 from {low:.4f} to {high:.4f}, in closed form")
        return
    if name == "prefixes":
        signs = np.where(np.tri(size, dtype=np.bool_), 1, -1).astype(np.int8)[:, 1:]
    elif name in NAMED:
        signs = sign_matrix(name, size)
    else:
        from dodona.config import Config
        from dodona.synopses.domain import signs_of

        if survey is None:
            raise typer.BadParameter(f"name one of {', '.join(NAMED)}, or give the survey whose columns it reads.")
        schema = Config.read(survey).open_table().schema
        signs = signs_of(_class(name, columns, width, cuts, condition or []), schema, bits=bits)
    asked: dict[str, Any] = {"rows": rows, "tolerance": tolerance, "beta": beta, "what": name}
    curator, local = plan_finite(signs, epsilon, delta, **asked)
    show("a trusted curator", [curator])
    show("nobody trusted", [local])
    show("nobody trusted, and what cannot be", [plan_matrix(signs, epsilon, rows=rows)])
    dimension = sq_dimension((signs > 0).T) if signs.shape[1] <= MOST_COMPARED else 0
    if dimension >= 16:
        show("learned by statistical queries", [queries_for_parities(dimension)])


def _class(name: str, columns: str, width: int, cuts: str, conditions: Sequence[str]) -> ConceptClass:
    from dodona.concepts.boxes import Boxes, Halfspaces
    from dodona.concepts.concept import Finite
    from dodona.concepts.conjunctions import Conjunctions, Disjunctions
    from dodona.concepts.parities import Parities
    from dodona.concepts.trees import DecisionLists, Trees

    names = [part.strip() for part in columns.split(",") if part.strip()]
    places = [real(part, "cuts") for part in cuts.split(",") if part.strip()]
    edges = dict.fromkeys(names, places) if places else None
    made: dict[str, Callable[[], ConceptClass]] = {
        "listed": lambda: Finite.of(conditions),
        "conjunctions": lambda: Conjunctions.over(names, width, edges),
        "disjunctions": lambda: Disjunctions.over(names, width, edges),
        "decision-lists": lambda: DecisionLists.over(names, width, edges),
        "trees": lambda: Trees.over(names, width, edges),
        "parities": lambda: Parities.over(names, width),
        "boxes": lambda: Boxes.over(dict.fromkeys(names, places)),
        "halfspaces": lambda: Halfspaces.over(names),
    }
    if name not in made:
        raise typer.BadParameter(f"the class must be one of {', '.join((*NAMED, *made))}.")
    if not (conditions if name == "listed" else names):
        raise typer.BadParameter("a listed class needs --condition, any other class of a survey --columns.")
    return made[name]()


@plan_app.command("map")
def classes(
    bits: Annotated[int, typer.Option(help="Bits of a row; cuts are one fewer than two to this power.")] = 16,
    epsilon: Epsilon = "1",
    alpha: Annotated[str, typer.Option(help="The error to reach beyond the best of the class.")] = "0.05",
    beta: Beta = "0.05",
) -> None:
    """The map of classes (KLNRS, figure 2) in rows: without privacy, with a curator, and with nobody trusted."""
    from dodona.bounds.alda_simon import plan_class
    from dodona.bounds.klnrs import masked_parity_failure
    from dodona.bounds.learning import least_rows, littlestone, plan_learn

    cells = (1 << min(bits, 16)) - 1
    wanted = {"alpha": alpha, "beta": beta, "epsilon": epsilon}
    a, b, e = (real(text, what) for what, text in wanted.items())
    lines = [("class", "no privacy", "curator: at least", "curator: at most", "nobody trusted, once")]
    listed = (
        ("conjunctions", bits, 3, "monomial"),
        ("decision-lists", bits, 3, "decision-list"),
        ("parities", bits, bits, "parity"),
        ("points", cells, 1, None),
        ("thresholds", cells, 1, None),
    )
    for name, dimension, width, served in listed:
        verdicts = plan_learn(name, dimension, width=width, alpha=alpha, beta=beta, epsilon=epsilon)
        plain = min(int(verdict.details["rows without privacy"]) for verdict in verdicts)
        most = min(int(verdict.rows_needed or 10**18) for verdict in verdicts)
        least = least_rows(littlestone(name, dimension, width), a, b, e)
        local = plan_class(served, bits, epsilon, tolerance=alpha, beta=beta) if served else None
        own = "" if local is None or local.rows_needed is None else f"{local.rows_needed:,}"
        own = f"no fewer than {own}" if local is not None and not local.feasible else own
        lines.append((name, f"{plain:,}", f"{least:,}", f"{most:,}", own))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        typer.echo(
            "  ".join(
                f"{cell:>{w}}" if i else f"{cell:<{w}}" for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            )
        )
    queries = 1 << min(bits // 3, 60)
    typer.echo(
        f"\nmasked parity of {bits} bits: two rounds of {bits + 1} statistical queries find it; in one round "
        f"{queries:,} of them fail with probability {masked_parity_failure(bits, queries):.3g} or more "
        "(KLNRS Theorem 5.16)"
    )


@plan_app.command("separator")
def separator(
    dimension: Annotated[int, typer.Option(help="Numbers of a row, the constant counted.")],
    margin: Annotated[str, typer.Option(help="Least product of a unit vector with any row times its label.")],
    epsilon: Epsilon,
    rows: Annotated[int, typer.Option(help="Rows at hand, each of length at most 1.")],
    error: Annotated[str, typer.Option(help="The share of rows that may be left misclassified.")] = "0.1",
    delta: Annotated[str, typer.Option(help="For the trusted curator.")] = "1e-6",
    beta: Beta = "0.05",
) -> None:
    """Separate two classes by the perceptron of SuLQ (Theorem 3): rounds, noise, and the rows it cannot set right."""
    from dodona.bounds.sulq import perceptron

    wanted = {"error": real(error, "error"), "failure": real(beta, "beta")}
    show("a trusted curator", [perceptron(rows, dimension, real(margin, "margin"), epsilon, delta, **wanted)])


@plan_app.command("submodular")
def submodular(
    elements: Annotated[int, typer.Option(help="Elements of the sets.")],
    epsilon: Epsilon,
    alpha: Annotated[str, typer.Option(help="The error most sets may have.")] = "0.1",
    beta: Annotated[str, typer.Option(help="The part of the sets that may err more.")] = "0.1",
    monotone: Annotated[bool, typer.Option("--monotone", help="The function only grows, as coverage does.")] = False,
    rows: Rows = None,
) -> None:
    """Publish a function of sets (GHRU Algorithm 1): pieces, questions and rows by Theorem 3.5."""
    from dodona.bounds.releases import submodular_release

    a, b = real(alpha, "alpha"), real(beta, "beta")
    found = submodular_release(elements, a, b, rows=rows, epsilon=real(epsilon, "epsilon"), monotone=monotone)
    show("a trusted curator", [found])


@plan_app.command("barrier")
def barrier(
    columns: Annotated[int, typer.Option(help="Columns of true and false.")],
    alpha: Annotated[str, typer.Option(help="The error every conjunction may have.")] = "0.01",
    rows: Annotated[int, typer.Option(help="Rows at hand, for medians.")] = 10_000,
    epsilon: Epsilon = "1",
    bits: Annotated[int, typer.Option(help="Precision of a number column, for medians.")] = 32,
) -> None:
    """What cannot be done: conjunctions and parities by statistical queries, medians of ever finer numbers."""
    from dodona.bounds.releases import (
        chain_probability,
        conjunction_barrier,
        parity_error,
        queries_for_parities,
        release_by_learning,
    )

    wanted = real(alpha, "alpha")
    found = conjunction_barrier(columns, wanted)
    show("all conjunctions, by statistical queries", [found])
    dimension = int(found.details["sq_dimension"])
    if dimension >= 16:
        show("its parities, by statistical queries", [queries_for_parities(dimension)])
    typer.echo(
        f"\na parity of {columns} bits by equation (19): {parity_error(columns, wanted):.3g} off, at most 1 counts"
    )
    if columns <= 64 and 0 < wanted <= 0.5:
        show("all conjunctions, by a learner of them", [release_by_learning(2**columns, wanted, wanted / 2)])
    chain = chain_probability(rows, epsilon, 2.0**-bits)
    needed = math.ceil(bits * math.log(2) / real(epsilon, "epsilon"))
    typer.echo(
        f"\na median of {bits} bits from {rows:,} rows (BLR Theorem 5.1): any one value is right on some table, and is "
        f"shown there with probability at most {chain[-1]:.3g}; below {needed:,} rows some value never is"
    )
