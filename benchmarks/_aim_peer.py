"""AIM (McKenna, Mullins, Sheldon and Miklau 2022), run to its end on ``mbi``'s inference; needs ``mbi`` and no more.

``_aim_peer.py TABLE EPSILON DELTA ROUNDS FOLDER [WIDTH]``: TABLE is an .npz with ``codes``, ``sizes`` and ``names``.
The mechanism is written from its paper (Algorithm 1 with the budget annealed, a junction tree of at most 80 MB, alpha =
0.9, all marginals of WIDTH columns as its workload), since no package on PyPI holds it; fitting and drawing are
``mbi``'s own, 1,000 steps of mirror descent a round. ROUNDS sets the first noise, as there. Marginals the model does
not hold are summed out with PyTorch where it is there: ``mbi`` compiles each of them anew. Writes FOLDER/NAME.npz: as
many rows as the table has by its default rounding (``table``), and ten times as many drawn one by one (``model``, by
which the fitted model is judged: its rounding adds errors of its own); and FOLDER/NAME.json: what was asked, times,
versions, the date.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import itertools
import json
import math
import resource
import sys
import time
from pathlib import Path

import jax
import numpy as np
from mbi import Dataset, Domain, LinearMeasurement, estimation, junction_tree

try:
    import torch
except ImportError:
    torch = None

MOST_MEGABYTES, ALPHA, STEPS = 80, 0.9, 1000


def rho_of(epsilon, delta):
    """The largest rho whose conversion gives (epsilon, delta): Canonne, Kamath and Steinke (2020)."""

    def least(rho):
        orders = 1 + np.geomspace(1e-4, 1e5, 20_000)
        logs = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
        return float(np.exp(np.minimum(logs.min(), 0)))

    low, high = 0.0, epsilon + 1
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if least(middle) <= delta else (low, middle)
    return low


def closed(cliques):
    """Every subset of these but the empty one, small ones first."""
    found = {s for c in cliques for size in range(1, len(c) + 1) for s in itertools.combinations(c, size)}
    return sorted(found, key=lambda s: (len(s), s))


def fitted(domain, asked, total, before):
    """The model of all that was asked, from the one before."""
    potentials = None if before is None else before.potentials
    return estimation.mirror_descent(domain, asked, known_total=total, potentials=potentials, iters=STEPS)


def marginal(model, clique):
    """The model's counts of one marginal, flat."""
    if torch is None or model.marginals.supports(clique):
        return np.asarray(model.project(clique).datavector(), dtype=np.float64)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    factors = [
        (tuple(f.domain.attributes), torch.tensor(np.asarray(f.values), dtype=torch.float64, device=device))
        for f in model.potentials.arrays.values()
    ]
    domain = model.potentials.active_domain
    cliques = [names for names, _ in factors] + [clique]
    for gone in junction_tree.greedy_order(domain, cliques, elim=domain.invert(clique))[0]:
        near = [f for f in factors if gone in f[0]]
        names, joint = joined(near, domain)
        at = names.index(gone)
        factors = [f for f in factors if gone not in f[0]]
        factors.append((names[:at] + names[at + 1 :], joint.logsumexp(at)))
    names, joint = joined(factors, domain, clique)
    flat = torch.exp(joint - joint.max())
    return (flat / flat.sum() * float(model.total)).reshape(-1).cpu().numpy()


def joined(factors, domain, order=None):
    """The sum of factors in log space, over ``order`` or all the names they hold."""
    order = order or tuple(dict.fromkeys(name for names, _ in factors for name in names))
    whole = torch.zeros([domain[n] for n in order], dtype=torch.float64, device=factors[0][1].device)
    for names, values in factors:
        kept = [n for n in order if n in names]
        turned = values.permute([names.index(n) for n in kept]) if names else values
        whole = whole + turned.reshape([domain[n] if n in names else 1 for n in order])
    return order, whole


def aim(data, epsilon, delta, rounds, width, say):
    """The model, and what was asked each round."""
    domain, random = data.domain, np.random.default_rng()
    rho, total = rho_of(epsilon, delta), None
    workload = list(itertools.combinations(domain.attrs, width))
    weights = {c: sum(len(set(c) & set(w)) for w in workload) for c in closed(workload)}
    exact = {c: np.asarray(data.project(c).datavector(), dtype=np.float64) for c in weights}
    sigma, choosing = math.sqrt(rounds / (2 * ALPHA * rho)), math.sqrt(8 * (1 - ALPHA) * rho / rounds)

    def measured(clique):
        return LinearMeasurement(exact[clique] + random.normal(0, sigma, len(exact[clique])), clique, sigma)

    asked = [measured((name,)) for name in domain.attrs]
    used = len(asked) / (2 * sigma**2)
    total = estimation.minimum_variance_unbiased_total(asked)
    model, log, ended = fitted(domain, asked, total, None), [], False
    while not ended:
        if rho - used < 2 * (1 / (2 * sigma**2) + choosing**2 / 8):
            sigma, choosing, ended = (
                math.sqrt(1 / (2 * ALPHA * (rho - used))),
                math.sqrt(8 * (1 - ALPHA) * (rho - used)),
                True,
            )
        used += 1 / (2 * sigma**2) + choosing**2 / 8
        held = [m.clique for m in asked]
        free, most = set(closed([tuple(c) for c in model.cliques])), MOST_MEGABYTES * used / rho
        fits = [c for c in weights if c in free or junction_tree.hypothetical_model_size(domain, [*held, c]) <= most]
        scores = []
        for c in fits:
            off = np.abs(exact[c] - marginal(model, c)).sum()
            scores.append(weights[c] * (off - math.sqrt(2 / math.pi) * sigma * len(exact[c])))
        powers = 0.5 * choosing / max(weights[c] for c in fits) * (np.array(scores) - max(scores))
        chances = np.exp(powers)
        chosen = fits[random.choice(len(fits), p=chances / chances.sum())]
        asked.append(measured(chosen))
        before = marginal(model, chosen)
        total = estimation.minimum_variance_unbiased_total(asked)
        model = fitted(domain, asked, total, model)
        moved = np.abs(marginal(model, chosen) - before).sum()
        log.append({"asked": chosen, "cells": len(before), "sigma": sigma, "used": used / rho, "fit": len(fits)})
        say(f"round {len(log)}: {log[-1]}")
        if moved <= math.sqrt(2 / math.pi) * sigma * len(before):
            sigma, choosing = sigma / 2, choosing * 2
    return fitted(domain, asked, total, model), log


def main(table, epsilon, delta, rounds, folder, width="3"):
    """Fit, draw, write."""
    held = np.load(table)
    sizes = {str(n): int(s) for n, s in zip(held["names"], held["sizes"], strict=True)}
    domain = Domain(tuple(sizes), tuple(sizes.values()))
    name, cpu, wall = f"{Path(table).stem}-{epsilon}", time.process_time(), time.perf_counter()
    data = Dataset(held["codes"].astype(np.int64), domain)

    def say(words):
        print(f"{name}: {time.perf_counter() - wall:.0f} s, {words}", flush=True)

    model, log = aim(data, float(epsilon), float(delta), int(rounds), int(width), say)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    drawn = {}
    for key, times, method in (("table", 1, "round"), ("model", 10, "sample")):
        made = model.synthetic_data(times * len(held["codes"]), method).to_dict()
        drawn[key] = np.stack([np.asarray(made[n]) for n in sizes], axis=1).astype(np.uint8)
    np.savez_compressed(Path(folder) / f"{name}.npz", **drawn)
    packages = {p: importlib.metadata.version(p) for p in ("mbi", "jax", "numpy", "optax")}
    about = {"table": Path(table).stem, "epsilon": float(epsilon), "delta": float(delta), "stated_rounds": int(rounds)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    about |= {"cpu_s": cpu, "wall_s": wall, "peak_GiB": peak, "device": str(jax.devices()[0]), "packages": packages}
    about |= {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "width": int(width), "rounds": log}
    (Path(folder) / f"{name}.json").write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
