"""Halfspaces published at epsilon 1 over 50,000 rows and 20 columns: probes against the paper's nets, mean error.

Made-up rows: a correlated normal cloud squashed into [-1, 1]. Target: a mean error of at most 0.02 of the rows.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from dodona.engines.table import Table
from dodona.privacy.budget import Budget
from dodona.query.schema import Real, Schema
from dodona.release.halfspaces import halfspace_nets, halfspaces
from dodona.trust.curator import Curator

ROWS, COLUMNS = 50_000, 20


def rows_of(kind: str, seed: int = 0) -> np.ndarray:
    """ "cloud": one correlated cloud. "clusters": five tight ones, far from normal."""
    rng = np.random.default_rng(seed)
    if kind == "cloud":
        mixed = rng.normal(size=(ROWS, COLUMNS)) @ rng.normal(size=(COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)
        return np.tanh(0.6 * mixed + 0.3 * rng.normal(size=COLUMNS))
    centres = rng.uniform(-0.8, 0.8, (5, COLUMNS))
    return np.clip(centres[rng.integers(0, 5, ROWS)] + rng.normal(0, 0.1, (ROWS, COLUMNS)), -1, 1)


def main() -> list[dict[str, Any]]:
    """Print the table."""
    rows: list[dict[str, Any]] = []
    print(f"{'rows':<10}{'method':<44}{'mean error':>11}{'worst':>8}{'seconds':>9}")
    for kind in ("cloud", "clusters"):
        points = rows_of(kind)
        names = [f"c{i}" for i in range(COLUMNS)]
        schema = Schema({name: Real(-1, 1) for name in names})
        table = Table(dict(zip(names, points.T, strict=True)), schema, neighbours="add-remove", rows=ROWS)
        rng = np.random.default_rng(9)
        y = rng.normal(size=(1000, COLUMNS + 1))
        y[:, 0] *= 2.0
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        truth = (np.column_stack([np.ones(ROWS), points]) @ y.T >= 0).mean(axis=0)
        runs = [("probes", lambda oracle, names=names: halfspaces(oracle, names, share=1))]
        for k, m, gamma in ((2, 9, 0.4), (3, 5, 0.5), (4, 3, 0.7)):
            runs.append(
                (
                    f"the paper's nets, k = {k}",
                    lambda oracle, names=names, k=k, m=m, g=gamma: halfspace_nets(
                        oracle, names, share=1, dimension=k, projections=m, gamma=g
                    ),
                )
            )
        for name, make in runs:
            start = time.perf_counter()
            body = make(Curator(table, Budget(epsilon=1))).body
            found = body.fraction(y)
            errors = np.abs((found[0] if isinstance(found, tuple) else found) - truth)
            took = time.perf_counter() - start
            print(f"{kind:<10}{name:<44}{errors.mean():>11.4f}{errors.max():>8.3f}{took:>9.1f}", flush=True)
            target = 0.02 if (kind, name) == ("cloud", "probes") else None
            rows.append({"case": f"{kind}, {name}", "ours": float(errors.mean()), "target": target, "seconds": took})
    return rows


if __name__ == "__main__":
    main()
