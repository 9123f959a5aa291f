"""How many rows are reconstructed as epsilon grows: linear programming, least squares and asking row by row.

64 secret bits, 192 random subset sums or one question a row, the whole budget spent on it; the mean of several tables.
No attack may be above e^epsilon/(1 + e^epsilon). ``python -m benchmarks reconstruction`` prints the table; with
``DODONA_FIGURES=docs/figures`` the plot is drawn there.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from dodona.audit.attacks import privacy_limit, reconstruct
from dodona.audit.watched import scratch_curator
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget

ROWS, QUERIES = 64, 192
EPSILONS = ("0.1", "0.3", "1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024")
TABLES = int(os.environ.get("DODONA_TABLES", "10"))
Found = dict[str, dict[str, list[float]]]


def measured() -> Found:
    """Fractions recovered, by epsilon ("exact" for no noise) and attack, one for each table."""
    found: Found = {}
    for epsilon in (*EPSILONS, "exact"):
        each = found.setdefault(epsilon, {})
        for seed in range(TABLES if epsilon != "exact" else 2):
            secrets = np.random.default_rng(seed).random(ROWS) < 0.5
            budget = None if epsilon == "exact" else Budget(epsilon=epsilon)
            make = Exact if budget is None else lambda table, budget=budget: scratch_curator(table, budget)
            for attack in reconstruct(make, secrets, queries=QUERIES, seed=seed):  # type: ignore[arg-type]
                each.setdefault(attack.attack, []).append(attack.fraction)
    return found


def main() -> list[dict[str, Any]]:
    """Print the table, check it against the bound, draw it where a folder is named; one row for each epsilon."""
    rows: list[dict[str, Any]] = []
    found = measured()
    attacks = list(found["exact"])
    print(f"{'epsilon':>8}" + "".join(f"{name:>17}" for name in attacks) + f"{'no more than':>15}")
    for epsilon, each in found.items():
        limit = 1.0 if epsilon == "exact" else 1 / (1 + math.exp(-float(epsilon)))
        print(f"{epsilon:>8}" + "".join(f"{np.mean(each[name]):>17.3f}" for name in attacks) + f"{limit:>15.3f}")
        if epsilon != "exact":
            allowed = privacy_limit(float(epsilon), ROWS * TABLES)
            assert all(np.mean(each[name]) <= allowed for name in attacks), "an attack beats the privacy bound"
            best = max(attacks, key=lambda name: float(np.mean(each[name])))
            case = f"bits recovered at epsilon {epsilon}, {TABLES} tables of {ROWS}, best attack: {best}"
            rows.append({"case": case, "ours": float(np.mean(each[best])), "target": allowed, "no attack above": limit})
    folder = os.environ.get("DODONA_FIGURES")
    if folder:
        draw(found, Path(folder))
    return rows


def draw(found: Found, folder: Path) -> None:
    """Fraction of rows reconstructed against epsilon, with the bound no attack can pass."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    grid = np.geomspace(0.1, 1024, 200)
    axis.fill_between(grid, 1 / (1 + np.exp(-grid)), 1.03, color="#eeeeee", linewidth=0)
    axis.plot(grid, 1 / (1 + np.exp(-grid)), color="#000000", linewidth=1.2, linestyle="--")
    axis.annotate("no attack can be up here:\nabove $e^ε/(1+e^ε)$", (0.13, 0.86), fontsize=9, color="#333333")
    styles = {
        "row by row": ("#0072b2", "o", "one question a row", (2.5, 0.84)),
        "linear program": ("#d55e00", "s", f"{QUERIES} random subsets,\nlinear program", (5, 0.73)),
        "least squares": ("#009e73", "^", f"{QUERIES} random subsets,\nleast squares", (85, 0.66)),
    }
    x = [float(epsilon) for epsilon in EPSILONS]
    for name, (colour, marker, label, place) in styles.items():
        means = [np.mean(found[epsilon][name]) for epsilon in EPSILONS]
        errors = [np.std(found[epsilon][name]) / math.sqrt(TABLES) for epsilon in EPSILONS]
        axis.errorbar(x, means, yerr=errors, color=colour, marker=marker, markersize=5, linewidth=1.5)
        axis.text(*place, label, color=colour, fontsize=9)
    axis.axhline(0.5, color="#999999", linewidth=0.8)
    axis.text(1024, 0.505, "chance", fontsize=8, color="#666666", ha="right", va="bottom")
    axis.set(xscale="log", xlabel="total ε of the curator's budget", ylabel="fraction of secret bits recovered")
    axis.set_xlim(0.09, 1200)
    axis.set_ylim(0.42, 1.03)
    axis.set_title("Reconstruction of 64 secret bits; without noise every attack recovers all", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "reconstruction.png", dpi=130)
    print(f"drawn: {folder / 'reconstruction.png'}")


if __name__ == "__main__":
    main()
