"""What a benchmark's row is, and what follows from it: whether the target was met, and the plot.

A row is a dict of plain JSON values:

- ``case``: what was measured, readable alone and unique in its benchmark ("digits, epsilon 1, k-means inertia").
- ``ours``: the figure, a number; None if it could not be measured this time.
- ``better``: "lower" (taken if absent) or "higher".
- ``target``: the figure asked for, in the unit of ``ours``; a target that is a ratio ("at most 1.3 times plain DuckDB")
  is that ratio times the peer of the same run, so that all three can stand side by side. Absent or None: no target.
- ``peer``: the figure of whoever else did the same work in the same run, in the same unit. Absent or None: no peer.
- ``peer name``: who that is ("OpenDP 0.16", "NumPy", "diffprivlib 0.6.6, best of eight").
- ``unit``: "s", "rows", "/s"; absent for plain numbers.
- ``runs``: how many runs the figure is the median or the mean of.
- ``met``: added by ``judged`` to every row with a target; stated by the benchmark only where the verdict is another
  comparison than ours against target, such as the median of the ratios of paired turns.

Any other key is shown as a column of its own. benchmarks/figures.toml says by ``case`` which rows answer which of the
figures that were asked for.
"""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any

Row = dict[str, Any]
BETTER = ("lower", "higher")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which people of any colour vision can tell apart."""
ABOVE, BELOW = COLOURS[:2]


def look() -> None:
    """One look for the benchmarks' own pictures: colours that everyone can tell apart; nothing without matplotlib."""
    try:
        import matplotlib as mpl
        from cycler import cycler
    except ModuleNotFoundError:
        return
    mpl.use("Agg")
    mpl.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)


def faults(rows: list[Row]) -> list[str]:
    """What is wrong with the rows; empty if nothing is."""
    found = []
    cases = [row.get("case") for row in rows]
    for row, case in zip(rows, cases, strict=True):
        if not isinstance(case, str) or not case:
            found.append(f"a row must have a case, a text. Got {row!r}")
        if "ours" not in row:
            found.append(f"{case}: a row must have 'ours', a number or None")
        found += [
            f"{case}: {key!r} must be a finite number or None. Got {row[key]!r}"
            for key in ("ours", "target", "peer")
            if key in row and not (row[key] is None or _number(row[key]))
        ]
        if row.get("better", "lower") not in BETTER:
            found.append(f"{case}: 'better' must be 'lower' or 'higher'. Got {row['better']!r}")
    found += [f"two rows have the case {case!r}" for case in sorted({c for c in cases if c and cases.count(c) > 1})]
    return found


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def judged(rows: list[Row]) -> list[Row]:
    """The rows, each with a target and a figure also saying whether it was met."""
    return [_judged(row) if "met" not in row and _comparable(row, "target") else row for row in rows]


def _judged(row: Row) -> Row:
    return {**row, "met": times_better(row, "target") >= 1}


def _comparable(row: Row, other: str) -> bool:
    return _number(row.get("ours")) and _number(row.get(other))


def times_better(row: Row, other: str) -> float:
    """How many times better ours is than the ``target`` or the ``peer``: at least 1 where it is no worse."""
    ours, theirs = float(row["ours"]), float(row[other])
    if row.get("better", "lower") == "lower":
        ours, theirs = theirs, ours
    if ours == theirs:
        return 1.0
    return ours / theirs if theirs > 0 else math.inf


MOST_DRAWN = 48  # rows of a picture: more of them no screen shows whole


def draw(result: dict[str, Any], folder: Path) -> str | None:
    """Every row that has a target or a peer, as how many times better ours is; the picture's name, or None.

    Of very many rows those are drawn that come out worst, in their order.
    """
    found = [row for row in result["rows"] if _points(row)]
    if not found:
        return None
    worst = sorted(range(len(found)), key=lambda i: min(_points(found[i]).values()))[:MOST_DRAWN]
    rows = [found[i] for i in sorted(worst)]
    title = result["name"] if len(rows) == len(found) else f"{result['name']}: the {len(rows)} hardest of {len(found)}"
    from matplotlib.figure import Figure

    labels = [textwrap.fill(row["case"], 46) for row in rows]
    lines = sum(label.count("\n") + 1.6 for label in labels)
    figure = Figure(figsize=(8.2, 1.4 + 0.17 * lines), layout="constrained")
    axes = figure.subplots()
    heights = _heights(labels)
    for other, marker in (("target", "o"), ("peer", "D")):
        points = [(_points(row)[other], y) for row, y in zip(rows, heights, strict=True) if other in _points(row)]
        if points:
            colours = [ABOVE if x >= 1 else BELOW for x, _ in points]
            inside, legend = (colours, "black") if other == "target" else ("white", "white")
            places = [x for x, _ in points], [y for _, y in points]
            axes.scatter(*places, c=inside, marker=marker, edgecolors=colours, zorder=3)
            axes.scatter([], [], c=legend, marker=marker, edgecolors="black", label=f"than the {other}")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(heights, labels, fontsize=8)
    axes.set(xscale="log", xlabel="times better (right of the line: ours is better)", title=title)
    _plain_ticks(axes)
    axes.set_ylim(max(heights) + 1, min(heights) - 1)
    axes.grid(axis="both", alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    name = f"bench-{result['name']}.png"
    figure.savefig(folder / name, dpi=100)
    return name


def _points(row: Row) -> dict[str, float]:
    """How many times better than the target and than the peer, where a logarithmic axis can show it."""
    times = {other: times_better(row, other) for other in ("target", "peer") if _comparable(row, other)}
    return {other: each for other, each in times.items() if 0 < each < math.inf}


def _heights(labels: list[str]) -> list[float]:
    """A place for each label, as far from the next as their lines need."""
    places, edge = [], 0.0
    for label in labels:
        room = label.count("\n") + 1.6
        places.append(edge + room / 2)
        edge += room
    return places


def _plain_ticks(axes: Any) -> None:
    """Round numbers, written out, 1 among them, none so near another that they touch."""
    low, high = axes.get_xlim()
    low, high = min(low, 0.8), max(high, 1.25)
    axes.set_xlim(low, high)
    apart = math.log(high / low) / 14
    kept = [1.0]
    for steps in ((1,), (2, 5), (3, 7), (1.2, 1.5, 8, 9), (1.1, 1.4)):
        for tick in (m * 10.0**e for e in range(-6, 9) for m in steps):
            if low <= tick <= high and all(abs(math.log(tick / other)) >= apart for other in kept):
                kept.append(tick)
    axes.set_xticks(kept, [f"{tick:,.10g}" for tick in kept])
    axes.minorticks_off()
