"""A decision tree for tumours, from noisy counts.

ID3 as in SuLQ: at each node the noisy counts of every attribute against the label, and the attribute that explains
the label best. Nodes that noise would decide become leaves. scikit-learn's 569 breast cancer patients, epsilon 3, one
run; the tree depends on the noise: six runs at epsilon 1 to 10 had three to five leaves.
"""

import numpy as np
from _house import curator, plt, save
from sklearn.datasets import load_breast_cancer

import dodona as dd
from dodona.learn import ID3

data = load_breast_cancer()
measured = {"radius": (0, 30), "texture": (1, 40), "concavity": (6, 0.5), "area": (3, 3000)}  # column, stated bound
schema = dd.Schema(
    {
        **{name: dd.Real(0, most, missing=0) for name, (_, most) in measured.items()},
        "tumour": dd.Category("malignant", "benign"),
    }
)
columns = {name: data.data[:, column] for name, (column, _) in measured.items()}
table = dd.Table({**columns, "tumour": np.array(["malignant", "benign"])[data.target]}, schema)
tree = ID3(max_depth=3).fit(curator(table, epsilon=3, seed=1), "tumour")

figure, axes = plt.subplots(figsize=(8.4, 4.6))
tree.plot(ax=axes)
axes.set_title("569 patients, epsilon 3: the more concave, the likelier malignant")
save(figure, __file__)
