"""Synthetic tables: exact selection among listed databases, and the iterative construction."""

import itertools
import math

import numpy as np
import pytest

from dodona.concepts.concept import Finite
from dodona.concepts.databases import Databases, Misfits
from dodona.engines.table import Table
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.release.small_database import listing, small_database
from dodona.synopses import load
from dodona.synopses.domain import Domain
from dodona.testing.oracles import seeded_curator

SCHEMA = Schema({"a": Flag(), "k": Category("x", "y", "z"), "v": Integer(0, 3)})
CLASS = Finite.of(["a", "k = 'x'", "v >= 2", "a AND v >= 1", "k = 'y' OR a"])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    columns = {"a": rng.random(3000) < 0.3, "k": rng.choice(["x", "y", "z"], 3000, p=[0.5, 0.3, 0.2])}
    return Table({**columns, "v": rng.integers(0, 4, 3000)}, SCHEMA, name="t")


def test_scores_and_numbering_agree_with_listing_by_hand():
    truths = np.random.default_rng(0).random((5, 4)) < 0.5
    scores = Databases(CLASS, truths, 3, 90)
    counts = np.array([10, 45, 80, 33])
    tally = scores.tally(SCHEMA, counts)
    listed = list(itertools.combinations_with_replacement(range(5), 3))
    assert scores.count(SCHEMA) == len(listed) == len(tally)
    for index, points in enumerate(listed):
        held = truths[list(points)].sum(axis=0)
        assert tally[index] == -np.abs(np.rint(90 * held / 3) - counts).max()
        assert scores.points_of(index) == list(points)


def test_one_row_moves_every_score_by_at_most_one():
    rng = np.random.default_rng(1)
    truths = rng.random((6, 5)) < 0.5
    for scores in (Databases(CLASS, truths, 3, 50), Misfits(CLASS, rng.integers(0, 50, 5))):
        counts = rng.integers(0, 50, 5)
        for _ in range(50):
            moved = counts + rng.integers(-1, 2, 5)  # any member may gain or lose the row
            assert np.abs(scores.tally(SCHEMA, counts) - scores.tally(SCHEMA, moved)).max() <= 1


@pytest.mark.parametrize("size", [4, 60])
def test_a_synthetic_table_is_useful_for_its_class(table, size, tmp_path):
    synopsis = small_database(seeded_curator(table, Budget(epsilon=2), 4), CLASS, size=size, share=1)
    assert synopsis.header.notes["method"] == ("selection" if size == 4 else "iterative")
    errors = [abs(synopsis.ask(m).mean - Exact(table).ask(m).mean) for m in CLASS.members(SCHEMA)]
    assert max(errors) < (0.15 if size == 4 else 0.06)
    body = synopsis.body
    assert all(len(values) == size for values in body.columns.values())
    assert set(body.columns["k"]) <= {"x", "y", "z"}
    synopsis.save(tmp_path / "s.synopsis")
    assert load(tmp_path / "s.synopsis").ask("a").total == pytest.approx(synopsis.ask("a").total)
    body.to_csv(tmp_path / "s.csv")
    body.to_parquet(tmp_path / "s.parquet")
    again = Exact(Table(str(tmp_path / "s.parquet"), SCHEMA))
    assert again.rows == size
    assert again.ask("k = 'x'").mean == pytest.approx(synopsis.ask("k = 'x'").mean)
    assert (tmp_path / "s.csv").read_text().splitlines()[0] == "a,k,v"


def test_selection_without_noise_takes_the_best_database(table):
    synopsis = small_database(Exact(table), CLASS, size=3)
    truth = np.array([Exact(table).ask(m).total for m in CLASS.members(SCHEMA)])
    truths = Domain.of(SCHEMA, ["a", "k", "v"], None).truths(CLASS)
    listed = itertools.combinations_with_replacement(range(24), 3)
    best = min(np.abs(np.rint(1000 * truths[list(p)].sum(axis=0)) - truth).max() for p in listed)
    own = np.array([synopsis.ask(m).total for m in CLASS.members(SCHEMA)])
    assert np.abs(own - truth).max() == pytest.approx(best, abs=1)


def test_impossible_sizes_say_what_they_would_need(table):
    with pytest.raises(Unsupported, match="GiB"):
        small_database(Exact(table), CLASS, size=50, method="selection")
    with pytest.raises(BadQuery):
        small_database(Exact(table), CLASS, size=0)
    wide = Schema({f"f{i}": Flag() for i in range(25)})
    with pytest.raises(Unsupported, match="points"):
        Domain.of(wide, list(wide), None)
    with pytest.raises(Unsupported, match=r"Corollary 5\.2"):
        Domain.of(Schema({"r": Real(0, 1)}), ["r"], None)
    assert Domain.of(Schema({"r": Real(0, 1)}), ["r"], 3).size == 8
    assert math.comb(24 + 2, 3) == Databases(CLASS, np.zeros((24, 5), bool), 3, 9).count(SCHEMA)


@pytest.mark.parametrize(("points", "size"), [(1, 5), (2, 127), (2, 300), (3, 130), (4, 9), (3, 3), (7, 2)])
def test_tables_of_any_size_are_numbered_and_scored_as_listed_by_hand(points, size):
    truths = np.random.default_rng(points).random((points, 5)) < 0.5
    scores = Databases(CLASS, truths, size, 1000)
    counts = np.array([10, 450, 800, 333, 999])
    listed = list(itertools.combinations_with_replacement(range(points), size))
    tally = scores.tally(SCHEMA, counts)
    assert scores.count(SCHEMA) == len(listed) == len(tally)
    for index in sorted({0, 1, len(listed) // 3, len(listed) // 2, len(listed) - 1} & set(range(len(listed)))):
        held = truths[list(listed[index])].sum(axis=0)
        assert tally[index] == -np.abs(np.rint(1000 * held / size) - counts).max()
        assert scores.points_of(index) == list(listed[index])


@pytest.mark.parametrize("size", [126, 127, 500])
def test_large_tables_over_few_points_are_selected(size):
    flags = np.random.default_rng(1).random(4000) < 0.37
    held = Table({"a": flags}, Schema({"a": Flag(missing=False)}), name="t")
    synopsis = small_database(seeded_curator(held, Budget(epsilon=2), 1), Finite.of(["a"]), size=size, share=1)
    assert synopsis.header.notes["method"] == "selection"
    assert abs(float(synopsis.ask("a").mean) - flags.mean()) < 0.02


def test_a_refused_selection_says_how_many_databases_there_are():
    held = Table({"v": np.arange(10)}, Schema({"v": Integer(0, 2399)}), name="t")
    with pytest.raises(Unsupported, match=r"there are more than 1e\+300 databases of 9000000 rows over 2,400 points"):
        small_database(Exact(held), Finite.of(["v >= 2"]), size=9_000_000, method="selection")
    assert listing(24, 127, "best")[1] is False
