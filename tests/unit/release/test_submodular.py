"""Algorithm 1: the tree replays from recorded answers, pieces are Lipschitz, and non-submodular f is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dodona.bounds.releases import submodular_release
from dodona.concepts.set_functions import CutFunction, Disjunctions, OwnFunction
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.expr import Call, Column, Literal
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.release import conjunctions, submodular
from dodona.synopses import load
from dodona.synopses.set_functions import Tree
from dodona.testing.oracles import seeded_curator

NAMES = tuple("abcdef")
SCHEMA = Schema({name: Flag(missing=False) for name in NAMES})


def bits(rows: int) -> NDArray[np.bool_]:
    return np.asarray(np.random.default_rng(0).random((rows, 6)) < [0.5, 0.4, 0.3, 0.2, 0.1, 0.05])


def table(rows: int = 3000) -> Table:
    return Table({name: bits(rows)[:, i] for i, name in enumerate(NAMES)}, SCHEMA, name="t")


def sets(function: Disjunctions) -> list[tuple[int, ...]]:
    widths = [function.width] if function.width else range(7)
    every = [s for w in widths for s in itertools.combinations(range(function.elements), w)]
    return [s for s in every if len({function.places[i] for i in s}) == len(s)]


@pytest.mark.parametrize(("width", "both"), [(None, False), (3, False), (2, True), (None, True)])
def test_the_mean_of_a_piece_is_the_mean_over_its_sets(width: int | None, both: bool) -> None:
    """The closed form of a row, summed, against listing every set."""
    truth = Exact(table(400))
    function = Disjunctions.of(SCHEMA, NAMES[:5], width, both=both)
    for chosen, left_out in (
        (frozenset(), frozenset()),
        (frozenset({1}), frozenset({0})),
        (frozenset({3}), frozenset({0, 5})),
    ):
        without = left_out if both else left_out & set(range(5))
        wanted = [
            s
            for s in sets(function)
            if chosen <= set(s) and not without & set(s) and (width is None or len(s) == width)
        ]
        # Each place is empty or one of its allowed elements, all alike: every such set is as likely as the others.
        exact = np.mean([float(truth.ask(function.value(frozenset(s))).mean) for s in wanted])
        assert float(truth.ask(function.mean(chosen, without)).mean) == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("both", [False, True])
def test_exact_decomposition_is_lipschitz_on_what_is_led_to_it(both: bool) -> None:
    """Claim 3.2 where it holds: adding an element moves f by at most gamma while the piece stays the same."""
    truth, gamma = Exact(table()), 0.15
    function = Disjunctions.of(SCHEMA, NAMES, both=both)
    tree = submodular(truth, function, gamma=gamma, pieces=2000).body
    assert isinstance(tree, Tree)
    values = {s: float(truth.ask(function.value(frozenset(s))).mean) for s in sets(function)}
    for s, x in itertools.product(values, range(function.elements)):
        bigger = tuple(sorted({*s, x}))
        if bigger in values and len(bigger) > len(s) and tree.piece_of(s) == tree.piece_of(bigger):
            assert values[bigger] - values[s] <= gamma + 1e-9
    pieces = {s: tree.pieces[tree.piece_of(s)][0] for s in values}
    assert all(piece <= set(s) for s, piece in pieces.items())


def test_beats_the_mean_and_replays_from_the_file(tmp_path: object) -> None:
    held = table(400_000)
    truth, function = Exact(held), Disjunctions.of(SCHEMA, NAMES, 3, both=True)
    curator = seeded_curator(held, Budget(epsilon=1), 2)
    synopsis = submodular(curator, function, gamma=0.2, pieces=80, share=1)
    assert curator.left < 1
    exact = np.array([float(truth.ask(function.value(frozenset(s))).mean) for s in sets(function)])
    released = np.array([synopsis.body.value(s) for s in sets(function)])  # type: ignore[attr-defined]
    assert np.abs(released - exact).mean() < 0.6 * np.abs(exact - exact.mean()).mean()
    left = curator.left
    synopsis.save(f"{tmp_path}/tree.synopsis")
    again = load(f"{tmp_path}/tree.synopsis")
    assert [again.body.value(s) for s in sets(function)] == released.tolist()  # type: ignore[attr-defined]
    assert curator.left == left
    assert float(again.ask("a AND NOT b AND c").mean) == pytest.approx(1 - again.body.value({1, 2, 5}))  # type: ignore[attr-defined]
    assert float(again.ask("a OR NOT b OR c").mean) == pytest.approx(again.body.value({0, 3, 4}))  # type: ignore[attr-defined]
    with pytest.raises(Unsupported, match="one at a time"):
        again.ask("a AND (b OR c)")


def test_says_where_the_theorem_is_vacuous() -> None:
    synopsis = conjunctions(Exact(table()), width=3, method="submodular")
    assert "vacuous" in synopsis.header.accuracy
    assert "every subset" in synopsis.header.accuracy


def test_cuts_are_not_monotone_and_go_both_ways() -> None:
    rng = np.random.default_rng(1)
    pairs = np.array([(i, j) for i in range(6) for j in range(i) if rng.random() < 0.6 or j == 0])
    column = Integer(0, 5, missing=0)
    truth = Exact(Table({"u": pairs[:, 1], "v": pairs[:, 0]}, Schema({"u": column, "v": column}), name="g"))
    function = CutFunction("u", "v", 6)
    tree = submodular(truth, function, gamma=0.12, pieces=3000).body
    every = [s for w in range(7) for s in itertools.combinations(range(6), w)]
    exact = np.array([float(truth.ask(function.value(frozenset(s))).mean) for s in every])
    released = np.array([tree.value(s) for s in every])  # type: ignore[attr-defined]
    assert np.abs(released - exact).mean() < 0.6 * np.abs(exact - exact.mean()).mean()
    assert any(left_out for _, left_out in tree.pieces)  # type: ignore[attr-defined]


def test_what_is_not_submodular_is_refused_on_the_answers_seen() -> None:
    square = OwnFunction(4, lambda s: Literal(len(s) ** 2 / 16))
    with pytest.raises(BadQuery, match="submodular"):
        submodular(Exact(table(100)), square, gamma=0.05)
    noisy = seeded_curator(table(200_000), Budget(epsilon=10), 1)
    with pytest.raises(BadQuery, match="noise does not explain"):
        submodular(noisy, square, gamma=0.05, pieces=20, share=1)


def test_a_users_own_function() -> None:
    def covered(members: frozenset[int]) -> Call | Literal:
        tests = tuple(Column(NAMES[i]) for i in sorted(members))
        return Call("or", tests) if tests else Literal(False)

    truth = Exact(table())
    own = submodular(truth, OwnFunction(6, covered, monotone=True), gamma=0.2, pieces=500)
    listed = submodular(truth, Disjunctions.of(SCHEMA, NAMES), gamma=0.2, pieces=500)
    assert own.body.pieces == listed.body.pieces  # type: ignore[attr-defined]
    # Means over 64 sampled sets instead of all: close.
    np.testing.assert_allclose(own.body.means, listed.body.means, atol=0.12)  # type: ignore[attr-defined]


def test_bad_input() -> None:
    schema = Schema({"x": Real(0, 1), "c": Category("u", "v"), "f": Flag()})
    with pytest.raises(BadQuery, match="Bucket a number first"):
        Disjunctions.of(schema, ["x"])
    with pytest.raises(BadQuery, match="state a condition"):
        Disjunctions.of(schema, ["c"])
    with pytest.raises(BadQuery, match="width must be"):
        Disjunctions.of(schema, ["f"], 2)
    function = Disjunctions.of(SCHEMA, NAMES)
    with pytest.raises(BadEffort, match="alpha"):
        submodular(Exact(table(10)), function, alpha=2)
    with pytest.raises(BadQuery, match="pieces"):
        submodular(Exact(table(10)), function, pieces=0)
    tree = submodular(Exact(table(10)), function).body
    with pytest.raises(BadQuery, match="elements 0 to 5"):
        tree.value({9})  # type: ignore[attr-defined]


def _errors(synopsis: object, function: Disjunctions, truth: Exact) -> np.ndarray:
    exact = [float(truth.ask(function.value(frozenset(s))).mean) for s in sets(function)]
    return np.array([synopsis.body.value(s) for s in sets(function)]) - exact  # type: ignore[attr-defined]


@pytest.mark.parametrize("settings", [{}, {"gamma": 0.05}, {"gamma": 0.2, "pieces": 80}])
def test_under_strong_noise_a_finer_tree_is_no_worse_than_the_mean_and_its_margins_know_it(
    settings: dict[str, float],
) -> None:
    held = table(3000)
    truth, function = Exact(held), Disjunctions.of(SCHEMA, NAMES, 2, both=True)
    exact = submodular(truth, function, pieces=1)
    mean = np.abs(_errors(exact, function, truth)).mean()
    synopsis = submodular(seeded_curator(held, Budget(epsilon=0.2), 1), function, share=1, **settings)  # type: ignore[arg-type]
    off = np.abs(_errors(synopsis, function, truth))
    assert off.mean() < 1.2 * mean
    margins = np.array([synopsis.body.margin(s, 0.95) for s in sets(function)])  # type: ignore[attr-defined]
    assert np.mean(off <= margins) >= 0.95
    without = submodular(truth, function).body.deviations  # type: ignore[attr-defined]
    assert synopsis.body.deviations.min() > 2 * without.mean()  # type: ignore[attr-defined]
    if "pieces" in settings:
        assert "raised from 0.2" in synopsis.header.accuracy


def test_the_planner_asks_for_a_quarter_of_the_gain_and_not_of_the_error() -> None:
    verdict = submodular_release(4, 0.9, 0.9, epsilon=1, monotone=True)
    gamma = verdict.details["gamma"]
    assert verdict.details["tolerance"] == pytest.approx(gamma / 4)
    queries = min(4 ** (2 / gamma), 2**4) * 5
    assert verdict.details["log10_rows"] == pytest.approx(
        np.log10(queries * np.log(queries / 0.9) / (gamma / 4)), rel=1e-6
    )


def test_a_conjunction_is_taken_from_the_rows_that_count(tmp_path: Path) -> None:
    """Where rows come and go the public number is a guess: here of twice as many as there are."""
    held = Table(
        {name: bits(400)[:, i] for i, name in enumerate(NAMES)}, SCHEMA, neighbours="add-remove", rows=800, name="t"
    )
    curator = seeded_curator(held, Budget(epsilon=4000), 1)
    synopsis = submodular(curator, Disjunctions.of(SCHEMA, "abc", 2, both=True), share=1)
    synopsis.save(tmp_path / "tree.synopsis")
    for one in (synopsis, load(tmp_path / "tree.synopsis")):
        for question in ("NOT a AND NOT b", "a AND c", "TRUE"):
            answer = one.ask(question)
            assert abs(float(answer.total) - float(Exact(held).ask(question).total)) <= float(answer.margin) + 1
        assert float(one.ask("TRUE").total) == pytest.approx(400, abs=2)
        assert float(one.ask("TRUE").margin) > 0
