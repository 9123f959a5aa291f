"""Learning by statistical queries alone.

A decision list of four rules over eight bits. The learner sees no rows: it asks STAT(p, tau) and gets answers within
tau. The more of the budget it may spend, the smaller tau is, and the more rules stand out from it.
"""

import numpy as np
from _house import BLUE, ORANGE, curator, plt, save

import dodona as dd
from dodona.learn import DecisionListLearner

rng = np.random.default_rng(2)
bits = rng.random((40_000, 8)) < 0.5
label = np.where(bits[:, 0], True, np.where(bits[:, 3], False, np.where(bits[:, 5], True, bits[:, 6])))
names = [f"b{i}" for i in range(8)]
schema = dd.Schema({name: dd.Flag(missing=False) for name in [*names, "y"]})
table = dd.Table({**{name: bits[:, i] for i, name in enumerate(names)}, "y": label}, schema)

shares, errors, taus = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1), [], []
for share in shares:
    learner = DecisionListLearner(share=share).fit(curator(table, epsilon=1), "y")
    errors.append(np.mean(learner.predict(bits) != label))
    taus.append(learner.tau_)

figure, axes = plt.subplots(figsize=(6.4, 4))
axes.semilogx(shares, errors, "o-", color=BLUE, label="rows misjudged")
axes.semilogx(shares, taus, "s--", color=ORANGE, label="tolerance tau of the answers")
axes.set(xlabel="share of a budget of epsilon 1 spent", ylabel="share of 40,000 rows")
axes.set_title(f"Rules appear one by one as tau falls; {len(learner.rules_)} in the end")
axes.legend()
save(figure, __file__)
