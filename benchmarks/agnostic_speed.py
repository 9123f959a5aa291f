"""How long the agnostic learner takes over all conjunctions of width <= 3 of 64 bits and 10^6 rows.

Apart from benchmarks/agnostic.py, whose accuracies need no quiet machine. Processor time is given beside wall time,
since a busy machine stretches only the latter.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.agnostic import BITS, bits_table
from dodona.concepts.conjunctions import Conjunctions
from dodona.learn.agnostic import AgnosticLearner
from dodona.oracles.curator import Curator
from dodona.privacy.budget import Budget

FITS, SECONDS = 3, 10.0


def main(rows: int = 10**6, bits: int = BITS) -> list[dict[str, Any]]:
    """The median of a few fits."""
    table, schema = bits_table(rows, 0, 0.1, bits)
    concepts = Conjunctions.over([f"b{i}" for i in range(bits)], 3)
    curator = Curator(table, Budget(epsilon=1))
    times = []
    for _ in range(FITS):
        wall, processor = time.perf_counter(), time.process_time()
        learner = AgnosticLearner(concepts, share=0.1).fit(curator, "y")
        times.append((time.perf_counter() - wall, time.process_time() - processor))
        size = concepts.size(schema)
        print(f"{size:,} hypotheses, {rows:,} rows: {times[-1][0]:.1f} s, {times[-1][1]:.1f} of processor")
    print(learner.hypothesis_)
    wall, processor = (statistics.median(each) for each in zip(*times, strict=True))
    case = f"a fit over {size:,} hypotheses and {rows:,} rows"
    return [{"case": case, "ours": wall, "target": SECONDS, "unit": "s", "processor s": processor, "runs": FITS}]


if __name__ == "__main__":
    main()
