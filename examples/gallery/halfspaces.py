"""Any halfspace of four measurements, published once.

scikit-learn's breast cancer data, 569 patients and four measurements. Random questions of the form a x + b y + ... >= c
are answered by one synopsis. So few rows make it coarse at epsilon 1; its own stated margins say how coarse.
"""

import numpy as np
from _house import BLUE, GREY, ORANGE, curator, plt, save
from sklearn.datasets import load_breast_cancer

import dodona as dd
from dodona import release

rows = load_breast_cancer().data[:, [0, 1, 4, 6]]
stated = {"radius": 30, "texture": 40, "smoothness": 0.2, "concavity": 0.5}
schema = dd.Schema({name: dd.Real(0, most, missing=0) for name, most in stated.items()})
table = dd.Table(dict(zip(stated, rows.T, strict=True)), schema)
rng = np.random.default_rng(5)
directions = rng.normal(size=(60, 4)) / np.array(list(stated.values()))
questions = []
for direction in directions:
    cut = float(direction @ rows[rng.integers(len(rows))])
    terms = " + ".join(f"({weight:.6f}) * {name}" for weight, name in zip(direction, stated, strict=True))
    questions.append(f"{terms} >= {cut:.6f}")
truth = [dd.Exact(table).ask(question).mean for question in questions]

figure, axes = plt.subplots(figsize=(5.4, 4.8))
axes.plot([0, 1], [0, 1], color=GREY, linewidth=1)
for epsilon, colour, marker in ((1, ORANGE, "s"), (10, BLUE, "o")):
    synopsis = release.halfspaces(curator(table, epsilon), list(stated), share=1)
    answers = [synopsis.ask(question) for question in questions]
    found = np.array([answer.mean for answer in answers])
    bars = [answer.margin / answer.rows for answer in answers]
    error = np.abs(found - truth).mean()
    label = f"epsilon {epsilon}: mean error {error:.3f}"
    axes.errorbar(truth, found, bars, fmt=marker, color=colour, markersize=4, elinewidth=0.5, alpha=0.8, label=label)
axes.set(xlabel="true share of patients", ylabel="published share, with 95 % margins", ylim=(-0.4, 1.5))
axes.set_title("569 patients: coarse at epsilon 1, useful at 10")
axes.legend(loc="upper left")
save(figure, __file__)
