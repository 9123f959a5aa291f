"""Three families of noise that promise the same.

Discrete Gaussian, discrete Laplace, and the two stitched together, all exact, all at rho = 1/200 for one count. The
Gaussian is narrow and has no worst case; Laplace has one and is wide; stitched has both, for half a percent of
variance.
"""

from fractions import Fraction

import numpy as np
from _house import plt, save

from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace
from dodona.papers.stitched import Stitched

families = {
    "discrete Gaussian": DiscreteGaussian(100),
    "discrete Laplace": DiscreteLaplace(10),
    "stitched, worst loss 1/4": Stitched.for_costs(
        l1_sensitivity=1, l2_squared=1, epsilon=Fraction(1, 4), rho=Fraction(1, 200)
    ),
}
steps = range(-60, 61)
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.8))
for (name, noise), style in zip(families.items(), ("-", "--", "-."), strict=True):
    logs = np.array([noise.log_probability(step) for step in steps])
    left.plot(steps, np.exp(logs), style, label=f"{name}: deviation {noise.stddev:.1f}")
    losses = [noise.log_probability(step) - noise.log_probability(step - 1) for step in steps]
    right.plot(steps, np.abs(losses), style)
left.set(xlabel="noise added to a count", ylabel="probability", ylim=(0, 0.075), title="What is added")
left.legend(fontsize=8, loc="upper left")
right.set(xlabel="noise drawn", ylabel="loss (change in log-odds)", title="What one row can lose to it")
save(figure, __file__)
