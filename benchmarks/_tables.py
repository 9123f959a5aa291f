"""Tables of ten and more columns of cells, as the conjunctions benchmark and its peer read them.

``python -m benchmarks._tables FOLDER`` writes each as FOLDER/NAME.npz, which ``_aim_peer.py`` takes; ``adult_train`` is
four fifths of ``adult``, by public coin. ``randhie`` is one of statsmodels' data sets, its numbers cut by stated edges.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DATA = Path(os.environ.get("DODONA_DATA", Path(__file__).parents[2] / "shared" / "data"))
Codes = NDArray[np.int64]
COLUMNS_OF_123 = (5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41)
"""How many of the 123 bits each of Adult's columns has, one after the other."""
EDGES = {
    "mdvis": (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 200),
    "lncoins": (0, 1, 2.5, 3.5, 4.2, 9),
    "idp": (0, 0.5, 2),
    "lpi": (0, 1, 5, 5.5, 6, 6.2, 6.4, 6.6, 6.8, 7, 9),
    "fmde": (0, 1, 5, 6, 6.5, 7, 7.5, 8, 9),
    "physlm": (0, 0.001, 0.999, 2),
    "disea": (0, 2, 4, 6, 8, 10, 12, 14, 17, 20, 25, 30, 60),
    "hlthg": (0, 0.5, 2),
    "hlthf": (0, 0.5, 2),
    "hlthp": (0, 0.5, 2),
}


def adult() -> tuple[Codes, tuple[int, ...]]:
    """48,842 rows of 14 columns, two to a hundred cells each."""
    sizes = json.loads((DATA / "adult-domain.json").read_text())
    return np.loadtxt(DATA / "adult.csv", delimiter=",", skiprows=1, dtype=np.int64), tuple(sizes.values())


def halves_of_adult() -> tuple[Codes, Codes]:
    """Four fifths to publish, one to test on."""
    codes = adult()[0]
    held = np.zeros(len(codes), dtype=bool)
    held[np.random.default_rng(1).permutation(len(codes))[: len(codes) // 5]] = True
    return codes[~held], codes[held]


def adult_train() -> tuple[Codes, tuple[int, ...]]:
    """Four fifths of adult."""
    return halves_of_adult()[0], adult()[1]


def adult123() -> tuple[Codes, tuple[int, ...]]:
    """6,414 rows of the 14 columns that the bits of ``adult_bin123`` stand for; no bit set is a cell of its own."""
    bits = np.loadtxt(DATA / "adult_bin123.csv", delimiter=",", dtype=np.int64)
    columns, sizes, start = [], [], 0
    for width in COLUMNS_OF_123:
        own = bits[:, start : start + width]
        none = own.sum(axis=1) == 0
        columns.append(np.where(none, width, own.argmax(axis=1)))
        sizes.append(width + bool(none.any()))
        start += width
    return np.stack(columns, axis=1), tuple(sizes)


def randhie() -> tuple[Codes, tuple[int, ...]]:
    """20,190 rows of the RAND health insurance experiment, ten columns."""
    from statsmodels.datasets import randhie as held

    data = held.load_pandas().data
    columns = [np.digitize(data[name].to_numpy(dtype=float), edges[1:-1]) for name, edges in EDGES.items()]
    return np.stack(columns, axis=1).astype(np.int64), tuple(len(edges) - 1 for edges in EDGES.values())


TABLES = {"adult": adult, "adult_train": adult_train, "adult123": adult123, "randhie": randhie}


def main(folder: str) -> None:
    """Write all of them."""
    for name, make in TABLES.items():
        codes, sizes = make()
        names = [f"c{i}" for i in range(len(sizes))]
        np.savez_compressed(Path(folder) / f"{name}.npz", codes=codes.astype(np.uint8), sizes=sizes, names=names)


if __name__ == "__main__":
    main(*sys.argv[1:])
