"""Graphs as tables of edges, and all their cuts published: inputs, refusals, size, and error against simple rivals."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dodona.errors import BadQuery, BadTable, Unsupported
from dodona.graphs import distinct_edges, edge_table, read_pairs
from dodona.privacy.budget import Budget
from dodona.release import cuts
from dodona.synopses.file import load
from dodona.testing.oracles import conformance_table, seeded_curator
from dodona.trust.exact import Exact

PAIRS = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]


def test_accepted_inputs_give_the_same_table(tmp_path: object) -> None:
    from scipy.sparse import coo_array

    file = f"{tmp_path}/graph.txt"
    with open(file, "w") as out:
        out.write("# a comment\n" + "\n".join(f"{a} {b}" for a, b in PAIRS))
    matrix = coo_array(
        (np.ones(10), ([a for a, b in PAIRS] + [b for a, b in PAIRS], [b for a, b in PAIRS] + [a for a, b in PAIRS])),
        (4, 4),
    )
    for table in (edge_table(PAIRS, vertices=4), edge_table(file, vertices=4), edge_table(matrix.tocsr())):
        assert float(Exact(table).ask("TRUE").total) == 5
        assert float(Exact(table).ask("(u IN (0)) <> (v IN (0))").total) == 3
        assert table.neighbours == "add-remove"


class Graph:
    """As much of a NetworkX graph as is used."""

    def nodes(self) -> list[str]:
        return ["x", "y", "z"]

    def edges(self) -> list[tuple[str, str]]:
        return [("x", "y"), ("z", "y")]

    def number_of_nodes(self) -> int:
        return 3


def test_networkx_nodes_are_numbered_in_order() -> None:
    assert float(Exact(edge_table(Graph())).ask("(u IN (1)) <> (v IN (1))").total) == 2


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([(0, 0)], "self-loops"),
        ([(0, 1), (1, 0)], "stand once"),
        ([(0, 1), (0, 1)], "stand once"),
        ([(0, 9)], "0 to 3"),
        ([(-1, 2)], "0 to 3"),
        ([(0, 1, 2)], "pairs"),
        ([(0.5, 1.0)], "whole numbers"),
    ],
)
def test_bad_graphs_are_refused(pairs: list[tuple[float, ...]], words: str) -> None:
    with pytest.raises(BadTable, match=words):
        edge_table(pairs, vertices=4)


def test_vertices_are_public_and_stated() -> None:
    with pytest.raises(BadTable, match="vertices="):
        edge_table(PAIRS)
    assert distinct_edges([(1, 0), (0, 1), (2, 2), (1, 2)]).tolist() == [[0, 1], [1, 2]]
    with pytest.raises(BadQuery, match="edge_table"):
        cuts(Exact(conformance_table(10)), tail="age", head="sex")


def communities(vertices: int, rng: np.random.Generator) -> np.ndarray:  # type: ignore[type-arg]
    """Heavy-tailed degrees, two communities by number."""
    weights = 1 / np.sqrt(1 + rng.permutation(vertices))
    ends = rng.choice(vertices, (12 * vertices, 2), p=weights / weights.sum())
    side = ends < vertices // 2
    return distinct_edges(ends[(side[:, 0] == side[:, 1]) | (rng.random(len(ends)) < 0.1)])


def test_ahead_of_simple_rivals_and_within_its_margins(tmp_path: object) -> None:
    rng = np.random.default_rng(0)
    vertices, epsilon = 1000, 1.0
    pairs = communities(vertices, rng)
    curator = seeded_curator(edge_table(pairs, vertices=vertices), Budget(epsilon=epsilon), 4)
    synopsis = cuts(curator, share=1)
    assert curator.left == pytest.approx(0, abs=1e-6)
    errors: dict[str, list[float]] = {"ours": [], "blocks": [], "adjacency": []}
    block = np.arange(vertices) * 12 // vertices
    counts = np.zeros((12, 12))
    np.add.at(counts, (block[pairs[:, 0]], block[pairs[:, 1]]), 1)
    counts += np.triu(rng.laplace(0, 1 / epsilon, (12, 12)))  # edges run from the smaller number to the larger
    inside = []
    for _ in range(100):
        members = rng.random(vertices) < rng.random()
        true = float((members[pairs[:, 0]] != members[pairs[:, 1]]).sum())
        share = np.bincount(block, weights=members) / np.bincount(block)
        errors["ours"].append(abs(synopsis.body.cut(members) - true))  # type: ignore[attr-defined]
        chance = np.add.outer(share, share) - 2 * np.outer(share, share)
        errors["blocks"].append(abs(float((counts * chance).sum()) - true))
        errors["adjacency"].append(abs(rng.laplace(0, 1 / epsilon, int(members.sum() * (~members).sum())).sum()))
        inside.append(errors["ours"][-1] <= 2 * synopsis.body.deviation(members))  # type: ignore[attr-defined]
    assert np.mean(errors["ours"]) < np.mean(errors["blocks"])
    assert np.mean(errors["ours"]) < np.mean(errors["adjacency"])
    assert np.mean(inside) > 0.85
    synopsis.save(f"{tmp_path}/g.synopsis")
    again = load(f"{tmp_path}/g.synopsis")
    asked = again.ask("(u IN (0, 1, 2)) <> (v IN (0, 1, 2))")
    assert float(asked.total) == pytest.approx(synopsis.body.cut({0, 1, 2}))  # type: ignore[attr-defined]
    with pytest.raises(Unsupported, match="cuts"):
        again.ask("u")


def test_many_vertices() -> None:
    rng = np.random.default_rng(1)
    vertices = 100_000
    pairs = distinct_edges(rng.integers(0, vertices, (200_000, 2)))
    curator = seeded_curator(edge_table(pairs, vertices=vertices), Budget(epsilon=1), 5)
    started = time.perf_counter()
    synopsis = cuts(curator, share=1)
    assert time.perf_counter() - started < 30
    members = rng.random(vertices) < 0.5
    true = float((members[pairs[:, 0]] != members[pairs[:, 1]]).sum())
    assert synopsis.body.cut(members) == pytest.approx(true, abs=1500)  # type: ignore[attr-defined]


def test_files_say_what_is_wrong(tmp_path: object) -> None:
    file = f"{tmp_path}/bad.txt"
    with open(file, "w") as out:
        out.write("0 1\n0 x\n")
    with pytest.raises(BadTable, match="two whole numbers"):
        read_pairs(file)
