"""How the time of a private workload grows with rows and with columns, over two decades; and what a unit costs.

20 bounded sums over 10^5 to 10^7 rows, sums of 4 to 400 columns over 10^5 rows, in memory and through DuckDB; the
fitted power of the growth (1 is linear) and, with ``DODONA_FIGURES`` naming a folder, a figure. Then 20 sums over rows
bounded per person, against the same statement by hand in DuckDB.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dodona.engines.duckdb import DuckDBEngine
from dodona.engines.engine import Engine
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import read_columns
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Stack, Value, as_expr
from dodona.query.unit import Unit

LARGEST = int(os.environ.get("DODONA_ROWS", "10000000"))
TURNS = 3
LINEAR = 1.1  # a power of growth that still counts as linear: the slope of two noisy times
Times = dict[str, list[tuple[float, float]]]


def seconds(run: Callable[[], Any]) -> float:
    """The best of several turns."""
    taken = []
    for _ in range(TURNS):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def written(folder: Path, rows: int, columns: int, extra: str = "") -> Path:
    """A Parquet file of random columns x0, x1, ..."""
    path = folder / f"{rows}x{columns}.parquet"
    listed = ", ".join(f"random() AS x{i}" for i in range(columns))
    duckdb.connect().execute(f"COPY (SELECT {extra}{listed} FROM range({rows})) TO '{path}' (FORMAT parquet)")
    return path


def measured(folder: Path, rows: int, columns: int, sums: int) -> dict[str, float]:
    """Seconds for ``sums`` bounded sums, by engine."""
    schema = Schema({f"x{i}": Real(0, 0.9) for i in range(columns)})
    texts = [f"x{i % columns}" if i < columns else f"x{i % columns} * x{(i + 1) % columns}" for i in range(sums)]
    program = compile_query(Stack(tuple(Value(as_expr(text)) for text in texts)), schema, level=False).program
    path = written(folder, rows, columns)
    arrays = duckdb.connect().execute(f"SELECT * FROM '{path}'").fetchnumpy()
    cleaned, count = read_columns({name: np.ma.getdata(values) for name, values in arrays.items()}, schema)
    engines: dict[str, Engine] = {
        "memory": MemoryEngine(schema, cleaned, count),
        "DuckDB": DuckDBEngine(path, schema),
    }
    found = {name: seconds(lambda engine=engine: engine.totals(program)) for name, engine in engines.items()}
    path.unlink()
    return found


def power(points: list[tuple[float, float]]) -> float:
    """The slope of log time against log size over the upper decade, where fixed costs no longer show."""
    largest = max(size for size, _ in points)
    upper = np.log([point for point in points if point[0] >= largest / 10])
    return float(np.polyfit(upper[:, 0], upper[:, 1], 1)[0])


def grown(folder: Path) -> dict[str, Times]:
    """Times by rows and by columns."""
    by_rows: Times = {"memory": [], "DuckDB": []}
    for rows in (LARGEST // 100, LARGEST // 30, LARGEST // 10, LARGEST // 3, LARGEST):
        for name, taken in measured(folder, rows, 5, 20).items():
            by_rows[name].append((rows, taken))
    by_columns: Times = {"memory": [], "DuckDB": []}
    for columns in (4, 12, 40, 120, 400):
        for name, taken in measured(folder, LARGEST // 100, columns, columns).items():
            by_columns[name].append((columns, taken))
    return {"rows (20 sums)": by_rows, f"columns ({LARGEST // 100:,} rows)": by_columns}


def bounded_by_person(folder: Path) -> tuple[float, float]:
    """Seconds of ours and of a window by hand: at most 4 rows of each of LARGEST/5 people, 5 sums."""
    path = written(folder, LARGEST, 5, f"CAST(floor(random() * {LARGEST // 5}) AS BIGINT) AS person, ")
    schema = Schema({f"x{i}": Real(0, 0.9) for i in range(5)})
    engine = DuckDBEngine(path, schema, unit=Unit("person", 4))
    program = compile_query(Stack(tuple(map(Value, map(Column, schema)))), schema, level=False).program
    sums = ", ".join(f"sum(least({name}, 0.9))" for name in schema)
    placed = "SELECT *, row_number() OVER (PARTITION BY person ORDER BY x0, x1, x2, x3, x4) AS place"
    by_hand = f"SELECT {sums} FROM ({placed} FROM '{path}') WHERE place <= 4"
    plain = duckdb.connect()
    return seconds(lambda: engine.totals(program)), seconds(lambda: plain.execute(by_hand).fetchall())


def draw(growth: dict[str, Times], folder: Path) -> None:
    """Time against size, log-log, with a line of slope 1."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, (what, times) in zip(axes, growth.items(), strict=True):
        for (name, points), mark, colour in zip(times.items(), "os", ("#0072B2", "#D55E00"), strict=True):
            sizes, taken = np.array(points).T
            axis.loglog(sizes, taken, marker=mark, color=colour, label=f"{name}: power {power(points):.2f}")
            axis.loglog(sizes, taken[-1] * sizes / sizes[-1], ":", color=colour, lw=1)
        axis.set_xlabel(what)
        axis.legend(title="dotted: linear", frameon=False)
    axes[0].set_ylabel("seconds")
    figure.suptitle("Time grows about linearly with rows and with columns")
    figure.savefig(folder / "engines-growth.png", dpi=110)


def main() -> list[dict[str, Any]]:
    """Prints the powers, and draws."""
    with tempfile.TemporaryDirectory() as folder:
        growth = grown(Path(folder))
        ours, by_hand = bounded_by_person(Path(folder))
    rows: list[dict[str, Any]] = []
    for what, times in growth.items():
        for name, points in times.items():
            listed = ", ".join(f"{size:,.0f}: {taken:.3f} s" for size, taken in points)
            print(f"by {what}, {name}: power {power(points):.2f} in the upper decade ({listed})")
            case = f"power of growth by {what}, {name}"
            rows.append({"case": case, "ours": round(power(points), 3), "target": LINEAR})
    case = f"bounded per person, {LARGEST:,} rows, 5 sums"
    print(f"{case}: ours {ours:.2f} s, by hand {by_hand:.2f} s, ratio {ours / by_hand:.2f}")
    rows.append({"case": case, "ours": ours, "peer": by_hand, "peer name": "a window by hand", "unit": "s"})
    figures = os.environ.get("DODONA_FIGURES")
    if figures:
        draw(growth, Path(figures))
    return rows


if __name__ == "__main__":
    main()
