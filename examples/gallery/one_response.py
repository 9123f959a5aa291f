"""One answer from each person serves a whole class of questions.

Each person sends a few randomised bits, once. From the sum of all reports every conjunction of at most three of eight
conditions can be read without bias (Alda and Simon's idea, with a better randomiser). Line: predicted before; dots:
measured.
"""

import numpy as np
from _house import BLUE, GREY, RED, everyone, plt, save

import dodona as dd
from dodona import release
from dodona.concepts import Conjunctions

rng = np.random.default_rng(0)
people = rng.random((20_000, 8)) < rng.uniform(0.2, 0.8, 8)
names = [f"c{i}" for i in range(8)]
table = dd.Table(
    {name: people[:, i] for i, name in enumerate(names)}, dd.Schema(dict.fromkeys(names, dd.Flag(missing=False)))
)
concepts = Conjunctions.over(names, 3)
members = [concepts.member(table.schema, int(i)) for i in rng.choice(concepts.size(table.schema), 60, replace=False)]
truth = np.array([dd.Exact(table).ask(member).mean for member in members])
epsilons = (0.5, 1, 2, 4, 8)

predicted, measured = [], []
for epsilon in epsilons:
    oracle = everyone(table, epsilon)
    predicted.append(release.plan_arrangement(oracle, concepts, share=1)[0].error)
    synopsis = release.arrangement(oracle, concepts, share=1)
    measured.append(np.sqrt(np.mean((np.array([synopsis.ask(member).mean for member in members]) - truth) ** 2)))

figure, axes = plt.subplots(figsize=(6.4, 4))
axes.loglog(epsilons, predicted, color=BLUE, label="predicted")
axes.loglog(epsilons, measured, "o", color=RED, label="measured on 60 conjunctions")
axes.axhline(truth.std(), color=GREY, linestyle=":", label="knowing nothing but the average")
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.minorticks_off()
axes.set(xlabel="epsilon each person spends, once", ylabel="root mean square error")
axes.set_title(f"{concepts.size(table.schema):,} conjunctions from one report each of 20,000 people")
axes.legend()
save(figure, __file__)
