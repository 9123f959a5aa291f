"""Text for people: numbers with their error, the budget as a bar, tables that fit a terminal.

Plain text carries everything; bold and dim only help the eye, and only in a terminal. Whatever an asker wrote is
printed with control signs made visible, so that no name or question can steer a terminal.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from fractions import Fraction

    from dodona.oracles.answer import Bill, Price
    from dodona.oracles.rows import Rows
    from dodona.privacy.budget import Budget
    from dodona.privacy.ledger import Entry, Ledger

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


def page(book: Ledger, start: int | None, limit: int, last: int, *, each: bool = False) -> list[list[Entry]]:
    """``limit`` charges and grants, from number ``start`` or up to the latest; answers are part of their charge. The
    questions of one piece of work count as one, unless ``each`` is wanted.
    """
    found: list[Entry] = []
    number = last + 1 if start is None else max(start, 1)
    while len(_works(found, each)) < limit and (number > 1 if start is None else number <= last):
        first = max(1, number - 1000) if start is None else number
        read = book.entries(first, number - first if start is None else 1000)
        fresh = [entry for entry in read if entry.kind != "answer"]
        found, number = ([*fresh, *found], first) if start is None else ([*found, *fresh], number + 1000)
    works = _works(found, each)
    return works[-limit:] if start is None else works[:limit]


def history(book: Ledger, works: list[list[Entry]], last: int) -> str:
    """The ledger as a table, a line for each piece of work. A charge without an answer is in flight, or its answer was
    lost.
    """
    capacity = book.genesis.budget.capacity
    rows = []
    for entries in works:
        first, entry = entries[0], entries[-1]
        lost = sum(one.kind == "charge" and book.answer(one.seq) is None for one in entries)
        if len(entries) > 1:
            what = f"{work_of(entry)}, {len(entries):,} questions" + (f", {lost:,} without an answer" if lost else "")
        else:
            what = _granted(entry, book.genesis.budget) if entry.kind == "grant" else entry.what
            what = f"(no answer) {what}" if lost else what
        left = percent((capacity - entry.total_after) / capacity)
        when = entry.time[:16].replace("T", " ")
        cost = percent(sum(one.amount for one in entries) / capacity) + _delta_of(entries)
        number = str(entry.seq) if first is entry else f"{first.seq}-{entry.seq}"
        rows.append([number, when, entry.analyst, what, cost, left])
    text = table(["#", "time (UTC)", "analyst", "question", "cost", "left"], rows, "rlllrr", flexible=3)
    shown = sum(map(len, works))
    note = "no charge yet" if not last else f"{shown:,} shown of {last:,} entries (answers are entries of their own)"
    folded = len(rows) < shown
    return f"{text}\n{note}" + ("; work of many questions in one line, --each unfolds it" if folded else "")


def _works(shown: list[Entry], each: bool) -> list[list[Entry]]:
    """The entries, those of one piece of work together, where its first stands."""
    found: dict[object, list[Entry]] = {}
    for entry in shown:
        work = (entry.request_id or "").rpartition("/")[0] if entry.kind == "charge" and not each else ""
        found.setdefault((entry.analyst, work) if work else entry.seq, []).append(entry)
    return list(found.values())


def work_of(entry: Entry) -> str:
    """What a question was asked for, as its name says: LogisticRegression.disease:7f21/3."""
    what, _, of = (entry.request_id or "").rpartition("/")[0].partition(":")[0].partition(".")
    return f"{what} of {of}" if of else what


def _delta_of(entries: Sequence[Entry]) -> str:
    from dodona.privacy.budget import KEY_UNITS
    from dodona.privacy.ledger import KEYS

    units = sum((entry.paid(KEYS) or (0, 0))[0] for entry in entries)
    return f", delta {short(units / KEY_UNITS)}" if units else ""


def _granted(entry: Entry, budget: Budget) -> str:
    from dodona.privacy.budget import KEY_UNITS
    from dodona.privacy.ledger import KEYS
    from dodona.privacy.ledger.sums import read_grant

    account, units = read_grant(entry.detail)
    if account == KEYS:
        return f"granted up to delta {short(min(units, budget.key_capacity) / KEY_UNITS)} for keys"
    return f"granted up to {percent(units / budget.capacity)}"


def keys_line(book: Ledger) -> list[tuple[str, str]]:
    """What keys have taken of the budget's delta; nothing where the budget has no part for them."""
    from dodona.privacy.budget import KEY_UNITS
    from dodona.privacy.ledger import KEYS

    budget = book.genesis.budget
    if not budget.keys:
        return []
    units = book.spent(KEYS)
    spent, left = (short(u / KEY_UNITS) for u in (units, budget.key_capacity - units))
    return [("keys", f"delta {spent} spent, {left} left of {short(budget.keys)} for keys that nobody listed")]


def grid(rows: Rows) -> str:
    """The result of a SELECT: keys to the left, estimates to the right; stacked where it is too wide."""
    from dodona.oracles.rows import Estimate, shown

    cells = [[shown(cell) for cell in record] for record in rows]
    if not fits(rows.columns, cells):
        return stacked(rows.columns, cells)
    sample = rows.records[0] if rows.records else ()
    align = "".join("r" if isinstance(cell, Estimate) else "l" for cell in sample)
    return table(rows.columns, cells, align)


def receipt(bill: Bill, book: Ledger) -> list[tuple[str, str]]:
    """What an answer cost, what is left, and where the charge stands."""
    place = "" if bill.seq is None else f"charge {bill.seq}, {str(bill.hash)[:12]}"
    return [
        ("cost", cost(bill)),
        ("budget", spent_line(book.genesis.budget, book.spent())),
        *keys_line(book),
        ("receipt", f"{place} ({bill.mechanism}; {bill.neighbours} neighbours)"),
    ]


def cost(bill: Bill) -> str:
    """An amount, and its share of the budget."""
    delta = f", and delta {short(bill.keys)} for keys" if bill.keys else ""
    return f"{bill.unit} {short(bill.amount)} = {percent(bill.share)} of the budget{delta}"


def certain(confidence: float, proven: bool) -> str:
    """How sure error bars are, and why."""
    return f"{sure(confidence)} sure, {'proven' if proven else 'estimated'}"


def below(rows: Rows) -> list[tuple[str, str]]:
    """What a reader of a SELECT's table must know of its numbers."""
    pairs = [("error bars", f"each {certain(rows.confidence, rows.proven)}")]
    if rows.lost:
        pairs.append(("lost", f"{rows.lost:,} of the numbers: worth nothing at this price"))
    pairs += [("chosen", told) for told in rows.told]
    return pairs + beside(rows.leaves_out)


def beside(leaves_out: Sequence[str]) -> list[tuple[str, str]]:
    """What error bars do not speak of: they are of the noise only."""
    return [("noise only" if i == 0 else "", clean(sentence)) for i, sentence in enumerate(leaves_out)]


def accuracy(offer: Price) -> list[tuple[str, str]]:
    """How far off the answer would be; of a SELECT, column by column."""
    if offer.columns:
        told = [*map(str, offer.columns), certain(offer.confidence, offer.proven)]
        return [("accuracy" if i == 0 else "", clean(line)) for i, line in enumerate(told)]
    return [("accuracy", _of_sums(offer))]


def _of_sums(offer: Price) -> str:
    import numpy as np

    worst = float(np.max(offer.margin))
    sureness = f"({certain(offer.confidence, offer.proven)})"
    if np.size(offer.margin) > 1:
        return f"each of {np.size(offer.margin):,} sums within ± {worst:,.4g} at most {sureness}"
    mean = f"mean within ± {worst / max(offer.rows, 1):.3g}, " if offer.rows is not None else ""
    return f"{mean}total within ± {worst:,.4g} {sureness}"


def dump(data: dict[str, Any]) -> None:
    """``data`` as one line of JSON, for programs."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")
