"""All two-way tables of a survey, published at once.

Six columns of 50,000 made-up people. One release at epsilon 1 answers every pair of columns for ever; each dot is one
cell of one of those tables, true share against published share. The dashed lines are what the synopsis says of its
own error.
"""

import itertools

import numpy as np
from _house import BLUE, GREY, ORANGE, curator, plt, save, survey

import dodona as dd
from dodona import release

table = survey()
columns = ("sex", "region", "education", "smoker", "obese", "disease")
synopsis = release.conjunctions(curator(table, epsilon=1).select_columns(*columns), width=2, share=1)
exact = dd.Exact(table)

true, published, margins = [], [], []
for first, second in itertools.combinations(columns, 2):
    question = dd.Partition(dd.parse(first), dd.Partition(dd.parse(second), dd.Value(dd.parse("1"))))
    answer = synopsis.ask(question)
    true.extend(np.ravel(exact.ask(question).mean))
    published.extend(np.ravel(answer.mean))
    margins.extend(np.ravel(answer.margin) / answer.rows)
true, published, margins = map(np.array, (true, published, margins))
inside = np.abs(published - true) <= margins

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.8))
left.plot([3e-3, 1], [3e-3, 1], color=GREY, linewidth=1)
left.loglog(true, published, ".", color=BLUE)
left.set(xlabel="true share of people", ylabel="published share", title=f"{len(true)} cells of 15 tables, epsilon 1")
right.hist(100 * (published - true), bins=30, color=BLUE)
for side in (-1, 1):
    right.axvline(
        100 * side * np.median(margins), color=ORANGE, linestyle="--", label="stated 95 % margin" if side > 0 else None
    )
right.set(
    xlabel="error (percentage points)", ylabel="cells", title=f"{inside.mean():.0%} are within their stated margin"
)
right.set_ylim(0, 13)
right.legend(loc="upper left", fontsize=8)
save(figure, __file__)
