"""The distribution of incomes from 2,000 people, published once.

One synopsis answers every range for ever. Its curve and 95 % band against the truth, which only a demonstration may
show: a strict epsilon moves it visibly, an ordinary one hardly.
"""

import numpy as np
from _house import BLUE, GREY, ORANGE, curator, plt, save, survey

import dodona as dd
from dodona import release

table = survey(2_000)
cuts = np.linspace(1_000, 120_000, 120)
questions = [f"income < {cut:.0f}" for cut in cuts]
truth = [dd.Exact(table).ask(question).mean for question in questions]

figure, axes = plt.subplots(figsize=(6.8, 4))
for epsilon, colour in ((0.1, ORANGE), (1, BLUE)):
    synopsis = release.intervals(curator(table, epsilon), "income", bits=8, share=1)
    answers = [synopsis.ask(question) for question in questions]
    low, high = np.transpose([answer.interval() for answer in answers])
    axes.fill_between(cuts / 1000, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(
        cuts / 1000, [answer.mean for answer in answers], color=colour, label=f"epsilon {epsilon:g}, with 95 % band"
    )
axes.plot(cuts / 1000, truth, color="black", linewidth=1, linestyle="--", label="truth")
axes.axhline(1, color=GREY, linewidth=0.5)
axes.set(xlabel="income below (thousands)", ylabel="share of 2,000 people (1 in 20 did not say)", ylim=(-0.05, 1.1))
axes.set_title("At epsilon 1 the whole curve is within a few percent")
axes.legend(loc="lower right")
save(figure, __file__)
