"""Statements drawn at random, as people write them: over all types, grouped, filtered and finished."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

import dodona as dd

SCHEMA = dd.Schema(
    {
        "g": dd.Category("p", "q", "r"),
        "h": dd.Integer(1, 4, required=True),
        "age": dd.Integer(0, 120),
        "x": dd.Integer(-50, 50),
        "r": dd.Real(-8, 8),
        "ok": dd.Flag(),
        "born": dd.Date("2024-01-01", "2024-06-30"),
        "seen": dd.Timestamp("2024-01-01", "2024-06-30T23:59:59", step="second"),
    }
)
STORED = "g TEXT, h INT, age INT, x INT, r DOUBLE, ok BOOLEAN, born DATE, seen TIMESTAMP"
KEYS: tuple[tuple[str, ...], ...] = (
    (), ("g",), ("h",), ("ok",), ("g", "h"), ("age >= 60",), ("MONTH(born)",), ("FLOOR(age / 20) * 20",),
    ("CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'mid' END",), ("h", "ok"), ("QUARTER(seen)", "g"),
)  # fmt: skip


def rows(count: int, seed: int = 3) -> list[dict[str, Any]]:
    """Within their bounds, with a tenth missing; numbers that both sides hold exactly."""
    draw = random.Random(seed)
    start = dt.date(2024, 1, 1)

    def cell(make: Callable[[], Any], missing: float = 0.1) -> Any:
        return None if draw.random() < missing else make()

    return [
        {
            "g": cell(lambda: draw.choice("pqr")),
            "h": draw.randint(1, 4),
            "age": cell(lambda: draw.randint(0, 120)),
            "x": cell(lambda: draw.randint(-50, 50)),
            "r": cell(lambda: draw.randint(-128, 128) / 16),
            "ok": cell(lambda: draw.random() < 0.6),
            "born": cell(lambda: start + dt.timedelta(draw.randrange(182))),
            "seen": cell(lambda: dt.datetime(2024, 1, 1) + dt.timedelta(seconds=draw.randrange(182 * 86400))),
        }
        for _ in range(count)
    ]


def stored(connection: Any, cells: list[dict[str, Any]]) -> None:
    """As the table t of a DuckDB connection."""
    connection.execute(f"CREATE TABLE t ({STORED})")
    marks = ", ".join("?" * len(SCHEMA))
    connection.executemany(f"INSERT INTO t VALUES ({marks})", [tuple(row.values()) for row in cells])


def counted(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With dates and times as the numbers they count, as the reference reads them."""
    day, start = dt.date(1970, 1, 1), dt.datetime(1970, 1, 1)

    def number(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            return int((value - start).total_seconds())
        return (value - day).days if isinstance(value, dt.date) else value

    return [{name: number(value) for name, value in row.items()} for row in cells]


class Writer:
    """Draws statements; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def number(self, depth: int = 0) -> str:
        """A row's number."""
        plain = [
            "age",
            "x",
            "h",
            "r",
            "-x",
            "MONTH(born)",
            "DAY(seen)",
            "HOUR(seen)",
            "DATEDIFF('day', born, DATE '2024-03-01')",
        ]
        if depth > 1 or self._draw.random() < 0.5:
            return self._draw.choice(plain)
        a, b = self.number(depth + 1), self.number(depth + 1)
        return self._draw.choice(
            [
                f"({a} + {b})", f"({a} - {b})", f"(h * {b})", f"ABS({a})", f"FLOOR({a} / 4)", f"CEIL({a} / 3)",
                f"COALESCE({a}, {self._draw.randint(0, 9)})", f"({a} % 7)", f"({a} / 4)",
                f"CASE WHEN {self.condition(depth + 1)} THEN {a} ELSE {b} END",
                f"CASE WHEN {self.condition(depth + 1)} THEN {a} END", f"POWER(h, {self._draw.randint(1, 3)})",
            ]
        )  # fmt: skip

    def condition(self, depth: int = 0) -> str:
        """A row's condition."""
        n = self._draw.randint(0, 100)
        plain = [
            f"age >= {n}", "ok", "NOT ok", "g = 'p'", "g IN ('p', 'q')", "g <> 'r'", "x IS NULL",
            f"x BETWEEN -20 AND {n - 40}",
            "g IS NOT NULL", f"h > {n % 4}", "born < DATE '2024-04-01'", "MONTH(born) = 2", "ok IS TRUE", "r < 1.5",
            "seen >= TIMESTAMP '2024-02-03 12:00:00'", f"age % 2 = {n % 2}", f"x + h > {n - 50}",
        ]  # fmt: skip
        if depth > 1 or self._draw.random() < 0.6:
            return self._draw.choice(plain)
        a, b = self.condition(depth + 1), self.condition(depth + 1)
        return self._draw.choice([f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})"])

    def aggregate(self) -> str:
        """Of rows; SUM of no rows is 0 here and NULL there, so it is stated."""
        x, c = self.number(), self.condition()
        return self._draw.choice(
            [
                "COUNT(*)", f"COUNT({x})", f"COALESCE(SUM({x}), 0)", f"AVG({x})", f"COUNT(*) FILTER (WHERE {c})",
                f"COALESCE(SUM({x}) FILTER (WHERE {c}), 0)", f"COALESCE(COUNT_IF({c}), 0)",
                "VAR_POP(age)", "STDDEV_POP(x)", "VAR_SAMP(x)",
                f"AVG({x}) FILTER (WHERE {c})", "COVAR_POP(x, age)",
            ]
        )  # fmt: skip

    def finished(self) -> str:
        """Made of aggregates."""
        a, b, n = self.aggregate(), self.aggregate(), self._draw.randint(1, 30)
        return self._draw.choice(
            [
                a, a, a, f"{a} + {b}", f"{a} - 2 * {b}", f"{a} * {n}", f"{a} / NULLIF({b}, 0)", f"ABS({a})",
                f"COUNT(*) % {n}",
                "100.0 * COUNT(*) / SUM(COUNT(*)) OVER ()", f"CASE WHEN COUNT(*) > {n} THEN {a} ELSE {b} END",
                f"COALESCE({a}, {n})", f"GREATEST(COUNT(*), {n})", f"SQRT(COUNT(*) + {n})", f"COUNT(*) > {n}",
                f"{a} IS NULL", "MAX(COUNT(*)) OVER ()", "RANK() OVER (ORDER BY COUNT(*) DESC)",
            ]
        )  # fmt: skip

    def core(self, keys: tuple[str, ...], items: list[str]) -> str:
        """Over the rows; groups that no row is in are left out."""
        named = [f"{key} AS k{i}" for i, key in enumerate(keys)]
        where = f" WHERE {self.condition()}" if self._draw.random() < 0.4 else ""
        by = f" GROUP BY {', '.join(f'k{i}' for i in range(len(keys)))}" if keys else ""
        listed = ", ".join([*named, *(f"{item} AS c{i}" for i, item in enumerate(items))])
        return f"SELECT {listed} FROM t{where}{by}" + (" HAVING COUNT(*) > 0" if keys else "")

    def statement(self) -> str:
        """One of all kinds."""
        keys = self._draw.choice(KEYS)
        kind = self._draw.random()
        items = [self.finished() for _ in range(self._draw.randint(1, 3))]
        if kind < 0.55:
            return self.core(keys, items)
        if kind < 0.7 and keys:
            order = ", ".join(f"k{i}{self._draw.choice(['', ' DESC'])}" for i in range(len(keys)))
            return f"{self.core(keys, items)} ORDER BY {order} LIMIT {self._draw.randint(1, 5)}"
        if kind < 0.85:
            inner = self.core(self._draw.choice(KEYS[4:]), ["COUNT(*)", "COALESCE(SUM(x), 0)", "AVG(age)"])
            outer = self._draw.choice(
                ["SUM(c0), MAX(c1), COUNT(*)", "AVG(c0), MIN(c1)", "SUM(c1) / SUM(c0), COUNT(c2)", "MAX(c2) - MIN(c2)",
                 "SUM(c1) FILTER (WHERE c0 > 2), COUNT_IF(c1 > 0)"]
            )  # fmt: skip
            return f"WITH c AS ({inner}) SELECT {outer} FROM c"
        items = ["COUNT(*)", f"COALESCE(SUM({self.number()}), 0)"]
        return f"{self.core((), items)} UNION ALL {self.core((), items)}"


def statements(count: int, seed: int = 7) -> list[str]:
    """So many different ones."""
    writer, found = Writer(seed), dict[str, None]()
    while len(found) < count:
        found[writer.statement()] = None
    return list(found)
