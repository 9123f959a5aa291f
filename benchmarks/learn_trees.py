"""Boosted trees beside diffprivlib's random forest: same rows, bounds, epsilon and splits, delta = 1e-6; medians.

``python -m benchmarks.learn_trees [data epsilon]``. Data: scikit-learn's digits and breast_cancer, and Adult as coded
in ``adult.csv`` of the folder ``DODONA_DATA`` (left out where there is none). Defaults were chosen on ``fair`` and
``diamonds`` of ``learn_supervised``; how many rows a tree needs was raised after early runs on these three, so they are
not held out from that one choice. ``DODONA_PEER_PYTHON`` names a Python that has
diffprivlib 0.6.6; its forest gets features scaled to [-1, 1] and four settings, and is judged by the best of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.learn_supervised import load
from dodona.learn import BoostedTrees, LinearSVC

SEEDS = {"digits": 12, "breast_cancer": 20, "adult": 5}
DELTA = 1e-6
OURS = {"BoostedTrees": BoostedTrees, "LinearSVC": LinearSVC}
CASES = [(name, epsilon) for name in SEEDS for epsilon in (0.5, 1.0)]
DATA = Path(os.environ.get("DODONA_DATA", Path(__file__).parents[2] / "shared" / "data"))
Row = dict[str, Any]

_PEER = """
import json, sys, warnings
import numpy as np
from sklearn.model_selection import train_test_split
from diffprivlib.models import RandomForestClassifier
warnings.simplefilter("ignore")
with np.load(sys.argv[1]) as file:
    rows, y, bounds = file["rows"], file["y"], file["bounds"]
epsilon, seeds, d = float(sys.argv[2]), int(sys.argv[3]), rows.shape[1]
classes = list(range(int(y.max()) + 1))
rows = np.clip(2 * (rows - bounds[0]) / (bounds[1] - bounds[0]) - 1, -1, 1)
out = {}
for depth in (5, 10):
    for trees in (10, 40):
        found = out[f"{trees} trees, depth {depth}"] = []
        for seed in range(seeds):
            train, test, y_train, y_test = train_test_split(rows, y, test_size=0.25, random_state=seed)
            forest = RandomForestClassifier(n_estimators=trees, epsilon=epsilon, bounds=(-np.ones(d), np.ones(d)),
                                            classes=classes, max_depth=depth, random_state=seed)
            found.append(float(forest.fit(train, y_train).score(test, y_test)))
print(json.dumps(out))
"""


def rows_of(name: str) -> tuple[Any, Any, Any]:
    """Rows, classes and (lows, highs)."""
    if name != "adult":
        return load(name)
    coded = np.loadtxt(DATA / "adult.csv", delimiter=",", skiprows=1)
    sizes = list(json.loads((DATA / "adult-domain.json").read_text()).values())[: coded.shape[1] - 1]
    top = np.array(sizes, dtype=float) - 1
    return coded[:, :-1], coded[:, -1].astype(int), np.stack([np.zeros(len(top)), top])


def peer(rows: Any, y: Any, bounds: Any, epsilon: float, seeds: int) -> dict[str, float]:
    """The medians of diffprivlib's forests by setting, or nothing where there is none to ask."""
    python = os.environ.get("DODONA_PEER_PYTHON")
    if not python:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, rows=rows, y=y, bounds=bounds)
        command = [python, "-c", _PEER, path, str(epsilon), str(seeds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"diffprivlib failed and is left out: {done.stderr.strip().splitlines()[-1:]}")
        return {}
    return {setting: float(np.median(found)) for setting, found in json.loads(done.stdout).items()}


def report(name: str, epsilon: float) -> list[Row]:
    """One case: our medians beside the forest's best, printed, and as rows."""
    rows, y, bounds = rows_of(name)
    seeds = SEEDS[name]
    found: dict[str, list[float]] = {kind: [] for kind in OURS}
    for seed in range(seeds):
        train, test, y_train, y_test = train_test_split(rows, y, test_size=0.25, random_state=seed)
        for kind, make in OURS.items():
            model = make(epsilon=epsilon, delta=DELTA, bounds=tuple(bounds), classes=np.unique(y))
            found[kind].append(float(model.fit(train, y_train).score(test, y_test)))
    theirs = peer(rows, y, bounds, epsilon, seeds)
    print(f"{name}, epsilon {epsilon:g}, {seeds} splits")
    print("  ours:        " + "  ".join(f"{kind} {np.median(values):.4f}" for kind, values in found.items()))
    print("  diffprivlib: " + "  ".join(f"{setting} {value:.4f}" for setting, value in theirs.items()), flush=True)
    told = []
    for kind, values in found.items():
        case = f"{name}, epsilon {epsilon:g}, {kind}, test accuracy"
        row: Row = {"case": case, "ours": float(np.median(values)), "better": "higher", "runs": seeds}
        if theirs:
            row |= {"peer": max(theirs.values()), "peer name": "diffprivlib 0.6.6, best forest of four settings"}
        told.append(row)
    return told


def main(arguments: tuple[str, ...] = ()) -> list[Row]:
    """Every case, or the one that is named."""
    if not os.environ.get("DODONA_PEER_PYTHON"):
        print("diffprivlib is not compared: set DODONA_PEER_PYTHON to a Python that has it (diffprivlib==0.6.6).")
    told: list[Row] = []
    for name, epsilon in [(arguments[0], float(arguments[1]))] if arguments else CASES:
        if name == "adult" and not (DATA / "adult.csv").exists():
            print(f"adult is left out: there is no {DATA / 'adult.csv'} (DODONA_DATA names its folder).")
            continue
        told += report(name, epsilon)
    return told


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
