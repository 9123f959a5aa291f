"""The figures of docs/ranges.md, drawn from the library's own functions into docs/figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.ranges import AT_MOST
from dodona.bounds.releases import chain_probability
from dodona.papers.checks import half_replaced, parity_gap, parseval_bound, separation

BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"  # told apart without colour vision too
HELD = "held out "
OWN = ("blr-", "ranges-errors")
FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"


def _axes(width: float, height: float) -> tuple[Any, Any]:
    """A figure of one plot without a box round it."""
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _kept(figure: Any, name: str) -> None:
    figure.savefig(FOLDER / name, dpi=110)
    plt.close(figure)


def chain() -> None:
    """Theorem 5.1: what n rows allow, and what the exponential mechanism attains, by bits of precision."""
    figure, axes = _axes(7.4, 3.6)
    rows, epsilon = np.arange(401), 0.1
    for bits, colour in ((4, BLUE), (12, ORANGE), (20, GREEN)):
        axes.plot(rows, chain_probability(400, epsilon, 2.0**-bits), "--", color=colour, label=f"{bits} bits, allowed")
        weight = np.exp(epsilon * rows / 2)
        axes.plot(rows, weight / (weight + 2**bits - 1), color=colour, label=f"{bits} bits, attained")
    axes.plot(rows, np.zeros(len(rows)), color="black", lw=2.5, label="continuous: never")
    axes.set(xlabel="rows, all of one value (epsilon 0.1)", ylabel="chance to publish that value")
    axes.margins(x=0)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _kept(figure, "blr-chain.png")


def distributional() -> None:
    """Theorem 7.3: pairs of databases from one distribution, as the mirrored-mod mechanism tells them apart."""
    figure, axes = _axes(6.4, 3.6)
    at = np.linspace(0, 2, 81)
    for alpha, colour in ((0.02, BLUE), (0.1, ORANGE), (0.5, GREEN)):
        gaps = separation(20_000, int(np.ceil(40 / alpha**2)), alpha)
        axes.step(at, [(gaps >= t - 1e-9).mean() for t in at], color=colour, label=f"alpha = {alpha:g}")
    axes.axvline(1, color="dimgrey", ls=":")
    axes.text(1.01, 0.62, "a whole factor e", color="dimgrey", fontsize=8)
    axes.set(
        xlabel="log ratio of their output probabilities", ylabel="fraction of pairs at least so far", ylim=(0, 1.02)
    )
    axes.margins(x=0)
    axes.legend(title="each alpha-differentially private", fontsize=8, title_fontsize=8, frameon=False)
    _kept(figure, "blr-distributional.png")


def parity() -> None:
    """Appendix A: the worst parity of a published database against one interactive answer."""
    figure, axes = _axes(6.4, 3.6)
    sizes = 2 ** np.arange(4, 15)
    pairs = [half_replaced(int(n), int(np.log2(n)) + 4, 1) for n in sizes]
    gaps = [parity_gap(a, b, int(np.log2(len(a))) + 4) for a, b in pairs]
    axes.loglog(sizes, gaps, "o-", color=BLUE, label="published, half kept")
    axes.loglog(sizes, [parseval_bound(a, b) for a, b in pairs], "--", color=BLUE, label="at least: 1 / (2 sqrt n)")
    axes.loglog(sizes, 1 / sizes, "s-", color=ORANGE, label="one answer, epsilon 1: 1 / n")
    axes.set(xlabel="rows n", ylabel="error of the worst parity")
    axes.legend(fontsize=8, frameon=False, loc="lower left")
    _kept(figure, "blr-parity.png")


def errors(kept: Path) -> None:
    """Mean errors of random ranges as parts of OpenDP's, on every histogram and epsilon of a kept run of ``ranges``."""
    rows = {row["case"]: row for row in json.loads(kept.read_text(encoding="utf-8"))["rows"]}
    pairs = [case.split(", ")[:2] for case in rows if case.endswith(", of 0.9 OpenDP")]
    epsilons = list(dict.fromkeys(epsilon for _, epsilon in pairs))
    figure, panels = plt.subplots(len(epsilons), 1, figsize=(8.4, 6.4), sharex=True, layout="constrained")
    for axes, epsilon in zip(panels, epsilons, strict=True):
        names = [name for name, own in pairs if own == epsilon]
        theirs = np.array([rows[f"{name}, {epsilon}, of 0.9 OpenDP"]["target"] / AT_MOST for name in names])
        bars = {
            ("DAWA, pure", "silver"): [rows[f"{name}, {epsilon}, of DAWA"]["peer"] for name in names],
            ("ours, pure", BLUE): [rows[f"{name}, {epsilon}, of DAWA"]["ours"] for name in names],
            ("ours, delta 1e-6", ORANGE): [
                rows[f"{name}, {epsilon}, budget with delta 1e-6, of the better"]["ours"] for name in names
            ],
        }
        for place, ((label, colour), found) in enumerate(bars.items()):
            axes.bar(np.arange(len(names)) + 0.27 * (place - 1), found / theirs, 0.25, color=colour, label=label)
        axes.axhline(1, color="black", lw=1)
        shown = [f"{name.removeprefix(HELD)}*" if name.startswith(HELD) else name for name in names]
        axes.set_xticks(range(len(names)), shown, fontsize=8)
        axes.set_title(epsilon, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    figure.supylabel("mean error of a range (OpenDP's consistent 16-ary tree: 1)", fontsize=9)
    panels[-1].set_xlabel("* kept apart when constants were tuned, as far as the text says", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    _kept(figure, "ranges-errors.png")


def main() -> list[dict[str, Any]]:
    """All of them; the last is drawn from what ``python -m benchmarks ranges`` kept."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    chain()
    distributional()
    parity()
    kept = Path(__file__).resolve().parent / "results" / "ranges.json"
    if kept.is_file():
        errors(kept)
    else:
        print("no run of ranges is kept: run it first for ranges-errors.png", file=sys.stderr)
    print("drawn: " + ", ".join(sorted(file.name for file in FOLDER.glob("*.png") if file.name.startswith(OWN))))
    return []


if __name__ == "__main__":
    main()
