"""A program as one Spark statement: the sums of each key side by side, joined by UNION ALL, so that one job answers it.

Every branch gives (branch, rows counted, key, array of whole sums); only these come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dodona.engines.sql import Compiled, Statement
from dodona.query.program import Program

LONGEST_COLUMN = 400
LONGEST_LEVEL = 3000  # characters of one sub-select: beyond, its generated method is too large for the JVM to compile


class SparkCompiled(Compiled):
    """Sums come back as BIGINT, or as decimals where they could leave 2^53."""

    _whole = "BIGINT"

    @property
    def longest_level(self) -> int:
        """Characters in the longest list of shared values; the constants of a lookup are data, not code."""
        lengths = dict.fromkeys(self._level.values(), 0)
        for index, level in self._level.items():
            column = self._lowered.nodes[index].op == "column"
            lengths[level] += min(len(self._definitions[index]), LONGEST_COLUMN if column else LONGEST_LEVEL + 1)
        return max(lengths.values(), default=0)

    def statement(self, exact_double: Mapping[int, bool]) -> tuple[str, list[Statement]]:
        """The whole statement, and its branches in order."""
        self._whole = "BIGINT" if all(exact_double.values()) else "DECIMAL(38, 0)"
        branches = self.statements(exact_double)
        texts = [f"SELECT {number} AS branch, {branch.text}" for number, branch in enumerate(branches)]
        return " UNION ALL ".join(texts), branches

    def _statement(self, key: int | None, entries: Sequence[tuple[int, int, str]]) -> Statement:
        parts: dict[int, list[int]] = {}
        for number, offset, _ in entries:
            parts.setdefault(number, []).append(offset)
        cell, by = "CAST(NULL AS DOUBLE)", ""
        if key is not None:
            x = self._texts[self._lowered.at[key]]
            last = self.dialect.number(float(max(self.program.blocks[number].cells for number in parts) - 1))
            cell = f"CASE WHEN {x} BETWEEN {self.dialect.number(0.0)} AND {last} THEN {x} END"
            by = f" GROUP BY {cell}"
        sums = ", ".join(f"CAST({text} AS {self._whole})" for _, _, text in entries)
        text = f"COUNT(*) AS counted, {cell} AS cell, array({sums}) AS sums FROM {self.inner}{by}"
        return Statement(text, key is not None, tuple((n, tuple(offsets)) for n, offsets in parts.items()))


def place(
    program: Program, branch: Statement, cell: float | None, sums: Sequence[Any], into: list[NDArray[Any]]
) -> None:
    """One row of the result into the totals; NULL is the sum over no row, or of rows that fall in no cell."""
    if branch.key and cell is None:
        return
    key, position = int(cell or 0), 0
    for number, offsets in branch.parts:
        block = program.blocks[number]
        for offset in offsets:
            if key < block.cells:
                into[number][key * block.width + offset] = int(sums[position] or 0)
            position += 1
