"""Which classes can one response serve at all?

Rows needed when nobody is trusted, for error 0.1 at epsilon 1: conjunctions and decision lists grow slowly with
the number of bits; for parities no scheme of any kind works with fewer rows than the dashed line, which doubles
with each bit.
"""

from _house import RED, plt, save

from dodona.bounds.alda_simon import plan_class

bits = range(4, 31, 2)
figure, axes = plt.subplots(figsize=(6.6, 4))
for name, label in (("monomial", "conjunctions: enough"), ("decision-list", "decision lists: enough")):
    axes.semilogy(bits, [plan_class(name, k, 1).rows_needed for k in bits], label=label)
axes.semilogy(
    bits, [plan_class("parity", k, 1).rows_needed for k in bits], "--", color=RED, label="parities: fewer never suffice"
)
axes.set(xlabel="bits", ylabel="rows")
axes.set_title("For parities the least doubles with each bit; the rest grow slowly")
axes.legend()
save(figure, __file__)
