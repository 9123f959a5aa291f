"""Variance at equal guarantees: discrete Gaussian, discrete Laplace and the stitched noise of SuLQ 5.4.

All promise the same rho for a question of sensitivity 1; Laplace and stitched noise also promise a deterministic bound
(pure epsilon) on what one answer can give away. The table is exact: variances and costs are computed, not sampled.
``python -m benchmarks noise_families`` prints it; with ``DODONA_FIGURES=docs/figures`` the plot is drawn there.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, SecureBits
from dodona.papers.stitched import Stitched

Noise = DiscreteGaussian | DiscreteLaplace | Stitched
SIGMA = 250  # of the Gaussian, in steps: large enough for figures that do not depend on the grid
REACHES = (Fraction(3, 2), Fraction(2), Fraction(5, 2), Fraction(3), Fraction(4), Fraction(6))


def least_laplace(rho: Fraction) -> DiscreteLaplace:
    """The least discrete Laplace noise with this rho, by its own rho and not by epsilon^2/2."""
    low, high = Fraction(1), 4 / Fraction(math.isqrt(math.floor(rho * 10**24)), 10**12)
    for _ in range(40):
        middle = (low + high) / 2
        kept = Stitched(middle / 8, 1 / middle).cost(1, 1).rho <= rho  # a core below scale/2: all tail
        low, high = (low, middle) if kept else (middle, high)
    return DiscreteLaplace(high.limit_denominator(10**9) + Fraction(1, 10**9))


def rows() -> list[tuple[str, float, Noise]]:
    """(name, deterministic bound in units of 1/sigma, mechanism) at equal rho."""
    rho = Fraction(1, 2 * SIGMA**2)
    laplace = least_laplace(rho)
    return [
        ("discrete Gaussian", math.inf, DiscreteGaussian.for_rho(1, rho)),
        *((f"stitched, bound {float(r):g}/sigma", float(r), _stitched(r)) for r in reversed(REACHES)),
        ("discrete Laplace", SIGMA / float(laplace.scale), laplace),
    ]


@lru_cache
def _stitched(reach: Fraction) -> Stitched:
    return Stitched.for_costs(1, 1, reach / SIGMA, Fraction(1, 2 * SIGMA**2))


def rate(work: Callable[[], object], count: int) -> float:
    """Items a second, the best of three."""
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return count / best


def main() -> list[dict[str, Any]]:
    """Print the table, and draw the plot where a folder for it is named."""
    found, kept = rows(), []
    base = found[0][2]
    print(f"{'noise (equal rho)':<28}{'worst loss of one answer':>26}{'variance':>12}{'95 % error':>12}")
    for name, bound, mechanism in found:
        worst = "unbounded" if math.isinf(bound) else f"{bound:.3f} / sigma"
        variance, error = (mechanism.stddev / base.stddev) ** 2, mechanism.quantile(0.95) / base.quantile(0.95)
        print(f"{name:<28}{worst:>26}{variance:>12.4f}{error:>12.4f}")
        kept.append(
            {
                "case": f"{name}: variance over the Gaussian's at equal rho",
                "ours": variance,
                "95 % error over the Gaussian's": error,
                "worst loss of one answer": worst,
            }
        )
    bits, batch = SecureBits(), 1_000_000
    for label, noise in (
        ("stitched, sigma 10", Stitched.reaching(Fraction(5, 2), 100)),
        ("stitched, sigma 1e7", Stitched.reaching(Fraction(5, 2), 10**14)),
    ):
        noise.sample(batch, bits)
        pace = rate(lambda m=noise: m.sample(batch, bits), batch)  # type: ignore[misc]
        print(f"{label}: {pace:,.0f} exact samples/s")
        kept.append({"case": label, "ours": pace, "unit": "/s", "better": "higher"})
    folder = os.environ.get("DODONA_FIGURES")
    if folder:
        draw(Path(folder))
    return kept


def draw(folder: Path) -> None:
    """Left: the densities at equal rho. Right: variance against the deterministic bound."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rho = Fraction(1, 2 * SIGMA**2)
    gauss, laplace = DiscreteGaussian.for_rho(1, rho), least_laplace(rho)
    chosen = _stitched(Fraction(2))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    x = range(-6 * SIGMA, 6 * SIGMA + 1, SIGMA // 25)
    colours = {"discrete Gaussian": "#0072B2", "stitched, bound 2/σ": "#D55E00", "discrete Laplace": "#009E73"}
    laws: list[Noise] = [gauss, chosen, laplace]
    styles = ("-", "--", "-.")
    for (label, colour), law, style in zip(colours.items(), laws, styles, strict=True):
        heights = [law.log_probability(k) + math.log(SIGMA) for k in x]
        left.plot([k / SIGMA for k in x], heights, label=label, color=colour, linestyle=style, linewidth=1.8)
    left.axvline(chosen.end / SIGMA, color="#D55E00", linewidth=0.8, linestyle=":")
    left.axvline(-chosen.end / SIGMA, color="#D55E00", linewidth=0.8, linestyle=":")
    left.set(
        xlabel="noise, in σ of the Gaussian", ylabel="log density", title="Equal rho: Gaussian core, exponential tails"
    )
    left.legend(frameon=False, loc="lower center")
    reaches = [Fraction(n, 20) for n in (*range(22, 42, 2), 45, 50, 60, 75, 100)]
    curve = [_stitched(r).variance / gauss.stddev**2 for r in reaches]
    right.plot([float(r) for r in reaches], curve, color="#D55E00", linewidth=1.8, label="stitched")
    right.axhline(1, color="#0072B2", linewidth=1.2, label="discrete Gaussian (no bound)")
    scale = SIGMA / float(laplace.scale)
    right.plot([scale], [laplace.variance / gauss.stddev**2], "o", color="#009E73", label="discrete Laplace")
    right.set(xlabel="deterministic bound on one answer's loss, in 1/σ", ylabel="variance over the Gaussian's")
    right.set_title("What the bound costs")
    right.set_ylim(0.95, None)
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "noise_families.png", dpi=130)
    print(f"drawn: {folder / 'noise_families.png'}")


if __name__ == "__main__":
    main()
