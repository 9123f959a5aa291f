"""The price of distrust: one question, two trust models.

What share of people smoke? A trusted curator's error falls as 1/n; when every row randomises itself it falls as
1/sqrt(n). Lines are what each oracle says beforehand, dots are real answers against the truth.
"""

import numpy as np
from _house import BLUE, GREY, RED, curator, everyone, plt, save, survey

import dodona as dd

sizes, runs = (1_000, 5_000, 25_000, 125_000), 12
figure, axes = plt.subplots(figsize=(6.8, 4.2))
for name, make, colour, marker in (
    ("everyone randomises (local)", everyone, RED, "o"),
    ("trusted curator", curator, BLUE, "s"),
):
    stated, measured = [], []
    for rows in sizes:
        table = survey(rows)
        truth = dd.Exact(table).ask("smoker").mean
        stated.append(make(table, 1).price("smoker", share=1).spread / rows)
        measured.append([abs(make(table, 1, seed=seed).ask("smoker", share=1).mean - truth) for seed in range(runs)])
    axes.loglog(sizes, stated, color=colour, label=f"{name}: stated deviation")
    axes.loglog(np.repeat(sizes, runs), np.ravel(measured), marker, color=colour, markersize=3, alpha=0.6)
sampling = [np.sqrt(0.2 * 0.8 / rows) for rows in sizes]
axes.loglog(sizes, sampling, ":", color=GREY, label="sampling error, for comparison")
axes.set(
    xlabel="people",
    ylabel="error of the share of smokers",
    title="Epsilon 1: distrust costs a factor sqrt(n)",
    ylim=(3e-6, 2),
)
axes.legend(fontsize=8, loc="upper right")
save(figure, __file__)
