"""Halfspaces over number columns, translated ones included, published once (Blum, Ligett and Roth 2008, section 6).

``probes`` (practical): some hundred random halfspaces are asked with noise, and kernel regression with the arc-cosine
kernel and a ridge matched to the noise carries their answers to every other one. Where the budget allows, most of it
finds a mixture of normal distributions first (``release/_mixture.py``), and the probes mend what it leaves.
No worst-case promise; its margins are for halfspaces like the probes, by predicting each probe from the others.

``nets`` (the paper's, under its own name): m random sign projections to k dimensions, a net of directions in each, the
median of the nearest net answers. (e, delta, gamma)-useful in the sense of Definition 5.3: the answer is within e of
that of some halfspace at sine distance at most gamma from the asked one, so rows within gamma of the boundary may be
counted or not. The guaranteed k and m of Theorem 6.5 are in ``dodona.bounds.releases.halfspaces``; they are beyond any
computer for small gamma (ERRATA 10: the counts multiply), so here k, m and gamma are yours to state.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.bounds import releases as bounds
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Divisible, Effort, combined
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Body, Header, Synopsis
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Stack, Value
from dodona.release._mixture import BasePlan, base_plan, bases
from dodona.release.registry import Case, Release, Setting, registered, whole_cost, within
from dodona.synopses.halfspaces import HalfspaceNets, Halfspaces, Mixture, Scaled, kernel
from dodona.synopses.noise import STATED

Floats = NDArray[np.float64]
_SEED = 6051  # probes and projections are public, and published with the answers
_PRIORS = 4.0 ** -np.arange(0.0, 8.1, 0.5)
_ROUGH = (0.0, 1e-5, 4e-5, 1.6e-4, 6.4e-4)
MOST_NET = 200_000
_Z = NormalDist().inv_cdf((1 + STATED) / 2)
MOST_PROBES = 8_000
MOST_DIMENSION = 64


def halfspaces(
    oracle: Oracle,
    columns: list[str] | tuple[str, ...],
    *,
    translated: bool = True,
    probes: int | None = None,
    **stated: Unpack[Divisible],
) -> Synopsis:
    """A synopsis of all halfspaces over ``columns``, each scaled to [-1, 1] by its declared range.

    ``translated``: probe halfspaces off the middle too. ``probes``: how many; by the noise if not given.
    """
    check_probes(probes)
    effort, scaled, rows = Effort.divisible(**stated), Scaled.of(oracle.schema, columns), public_rows(oracle)
    plan = base_plan(oracle, scaled, effort, rows)
    offered, bills = bases(oracle, scaled, effort, rows, plan)
    left = effort.part(plan.shares.probes)
    count = probes if probes is not None else probes_for(oracle, scaled, left, rows, plan)
    y = directions(count, len(scaled.columns), translated)
    answer = oracle.ask(probes_query(scaled, y), effort=left)
    means = np.asarray(answer.total, dtype=np.float64) / rows
    noise = float(np.mean(np.square(answer.spread))) / rows**2
    prior, rough, base = likeliest(y, means, offered, noise)
    body = Halfspaces(scaled, rows, y, means, base, noise, prior, rough)
    typical = float(np.mean(body.fraction(directions(200, len(scaled.columns), translated, 1))[1]))
    accuracy = f"about {typical:.2g} of the rows for a random halfspace, by leaving probes out; no worst case"
    known = {0: "", 1: "a normal distribution and "}.get(len(base.weights), f"{len(base.weights)} normals and ")
    words = f"{known}{count} probes, arc-cosine kernel ridge"
    return _synopsis(oracle, scaled, body, accuracy, words, [*bills, answer.cost], {"method": "probes"})


def plan_halfspaces(
    oracle: Oracle,
    columns: Sequence[str],
    *,
    translated: bool = True,
    probes: int | None = None,
    e: float | None = None,
    gamma: float = 0.1,
    bits: int = 16,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """The model's own 95 % error of a random halfspace, in rows; with a wish ``e``, then what Theorem 6.5 says of it.

    The model's error is taken at its largest prior and without a distribution, so data can only make it smaller in the
    model's eyes; it is no worst case, so its outcome is "vacuous": no theorem promises it. ``bits``: precision of a
    column, and ``gamma``: as in Definition 5.3; both for the theorem alone.
    """
    check_probes(probes)
    effort, scaled, rows = Effort.divisible(**stated), Scaled.of(oracle.schema, columns), public_rows(oracle)
    within(oracle, 0.0, e)  # refuses a wish that is none
    base, d = base_plan(oracle, scaled, effort, rows), len(scaled.columns)
    left = effort.part(base.shares.probes)
    count = probes if probes is not None else probes_for(oracle, scaled, left, rows, base)
    y = directions(count, d, translated)
    noise = float(np.mean(np.square(oracle.price(probes_query(scaled, y), effort=left).spread))) / rows**2
    body = Halfspaces(scaled, rows, y, np.full(count, 0.5), Mixture.unknown(d), noise, 1.0, 0.0)
    typical = float(np.mean(body.fraction(directions(200, d, translated, 1))[1]))
    cost = whole_cost(oracle, effort)
    model = Outlook(
        f"halfspaces over {', '.join(scaled.columns)} by {count} probes",
        Outcome.VACUOUS,
        error=_Z * typical * rows,
        cost=cost,
        why="The error is the model's own, before it has seen an answer, and no theorem's: judge it by measurement.",
        details={"probes": float(count), "noise of a probe, in rows": math.sqrt(noise) * rows},
        method="probes",
        measure="a random halfspace",
        scale="rows",
        confidence=STATED,
    )
    if e is None or cost is None or cost.epsilon is None:
        return Outlooks([model])
    return Outlooks([model, bounds.halfspaces(rows, d, bits, e, gamma, cost.epsilon)])


def halfspace_nets(
    oracle: Oracle,
    columns: list[str] | tuple[str, ...],
    *,
    dimension: int = 2,
    projections: int = 9,
    gamma: float = 0.4,
    **stated: Unpack[Divisible],
) -> Synopsis:
    """The paper's method: k = ``dimension``, m = ``projections``, nets of sine distance (3/4) ``gamma``.

    The paper measures d(y, y') by the sine of the angle, which is 0 for opposite halfspaces too, whose answers add up
    to 1; the net here covers directions, and asks one of each opposite pair.
    """
    effort, scaled, rows = Effort.divisible(**stated), Scaled.of(oracle.schema, columns), public_rows(oracle)
    net, signs, question = _nets(scaled, dimension, projections, gamma)
    answer = oracle.ask(question, effort=effort.part())
    half = np.asarray(answer.total, dtype=np.float64).reshape(projections, -1) / rows
    whole = np.concatenate([net, -net])
    deviation = float(np.max(answer.spread)) / rows
    body = HalfspaceNets(scaled, rows, signs, whole, np.concatenate([half, 1 - half], axis=1), deviation, gamma)
    accuracy = (
        f"each net answer has noise of {deviation:.2g} of the rows; the net is within sine {0.75 * gamma:.2g} of every "
        f"projected direction, gamma = {gamma:g} (Definition 5.3); k = {dimension}, m = {projections} are below what "
        "Theorem 6.5 asks for, so the projection's own mistakes are not bounded"
    )
    words = f"{projections} sign projections to {dimension} dimensions, nets of {len(net)} pairs, median (Theorem 6.5)"
    return _synopsis(oracle, scaled, body, accuracy, words, [answer.cost], {"method": "nets", "gamma": gamma})


def plan_halfspace_nets(
    oracle: Oracle,
    columns: Sequence[str],
    *,
    dimension: int = 2,
    projections: int = 9,
    gamma: float = 0.4,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """The noise of one net answer, in rows; what the projections add is not bounded at sizes anyone can ask."""
    effort, scaled, rows = Effort.divisible(**stated), Scaled.of(oracle.schema, columns), public_rows(oracle)
    net, _, question = _nets(scaled, dimension, projections, gamma)
    spread = float(np.max(oracle.price(question, effort=effort.part()).spread))
    found = Outlook(
        f"halfspaces over {', '.join(scaled.columns)} by {projections} nets of {len(net)} pairs",
        Outcome.VACUOUS,
        "BLR Theorem 6.5, mended, for dimensions and projections beyond these",
        error=_Z * spread,
        cost=whole_cost(oracle, effort),
        why=f"This is the noise alone, up to gamma = {gamma:g}; what the projections miss is not bounded.",
        details={"halfspaces asked": float(projections * len(net)), "noise, of the rows": spread / rows},
        method="nets",
        measure="a net answer",
        scale="rows",
        confidence=STATED,
    )
    return Outlooks([found])


def _nets(scaled: Scaled, dimension: int, projections: int, gamma: float) -> tuple[Floats, Floats, Stack]:
    """(the directions that every projection asks, the projections, the question); refused where they are too many."""
    whole = all(type(number) is int for number in (dimension, projections))
    if not whole or not 2 <= dimension <= MOST_DIMENSION or projections < 1 or not 0 < gamma < 1:
        raise BadQuery(f"nets take a dimension from 2 to {MOST_DIMENSION}, projections >= 1 and 0 < gamma < 1.")
    net = direction_net(dimension, 0.75 * gamma)
    if projections * len(net) > MOST_NET:
        raise Unsupported(
            f"{projections:,} projections, each with a net of {len(net):,} directions, would ask "
            f"{projections * len(net):,} halfspaces; at most {MOST_NET:,} are asked. Take at most "
            f"{MOST_NET // len(net):,} projections."
        )
    d = len(scaled.columns) + 1
    signs = np.random.default_rng(_SEED).choice([-1.0, 1.0], (projections, d, dimension)) / math.sqrt(dimension)
    pulled = np.einsum("mdk,nk->mnd", signs, net).reshape(-1, d)
    lengths = np.linalg.norm(pulled, axis=1, keepdims=True)
    return net, signs, probes_query(scaled, pulled / np.maximum(lengths, 1e-12))


def direction_net(dimension: int, sine: float) -> Floats:
    """One of each opposite pair of unit vectors, such that every direction is within ``sine`` of one of them.

    The points of a grid on the surface of the cube, scaled to length 1: a cell of side 1/g has every point within
    sqrt(k - 1)/(2g) of a corner, and scaling out to the cube's surface only enlarges distances.
    """
    grid = max(1, math.ceil(math.sqrt(dimension - 1) / (2 * sine)))
    size = ((2 * grid + 1) ** dimension - (2 * grid - 1) ** dimension) // 2
    if size > MOST_NET:
        raise Unsupported(
            f"a net at this gamma in {dimension} dimensions has {size:,} directions; at most {MOST_NET:,} are asked. "
            "Take fewer dimensions or a larger gamma."
        )
    steps = range(-grid, grid + 1)
    surface = (p for p in itertools.product(steps, repeat=dimension) if max(map(abs, p)) == grid)
    points = np.array([p for p in surface if p > tuple(-x for x in p)], dtype=np.float64)
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def public_rows(oracle: Oracle) -> int:
    """How many rows there are, where everyone may know it and there is one."""
    if oracle.rows is None:
        raise Unsupported("halfspaces are fractions of a public number of rows: state Table(..., rows=...).")
    if not oracle.rows:
        raise Unsupported("halfspaces are fractions of the rows, and this table has 0. At least one row is needed.")
    return oracle.rows


def check_probes(probes: int | None) -> None:
    """Refuses a number of probes that none, or no memory, can bear."""
    if probes is None or (isinstance(probes, int) and not isinstance(probes, bool) and 1 <= probes <= MOST_PROBES):
        return
    large = type(probes) is int and probes > MOST_PROBES
    needed = f": regression over so many would need {24 * probes**2 / 2**30:.3g} GiB of memory" if large else ""
    raise BadQuery(f"probes must be a whole number from 1 to {MOST_PROBES:,}. Got {probes!r}{needed}.")


def directions(count: int, d: int, translated: bool, salt: int = 0) -> Floats:
    rng = np.random.default_rng([_SEED, salt])
    y = rng.normal(size=(count, d + 1))
    y[:, 0] *= math.sqrt(d) / 2 if translated else 0.0  # <w, x> of a typical row is of this order
    return np.asarray(y / np.linalg.norm(y, axis=1, keepdims=True))


def probes_query(scaled: Scaled, y: Floats) -> Stack:
    return Stack(tuple(Value(scaled.condition(direction)) for direction in y))


def probes_for(oracle: Oracle, scaled: Scaled, part: Effort, rows: int, plan: BasePlan) -> int:
    """By epsilon n: 200 at 5,000, 800 from 50,000 on; less where a distribution is known, as little is left to find."""
    one = oracle.price(Value(scaled.condition(directions(1, len(scaled.columns), False)[0])), effort=part)
    spread = float(np.max(one.spread))
    reach = rows / max(spread, 1e-9) * math.sqrt(2)
    most = {0: 800, 1: 200}.get(plan.components, 100)
    return int(np.clip(200 * (reach / 5000) ** 0.6, 60, most))


def likeliest(y: Floats, means: Floats, offered: list[Mixture], noise: float) -> tuple[float, float, Mixture]:
    """(prior, rough, base) under which the answers are likeliest, the noise of a mean having this variance.

    ``prior`` is the variance the base leaves in the data's halfspaces, as a part of the kernel's. What a mixture leaves
    is not all as smooth as the kernel: ``rough`` is the variance of a part that differs from probe to probe, without
    which that part would be carried to halfspaces it says nothing of.
    """
    values, vectors = np.linalg.eigh(kernel(y, y))
    squares = [np.square(vectors.T @ (means - base.fraction(y))) for base in offered]

    def cost(prior: float, rough: float, which: int) -> float:
        """Minus twice the log-likelihood, but for a constant."""
        spread = prior * np.maximum(values, 0.0) + max(noise + rough, 1e-12)
        return float(np.sum(np.log(spread) + squares[which] / spread))

    options = itertools.product(_PRIORS, _ROUGH, range(len(offered)))
    prior, rough, which = min(options, key=lambda option: cost(*option))
    return float(prior), float(rough), offered[which]


def _synopsis(
    oracle: Oracle, scaled: Scaled, body: Body, accuracy: str, words: str, bills: list[Bill], notes: dict[str, Any]
) -> Synopsis:
    about = f"halfspaces over {', '.join(scaled.columns)}, translated ones included"
    return Synopsis(
        Header(oracle.name, about, accuracy, words, oracle.schema, oracle.rows, combined(bills), notes), body
    )


def _cases() -> list[Case]:
    schema = Schema({name: Real(-1, 1, missing=0) for name in "uvw"})
    gaps = Schema({name: Real(-1, 1) for name in "uvw"})

    def draw(rows: int, random: np.random.Generator) -> dict[str, Floats]:
        cloud = np.tanh(random.normal([0.2, -0.1, 0.0], [0.4, 0.6, 0.5], (rows, 3)))
        return {name: cloud[:, i] for i, name in enumerate("uvw")}

    inside = ("0.5 * u + 0.7 * v >= 0.1", "u - v >= 0", "0.3 * u - 0.9 * v < 0.2")
    edge = ("u >= 0", "u + v >= 1.9")
    outside = ("u * v >= 0", "w >= 0", "u >= 0 AND v >= 0")
    both, centred = {"columns": ("u", "v"), "probes": 60}, {"columns": ("u", "v"), "translated": False, "probes": 60}
    return [
        Case("probes", schema, draw, both, "Halfspaces", inside, edge, outside),
        Case("centred", schema, draw, centred, "Halfspaces", ("u >= v",), (), outside),
        Case("with gaps", gaps, draw, both, "Halfspaces", ("COALESCE(u, 0) >= COALESCE(v, 0) + 0.1",), (), inside),
    ]


def _net_cases() -> list[Case]:
    return [replace(_cases()[0], name="nets", settings={"columns": ("u", "v")}, gives="HalfspaceNets")]


_COLUMNS = Setting("columns", "columns", "Columns", types=("integer", "real"))
RELEASE = registered(
    Release(
        halfspaces,
        plan_halfspaces,
        "Halfspaces: linear combinations of numbers above any bound",
        (
            _COLUMNS,
            Setting("translated", "truth", "Whether bounds off the middle are asked too."),
            Setting("probes", "whole", "How many halfspaces are asked.", least=1, most=MOST_PROBES),
        ),
        ("Halfspaces",),
        _cases,
        place=4,
    )
)
NETS = registered(
    Release(
        halfspace_nets,
        plan_halfspace_nets,
        "Halfspaces by nets: the paper's own method, for comparison",
        (
            _COLUMNS,
            Setting("dimension", "whole", "Dimensions to project to.", least=2, most=MOST_DIMENSION),
            Setting("projections", "whole", "How many projections.", least=1, most=1000),
            Setting("gamma", "number", "Rows so near to the boundary may be counted or not.", least=0, most=1),
        ),
        ("HalfspaceNets",),
        _net_cases,
    )
)
