"""release.conjunctions: every method answers the class, within its error; choosing, refusals, rows drawn."""

from __future__ import annotations

import datetime
import itertools

import numpy as np
import pytest

import dodona as dd
from dodona.concepts.grid import Grid
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Category, Flag, Real, Schema
from dodona.query.statistic import Gate, Stack, Value
from dodona.release import _conjunctions as direct
from dodona.release import conjunctions, load, plan_conjunctions
from dodona.release.conjunctions import METHODS
from dodona.testing.oracles import conformance_table, seeded_curator

OF_BITS = tuple(method for method in METHODS if method != "residuals")
EDGES = {"age": [0, 18, 65, 99], "income": [0, 100, 200, 500, 1000]}
BITS = [f"b{i}" for i in range(7)]


def bit_table(rows: int = 20_000, seed: int = 0, neighbours: str = "add-remove") -> Table:
    rng = np.random.default_rng(seed)
    bits = rng.random((rows, 7)) < [0.5, 0.4, 0.3, 0.3, 0.2, 0.15, 0.1]
    bits[:, 1] |= bits[:, 0] & (rng.random(rows) < 0.5)
    bits[:, 3] ^= bits[:, 2]
    columns = {name: bits[:, i] for i, name in enumerate(BITS)}
    stated = rows if neighbours == "add-remove" else None
    schema = Schema({name: Flag(missing=False) for name in BITS})
    return Table(columns, schema, neighbours=neighbours, rows=stated, name="bits")


def members(grid: Grid, width: int) -> Stack:
    found = []
    for support in grid.supports(width):
        found += [Value(grid.member(support, cell)) for cell in itertools.product(*map(range, grid.shape(support)))]
    return Stack(tuple(found))


@pytest.mark.parametrize("method", ["residuals", "blocks", "pairs", "adaptive", "tree"])
def test_exact_oracle_gives_exact_marginals(method: str) -> None:
    table = conformance_table(3000)
    truth = Exact(table)
    width = 3 if method in ("residuals", "blocks") else 2  # a model of pairs is exact for pairs
    synopsis = conjunctions(truth, width=width, edges=EDGES, method=method)
    query = members(Grid.of(table.schema, None, EDGES), width)
    off = np.abs(np.asarray(synopsis.ask(query).total) - np.asarray(truth.ask(query).total))
    assert off.max() < {"residuals": 1e-2, "blocks": 1e-6}.get(method, 3.0)  # residuals are sums on a grid of 2^-24


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("method", OF_BITS)
def test_within_stated_margins_under_noise(method: str, delta: float, neighbours: str) -> None:
    table = bit_table(neighbours=neighbours)
    curator = seeded_curator(table, Budget(epsilon=1, delta=delta), 3)
    synopsis = conjunctions(curator, width=3, share=0.5, method=method)
    query = members(Grid.of(table.schema, BITS), 3)
    answer, exact = synopsis.ask(query), Exact(table).ask(query)
    inside = np.abs(np.asarray(answer.total) - np.asarray(exact.total)) <= np.asarray(answer.margin) + 1e-9
    assert inside.mean() > 0.85
    assert curator.left == pytest.approx(0.5 * float(curator.budget.total), abs=1e-5)


def test_the_unbiased_methods_state_their_exact_deviation() -> None:
    table = bit_table(4000)
    query, truth = members(Grid.of(table.schema, BITS), 2), Exact(bit_table(4000))
    exact = np.asarray(truth.ask(query).total)
    for method in ("characters", "blocks"):
        scores = []
        for seed in range(12):
            curator = seeded_curator(table, Budget(epsilon=1, delta=1e-6), seed)
            synopsis = conjunctions(curator, width=2, share=1, method=method)
            answer = synopsis.ask(query, confidence=0.6826894921)
            scores.append((np.asarray(answer.total) - exact) / np.asarray(answer.margin))
        spread = float(np.sqrt(np.mean(np.square(scores))))
        # 0.683 is one standard deviation of a Gaussian; the stated width is never less.
        assert 0.75 < spread <= 1.1, method


def test_prediction_is_what_happens_and_costs_nothing() -> None:
    table = bit_table()
    curator = seeded_curator(table, Budget(epsilon=1), 5)
    left = curator.left
    offers = plan_conjunctions(curator, width=3, share=1)
    assert curator.left == left
    assert set(offers.methods) == set(OF_BITS) - {"tree"}  # for columns of more cells
    for method in ("characters", "blocks"):
        errors = []
        for seed in range(3):
            synopsis = conjunctions(seeded_curator(table, Budget(epsilon=1), seed), width=3, share=1, method=method)
            query = members(Grid.of(table.schema, BITS), 3)
            errors.append(np.abs(np.asarray(synopsis.ask(query).total) - np.asarray(Exact(table).ask(query).total)))
        assert np.mean(errors) == pytest.approx(offers[method].error, rel=0.3)
    assert conjunctions(curator, width=3, share=0.5).header.method == offers[0].method


def gaps_table(rows: int = 4000) -> Table:
    """Eleven flags of which some are missing, and a category."""
    rng = np.random.default_rng(5)
    names = [f"b{i}" for i in range(11)]
    columns = {name: np.ma.array(rng.random(rows) < 0.4, mask=rng.random(rows) < 0.1) for name in names}
    columns |= {"c": rng.choice(["x", "y", "z"], rows, p=[0.6, 0.3, 0.1])}
    schema = Schema({**dict.fromkeys(names, Flag()), "c": Category("x", "y", "z", missing="x")})
    return Table(columns, schema, neighbours="add-remove", rows=rows, name="gaps")


@pytest.mark.parametrize("size", [2, 3, 7])
def test_cells_are_the_corners_of_a_simplex(size: int) -> None:
    """Of length 1 and as far apart as can be, so a row's vector is no longer than its ball, and two are two signs."""
    grid = Grid.of(Schema({"c": Category(*range(size), missing=0)}), None)
    table = Table({"c": list(range(size))}, Schema({"c": Category(*range(size), missing=0)}), name="t")
    rows = [
        Exact(table).ask(Gate(grid.sides[0].tests[i], Stack(tuple(map(Value, direct._corner(grid, 0)))))).total
        for i in range(size)
    ]
    corners = np.stack([np.ravel(row) for row in rows])
    inner = np.full((size, size), -1 / (size - 1)) + np.eye(size) * size / (size - 1)
    np.testing.assert_allclose(corners @ corners.T, inner, atol=1e-6)


def test_residuals_of_columns_that_may_be_missing_err_as_predicted_and_less_than_blocks() -> None:
    table, scores, errors = gaps_table(), [], []
    query, budget = members(Grid.of(table.schema, None), 2), Budget(epsilon=1, delta=1e-6)
    exact = np.asarray(Exact(table).ask(query).total)
    offers = plan_conjunctions(seeded_curator(table, budget, 0), width=2, share=1)
    for seed in range(2):
        synopsis = conjunctions(seeded_curator(table, budget, seed), width=2, share=1, method="residuals")
        answer = synopsis.ask(query, confidence=0.6826894921)
        assert answer.proven
        errors.append(np.abs(np.asarray(answer.total) - exact))
        scores.append((np.asarray(answer.total) - exact) / np.asarray(answer.margin))
    assert np.mean(errors) == pytest.approx(offers["residuals"].error, rel=0.2)
    assert 0.8 < float(np.sqrt(np.mean(np.square(scores)))) <= 1.1
    assert offers["residuals"].error < 0.9 * offers["blocks"].error


def test_any_equivalent_form_is_answered() -> None:
    table = conformance_table(3000)
    truth, synopsis = Exact(table), conjunctions(Exact(table), width=2, edges=EDGES, method="blocks")
    for question in (
        "smoker AND NOT sex = 'Male'",
        "NOT (smoker OR sex = 'Female')",
        "CASE WHEN smoker THEN sex = 'Male' ELSE FALSE END",
        "age >= 65 OR smoker",
        "age < 18",
        "age BETWEEN 18 AND 64",
        "income >= 200 AND sex IN ('Male', 'Female')",
        "smoker IS NULL",
        # Four columns together, but a sum of pairs: it comes down to two at a time.
        "(CASE WHEN smoker AND sex = 'Male' THEN 1 ELSE 0 END) + "
        "(CASE WHEN age < 18 AND income < 100 THEN 1 ELSE 0 END)",
    ):
        assert synopsis.ask(question).total == pytest.approx(truth.ask(question).total, abs=1e-6), question
    statement = "SELECT sex, smoker, COUNT(*) AS n FROM people WHERE TRUE GROUP BY sex, smoker"
    assert [r[2].value for r in synopsis.sql(statement)] == pytest.approx([r[2].value for r in truth.sql(statement)])


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("age >= 20", "cuts a bucket"),
        ("age = 18", "cuts a bucket"),
        ("age", "compared with their edges"),
        ("age + income > 3", "compared with their edges"),
        ("smoker AND sex = 'Male' AND age < 18", "at most 2"),
    ],
)
def test_what_is_not_in_the_class_is_refused(question: str, words: str) -> None:
    synopsis = conjunctions(Exact(conformance_table(500)), width=2, edges=EDGES, method="blocks")
    with pytest.raises(Unsupported, match=words):
        synopsis.ask(question)


def test_bad_input_is_refused_before_spending() -> None:
    curator = seeded_curator(conformance_table(500), Budget(epsilon=1), 1)
    for kwargs, kind, words in (
        ({"width": 3, "share": 1}, BadQuery, "number of columns"),
        ({"width": 0, "share": 1}, BadQuery, "width must be"),
        ({"width": True, "share": 1}, BadQuery, "width must be"),
        ({"width": 1, "columns": ["age"], "share": 1}, BadQuery, "edges"),
        ({"width": 1, "columns": ["nothing"], "share": 1}, BadQuery, "not a column"),
        ({"width": 1, "columns": ["sex", "SEX"], "share": 1}, BadQuery, "differ"),
        ({"width": 1, "share": 1, "method": "magic"}, BadQuery, "method must be"),
        ({"width": 1, "share": 1, "epsilon": 1}, BadEffort, "one of share"),
        ({"width": 1}, BadEffort, "exactly one"),
        ({"width": 2, "share": 1, "method": "characters"}, Unsupported, "does not fit"),  # sex may be missing
    ):
        with pytest.raises(kind, match=words):
            conjunctions(curator, **kwargs)  # type: ignore[arg-type]
    assert curator.left == 1.0


def test_missing_values_have_a_cell_of_their_own() -> None:
    schema = Schema({"c": Category("x", "y"), "f": Flag(), "z": Real(0, 10)})
    table = Table(
        {
            "c": np.array(["x", None, "w", "y"], dtype=object),
            "f": [True, None, False, True],
            "z": [1.0, np.nan, 9.5, 3.0],
        },
        schema,
        name="t",
    )
    truth = Exact(table)
    synopsis = conjunctions(truth, width=2, edges={"z": [0, 2, 5]})
    for question in ("c IS NULL", "c = 'x' OR f", "NOT f", "z < 2", "z IS NULL OR f", "c = 'y' AND z >= 2 AND z <= 5"):
        if question == "z IS NULL OR f":
            with pytest.raises(Unsupported, match="cuts a bucket"):  # missing and outside the edges share a cell
                synopsis.ask(question)
            continue
        assert synopsis.ask(question).total == pytest.approx(truth.ask(question).total, abs=1e-9), question


@pytest.mark.parametrize("method", OF_BITS)
def test_drawn_rows_follow_the_model(method: str) -> None:
    table = bit_table()
    synopsis = conjunctions(seeded_curator(table, Budget(epsilon=4), 2), width=2, share=1, method=method)
    random = np.random.default_rng(0)
    rows = synopsis.sample(40_000, random)
    drawn = Exact(Table(rows, table.schema, name="bits"))
    query = members(Grid.of(table.schema, BITS), 2)
    off = np.abs(np.asarray(drawn.ask(query).mean) - np.asarray(synopsis.ask(query).mean))
    assert off.max() < 0.012
    assert len(synopsis.sample(0)["b0"]) == 0
    with pytest.raises(BadQuery, match="rows"):
        synopsis.sample(-1)


def test_drawn_rows_are_values_of_the_schema() -> None:
    table = conformance_table(2000)
    rows = conjunctions(Exact(table), width=2, edges=EDGES).sample(500, np.random.default_rng(1))
    assert set(rows["sex"]) <= {"Female", "Male", None}
    assert rows["age"].min() >= 0
    assert rows["age"].max() <= 99
    assert np.all(rows["age"] == np.floor(rows["age"]))
    Table(rows, table.schema)  # loads as it is


def test_more_columns_than_can_be_listed() -> None:
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(11)]
    base = rng.integers(0, 4, 6000)
    columns = {name: (base + (rng.random(6000) < 0.3) * rng.integers(0, 4, 6000)) % 4 for name in names}
    table = Table(columns, Schema({name: Category(*range(4), missing=0) for name in names}), name="wide")
    synopsis = conjunctions(
        seeded_curator(table, Budget(epsilon=4, delta=1e-6), 1), width=2, share=1, method="adaptive"
    )
    assert synopsis.body.kind == "Mixture"
    truth = Exact(table)
    questions = [f"c{a} = {x} AND c{b} = {y}" for a, b, x, y in rng.integers(0, 4, (40, 4)) if a != b]
    off = [abs(float(synopsis.ask(q).mean) - float(truth.ask(q).mean)) for q in questions]
    alone = [abs(float(truth.ask(q).mean) - 1 / 16) for q in questions]
    assert np.mean(off) < 0.5 * np.mean(alone)
    rows = synopsis.sample(5000, rng)
    drawn = Exact(Table(rows, table.schema, name="wide"))
    gaps = [abs(float(drawn.ask(q).mean) - float(synopsis.ask(q).mean)) for q in questions]
    assert np.mean(gaps) < 0.01


def test_a_file_is_opened_by_the_door_of_this_room(tmp_path: object) -> None:
    synopsis = conjunctions(seeded_curator(bit_table(500), Budget(epsilon=1), 2), width=2, share=1, method="blocks")
    synopsis.save(f"{tmp_path}/bits.synopsis")
    again = load(f"{tmp_path}/bits.synopsis")
    question = "b0 AND NOT b3"
    assert float(again.ask(question).total) == float(synopsis.ask(question).total)
    assert float(again.ask(question).margin) == float(synopsis.ask(question).margin)
    assert again.header == synopsis.header


def test_a_number_of_buckets_stands_for_edges_over_the_schemas_ranges() -> None:
    """Whole numbers, numbers and dates; made-up rows reach both ends of each, and text is named as left out."""
    random = np.random.default_rng(3)
    schema = dd.Schema(
        {
            "age": dd.Integer(16, 95, required=True),
            "few": dd.Integer(0, 1, required=True),
            "pay": dd.Real(0, 10, required=True),
            "day": dd.Date("2024-01-01", "2024-12-31", required=True),
            "note": dd.Text(max_length=5),
        }
    )
    rows = 4000
    columns = {
        "age": random.integers(16, 96, rows),
        "few": random.integers(0, 2, rows),
        "pay": random.random(rows) * 10,
        "day": np.datetime64("2024-01-01") + random.integers(0, 366, rows),
        "note": np.full(rows, "x"),
    }
    synopsis = conjunctions(dd.Exact(dd.Table(columns, schema)), width=1, edges=4)
    assert synopsis.header.notes["left_out"] == ["note"]
    drawn = synopsis.sample(20_000, random)
    assert [*drawn] == ["age", "few", "pay", "day"]
    assert (drawn["age"].min(), drawn["age"].max()) == (16, 95)
    assert drawn["few"].mean() == pytest.approx(columns["few"].mean(), abs=0.03)
    assert np.bincount(drawn["age"].astype(int), minlength=96)[16:].min() > 150  # of 250 each
    frame = drawn.to_pandas()
    assert str(frame["age"].dtype) == "int64"
    assert {type(value) for value in drawn.to_dict()["day"]} == {datetime.date}
    assert "20,000 made-up rows" in drawn.to_markdown()
    for wrong in (0, 1001, True):
        with pytest.raises(BadQuery, match="whole number of buckets"):
            conjunctions(dd.Exact(dd.Table(columns, schema)), width=1, edges=wrong)


def test_missing_whole_numbers_stay_whole_in_made_up_rows() -> None:
    columns = {"age": np.array([1.0, 2.0, np.nan, 3.0] * 50)}
    synopsis = conjunctions(dd.Exact(dd.Table(columns, dd.Schema({"age": dd.Integer(1, 3)}))), width=1, edges=3)
    found = synopsis.sample(400).to_dict()["age"]
    assert {type(value) for value in found} == {int, type(None)}
