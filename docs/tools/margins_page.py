"""The page of margins: what each kind states, how often it held, and how much of it was idle, by running the law.

``python docs/tools/margins_page.py`` runs the quick column of every case in ``tests/support/covered`` (under a minute)
and writes docs/margins.md. Seeds are fixed: the same code gives the same page.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from dodona.testing.margins import IDLE, JUDGED_IDLE, Covered, Verdict, judge  # noqa: E402
from tests.support.covered.cases import BROKEN, CASES  # noqa: E402

PAGE = ROOT / "docs" / "margins.md"
HEAD = f"""---
hide: [toc]
---

<!-- Made by docs/tools/margins_page.py, by running the law; edit that, not this. -->

# Margins: stated, covered, idle by

Every number that Dodona shows comes with a margin, and the margin is *proven* or *estimated*, and says which. Proven
means: over the noise, with at least the stated confidence, the number shown is within the margin of what `Exact` shows
for the same question on the same table. Estimated means that it is judged by the same law, and not derived from a
theorem.

One law judges them all (`dodona.testing.margins`, run by `tests/statistical/test_second_promise.py`): each question by
itself must be covered at least as often as stated (an exact binomial test that is wrong once in a million; seeds are
fixed), a proven margin may be at most {IDLE:g} times what would have sufficed for the median question at
{JUDGED_IDLE:g}, and a question outside a release's class must be refused. Whatever states an error and has no row here
fails a test. The slow columns repeat it over numbers of rows, epsilon, delta, missing values, people with several rows,
and tables where most rows share one value.

*Covered* is that of the least covered question at each stated confidence; with few runs it may fall below by chance.
*Idle by* is the margin over what would have sufficed, at {JUDGED_IDLE:g}.

| kind | margins are | in | runs | 0.5 | 0.95 | 0.999 | idle by |
|---|---|---|---|---|---|---|---|
"""


def row(case: Covered, verdict: Verdict) -> str:
    """One line of the table."""
    if case.slow:
        return f"| {case.kind} | {said(case.proven)} | *judged by the slow column* | | | | | |\n"
    seen = {line.confidence: line for line in verdict.lines}
    covered = [f"{seen[sure].least:.3g}" if sure in seen else "" for sure in (0.5, 0.95, 0.999)]
    idle = seen[case.sure or JUDGED_IDLE].idle
    shown = "never used up" if math.isinf(idle) else f"{idle:.2g}"
    proven = said(all(line.proven for line in verdict.lines))
    return f"| {case.kind} | {proven} | {verdict.world} | {case.runs} | {' | '.join(covered)} | {shown} |\n"


def said(proven: bool) -> str:
    return "proven" if proven else "estimated"


def page() -> str:
    """The whole page; runs every quick column."""
    text = HEAD + "".join(row(case, judge(case, case.quick)) for case in CASES)
    forced = [case for case in CASES if case.forced is not None]
    text += "\n## Where a proof costs width\n\nThese may be idle by more, each for a stated reason.\n\n"
    for case in forced:
        most, why = case.forced or (0.0, "")
        text += f"* **{case.kind}**, {'without limit' if math.isinf(most) else f'up to {most:g}'}: {why}.\n"
    text += "\n## What breaks the law today\n\n"
    text += "".join(f"* **{kind}**: {why}\n" for kind, why in BROKEN.items()) or "Nothing that is known.\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
