"""All cuts of a private graph, published once (Gupta, Hardt, Roth and Ullman 2011, appendix C); edges are protected.

``cuts(curator, share=1)`` on a curator over ``dodona.graphs.edge_table(graph)``. Appendix C decomposes by the vertices
of high degree, of which there are at most 2/alpha, and answers each piece by its mean: the expected cut given what is
known of the degrees. Here the number of edges m is asked first. Where it says that the budget suffices, the degrees of
ALL vertices are asked (one edge touches two counts, so they cost as two) and the edges between public blocks of
vertices (one count each, so they cost as one); otherwise the blocks alone. The expected cut given these follows from
volumes: the same idea with every vertex a piece of its own, in time and space linear in the vertices
(``graph_estimates.py``). The tree itself is ``release.submodular(oracle, CutFunction(...))``, for small graphs.

When degrees are worth asking was set by looking at two graphs (docs/conjunctions.md): m over the noise of a count is
at least ``MANY``, and the mean degree is not below a third of the noise of a degree.
"""

from __future__ import annotations

import math

import numpy as np

from dodona.answer import Bill
from dodona.errors import BadQuery
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Integer
from dodona.query.statistic import Partition, Query, Stack, Value
from dodona.release.graph_estimates import Noisy, degrees_of, edges_of, table_of
from dodona.release.portion import Portion, combined
from dodona.synopses.base import Header, Synopsis
from dodona.synopses.degrees import Degrees

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
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> Synopsis:
    """The synopsis: ``synopsis.body.cut(vertices)`` for any set. ``tail``, ``head``: the columns of an edge's ends."""
    portion, vertices = Portion.of(share, epsilon, rho), _vertices(oracle, tail, head)
    counted = oracle.ask(Value(Literal(1.0)), **portion.part(COUNTED))
    count = Noisy(np.asarray(counted.total, dtype=np.float64), float(np.asarray(counted.spread)))
    worth = _worth_asking(oracle, tail, head, portion, vertices, count)
    wanted = min(BLOCKS if worth else BLOCKS_ALONE, vertices)
    span = math.ceil(vertices / wanted)
    blocks = math.ceil(vertices / span)
    asked = oracle.ask(_between(tail, head, span), **portion.part(1 - COUNTED - (ENDS if worth else 0.0)))
    pairs, noises = (np.asarray(x, dtype=np.float64)[:blocks, :blocks] for x in (asked.total, asked.spread))
    between = Noisy(np.asarray(np.triu(pairs), dtype=np.float64), float(noises.max()))  # below it is only noise
    edges, bills = edges_of(count, between), [counted.cost, asked.cost]
    if worth:
        ends, bill = _degrees(oracle, tail, head, portion, vertices)
        bills.append(bill)
        sums = np.bincount(np.arange(vertices) // span, weights=ends.values, minlength=blocks).astype(np.float64)
        table, volumes = table_of(between, Noisy(sums, ends.noise * math.sqrt(span)), edges)
        degrees = degrees_of(ends, volumes, span, bill.unit == "epsilon")
    else:
        table, volumes = table_of(between, None, edges)
        block = np.arange(vertices) // span
        degrees = (volumes / np.bincount(block))[block]
        ends = Noisy(degrees, _UNSEEN * 2 * edges / vertices)
    cells = blocks * (blocks + 1) / 2
    edges_noise = 1 / math.sqrt(1 / max(count.noise, 1e-9) ** 2 + 1 / max(cells * between.noise**2, 1e-18))
    body = Degrees(degrees, table, span, ends.noise, edges_noise, between.noise)
    typical = math.hypot(math.sqrt(edges) / 2, edges_noise / 2)
    about = f"cuts of a graph of {vertices:,} vertices"
    accuracy = f"a cut into random halves is off by about {math.sqrt(2 / math.pi) * typical:.4g} edges of {edges:.0f}"
    words = "degrees and blocks" if worth else "blocks"
    return Synopsis(Header(oracle.name, about, accuracy, words, oracle.schema, oracle.rows, combined(bills)), body)


def _worth_asking(oracle: Oracle, tail: str, head: str, portion: Portion, vertices: int, count: Noisy) -> bool:
    """Whether degrees are: by the noisy number of edges and by noise that is known beforehand."""
    spreads = oracle.price(_ends(tail, head, vertices), **portion.part(ENDS)).spread
    degree = math.sqrt(2) * float(np.max(spreads))
    mean, whole = 2 * float(count.values) / vertices, count.noise * COUNTED  # noise of a count with the whole budget
    return bool(degree <= FAINT * mean and float(count.values) >= MANY * whole)


def _degrees(oracle: Oracle, tail: str, head: str, portion: Portion, vertices: int) -> tuple[Noisy, Bill]:
    ends = oracle.ask(_ends(tail, head, vertices), **portion.part(ENDS))
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
