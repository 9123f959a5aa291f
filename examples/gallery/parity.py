"""What trust buys: a parity of bits.

The label is the parity of a hidden half of the bits. A trusted curator solves equations over random rows and finds it
for any number of bits; when every row randomises itself, all 2^d parities must be told apart, and soon they cannot
be.
"""

import numpy as np
from _house import BLUE, RED, curator, everyone, plt, save

import dodona as dd
from dodona.concepts import Parities
from dodona.learn import AgnosticLearner, ParityLearner

rows, runs, epsilon = 30_000, 4, 1


def parity_table(bits: int, seed: int) -> tuple[dd.Table, np.ndarray]:
    """Random bits, and the label of a random parity of them."""
    rng = np.random.default_rng(1000 * bits + seed)
    x, hidden = rng.random((rows, bits)) < 0.5, rng.random(bits) < 0.5
    columns = {f"b{i}": x[:, i].copy() for i in range(bits)} | {"y": (x @ hidden.astype(int)) % 2 == 1}
    return dd.Table(columns, dd.Schema({name: dd.Flag(missing=False) for name in columns})), hidden


def found(learner: object, oracle: dd.Oracle, hidden: np.ndarray) -> bool:
    """Whether the learner predicts fresh rows without a mistake."""
    fresh = np.random.default_rng(0).random((200, len(hidden))) < 0.5
    return bool((learner.fit(oracle, "y").predict(fresh) == ((fresh @ hidden.astype(int)) % 2 == 1)).all())


figure, axes = plt.subplots(figsize=(6.4, 3.8))
for name, sizes, colour, marker in (
    ("trusted curator", (2, 4, 8, 12, 32, 64), BLUE, "s"),
    ("every row randomises", (2, 4, 6, 8, 10), RED, "o"),
):
    rates = []
    for bits in sizes:
        hits = 0
        for seed in range(runs):
            table, hidden = parity_table(bits, seed)
            if colour == BLUE:
                hits += found(ParityLearner(0.2, 0.05), curator(table, epsilon, delta=0, seed=seed), hidden)
            else:
                names = [f"b{i}" for i in range(bits)]
                hits += found(AgnosticLearner(Parities.over(names)), everyone(table, epsilon, seed), hidden)
        rates.append(hits / runs)
    axes.plot(sizes, rates, marker + "-", color=colour, label=name)
axes.set_xscale("log", base=2)
axes.set_xticks([2, 4, 8, 16, 32, 64], ["2", "4", "8", "16", "32", "64"])
axes.set(xlabel="bits", ylabel=f"found, of {runs} runs", ylim=(-0.05, 1.1))
axes.set_title("Parity, 30,000 rows, epsilon 1: solving beats asking")
axes.legend()
save(figure, __file__)
