"""Attacks found in a second review, kept: scores from outside whose stated sensitivity was not the true one."""

# ruff: noqa: ARG002 - stand-ins keep the signatures of what they stand for

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.concepts.concept import Finite
from dodona.concepts.databases import Databases, Misfits
from dodona.concepts.grid import Grid, Misfit
from dodona.concepts.trees import Trees
from dodona.errors import BadQuery, DodonaError, Unsupported
from dodona.oracles.fronts import Shifted
from dodona.oracles.noise import ballot_for
from dodona.oracles.wire import candidates_of
from dodona.privacy.ledger.places import open_ledger, shown
from dodona.query.candidates import packed
from dodona.query.expr import Column
from dodona.query.statistic import Stack, as_expr, as_query
from dodona.server.service import Prices
from dodona.testing.oracles import seeded_curator

SCHEMA = dd.Schema({"income": dd.Real(0, 1e6), "sign": dd.Integer(-1, 1, missing=0), "ill": dd.Flag(missing=False)})

LEDGER = {"budget": dd.Budget(epsilon=1), "atoms": 1, "neighbours": "replace", "population": "people"}


def table(sick=0, rows=100, **options):
    ill = np.arange(rows) < sick
    sign = np.where(ill, 1, -1)
    return dd.Table({"income": 1e6 * ill, "sign": sign, "ill": ill}, SCHEMA, **options)


def scores(kind, **body):
    return {kind: body}


def one_count(column):
    return scores("misfits", **{"class": Finite((Column(column),)).to_json(), "estimates": packed(np.array([0]))})


@pytest.mark.parametrize("column", ["income", "sign"])
def test_a_class_of_numbers_is_no_class_of_conditions(column):
    """The sum of a number moves by its range; scores over it promised 1."""
    oracle = dd.Curator(table(), dd.Budget(epsilon=1))
    with pytest.raises(BadQuery, match="condition"):
        candidates_of(one_count(column), oracle)
    concepts = Finite((Column(column),))
    for stated in (Misfits(concepts, np.array([0])), Databases(concepts, np.zeros((2, 1), dtype=np.bool_), 1, 100)):
        with pytest.raises(BadQuery, match="condition"):
            oracle.select(stated, epsilon=1)
    assert oracle.left == 1


def test_scores_follow_from_counts_alone():
    """Whatever a kind says of itself: a total to which a row adds more than 1 is refused before any charge."""

    class Numbers(Misfits):
        def statistics(self, schema):
            return Stack((as_query("income"),))

    oracle = dd.Curator(table(), dd.Budget(epsilon=1))
    with pytest.raises(BadQuery, match="counts"):
        oracle.select(Numbers(Finite((Column("ill"),)), np.array([0])), epsilon=1)
    assert oracle.left == 1


HUGE = [2**63 - 1, -(2**63), -(2**63) + 1, 2**62, -(2**61) + 1]


@pytest.mark.parametrize("number", HUGE)
def test_no_public_number_takes_a_score_out_of_its_64_bits(number):
    """One row more made a score wrap around, or the choice fail where it did not without the row."""
    oracle = dd.Curator(table(), dd.Budget(epsilon=1))
    far, zeros = packed(np.array([number])), packed(np.array([0]))
    ill = Finite((Column("ill"),)).to_json()
    marginal = {"columns": ["ill"], "edges": {}, "supports": [[0]]}
    for attack in (
        scores("misfits", **{"class": ill, "estimates": far}),
        scores("shifted", of=one_count("ill"), offsets=far),
        scores("misfit", **marginal, expected=packed(np.array([0, number])), penalties=zeros),
        scores("misfit", **marginal, expected=packed(np.array([0, 0])), penalties=far),
    ):
        with pytest.raises(BadQuery, match="sizes that sum"):
            candidates_of(attack, oracle)


def test_one_total_is_not_stretched_over_many_public_numbers():
    """A thousand offsets beside one count made a row count a thousand times; now there is no such score."""
    schema = dd.Schema({"age": dd.Real(0, 100, missing=0.0)})
    grid = Grid.of(schema, ["age"], {"age": [0.0, 100.0]})
    whole = Misfit(grid, ((0,),), np.array([0]), np.array([0]))
    people = dd.Table({"age": np.full(100, 5.0)}, schema, neighbours="add-remove", rows=100)
    ballot = ballot_for(Shifted(whole, np.zeros(1000, dtype=np.int64)), people)
    totals = people.engine.totals(ballot.plan.program)
    with pytest.raises(BadQuery, match="one public number for each total"):
        ballot.tally(totals)
    with pytest.raises(BadQuery, match="one public number for each total"):
        Misfits(Finite((Column("ill"),)), np.array([0, 0])).tally(SCHEMA, np.array([3]))


def test_a_score_that_is_fine_is_still_chosen():
    oracle = seeded_curator(table(60), dd.Budget(epsilon=1000), 1)
    assert oracle.select(candidates_of(one_count("ill"), oracle), epsilon=900).index == 0


def test_a_small_part_of_a_huge_class_is_refused_before_it_is_listed():
    columns = tuple(f"b{i}" for i in range(9))
    schema = dd.Schema({name: dd.Flag(missing=False) for name in columns})
    oracle = dd.Curator(dd.Table({name: np.zeros(4, dtype=bool) for name in columns}, schema), dd.Budget(epsilon=1))
    part = {"kind": "Subset", "whole": Trees(columns, 4).to_json(), "kept": [0], "because": "some"}
    attack = scores("agreement", **{"class": part, "target": as_expr("b0").to_json()})
    with pytest.raises(BadQuery, match="subset"):
        candidates_of(attack, oracle)


def test_a_stated_number_of_rows_bounds_no_score():
    """With 10 rows stated and many more there, scores on the common grid left 64 bits."""
    people = table(neighbours="add-remove", rows=10)
    ballot = ballot_for(Stack((as_query("income"), as_query("income * 1e-6"))), people)
    few, many = (ballot.tally(np.array([steps, 5])) for steps in (2**20, 2**50))
    assert few.tolist() == [2**39, 5]
    assert many.tolist() == [2**60, 5]  # 2^69 on this grid


def test_quotes_are_not_shared_between_analysts():
    """A price that comes at once told an analyst that another had asked the same."""
    made = []

    class Quote:
        scope = None

        def at(self, budget, left):
            return "price"

    class Data:
        name, config, book = "data", type("C", (), {"budget": None}), type("B", (), {"left_to": lambda *_: 1})()
        table = type("T", (), {"schema": SCHEMA})

        def know(self, key):
            pass

    def quoted(raw, data, key):
        made.append(key.analyst)
        return Quote()

    prices, data = Prices(), Data()
    for analyst in ("ann", "bob", "ann"):
        prices.make(type("K", (), {"analyst": analyst})(), data, b"{}", quoted)
    assert made == ["ann", "bob"]


@pytest.mark.parametrize("place", ["postgresql://ann:sec#ret@127.0.0.1:1/db#people", "postgresql://ann:sec#ret@h"])
def test_a_password_that_splits_an_address_is_not_shown(place):
    """A # inside a password made the rest of it the table's name, which messages show."""
    for opening in (lambda: dd.Table(place, SCHEMA), lambda: open_ledger(place, **LEDGER)):
        with pytest.raises(DodonaError) as refusal:
            opening()
        assert "sec" not in str(refusal.value)
        assert "ret" not in str(refusal.value)
    assert shown(place) == "postgresql://"


def test_a_free_answer_claims_no_more_than_its_synopsis_does():
    """Released row by row, attached where a person is protected: the bill said that a person was."""
    schema, who = dd.Schema({"ill": dd.Flag(missing=False)}), np.arange(400) // 4
    rows = {"who": who, "ill": who % 3 == 0}
    plain = {"neighbours": "add-remove", "rows": 400, "name": "people"}
    by_row = dd.Curator(dd.Table(rows, schema, **plain), dd.Budget(epsilon=2))
    by_person = dd.Curator(dd.Table(rows, schema, **plain, unit=dd.Unit("who", 4)), dd.Budget(epsilon=2))
    with pytest.raises(Unsupported, match="promises another thing"):
        by_person.attach(release.conjunctions(by_row, width=1, share="1/2"))
    by_person.attach(release.conjunctions(by_person, width=1, share="1/2"))


def test_under_add_remove_a_row_that_came_later_changes_no_outcome(tmp_path):
    """That a question is answered must not tell whether a row was added since the table was opened."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file, schema = tmp_path / "people.parquet", dd.Schema({"x": dd.Flag(missing=False)})

    def stored(rows: int) -> None:
        pq.write_table(pa.table({"x": [True] * rows}), file)

    for neighbours in ("add-remove", "replace"):
        stored(100)
        table = dd.Table(file, schema, neighbours=neighbours, rows=100 if neighbours == "add-remove" else None)
        curator = dd.Curator(table, dd.Budget(epsilon=10))
        stored(101)
        if neighbours == "add-remove":
            assert curator.ask("x", epsilon=5).total == pytest.approx(101, abs=20)
        else:  # the number is public, so that it changed is no secret
            with pytest.raises(dd.errors.BadTable, match="open the table anew"):
                curator.ask("x", epsilon=5)
            assert curator.left == 10
