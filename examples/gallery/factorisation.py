"""What a class of questions costs, and where its geometry shows it: gamma_2 against the largest margin.

Each point is a class over all rows of a few bits, or the prefixes of a column. Up: its factorisation norm, by which the
noise of the best linear answer is multiplied. Right: one over the largest margin with which unit vectors can be
arranged for it, which Alda and Simon tie to what rows that trust nobody can tell. Both lie between two proven numbers,
closer than the points are wide. For parities the two are the same; for monomials the margin is 1/sqrt(k + 2).
"""

import numpy as np
from _house import BLUE, GREEN, ORANGE, RED, plt, save

from dodona.bounds.alda_simon import sign_matrix
from dodona.bounds.factorisation import factorise, margins

SIZES = {"parity": (2, 3, 4, 5), "monomial": (2, 3, 4), "prefixes": (4, 8, 16, 32)}
LOOKS = {"parity": (RED, "o", (8, -11)), "monomial": (BLUE, "s", (8, -2)), "prefixes": (GREEN, "^", (-44, -3))}


def signs(name: str, size: int) -> np.ndarray:
    """Points by members."""
    if name == "prefixes":
        return np.where(np.tri(size, dtype=bool), 1, -1)[:, 1:]
    return sign_matrix(name, size)


figure, axes = plt.subplots(figsize=(6.4, 4.4))
for name, sizes in SIZES.items():
    found = [(margins(signs(name, size), gap=0.01), factorise(signs(name, size))) for size in sizes]
    right = [2 / (margin.lower + margin.upper) for margin, _ in found]
    up = [(norm.lower + norm.upper) / 2 for _, norm in found]
    colour, mark, off = LOOKS[name]
    axes.plot(right, up, marker=mark, color=colour, label=name)
    for x, y, size in zip(right, up, sizes, strict=True):
        what = f"{size} cells" if name == "prefixes" else f"{size} bits"
        axes.annotate(what, (x, y), xytext=off, textcoords="offset points", fontsize=8, color=colour)
line = np.array([1, 6])
axes.plot(line, line, color=ORANGE, linewidth=1, linestyle="--", label="gamma_2 = 1/margin")
axes.set(xlabel="1 / largest margin of an arrangement", ylabel="gamma_2: noise of the best linear answer")
axes.set_xlim(1, 6.4)
axes.set_ylim(1, 6.4)
axes.set_title("Parities cost what their margins say; monomials and prefixes stay cheap")
axes.legend(loc="upper left")
save(figure, __file__)
