"""The figures of docs/ranges.md, drawn from the library's own functions into docs/figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from benchmarks.ranges import counted_table, data_folder, histograms, ours, peer_tree, random_ranges

from dodona.audit.distributional import separation
from dodona.audit.parity_separation import half_replaced, parity_gap, parseval_bound
from dodona.bounds.blr import chain_probability
from dodona.privacy.budget import Budget
from dodona.query.schema import Integer, Schema

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"


def chain() -> None:
    """Theorem 5.1: what n rows allow, and what the exponential mechanism attains, by bits of precision."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    rows, epsilon = np.arange(401), 0.1
    for bits, colour in ((4, "tab:blue"), (12, "tab:orange"), (20, "tab:green")):
        axes.plot(rows, chain_probability(400, epsilon, 2.0**-bits), "--", color=colour)
        weight = np.exp(epsilon * rows / 2)
        axes.plot(rows, weight / (weight + 2**bits - 1), color=colour, label=f"{bits} bits")
    axes.axhline(0, color="black", label="continuous: never")
    axes.set(xlabel="rows, all of one value (epsilon 0.1)", ylabel="chance to publish that value")
    axes.legend(title="solid: attained, dashed: allowed", fontsize=8)
    figure.savefig(FOLDER / "blr-chain.png", dpi=110)


def distributional() -> None:
    """Theorem 7.3: pairs of databases from one distribution, as the mirrored-mod mechanism tells them apart."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    at = np.linspace(0, 2, 81)
    for alpha in (0.02, 0.1, 0.5):
        gaps = separation(20_000, int(np.ceil(40 / alpha**2)), alpha)
        axes.step(at, [(gaps >= t - 1e-9).mean() for t in at], label=f"alpha = {alpha:g}")
    axes.axvline(1, color="firebrick", ls=":")
    axes.set(
        xlabel="log ratio of their output probabilities", ylabel="fraction of pairs at least so far", ylim=(0, 1.02)
    )
    axes.legend(title="each alpha-differentially private", fontsize=8)
    figure.savefig(FOLDER / "blr-distributional.png", dpi=110)


def parity() -> None:
    """Appendix A: the worst parity of a published database against one interactive answer."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    sizes = 2 ** np.arange(4, 15)
    pairs = [half_replaced(int(n), int(np.log2(n)) + 4, 1) for n in sizes]
    axes.loglog(
        sizes, [parity_gap(a, b, int(np.log2(len(a))) + 4) for a, b in pairs], "o-", label="published, half kept"
    )
    axes.loglog(sizes, [parseval_bound(a, b) for a, b in pairs], "--", label="Parseval: 1 / (2 sqrt n)")
    axes.loglog(sizes, 1 / sizes, "s-", label="one answer, epsilon 1: 1 / n")
    axes.set(xlabel="rows n", ylabel="error of the worst parity")
    axes.legend(fontsize=8)
    figure.savefig(FOLDER / "blr-parity.png", dpi=110)


def errors() -> list[dict[str, Any]]:
    """Mean error of random ranges at epsilon 0.1 on every histogram."""
    ranges, rows = random_ranges(4096), []
    for name, counts in histograms().items():
        table = counted_table(Schema({"x": Integer(0, 4095)}), {"x": np.arange(4096.0)}, counts)
        theirs = float(np.mean(peer_tree(counts, 0.1, ranges)))
        tree, best = (
            float(np.mean(ours(table, Budget(epsilon=0.1), counts, ranges, m, 8)[0])) for m in ("tree", "best")
        )
        gauss = float(np.mean(ours(table, Budget(epsilon=0.1, delta=1e-6), counts, ranges, "best", 8)[0]))
        rows.append((name, theirs, tree, best, gauss))
    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    labels = ("consistent 16-ary tree (peer)", "tree, isotonic", "chosen, pure", "chosen, delta 1e-6")
    for place, label in enumerate(labels):
        axes.bar(np.arange(len(rows)) + 0.2 * place - 0.3, [row[place + 1] for row in rows], 0.19, label=label)
    axes.set_xticks(range(len(rows)), [row[0] for row in rows], fontsize=8)
    axes.set(ylabel="mean error of a range, rows", title="4096 cells, epsilon 0.1, add-remove")
    axes.set_ylim(0, 1.3 * max(row[1] for row in rows))
    axes.legend(fontsize=8, ncols=2, loc="upper center")
    figure.savefig(FOLDER / "ranges-errors.png", dpi=110)
    return [{"case": f"{row[0]}, epsilon 0.1", "ours": row[3], "peer": row[1], "unit": "rows"} for row in rows]


def main() -> list[dict[str, Any]]:
    """All of them; the last needs data."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    chain()
    distributional()
    parity()
    rows = errors() if (data_folder() / "hist1d").is_dir() else []
    print(f"drawn into {FOLDER}")
    return rows


if __name__ == "__main__":
    main()
