"""Two ways of the same work, turn by turn in one run: what other programs take from the machine, both lose alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def seconds(run: Callable[[], Any]) -> float:
    """Of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compared(
    case: str, ours: Callable[[], Any], plain: Callable[[], Any], turns: int, target: float, peer: str, warm: int = 1
) -> Row:
    """Medians of the turns and of their ratios, printed and as a row. ``warm``: turns before that do not count.

    ``target``: the largest ratio wanted.
    """
    for _ in range(warm):
        plain()
        ours()
    pairs = [(seconds(plain), seconds(ours)) for _ in range(turns)]
    theirs, own = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"{case}: ours {own:.2f} s, {peer} {theirs:.2f} s, ratio {ratio:.2f} (target {target})", flush=True)
    return {
        "case": case,
        "ours": own,
        "peer": theirs,
        "peer name": peer,
        "target": target * theirs,
        "unit": "s",
        "ratio": round(ratio, 3),
        "met": ratio <= target,
    }
