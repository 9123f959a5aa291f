"""What can be learned, by whom: the map of classes, measured.

A conjunction of two, a masked parity and a parity over eleven bits, from 20,000 rows at epsilon 2. Rows of the
picture are learners: a trusted curator, rows that randomise themselves and are asked twice, and rows asked once.
Numbers are shares of five runs that found the target exactly. The size was chosen to show the map: a conjunction of
three was found by three of five local runs only. That no learner fills the corner as bits grow is a theorem
(Kasiviswanathan et al.), not this picture.
"""

import numpy as np
from _house import curator, everyone, plt, save

import dodona as dd
from dodona.concepts import Conjunctions, MaskedParity, Parities
from dodona.learn import AgnosticLearner, ParityLearner
from dodona.papers.klnrs import learn_in_one_round, learn_in_two_rounds

BITS, ROWS, RUNS, EPSILON = 11, 20_000, 5, 2
NAMES = [f"b{i}" for i in range(BITS)]


def found(kind: str, trust: str, seed: int) -> bool:
    """Whether one run finds the target."""
    rng = np.random.default_rng(seed)
    mask = rng.permutation(BITS) < BITS // 2
    if kind == "masked parity":
        concepts = MaskedParity(BITS)
        table = dd.Table(concepts.sample(ROWS, tuple(map(bool, mask)), True, seed), concepts.schema, name="rows")
    else:
        x = rng.random((ROWS, BITS)) < 0.5
        y = x[:, :2].all(axis=1) if kind == "conjunction" else (x @ mask.astype(int)) % 2 == 1
        columns = {name: x[:, i].copy() for i, name in enumerate(NAMES)} | {"y": y}
        table = dd.Table(columns, dd.Schema({name: dd.Flag(missing=False) for name in columns}))
    rounds = {"interactive": trust == "twice"}
    oracle = (
        curator(table, EPSILON, delta=0, seed=seed) if trust == "curator" else everyone(table, EPSILON, seed, **rounds)
    )
    if kind == "masked parity":
        got = (learn_in_one_round if trust == "once" else learn_in_two_rounds)(oracle, concepts)
        return (got.mask, got.negated) == (tuple(map(bool, mask)), True)
    classes = Conjunctions.over(NAMES, 2) if kind == "conjunction" else Parities.over(NAMES)
    learner = ParityLearner(0.2, 0.05) if (kind, trust) == ("parity", "curator") else AgnosticLearner(classes)
    return bool((learner.fit(oracle, "y").predict({name: columns[name] for name in NAMES}) == y).all())


kinds = ("conjunction", "masked parity", "parity")
trusts = {"curator": "trusted curator", "twice": "nobody trusted,\nasked twice", "once": "nobody trusted,\nasked once"}
shares = np.array([[np.mean([found(kind, trust, seed) for seed in range(RUNS)]) for kind in kinds] for trust in trusts])

figure, axes = plt.subplots(figsize=(6.4, 4))
axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
for (i, j), share in np.ndenumerate(shares):
    axes.text(j, i, f"{share:.0%}", ha="center", va="center", fontsize=14, color="white" if share > 0.7 else "black")
axes.set_xticks(range(3), kinds)
axes.set_yticks(range(3), trusts.values())
axes.grid(visible=False)
axes.set_title("Targets found: trust and rounds each buy a class")
save(figure, __file__)
