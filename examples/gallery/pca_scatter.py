"""Handwritten digits on two private principal components.

scikit-learn's 1,797 digits of 64 pixels (0 to 16, which is public). PCA asks one question, the noisy sums of products
of pixels. Left without noise, right at epsilon 1: the plane is turned a little and the clouds stay.
"""

import numpy as np
from _house import curator, matrix_table, plt, save
from sklearn.datasets import load_digits

import dodona as dd
from dodona.learn import PCA

digits = load_digits()
table = matrix_table(digits.data, 0, 16)
shown = (0, 1, 4, 6)
colours = ["#0072B2", "#E69F00", "#009E73", "#D55E00"]
total = digits.data.var(axis=0).sum()

figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 4))
for axes, name, oracle in ((left, "without noise", dd.Exact(table)), (right, "epsilon 1", curator(table, epsilon=1))):
    pca = PCA(n_components=2).fit(oracle)
    turned = np.sign(pca.components_[[0, 1], [20, 28]])  # a component's sign is anyone's choice
    plane = pca.transform(digits.data) * turned
    kept = plane.var(axis=0).sum() / total
    for digit, colour in zip(shown, colours, strict=True):
        mine = plane[digits.target == digit][:120]
        axes.plot(*mine.T, ".", color=colour, markersize=3, alpha=0.6)
        axes.text(*np.median(mine, axis=0), str(digit), fontsize=16, weight="bold", ha="center", va="center")
    axes.set(title=f"{name}: {kept:.0%} of the variance", xlabel="first component", ylabel="second component")
figure.suptitle("1,797 digits: the private plane still tells them apart", x=0.01, ha="left")
save(figure, __file__)
