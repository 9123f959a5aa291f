"""All cuts of a private graph, published once (Gupta, Hardt, Roth and Ullman 2011, appendix C); edges are protected.

``cuts(curator, share=1)`` on a curator over ``dodona.graphs.edge_table(graph)``. Appendix C decomposes by the
vertices of high degree, of which there are at most 2/alpha, and answers each piece by its mean: the expected cut
given what is known of the degrees. Here the number of edges m is asked first. Where it says that the budget
suffices, the degrees of ALL vertices are asked (one edge touches two counts, so they cost as two) and the edges
between public blocks of vertices (one count each, so they cost as one); otherwise the blocks alone. The expected cut
given these follows from volumes: the same idea with every vertex a piece of its own, in time and space linear in the
vertices (below). The tree itself is ``release.submodular(oracle, CutFunction(...))``, for small graphs.

When degrees are worth asking was set by looking at two graphs (docs/conjunctions.md): m over the noise of a count is
at least ``MANY``, and the mean degree is not below a third of the noise of a degree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.errors import BadQuery
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Divisible, Effort, combined
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Integer, Schema
from dodona.query.statistic import Partition, Query, Stack, Value
from dodona.release.registry import Case, Release, Setting, registered, whole_cost
from dodona.synopses.cells import Floats
from dodona.synopses.set_functions import Degrees

FARTHEST, PRIOR_STEPS = 200, 100


@dataclass(frozen=True)
class Noisy:
    """A noisy number, table or vector, and the standard deviation of the noise in each entry."""

    values: Floats
    noise: float


def joined(first: Floats, first_variance: float, second: Floats, second_variance: float) -> Floats:
    """Two independent estimates of the same, by inverse variance; an exact one wins."""
    whole = first_variance + second_variance
    share = 0.5 if whole == 0 else second_variance / whole
    return np.asarray(share * first + (1 - share) * second)


def edges_of(counted: Noisy, between: Noisy) -> float:
    """m, from the count and from the table."""
    cells = len(between.values) * (len(between.values) + 1) / 2
    sums = np.triu(between.values).sum()
    return max(float(joined(counted.values, counted.noise**2, np.asarray(sums), cells * between.noise**2)), 0.0)


def table_of(between: Noisy, volumes_by_degrees: Noisy | None, edges: float) -> tuple[Floats, Floats]:
    """(edges between blocks, smaller block first; volumes of blocks), both summing as m says.

    Noise stays of mean 0: entries may be negative, and sums over many of them are the better for it.
    """
    k = len(between.values)
    upper = np.triu(np.ones((k, k), dtype=bool))
    held = np.where(upper, between.values + (edges - np.triu(between.values).sum()) / upper.sum(), 0.0)
    ends = held.sum(axis=0) + held.sum(axis=1)  # an edge within a block counts twice
    if volumes_by_degrees is not None:
        spread = (k + 3) * between.noise**2
        ends = joined(ends, spread, volumes_by_degrees.values, volumes_by_degrees.noise**2)
    volumes = scaled(np.maximum(ends, 0.0), 2 * edges)
    even = np.outer(volumes, volumes) / max(2 * edges, 1e-9)
    expected = np.where(upper, even * (1 - np.eye(k) / 2), 0.0)
    off = held - expected
    whole = off + off.T - np.diag(np.diag(off))
    kept = np.where(upper, shrunk(whole, between.noise), 0.0)
    table = expected + kept
    return table + np.where(upper, (edges - table.sum()) / upper.sum(), 0.0), volumes


def shrunk(matrix: Floats, noise: float) -> Floats:
    """A symmetric matrix less its noise, of this standard deviation s in each entry.

    With k rows, noise alone has eigenvalues up to 2 s sqrt(k). Those beyond become (x + sqrt(x^2 - 4 k s^2)) / 2, what
    they were before the noise; the j others are scaled by 1 - j^2 s^2 / (sum of their squares) (James and Stein 1961).
    """
    values, vectors = np.linalg.eigh(matrix)
    left = values**2 - 4 * len(matrix) * noise**2
    clear = left > 0
    before = (values + np.sign(values) * np.sqrt(np.maximum(left, 0.0))) / 2
    rest = np.where(clear, 0.0, values)
    size = float((rest**2).sum())
    factor = max(0.0, 1 - (int((~clear).sum()) * noise) ** 2 / size) if size > 0 else 0.0
    return np.asarray((vectors * np.where(clear, before, factor * rest)) @ vectors.T)


def degrees_of(ends: Noisy, volumes: Floats, span: int, heavy: bool) -> Floats:
    """Degrees that sum to the blocks' volumes. ``heavy``: the noise is the sum of two Laplace; else it is normal."""
    block = np.arange(len(ends.values)) // span
    drawn = posterior_means(ends, heavy) if ends.noise > 0 else np.maximum(ends.values, 0.0)
    sums = np.bincount(block, weights=drawn, minlength=len(volumes))
    count = np.bincount(block, minlength=len(volumes))
    even = np.divide(volumes, count, out=np.zeros_like(volumes), where=count > 0)
    factor = np.divide(volumes, sums, out=np.zeros_like(volumes), where=sums > 0)
    return np.asarray(np.where(sums[block] > 0, drawn * factor[block], even[block]))


def posterior_means(noisy: Noisy, heavy: bool) -> Floats:
    """The mean of each true value, 0 or more, under the prior that fits all noisy ones best."""
    low, high = float(noisy.values.min()), max(float(noisy.values.max()), noisy.noise)
    if high > noisy.noise * FARTHEST:  # so little noise that no prior changes a value
        return np.maximum(noisy.values, 0.0)
    width = noisy.noise / 10
    used, place, count = np.unique(np.floor((noisy.values - low) / width), return_inverse=True, return_counts=True)
    centres = low + (used + 0.5) * width
    points = np.concatenate(
        [np.linspace(0, noisy.noise, 10)[:-1], np.arange(noisy.noise, high + width, noisy.noise / 2)]
    )
    likely = _density(np.subtract.outer(centres, points) / noisy.noise, heavy) + 1e-300
    prior = np.full(len(points), 1 / len(points))
    for _ in range(PRIOR_STEPS):
        weight = likely * prior
        weight /= weight.sum(axis=1, keepdims=True)
        prior = count @ weight / count.sum()
    weight = likely * prior
    means = (weight @ points) / weight.sum(axis=1)
    return np.asarray(means[place.reshape(-1)])


def _density(x: Floats, heavy: bool) -> Floats:
    """Of noise of standard deviation 1, up to a factor: (1 + 2|x|) exp(-2|x|) for the sum of two Laplace."""
    return np.asarray((1 + 2 * np.abs(x)) * np.exp(-2 * np.abs(x)) if heavy else np.exp(-(x**2) / 2))


def scaled(values: Floats, total: float) -> Floats:
    """To this sum; even where all are 0."""
    held = float(values.sum())
    return values * (total / held) if held > 0 else np.full(values.shape, total / values.size)


# From noisy counts of a graph to its best table of blocks and degrees: free, since it sees only noisy answers.
#
# Three things are known, each with its noise: the number of edges m; the edges e_ab between blocks of vertices; the
# degree d_u of each vertex. They overlap, and each is best at another scale, so each is used where it is the better
# one:
#
# * m: the count and the sum of the table, weighted by inverse variance; the table is moved to it evenly;
# * volumes V_a of blocks: rows of the table and sums of degrees, weighted so as well;
# * the table: V_a V_b / 2m is what volumes expect. In the rest, structure (communities) sits in few eigenvalues and
#   noise in all of them alike, so those that stand out are kept and the others drawn towards 0;
# * degrees: the mean given the noisy one under the prior that makes all noisy ones most likely (Robbins 1956; Kiefer
# and Wolfowitz 1956; by expectation-maximisation on a grid): it draws the many small ones together and leaves the few
# large
#   ones alone; then each block's are scaled to its volume.


COUNTED, ENDS = 0.1, 0.5
BLOCKS, BLOCKS_ALONE = 16, 12
MANY, FAINT = 2800.0, 3.0
SPLIT = 1000
_UNSEEN = 1.5  # degrees that were not asked are taken to vary by this many times their mean


def cuts(
    oracle: Oracle,
    *,
    tail: str = "u",
    head: str = "v",
    **stated: Unpack[Divisible],
) -> Synopsis:
    """The synopsis: ``synopsis.body.cut(vertices)`` for any set. ``tail``, ``head``: the columns of an edge's ends."""
    effort, vertices = Effort.divisible(**stated), _vertices(oracle, tail, head)
    counted = oracle.ask(Value(Literal(1.0)), effort=effort.part(COUNTED))
    count = Noisy(np.asarray(counted.total, dtype=np.float64), float(np.asarray(counted.spread)))
    worth = _worth_asking(oracle, tail, head, effort, vertices, count)
    span = _span(vertices, worth)
    blocks = math.ceil(vertices / span)
    asked = oracle.ask(_between(tail, head, span), effort=effort.part(1 - COUNTED - (ENDS if worth else 0.0)))
    pairs, noises = (np.asarray(x, dtype=np.float64)[:blocks, :blocks] for x in (asked.total, asked.spread))
    between = Noisy(np.asarray(np.triu(pairs), dtype=np.float64), float(noises.max()))  # below it is only noise
    edges, bills = edges_of(count, between), [counted.cost, asked.cost]
    if worth:
        ends, bill = _degrees(oracle, tail, head, effort, vertices)
        bills.append(bill)
        sums = np.bincount(np.arange(vertices) // span, weights=ends.values, minlength=blocks).astype(np.float64)
        table, volumes = table_of(between, Noisy(sums, ends.noise * math.sqrt(span)), edges)
        degrees = degrees_of(ends, volumes, span, bill.unit == "epsilon")
    else:
        table, volumes = table_of(between, None, edges)
        block = np.arange(vertices) // span
        degrees = (volumes / np.bincount(block))[block]
        ends = Noisy(degrees, _UNSEEN * 2 * edges / vertices)
    edges_noise = _edges_noise(count.noise, between.noise, blocks)
    body = Degrees(degrees, table, span, ends.noise, edges_noise, between.noise)
    about = f"cuts of a graph of {vertices:,} vertices"
    accuracy = f"a cut into random halves is off by about {_typical(edges, edges_noise):.4g} edges of {edges:.0f}"
    words = "degrees and blocks" if worth else "blocks"
    return Synopsis(Header(oracle.name, about, accuracy, words, oracle.schema, oracle.rows, combined(bills)), body)


def plan_cuts(
    oracle: Oracle,
    *,
    tail: str = "u",
    head: str = "v",
    **stated: Unpack[Divisible],
) -> Outlooks:
    """How far the cut into random halves is off on average, in edges, where their number is public. Spends nothing.

    Where it is not (edge privacy), it is counted first, with noise, and decides both the error and the method.
    """
    effort, vertices = Effort.divisible(**stated), _vertices(oracle, tail, head)
    counted = float(np.max(oracle.price(Value(Literal(1.0)), effort=effort.part(COUNTED)).spread))
    what, cost = f"cuts of a graph of {vertices:,} vertices", whole_cost(oracle, effort)
    known = Outlook(what, Outcome.VACUOUS, cost=cost, measure="a cut into random halves", scale="rows")
    if oracle.rows is None:
        why = "The number of edges is counted first, with noise, and decides the error and whether degrees are asked."
        return Outlooks([replace(known, why=why, method="blocks")])
    worth = _worth_asking(oracle, tail, head, effort, vertices, Noisy(np.array(float(oracle.rows)), counted))
    span = _span(vertices, worth)
    part = effort.part(1 - COUNTED - (ENDS if worth else 0.0))
    between = float(np.max(oracle.price(_between(tail, head, span), effort=part).spread))
    error = _typical(oracle.rows, _edges_noise(counted, between, math.ceil(vertices / span)))
    why = "For a set that does not follow the edges; one that does may be off by more, and its margin says so."
    details = {"blocks": float(math.ceil(vertices / span)), "noise of a block": between}
    method = "degrees and blocks" if worth else "blocks"
    outcome = Outcome.FEASIBLE if error < oracle.rows / 2 else Outcome.VACUOUS
    return Outlooks([replace(known, outcome=outcome, error=error, why=why, details=details, method=method)])


def _span(vertices: int, worth: bool) -> int:
    """Vertices of a block."""
    return math.ceil(vertices / min(BLOCKS if worth else BLOCKS_ALONE, vertices))


def _edges_noise(counted: float, between: float, blocks: int) -> float:
    """Of m, from the count and from the table of blocks."""
    cells = blocks * (blocks + 1) / 2
    return 1 / math.sqrt(1 / max(counted, 1e-9) ** 2 + 1 / max(cells * between**2, 1e-18))


def _typical(edges: float, noise: float) -> float:
    """The mean absolute error of the cut into random halves: the edges' own signs, and half the noise of m."""
    return math.sqrt(2 / math.pi) * math.hypot(math.sqrt(edges) / 2, noise / 2)


def _worth_asking(oracle: Oracle, tail: str, head: str, effort: Effort, vertices: int, count: Noisy) -> bool:
    """Whether degrees are: by the noisy number of edges and by noise that is known beforehand."""
    spreads = oracle.price(_ends(tail, head, vertices), effort=effort.part(ENDS)).spread
    degree = math.sqrt(2) * float(np.max(spreads))
    mean, whole = 2 * float(count.values) / vertices, count.noise * COUNTED  # noise of a count with the whole budget
    return bool(degree <= FAINT * mean and float(count.values) >= MANY * whole)


def _degrees(oracle: Oracle, tail: str, head: str, effort: Effort, vertices: int) -> tuple[Noisy, Bill]:
    ends = oracle.ask(_ends(tail, head, vertices), effort=effort.part(ENDS))
    both, spreads = (np.asarray(x, dtype=np.float64).reshape(2, -1)[:, :vertices] for x in (ends.total, ends.spread))
    return Noisy(both.sum(axis=0), math.sqrt(float((spreads[:, 0] ** 2).sum()))), ends.cost


def _ends(tail: str, head: str, vertices: int) -> Query:
    return Stack((_each(tail, vertices), _each(head, vertices)))


def _between(tail: str, head: str, span: int) -> Query:
    """The edges between blocks, the smaller block first whichever end is the tail."""
    low, high = (Call(name, (Column(tail), Column(head))) for name in ("least", "greatest"))
    return Partition(_block(low, span), Partition(_block(high, span), Value(Literal(1.0))))


def _block(end: Expr, span: int) -> Expr:
    return Call("floor", (Call("div", (end, Literal(float(span)))),))


def _each(column: str, vertices: int) -> Query:
    """One count a vertex; many of them in two digits, as a partition's keys are small numbers."""
    one = Value(Literal(1.0))
    if vertices <= 60 * SPLIT:
        return Partition(Column(column), one)
    return Partition(
        _block(Column(column), SPLIT), Partition(Call("mod", (Column(column), Literal(float(SPLIT)))), one)
    )


def _vertices(oracle: Oracle, tail: str, head: str) -> int:
    columns = [oracle.schema.get(name) for name in (tail, head)]
    first = columns[0]
    if not isinstance(first, Integer) or columns[0] != columns[1] or first.low != 0:
        raise BadQuery(
            f"{tail!r} and {head!r} must be whole-number columns from 0 to the number of vertices less 1, as "
            "dodona.graphs.edge_table makes them."
        )
    return int(first.high) + 1


def _cases() -> list[Case]:
    vertices = 12
    ends = Integer(0, vertices - 1, missing=0)

    def draw(rows: int, random: np.random.Generator) -> dict[str, np.ndarray]:
        tails = random.integers(0, vertices, rows)
        return {"u": tails, "v": (tails + random.integers(1, vertices, rows)) % vertices, "w": tails}

    def across(*members: int) -> str:
        return f"(u IN ({', '.join(map(str, members))})) <> (v IN ({', '.join(map(str, members))}))"

    inside, edge = (across(0, 3, 5), across(1, 2, 4, 7, 8, 11)), (across(0), across(*range(vertices - 1)))
    schema = Schema({"u": ends, "v": ends, "w": ends})
    return [Case("edges", schema, draw, {}, "Degrees", inside, edge, ("u = 1 AND v = 2", "w = 1"), "add-remove")]


_ENDS = ("integer",)
RELEASE = registered(
    Release(
        cuts,
        plan_cuts,
        "Cuts: edges of a graph between any set of vertices and the rest",
        (
            Setting("tail", "column", "One end of an edge", types=_ENDS, start="first"),
            Setting("head", "column", "Its other end", types=_ENDS, start="second"),
        ),
        ("Degrees",),
        _cases,
        place=5,
    )
)
