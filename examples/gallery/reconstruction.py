"""Turning answers back into rows.

40 secret bits and answers to 120 random sums of them, three tables a point. Without noise linear programming returns
every bit; with a budget no attack can be right more often than the dashed line, e^epsilon/(1 + e^epsilon), but for
luck. Asking for each row in turn meets it, random sums stay below.
"""

import numpy as np
from _house import BLUE, GREEN, GREY, RED, plt, save

import dodona as dd
from dodona.audit.attacks import reconstruct
from dodona.testing import seeded_curator

epsilons = (0.3, 2, 16, 128)
found: dict[str, list[float]] = {}
for epsilon in epsilons:
    each: dict[str, list[float]] = {}
    for seed in range(3):
        secrets = np.random.default_rng(seed).random(40) < 0.5
        attacks = reconstruct(
            lambda table, e=epsilon, s=seed: seeded_curator(table, dd.Budget(epsilon=e), s),
            secrets,
            queries=120,
            seed=seed,
        )
        for attack in attacks:
            each.setdefault(attack.attack, []).append(attack.fraction)
    for name, values in each.items():
        found.setdefault(name, []).append(float(np.mean(values)))

figure, axes = plt.subplots(figsize=(6.8, 4))
grid = np.geomspace(0.3, 128, 200)
limit = 1 / (1 + np.exp(-grid))
axes.fill_between(grid, limit, 1.05, color="0.93")
axes.semilogx(grid, limit, "--", color="black", label="no attack can do better")
for (name, values), colour, marker in zip(found.items(), (RED, GREEN, BLUE), "s^o", strict=False):
    axes.semilogx(epsilons, values, marker + ("" if name == "row by row" else "-"), color=colour, label=name)
axes.axhline(0.5, color=GREY, linewidth=1)
axes.text(3.5, 0.462, "guessing", color=GREY, fontsize=8)
axes.set(xlabel="epsilon spent on the questions", ylabel="secret bits recovered", ylim=(0.3, 1.05))
axes.set_title("Random sums give little away; aimed questions meet the limit")
axes.legend(loc="lower right", fontsize=9)
save(figure, __file__)
