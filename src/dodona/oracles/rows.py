"""The result of a SELECT: rows of keys and estimates, each estimate with its error. Post-processing only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dodona.oracles.answer import Bill
from dodona.query.schema import Label

LOST = "lost in noise"
EMPTY = "no rows"
NO_NOISE = "no noise: not private"


@dataclass(frozen=True)
class Estimate:
    """A number and how far the truth may be from it, with the statement's confidence.

    ``proven``: whether the margin follows from the noise or a theorem; else it is estimated. ``lost``: why the number
    says nothing beyond the column's public range, if so: "lost in noise", or "no rows" where there is no noise.
    """

    value: float
    margin: float
    proven: bool = True
    lost: str = ""

    def __str__(self) -> str:
        if self.lost:
            return self.lost
        if self.margin == 0:
            return f"{self.value:.10g}"
        digits = max(0, 1 - math.floor(math.log10(self.margin)))
        return f"{self.value:,.{digits}f} ± {self.margin:,.{digits}f}"


Cell = Label | Estimate | float | None


def shown(cell: Cell) -> str:
    """A cell as it is printed."""
    if cell is None:
        return "NULL"
    return f"{cell:.10g}" if isinstance(cell, float) else str(cell)


@dataclass(frozen=True)
class Rows:
    """A table: ``columns`` and ``records``; every key that can occur appears, in the schema's order.

    ``leaves_out``: what the same statement without noise leaves out as well, one sentence each. ``told``: what noise
    has decided beside the numbers, such as which rows are shown. A cell without a value is None.
    """

    columns: tuple[str, ...]
    records: tuple[tuple[Cell, ...], ...]
    confidence: float
    cost: Bill
    leaves_out: tuple[str, ...] = ()
    told: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[Cell, ...]]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def proven(self) -> bool:
        """Whether every margin is proven."""
        return all(cell.proven for record in self.records for cell in record if isinstance(cell, Estimate))

    @property
    def lost(self) -> int:
        """How many numbers are lost in noise."""
        return sum(isinstance(cell, Estimate) and cell.lost == LOST for record in self.records for cell in record)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain records: each estimate as its value, with its margin beside it as ``name ±``.

        A number that is lost also has ``name note``, which says so; its value is the middle of what it may be, or None.
        """
        records = []
        for record in self.records:
            plain: dict[str, Any] = {}
            for name, cell in zip(self.columns, record, strict=True):
                if not isinstance(cell, Estimate):
                    plain[name] = cell
                    continue
                known = math.isfinite(cell.margin)
                plain |= {name: cell.value if known else None, f"{name} ±": cell.margin if known else None}
                plain |= {f"{name} note": cell.lost} if cell.lost else {}
            records.append(plain)
        return records

    def notes(self) -> list[str]:
        """What stands below the table: how sure the margins are, what is lost, what is left out."""
        sure = f"± at {self.confidence * 100:.10g} %, {'proven' if self.proven else 'estimated'}"
        noun = f"{self.lost:,} number{' is' if self.lost == 1 else 's are'}"
        lost = f"{noun} {LOST}: worth nothing at this price; fewer groups or a larger effort would tell more"
        told = f"noise only: {'; '.join(self.leaves_out)}" if self.leaves_out else ""
        return [note for note in (sure, lost if self.lost else "", *self.told, told) if note]

    def __str__(self) -> str:
        grid = [list(self.columns), *([shown(cell) for cell in record] for record in self.records)]
        widths = [max(len(row[i]) for row in grid) for i in range(len(self.columns))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in grid]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([*lines, *self.notes(), f"cost: {self.cost}"])
