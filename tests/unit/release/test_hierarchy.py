"""Areas in areas: sums agree, public totals are kept, whole numbers are whole, and noise is what is said."""

from __future__ import annotations

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.errors import BadQuery, Unsupported
from dodona.release.hierarchy import Map
from dodona.release.registry import Setting
from dodona.synopses.areas import Areas, rounded
from dodona.synopses.forest import Forest
from dodona.testing import seeded_curator

TOWNS = tuple(f"t{i}" for i in range(12))
SCHEMA = dd.Schema({"town": dd.Category(*TOWNS, missing="t0"), "z": dd.Integer(0, 9)})
EVEN = {town: f"county {i // 3}" for i, town in enumerate(TOWNS)} | {f"county {i}": "land" for i in range(4)}
UNEVEN = {"t0": "land", "t1": "a", "t2": "a", "a": "b", "t3": "b", "b": "land", "t4": "c", "t5": "c"}
BUDGET = dd.Budget(epsilon=1, delta=1e-6)


def table(rows: int = 3000, seed: int = 3) -> dd.Table:
    rng = np.random.default_rng(seed)
    weights = np.arange(1, 13.0) ** -1.5
    drawn = rng.choice(np.array(TOWNS), rows, p=weights / weights.sum())
    return dd.Table({"town": drawn, "z": np.zeros(rows, dtype=int)}, SCHEMA, name="people")


def sums_agree(found: dict[str, float], parents: dict[str, str]) -> bool:
    inner = set(parents.values())
    return all(
        found[area] == pytest.approx(sum(found[below] for below, above in parents.items() if above == area), abs=1e-6)
        for area in inner
    )


@pytest.mark.parametrize("parents", [EVEN, UNEVEN, {}], ids=["even", "uneven", "none above"])
def test_without_noise_it_is_the_truth(parents):
    exact = dd.Exact(table())
    made = release.hierarchy(exact, "town", parents)
    found = {name: total for name, total, _ in release.areas(made)}
    for town in TOWNS:
        assert found[town] == pytest.approx(exact.ask(f"town = '{town}'").total)
    assert sums_agree(found, parents)


@pytest.mark.parametrize("parents", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("levels", [(), (0,), (1,), (0, 1)])
def test_each_level_is_counted_by_its_own_areas(parents, levels):
    map_ = Map.of(SCHEMA, "town", parents)
    exact = dd.Exact(table())
    numbers = np.ravel(np.asarray(exact.ask(map_.query(levels)).total, dtype=float))
    counts, have = map_.placed(levels, numbers)
    truth = {name: total for name, total, _ in release.areas(release.hierarchy(exact, "town", parents))}
    assert have.sum() == 12 + sum(len(map_.upper[level]) for level in levels)
    for place in np.flatnonzero(have):
        assert counts[place] == pytest.approx(truth[map_.names[place]])


def test_public_totals_are_kept_and_help():
    exact = dd.Exact(table())
    county = exact.ask("town IN ('t0', 't1', 't2')").total
    totals = {"land": 3000, "county 0": int(county), "t11": 5}
    for whole in (False, True):
        curator = seeded_curator(table(), BUDGET, 7)
        made = release.hierarchy(curator, "town", EVEN, totals=totals, whole=whole, share="0.1")
        found = {name: (total, margin) for name, total, margin in release.areas(made)}
        for area, total in totals.items():
            assert found[area] == (pytest.approx(total, abs=1e-6), pytest.approx(0, abs=0.51))
        assert sums_agree({name: total for name, (total, _) in found.items()}, EVEN)
    plain, helped = (
        release.plan_hierarchy(seeded_curator(table(), BUDGET, 7), "town", EVEN, share="0.1", **more)[0].error
        for more in ({}, {"totals": totals})
    )
    assert helped < 0.9 * plain


@pytest.mark.parametrize("seed", range(4))
def test_whole_numbers_are_whole_and_sum(seed):
    curator = seeded_curator(table(200), BUDGET, seed)
    made = release.hierarchy(curator, "town", UNEVEN, whole=True, share="0.02")  # noise of tens of rows
    found = {name: total for name, total, _ in release.areas(made)}
    assert all(total == round(total) and total >= 0 for total in found.values())
    assert sums_agree(found, UNEVEN)
    assert isinstance(made.body, Areas)
    assert min(made.body.plain) < 0  # or it would show nothing


def test_a_margin_counts_what_making_whole_changed():
    curator = seeded_curator(table(200), BUDGET, 1)
    made = release.hierarchy(curator, "town", UNEVEN, whole=True, share="0.02")
    assert isinstance(made.body, Areas)
    body = made.body
    noise = Areas(body.schema, body.column, body.names, body.forest, body.plain, body.plain, body.normal).told(0.95)
    changed = [margin - one for (_, _, margin), (_, _, one) in zip(body.told(0.95), noise, strict=True)]
    moved = np.abs(body.shown - body.plain)
    np.testing.assert_allclose(changed[-12:], moved)
    assert moved.max() > 1
    assert made.ask("town = 't11'").margin == pytest.approx(body.told(0.95)[-1][2])


def test_families_are_rounded_to_the_nearest():
    forest = Forest(np.array([-1, 0, 0, 0]), np.ones(4))
    assert rounded(forest, np.array([10.0, 3.4, 3.3, 3.3])).tolist() == [10, 4, 3, 3]
    assert rounded(forest, np.array([9.6, 12.6, -2.0, -1.0])).tolist() == [10, 10, 0, 0]
    assert rounded(forest, np.array([-3.0, -1.0, -1.0, -1.0])).tolist() == [0, 0, 0, 0]


def test_noise_is_what_is_said_and_levels_are_chosen_by_it():
    towns = tuple(f"x{i}" for i in range(60))
    schema = dd.Schema({"town": dd.Category(*towns, missing="x0")})
    parents = {town: f"c{i // 30}" for i, town in enumerate(towns)} | {"c0": "land", "c1": "land"}
    held = dd.Table({"town": np.array(towns * 10)}, schema)
    plan = release.plan_hierarchy(seeded_curator(held, BUDGET, 1), "town", parents, share="0.5")
    assert plan[0].method != "values alone"  # sums over thirty towns would err five times as much as one count
    off = []
    for seed in range(40):
        made = release.hierarchy(seeded_curator(held, BUDGET, seed), "town", parents, share="0.5")
        told = release.areas(made)
        truth = np.array([600, 300, 300] + [10] * 60)
        off.append(np.array([total for _, total, _ in told]) - truth)
    margins = np.array([margin for _, _, margin in told])
    assert 0.9 < (np.abs(off) <= margins).mean() < 0.985
    levels = [np.mean(np.square(np.array(off)[:, own])) for own in (slice(1), slice(1, 3), slice(3, None))]
    assert np.sqrt(np.mean(levels)) == pytest.approx(plan[0].error, rel=0.2)
    assert min(one.error for one in plan) == plan[0].error


def test_what_is_no_map_of_areas_is_refused():
    curator = seeded_curator(table(), BUDGET, 5)
    for parents, words in (
        ({"t0": "t1"}, "a name of its own"),
        ({"nowhere": "land"}, "values of town"),
        ({"t0": "a", "a": "b", "b": "a"}, "lie in itself"),
        ({"t0": 3}, "must say for each area"),
    ):
        with pytest.raises(BadQuery, match=words):
            release.hierarchy(curator, "town", parents, share="0.1")
    for totals, words in (
        ({"moon": 3}, "must be of areas"),
        ({"land": -1}, "whole number"),
        ({"land": 5, "county 0": 6}, "must agree"),
        ({"land": 50, **{f"county {i}": 6 for i in range(4)}}, "must agree"),
    ):
        with pytest.raises(BadQuery, match=words):
            release.hierarchy(curator, "town", EVEN, totals=totals, share="0.1")
    with pytest.raises(BadQuery, match="listed texts"):
        release.hierarchy(curator, "z", EVEN, share="0.1")
    assert curator.left == float(BUDGET.amount(curator.ledger.left()))
    assert curator.ledger.spent() == 0


def test_it_answers_of_areas_alone_and_is_a_file(tmp_path):
    curator = seeded_curator(table(), BUDGET, 5)
    made = release.hierarchy(curator, "town", EVEN, share="0.5")
    made.save(tmp_path / "s")
    again = dd.load(tmp_path / "s")
    question = "town IN ('t0', 't4')"
    assert again.ask(question) == made.ask(question)
    assert release.areas(again) == release.areas(made)
    with pytest.raises(Unsupported, match="alone"):
        made.ask("z > 3")
    with pytest.raises(Unsupported, match="another synopsis"):
        release.areas(release.intervals(curator, "z", share="0.1"))
    missing = dd.Schema({"town": dd.Category("x", "y")})
    held = dd.Table({"town": np.array(["x", None, "y"], dtype=object)}, missing)
    other = release.hierarchy(seeded_curator(held, BUDGET, 1), "town", {"x": "land", "y": "land"}, share="0.5")
    with pytest.raises(Unsupported, match="missing"):
        other.ask("TRUE")
    assert other.ask("town = 'x'").margin > 0


def test_names_are_read_as_they_are_written():
    setting = Setting("parents", "names", "")
    assert setting.read("Oslo:East; East:Norway;") == {"Oslo": "East", "East": "Norway"}
    assert setting.read("a:b:12") == {"a:b": 12}
    with pytest.raises(BadQuery, match="written as Oslo:East"):
        setting.read("Oslo:")
