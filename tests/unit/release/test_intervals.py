"""Ranges published over one column: every method, every refusal, and the figures behind the choice."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dodona import release
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, BadTable, Unsupported
from dodona.oracles.effort import Effort
from dodona.oracles.exact import Exact
from dodona.oracles.local import Local
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Integer, Real, Schema
from dodona.query.vectors import ROOT_BITS, range_coefficients, root_coefficients
from dodona.release._ranges import CIRCLE, TOEPLITZ, Shape, consistent, rising, second_root
from dodona.release._ranges.descent import ByRoots, ByTree, Found, Sketch, at_most, best_counting, sketched
from dodona.release.intervals import METHODS, intervals
from dodona.synopses import load
from dodona.synopses.ranges import Axis
from dodona.testing.oracles import seeded_curator

SCHEMA = Schema({"age": Integer(0, 511), "height": Real(1, 2), "smoker": Flag()})


def people(rows=4000, neighbours="replace"):
    rng = np.random.default_rng(3)
    ages = np.clip(rng.gamma(4.0, 25.0, rows), 0, 511).astype(int)
    columns = {"age": ages, "height": rng.beta(5, 5, rows) + 1, "smoker": rng.random(rows) < 0.3}
    return Table(
        columns, SCHEMA, neighbours=neighbours, rows=rows if neighbours == "add-remove" else None, name="people"
    )


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("binary search", "quantile buckets")])
def test_without_noise_every_range_is_exact(method):
    table = people()
    exact, synopsis = Exact(table), intervals(Exact(table), "age", method=method)
    for question in ("age BETWEEN 3 AND 117", "age < 60 OR age >= 200", "age = 100", "NOT age > 80", "age"):
        assert synopsis.ask(question).total == pytest.approx(exact.ask(question).total, abs=0.01), question
    select = "SELECT BUCKET(age, 0, 50, 100, 511) AS b, COUNT(*) AS n FROM people GROUP BY BUCKET(age, 0, 50, 100, 511)"
    ours, theirs = synopsis.sql(select), exact.sql(select)
    *groups, other = [r[1].value for r in theirs]
    assert [r[1].value for r in ours] == pytest.approx(groups, abs=0.01)
    assert other == 0  # rows in no group: a synopsis of ranges does not know of them


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [Budget(epsilon=1), Budget(epsilon=1, delta=1e-6)])
def test_every_method_spends_what_it_was_given_and_is_about_right(method, budget):
    table = people(20_000)
    curator = seeded_curator(table, budget, 5)
    synopsis = intervals(curator, "age", share=0.5, method=method)
    spent = 1 - curator.left / float(curator.budget.amount(curator.budget.capacity))
    assert 0.3 < spent <= 0.5 + 1e-9
    assert synopsis.header.cost.share == pytest.approx(spent, rel=1e-6)
    off = synopsis.ask("age < 100").mean - Exact(table).ask("age < 100").mean
    assert abs(off) < (0.2 if method == "binary search" else 0.02)


def test_best_is_the_least_predicted_error_and_margins_cover():
    table = people(20_000, "add-remove")
    truth, inside = Exact(table), []
    for seed in range(8):
        synopsis = intervals(seeded_curator(table, Budget(epsilon=0.2), seed), "age", share=1)
        for low in range(0, 500, 61):
            answer = synopsis.ask(f"age BETWEEN {low} AND {low + 70}")
            inside.append(abs(answer.total - truth.ask(f"age BETWEEN {low} AND {low + 70}").total) <= answer.margin)
    assert np.mean(inside) > 0.9


def test_the_plan_is_free_and_its_first_line_is_what_is_made():
    curator = seeded_curator(people(20_000), Budget(epsilon=1, delta=1e-6), 2)
    plan = release.plan_intervals(curator, "age", share=1)
    errors = [verdict.error for verdict in plan]
    assert errors == sorted(errors)
    assert len(plan) == len(METHODS) + 2  # both methods of several questions also as one pure epsilon
    assert len(release.plan_intervals(curator, "age", share=0.5)) == len(METHODS)
    theorem = release.plan_intervals(seeded_curator(people(20_000), Budget(epsilon=1), 2), "age", share=1, e=0.2)[-1]
    assert theorem.theorem.startswith("BLR Theorem 4.2")
    assert theorem.rows_needed is not None
    left = curator.left
    synopsis = intervals(curator, "age", share=1)
    assert left > 0.99 * float(curator.budget.amount(curator.budget.capacity))
    assert plan[0].method in synopsis.header.notes["method"]


def test_local_rows_publish_ranges_too():
    local = Local(people(20_000), epsilon=4)
    synopsis = intervals(local, "age", share=1)
    assert synopsis.header.notes["method"] not in ("factorisation", "circle")
    assert abs(synopsis.ask("age < 100").mean - Exact(people(20_000)).ask("age < 100").mean) < 0.1


def test_quantiles_median_cdf_and_histogram_are_free():
    table = people(20_000)
    synopsis = intervals(seeded_curator(table, Budget(epsilon=2), 1), "age", share=1)
    ages = np.clip(np.random.default_rng(3).gamma(4.0, 25.0, 20_000), 0, 511).astype(int)
    assert release.median(synopsis) == pytest.approx(np.median(ages), abs=2)
    np.testing.assert_allclose(release.quantile(synopsis, [0.1, 0.9]), np.quantile(ages, [0.1, 0.9]), atol=3)
    counts, ends = release.histogram(synopsis, 16)
    np.testing.assert_allclose(counts, np.histogram(ages, ends)[0], atol=120)
    values, fractions = release.cdf(synopsis)
    assert np.all(np.diff(fractions) >= 0)
    assert len(values) == len(fractions)


def test_a_continuous_column_is_refused_by_corollary_5_2_and_bits_mend_it():
    with pytest.raises(Unsupported, match=r"Corollary 5\.2.*bits="):
        intervals(Exact(people()), "height")
    synopsis = intervals(Exact(people()), "height", bits=10)
    exact = Exact(people()).ask("height < 1.5").total
    assert synopsis.ask("height < 1.5").total == pytest.approx(exact, abs=20)


@pytest.mark.parametrize("bits", [0, -3, True, 2.5])
def test_bits_must_be_sensible(bits):
    with pytest.raises(BadQuery):
        intervals(Exact(people()), "height", bits=bits)


def test_too_much_precision_says_how_much_memory():
    for bits in (40, 10**9):
        with pytest.raises(Unsupported, match=r"GiB.*bits=24 or fewer"):
            intervals(Exact(people()), "height", bits=bits)
    assert "512 cells" in intervals(Exact(people()), "age", bits=10**9).header.about


def test_other_columns_and_other_methods_are_refused_before_anything_is_spent():
    curator = seeded_curator(people(), Budget(epsilon=1), 0)
    with pytest.raises(BadQuery, match="number column"):
        intervals(curator, "smoker", share=1)
    with pytest.raises(BadQuery, match="method must be"):
        intervals(curator, "age", share=1, method="magic")
    with pytest.raises(BadEffort):
        intervals(curator, "age")
    with pytest.raises(BadEffort):
        intervals(curator, "age", share=1, epsilon=1)
    assert curator.left == 1
    with pytest.raises(Unsupported, match="age alone"):
        intervals(Exact(people()), "age").ask("smoker AND age > 3")


def test_an_empty_table_gives_a_synopsis_of_nothing():
    table = Table({"age": np.array([], dtype=int)}, Schema({"age": Integer(0, 511)}), neighbours="add-remove")
    synopsis = intervals(seeded_curator(table, Budget(epsilon=1), 0), "age", share=1)
    assert abs(synopsis.ask("age < 200").total) < 100


def test_values_outside_the_declared_range_are_clipped():
    table = Table({"age": np.array([-50, 7, 9999])}, Schema({"age": Integer(0, 15)}), name="t")
    synopsis = intervals(Exact(table), "age")
    assert [round(synopsis.ask(f"age = {v}").total) for v in (0, 7, 15)] == [1, 1, 1]


def test_saved_and_loaded_it_answers_alike_and_damage_is_refused(tmp_path):
    synopsis = intervals(Exact(people()), "age")
    synopsis.save(tmp_path / "ages.synopsis")
    again = load(tmp_path / "ages.synopsis")
    assert again.ask("age < 77").total == pytest.approx(synopsis.ask("age < 77").total)
    assert str(again) == str(synopsis)
    data = (tmp_path / "ages.synopsis").read_bytes()
    (tmp_path / "short.synopsis").write_bytes(data[: len(data) // 2])
    with pytest.raises(BadTable):
        load(tmp_path / "short.synopsis")


@pytest.mark.parametrize("cells", [1, 7, 16, 100, 4096])
def test_shapes_cover_their_cells(cells):
    for shape in Shape.all(cells):
        assert shape.leaves >= cells
        assert shape.spans[-1] == 1
        assert shape.leaves < cells + shape.leaves // shape.branching[0]  # no more padding than one top run


def test_consistency_is_least_squares():
    rng = np.random.default_rng(0)
    sizes, variances = (3, 6, 24), (2.0, 1.0, 3.0)
    levels = [rng.normal(0, 5, size) for size in sizes]
    design = np.concatenate(
        [np.kron(np.eye(size), np.ones(24 // size)) / math.sqrt(v) for size, v in zip(sizes, variances, strict=True)]
    )
    target = np.concatenate([level / math.sqrt(v) for level, v in zip(levels, variances, strict=True)])
    expected = np.linalg.lstsq(design, target, rcond=None)[0]
    np.testing.assert_allclose(consistent(levels, variances), expected, atol=1e-9)


def test_isotonic_never_leaves_the_truth_further_away():
    rng = np.random.default_rng(1)
    truth = np.append(0, np.cumsum(rng.poisson(2, 200)))
    for _ in range(20):
        noisy = truth + np.append(0, rng.laplace(0, 10, 200))
        kept = rising(noisy)
        assert np.all(np.diff(kept) >= 0)
        assert np.sum((kept - truth) ** 2) <= np.sum((noisy - truth) ** 2) + 1e-9


def test_the_two_roots_multiply_to_prefix_sums():
    first = np.array(root_coefficients(300)) * 2.0**-ROOT_BITS
    np.testing.assert_allclose(np.convolve(first, second_root(300))[:300], 1.0, atol=1e-8)


def spiked(rows=40_000):
    """Nine rows in ten at one value of 4096, the others anywhere."""
    rng = np.random.default_rng(6)
    values = np.where(rng.random(rows) < 0.9, 17, rng.integers(0, 4096, rows))
    return Table({"x": values}, Schema({"x": Integer(0, 4095)}), neighbours="add-remove", rows=rows), values


def test_the_search_isolates_a_heavy_value_and_cuts_no_more_than_pays():
    table, _ = spiked()
    curator = seeded_curator(table, Budget(epsilon=0.02), 4)
    axis = Axis.of(table.schema, "x")
    sketch = sketched(curator, axis, Effort.of(epsilon="0.0025"), Fraction(1), 256)
    assert len(sketch.bills) == 3
    assert {17, 18} <= set(sketch.cuts(16).tolist())
    assert sketch.rows(np.array([17, 18]))[0] == pytest.approx(36_000, rel=0.2)
    made = intervals(curator, "x", epsilon="0.0175", method="quantile buckets")
    assert len(made.body.edges) < 200
    assert made.ask("x = 17").total == pytest.approx(36_000, rel=0.15)


def test_noise_beside_a_heavy_run_is_shrunk_away():
    noise = np.random.default_rng(1).laplace(0, 100 / math.sqrt(2), 16)
    measured = noise + np.append(5000.0, np.zeros(15))
    found = Found(np.zeros(1), np.full(1, np.inf)).refined(measured, 100.0**2, np.zeros(16, dtype=np.intp))
    assert found.counts[0] == pytest.approx(5000, abs=500)
    assert np.ptp(found.counts[1:]) < 50  # as counted they differ by 300 and more
    assert np.ptp(measured[1:]) > 300


def test_runs_have_no_more_rows_than_are_known_and_are_lowered_alike():
    counts = np.array([10.0, 4.0, 0.0, 1.0])
    np.testing.assert_allclose(at_most(counts, 20.0), counts)
    np.testing.assert_allclose(at_most(counts, 9.0), [7.5, 1.5, 0.0, 0.0])


def test_a_heavy_cell_is_a_run_and_takes_no_cuts_from_the_others():
    edges = np.append([0, 1], np.arange(16, 4097, 16))
    counts = np.append([90_000.0], np.full(len(edges) - 2, 40.0))
    cuts = Sketch(edges, counts, 10.0, 160.0, (), Fraction(1)).cuts(16)
    assert cuts[1] == 1
    assert len(cuts) - 1 == 15
    assert np.diff(cuts[1:]).max() < 1.5 * 4096 / 14


def test_one_heavy_cell_and_a_thin_rest_are_not_lost_in_the_noise_between():
    rng = np.random.default_rng(2)
    values = np.append(np.zeros(17_000, dtype=int), rng.integers(1400, 2100, 800))
    table = Table({"x": values}, Schema({"x": Integer(0, 4095)}), neighbours="add-remove", rows=len(values))
    truth = np.append(0, np.cumsum(np.bincount(values, minlength=4096)))
    ends = np.sort(rng.integers(0, 4096, (4000, 2)), axis=1) + np.array([0, 1])
    errors = []
    for seed in range(20):
        made = intervals(
            seeded_curator(table, Budget(epsilon="0.01"), seed), "x", share=1, method="quantile buckets"
        ).body
        curve = np.interp(np.arange(4097), made.edges, made.curve) - truth
        errors.append(np.abs(curve[ends[:, 1]] - curve[ends[:, 0]]).mean())
    assert np.mean(errors) < 205  # with the noise beside the heavy cell kept, 247


@pytest.mark.parametrize("way", [ByTree(Shape.even(40, 4)), ByRoots(TOEPLITZ), ByRoots(CIRCLE)])
def test_every_way_of_counting_gives_the_curve_back_without_noise(way):
    table, values = spiked(3000)
    axis = Axis.of(table.schema, "x")
    edges = np.append(np.arange(0, 4096, 103), 4096)
    fitted = way.fitted(len(edges) - 1)
    answer = Exact(table).ask(fitted.query(axis, edges))
    curve = fitted.curve(len(edges) - 1, np.ravel(answer.total), np.zeros(np.size(answer.total)))
    np.testing.assert_allclose(curve, [(values < edge).sum() for edge in edges], atol=0.01)


def test_with_delta_and_few_rows_the_runs_are_counted_by_roots():
    table, _ = spiked(6000)
    curator = seeded_curator(table, Budget(epsilon=0.05, delta=1e-6), 1)
    found = best_counting(curator, Axis.of(table.schema, "x"), Effort.of(share=1), Fraction(7, 8), 256)
    assert isinstance(found.way, ByRoots)
    synopsis = intervals(curator, "x", share=0.99)  # all of it would be spent purely
    assert synopsis.header.notes["method"] == "quantile buckets"
    assert "fourth root" in synopsis.header.method


@pytest.mark.parametrize("cells", [1, 2, 3, 64, 1000])
def test_the_circle_gives_the_curve_back_and_ends_within_a_bound_of_the_best(cells):
    kernel = np.array(range_coefficients(cells)) * 2.0**-ROOT_BITS
    counts = np.random.default_rng(2).integers(0, 50, cells)
    turned = np.array([kernel[(j - np.arange(cells)) % cells] @ counts for j in range(cells)])
    np.testing.assert_allclose(CIRCLE.curve(turned), np.append(0, np.cumsum(counts)), atol=1e-6)
    places = np.arange(1, cells + 1)
    shared = np.minimum.outer(places, places) * (cells + 1 - np.maximum.outer(places, places))
    least = np.sqrt(np.linalg.eigvalsh(shared)).sum() / np.sqrt(cells)  # the singular value bound on any linear map
    circulant = kernel[(places[:, None] - places) % cells]
    error = np.sqrt(np.trace(shared @ np.linalg.inv(circulant.T @ circulant)) * (kernel @ kernel))
    assert least <= error * (1 + 1e-6) <= 1.05 * least


def test_on_random_ranges_the_circle_beats_the_prefix_roots():
    curator = seeded_curator(people(), Budget(epsilon=1, delta=1e-6), 1)
    found = release.plan_intervals(curator, "age", share=1)
    assert found["circle"].error < 0.97 * found["factorisation"].error


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_binary_search_promises_what_its_theorem_does_at_any_confidence(confidence):
    """With so few rows that is nothing: what its intervals miss is no noise, and may be any part of the rows."""
    x = np.where(np.random.default_rng(4).random(3000) < 0.9, 77, 5)
    table = Table({"x": x}, Schema({"x": Integer(0, 127, missing=0)}), name="t")
    synopsis = intervals(seeded_curator(table, Budget(epsilon="0.5"), 1), "x", method="binary search", share=1)
    assert "too few for any promise" in synopsis.header.accuracy + synopsis.header.method
    for question in ("x <= 77", "x BETWEEN 70 AND 80", "x <= 4"):
        off = abs(synopsis.ask(question).total - Exact(table).ask(question).total)
        assert off <= synopsis.ask(question, confidence=confidence).margin
    large = intervals(seeded_curator(table, Budget(epsilon=4000), 1), "x", method="binary search", share=1)
    assert large.ask("x <= 4", confidence=confidence).margin < 1000
