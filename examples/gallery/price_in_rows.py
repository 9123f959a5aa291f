"""The price of privacy in rows.

How many rows a learner needs for error 0.05 with confidence 0.95, by the theorems of Kasiviswanathan et al.: without
privacy, with a trusted curator, and for statistical queries when nobody is trusted. Computed, not measured.
"""

import math

import numpy as np
from _house import BLUE, GREEN, GREY, ORANGE, RED, plt, save

from dodona.bounds.klnrs import agnostic_rows, parity_plan, plan_queries

alpha, beta, classes = 0.05, 0.05, math.log(341_505)  # all conjunctions of at most 3 of 64 literals
epsilons = np.geomspace(0.03, 10, 16)

figure, axes = plt.subplots(figsize=(6.8, 4.2))
axes.loglog(
    epsilons,
    [agnostic_rows(classes, alpha, beta, None)] * len(epsilons),
    ":",
    color=GREY,
    label="no privacy: one of 341,505 conditions",
)
axes.loglog(
    epsilons, [agnostic_rows(classes, alpha, beta, e) for e in epsilons], color=BLUE, label="trusted curator: the same"
)
axes.loglog(
    epsilons,
    [parity_plan(64, alpha, beta, e).rows for e in epsilons],
    "--",
    color=GREEN,
    label="trusted curator: a parity of 64 bits",
)
few = [e for e in epsilons if e <= 1.1]
for queries, colour in ((1, ORANGE), (100, RED)):
    rows = [plan_queries(queries, alpha, float(e), beta=beta).rows_needed for e in few]
    axes.loglog(
        few,
        rows,
        "-.",
        color=colour,
        label=f"nobody trusted: {queries} statistical quer{'y' if queries == 1 else 'ies'}",
    )
axes.set(
    xlabel="epsilon", ylabel="rows needed", title="Nearly free above epsilon 1 with a trusted curator, dear without one"
)
axes.legend(fontsize=8)
save(figure, __file__)
