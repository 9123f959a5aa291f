"""Each benchmark at a size of seconds: parts of it, on little made-up data. Keeps them alive; its numbers mean nothing.

A benchmark with ``run(quick)`` of its own is not listed. ``tests/system/test_bench.py`` fails if one is neither.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SMALL = {
    "ROWS": "20000",
    "SUMS": "20",
    "LONG": "50000",
    "TURNS": "1",
    "DODONA_ROWS": "10000",
    "DODONA_REPEATS": "1",
    "DODONA_SEEDS": "1",
    "DODONA_TABLES": "1",
    "DODONA_COMPOSITIONS": "2",
    "DODONA_PATIENCE": "20",
}
"""Sizes that benchmarks read from the environment."""


def agnostic(module: Any) -> Any:
    """Few hypotheses, few rows."""
    module.BITS = 24
    return module.excess(0.1, 1_000, 3)


def agnostic_speed(module: Any) -> Any:
    """Few hypotheses, few rows."""
    return module.main(2_000, 24)


def blr_figures(module: Any) -> None:
    """One figure."""
    with tempfile.TemporaryDirectory() as folder:
        module.FOLDER = Path(folder)
        module.chain()
        print(", ".join(sorted(file.name for file in Path(folder).iterdir())))


def conjunctions(module: Any) -> None:
    """Random bits in place of Adult."""
    bits = np.random.default_rng(0).integers(0, 2, (1_000, 16))
    found, name, _ = module.errors_on(bits, "blocks", 1.0, 0.0, 1)
    print(f"{name}: {found}")


def cuts(module: Any) -> None:
    """A small random graph."""
    from dodona.graphs import distinct_edges

    module.RUNS, module.SETS = 1, 3
    print(module.errors(distinct_edges(np.random.default_rng(0).integers(0, 200, (600, 2))), 200, 1.0))


def engines(module: Any) -> None:
    """Bounded sums over few rows."""
    module.ROWS, module.TURNS = 20_000, 1
    with tempfile.TemporaryDirectory() as folder:
        module.bounded_sums(Path(folder), 1)


def halfspaces(module: Any) -> None:
    """Few rows and columns."""
    module.ROWS, module.COLUMNS, module.SEEDS = 800, 4, (11,)
    module.main()


def learn_supervised(module: Any) -> None:
    """One split of one data set."""
    module.SEEDS = range(2000, 2001)
    rows, y, bounds = module.load("breast_cancer")
    print(module.ours("breast_cancer", rows, y, bounds, 1.0))


def learn_trees(module: Any) -> None:
    """One split of one data set."""
    module.SEEDS["breast_cancer"] = 1
    print(module.report("breast_cancer", 1.0))


def learn_unsupervised(module: Any) -> None:
    """One epsilon, one data set."""
    module.EPSILONS = (1.0,)
    module.compare_components("breast_cancer", module.TABLES["breast_cancer"](), (5,))


def ledger(module: Any) -> None:
    """A few charges by two processes."""
    with tempfile.TemporaryDirectory() as folder:
        print(module.together(Path(folder), 2, 20), module.first_and_last(Path(folder), 40, 10))


def local(module: Any) -> Any:
    """Few people, the smallest class."""
    module.PEOPLE, module.RUNS, module.TARGETS = 2_000, {8: 1}, {(8, 3): (1.0, 1.0)}
    rows = module.conjunctions() + module.histograms()
    module.barrier((3,), 1)
    return rows


def noise_families(module: Any) -> None:
    """A coarse grid, no plot."""
    module.SIGMA = 20
    print([(name, bound, noise.stddev) for name, bound, noise in module.rows()])


def parity(module: Any) -> Any:
    """Few bits, few runs."""
    module.BITS = 12
    rows = module.success(2, 1)
    module.prices()
    return rows


def quantiles(module: Any) -> Any:
    """A few drawn values."""
    drawn = np.random.default_rng(0).lognormal(0, 1, 2_000).clip(0, 100)
    module.columns = lambda: {"log-normal": (drawn, module.Real(0, 100), np.linspace(0, 100, 101))}
    return module.main()


def ranges(module: Any) -> None:
    """A made-up histogram."""
    from dodona.privacy.budget import Budget
    from dodona.query.schema import Integer, Schema

    module.RANGES = 200
    counts = np.random.default_rng(0).integers(0, 20, 4096)
    table = module.counted_table(Schema({"x": Integer(0, 4095)}), {"x": np.arange(4096.0)}, counts)
    errors, chosen = module.ours(table, Budget(epsilon=1), counts, module.random_ranges(4096))
    print(errors, chosen)


def reconstruction(module: Any) -> None:
    """Two epsilons, one table."""
    module.EPSILONS = ("1", "8")
    print(module.measured())


def samplers(module: Any) -> Any:
    """Small batches."""
    module.BATCH = 1_000
    return module.main()


def server_load(module: Any) -> Any:
    """Three analysts for three seconds."""
    return module.main(["--seconds", "3", "--analysts", "3", "--rows", "500", "--workers", "1"])


def server_timing(module: Any) -> Any:
    """Ten pairs."""
    return module.main(["--pairs", "10", "--analysts", "2", "--workers", "1"])


def small_database(module: Any) -> Any:
    """Few candidates."""
    return module.main((3,))


def startup(module: Any) -> None:
    """Once."""
    print(module.seconds([sys.executable, "-c", "import dodona"], module.ROOT, 1))


def submodular(module: Any) -> None:
    """Few rows."""
    print(module.errors(300))


def whole(module: Any) -> Any:
    """Small by ``SMALL`` alone."""
    return module.main()


def elsewhere(module: Any) -> None:
    """Needs a database server or a cluster of its own; importing it must work, its engine's tests do the rest."""
    assert callable(module.main)
    print("not run here: it starts a server of its own")


WAYS: dict[str, Callable[[Any], Any]] = {
    "agnostic": agnostic,
    "agnostic_speed": agnostic_speed,
    "blr_figures": blr_figures,
    "composition": whole,
    "conjunctions": conjunctions,
    "cuts": cuts,
    "engines": engines,
    "engines_duckdb": whole,
    "engines_growth": whole,
    "engines_postgres": elsewhere,
    "engines_spark": elsewhere,
    "halfspaces": halfspaces,
    "learn_supervised": learn_supervised,
    "learn_trees": learn_trees,
    "learn_unsupervised": learn_unsupervised,
    "ledger": ledger,
    "local": local,
    "noise_families": noise_families,
    "parity": parity,
    "people": whole,
    "quantiles": quantiles,
    "ranges": ranges,
    "reconstruction": reconstruction,
    "samplers": samplers,
    "server_load": server_load,
    "server_timing": server_timing,
    "small_database": small_database,
    "startup": startup,
    "submodular": submodular,
}
"""Benchmark -> how it is run quickly."""
