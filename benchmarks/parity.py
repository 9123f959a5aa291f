"""The parity learner: success and time at the planned number of rows, the price of privacy, and the map of KLNRS 1.1.3.

``python -m benchmarks parity`` prints; ``DODONA_FIGURES=docs/figures`` also draws (needs matplotlib).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from dodona.bounds.klnrs import agnostic, parity, parity_plan
from dodona.concepts.parities import Parities
from dodona.engines.table import Table
from dodona.errors import DodonaError
from dodona.learn.agnostic import AgnosticLearner, ParityLearner
from dodona.oracles.curator import Curator
from dodona.oracles.local import Local
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Schema

Rows = list[dict[str, Any]]
BITS, EPSILON, ALPHA, BETA, RUNS = 256, 0.5, 0.05, 0.05, 200


def parity_rows(bits: int, rows: int, seed: int) -> tuple[Table, Any]:
    """Uniform bits and the label of a random parity of them."""
    rng = np.random.default_rng(seed)
    x, r = rng.random((rows, bits)) < 0.5, rng.random(bits) < 0.5
    y = (x.astype(np.float32) @ r.astype(np.float32)) % 2 == 1
    columns = {f"b{i}": np.ascontiguousarray(x[:, i]) for i in range(bits)}
    return Table({**columns, "y": y}, Schema({**{name: Flag() for name in columns}, "y": Flag()})), r


def success(runs: int = RUNS, tables: int = 10) -> Rows:
    """How often A* finds the target at the planned size, and how long a run takes; fresh data every few runs."""
    plan = parity_plan(BITS, ALPHA, BETA, EPSILON)
    found, times, processor = 0, [], []
    for seed in range(tables):
        table, r = parity_rows(BITS, plan.rows, seed)
        for _ in range(runs // tables):
            curator = Curator(table, Budget(epsilon=EPSILON))
            start, worked = time.perf_counter(), time.process_time()
            learner = ParityLearner(ALPHA, BETA).fit(curator, "y")
            times.append(time.perf_counter() - start)
            processor.append(time.process_time() - worked)
            found += learner.parity_ is not None and bool((learner.parity_ == r).all())
    done = runs // tables * tables
    print(
        f"d = {BITS}, epsilon = {EPSILON}, alpha = {ALPHA}, beta = {BETA}: {plan.rows:,} rows ({plan}); found in "
        f"{found} of {done} runs ({found / done:.1%}); a run takes {np.median(times):.2f} s, at most {max(times):.2f} "
        f"({np.median(processor):.2f} of processor)"
    )
    case = f"parity of {BITS} bits, epsilon {EPSILON}, {plan.rows:,} rows as planned"
    return [
        {"case": f"{case}: share of runs that find it", "ours": found / done, "target": 0.95, "better": "higher"},
        {
            "case": f"{case}: a run, median",
            "ours": float(np.median(times)),
            "target": 2.0,
            "unit": "s",
            "slowest s": max(times),
            "processor s": float(np.median(processor)),
        },
    ]


def prices() -> dict[str, list[tuple[float, float]]]:
    """Rows with privacy over rows without, by epsilon."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for epsilon in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0):
        verdicts = {
            "parity of 256 bits": parity(256, 0.05, 0.05, epsilon),
            "340,000 hypotheses, alpha = 0.05": agnostic(np.log(340_000), 0.05, 0.05, epsilon),
            "340,000 hypotheses, alpha = 0.2": agnostic(np.log(340_000), 0.2, 0.05, epsilon),
        }
        for name, verdict in verdicts.items():
            curves.setdefault(name, []).append((epsilon, verdict.details["price of privacy"]))
    for name, points in curves.items():
        print(f"{name}: " + ", ".join(f"{price:.3g}x at {epsilon:g}" for epsilon, price in points))
    return curves


def separation(rows: int = 60_000, epsilon: float = 1.0, tries: int = 5) -> dict[str, list[tuple[int, float]]]:
    """The same rows and epsilon for a trusted server that solves, and for rows that randomise themselves."""
    curves: dict[str, list[tuple[int, float]]] = {"trusted server (Theorem 4.4)": [], "local (Corollary 5.15)": []}
    for bits in (2, 4, 6, 8, 10, 12, 14, 16, 32, 64, 128):
        found = dict.fromkeys(curves, 0)
        for seed in range(tries):
            table, r = parity_rows(bits, rows, 100 * bits + seed)
            server = ParityLearner(0.2, 0.05).fit(Curator(table, Budget(epsilon=epsilon)), "y")
            found["trusted server (Theorem 4.4)"] += server.parity_ is not None and bool((server.parity_ == r).all())
            if bits <= 14:
                found["local (Corollary 5.15)"] += _locally(table, bits, epsilon, r)
        for name, hits in found.items():
            if bits <= 14 or "server" in name:
                curves[name].append((bits, hits / tries))
    for name, points in curves.items():
        print(f"{name}, {rows:,} rows, epsilon {epsilon:g}: " + ", ".join(f"{b}: {hit:.0%}" for b, hit in points))
    return curves


def _locally(table: Table, bits: int, epsilon: float, r: Any) -> bool:
    """All 2^d parities scored from local reports: the generic learner, handed another oracle."""
    names = [f"b{i}" for i in range(bits)]
    try:
        learner = AgnosticLearner(Parities.over(names)).fit(Local(table, epsilon=epsilon), "y")
    except DodonaError as refusal:
        print(f"  local, {bits} bits: {refusal}")
        return False
    rng = np.random.default_rng(0)
    fresh = rng.random((256, bits)) < 0.5
    return bool((learner.predict(dict(zip(names, fresh.T, strict=True))) == ((fresh @ r.astype(int)) % 2 == 1)).all())


def draw(folder: Path, curves: Any, name: str, title: str, axes: tuple[str, str], *, logarithmic: bool) -> None:
    """A line per curve."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    plot = figure.subplots()
    for (label, points), style in zip(curves.items(), ("o-", "s--", "^-."), strict=False):
        plot.plot(*zip(*points, strict=True), style, label=label)
    plot.set(title=title, xlabel=axes[0], ylabel=axes[1], xscale="log" if logarithmic else "linear")
    if logarithmic:
        plot.set_yscale("log")
    else:
        plot.set_xscale("log", base=2)
        plot.set_ylim(-0.05, 1.05)
    plot.grid(visible=True, alpha=0.3)
    plot.legend()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=110)


def main() -> Rows:
    """All of it, and the figures where a folder for them is named."""
    rows = success()
    price, map_ = prices(), separation()
    rows += [
        {"case": f"price of privacy in rows, {name}, epsilon {epsilon:g}", "ours": times}
        for name, points in price.items()
        for epsilon, times in points
    ]
    server, locally = (dict(points) for points in map_.values())
    rows += [
        {
            "case": f"60,000 rows, epsilon 1, parity of {bits} bits: share of runs a trusted server finds it in",
            "ours": share,
            "peer": locally.get(bits),
            "peer name": "local",
            "better": "higher",
        }
        for bits, share in server.items()
    ]
    folder = os.environ.get("DODONA_FIGURES")
    if folder:
        axes = ("epsilon", "rows with privacy / rows without")
        draw(Path(folder), price, "price_of_privacy", "The price of privacy in rows", axes, logarithmic=True)
        title = "Parity: 60,000 rows, epsilon 1"
        draw(Path(folder), map_, "parity_map", title, ("bits", "share of runs"), logarithmic=False)
    return rows


if __name__ == "__main__":
    main()
