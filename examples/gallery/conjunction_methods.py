"""What publishing all conjunctions costs in accuracy, before anything is spent.

For each epsilon the planner predicts the error of every method and the release takes the best. Lines are predictions
for all pairs of five columns; crosses are what really happened. Predictions are free: they look at no row.
"""

import itertools

import numpy as np
from _house import RED, curator, plt, save, survey

import dodona as dd
from dodona import release

table = survey(20_000)
columns = ("sex", "region", "smoker", "obese", "disease")
epsilons = (0.03, 0.1, 0.3, 1, 3)
pairs = [
    dd.Partition(dd.parse(a), dd.Partition(dd.parse(b), dd.Value(dd.parse("1"))))
    for a, b in itertools.combinations(columns, 2)
]
truth = [np.ravel(dd.Exact(table).ask(pair).mean) for pair in pairs]

predicted: dict[str, list[float]] = {}
measured = []
for epsilon in epsilons:
    oracle = curator(table, epsilon).select_columns(*columns)
    for way in release.plan_conjunctions(oracle, width=2, share=1):
        predicted.setdefault(way.method, []).append((way.error or 0.0) / 20_000)
    synopsis = release.conjunctions(oracle, width=2, share=1)
    measured.append(
        np.mean([np.mean(np.abs(np.ravel(synopsis.ask(p).mean) - t)) for p, t in zip(pairs, truth, strict=True)])
    )

figure, axes = plt.subplots(figsize=(6.8, 4))
for (name, errors), style in zip(predicted.items(), ("o-", "s--", "^-.", "d:"), strict=False):
    axes.loglog(epsilons, errors, style, label=f"{name}, predicted", markersize=5)
axes.loglog(epsilons, measured, "x", color=RED, markersize=10, markeredgewidth=2.5, label="best of them, measured")
axes.set(xlabel="epsilon (delta 1e-6)", ylabel="mean error (share of 20,000 people)")
axes.set_title("The method with the smallest predicted error is taken")
axes.legend(fontsize=8)
save(figure, __file__)
