"""A synopsis answers its class, refuses the rest, and reads missing values as an oracle with rows does, or refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dodona import release
from dodona.concepts.boxes import Boxes as BoxClass
from dodona.concepts.concept import Finite
from dodona.concepts.conjunctions import Conjunctions
from dodona.engines.table import Table
from dodona.errors import Unsupported
from dodona.oracles.curator import Curator
from dodona.oracles.exact import Exact
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.budget import Budget
from dodona.query.plan import compile_query
from dodona.query.schema import Flag, Integer, Real, Schema
from dodona.query.statistic import Stack, as_expr, as_query
from dodona.query.unit import Unit
from dodona.release._ranges import CIRCLE, TOEPLITZ, Factorisation, Shape, consistent, shape_noise
from dodona.synopses import load
from dodona.synopses.boxes import Boxes
from dodona.synopses.halfspaces import Scaled
from dodona.synopses.noise import TreeNoise
from dodona.synopses.ranges import Axis, Ranges
from dodona.testing.oracles import seeded_curator

ROWS = 3000
NAMES = ("a", "b", "c")


def flags(missing: float = 0.0, default: bool | None = False) -> Table:
    """Three flags, b nearly always as a; a part of them missing."""
    rng = np.random.default_rng(3)
    a = rng.random(ROWS) < 0.5
    columns = {"a": a, "b": np.where(rng.random(ROWS) < 0.95, a, ~a), "c": rng.random(ROWS) < 0.3}
    held = {name: np.ma.array(own, mask=rng.random(ROWS) < missing) for name, own in columns.items()}
    return Table(held, Schema(dict.fromkeys(NAMES, Flag(missing=default))), name="t")


def numbers(missing: float = 0.0, default: float | None = 0) -> Table:
    rng = np.random.default_rng(4)
    x, y = (np.ma.array(rng.integers(0, 16, ROWS), mask=rng.random(ROWS) < missing) for _ in range(2))
    return Table({"x": x, "y": y}, Schema(dict.fromkeys("xy", Integer(0, 15, missing=default))), name="t")


def same(synopsis: Synopsis, exact: Oracle, questions: list[str]) -> None:
    """A synopsis made without noise says what the rows say."""
    asked = Stack(tuple(map(as_query, questions)))
    assert np.asarray(synopsis.ask(asked).total) == pytest.approx(np.asarray(exact.ask(asked).total), abs=1e-6)


# -- the class of a synthetic table ------------------------------------------------------------------------------------


def small(tmp_path: Path | None = None) -> Synopsis:
    made = release.small_database(
        seeded_curator(flags(), Budget(epsilon=1), 1), Finite.of(["a", "b", "a OR c"]), size=8, share=1
    )
    if tmp_path is None:
        return made
    made.save(tmp_path / "rows.synopsis")
    return load(tmp_path / "rows.synopsis")


@pytest.mark.parametrize("saved", [False, True], ids=["made", "loaded"])
@pytest.mark.parametrize(
    "outside", ["a AND b", "NOT a", "c", "SELECT AVG(a) FROM t", "SELECT COUNT(*) FROM t GROUP BY a"]
)
def test_a_synthetic_table_refuses_what_is_not_of_its_class(saved: bool, outside: str, tmp_path: Path) -> None:
    synopsis = small(tmp_path if saved else None)
    with pytest.raises(Unsupported, match="3 listed conditions"):
        synopsis.sql(outside) if outside.startswith("SELECT") else synopsis.ask(outside)


@pytest.mark.parametrize("inside", ["a", "A", "c OR a", "SELECT COUNT(*) FROM t WHERE a OR c"])
def test_a_synthetic_table_knows_its_members_however_they_are_written(inside: str, tmp_path: Path) -> None:
    synopsis = small(tmp_path)
    if inside.startswith("SELECT"):
        synopsis.sql(inside)
    else:
        assert "estimated" not in synopsis.ask(inside).cost.mechanism


def test_rows_of_a_synthetic_table_may_be_drawn() -> None:
    synopsis = small()
    drawn, own = synopsis.sample(800), synopsis.body.columns["a"]  # type: ignore[attr-defined]
    assert sorted(drawn) == ["a", "b", "c"][: len(drawn)]
    assert np.mean(drawn["a"]) == pytest.approx(np.mean(own), abs=0.01)


def test_a_curator_does_not_answer_from_a_table_of_another_class() -> None:
    curator = Curator(flags(), Budget(epsilon=1))
    curator.attach(small())
    free = curator.ask("a", tolerance=0.9)
    paid = curator.ask("a AND b", tolerance=0.9)
    assert (free.cost.amount, paid.cost.amount > 0) == (0.0, True)


def test_selection_over_rows_that_are_no_point_of_the_domain_proves_nothing() -> None:
    curator = seeded_curator(flags(0.5, None), Budget(epsilon=1), 1)
    synopsis = release.small_database(curator, Finite.of(["a", "b"]), size=3, share=1, method="selection")
    assert not synopsis.body.proven
    assert "estimated" in synopsis.ask("a").cost.mechanism
    with pytest.raises(Unsupported, match="estimated, not proven"):
        curator.attach(synopsis)


# -- of an arrangement and a tree --------------------------------------------------------------------------------------


def test_only_combinations_of_few_conditions_are_proven_by_an_arrangement() -> None:
    synopsis = release.arrangement(Exact(flags()), Conjunctions(NAMES, 1, ()), order=1)
    assert synopsis.proves(as_query("NOT a"))
    assert not synopsis.proves(as_query("a AND b AND c"))
    assert "estimated" in synopsis.ask("a AND b AND c").cost.mechanism
    curator = Curator(flags(), Budget(epsilon=1))
    curator.attach(synopsis)
    assert curator.ask("a AND b AND c", tolerance=0.99).cost.amount > 0
    assert curator.ask("a", tolerance=0.99).cost.amount == 0


def test_a_tree_answers_sets_of_its_own_width_only(tmp_path: Path) -> None:
    made = release.conjunctions(Exact(flags()), width=2, method="submodular")
    made.save(tmp_path / "tree.synopsis")
    for synopsis in (made, load(tmp_path / "tree.synopsis")):
        synopsis.ask("a AND b")
        for other in ("a", "a AND b AND c"):
            with pytest.raises(Unsupported, match="sets of 2 elements"):
                synopsis.ask(other)


# -- missing values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.6])
def test_an_arrangement_reads_missing_flags_as_rows_do(missing: float) -> None:
    table = flags(missing, None)
    synopsis = release.arrangement(Exact(table), Conjunctions(NAMES, 2, ()))
    same(synopsis, Exact(table), ["a", "NOT a", "a AND NOT b", "NOT (a AND b)", "NOT a OR NOT c", "NOT NOT a"])
    with pytest.raises(Unsupported, match="at most 2"):
        synopsis.ask("a IS NULL")


def test_an_arrangement_of_ranges_reads_missing_numbers_as_rows_do() -> None:
    table = numbers(0.4, None)
    synopsis = release.arrangement(Exact(table), BoxClass.over({"x": [4, 8, 12]}), order=2)
    same(synopsis, Exact(table), ["x >= 4", "NOT (x >= 4)", "NOT (x >= 8 AND x < 12)"])


def test_a_tree_does_not_take_not_a_for_the_rows_where_a_is_missing() -> None:
    synopsis = release.conjunctions(Exact(flags(0.5, None)), columns=NAMES, width=1, method="submodular")
    with pytest.raises(Unsupported, match="COALESCE"):
        synopsis.ask("NOT a")
    synopsis.ask("NOT COALESCE(a, FALSE)")


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_ranges_are_of_the_rows_where_the_column_is_known(missing: float) -> None:
    table = numbers(missing, None)
    synopsis = release.intervals(Exact(table), "x", method="tree")
    same(synopsis, Exact(table), ["x < 5", "NOT (x < 5)", "x IS NOT NULL", "x BETWEEN 2 AND 9"])
    for also in ("x IS NULL", "TRUE", "COALESCE(x, 0) < 5", "x < 5 OR x IS NULL"):
        with pytest.raises(Unsupported, match="missing="):
            synopsis.ask(also)


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_boxes_are_of_the_rows_where_all_columns_are_known(missing: float) -> None:
    table = numbers(missing, None)
    synopsis = release.boxes(Exact(table), ["x", "y"])
    same(synopsis, Exact(table), ["x < 5 AND y < 7", "NOT (x < 5) AND y >= 3", "x < 3 AND y IS NOT NULL"])
    for also in ("x < 5", "x < 5 OR y < 5", "y IS NULL"):
        with pytest.raises(Unsupported, match="missing="):
            synopsis.ask(also)


def test_stated_missing_values_are_in_every_range_and_box() -> None:
    table = numbers(0.5, 3)
    same(release.intervals(Exact(table), "x", method="tree"), Exact(table), ["x < 5", "TRUE", "NOT (x = 3)"])
    same(release.boxes(Exact(table), ["x", "y"]), Exact(table), ["x < 5", "x = 3 OR y = 3", "TRUE"])


def test_halfspaces_ask_for_what_a_missing_value_counts_as() -> None:
    scaled = Scaled.of(Schema({"r": Real(0, 4), "s": Real(0, 4, missing=1)}), ["r", "s"])
    for unsaid in ("r + s >= 3", "COALESCE(r, 0) + s >= 3", "COALESCE(r + s, 3) >= 3"):
        with pytest.raises(Unsupported, match=r"COALESCE\(r, 2\)"):
            scaled.read(as_expr(unsaid))
    length = math.sqrt(1 + 4 + 4)
    for said in ("COALESCE(r, 2) + s >= 3", "COALESCE(r - 2, 0) + s >= 1", "COALESCE(r, 2) + COALESCE(s, 0) >= 3"):
        assert scaled.read(as_expr(said)) == pytest.approx(np.array([1, 2, 2]) / length)
    own = scaled.condition(np.array([0.5, 0.5, 0.5]))  # as the probes were asked
    assert scaled.read(own) == pytest.approx(np.full(3, 1 / math.sqrt(3)))


@pytest.mark.parametrize("question", ["COALESCE(p, 0) > 0", "COALESCE(p, 0) >= 0", "COALESCE(q, 0) < -COALESCE(p, 0)"])
def test_missing_values_on_the_very_boundary_are_in_the_margin_of_a_halfspace(question: str) -> None:
    """Half of them are at one point, which clouds spread over both sides."""
    rng = np.random.default_rng(1)
    held = {name: np.ma.array(rng.uniform(-1, 1, 1500), mask=rng.random(1500) < 0.7) for name in "pq"}
    table = Table(held, Schema({"p": Real(-1, 1), "q": Real(-1, 1)}), name="t")
    answer = release.halfspaces(seeded_curator(table, Budget(epsilon=60), 1), ["p", "q"], probes=60, share=1).ask(
        question
    )
    off = abs(float(answer.total) - float(Exact(table).ask(question).total))
    assert 100 < off <= float(answer.margin) < 900


# -- cells that hold more than one number ------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["r < 0.37", "r BETWEEN 0.371 AND 0.372", "r", "r >= 1.99", "r = 1"])
def test_a_cell_that_a_question_cuts_is_in_its_margin(asked: str) -> None:
    rng = np.random.default_rng(7)
    table = Table(
        {"r": np.where(rng.random(ROWS) < 0.5, 0.3715, rng.uniform(0, 2, ROWS))}, Schema({"r": Real(0, 2, missing=0)})
    )
    synopsis = release.intervals(Exact(table), "r", bits=4, method="tree")
    answer, truth = synopsis.ask(asked), Exact(table).ask(asked)
    assert abs(float(answer.total) - float(truth.total)) <= float(answer.margin) + 1e-6


# -- how noise enters a total ------------------------------------------------------------------------------------------


def norms(cells_of: Callable[[np.ndarray], np.ndarray], sizes: list[int], deviations: list[float]) -> np.ndarray:
    """The deviation of some sums over cells, by sending each noise alone through the estimate."""
    ends, found = np.cumsum(sizes), []
    for place in range(ends[-1]):
        alone = np.zeros(ends[-1])
        alone[place] = deviations[int(np.searchsorted(ends, place, side="right"))]
        found.append(SUMS @ cells_of(alone)[: SUMS.shape[1]])
    return np.asarray(np.linalg.norm(found, axis=0))


SUMS = np.stack([np.arange(30) < 27, np.arange(30) == 11, (np.arange(30) > 6) & (np.arange(30) < 13), np.arange(30.0)])


def test_noise_of_a_tree_is_exact_for_every_sum() -> None:
    shape = Shape((2, 4, 4))
    variances, sizes = [2.0, 3.0, 0.5], [2, 8, 32]

    def cells(flat: np.ndarray) -> np.ndarray:
        return consistent([np.asarray(part) for part in np.split(flat, [2, 10])], variances)

    noise = TreeNoise(((2,), (8,), (32,)), tuple(variances))
    assert noise.deviations(SUMS) == pytest.approx(norms(cells, sizes, [math.sqrt(v) for v in variances]))
    assert noise.of_cells(3)[1] == pytest.approx(noise.deviations(SUMS)[1])
    spread = np.repeat(np.sqrt(variances), [2, 8, 30])
    assert shape_noise(shape, 30, spread).deviations(SUMS) == pytest.approx(noise.deviations(SUMS))


@pytest.mark.parametrize("kind", [TOEPLITZ, CIRCLE], ids=["prefixes", "circle"])
def test_noise_of_roots_is_exact_for_every_sum(kind: Factorisation) -> None:
    noise = kind.carried(30, 1.5)
    assert noise.deviations(SUMS) == pytest.approx(norms(lambda flat: np.diff(kind.curve(flat)), [30], [1.5]))
    assert noise.of_cells(30)[11] == pytest.approx(noise.deviations(SUMS)[1])


def test_what_was_changed_after_the_noise_is_in_the_margin() -> None:
    """A heavy value that shrinkage, or a curve made to rise, took from: the margin reaches back to the plain count."""
    schema = Schema(dict.fromkeys("xy", Integer(0, 3, missing=0)))
    axes = (Axis.of(schema, "x"), Axis.of(schema, "y"))
    weights, plain = np.full(16, 10.0), np.full(16, 10.0)
    weights[5], plain[5] = 40.0, 90.0
    table = Boxes(schema, axes, weights, 1.0, plain, TreeNoise(((4, 4),), (1.0,)))
    curve, risen = np.array([0.0, 10, 60, 20, 70]), np.array([0.0, 10, 40, 40, 70])
    line = Ranges(schema, axes[0], np.arange(5), risen, 1.0, TreeNoise(((4,),), (1.0,)), plain=curve)
    for body, asked, least in ((table, "x = 1 AND y = 1", 50.0), (line, "x = 1", 20.0)):
        query = as_query(asked)
        _, margin = body.totals(query, compile_query(query, schema, level=True), 0.95)
        assert least + 1.96 < float(margin[0]) < least + 4


def test_a_file_says_how_noise_enters(tmp_path: Path) -> None:
    for made in (
        release.intervals(seeded_curator(numbers(), Budget(rho="1/10"), 1), "x", share=1, method="circle"),
        release.boxes(seeded_curator(numbers(), Budget(epsilon=1), 1), ["x", "y"], share=1),
        release.conjunctions(seeded_curator(flags(), Budget(epsilon=1), 1), width=2, share=1, method="blocks"),
        release.arrangement(seeded_curator(flags(), Budget(rho="1/10"), 1), Conjunctions(NAMES, 2, ())),
    ):
        made.save(tmp_path / "made.synopsis")
        asked = "a AND NOT b" if "a" in made.schema else "x BETWEEN 3 AND 9"
        before, after = made.ask(asked, confidence=0.99), load(tmp_path / "made.synopsis").ask(asked, confidence=0.99)
        assert (after.total, after.margin) == (before.total, before.margin)


# -- columns that are never missing ------------------------------------------------------------------------------------


def test_a_plan_says_what_stating_missing_would_gain() -> None:
    nullable, stated = flags(0.0, None), flags(0.0, False)
    first = release.plan_conjunctions(Curator(nullable, Budget(epsilon=1)), width=2, share=1)[0]
    best = release.plan_conjunctions(Curator(stated, Budget(epsilon=1)), width=2, share=1)[0]
    assert best.error is not None
    assert first.error is not None
    assert best.error < 0.9 * first.error
    assert f"and {best.error:.3g} with missing=" in first.why
    assert "missing=" not in best.why
    synopsis = release.conjunctions(seeded_curator(nullable, Budget(epsilon=1), 1), width=2, share=1)
    assert "required = true" in synopsis.header.accuracy


# -- what stands beside its numbers ------------------------------------------------------------------------------------


def test_what_is_published_of_people_says_how_many_of_their_rows_count_and_whether_it_is_proven() -> None:
    """As a curator's own answers say it; also after it was saved, and of choices."""
    rng = np.random.default_rng(5)
    columns = {"a": rng.random(ROWS) < 0.5, "b": rng.random(ROWS) < 0.2, "who": rng.integers(0, 900, ROWS)}
    schema, unit = Schema({"a": Flag(missing=False), "b": Flag(missing=False)}), Unit("who", 2)
    table = Table(columns, schema, name="t", neighbours="add-remove", rows=ROWS, unit=unit)
    curator = seeded_curator(table, Budget(epsilon=9), 1)
    synopsis = release.conjunctions(curator, width=1, method="blocks", share="1/2")
    said = "at most 2 row(s) of one who count"
    for answer in (synopsis.ask("a"), synopsis.select(["a", "b"]), synopsis.sql("SELECT COUNT(*) FROM t WHERE a")):
        assert answer.leaves_out[0] == said
        assert "proven" in str(answer)
    assert "proven" in str(synopsis)
    assert "proven" in str(curator.select(["a", "b"], share="1/10"))
    assert str(curator.ask("a", share="1/10")).count("(95 %, proven)") == 1
    alone = release.conjunctions(seeded_curator(flags(), Budget(epsilon=9), 1), width=1, method="blocks", share="1/2")
    assert alone.ask("a").leaves_out == ("a missing a counts as False",)
