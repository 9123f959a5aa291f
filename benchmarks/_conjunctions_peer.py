"""SmartNoise's synthesizers on the benchmark's tables; run by the Python that ``DODONA_PEER_PYTHON`` names.

``_conjunctions_peer.py FOLDER DATA KIND EPSILON SECONDS [ROUNDS]``: DATA adult or adult_bin16, delta 1e-9, KIND mst,
aim (as installed, 3-way workload, its default rounds unless stated: 16 a column) or aim-tree. AIM as installed bounds
the sizes of the cliques it asked for, not of the junction tree they make, which is what its memory and time grow with;
aim-tree bounds the tree, as McKenna, Mullins, Sheldon and Miklau (2022) do. After SECONDS of cpu AIM is stopped at the
end of a round and judged by the model it has by then. Prints a line a round, and one JSON object last: errors as in
``conjunctions.py``, of ten times as many rows as there are (``model``) and of as many (``table``).
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

warnings.filterwarnings("ignore")
from snsynth import Synthesizer  # noqa: E402
from snsynth.aim import aim  # noqa: E402
from snsynth.transform import LabelTransformer, TableTransformer  # noqa: E402


class OutOfTime(Exception):
    """AIM has had its seconds."""


def watched(seconds, started, seen):
    """AIM's choice of a marginal, once a round, noting the model it is given and ending the run when time is up."""
    choose = aim.AIMSynthesizer._worst_approximated

    def worst(self, candidates, answers, model, eps, sigma):
        seen["rounds"], seen["model"], self.synthesizer = seen["rounds"] + 1, model, model
        spent = time.process_time() - started
        print(f"round {seen['rounds']}, {spent:.0f} cpu s, sigma {float(sigma):.1f}", flush=True)
        if spent > seconds:
            raise OutOfTime
        return choose(self, candidates, answers, model, eps, sigma)

    return worst


def errors(held, drawn, sizes):
    """Mean total variation of the 1-, 2- and 3-way marginals, and mean absolute error of all their cells."""
    gaps, cells = {}, []
    for width in (1, 2, 3):
        off = []
        for support in itertools.combinations(range(len(sizes)), width):
            shape = [sizes[i] for i in support]
            places = [np.ravel_multi_index(rows[:, support].T, shape) for rows in (held, drawn)]
            first, second = (np.bincount(p, minlength=int(np.prod(shape))) / len(p) for p in places)
            off.append(0.5 * np.abs(first - second).sum())
            cells.append(np.abs(first - second))
        gaps[width] = float(np.mean(off))
    return {"tv": gaps, "mean": float(np.concatenate(cells).mean())}


def draw(maker, rows, columns):
    """Codes of rows of its model; labels are the numbers themselves, so only compression is to be undone."""
    made = maker.synthesizer.synthetic_data(rows=rows)
    if hasattr(maker, "undo_compress_fn"):
        made = maker.undo_compress_fn(made)
    return made.df[[f"col{i}" for i in range(columns)]].to_numpy().astype(int)


def main(folder, data, kind, epsilon, seconds, rounds=None):
    """Fit, draw, measure."""
    frame = pd.read_csv(Path(folder) / f"{data}.csv").astype(int)
    known = Path(folder) / f"{data}-domain.json"
    sizes = json.loads(known.read_text()) if known.exists() else dict.fromkeys(frame.columns, 2)
    names = list(sizes)
    labels = TableTransformer([LabelTransformer(nullable=False) for _ in names])
    labels.fit(pd.DataFrame({name: [i % sizes[name] for i in range(max(sizes.values()))] for name in names}))
    started, seen = time.process_time(), {"rounds": 0}
    if kind == "aim-tree":
        from mbi import junction_tree

        aim.hypothetical_model_size = junction_tree.hypothetical_model_size
    aim.AIMSynthesizer._worst_approximated = watched(float(seconds), started, seen)
    settings = {} if kind == "mst" else {"degree": 3, "rounds": rounds and int(rounds)}
    maker = Synthesizer.create(kind.partition("-")[0], epsilon=float(epsilon), delta=1e-9, **settings)
    ended = True
    try:
        maker.fit(frame[names], transformer=labels)
    except OutOfTime:
        ended = False
    spent = time.process_time() - started
    held, values = frame[names].to_numpy(), list(sizes.values())
    print(f"fitted in {spent:.0f} cpu s", flush=True)
    found = {"kind": kind, "cpu": spent, "rounds": seen["rounds"], "ended": ended}
    for name, times in (("table", 1), ("model", 10)):
        found[name] = errors(held, draw(maker, times * len(frame), len(names)), values)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
