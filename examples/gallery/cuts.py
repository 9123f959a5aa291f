"""All cuts of a private graph.

The graph joins each of scikit-learn's 1,797 digits to its 5 nearest neighbours; edges are private, vertices public.
How many edges leave a set of vertices? One synopsis of degrees and blocks answers for every set. It is right about
random sets and far off about sets that follow the graph's own clusters: those it was never asked about.
"""

import numpy as np
from _house import BLUE, GREY, ORANGE, curator, plt, save
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

from dodona import release
from dodona.graphs import edge_table

digits = load_digits()
near = kneighbors_graph(digits.data, 5).tocoo()
order = np.argsort(np.argsort(digits.target, kind="stable"))  # public numbering: digits of one kind side by side
pairs = np.unique(np.sort(np.column_stack([order[near.row], order[near.col]]), axis=1), axis=0)
kinds = np.sort(digits.target)
table = edge_table(pairs, vertices=len(kinds))
rng = np.random.default_rng(0)
sets = {
    "all digits of some kinds": [
        np.isin(kinds, rng.choice(10, size, replace=False)) for size in (1, 2, 3, 4, 5) for _ in range(5)
    ],
    "random vertices": [rng.random(len(kinds)) < share for share in np.linspace(0.05, 0.95, 25)],
}
synopsis = release.cuts(curator(table, epsilon=1), share=1)

figure, axes = plt.subplots(figsize=(5.6, 4.8))
axes.plot([0, 3500], [0, 3500], color=GREY, linewidth=1)
for (name, members), colour, marker in zip(sets.items(), (BLUE, ORANGE), ("o", "s"), strict=True):
    true = [int((inside[pairs[:, 0]] != inside[pairs[:, 1]]).sum()) for inside in members]
    found = [synopsis.body.cut(inside) for inside in members]
    off = np.mean(np.abs(np.subtract(found, true)))
    axes.plot(true, found, marker, color=colour, markersize=5, label=f"{name}: off by {off:.0f} edges")
axes.set(xlabel=f"true number of edges cut, of {len(pairs):,}", ylabel="published, epsilon 1")
axes.set_title("Good for random sets, bad for the graph's own clusters")
axes.legend(loc="upper left")
save(figure, __file__)
