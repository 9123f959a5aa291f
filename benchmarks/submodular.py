"""Algorithm 1 against the number of rows and against the other methods, and the barrier; draws both into docs/figures.

Made-up rows of 8 bits, all 448 disjunctions of width 3 with both literals, epsilon 1, one run for each point.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from dodona.bounds.releases import conjunction_barrier
from dodona.concepts.set_functions import Disjunctions
from dodona.engines.table import Table
from dodona.oracles.curator import Curator
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Schema
from dodona.query.statistic import Stack, Value
from dodona.release import conjunctions, submodular

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
ROWS = (10**4, 10**5, 10**6, 10**7)
NAMES = [f"b{i}" for i in range(8)]
SCHEMA = Schema({name: Flag(missing=False) for name in NAMES})


def made_up(rows: int) -> Table:
    """Bits of falling frequency, two of them dependent."""
    random = np.random.default_rng(0)
    bits = random.random((rows, 8)) < [0.5, 0.4, 0.3, 0.3, 0.2, 0.1, 0.1, 0.05]
    bits[:, 1] |= bits[:, 0] & (random.random(rows) < 0.3)
    return Table({name: bits[:, i] for i, name in enumerate(NAMES)}, SCHEMA, name="t")


def errors(rows: int) -> dict[str, float]:
    """Mean absolute error of each method."""
    table, function = made_up(rows), Disjunctions.of(SCHEMA, NAMES, 3, both=True)
    sets = [s for s in itertools.combinations(range(16), 3) if len({function.places[i] for i in s}) == 3]
    query = Stack(tuple(Value(function.value(frozenset(s))) for s in sets))
    exact = np.asarray(Exact(table).ask(query).mean)
    tree = submodular(Curator(table, Budget(epsilon=1)), function, gamma=0.2, pieces=150, share=1)
    released = np.array([tree.body.value(s) for s in sets])  # type: ignore[attr-defined]
    found = {"Algorithm 1 (gamma 0.2, 150 pieces)": float(np.abs(released - exact).mean())}
    for method in ("blocks", "adaptive"):
        synopsis = conjunctions(Curator(table, Budget(epsilon=1)), width=3, share=1, method=method)
        found[method] = float(np.abs(np.asarray(synopsis.ask(query).mean) - exact).mean())
    return {**found, "the mean for all": float(np.abs(exact - exact.mean()).mean())}


def main() -> list[dict[str, Any]]:
    """Prints the errors and draws the figures where matplotlib is installed."""
    found: list[dict[str, float]] = []
    for rows in ROWS:
        found.append(errors(rows))
        print(f"{rows:,} rows: " + ", ".join(f"{name} {error:.2g}" for name, error in found[-1].items()), flush=True)
    first, *_, mean = found[0]
    rows_of = [
        {"case": f"{first}, {rows:,} made-up rows, epsilon 1, against {mean}", "ours": row[first], "peer": row[mean]}
        for rows, row in zip(ROWS, found, strict=True)
    ]
    try:
        import matplotlib as mpl
    except ImportError:
        return rows_of
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4))
    for name in found[0]:
        axes.loglog(ROWS, [row[name] for row in found], marker="o", label=name)
    _finish(figure, axes, "rows", "mean absolute error", "Disjunctions of width 3 over 8 bits, epsilon 1", "submodular")
    figure, axes = plt.subplots(figsize=(6.4, 4))
    alphas = np.logspace(-6, -0.7, 60)
    for columns in (30, 100, 300, 1000):
        least = [max(float(conjunction_barrier(columns, a).details["queries"]), 1.0) for a in alphas]
        axes.loglog(alphas, least, drawstyle="steps-mid", label=f"{columns} columns")
    words = "error of every monotone conjunction", "statistical queries needed, at least"
    _finish(figure, axes, *words, "The barrier: Theorem B.3 through equation (19)", "barrier")
    return rows_of


def _finish(figure: Any, axes: Any, x: str, y: str, title: str, name: str) -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3, which="both")
    figure.tight_layout()
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"{name}.png", dpi=110)


if __name__ == "__main__":
    main()
