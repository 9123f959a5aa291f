"""Samples per second of the exact samplers, against OpenDP's and NumPy's inexact normal, in one run on one core.

``DODONA_PEER_PYTHON`` names a Python that has ``opendp``; without it the peer's columns are left out.
Targets, in batches of 10^6: 100 times OpenDP at scale 10, 20 times at scale 10^7; one by one no slower than OpenDP.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, SecureBits

BATCH = 1_000_000
SCALES = (10, 10**7)
TIMES = {10: 100, 10**7: 20}  # how many times OpenDP's rate is asked for, by scale
PEER_BATCH = 100_000  # per sample the peer's time does not depend on the batch beyond a few thousand

_PEER = f"""
import json, time
import opendp.prelude as dp
dp.enable_features("contrib")
out = {{}}
for scale in {SCALES!r}:
    for name, make in (("gaussian", dp.m.make_gaussian), ("laplace", dp.m.make_laplace)):
        vector = make(dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float) if name == "gaussian"
                      else dp.l1_distance(T=int), scale=float(scale))
        best = 1e9
        zeros = [0] * {PEER_BATCH}
        for _ in range(3):
            start = time.perf_counter(); vector(zeros); best = min(best, time.perf_counter() - start)
        out[f"{{name}} {{scale}}"] = {PEER_BATCH} / best
        one = make(dp.atom_domain(T=int), dp.absolute_distance(T=float if name == "gaussian" else int),
                   scale=float(scale))
        start = time.perf_counter()
        for _ in range(2000): one(0)
        out[f"{{name}} {{scale}} one"] = 2000 / (time.perf_counter() - start)
print(json.dumps(out))
"""


def rate(work: Callable[[], object], count: int, repeats: int = 5) -> float:
    """The best of a few repeats, in items a second."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return count / best


def peer() -> dict[str, float]:
    """OpenDP's samples per second, or nothing where there is none to ask."""
    python = os.environ.get("DODONA_PEER_PYTHON")
    if not python:
        print("OpenDP is not compared: set DODONA_PEER_PYTHON to a Python that has it (pip install opendp).")
        return {}
    done = subprocess.run([python, "-c", _PEER], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> list[dict[str, Any]]:
    """Print the table."""
    rows: list[dict[str, Any]] = []
    bits = SecureBits()
    theirs = peer()
    inexact = np.random.default_rng()
    normal = rate(lambda: inexact.standard_normal(BATCH), BATCH)
    print(
        f"{'sampler':<24}{'ours /s':>14}{'OpenDP /s':>12}{'ratio':>8}{'of NumPy':>10}{'one by one /s':>15}{'ratio':>8}"
    )
    for scale in SCALES:
        for name, mechanism in (
            ("gaussian", DiscreteGaussian(Fraction(scale) ** 2)),
            ("laplace", DiscreteLaplace(Fraction(scale))),
        ):
            ours = rate(lambda m=mechanism: m.sample(BATCH, bits), BATCH)  # type: ignore[misc]
            ones = rate(lambda m=mechanism: [m.sample(1, bits) for _ in range(2000)], 2000)  # type: ignore[misc]
            batch, single = theirs.get(f"{name} {scale}"), theirs.get(f"{name} {scale} one")
            print(
                f"{name + ' ' + format(scale, '.0e'):<24}{ours:>14,.0f}"
                + (f"{batch:>12,.0f}{ours / batch:>8.0f}" if batch else f"{'-':>12}{'-':>8}")
                + f"{ours / normal:>10.2f}{ones:>15,.0f}"
                + (f"{ones / single:>8.1f}" if single else f"{'-':>8}")
            )
            case = f"discrete {name.capitalize()}, scale {scale:,}"
            same = {"peer name": "OpenDP 0.16", "unit": "/s", "better": "higher"}
            rows += [
                {"case": f"{case}, batches of {BATCH:,}", "ours": ours, **_asked(batch, TIMES[scale]), **same},
                {"case": f"{case}, one by one", "ours": ones, **_asked(single, 1), **same},
            ]
    print(f"NumPy's inexact normal, the limit: {normal:,.0f}/s")
    rows.append({"case": "NumPy's inexact normal, for comparison", "ours": normal, "unit": "/s", "better": "higher"})
    return rows


def _asked(peer_rate: float | None, times: float) -> dict[str, float | None]:
    """The peer's rate and the multiple of it that is asked for; nothing where there was no peer."""
    return {"target": times * peer_rate if peer_rate else None, "peer": peer_rate}


if __name__ == "__main__":
    main()
