"""Two notions of privacy come apart.

The mirrored-mod query moves by at most one when a row changes, so a little noise makes it differentially private. Yet
two hospitals that draw patients from the same population get answers a factor e apart on a constant fraction of
draws, at any privacy level: distributional privacy (Blum, Ligett and Roth, section 7) asks for more.
"""

import numpy as np
from _house import BLUE, GREY, ORANGE, RED, plt, save

from dodona.papers.checks import separation

figure, axes = plt.subplots(figsize=(6.6, 4))
for alpha, colour, style in ((0.5, BLUE, "-"), (0.1, ORANGE, "--"), (0.02, RED, "-.")):
    distances = np.sort(separation(draws=400, rows=round(40 / alpha**2), alpha=alpha))
    share = 1 - np.arange(len(distances)) / len(distances)
    axes.plot(distances, share, style, color=colour, label=f"differential privacy {alpha:g}, {40 / alpha**2:,.0f} rows")
axes.axvline(1, color=GREY, linewidth=1)
axes.text(1.02, 0.6, "a factor e", color=GREY, fontsize=9)
axes.set(
    xlabel="log of the largest ratio between two samples of one population",
    ylabel="share of pairs farther apart",
    xlim=(0, None),
)
axes.set_title("However private row by row, whole samples stay apart")
axes.legend(loc="upper right")
save(figure, __file__)
