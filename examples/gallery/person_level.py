"""Protecting people, not rows.

One visit a row, up to twelve visits a patient. With a row as the unit a frequent patient is protected twelve times
less; with the patient as the unit the noise grows with the number of visits kept, and rows beyond it are left out.
Two errors, one choice.
"""

import numpy as np
from _house import BLUE, GREY, ORANGE, RED, curator, plt, save

import dodona as dd

rng = np.random.default_rng(0)
visits = np.minimum(rng.geometric(0.35, 4_000), 12)
patient = np.repeat(np.arange(len(visits)), visits)
columns = {"patient": patient, "days": np.minimum(rng.poisson(3, len(patient)), 30)}
schema = dd.Schema({"days": dd.Integer(0, 30)})
total = float(columns["days"].sum())
limits = (1, 2, 3, 4, 6, 8, 12)

kept, noise = [], []
for limit in limits:
    unit = dd.Unit("patient", max_rows=limit)
    table = dd.Table(columns, schema, neighbours="add-remove", rows=len(patient), unit=unit)
    kept.append(dd.Exact(table).ask("days").total / total)
    noise.append(curator(table, epsilon=1).price("days", share=0.1).margin / total)

figure, axes = plt.subplots(figsize=(6.6, 4))
lost = 1 - np.array(kept)
axes.plot(limits, 100 * lost, "s--", color=ORANGE, label="left out: visits beyond the limit")
axes.plot(limits, 100 * np.array(noise), "o--", color=BLUE, label="95 % margin of the noise (a tenth of epsilon 1)")
axes.plot(limits, 100 * (lost + noise), "^-", color=RED, label="both together")
best = limits[int(np.argmin(lost + noise))]
axes.axvline(best, color=GREY, linewidth=1)
axes.set(xlabel="visits kept of each patient", ylabel="error of the total (percent)", ylim=(0, None))
axes.set_title(f"{len(visits):,} patients, {len(patient):,} visits: keep about {best}")
axes.legend(fontsize=9)
save(figure, __file__)
