"""A private map: age against income, any box for ever.

Counts on a tree of boxes at epsilon 0.5; left the truth, right what the synopsis answers for each small cell. Larger
boxes are better still, since their noise does not grow with the number of cells in them.
"""

import numpy as np
from _house import curator, plt, save, survey

import dodona as dd
from dodona import release

table = survey()
synopsis = release.boxes(curator(table, epsilon=0.5), ["age", "income"], bits=[None, 6], share=1)
ages, incomes = np.arange(16, 96, 5), np.arange(0, 100_000, 6_250)
by_age, by_income = (", ".join(map(str, edges)) for edges in (ages, incomes))
statement = (
    f"SELECT BUCKET(age, {by_age}) AS a, BUCKET(income, {by_income}) AS i, COUNT(*) AS n FROM survey GROUP BY a, i"
)


def counts(oracle: dd.Oracle) -> np.ndarray:
    """People in each cell."""
    cells = [record[2].value for record in oracle.sql(statement) if "(other)" not in record[:2]]
    return np.array(cells).reshape(len(ages) - 1, len(incomes) - 1)


true, made = counts(dd.Exact(table)), counts(synopsis)
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.8), sharey=True)
for panel, values, name in ((axes[0], true, "truth"), (axes[1], made, "published, epsilon 0.5")):
    mesh = panel.pcolormesh(ages, incomes / 1000, values.T, cmap="viridis", vmin=0, vmax=true.max())
    panel.set(xlabel="age (years)", title=name)
    panel.grid(visible=False)
axes[0].set_ylabel("income (thousands)")
figure.colorbar(mesh, ax=axes, label="people of 50,000")
figure.suptitle(f"A cell is off by {np.abs(made - true).mean():.0f} people on average", x=0.01, ha="left")
save(figure, __file__)
