"""Three classifiers of handwritten digits against epsilon.

scikit-learn's 1,797 digits, 1,437 to learn from, shrunk to 4 x 4 grey values from 0 to 16 so that the script is
quick. Every classifier asks sums and gets noise. One run for each point, so differences of a few percent between them
mean nothing; with little to spend perceptron and regression take the same step. Dotted: scikit-learn's logistic
regression, without noise.
"""

import numpy as np
from _house import GREY, curator, plt, save
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression as PlainRegression

import dodona as dd
from dodona.learn import GaussianNB, LogisticRegression, Perceptron

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
train, test = order[:1437], order[1437:]
grey = digits.images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
names = [f"x{i}" for i in range(16)]
columns = {name: grey[train, i] for i, name in enumerate(names)}
schema = dd.Schema({**{name: dd.Real(0, 16, missing=0) for name in names}, "digit": dd.Category(*range(10))})
table = dd.Table({**columns, "digit": digits.target[train]}, schema)
epsilons = (0.1, 0.3, 1, 2)
models = {
    "naive Bayes": (GaussianNB, "s-"),
    "perceptron": (Perceptron, "^--"),
    "logistic regression": (LogisticRegression, "o-."),
}

figure, axes = plt.subplots(figsize=(6.6, 4))
for name, (make, style) in models.items():
    fits = [make().fit(curator(table, epsilon), "digit") for epsilon in epsilons]
    axes.semilogx(
        epsilons, [np.mean(fit.predict(grey[test]) == digits.target[test]) for fit in fits], style, label=name
    )
plain = PlainRegression(max_iter=2000).fit(grey[train] / 16, digits.target[train])
axes.axhline(plain.score(grey[test] / 16, digits.target[test]), color="black", linestyle=":", label="without noise")
axes.axhline(0.1, color=GREY, linewidth=1)
axes.text(0.1, 0.115, "guessing", color=GREY, fontsize=8)
axes.set(xlabel="epsilon (delta 1e-6)", ylabel="digits read correctly", ylim=(0, 1))
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.set_title("1,437 digits: little can be read at 0.1, most at 1")
axes.legend(loc="lower right")
save(figure, __file__)
