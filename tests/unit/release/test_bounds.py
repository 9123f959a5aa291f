"""A private range for a column whose bounds nobody knows, and ranges in each group of another column."""

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.errors import BadQuery, Unsupported
from dodona.release.unlisted import powers, shortest
from dodona.testing import seeded_curator

WIDE = dd.Schema({"pay": dd.Real(-1e9, 1e9), "age": dd.Integer(0, 10**9), "sex": dd.Category("F", "M", missing="F")})


def table_of(rows: int = 5000) -> dd.Table:
    random = np.random.default_rng(2)
    pay, age = random.lognormal(3, 1, rows), random.integers(0, 90, rows)
    sex = np.where(random.random(rows) < 0.7, "F", "M")
    return dd.Table(
        {"pay": pay, "age": np.where(sex == "M", age // 2, age), "sex": sex}, WIDE, name="t", neighbours="add-remove"
    )


def test_the_range_found_is_the_smallest_between_powers_of_two_that_holds_almost_all():
    exact = dd.Exact(table_of())
    found = release.bounds(exact, "age")
    assert (found.low, found.high, found.held, found.found) == (0, 128, 1, True)
    pay = release.bounds(exact, "pay", beta=0.05)
    assert (pay.low, pay.high) == (2, 128)
    assert pay.held == pytest.approx(exact.ask("pay >= 2 AND pay < 128").total / 5000)
    assert pay.held >= 0.95 > exact.ask("pay >= 4 AND pay < 128").total / 5000


@pytest.mark.parametrize("epsilon", ["1/10", "1"])
@pytest.mark.parametrize("column", ["age", "pay"])
def test_with_noise_it_holds_about_as_many_rows_as_it_says(column, epsilon):
    table = table_of()
    exact = dd.Exact(table)
    for seed in range(10):
        found = release.bounds(seeded_curator(table, dd.Budget(epsilon=1), seed=seed), column, epsilon=epsilon)
        held = exact.ask(f"{column} >= {found.low} AND {column} <= {found.high}").total / 5000
        assert found.found
        assert held >= 0.9
        assert abs(held - found.held) <= 2.5 * found.margin


def test_where_nothing_stands_out_of_the_noise_the_schema_stays():
    table = dd.Table({"x": np.zeros(3)}, dd.Schema({"x": dd.Real(-5, 1e6)}), neighbours="add-remove")
    found = release.bounds(seeded_curator(table, dd.Budget(epsilon=1), seed=1), "x", epsilon="1/100")
    assert (found.low, found.high, found.found) == (-5, 1e6, False)
    assert "schema's range stays" in str(found)


def test_it_is_one_question_and_refused_for_what_has_no_range():
    curator = dd.Curator(table_of(50), dd.Budget(epsilon=1))
    found = release.bounds(curator, "age", epsilon="1/10")
    assert curator.left == pytest.approx(0.9)
    assert found.cost.amount == pytest.approx(0.1)
    with pytest.raises(BadQuery, match="number column"):
        release.bounds(curator, "sex", epsilon="1/10")
    with pytest.raises(BadQuery, match="strictly between"):
        release.bounds(curator, "age", beta=1, epsilon="1/10")


def test_powers_and_the_shortest_run():
    assert powers(-3, 10, whole=True) == [-3, -2, -1, 0, 1, 2, 4, 8, 10]
    assert shortest(np.array([1.0, 0, 5, 5, 0, 1]), 10) == (2, 3)
    assert shortest(np.array([1.0, 2, 3]), 6) == (0, 2)


# -- ranges in each group ----------------------------------------------------------------------------------------------

AGES = dd.Schema({"age": dd.Integer(0, 127, missing=0), "sex": dd.Category("F", "M", missing="F"), "z": dd.Real(0, 1)})


def grouped(rows: int = 4000) -> dd.Table:
    random = np.random.default_rng(3)
    sex = np.where(random.random(rows) < 0.8, "F", "M")
    age = random.integers(0, 100, rows) // np.where(sex == "M", 2, 1)
    return dd.Table({"age": age, "sex": sex, "z": random.random(rows)}, AGES, name="t", neighbours="add-remove")


def test_without_noise_the_ranges_of_each_group_are_exact_and_saved_as_they_are(tmp_path):
    exact = dd.Exact(grouped())
    made = release.intervals(exact, "age", by="sex")
    made.save(tmp_path / "x")
    for synopsis in (made, release.load(tmp_path / "x")):
        for question in ("age < 30 AND sex = 'M'", "age >= 50", "sex = 'F'", "age BETWEEN 10 AND 20 AND sex <> 'M'"):
            assert synopsis.ask(question).total == pytest.approx(exact.ask(question).total)
        text = "SELECT sex, MEDIAN(age) AS m, QUANTILE(age, 0.9) AS q FROM t GROUP BY sex"
        ours, theirs = synopsis.sql(text).to_dicts(), exact.sql(text).to_dicts()
        assert [(r["sex"], r["m"], r["q"]) for r in ours] == [(r["sex"], r["m"], r["q"]) for r in theirs]
        with pytest.raises(Unsupported, match="age by sex"):
            synopsis.ask("z > 0.5")


def test_all_groups_cost_as_one_and_each_has_the_noise_of_one():
    one, both = (
        release.plan_intervals(dd.Curator(grouped(), dd.Budget(epsilon=1)), "age", method="tree", epsilon=1, **by)[0]
        for by in ({}, {"by": "sex"})
    )
    assert both.error == pytest.approx(one.error, rel=1e-6)
    curator = dd.Curator(grouped(), dd.Budget(epsilon=1))
    release.intervals(curator, "age", by="sex", epsilon="1/2")
    assert curator.left == pytest.approx(0.5)


def test_groups_must_be_listed_and_none_missing():
    curator = dd.Curator(grouped(50), dd.Budget(epsilon=1))
    with pytest.raises(BadQuery, match="listed values"):
        release.intervals(curator, "age", by="z", epsilon="1/2")
    with pytest.raises(Unsupported, match="tree"):
        release.intervals(curator, "age", by="sex", method="circle", epsilon="1/2")
    bare = dd.Table({"age": [1], "sex": ["F"]}, dd.Schema({"age": dd.Integer(0, 9), "sex": dd.Category("F", "M")}))
    with pytest.raises(BadQuery, match="missing="):
        release.intervals(dd.Curator(bare, dd.Budget(epsilon=1)), "age", by="sex", epsilon="1/2")
    assert curator.ledger.spent() == 0


def test_a_quantile_is_not_drawn_out_over_an_empty_stretch():
    """One value in the middle of a wide range: before it the curve is flat."""
    table = dd.Table({"x": np.full(1000, 60.0)}, dd.Schema({"x": dd.Real(0, 100)}), neighbours="add-remove")
    curve = release.intervals(
        seeded_curator(table, dd.Budget(epsilon=9), seed=1), "x", bits=6, method="tree", epsilon=9
    )
    assert abs(curve.median() - 60) < 100 / 64 * 2
    assert release.quantile(curve, 0.25) == pytest.approx(curve.median(), abs=100 / 64)
