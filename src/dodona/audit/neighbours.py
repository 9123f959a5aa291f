"""All databases of a small domain, and all pairs of them that differ in one contributor, under either relation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dodona.engines.joined import together
from dodona.engines.table import Table
from dodona.query.schema import Category, Integer, Schema
from dodona.query.unit import Unit

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
                        found.add((rows, _in_order((*rows, kind), place)))
                    continue
                for i in range(len(rows)):
                    near = _in_order((*rows[:i], kind, *rows[i + 1 :]), place)
                    if near != rows and (near, rows) not in found:
                        found.add((rows, near))
        return sorted(found, key=repr)

    def table(self, rows: Rows, neighbours: str) -> Table:
        """These rows as a table; under add-remove the stated public number of rows has nothing to do with them."""
        stated = self.most if neighbours == "add-remove" else None
        return Table(_columns(self.schema, rows), self.schema, neighbours=neighbours, rows=stated, name="tiny")


@dataclass(frozen=True)
class Near(SmallDomain):
    """One contributor of the first kind, and at most one more, of any kind: enough where contributions are added up."""

    most: int = 2

    def tables(self) -> Iterator[Rows]:
        """The first alone, and with each."""
        yield self.kinds[:1]
        yield from ((self.kinds[0], kind) for kind in self.kinds)

    def pairs(self, neighbours: str) -> list[tuple[Rows, Rows]]:
        """The second replaced, or added."""
        alone, *others = self.tables()
        if neighbours == "add-remove":
            return [(alone, other) for other in others]
        return list(itertools.combinations(others, 2))


@dataclass(frozen=True)
class People(Near):
    """A ``kind`` is a person, all of whose rows it lists; neighbours differ in a whole person.

    Some hold more rows than ``unit`` lets count.
    """

    unit: Unit = field(kw_only=True)

    def table(self, rows: Rows, neighbours: str) -> Table:
        """The rows of these people, each with its person's number in the unit's column."""
        owned = [(who, row) for who, person in enumerate(rows) for row in person]
        columns = _columns(self.schema, tuple(row for _, row in owned))
        columns[self.unit.whose] = np.array([who for who, _ in owned])
        return Table(columns, self.schema, neighbours=neighbours, rows=self.most, name="tiny", unit=self.unit)


@dataclass(frozen=True)
class Families(People):
    """People of two tables, ``tiny`` and ``homes``: a ``kind`` lists the rows of both. ``led``: whose a row of tiny is,
    a key says that leads to a third table; two keys lead to each person, and one more to all of them.
    """

    homes: Schema = field(kw_only=True)
    led: bool = False

    def table(self, rows: Rows, neighbours: str) -> Table:
        """The first table, beside the others of its dataset."""
        facts: dict[str, Any] = {"neighbours": neighbours, "population": "tiny"}
        owned = [(who, row) for who, person in enumerate(rows) for row in person[0]]
        columns = _columns(self.schema, tuple(row for _, row in owned))
        unit = self.unit
        keys = [(3 * who + i if i < 2 else -1, who) for who, _ in enumerate(rows) for i in range(3)]
        if self.led:  # by turns under each of a person's keys; what the first has under the shared one is all of theirs
            turns = [(who, i % (2 if who else 3)) for i, (who, _) in enumerate(owned)]
            columns["key"] = np.array([-1 if turn == 2 else 3 * who + turn for who, turn in turns])
            unit = Unit(f"key.{unit.whose}", unit.max_rows)
        else:
            columns[unit.whose] = np.array([who for who, _ in owned], dtype=np.int64)
        lived = [(who, row) for who, person in enumerate(rows) for row in person[1]]
        beside = _columns(self.homes, tuple(row for _, row in lived))
        beside[self.unit.whose] = np.array([who for who, _ in lived], dtype=np.int64)
        held = {
            "tiny": Table(columns, self.schema, rows=self.most, unit=unit, **facts),
            "homes": Table(beside, self.homes, unit=self.unit, **facts),
        }
        if self.led:
            said = {"key": np.array([key for key, _ in keys]), self.unit.whose: np.array([who for _, who in keys])}
            said["paid"] = np.zeros(len(keys))
            held["keys"] = Table(said, Schema({"paid": Integer(0, 1)}), key="key", unit=self.unit, **facts)
        return together(held, self.unit.whose, "tiny")["tiny"]


@dataclass(frozen=True)
class Weighed(Near):
    """Rows that are counts: a kind ends in its weight, and neighbours move the weights by ``unit.max_rows`` at most."""

    unit: Unit = field(kw_only=True)

    def table(self, rows: Rows, neighbours: str) -> Table:
        """The rows, each as often as it says."""
        columns = _columns(self.schema, tuple(row[:-1] for row in rows))
        columns[str(self.unit.weight)] = np.array([row[-1] for row in rows], dtype=np.float64)
        return Table(columns, self.schema, neighbours=neighbours, rows=self.most, name="tiny", unit=self.unit)


@dataclass(frozen=True)
class Fixed(Near):
    """The first column is public: only the rest of a row may be replaced."""

    def pairs(self, neighbours: str) -> list[tuple[Rows, Rows]]:
        """Every pair of neighbours in which nobody has moved to another public group."""
        listed = super().pairs(neighbours)
        return [pair for pair in listed if neighbours == "add-remove" or _groups(pair[0]) == _groups(pair[1])]

    def group(self, pair: tuple[Rows, Rows]) -> Any:
        """The public group of the row in which two neighbours differ."""
        one, other = pair
        left = list(other)
        for row in one:
            if row in left:
                left.remove(row)
        return left[0][0]

    def atom(self, group: Any) -> int:
        """The number of a group in the ledger: its place among the values of the public column."""
        column = self.schema[next(iter(self.schema))]
        assert isinstance(column, Category)
        return column.values.index(group)


def shown(pair: tuple[Rows, Rows]) -> str:
    """A pair in few signs."""
    return " ~ ".join("{" + ", ".join(map(_cells, rows)) + "}" for rows in pair)


def _cells(row: tuple[Any, ...]) -> str:
    """A row, or all rows of a person."""
    return "+".join(map(_cells, row)) if not row or isinstance(row[0], tuple) else ",".join(map(str, row))


def _columns(schema: Schema, rows: Rows) -> dict[str, Any]:
    return {name: np.array([row[i] for row in rows]) for i, name in enumerate(schema)}


def _groups(rows: Rows) -> list[Any]:
    return sorted(row[0] for row in rows)


def _in_order(rows: Rows, place: dict[tuple[Any, ...], int]) -> Rows:
    return tuple(sorted(rows, key=place.__getitem__))
