"""A graph as a table of its edges, for edge privacy: one row per undirected edge, its ends as vertex numbers.

Neighbouring graphs differ in one edge (``add-remove``), so a curator over this table protects each edge; the set of
vertices is public. Accepted: a text file of "u v" lines (# and % start comments), an array or list of pairs, a SciPy
sparse matrix, or a NetworkX graph. Self-loops, repeated edges and weights are refused: who holds the graph settles them
first. The nodes of a NetworkX graph are numbered in sorted order (``vertex_numbers``): the order in which they stand in
it is most often that of its edges, which is private.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.errors import BadTable
from dodona.query.schema import Integer, Schema

TAIL, HEAD = "u", "v"


def edge_table(graph: Any, *, vertices: int | None = None, name: str = "edges", rows: int | None = None) -> Table:
    """The table of a graph's edges. ``vertices``: how many there are, numbered from 0; needed for files and pairs.

    ``rows``: the publicly known number of edges, if there is one; the true one is private.
    """
    pairs, count = _pairs(graph, vertices)
    if count < 2:
        raise BadTable(f"a graph must have at least two vertices, or it has no cut. Got {count}.")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= count):
        raise BadTable(
            f"the ends of edges must be whole numbers from 0 to {count - 1}: state vertices= as it is known."
        )
    if np.any(pairs[:, 0] == pairs[:, 1]):
        raise BadTable("a graph must have no self-loops: they are in no cut. Leave them out first.")
    low, high = pairs.min(axis=1, initial=count), pairs.max(axis=1, initial=-1)
    if len(np.unique(low * count + high)) < len(pairs):
        raise BadTable(
            "each edge must stand once, in one direction: one person's edge would count twice. Merge repeated edges "
            "first (distinct_edges does)."
        )
    schema = Schema({TAIL: Integer(0, count - 1, missing=0), HEAD: Integer(0, count - 1, missing=0)})
    return Table({TAIL: low, HEAD: high}, schema, neighbours="add-remove", rows=rows, name=name)


def distinct_edges(pairs: Any) -> NDArray[np.int64]:
    """The edges of a list of pairs, each once, smaller end first, without self-loops: for who holds the graph."""
    held = _as_pairs(pairs)
    ordered = np.sort(held[held[:, 0] != held[:, 1]], axis=1)
    return np.unique(ordered, axis=0)


def vertex_numbers(graph: Any) -> dict[Any, int]:
    """Which number ``edge_table`` gives to each node of a NetworkX graph: a function of the set of nodes alone."""
    nodes = list(graph.nodes())
    try:
        ordered = sorted(nodes)
    except TypeError:  # labels of several kinds
        ordered = sorted(nodes, key=lambda node: (type(node).__name__, repr(node)))
    return {node: number for number, node in enumerate(ordered)}


def read_pairs(path: str | os.PathLike[str]) -> NDArray[np.int64]:
    """The pairs of a text file, as they stand."""
    with open(path, encoding="utf-8") as file:
        lines = [line.replace(",", " ").split() for line in file if line.strip() and line[0] not in "#%"]
    try:
        return _as_pairs([(int(line[0]), int(line[1])) for line in lines])
    except (ValueError, IndexError):
        raise BadTable(f"{os.fspath(path)!r} must have two whole numbers on each line.") from None


def _pairs(graph: Any, vertices: int | None) -> tuple[NDArray[np.int64], int]:
    if hasattr(graph, "tocoo"):  # SciPy sparse: a symmetric matrix stands for each edge once
        matrix = graph.tocoo()
        _unweighted(matrix.data[matrix.data != 0])
        upper = (matrix.row <= matrix.col) & (matrix.data != 0)
        if matrix.shape[0] != matrix.shape[1] or (abs(graph - graph.T)).nnz:
            raise BadTable("the adjacency matrix of an undirected graph must be square and symmetric.")
        return np.stack([matrix.row[upper], matrix.col[upper]], axis=1).astype(np.int64), int(matrix.shape[0])
    if hasattr(graph, "edges") and hasattr(graph, "number_of_nodes"):  # NetworkX
        place = vertex_numbers(graph)
        _unweighted([weight for _, _, weight in graph.edges(data="weight", default=1)])
        return _as_pairs([(place[a], place[b]) for a, b in graph.edges()]), int(graph.number_of_nodes())
    if vertices is None:
        raise BadTable("vertices= must be stated: how many there are is public, and must not be read from the edges.")
    pairs = read_pairs(graph) if isinstance(graph, str | os.PathLike) else _as_pairs(graph)
    return pairs, vertices


def _unweighted(weights: Any) -> None:
    if any(weight != 1 for weight in weights):
        raise BadTable(
            "edges must have no weights but 1: a cut counts edges, and one of large weight would be worth more than "
            "noise hides. Leave the weights out first, where the number of edges is what you want to publish."
        )


def _as_pairs(pairs: Any) -> NDArray[np.int64]:
    held = np.asarray(pairs)
    if held.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if held.ndim != 2 or held.shape[1] != 2 or held.dtype.kind not in "iu":
        raise BadTable("edges must be a list of pairs of whole numbers.")
    return held.astype(np.int64)
