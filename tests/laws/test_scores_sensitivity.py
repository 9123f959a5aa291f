"""Every kind of ``Scores`` keeps its stated sensitivity under both neighbour relations, by brute force over small rows;
kinds that call themselves linear are; oracles that choose by noisy totals refuse the others before any charge.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dodona.concepts.boxes import Thresholds
from dodona.concepts.concept import Agreement, Finite, Learnable
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.databases import Databases, Misfits
from dodona.concepts.grid import Grid, Misfit
from dodona.concepts.parities import Parities
from dodona.concepts.trees import DecisionLists, Trees
from dodona.engines.table import Table
from dodona.errors import Unsupported
from dodona.oracles.fronts import GatedScores, Shifted
from dodona.oracles.local import Local
from dodona.oracles.view import Seen, narrowed
from dodona.query.candidates import Scores
from dodona.query.plan import compile_query
from dodona.query.schema import Flag, Integer, Schema
from dodona.query.statistic import as_expr
from dodona.release.conjunctions import conjunctions
from dodona.synopses.domain import Domain
from dodona.testing.reference import reference_totals

SCHEMA = Schema({"a": Flag(), "b": Flag(), "x": Integer(0, 2), "y": Flag()})
ROWS = [
    dict(zip(SCHEMA, values, strict=True))
    for values in itertools.product((None, True, False), (True, False), (None, 0, 2), (None, True, False))
]
TARGET = as_expr("y")
CLASS = Finite.of(["a", "x >= 1", "a AND NOT b", "b OR y"])
GRID = Grid.of(SCHEMA, ["a", "b", "y"], None)
PAIRS = ((0, 1), (0, 2), (1, 2))
COLUMNS = {"a": np.array([True]), "b": np.array([False]), "x": np.array([1]), "y": np.array([True])}


def agreement(concepts: Learnable) -> Scores:
    return Agreement(concepts, TARGET)


def misfit() -> Misfit:
    rng = np.random.default_rng(0)
    cells = sum(GRID.size(support) for support in PAIRS)
    return Misfit(GRID, PAIRS, rng.integers(0, 3, cells), rng.integers(0, 2, len(PAIRS)))


def databases() -> Databases:
    return Databases(CLASS, Domain.of(SCHEMA, ["a", "b", "x", "y"], None).truths(CLASS), 2, 5)


def seen(scores: Scores) -> Seen:
    view = narrowed(Local(Table(COLUMNS, SCHEMA), 1), ("a", "b", "x", "y"))
    return Seen(scores, view.schema, view)


def shifted(scores: Scores) -> Shifted:
    plan = compile_query(scores.statistics(SCHEMA), SCHEMA, level=True)
    return Shifted(scores, np.random.default_rng(1).integers(-3, 4, plan.dimension))


KINDS: dict[str, Scores] = {
    "thresholds": agreement(Thresholds("x", (0.5, 1.5))),
    "conjunctions": agreement(Conjunctions.over(["a", "b"], 2)),
    "parities": agreement(Parities.over(["a", "b"], 2)),
    "trees": agreement(Trees.over(["a", "b"], 2)),
    "lists": agreement(DecisionLists.over(["a", "b"], 2)),
    "misfit": misfit(),
    "databases": databases(),
    "misfits": Misfits(CLASS, np.array([0, 3, 1, 2])),
    "shifted": shifted(agreement(Conjunctions.over(["a", "b"], 2))),
    "shifted misfit": shifted(misfit()),
    "gated": GatedScores(agreement(Conjunctions.over(["a", "b"], 2)), as_expr("x >= 1")),
    "gated misfit": GatedScores(misfit(), as_expr("x >= 1")),
    "gated databases": GatedScores(databases(), as_expr("x >= 1")),
    "seen": seen(agreement(Trees.over(["a", "b"], 2))),
    "seen misfits": seen(Misfits(CLASS, np.array([0, 3, 1, 2]))),
}
CROOKED = ("misfit", "databases", "shifted misfit", "gated misfit", "gated databases")


def rows_added(scores: Scores) -> NDArray[Any]:
    """What each possible row adds to the totals."""
    program = compile_query(scores.statistics(SCHEMA), SCHEMA, level=True).program
    found = {tuple(reference_totals(program, [row])) for row in ROWS}
    return np.array(sorted(found), dtype=np.int64)


def bases(added: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Totals of the empty table, of every single row, and of some larger tables."""
    rng = np.random.default_rng(2)
    yield np.zeros(added.shape[1], dtype=np.int64)
    yield from added
    for size in (2, 3, 6, 9):
        yield added[rng.integers(0, len(added), size)].sum(axis=0)


def moved(scores: Scores, neighbours: str) -> int:
    """The most that any score differs between neighbouring tables."""
    added, worst = rows_added(scores), 0
    for base in bases(added):
        alone = np.asarray(scores.tally(SCHEMA, base))
        with_one = np.stack([np.asarray(scores.tally(SCHEMA, base + row)) for row in added])
        if neighbours == "add-remove":
            worst = max(worst, int(np.abs(with_one - alone).max()))
        else:  # two tables that share the base and differ in one row
            worst = max(worst, int((with_one.max(axis=0) - with_one.min(axis=0)).max()))
    return worst


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("name", KINDS)
def test_no_row_moves_a_score_by_more_than_the_stated_sensitivity(name: str, neighbours: str) -> None:
    assert 1 <= moved(KINDS[name], neighbours) <= KINDS[name].sensitivity(neighbours)


def test_a_claim_that_is_too_small_is_caught() -> None:
    class Careless(Misfit):
        def sensitivity(self, neighbours: str) -> int:  # noqa: ARG002
            return 1

    careless = Careless(GRID, PAIRS, misfit().expected, misfit().penalties)
    assert moved(careless, "replace") > careless.sensitivity("replace")
    assert moved(careless, "add-remove") <= careless.sensitivity("add-remove")


def test_every_kind_there_is_was_checked() -> None:
    kinds = {kind for kind in Scores.__subclasses__() if kind.__module__.startswith("dodona.")}
    assert kinds == {type(scores) for scores in KINDS.values()}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_that_say_they_are_linear_are(name: str) -> None:
    scores, added = KINDS[name], rows_added(KINDS[name])
    assert scores.linear == (name not in CROOKED)
    rng = np.random.default_rng(3)
    straight = True
    for _ in range(40):
        u, v = rng.integers(-9, 10, (2, added.shape[1]))
        still = np.asarray(scores.tally(SCHEMA, np.zeros(added.shape[1], dtype=np.int64)))
        parts = [np.asarray(scores.tally(SCHEMA, np.asarray(w))) - still for w in (u, v, u + 2 * v)]
        straight = straight and bool(np.array_equal(parts[0] + 2 * parts[1], parts[2]))
    assert straight == scores.linear


@pytest.mark.parametrize("name", CROOKED)
def test_local_rows_refuse_crooked_scores_and_charge_nothing(name: str) -> None:
    local = Local(Table({n: np.repeat(v, 50) for n, v in COLUMNS.items()}, SCHEMA), 1)
    with pytest.raises(Unsupported, match="linear"):
        local.select(KINDS[name], share=1)
    assert local.left == 1
    assert local.select(KINDS["misfits"], share=1).index >= 0


def test_public_constants_are_no_part_of_a_local_margin() -> None:
    table = Table({n: np.repeat(v, 400) for n, v in COLUMNS.items()}, SCHEMA)
    near, far = (Local(table, 1).select(Misfits(CLASS, np.full(4, size)), share=1).margin for size in (0, 1_000_000))
    assert near == pytest.approx(far)


def test_conjunctions_of_local_rows_are_released_without_a_choice() -> None:
    rng = np.random.default_rng(0)
    flags = Schema({f"f{i}": Flag() for i in range(5)})
    table = Table({name: rng.random(3000) < 0.3 for name in flags}, flags)
    local = Local(table, 1)
    with pytest.raises(Unsupported):
        conjunctions(local, width=3, share=1, method="adaptive")
    assert local.left == 1
    assert conjunctions(local, width=3, share=1).header.notes["method"] != "adaptive"
