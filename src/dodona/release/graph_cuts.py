"""All cuts of a private graph, published once (Gupta, Hardt, Roth and Ullman 2011, appendix C); edges are protected.

``cuts(curator, share=1)`` on a curator over ``dodona.graphs.edge_table(graph)``. Appendix C decomposes by the vertices
of high degree, of which there are at most 2/alpha, and answers each piece by its mean: the expected cut given what is
known of the degrees. Here the degrees of ALL vertices are asked (one edge touches two counts, so they cost as two), and
the edges between public blocks of vertices (one count each, so they cost as one); the expected cut given both follows
from volumes: the same idea with every vertex a piece of its own, in time and space linear in the vertices. The tree
itself is ``release.submodular(oracle, CutFunction(...))``, for small graphs.
"""

from __future__ import annotations

import math

import numpy as np

from dodona.errors import BadQuery
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Integer
from dodona.query.statistic import Partition, Query, Stack, Value
from dodona.release.portion import Portion, combined
from dodona.synopses.base import Header, Synopsis
from dodona.synopses.basis import Floats
from dodona.synopses.degrees import Degrees

COUNTED, BETWEEN = 0.3, 0.25
BLOCKS = 12
SPLIT = 1000


def cuts(
    oracle: Oracle,
    *,
    tail: str = "u",
    head: str = "v",
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> Synopsis:
    """The synopsis: ``synopsis.body.cut(vertices)`` for any set. ``tail``, ``head``: the columns of an edge's ends."""
    portion, vertices = Portion.of(share, epsilon, rho), _vertices(oracle, tail, head)
    one = Value(Literal(1.0))
    blocks = min(BLOCKS, vertices)
    span = math.ceil(vertices / blocks)
    counted = oracle.ask(one, **portion.part(COUNTED))
    between = oracle.ask(Partition(_block(tail, span), Partition(_block(head, span), one)), **portion.part(BETWEEN))
    ends = oracle.ask(Stack((_each(tail, vertices), _each(head, vertices))), **portion.part(1 - COUNTED - BETWEEN))
    both, spreads = (np.asarray(x, dtype=np.float64).reshape(2, -1)[:, :vertices] for x in (ends.total, ends.spread))
    noise = math.sqrt(float((spreads[:, 0] ** 2).sum()))
    edges, edges_noise = max(float(np.asarray(counted.total)), 0.0), float(np.asarray(counted.spread))
    degrees = _shrunk(both.sum(axis=0), noise, edges)
    pairs, pair_noise = (np.asarray(x, dtype=np.float64) for x in (between.total, between.spread))
    table = _blended(pairs, float(pair_noise.max()), degrees, span, edges)
    body = Degrees(degrees, table, span, noise, edges_noise)
    typical = math.hypot(math.sqrt(edges) / 2, edges_noise / 2)
    about = f"cuts of a graph of {vertices:,} vertices"
    accuracy = f"a cut into random halves is off by about {math.sqrt(2 / math.pi) * typical:.4g} edges of {edges:.0f}"
    bill = combined([counted.cost, between.cost, ends.cost])
    return Synopsis(Header(oracle.name, about, accuracy, "degrees and blocks", oracle.schema, oracle.rows, bill), body)


def _block(column: str, span: int) -> Expr:
    return Call("floor", (Call("div", (Column(column), Literal(float(span)))),))


def _each(column: str, vertices: int) -> Query:
    """One count a vertex; many of them in two digits, as a partition's keys are small numbers."""
    one = Value(Literal(1.0))
    if vertices <= 60 * SPLIT:
        return Partition(Column(column), one)
    return Partition(_block(column, SPLIT), Partition(Call("mod", (Column(column), Literal(float(SPLIT)))), one))


def _blended(pairs: Floats, noise: float, degrees: Floats, span: int, edges: float) -> Floats:
    """Edges between blocks, from smaller to larger: noisy counts drawn towards what the degrees expect.

    The counts keep the share of their deviation from it that is not noise (the positive part of 1 - noise^2 / mean
    square), and sum to the number of edges.
    """
    k = len(pairs)
    volumes = np.bincount(np.arange(len(degrees)) // span, weights=degrees, minlength=k)
    upper = np.triu(np.ones((k, k), dtype=bool))
    expected = np.outer(volumes, volumes) / max(float(volumes.sum()), 1e-9)
    expected = np.where(upper, expected * (2 - np.eye(k)) / 2, 0.0)
    off = np.where(upper, pairs - expected, 0.0)
    mean_square = float((off**2).sum() / upper.sum())
    kept = max(0.0, 1 - noise**2 / mean_square) if mean_square > 0 else 0.0
    table = np.where(upper, np.maximum(expected + kept * off, 0.0), 0.0)
    return np.asarray(table * edges / max(float(table.sum()), 1e-9))


def _vertices(oracle: Oracle, tail: str, head: str) -> int:
    columns = [oracle.schema.get(name) for name in (tail, head)]
    first = columns[0]
    if not isinstance(first, Integer) or columns[0] != columns[1] or first.low != 0:
        raise BadQuery(
            f"{tail!r} and {head!r} must be whole-number columns from 0 to the number of vertices less 1, as "
            "dodona.graphs.edge_table makes them."
        )
    return int(first.high) + 1


def _shrunk(degrees: Floats, noise: float, edges: float) -> Floats:
    """Towards their mean by the share of their variance that is noise, none negative, summing to twice the edges."""
    mean = 2 * edges / len(degrees)
    spread = float(np.mean((degrees - mean) ** 2))
    kept = max(0.0, 1 - noise**2 / spread) if spread > 0 else 0.0
    drawn = np.maximum(mean + kept * (degrees - mean), 0.0)
    total = float(drawn.sum())
    return drawn * (2 * edges / total) if total > 0 else np.full(len(degrees), mean)
