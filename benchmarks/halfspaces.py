"""Halfspaces published at epsilon 1 over 50,000 rows and 20 columns: probes against the paper's nets, mean error.

Target: a mean error of at most 0.02 of the rows. The constants of ``release/_mixture.py`` and
``release/_mixture.py`` were chosen on other draws of "cloud", "clusters" and "unequal" (seeds 1 to 6 and 21
to 25; here 11 and 12); "skewed", "two" and "digits" had no part in it. The paper's nets are asked on the first draw of
the first two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.oracles.curator import Curator
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.budget import Budget
from dodona.query.schema import Real, Schema
from dodona.release.halfspaces import halfspace_nets, halfspaces

ROWS, COLUMNS = 50_000, 20
SEEDS = (11, 12)
Floats = NDArray[np.float64]


def _cloud(rng: np.random.Generator) -> Floats:
    """One correlated normal cloud, squashed into [-1, 1]."""
    mixed = rng.normal(size=(ROWS, COLUMNS)) @ rng.normal(size=(COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)
    return np.asarray(np.tanh(0.6 * mixed + 0.3 * rng.normal(size=COLUMNS)))


def _clusters(rng: np.random.Generator) -> Floats:
    """Five tight clusters, far from normal."""
    centres = rng.uniform(-0.8, 0.8, (5, COLUMNS))
    return np.asarray(np.clip(centres[rng.integers(0, 5, ROWS)] + rng.normal(0, 0.1, (ROWS, COLUMNS)), -1, 1))


def _unequal(rng: np.random.Generator) -> Floats:
    """Twelve clusters of unequal sizes and spreads."""
    centres, spread = rng.uniform(-0.8, 0.8, (12, COLUMNS)), rng.uniform(0.03, 0.3, 12)
    which = rng.choice(12, ROWS, p=rng.dirichlet(np.ones(12)))
    return np.asarray(np.clip(centres[which] + rng.normal(0, 1, (ROWS, COLUMNS)) * spread[which][:, None], -1, 1))


def _skewed(rng: np.random.Generator) -> Floats:
    """Sums of exponentials, most of them near one corner."""
    mixed = rng.exponential(0.25, (ROWS, COLUMNS)) @ np.abs(rng.normal(size=(COLUMNS, COLUMNS)))
    return np.asarray(np.clip(2 * mixed / np.quantile(mixed, 0.999) - 1, -1, 1))


def _two(rng: np.random.Generator) -> Floats:
    """Two clusters, nine rows in ten in one of them."""
    centres = rng.uniform(-0.8, 0.8, (2, COLUMNS))
    which = (rng.random(ROWS) < 0.1).astype(int)
    return np.asarray(np.clip(centres[which] + rng.normal(0, 0.05, (ROWS, COLUMNS)), -1, 1))


def _digits(rng: np.random.Generator) -> Floats:
    """Random projections of scikit-learn's digits, drawn with repetition."""
    from sklearn.datasets import load_digits

    projected = load_digits().data @ np.random.default_rng(5).normal(size=(64, COLUMNS))
    return np.asarray((projected / np.abs(projected).max(axis=0))[rng.integers(0, len(projected), ROWS)])


KINDS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "cloud": _cloud,
    "clusters": _clusters,
    "unequal": _unequal,
    "skewed": _skewed,
    "two": _two,
    "digits": _digits,
}
NETS = ((2, 9, 0.4), (3, 5, 0.5), (4, 3, 0.7))


def makers(nets: bool) -> dict[str, Callable[[Oracle, list[str]], Synopsis]]:
    """By name: ours, and the paper's nets where they are wanted."""
    found: dict[str, Callable[[Oracle, list[str]], Synopsis]] = {
        "probes": lambda o, names: halfspaces(o, names, share=1)
    }
    for k, m, gamma in NETS if nets else ():
        found[f"the paper's nets, k = {k}"] = lambda o, names, k=k, m=m, g=gamma: halfspace_nets(  # type: ignore[misc]
            o, names, share=1, dimension=k, projections=m, gamma=g
        )
    return found


def main() -> list[dict[str, Any]]:
    """Print the table."""
    rows: list[dict[str, Any]] = []
    print(f"{'rows':<10}{'seed':>5}  {'method':<28}{'mean error':>11}{'worst':>8}{'covered':>9}{'seconds':>9}")
    for kind, draw in KINDS.items():
        errors: list[float] = []
        for seed in SEEDS:
            points = draw(np.random.default_rng(seed))
            names = [f"c{i}" for i in range(COLUMNS)]
            schema = Schema({name: Real(-1, 1, missing=0) for name in names})
            table = Table(dict(zip(names, points.T, strict=True)), schema, neighbours="add-remove", rows=ROWS)
            y = np.random.default_rng([9, seed]).normal(size=(1000, COLUMNS + 1))
            y[:, 0] *= 2.0
            y /= np.linalg.norm(y, axis=1, keepdims=True)
            truth = np.array([(points @ w[1:] >= -w[0]).mean() for w in y])
            for name, make in makers(seed == SEEDS[0] and kind in ("cloud", "clusters")).items():
                start = time.perf_counter()
                body: Any = make(Curator(table, Budget(epsilon=1)), names).body
                found = body.fraction(y)
                stated = isinstance(found, tuple)  # the nets state no margin of their own but gamma
                off = np.abs((found[0] if stated else found) - truth)
                inside = f"{np.mean(off <= 1.96 * found[1]):.2f}" if stated else ""
                took = time.perf_counter() - start
                line = f"{kind:<10}{seed:>5}  {name:<28}{off.mean():>11.4f}{off.max():>8.3f}"
                print(f"{line}{inside:>9}{took:>9.1f}", flush=True)
                if name == "probes":
                    errors.append(float(off.mean()))
                else:
                    rows.append({"case": f"{kind}, {name}", "ours": float(off.mean()), "seconds": took})
        case = f"{kind}, probes, mean of {len(errors)} draws"
        rows.append({"case": case, "ours": float(np.mean(errors)), "target": 0.02, "worst draw": max(errors)})
    return rows


if __name__ == "__main__":
    main()
