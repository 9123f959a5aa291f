"""Text for people: numbers with their error, the budget as a bar, tables that fit a terminal.

Plain text carries everything; bold and dim only help the eye, and only in a terminal. Whatever an asker wrote is
printed with control signs made visible, so that no name or question can steer a terminal.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from fractions import Fraction

    from dodona.privacy.budget import Budget

BAR = 24
_STYLES = {"bold": "1", "dim": "2", "error": "1;31"}


def fancy(stream: TextIO) -> bool:
    """Whether styling helps here: a terminal, and nobody said otherwise."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """``text`` in a style, in a terminal; as it is elsewhere."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if text and fancy(stream or sys.stdout) else text


def clean(text: str) -> str:
    """One line in which every control sign is visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print, also where the terminal's alphabet has no ±."""
    out = stream or sys.stdout
    try:
        text.encode(out.encoding or "utf-8")
    except UnicodeEncodeError:
        plain = text.replace("±", "+/-").replace("…", "...")
        text = plain.encode(out.encoding or "ascii", "backslashreplace").decode(out.encoding or "ascii")
    print(text, file=out)


def width() -> int:
    """Columns to fill: the terminal's, or as many as it takes in a file or pipe."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 10_000


def number(value: float, margin: float) -> str:
    """A value with its error bar, both to the two digits of the error that mean something."""
    if margin == 0:
        return f"{value:,.10g} exactly"
    digits = max(0, 1 - math.floor(math.log10(margin)))
    return f"{value:,.{digits}f} ± {margin:,.{digits}f}"


def percent(share: float) -> str:
    """A share of the budget: as many digits as tell it from none and from all."""
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    edge = max(min(abs(share), abs(1 - share)) * 100, 1e-13)
    return f"{share * 100:.{min(12, max(1, 1 - math.floor(math.log10(edge))))}f} %"


def sure(confidence: float) -> str:
    """95 %, 99.9 %."""
    return f"{confidence * 100:.10g} %"


def bar(spent: float) -> str:
    """``[######------------------]``: spent is filled; any spending shows, and only all of it fills the bar."""
    filled = min(BAR, max(0, round(spent * BAR)))
    filled = max(filled, 1) if spent > 0 else filled
    filled = min(filled, BAR - 1) if spent < 1 else filled
    return "[" + "#" * filled + "-" * (BAR - filled) + "]"


def spent_line(budget: Budget, units: int) -> str:
    """The bar and both sides of it."""
    spent = units / budget.capacity
    return f"{bar(spent)} {percent(spent)} spent, {percent(1 - spent)} left of {budget.unit} {short(budget.total)}"


def short(amount: Fraction | float) -> str:
    """Four digits of an amount."""
    return f"{float(amount):.4g}"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """``name  value`` lines, the names in one column."""
    room = max(len(name) for name, _ in pairs)
    return "\n".join(f"{paint(name.ljust(room), 'dim')}  {value}" for name, value in pairs)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str, flexible: int | None = None) -> str:
    """Columns two blanks apart; ``align``: l or r for each. Column ``flexible`` is cut to fit the width."""
    grid = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(header))]
    if flexible is not None:
        excess = sum(widths) + 2 * (len(widths) - 1) - width()
        widths[flexible] = max(12, widths[flexible] - max(0, excess))
    lines = []
    for row in grid:
        cells = [cell if len(cell) <= room else cell[: room - 1] + "…" for cell, room in zip(row, widths, strict=True)]
        placed = [c.ljust(w) if a == "l" else c.rjust(w) for c, w, a in zip(cells, widths, align, strict=True)]
        lines.append("  ".join(placed).rstrip())
    lines[0] = paint(lines[0], "bold")
    lines.insert(1, "  ".join("-" * room for room in widths))
    return "\n".join(lines)


def fits(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the table is no wider than the terminal."""
    widths = [max(len(clean(row[i])) for row in (header, *rows)) for i in range(len(header))]
    return sum(widths) + 2 * (len(widths) - 1) <= width()


def stacked(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table too wide for the terminal, one record below the other."""
    room = max(map(len, header))
    records = [
        "\n".join(f"{clean(name).ljust(room)}  {clean(cell)}" for name, cell in zip(header, row, strict=True))
        for row in rows
    ]
    return "\n\n".join(records)
