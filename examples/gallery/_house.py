"""What the scripts share: the made-up survey, oracles with seeded noise, and one look for all pictures."""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
import tomllib
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import dodona as dd
from dodona.sample import COLUMNS, write_sample
from dodona.testing import SeededBits, seeded_curator

BLUE, ORANGE, GREEN, RED, PINK, SKY, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#777777"
"""Okabe and Ito's colours, which people of any colour vision can tell apart."""

plt.rcParams.update(
    {
        "figure.constrained_layout.use": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, RED, PINK, SKY]),
        "legend.frameon": False,
    }
)


@functools.cache
def survey(rows: int = 50_000) -> dd.Table:
    """The made-up survey, as a table."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    file = Path(folder.name) / "survey.parquet"
    write_sample(file, rows)
    return dd.Table(file, dd.Schema.read(tomllib.loads(COLUMNS)["columns"]))


def curator(table: dd.Table, epsilon: float, delta: float = 1e-6, seed: int = 0) -> dd.Curator:
    """A curator whose noise follows from a seed, so that a picture is the same tomorrow. Never for real data."""
    return seeded_curator(table, dd.Budget(epsilon=epsilon, delta=delta), seed)


def everyone(table: dd.Table, epsilon: float, seed: int = 0, *, interactive: bool = True) -> dd.Local:
    """Nobody trusted, each row randomising itself, from a seed. Never for real data."""
    oracle = dd.Local(table, epsilon, interactive=interactive)
    oracle._bits = SeededBits(seed)
    return oracle


def matrix_table(rows: np.ndarray, low: float, high: float, name: str = "data") -> dd.Table:
    """A matrix of numbers with stated bounds, its columns x0, x1, ..."""
    names = [f"x{i}" for i in range(rows.shape[1])]
    schema = dd.Schema({column: dd.Real(low, high, missing=low) for column in names})
    return dd.Table({column: rows[:, i] for i, column in enumerate(names)}, schema, name=name)


def save(figure: Figure, script: str) -> None:
    """As docs/gallery/NAME.png, or into the folder DODONA_GALLERY names."""
    folder = Path(os.environ.get("DODONA_GALLERY", Path(__file__).resolve().parents[2] / "docs" / "gallery"))
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{Path(script).stem}.png", dpi=100)
    plt.close(figure)
