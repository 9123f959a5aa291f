"""State the error, get the price.

What a count within a tolerance costs of a lifetime budget of epsilon 1, delta 1e-6, for three sizes of table. The
price falls with the square of tolerance times rows: large tables answer thousands of questions, small ones a few.
"""

import numpy as np
from _house import GREY, curator, plt, save

import dodona as dd

tolerances = np.geomspace(1e-4, 0.05, 14)
figure, axes = plt.subplots(figsize=(6.4, 4))
for rows, style in ((1_000, "-"), (30_000, "--"), (1_000_000, "-.")):
    table = dd.Table({"smoker": np.zeros(rows, dtype=bool)}, dd.Schema({"smoker": dd.Flag(missing=False)}))
    oracle = curator(table, epsilon=1)
    allowed = [float(tolerance) for tolerance in tolerances if tolerance * rows > 2]  # no finer than a few rows
    shares = [oracle.price("smoker", tolerance=tolerance).cost.share for tolerance in allowed]
    axes.loglog(allowed, shares, style, label=f"{rows:,} rows")
axes.axhline(1, color=GREY, linewidth=1)
axes.text(0.0006, 1.6, "above this line: refused", color=GREY, fontsize=9)
axes.set(xlabel="tolerance (share of people, 95 % sure)", ylabel="share of the lifetime budget", ylim=(1e-8, 1e3))
axes.set_title("A million rows answer to 0.1 % for a ten-thousandth of the budget")
axes.legend(loc="upper right")
save(figure, __file__)
