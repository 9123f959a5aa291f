"""How far answers move an adversary's belief about one person.

The adversary knows every row but one, thinks it as likely as not that this person smokes, and asks six times how many
do. The budget is `Budget.sulq(1, 0.001, queries=6)`: SuLQ's Theorem 1, mended, which promises that the gain in log-odds
passes epsilon 1 in at most one run of a thousand. Shown are the gains of 150 runs, each computed exactly
(Definition 1).
"""

import numpy as np
from _house import BLUE, GREY, RED, plt, save

import dodona as dd
from dodona.audit.attacks import Adversary, belief
from dodona.testing import seeded_curator

schema = dd.Schema({"smoker": dd.Flag(missing=False)})
others = dd.Table({"smoker": np.arange(500) % 3 == 0}, schema)
everyone = dd.Table({"smoker": np.append(np.arange(500) % 3 == 0, True)}, schema)
epsilon, delta, answers, runs = 1, 0.001, 6, 150
budget = dd.Budget.sulq(epsilon, delta, queries=answers)

gains = []
for seed in range(runs):
    oracle = seeded_curator(everyone, budget, seed)
    adversary = Adversary(others, [{"smoker": False}, {"smoker": True}], budget)
    for _ in range(answers):
        adversary.see("smoker", oracle.ask("smoker", share=f"1/{answers}"), share=f"1/{answers}")
    gains.append(belief(adversary.observations, [0.5, 0.5], [False, True]).gain)

figure, axes = plt.subplots(figsize=(6.6, 4))
axes.hist(gains, bins=25, color=BLUE)
axes.axvline(epsilon, color=RED, linewidth=2, label=f"epsilon {epsilon:g}: passed by at most {delta:g} of runs")
axes.axvline(0, color=GREY, linewidth=1)
odds = (-0.5, 0, 0.5, 1)
axes.set_xticks(odds, [f"{x:g}\n({100 / (1 + np.exp(-x)):.0f} % sure)" for x in odds])
axes.set(xlabel="gain in log-odds that the person smokes (who does)", ylabel=f"runs of {runs}")
axes.set_title(f"Six answers about one person: the largest gain is {max(gains):.2f}")
axes.set_ylim(0, axes.get_ylim()[1] * 1.2)
axes.legend(loc="upper left")
save(figure, __file__)
