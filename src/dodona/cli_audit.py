"""``dodona audit``: attack ourselves here and now, on this machine and this version, and print what was found.

Every mechanism's claim against computed probabilities, every sampler against the law it states by going through all its
tapes, every small end-to-end path on all pairs of neighbouring tables. It touches no data and no ledger.
"""

from __future__ import annotations

import json as written
import math
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dodona.audit.exact import ExactAudit
    from dodona.audit.tape import TapeAudit

FAILED = 1


def audit(
    slow: Annotated[bool, typer.Option("--slow", help="A thousand settings and larger tables: many minutes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    only: Annotated[str | None, typer.Option(metavar="TEXT", help="Only lines whose name contains this.")] = None,
) -> None:
    """Check every promise by computed probabilities; exit code 0 only if all hold. Reads no data, spends nothing."""
    from rich.console import Console
    from rich.progress import Progress

    from dodona.audit.suite import every_check

    chosen = [check for check in every_check(slow) if only is None or only.lower() in check.name.lower()]
    if not chosen:
        raise typer.BadParameter(f"no line of the audit has {only!r} in its name.")
    started = time.perf_counter()
    found: list[ExactAudit | TapeAudit] = []
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("auditing", total=len(chosen))
        for check in chosen:
            progress.update(task, description=check.name)
            found += check.work()
            progress.advance(task)
    held = all(result.holds for result in found)
    seconds = time.perf_counter() - started
    if json:
        lines = [_fields(result) for result in found]
        sys.stdout.write(written.dumps({"holds": held, "seconds": round(seconds, 3), "checks": lines}) + "\n")
    else:
        _print(found, held, seconds)
    if not held:
        raise typer.Exit(FAILED)


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
    verdict = "Everything holds." if held else "NOT everything holds."
    console.print(
        f"{verdict} {len(found)} lines, {pairs:,} pairs of neighbours, {seconds:.1f} s. "
        "'proven' is a proof for these sizes, up to the delta that --json states.",
        soft_wrap=True,
        highlight=False,
    )
