"""All databases of a small domain, and all pairs of them that differ in one row, under either relation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dodona.engines.table import Table
from dodona.query.schema import Schema

Rows = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class SmallDomain:
    """Tables of up to ``most`` rows, each one of ``kinds`` (values in the order of the schema's columns)."""

    schema: Schema
    kinds: tuple[tuple[Any, ...], ...]
    most: int = 3

    def tables(self) -> Iterator[Rows]:
        """Every multiset of 1 to ``most`` rows: the order of rows is no part of a database."""
        for size in range(1, self.most + 1):
            yield from itertools.combinations_with_replacement(self.kinds, size)

    def pairs(self, neighbours: str) -> list[tuple[Rows, Rows]]:
        """Every pair of neighbours once: one row replaced, or one row more."""
        found: set[tuple[Rows, Rows]] = set()
        place = {kind: index for index, kind in enumerate(self.kinds)}
        for rows in self.tables():
            for kind in self.kinds:
                if neighbours == "add-remove":
                    if len(rows) < self.most:
                        found.add((rows, _ordered((*rows, kind), place)))
                    continue
                for i in range(len(rows)):
                    near = _ordered((*rows[:i], kind, *rows[i + 1 :]), place)
                    if near != rows and (near, rows) not in found:
                        found.add((rows, near))
        return sorted(found, key=repr)

    def table(self, rows: Rows, neighbours: str) -> Table:
        """These rows as a table; under add-remove the stated public number of rows has nothing to do with them."""
        columns = {name: np.array([row[i] for row in rows]) for i, name in enumerate(self.schema)}
        stated = self.most if neighbours == "add-remove" else None
        return Table(columns, self.schema, neighbours=neighbours, rows=stated, name="tiny")


def shown(pair: tuple[Rows, Rows]) -> str:
    """A pair in few signs."""
    return " ~ ".join("{" + ", ".join(",".join(map(str, row)) for row in rows) + "}" for rows in pair)


def _ordered(rows: Rows, place: dict[tuple[Any, ...], int]) -> Rows:
    return tuple(sorted(rows, key=place.__getitem__))
