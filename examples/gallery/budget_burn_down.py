"""A day of questions: what each costs, and what is left.

Twelve questions to one curator over 50,000 made-up people. Eight ask for an error, four for a share of the budget;
the last one no longer fits and is refused before a row is read. Nothing ever adds to what is left.
"""

from _house import BLUE, GREY, RED, curator, plt, save, survey

from dodona.errors import BudgetSpent

QUESTIONS = [
    ("smoker", {"tolerance": 0.01}),
    ("obese AND smoker", {"tolerance": 0.005}),
    ("age >= 65", {"tolerance": 0.002}),
    ("income / 1000", {"share": 0.1}),
    ("disease", {"tolerance": 0.001}),
    ("children = 0", {"share": 0.2}),
    ("hours > 40", {"tolerance": 0.001}),
    ("disease AND smoker", {"tolerance": 0.0008}),
    ("region = 'Capital'", {"share": 0.1}),
    ("age < 30 AND obese", {"tolerance": 0.002}),
    ("education = 'none'", {"share": 0.05}),
    ("disease AND obese", {"tolerance": 0.0002}),
]
oracle = curator(survey(), epsilon=1)
left, labels, refused = [1.0], ["start"], []
for question, effort in QUESTIONS:
    try:
        left.append(left[-1] - oracle.ask(question, **effort).cost.share)
    except BudgetSpent:
        left.append(left[-1])
        refused.append(len(labels))
    labels.append(f"{question}  ({', '.join(f'{name} {value:g}' for name, value in effort.items())})")

figure, axes = plt.subplots(figsize=(7.6, 4.4))
places = range(len(labels))
axes.barh(places, left, color=[RED if i in refused else BLUE for i in places], height=0.7)
for i in places:
    axes.text(
        left[i] + 0.01, i, "refused: more than is left" if i in refused else f"{left[i]:.1%}", va="center", fontsize=8
    )
axes.set_yticks(places, labels, fontsize=8)
axes.invert_yaxis()
axes.axvline(0, color=GREY)
axes.set(
    xlabel="share of the budget left", xlim=(0, 1.16), title="The budget only shrinks; what no longer fits is refused"
)
axes.grid(visible=False)
save(figure, __file__)
