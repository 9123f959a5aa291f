"""Our claimed epsilon against dp-accounting's privacy loss distributions on random compositions (HOSTILE M7).

``python -m benchmarks composition`` compares 200 random mixes of discrete Laplace and Gaussian answers, or as many as
``DODONA_COMPOSITIONS`` says (the release figure is 5,000), and prints how much larger our claim is.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from dodona.mechanisms import DiscreteGaussian
from dodona.papers.checks import compared


def main() -> list[dict[str, Any]]:
    """Compare, count what is below (there must be none), and print the slack; returned as rows too."""
    count = int(os.environ.get("DODONA_COMPOSITIONS", "200"))
    started = time.perf_counter()
    found = compared(seed=1, count=count)
    below = [each for each in found if each.claimed < each.exact]
    groups = {
        "all": found,
        "Gaussian only": [c for c in found if all(isinstance(s, DiscreteGaussian) for s in c.steps)],
        "Laplace only": [c for c in found if not any(isinstance(s, DiscreteGaussian) for s in c.steps)],
        "6 or more answers": [c for c in found if len(c.steps) >= 6],
    }
    rows: list[dict[str, Any]] = []
    print(f"{'compositions':<20}{'number':>8}{'median slack':>14}{'10 %':>9}{'90 %':>9}{'least':>9}")
    for name, group in groups.items():
        if group:
            slack = np.array([each.slack for each in group])
            low, high = np.quantile(slack, [0.1, 0.9])
            print(f"{name:<20}{len(group):>8,}{np.median(slack):>13.1%} {low:>8.1%} {high:>8.1%} {slack.min():>8.2%}")
            case = f"median slack over the privacy loss distribution, {len(group):,} compositions: {name}"
            rows.append({"case": case, "ours": 100 * float(np.median(slack)), "unit": "%"})
    rows.append({"case": f"claims below the loss distribution's, of {count:,}", "ours": len(below), "target": 0})
    print(
        f"below the loss distribution's value: {len(below)} of {len(found):,} ({time.perf_counter() - started:.0f} s)"
    )
    return rows


if __name__ == "__main__":
    main()
