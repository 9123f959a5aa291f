"""Graphs as tables of edges, and all their cuts published: inputs, refusals, size, and error against simple rivals."""

from __future__ import annotations

import numpy as np
import pytest

from dodona.engines.table import Table
from dodona.errors import BadQuery, BadTable, Unsupported
from dodona.graphs import distinct_edges, edge_table, read_pairs, vertex_numbers
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.release import cuts
from dodona.release.cuts import Noisy, posterior_means, shrunk
from dodona.synopses import load
from dodona.testing.oracles import conformance_table, seeded_curator

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


def test_networkx_graphs_and_their_labels() -> None:
    nx = pytest.importorskip("networkx")
    named = nx.Graph([("z", "y"), ("x", "y")])
    assert vertex_numbers(named) == {"x": 0, "y": 1, "z": 2}  # not the order in which edges brought them
    assert float(Exact(edge_table(named)).ask("(u IN (1)) <> (v IN (1))").total) == 2
    mixed = nx.Graph([(1, "a"), ("a", 0.5)])
    assert set(vertex_numbers(mixed).values()) == {0, 1, 2}
    assert float(Exact(edge_table(mixed)).ask("TRUE").total) == 2
    arrows = nx.DiGraph([("b", "a"), ("c", "b")])
    assert float(Exact(edge_table(arrows)).ask("u < v").total) == 2
    families = nx.florentine_families_graph()
    synopsis = cuts(Exact(edge_table(families)))
    numbers = vertex_numbers(families)
    for members in ({"Medici"}, {"Medici", "Albizzi", "Ginori"}):
        cut = synopsis.body.cut({numbers[name] for name in members})  # type: ignore[attr-defined]
        assert 1 <= cut <= nx.number_of_edges(families)
    one = synopsis.body.cut({numbers["Medici"]})  # type: ignore[attr-defined]
    assert one == pytest.approx(families.degree("Medici"), rel=0.35)


def test_networkx_graphs_that_are_no_simple_graphs_are_refused() -> None:
    nx = pytest.importorskip("networkx")
    for graph, words in (
        (nx.Graph([("a", "b"), ("b", "b")]), "self-loops"),
        (nx.MultiGraph([("a", "b"), ("a", "b")]), "stand once"),
        (nx.DiGraph([("a", "b"), ("b", "a")]), "stand once"),
        (nx.Graph([("a", "b", {"weight": 2.5})]), "weights"),
        (nx.empty_graph(1), "two vertices"),
        (nx.Graph(), "two vertices"),
    ):
        with pytest.raises(BadTable, match=words):
            edge_table(graph)
    ones = nx.Graph([("a", "b", {"weight": 1}), ("b", "c")])
    assert float(Exact(edge_table(ones)).ask("TRUE").total) == 2
    simple = nx.Graph(nx.MultiGraph([("a", "b"), ("a", "b"), ("c", "b")]))
    assert float(Exact(edge_table(simple)).ask("TRUE").total) == 2


def test_matrices_with_weights_are_refused_and_stored_zeros_are_no_edges() -> None:
    from scipy.sparse import coo_array

    ends = ([0, 1, 1, 2], [1, 0, 2, 1])
    assert float(Exact(edge_table(coo_array(([1, 1, 0, 0], ends), (3, 3)))).ask("TRUE").total) == 1
    with pytest.raises(BadTable, match="weights"):
        edge_table(coo_array(([1, 1, 7, 7], ends), (3, 3)))


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


def test_small_budgets_go_to_blocks_alone_and_margins_still_hold() -> None:
    rng = np.random.default_rng(3)
    pairs = communities(600, rng)
    inside, spent = [], 0.0
    for seed in range(4):
        curator = seeded_curator(edge_table(pairs, vertices=600), Budget(epsilon="0.1"), seed)
        synopsis = cuts(curator, share=1)
        assert synopsis.header.method == "blocks"
        assert curator.left == pytest.approx(0, abs=1e-6)
        spent += synopsis.header.cost.amount
        for _ in range(50):
            members = rng.random(600) < rng.random()
            true = float((members[pairs[:, 0]] != members[pairs[:, 1]]).sum())
            off = abs(synopsis.body.cut(members) - true)  # type: ignore[attr-defined]
            inside.append(off <= 2 * synopsis.body.deviation(members))  # type: ignore[attr-defined]
    assert np.mean(inside) > 0.85
    assert spent == pytest.approx(0.4, rel=1e-3)


def test_which_end_is_the_tail_does_not_matter() -> None:
    rng = np.random.default_rng(4)
    pairs = communities(300, rng)
    flipped = np.where(rng.random((len(pairs), 1)) < 0.5, pairs, pairs[:, ::-1])
    schema = edge_table(pairs, vertices=300).schema
    held = [
        Table({"u": ends[:, 0], "v": ends[:, 1]}, schema, neighbours="add-remove", name="edges")
        for ends in (pairs, flipped)
    ]
    first, second = (cuts(Exact(table)).body for table in held)
    members = rng.random(300) < 0.3
    assert first.cut(members) == pytest.approx(second.cut(members))  # type: ignore[attr-defined]


def test_a_whole_block_alone_is_exact_without_noise() -> None:
    rng = np.random.default_rng(5)
    pairs = communities(320, rng)
    body = cuts(Exact(edge_table(pairs, vertices=320))).body
    members = np.arange(320) < 5 * body.span  # type: ignore[attr-defined]
    true = float((members[pairs[:, 0]] != members[pairs[:, 1]]).sum())
    assert body.cut(members) == pytest.approx(true)  # type: ignore[attr-defined]


def test_noise_is_taken_out_of_matrices_and_degrees() -> None:
    rng = np.random.default_rng(6)
    sides = np.sign(rng.normal(size=20))
    truth = 40 * np.outer(sides, sides)
    noise = rng.normal(0, 10, (20, 20))
    noisy = truth + np.triu(noise) + np.triu(noise, 1).T
    assert np.abs(shrunk(noisy, 10) - truth).mean() < 0.5 * np.abs(noisy - truth).mean()
    np.testing.assert_allclose(shrunk(truth, 0.0), truth, atol=1e-9)
    assert np.abs(shrunk(noisy - truth, 10)).mean() < 2
    degrees = np.where(rng.random(5000) < 0.05, 80.0, 3.0)
    shown = degrees + rng.laplace(0, 5, 5000) + rng.laplace(0, 5, 5000)
    means = posterior_means(Noisy(shown, 10.0), heavy=True)
    assert np.sqrt(np.mean((means - degrees) ** 2)) < 0.35 * 10
    assert means.min() >= 0
    np.testing.assert_array_equal(posterior_means(Noisy(degrees, 0.1), heavy=True), degrees)


def test_many_vertices() -> None:
    rng = np.random.default_rng(1)
    vertices = 100_000
    pairs = distinct_edges(rng.integers(0, vertices, (200_000, 2)))
    curator = seeded_curator(edge_table(pairs, vertices=vertices), Budget(epsilon=1), 5)
    synopsis = cuts(curator, share=1)
    assert synopsis.header.method == "degrees and blocks"
    members = rng.random(vertices) < 0.5
    true = float((members[pairs[:, 0]] != members[pairs[:, 1]]).sum())
    assert synopsis.body.cut(members) == pytest.approx(true, abs=1500)  # type: ignore[attr-defined]


def test_files_say_what_is_wrong(tmp_path: object) -> None:
    file = f"{tmp_path}/bad.txt"
    with open(file, "w") as out:
        out.write("0 1\n0 x\n")
    with pytest.raises(BadTable, match="two whole numbers"):
        read_pairs(file)
