"""The tables on which margins are judged: each in every world there is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import dodona as dd
from dodona.engines.table import Table
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.testing.margins import World

NAMES = "abcdefgh"
GROUPS = 400
SMALL = ("red", "green", "blue")


def people(world: World) -> Table:
    """Ages, incomes and smokers, in 400 groups of a few rows each and in three large ones."""
    rng = np.random.default_rng(11)
    n = world.rows
    skew = rng.random(n) < (0.9 if world.heavy else 0.2)
    age = np.where(skew, 37, rng.integers(0, 100, n))
    income = np.where(skew, 1000.0, rng.gamma(2.0, 120.0, n))
    columns = {"age": age, "smoker": rng.random(n) < 0.3, "income": income, "group": rng.integers(0, GROUPS, n)}
    columns["colour"] = rng.choice(SMALL, n, p=[0.7, 0.25, 0.05])
    kinds = {"age": (Integer, 0, 99), "smoker": (Flag,), "income": (Real, 0, 1000), "group": (Integer, 0, GROUPS - 1)}
    return _table(world, columns, {**kinds, "colour": (Category, *SMALL)}, rng)


def flags(world: World) -> Table:
    """Two chains of columns that follow each other, and two that are nearly always or nearly never true."""
    rng = np.random.default_rng(21)
    columns: dict[str, Any] = {}
    for name, follows in zip(NAMES, (None, "a", "b", None, "d", "e", None, None), strict=True):
        own = rng.random(world.rows) < {"g": 0.97, "h": 0.03}.get(name, 0.85 if world.heavy else 0.4)
        columns[name] = own if follows is None else np.where(rng.random(world.rows) < 0.8, columns[follows], own)
    return _table(world, columns, dict.fromkeys(NAMES, (Flag,)), rng)


def many_flags(world: World) -> Table:
    """Thirteen columns that may be missing: more cells than a table of all of them may have."""
    rng = np.random.default_rng(31)
    shared = rng.random(world.rows) < 0.5
    columns = {f"w{i}": np.where(shared, rng.random(world.rows) < 0.8, rng.random(world.rows) < 0.1) for i in range(13)}
    return _table(world, columns, dict.fromkeys(columns, (Flag,)), rng)


def line(world: World) -> Table:
    """Whole numbers to 127: two narrow heaps over an even floor, or nine of ten rows at 77."""
    rng = np.random.default_rng(8)
    heaps = np.where(rng.random(world.rows) < 0.5, rng.normal(30, 3, world.rows), rng.normal(90, 8, world.rows))
    drawn = np.where(rng.random(world.rows) < 0.2, rng.uniform(0, 128, world.rows), heaps)
    at = np.where(rng.random(world.rows) < 0.9, 77, drawn) if world.heavy else drawn
    return _table(world, {"x": at.clip(0, 127).astype(int)}, {"x": (Integer, 0, 127)}, rng)


def plane(world: World) -> Table:
    """Whole numbers to 31 and 15: one round heap, or nine of ten rows at (5, 9)."""
    rng = np.random.default_rng(5)
    points = np.column_stack([rng.binomial(31, 0.3, world.rows), rng.binomial(15, 0.6, world.rows)])
    if world.heavy:
        points[rng.random(world.rows) < 0.9] = (5, 9)
    return _table(world, {"x": points[:, 0], "y": points[:, 1]}, {"x": (Integer, 0, 31), "y": (Integer, 0, 15)}, rng)


def cloud(world: World) -> Table:
    """Three real numbers: two clouds, or nine of ten rows at one point."""
    rng = np.random.default_rng(1)
    centres = np.array([[0.5, 0.5, -0.5], [-0.6, 0.1, 0.4]])[rng.integers(0, 2, world.rows)]
    points = (centres + rng.normal(0, 0.2, (world.rows, 3))).clip(-1, 1)
    if world.heavy:
        points[rng.random(world.rows) < 0.9] = (0.25, -0.5, 0.75)
    return _table(world, dict(zip("pqr", points.T, strict=True)), dict.fromkeys("pqr", (Real, -1, 1)), rng)


def small(world: World) -> Table:
    """A flag, a category and a number of four values."""
    rng = np.random.default_rng(2)
    columns = {
        "a": rng.random(world.rows) < (0.95 if world.heavy else 0.6),
        "k": rng.choice(["x", "y", "z"], world.rows, p=[0.8, 0.1, 0.1]),
        "v": rng.integers(0, 4, world.rows),
    }
    return _table(world, columns, {"a": (Flag,), "k": (Category, "x", "y", "z"), "v": (Integer, 0, 3)}, rng)


def _table(world: World, columns: dict[str, Any], kinds: dict[str, tuple[Any, ...]], rng: Any) -> Table:
    """With values missing, and with people, as the world says."""
    stated = world.missing == "stated"
    schema = Schema(
        {
            name: kind(*rest, **({"missing": _plain(kind, rest)} if stated else {}))
            for name, (kind, *rest) in kinds.items()
        }
    )
    held: dict[str, Any] = {}
    for name, values in columns.items():
        gone = rng.random(len(values)) < world.absent
        held[name] = np.ma.array(values, mask=gone) if gone.any() else values
    if not world.unit:
        return Table(held, schema, name="t")
    held["person"] = rng.integers(0, max(world.rows // 2, 1), world.rows)
    unit = dd.Unit("person", 2)
    return Table(held, schema, neighbours="add-remove", rows=world.rows, unit=unit, name="t")


def _plain(kind: Any, rest: list[Any]) -> Any:
    return False if kind is Flag else rest[0]


def ints(seed: int, low: int, high: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Public random numbers for questions."""
    return np.random.default_rng(seed).integers(low, high, shape)
