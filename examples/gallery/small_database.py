"""A synthetic table of 40 rows that answers like the real 50,000.

Blum, Ligett and Roth's small database: 40 made-up rows whose counts are close to the data's on every conjunction of at
most two conditions. Each dot is one such question. The table can be handed out; nobody in it exists.
"""

import numpy as np
from _house import BLUE, GREY, ORANGE, curator, plt, save, survey

import dodona as dd
from dodona import release
from dodona.concepts import Conjunctions

table = survey()
columns = ("sex", "smoker", "obese", "disease", "education")
concepts = Conjunctions.over(columns, 2)
oracle = curator(table, epsilon=1).select_columns(*columns)
synopsis = release.small_database(oracle, concepts, size=40, share=1)
exact = dd.Exact(table).select_columns(*columns)

size = concepts.size(exact.schema)
members = [concepts.member(exact.schema, i) for i in range(0, size, max(1, size // 250))]
true = np.array([exact.ask(member).mean for member in members])
answers = [synopsis.ask(member) for member in members]
made = np.array([answer.mean for answer in answers])
margin = max(answer.margin / answer.rows for answer in answers)

figure, axes = plt.subplots(figsize=(5.4, 4.8))
line = np.array([0, 1])
axes.fill_between(
    line, line - margin, line + margin, color=ORANGE, alpha=0.2, label=f"stated for all at once: within {margin:.2f}"
)
axes.plot(line, line, color=GREY, linewidth=1)
axes.plot(true, made, ".", color=BLUE, label=f"{len(true)} of {size:,} conjunctions")
axes.set(xlabel="share of the real 50,000 rows", ylabel="share of the published 40 rows", xlim=(0, 1), ylim=(0, 1))
axes.set_title(f"40 made-up rows err by {np.abs(made - true).mean():.3f} on average")
axes.legend(loc="upper left", fontsize=9)
save(figure, __file__)
