"""Frequent values of a huge domain: the same algorithm on every oracle, within its margins, and nothing from noise."""

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.errors import BadQuery, BudgetSpent, Unsupported
from dodona.oracles.effort import Effort
from dodona.release.heavy_hitters import CELLS, _extended, _walk
from dodona.synopses.keys import LADDER, Hitters
from dodona.testing import seeded_curator
from dodona.testing.oracles import SeededBits

BITS = 40
SCHEMA = dd.Schema({"code": dd.Integer(0, 2**BITS - 1, missing=0)})


def people(n=60_000, seed=3, strings=500):
    rng = np.random.default_rng(seed)
    weights = np.arange(1, strings + 1.0) ** -1.3
    codes = rng.integers(1, 2**BITS, strings)
    held = codes[rng.choice(strings, n, p=weights / weights.sum())]
    values, counts = np.unique(held, return_counts=True)
    return dd.Table({"code": held}, SCHEMA, name="people"), dict(zip(values.tolist(), counts.tolist(), strict=True))


def best(counts, top):
    return set(sorted(counts, key=lambda key: -counts[key])[:top])


def test_without_noise_it_is_the_truth():
    table, counts = people()
    found = release.heavy_hitters(dd.Exact(table), "code", top=20)
    assert isinstance(found.body, Hitters)
    assert set(found.body.listed) == best(counts, 20)
    first = max(counts, key=lambda key: counts[key])
    assert found.ask(f"code = {first}").total == counts[first]
    assert found.ask(f"code = {first}").margin == 0


def test_on_a_curator_and_where_rows_randomise_themselves():
    table, counts = people()
    crowd = dd.Shuffled(table, 8, 1e-6)
    alone = dd.Local(table, 4)
    crowd._bits, alone._bits = SeededBits(1), SeededBits(2)
    for oracle, least in ((seeded_curator(table, dd.Budget(epsilon=1, delta=1e-6), 5), 18), (crowd, 5), (alone, 5)):
        found = release.heavy_hitters(oracle, "code", top=20, share=1)
        listed = found.body.listed
        assert len(set(listed) & best(counts, 20)) >= least, type(oracle).__name__
        estimates, margins = found.body.counts(0.95)
        off = np.abs(estimates - np.array([counts.get(key, 0) for key in listed]))
        assert (off <= margins).all(), type(oracle).__name__  # all cells of the round at once
        assert oracle.left < 0.02
        with pytest.raises(BudgetSpent):
            oracle.ask("code = 1", share="0.1")


def test_nothing_stands_out_where_all_are_different():
    values = np.random.default_rng(0).integers(0, 2**BITS, 20_000)
    oracle = dd.Local(dd.Table({"code": values}, SCHEMA), 2)
    oracle._bits = SeededBits(4)
    found = release.heavy_hitters(oracle, "code", share=1)
    assert len(found.body.listed) <= 3


def test_a_synopsis_is_a_file_and_knows_only_what_it_lists(tmp_path):
    table, counts = people()
    found = release.heavy_hitters(seeded_curator(table, dd.Budget(epsilon=4), 1), "code", top=5, share="0.5")
    found.save(tmp_path / "h.dodona")
    again = dd.load(tmp_path / "h.dodona")
    key = again.body.listed[0]
    for confidence in (0.5, 0.9, 0.93, 0.9999):
        assert again.ask(f"code = {key}", confidence=confidence) == found.ask(f"code = {key}", confidence=confidence)
    assert again.ask(f"code = {key}", confidence=0.93).margin == again.ask(f"code = {key}", confidence=0.95).margin
    both = again.ask(f"code IN ({key}, {again.body.listed[1]})")
    assert abs(both.total - counts[key] - counts[again.body.listed[1]]) <= both.margin
    with pytest.raises(Unsupported, match="knows nothing"):
        again.ask(f"code <> {key}")
    with pytest.raises(Unsupported, match="up to confidence"):
        again.ask(f"code = {key}", confidence=0.999999)
    assert "lean upwards" in again.header.accuracy


@pytest.mark.parametrize("bounds", [(0, 1), (-5, 5), (3, 3 + 1023), (-(2**40), 2**41 + 7), (0, 2**52 - 1), (0, 70_001)])
def test_all_domains_are_covered_to_their_ends(bounds):
    low, high = bounds
    rng = np.random.default_rng(1)
    held = np.concatenate([np.full(300, low), np.full(200, high), rng.integers(low, high + 1, 50)])
    table = dd.Table({"v": held}, dd.Schema({"v": dd.Integer(low, high, missing=low)}))
    found = release.heavy_hitters(dd.Exact(table), "v", top=2)
    assert set(found.body.listed) == {low, high}
    assert found.ask(f"v = {high}").total == (held == high).sum()


def test_rounds_fit_into_windows_and_spend_the_effort():
    for bits in (1, 9, 10, 11, 30, 48, 52):
        for top in (1, 32, 100, 300):
            table = dd.Table({"v": np.array([0, 1])}, dd.Schema({"v": dd.Integer(0, 2**bits - 1, missing=0)}))
            walk = _walk(dd.Exact(table), "v", top, Effort.none())
            assert walk.lengths[-1] == bits
            assert list(walk.lengths) == sorted(set(walk.lengths))
            assert 2 ** walk.lengths[0] < CELLS
            assert walk.kept >= min(top, 2 ** walk.lengths[0])
            for shorter, longer in zip(walk.lengths, walk.lengths[1:], strict=False):
                assert walk.kept * (2 ** (longer - shorter) + 1) < CELLS


def test_ways_are_judged_by_all_rounds():
    """After ten rounds at 6 deviations, the way that keeps it is surer than one that has 3 by itself."""
    mass, chance, rounds = np.full(3, 6.0), np.ones(3), np.full(3, 10.0)
    _, likely, after = _extended(mass, chance, rounds, np.array([5.0, 3.0, 0.0]), np.ones(3), 32)
    assert likely[0] > 0.99
    assert likely[2] < 2e-3
    assert likely[0] > likely[1]
    assert after[0] == 11


def test_plans_say_rounds_and_error_and_spend_nothing():
    table, _ = people()
    oracle = dd.Local(table, 4)
    (outlook,) = release.plan_heavy_hitters(oracle, "code", share=1)
    assert outlook.feasible
    assert outlook.details["rounds"] == 7
    assert float(outlook.cost.epsilon) == pytest.approx(4, rel=1e-6)
    assert oracle.left == pytest.approx(4)


def test_what_it_cannot_be_asked():
    table, _ = people(100)
    for column, top in (("nothing", 5), ("code", 0), ("code", 1000), ("code", True)):
        with pytest.raises(BadQuery):
            release.heavy_hitters(dd.Exact(table), column, top=top)
    with pytest.raises(BadQuery, match="whole-number"):
        release.heavy_hitters(dd.Exact(dd.Table({"t": ["a"]}, dd.Schema({"t": dd.Category("a", "b")}))), "t")


def test_texts_are_coded_by_a_public_map():
    code = release.TextCode(" abcdefghijklmnopqrstuvwxyz", 8)
    words = ["hello", "a", "", "toolongaword", "Upper", "z" * 8]
    numbers = code.encode(words)
    assert [code.decode(int(n)) for n in numbers] == ["hello", "a", "", "toolonga", " pper", "z" * 8]
    assert numbers.max() <= code.column.high
    assert code.width == 5
    table = dd.Table({"w": code.encode(["plum"] * 60 + ["fig"] * 30 + ["kiwi"])}, dd.Schema({"w": code.column}))
    found = release.heavy_hitters(dd.Exact(table), "w", top=2)
    assert [code.decode(n) for n in found.body.listed] == ["plum", "fig"]
    for alphabet, length in (("aa", 3), ("a", 3), ("ab", 0), ("ab", 53), (" abc", 27)):
        with pytest.raises(BadQuery):
            release.TextCode(alphabet, length)


def test_the_ladder_is_in_order():
    assert list(LADDER) == sorted(LADDER)
