"""Keys that nobody listed: priced, charged in both amounts, shown where enough people have them, read with margins."""

from __future__ import annotations

from fractions import Fraction as F  # noqa: N817 - fractions are written all over
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona import release
from dodona.engines.keys import Counting
from dodona.errors import AnswerLost, BadEffort, BadQuery, BudgetSpent, Refused, Unsupported
from dodona.mechanisms import DiscreteLaplace
from dodona.mechanisms.threshold import Threshold
from dodona.mechanisms.weights import weights
from dodona.oracles.oracle import Oracle
from dodona.oracles.procedures import _absent, _shown
from dodona.privacy import Budget
from dodona.privacy.budget import KEY_UNITS
from dodona.privacy.ledger import KEYS
from dodona.query.candidates import OpenKeys, procedure_from_json
from dodona.testing import seeded_curator
from dodona.testing.oracles import SeededBits

BUDGET = Budget(epsilon=1, delta=1e-6, keys=1e-7)
SCHEMA = dd.Schema(
    {
        "code": dd.Integer(0, 10**6),
        "x": dd.Real(0, 1),
        "g": dd.Category("a", "b"),
        "day": dd.Date("2020-01-01", "2020-12-31"),
        "word": dd.Text(4),
    }
)
COUNTS = {5: 3000, 17: 900, 4: 400, 90: 150, 6: 30, 8: 2, 999_999: 1}


def columns() -> dict[str, Any]:
    code = np.repeat(list(COUNTS)[::-1], list(COUNTS.values())[::-1])  # the rarest first
    n = len(code)
    day = np.full(n, np.datetime64("2020-02-03"))
    return {"code": code, "x": np.zeros(n), "g": np.array(["a"] * n), "day": day, "word": np.array(["w"] * n)}


def table(folder: Path, *, unit: dd.Unit | None = None, neighbours: str = "add-remove", **more: Any) -> dd.Table:
    path = folder / "t.parquet"
    held = {**columns(), **more}
    pq.write_table(pa.table(held), path)
    return dd.Table(str(path), SCHEMA, name="t", neighbours=neighbours, unit=unit)


@pytest.fixture
def rows(tmp_path: Path) -> dd.Table:
    return table(tmp_path)


def test_what_enough_people_have_is_found_and_both_amounts_are_paid(rows: dd.Table) -> None:
    curator = seeded_curator(rows, BUDGET, 1)
    (plan,) = release.plan_keys(curator, "code", delta=2e-8, share="1/2")
    assert "shown from 37 people on" in plan.why
    assert curator.ledger.entries() == []
    found = release.keys(curator, "CODE", delta=2e-8, share="1/2")
    assert found.body.listed == (5, 17, 4, 90)  # the highest first, whatever the order of the rows
    for key in found.body.listed:
        answer = found.ask(f"code = {key}", confidence=0.999999)
        assert abs(answer.total - COUNTS[key]) <= answer.margin
        assert answer.proven
    assert found.rows is None
    bill = found.header.cost
    assert 0 < bill.keys <= 2e-8
    assert bill.keys_left == pytest.approx(1e-7 - bill.keys)
    assert (plan.cost.rho, float(plan.error)) == (pytest.approx(bill.amount), pytest.approx(13))
    (charge, _) = curator.ledger.entries()
    assert charge.paid(KEYS)[0] == curator.ledger.spent(KEYS) == round(bill.keys * KEY_UNITS)
    assert "3000" not in charge.detail + charge.what
    assert curator.ledger.verify().entries == 2
    release.keys(curator, "code", delta=5e-8, share="1/4")
    with pytest.raises(BudgetSpent, match="delta of keys"):
        release.keys(curator, "code", delta=1e-7, share="1/100")
    assert len(curator.ledger.entries()) == 4


def test_whole_numbers_within_bounds_need_no_delta(rows: dd.Table, tmp_path: Path) -> None:
    for budget in (Budget(epsilon=1), Budget(epsilon=1, delta=1e-6)):
        curator = seeded_curator(rows, budget, 1)
        (plan,) = release.plan_keys(curator, "code", share="1/2")
        assert "1,000,001 keys there can be" in plan.why
        found = release.keys(curator, "code", share="1/2")
        assert found.body.listed == (5, 17, 4, 90)
        assert (found.header.cost.keys, found.header.cost.amount) == (0, pytest.approx(float(budget.portion(F(1, 2)))))
        for key in found.body.listed:
            answer = found.ask(f"code = {key}", confidence=0.999999)
            assert abs(answer.total - COUNTS[key]) <= answer.margin
        found.save(tmp_path / "k")
        assert release.load(tmp_path / "k").body.threshold == found.body.threshold
        assert [
            r[0] for r in curator.with_keys(found).sql("SELECT code, COUNT(*) FROM t GROUP BY code", share=0.2).records
        ]
    exact = release.keys(dd.Exact(rows), "code")
    assert exact.body.listed == tuple(sorted(COUNTS, key=lambda key: -COUNTS[key]))


def test_keys_that_nobody_has_are_drawn_from_all_but_those_that_occur() -> None:
    values, counts = np.array([3, 9, 4, 0]), np.array([1, 1, 1, 1])
    threshold = Threshold(DiscreteLaplace(F(3)), 1, 1, False, 12)
    told = [_shown(values + 7, counts, threshold, 7, SeededBits(seed))["keys"] for seed in range(9)]
    assert {key for keys in told for key in keys} == set(range(7, 19))
    assert all(len(set(keys)) == len(keys) for keys in told)
    absent = _absent(values, 0, np.arange(8))
    assert absent.tolist() == [1, 2, 5, 6, 7, 8, 10, 11]


def test_a_request_is_answered_once(rows: dd.Table) -> None:
    curator, asked = dd.Curator(rows, BUDGET), OpenKeys("code", 1, F(1, 10**8))
    first = curator.run(asked, share="1/4", request_id="r")
    shown = list(zip(first.value["keys"], first.value["counts"], strict=True))
    assert shown == sorted(shown, key=lambda pair: (-pair[1], pair[0]))  # no order of rows, nor of an engine
    assert curator.run(asked, share="1/4", request_id="r").value == first.value
    with pytest.raises(Refused, match="fresh id"):
        curator.run(OpenKeys("code", 1, F(2, 10**8)), share="1/4", request_id="r")
    assert curator.ledger.spent(KEYS) == round(first.cost.keys * KEY_UNITS)
    assert procedure_from_json(asked.to_json()) == asked
    for bad in ({"column": "code", "each": 1, "delta": "1e9"}, {"column": "code", "each": 1}):
        with pytest.raises(BadQuery):
            procedure_from_json({"keys": bad})


def test_a_synopsis_of_keys_knows_its_class(rows: dd.Table, tmp_path: Path) -> None:
    found = release.keys(seeded_curator(rows, BUDGET, 1), "code", delta=5e-8, share="1/2")
    found.save(tmp_path / "k")
    for synopsis in (found, release.load(tmp_path / "k")):
        listed = synopsis.sql("SELECT code, COUNT(*) AS n FROM t GROUP BY code")
        assert [row[0] for row in listed.records][:4] == [5, 17, 4, 90]
        both = synopsis.ask("code IN (5, 17)")
        assert abs(both.total - 3900) <= both.margin
        assert both.margin > synopsis.ask("code = 5").margin
        for question in ("1", "code <> 5", "code IS NULL"):
            with pytest.raises(Unsupported, match="it knows nothing"):
                synopsis.ask(question)


def test_nothing_found_is_an_answer_too(tmp_path: Path) -> None:
    few = table(tmp_path)
    found = release.keys(seeded_curator(few, BUDGET, 1), "code", delta=1e-10, rho=F(1, 10**7))
    assert found.body.listed == ()
    with pytest.raises(Unsupported, match="no key of code stood out"):
        found.ask("code = 5")
    found.save(tmp_path / "k")
    assert release.load(tmp_path / "k").body.listed == ()


@pytest.mark.parametrize(
    ("column", "stated", "error", "match"),
    [
        ("nothing", {}, BadQuery, "column of the schema"),
        ("g", {}, BadQuery, "GROUP BY g"),
        ("x", {}, BadQuery, "real numbers"),
        ("day", {}, BadQuery, "calendar"),
        ("code", {"delta": 1e-6}, BadEffort, "part for keys"),
        ("code", {"delta": 0}, BadEffort, "delta"),
        ("word", {"delta": None}, BadQuery, "state delta="),
        ("code", {"each": 0}, BadQuery, "each"),
        ("code", {"each": 2}, BadQuery, "every row is a person"),
        ("code", {"share": 2}, BadEffort, "share"),
    ],
)
def test_refused_before_anything_is_charged(
    rows: dd.Table, column: str, stated: dict[str, Any], error: type[Exception], match: str
) -> None:
    curator = dd.Curator(rows, BUDGET)
    for ask in (release.plan_keys, release.keys):
        with pytest.raises(error, match=match):
            ask(curator, column, **{"delta": 1e-8, "share": F(1, 2), **stated})  # type: ignore[operator]
    assert curator.ledger.entries() == []


@pytest.mark.parametrize("budget", [Budget(epsilon=1), Budget(epsilon=1, delta=1e-6), Budget(rho=1)], ids=str)
def test_a_budget_without_a_part_for_keys_has_none_and_says_why(rows: dd.Table, budget: Budget) -> None:
    curator = dd.Curator(rows, budget)
    with pytest.raises(Unsupported, match="Keys that nobody listed need a part of the budget's delta"):
        release.keys(curator, "code", delta=1e-8, share=1)
    pure = dd.Curator(rows, BUDGET).purely()
    assert pure is not None
    with pytest.raises(Unsupported, match="pure privacy"):
        release.keys(pure, "code", delta=1e-8, share=1)
    assert curator.ledger.entries() == []


def test_all_of_the_budget_at_once_is_pure_but_for_delta(rows: dd.Table) -> None:
    curator = seeded_curator(rows, BUDGET, 2)
    found = release.keys(curator, "code", delta=1e-7, share=1)
    assert found.header.method.startswith(("truncated Laplace", "discrete Laplace"))
    assert curator.left == 0
    assert 6 in found.body.listed  # 30 people: at a pure epsilon of 1 that is enough
    assert curator.purely() is None


# -- people ----------------------------------------------------------------------------------------------------------


def people(folder: Path, held: dict[int, list[int]]) -> dd.Table:
    """Each person's codes, in rows of their own."""
    path = folder / "people.parquet"
    pairs = [(who, code) for who, codes in held.items() for code in codes]
    whose, code = (np.array(part, dtype=np.int64) for part in zip(*pairs, strict=True))
    pq.write_table(pa.table({"who": whose, "code": code}), path)
    schema = dd.Schema({"code": dd.Integer(0, 10**6)})
    return dd.Table(str(path), schema, name="t", neighbours="add-remove", unit=dd.Unit("who", 2))


def test_at_most_so_many_keys_of_a_person_count_and_each_once(tmp_path: Path) -> None:
    held = {who: [who % 7, who % 7, 100 + who % 5, 200 + who % 3, 300] for who in range(400)}
    rows = people(tmp_path, held)
    for each in (1, 2, 3, 9):
        values, counts = rows.engine.people_by_key("code", Counting(each))
        assert counts.sum() == 400 * min(each, 4)
        assert counts.max() <= 400
    values, counts = rows.engine.people_by_key("code", Counting(4))
    assert dict(zip(values.tolist(), counts.tolist(), strict=True))[300] == 400


def test_a_person_moves_as_many_counts_as_was_said(tmp_path: Path) -> None:
    """Whatever they hold: the choice among their keys follows from these alone."""
    random = np.random.default_rng(5)
    held = {who: random.integers(0, 30, random.integers(1, 12)).tolist() for who in range(60)}
    for each in (1, 3):
        whole = dict(
            zip(
                *(part.tolist() for part in people(tmp_path, held).engine.people_by_key("code", Counting(each))),
                strict=True,
            )
        )
        for gone in (0, 17, 59):
            rest = people(tmp_path, {who: codes for who, codes in held.items() if who != gone})
            less = dict(
                zip(*(part.tolist() for part in rest.engine.people_by_key("code", Counting(each))), strict=True)
            )
            moved = {key: n - less.get(key, 0) for key, n in whole.items() if n != less.get(key, 0)}
            assert set(moved.values()) == {1}
            assert len(moved) == min(each, len(set(held[gone])))
            assert set(less) <= set(whole)


def test_a_fault_after_the_charge_is_one_fixed_refusal(rows: dd.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    curator = dd.Curator(rows, BUDGET)

    def broken(*_: Any) -> Any:
        raise ValueError("row 17 holds 999999")

    monkeypatch.setattr(type(rows.engine), "_fetch_counts", broken)
    with pytest.raises(AnswerLost) as told:
        release.keys(curator, "code", delta=1e-8, share=F(1, 2))
    assert "17" not in str(told.value)
    assert curator.ledger.spent(KEYS) > 0  # paid: rows were read


def test_only_who_is_trusted_with_rows_finds_keys(rows: dd.Table) -> None:
    found: Oracle = release.keys(seeded_curator(rows, BUDGET, 1), "code", delta=5e-8, share=F(1, 2))
    with pytest.raises(Unsupported):
        release.keys(found, "code", delta=1e-8, share=F(1, 2))
    exact = release.keys(dd.Exact(rows), "code", delta=1e-8)
    assert len(exact.body.listed) == len(COUNTS)
    assert exact.ask("code = 8").margin == 0


@pytest.mark.parametrize("where", ["arrays", "file"])
def test_what_was_found_can_be_grouped_by_and_the_rest_is_other(tmp_path: Path, where: str) -> None:
    words = np.repeat(["Oslo ", "bergen", "a rare one"], [500, 200, 1])
    held = {"city": words, "x": np.tile([0.0, 1.0], 351)[:701]}
    if where == "file":
        pq.write_table(pa.table(held), tmp_path / "c.parquet")
    schema = dd.Schema({"city": dd.Text(20, fold="case", trim=True), "x": dd.Real(0, 1)})
    source: Any = str(tmp_path / "c.parquet") if where == "file" else held
    rows = dd.Table(source, schema, name="cities", neighbours="add-remove")
    curator = seeded_curator(rows, BUDGET, 1)
    with pytest.raises(BadQuery, match=r"release\.keys"):
        curator.sql("SELECT city, COUNT(*) FROM cities GROUP BY city", share=0.1)
    found = release.keys(curator, "city", delta=5e-8, share=0.5)
    listed = curator.with_keys(found)
    answer = listed.sql("SELECT city, COUNT(*) AS n, SUM(x) AS s FROM cities GROUP BY city", share=0.25)
    assert [record[0] for record in answer.records] == ["oslo", "bergen", "(other)"]
    for record, truth in zip(answer.records, (500, 200, 1), strict=True):
        assert abs(record[1].value - truth) < 60
    assert curator.left == listed.left < 0.3 * curator.budget.total  # one budget
    assert curator.ledger.verify().spent == curator.ledger.spent()
    with pytest.raises(BadQuery, match="not listed yet"):
        listed.with_keys(found)
    exact = release.keys(dd.Exact(dd.Table(held, schema, name="cities", neighbours="add-remove")), "city", delta=5e-8)
    with pytest.raises(Unsupported, match="without noise"):  # what one person alone has is among them
        curator.with_keys(exact)
    other = dd.Curator(dd.Table(held, schema, name="others", neighbours="add-remove"), BUDGET)
    with pytest.raises(Unsupported, match="found in 'others'"):
        other.with_keys(found)


def test_a_price_is_affordable_where_both_amounts_fit(rows: dd.Table) -> None:
    curator = seeded_curator(rows, BUDGET, 1)
    release.keys(curator, "code", delta=8e-8, share="1/4")
    question = OpenKeys("code", 1, F(1, 10**7))
    price = curator.price(question, share="1/100")
    assert (price.affordable, price.cost.keys_left) == (False, 0)
    assert "would be refused" in str(price)
    (plan,) = release.plan_keys(curator, "code", delta=1e-7, share="1/100")
    assert not plan.affordable
    assert not plan.feasible
    with pytest.raises(BudgetSpent, match="delta of keys"):
        curator.run(question, share="1/100")
    (plan,) = release.plan_keys(curator, "code", delta=1e-8, share="1/100")
    assert plan.affordable
    assert 0 < float(plan.cost.delta) <= 1e-8
    assert not curator.price(OpenKeys("code", 1, F(1, 10**8)), share="9/10").affordable


# -- people with many keys ---------------------------------------------------------------------------------------------


def shoppers(folder: Path, random: np.random.Generator, count: int = 4000) -> tuple[dd.Table, dict[int, int]]:
    """People with 1 to 6 codes, of which some are very common; and how many people have each."""
    common = 1 / np.arange(1, 3001)
    ends = np.cumsum(common / common.sum())
    held = {who: np.searchsorted(ends, random.random(random.integers(1, 7))).tolist() for who in range(count)}
    told: dict[int, int] = {}
    for codes in held.values():
        for code in set(codes):
            told[code] = told.get(code, 0) + 1
    return people(folder, held), told


def test_of_people_with_many_keys_rounds_find_most_and_each_count_has_its_margin(tmp_path: Path) -> None:
    rows, held = shoppers(tmp_path, np.random.default_rng(6))
    found, taken = {}, {}
    for method in ("threshold", "weighted", "rounds", None):
        curator = seeded_curator(rows, Budget(epsilon=1, delta=1e-6, keys=5e-7), 2)
        (plan,) = release.plan_keys(curator, "code", delta=5e-7, each=6, method=method, counts=False, share=F(9, 10))
        listed = release.keys(curator, "code", delta=5e-7, each=6, method=method, counts=False, share=F(9, 10))
        assert plan.method == listed.header.method
        bill = listed.header.cost
        assert 4e-7 < bill.keys <= 5e-7  # both amounts, all rounds in one entry
        assert bill.share == pytest.approx(0.9, rel=1e-6)
        assert len(curator.ledger.entries()) == 2
        assert curator.ledger.spent(KEYS) == round(bill.keys * KEY_UNITS)
        found[method], taken[method] = set(listed.body.listed), listed.header.method
        assert min(held[code] for code in found[method]) > 2
        if method != "threshold":
            with pytest.raises(Unsupported, match="without counts"):
                listed.ask("code = 0")
        listed.save(tmp_path / f"{method}.synopsis")
        assert release.load(tmp_path / f"{method}.synopsis").body.listed == listed.body.listed
    assert len(found["threshold"]) < min(len(found["weighted"]), len(found["rounds"]))
    assert taken[None] == taken["rounds"]
    curator = seeded_curator(rows, BUDGET, 3)
    listed = release.keys(curator, "code", delta=1e-7, each=6, method="rounds", share=F(9, 10))
    counts, margins = listed.body.counts(0.95)
    truth = np.array([held[code] for code in listed.body.listed])
    assert np.mean(np.abs(counts - truth) <= margins) > 0.6  # which margins hold how often the law says
    assert np.all(np.abs(counts - truth) <= 4 * margins)
    assert listed.body.noisy.tolist() == sorted(listed.body.noisy.tolist(), reverse=True)
    exact = release.keys(dd.Exact(rows), "code", delta=1e-7, each=6, method="rounds")
    assert exact.ask("code = 0").total == held[0]
    assert curator.with_keys(listed).sql("SELECT code, COUNT(*) FROM t GROUP BY code", share=0.1).records


@pytest.mark.parametrize("where", ["arrays", "file"])
def test_a_person_weighs_no_more_than_was_said(tmp_path: Path, where: str) -> None:
    """Whoever goes, with however many keys: the totals move by their own weight, of an L2 norm within the whole."""
    random = np.random.default_rng(5)
    held = {who: random.integers(0, 12, random.integers(1, 9)).tolist() for who in range(40)}
    how = Counting(3, weights(64, 3), (4, 7))

    def totals(of: dict[int, list[int]]) -> dict[int, int]:
        if where == "file":
            rows = people(tmp_path, of)
        else:
            pairs = np.array([(who, code) for who, codes in of.items() for code in codes])
            schema = dd.Schema({"code": dd.Integer(0, 10**6)})
            stored = {"who": pairs[:, 0], "code": pairs[:, 1]}
            rows = dd.Table(stored, schema, name="t", neighbours="add-remove", unit=dd.Unit("who", 2))
        return dict(zip(*(part.tolist() for part in rows.engine.people_by_key("code", how)), strict=True))

    whole = totals(held)
    assert not {4, 7} & set(whole)
    for gone in (0, 7, 17, 39):
        less = totals({who: codes for who, codes in held.items() if who != gone})
        moved = [n - less.get(key, 0) for key, n in whole.items() if n != less.get(key, 0)]
        many = min(3, len(set(held[gone]) - {4, 7}))
        assert moved == [weights(64, 3)[many - 1]] * many
        assert sum(by * by for by in moved) <= 64 * 64


def test_what_a_round_has_shown_is_on_nobodys_list_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second round's totals are as if nobody had what the first has shown, and never as if they had less."""
    rows, _ = shoppers(tmp_path, np.random.default_rng(7))
    asked: list[Counting] = []
    real = type(rows.engine).people_by_key

    def watched(self: Any, column: str, how: Counting) -> Any:
        asked.append(how)
        return real(self, column, how)

    monkeypatch.setattr(type(rows.engine), "people_by_key", watched)
    curator = seeded_curator(rows, BUDGET, 3)
    listed = release.keys(curator, "code", delta=1e-7, each=6, method="rounds", counts=False, share=1)
    first, second = asked
    assert first.known == ()
    assert (first.most, first.weights) == (second.most, second.weights) == (6, (4096, 2896, 2364, 2048, 1831, 1672))
    assert 0 < len(second.known) < len(listed.body.listed)
    assert listed.body.listed[: len(second.known)] == second.known
    assert len(set(listed.body.listed)) == len(listed.body.listed)


@pytest.mark.parametrize(
    ("stated", "match"),
    [
        ({"method": "rounds", "each": 1, "delta": 1e-8, "share": 1}, "each= above 1"),
        ({"method": "weighted", "each": 3, "share": 1}, "and a delta="),
        ({"method": "all", "each": 3, "delta": 1e-8, "share": 1}, "method must be one of"),
        ({"method": "rounds", "each": 3, "delta": 1e-8, "epsilon": 1}, "share= or rho="),
        ({"counts": 3, "delta": 1e-8, "share": 1}, "counts"),
    ],
)
def test_ways_that_cannot_be_are_refused(tmp_path: Path, stated: dict[str, Any], match: str) -> None:
    rows = people(tmp_path, {who: [1, 2] for who in range(9)})
    curator = dd.Curator(rows, BUDGET)
    for ask in (release.plan_keys, release.keys):
        with pytest.raises(Refused, match=match):
            ask(curator, "code", **stated)  # type: ignore[operator]
    assert curator.ledger.entries() == []
    for asked in (OpenKeys("code", 3, F(1, 10**8), "rounds", False), OpenKeys("code", 3, F(1, 10**8), "weighted")):
        assert procedure_from_json(asked.to_json()) == asked
    assert "method" not in OpenKeys("code", 3, F(1, 10**8)).to_json()["keys"]  # what was charged once stays that
    for bad in ({"method": 5}, {"counts": 1}, {"more": 1}):
        with pytest.raises(BadQuery):
            procedure_from_json({"keys": {"column": "code", "each": 2, "delta": "1/100000000", **bad}})


# -- datasets ----------------------------------------------------------------------------------------------------------


def test_keys_of_one_table_of_a_dataset_are_known_to_all_its_joins(tmp_path: Path) -> None:
    """Grouped by, beside a private table, and as what a public table is joined on."""
    drugs = np.repeat(["aspirin", "ibuprofen", "a rare one"], [300, 200, 1])
    who = np.arange(501)
    unit = dd.Unit("who", 2)
    pq.write_table(pa.table({"who": who, "drug": drugs}), tmp_path / "visits.parquet")
    pq.write_table(pa.table({"who": who, "old": who % 2 == 0}), tmp_path / "homes.parquet")
    tables = {
        "visits": dd.Table(str(tmp_path / "visits.parquet"), {"drug": dd.Text(20)}, unit=unit, neighbours="add-remove"),
        "homes": dd.Table(str(tmp_path / "homes.parquet"), {"old": dd.Flag()}, unit=unit, neighbours="add-remove"),
        "kinds": dd.Public({"drug": ["aspirin", "ibuprofen", "other"], "class": ["acid", "acid", "other"]}),
    }
    data = dd.Dataset(tables, "who", budget=Budget(epsilon=8, delta=1e-6, keys=1e-7))
    visits = data["visits"]
    found = release.keys(visits, "drug", delta=5e-8, share=F(1, 4))
    assert found.body.listed == ("aspirin", "ibuprofen")
    listed = data.with_keys(found)
    assert [*listed] == [*data]
    by_drug = listed.sql("SELECT drug, COUNT(*) AS n FROM visits GROUP BY drug", share=0.1)
    assert [record[0] for record in by_drug.records] == ["aspirin", "ibuprofen", "(other)"]
    joined = "visits JOIN homes ON visits.who = homes.who"
    both = listed.sql(f"SELECT drug, COUNT(*) AS n FROM {joined} WHERE old GROUP BY drug", share=0.1)
    for record, truth in zip(both.records, (150, 100, 1), strict=True):
        assert abs(record[1].value - truth) < 40
    of_kind = listed.sql("SELECT class, COUNT(*) AS n FROM visits JOIN kinds USING (drug) GROUP BY class", share=0.1)
    assert abs(of_kind.records[0][1].value - 500) < 40
    assert listed.left == data.left < 0.5 * visits.budget.total  # type: ignore[attr-defined]
    with pytest.raises(BadQuery):
        data.sql("SELECT drug, COUNT(*) AS n FROM visits GROUP BY drug", share=0.1)  # the old one knows no more
    with pytest.raises(Unsupported, match="not of several joined"):
        data[joined].with_keys(found)  # type: ignore[attr-defined]
    alone = visits.with_keys(found)  # type: ignore[attr-defined]
    assert alone.sql(f"SELECT drug, COUNT(*) AS n FROM {joined} GROUP BY drug", share=0.1).records[0][0] == "aspirin"
