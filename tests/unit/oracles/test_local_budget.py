"""Per-row budgets without a curator: never passed, charged before any row reports, kept over reopening."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.engines.table import Table
from dodona.errors import AnswerLost, BadEffort, BudgetSpent, LedgerError, Refused, Unsupported
from dodona.oracles.effort import Effort
from dodona.oracles.exact import Exact
from dodona.oracles.local import Local
from dodona.oracles.local.offer import Blocks, even, fresh
from dodona.oracles.oracle import Request
from dodona.query.schema import Flag, Real, Schema
from dodona.query.statistic import Products, Stack, Value, as_expr
from dodona.testing.engines import PassingEngine
from dodona.testing.oracles import SeededBits

SCHEMA = Schema({"x": Real(0, 1, missing=0.5), "f": Flag(missing=False), "g": Flag(missing=False)})


def table(rows=3000, name="people"):
    rng = np.random.default_rng(0)
    return Table({"x": rng.random(rows), "f": rng.random(rows) < 0.4, "g": rng.random(rows) < 0.7}, SCHEMA, name=name)


def local(epsilon=1, seed=0, **options):
    oracle = Local(table(), epsilon, **options)
    oracle._bits = SeededBits(seed)
    return oracle


@settings(max_examples=60, deadline=None)
@given(
    left=st.lists(st.integers(0, 1000), min_size=1, max_size=12),
    share=st.fractions(Fraction(1, 100), 1),
)
def test_no_block_pays_more_than_it_has_and_no_more_is_taken_than_asked(left, share):
    amounts, sizes = np.array(left), np.full(len(left), 5)
    wanted = int(share * int(amounts.sum()))
    for way in (fresh, even):
        paid = np.zeros(len(left), dtype=int)
        for tier in way(amounts, wanted, sizes):
            assert tier.rows == 5 * len(tier.blocks)
            for block in tier.blocks:
                paid[block] += tier.amount
        assert (paid <= amounts).all()
        assert paid.sum() <= wanted
        # Little is left over: less than one unit a block, or one block's worth.
        most = len(left) if way is even else max(left)
        assert wanted - paid.sum() <= most


@settings(max_examples=12, deadline=None)
@given(shares=st.lists(st.sampled_from(["1/3", "0.05", "0.5", "0.001", "0.9"]), max_size=8), seed=st.integers(0, 99))
def test_no_sequence_of_questions_passes_a_rows_budget(shares, seed):
    oracle = local(epsilon=2, seed=seed)
    for share in shares:
        try:
            oracle.ask(Value(as_expr("f")), share=share)
        except BudgetSpent:
            continue
    paid = np.zeros(oracle._blocks.count, dtype=int)
    for entry in oracle.ledger.entries(1, 1000):
        if entry.kind == "charge":
            paid[list(entry.scope) if entry.scope is not None else slice(None)] += entry.amount
    assert paid.max(initial=0) <= oracle.budget.capacity


def test_shares_that_sum_to_one_fit():
    oracle = local()
    for share in ("0.3", *["0.07"] * 10):
        oracle.ask("f", share=share)
    assert oracle.left < 0.01
    with pytest.raises(BudgetSpent, match=r"still fits|Nothing more"):
        oracle.ask("f", share=0.1)


def test_small_shares_use_fresh_rows_and_large_epsilons_split():
    few = local(1).price("f", share=0.1)
    assert "of 3,000 rows at epsilon 1" in few.cost.mechanism
    many = local(40).price("f", share=0.5)
    assert "3,000 of 3,000 rows at epsilon 20" in many.cost.mechanism


def test_fresh_rows_are_better_than_a_split_budget_at_small_epsilon():
    oracle = local(1)
    fresh_spread = oracle.price("f", share=0.25).spread
    split_spread = oracle.price("f", epsilon=0.25).spread
    assert fresh_spread == pytest.approx(split_spread / 2, rel=0.1)  # sqrt(share) against share


def test_rows_pay_before_they_report():
    oracle = local()

    class Broken(PassingEngine):
        def reports(self, *_):
            assert oracle.ledger.spent() > 0
            raise RuntimeError("row 7 holds a secret")

    oracle._table.engine = Broken(oracle._table.engine)
    with pytest.raises(AnswerLost) as caught:
        oracle.ask("f", share=0.5)
    assert "secret" not in str(caught.value)
    assert oracle.left == pytest.approx(0.5, abs=0.01)


def test_the_account_survives_reopening(tmp_path):
    path = tmp_path / "rows.ledger"
    first = Local(table(), 1, path, create=True)
    first.ask("f", share=0.6)
    first.ledger.close()
    second = Local(table(), 1, path, create=True)
    with pytest.raises(BudgetSpent):
        second.ask("f", share=0.6)
    second.ask("f", share=0.3)
    blocks = Blocks(3000, "memory:people")
    np.testing.assert_array_equal(blocks.of(0, 3000), second._blocks.of(0, 3000))
    second.ledger.close()


def test_a_retry_costs_nothing_and_reports_nothing_new():
    oracle = local()
    first = oracle.ask("f", share=0.4, request_id="a")
    left = oracle.left
    again = oracle.ask("f", share=0.4, request_id="a")
    assert again.total == first.total
    assert oracle.left == left


def test_noninteractive_use_is_one_question():
    oracle = local(interactive=False)
    oracle.ask(Stack((Value(as_expr("f")), Value(as_expr("g")))), share=0.2)
    with pytest.raises(Unsupported, match="interactive=False"):
        oracle.ask("f", share=0.2)
    with pytest.raises(Unsupported, match="interactive=False"):
        oracle.select(["f", "g"], share=0.2)


def test_two_processes_cannot_both_ask_the_one_question(tmp_path):
    """Both looked before either asked: the ledger lets one of them through, and charges nothing for the other."""
    first, second = (local(interactive=False, ledger=tmp_path / "l.db", create=True) for _ in range(2))
    second._left = first._left = first._spent.left  # the check that a race gets past
    answer = first.ask("f", share=0.2, request_id="a")
    left = first.left
    with pytest.raises(Unsupported, match="interactive=False"):
        second.ask("g", share=0.2)
    with pytest.raises(Unsupported, match="interactive=False"):
        second.ask("f", share=0.2, request_id="b")
    assert second.left == left
    assert second.ask("f", share=0.2, request_id="a").total == answer.total  # a retry of the same one


def test_a_ledger_made_for_one_question_stays_so(tmp_path):
    local(interactive=False, ledger=tmp_path / "l.db", create=True).ask("f", share=0.2)
    with pytest.raises((LedgerError, Refused)):
        local(ledger=tmp_path / "l.db", create=True)
    local(ledger=tmp_path / "m.db", create=True).ask("f", share=0.2)
    with pytest.raises((LedgerError, Refused)):
        local(interactive=False, ledger=tmp_path / "m.db", create=True)


def test_a_grant_is_no_question():
    oracle = local(interactive=False)
    oracle.ledger.grant("local", oracle.budget.capacity)
    assert oracle.ask("f", share=0.2).total is not None


def test_tolerance_finds_the_smallest_share():
    oracle = local(4)
    price = oracle.price("f", tolerance=0.05)
    assert price.tolerance <= 0.05
    assert price.tolerance == pytest.approx(0.05, rel=0.1)
    with pytest.raises(BadEffort, match="at least"):
        oracle.price("f", tolerance=0.0001)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), True, "one", None])
def test_bad_epsilon_is_refused(epsilon):
    with pytest.raises(BadEffort):
        Local(table(), epsilon)


def test_what_the_local_model_cannot_do_is_refused():
    with pytest.raises(Unsupported, match="rho"):
        local().ask("f", rho=0.1)
    with pytest.raises(BadEffort, match="best"):
        local().select(["f", "g"], share=0.5, mechanism="exponential")
    rows = {"x": [0.1], "f": [True], "g": [False]}
    with pytest.raises(Unsupported, match="replace"):
        Local(Table(rows, SCHEMA, neighbours="add-remove", rows=10), 1)


def test_products_with_weights_and_gates_are_unbiased():
    conditions = (as_expr("f"), as_expr("g"), as_expr("x >= 0.5"))
    truth = Exact(table())
    for weight in ("1", "CASE WHEN f THEN 1 ELSE -1 END", "CASE WHEN g THEN 1 ELSE 0 END"):
        query = Products(conditions, as_expr(weight), 2)
        exact = np.asarray(truth.ask(query).total)
        answers = [local(8, seed).ask(query, share=1) for seed in range(10)]
        off = np.array([np.asarray(a.total) for a in answers]) - exact
        spread = np.asarray(answers[0].spread)
        assert np.all(np.abs(off.mean(axis=0)) <= 6 * spread / np.sqrt(10) + 1e-6), weight
        assert np.all(np.abs(off) <= np.asarray(answers[0].margin) * 1.5 + 1e-6), weight


def test_one_row_and_no_rows():
    one = Local(Table({"x": [0.5], "f": [True], "g": [False]}, SCHEMA, name="one"), 3)
    assert np.isfinite(one.ask("f", share=1).total)
    none = Local(Table({"x": [], "f": [], "g": []}, SCHEMA, name="none"), 3)
    with pytest.raises((BadEffort, BudgetSpent)):
        none.ask("f", share=1)


def unequal(path):
    """Blocks with unequal amounts left, so that the next question is paid in two tiers."""
    oracle = Local(table(), 1, path, create=True)
    oracle.ask("f", epsilon=0.25, request_id="start")
    oracle._ledger.charge(amount=oracle.budget.capacity // 4, analyst="x", request_id="x", what="q", scope=(0, 1, 2))
    return oracle


@pytest.mark.parametrize("place", ["", "; tier 2 of 2"])
def test_a_payment_of_one_tier_pays_for_no_other_question(tmp_path, monkeypatch, place):
    """Found by attack: only the first tier was looked at, so one that was paid under its own name reported again."""
    oracle = unequal(tmp_path / "l")
    request = Request(oracle._query("f"), Effort.of(share="0.749"), "k")
    offer = oracle._offer(request)
    tiers = offer.tiers
    assert len(tiers) == 2
    asked = {"what": str(request.query), "detail": request.fingerprint("local") + place, "schema": SCHEMA.digest}
    oracle._ledger.charge(amount=tiers[1].amount, analyst="local", request_id="k#1", scope=tiers[1].blocks, **asked)
    before = oracle.ledger.head()
    monkeypatch.setattr(oracle, "_offer", lambda _: offer)  # made before the other payment was seen
    with pytest.raises(Refused):
        oracle.answer(request)
    assert oracle.ledger.head() == before


def test_tiers_are_charged_in_one_step_or_not_at_all(tmp_path, monkeypatch):
    oracle = unequal(tmp_path / "l")
    before = oracle.ledger.head()
    session, real, entered = oracle._ledger._session, oracle._ledger._session.append, []

    def dies(entry):
        if entered:
            raise KeyboardInterrupt
        entered.append(entry)
        return real(entry)

    monkeypatch.setattr(session, "append", dies)
    with pytest.raises(KeyboardInterrupt):
        oracle.ask("f", share="0.749", request_id="k")
    monkeypatch.undo()
    assert oracle.ledger.head() == before
    answer = oracle.ask("f", share="0.749", request_id="k")
    assert oracle.ask("f", share="0.749", request_id="k") == answer
    assert [entry.request_id for entry in oracle.ledger.entries(before[0] + 1)] == ["k", "k#1", None]
    with pytest.raises(Refused):  # the second tier by itself is another question
        oracle.ask("f", share="0.749", request_id="k#1")
    oracle.ledger.verify()
