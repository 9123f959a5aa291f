"""A whole (epsilon, delta) budget as one pure epsilon: charged in full before the first answer, never beside more."""

import contextlib
import os
import threading
from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.errors import BudgetSpent, DodonaError, LedgerUnavailable, Refused, Unsupported
from dodona.learn._learner import Recorded
from dodona.oracles.fronts import Counted
from dodona.privacy import UNITS, Budget, Cost, SqliteLedger
from dodona.privacy.ledger.whole import Pocket, pure_spent
from dodona.query.statistic import Stack, as_query

PROMISE = Budget(epsilon=1, delta=1e-6)
SCHEMA = dd.Schema({"x": dd.Integer(0, 1), "g": dd.Integer(0, 2, public=True)})
TABLE = dd.Table({"x": np.arange(90) % 2, "g": np.arange(90) % 3}, SCHEMA)


def opened(ledger=None, budget=PROMISE):
    return dd.Curator(TABLE, budget, ledger, create=True)


def test_the_whole_is_paid_before_the_first_answer_and_every_question_stands_in_the_book(tmp_path):
    place = tmp_path / "book"
    curator = opened(place)
    pure = curator.purely()
    assert curator.ledger.spent() == 0  # looking costs nothing
    assert pure.price("x", share=1).affordable
    assert curator.ledger.spent() == 0
    first = pure.ask("x", share=F(1, 2))
    assert (first.cost.unit, first.cost.amount, first.cost.left) == ("epsilon", 0.5, 0.5)
    assert curator.ledger.left() == 0
    chosen = pure.select(["x = 0", "x = 1"], share=F(1, 2))
    assert chosen.cost.left == 0
    with pytest.raises(BudgetSpent, match="epsilon"):
        pure.ask("x", epsilon=1e-9)
    with pytest.raises(BudgetSpent):
        curator.ask("x", share=1e-6)
    with pytest.raises(BudgetSpent):
        curator.ask("x", share=1)
    kinds = [(entry.kind, entry.amount) for entry in curator.ledger.entries()]
    assert kinds == [("charge", PROMISE.capacity), ("answer", 0), ("charge", 0), ("answer", 0)]
    assert pure_spent(curator.ledger) == 1
    assert pure.ledger.verify().spent == PROMISE.capacity
    assert first.cost.seq == 1
    pure.ledger.close()
    curator.ledger.close()
    again = opened(place)
    assert again.left == 0
    assert again.purely() is None
    assert again.ledger.verify().entries == 4


@pytest.mark.parametrize("budget", [Budget(epsilon=1), Budget(rho=1), Budget.sulq(1, 1e-6, queries=10)], ids=str)
def test_other_budgets_have_no_pocket(budget):
    curator = opened(budget=budget)
    assert curator.purely() is None
    with pytest.raises(Unsupported, match="epsilon and delta"):
        Pocket(curator.ledger, "a")


@pytest.mark.parametrize("question", ["x", "CASE WHEN g = 1 THEN x END"], ids=["all", "one atom"])
def test_a_budget_of_which_anything_is_spent_has_none(question):
    curator = opened()
    early = curator.purely()
    curator.ask(question, share=1e-6)
    assert curator.purely() is None
    assert early.left == 0
    assert not early.price("x", share=1).affordable
    spent = curator.ledger.spent()
    with pytest.raises(BudgetSpent):
        early.ask("x", share=F(1, 2))
    assert curator.ledger.spent() == spent
    assert len(curator.ledger.entries()) == 2


def test_two_pockets_of_one_budget_are_one():
    """Found by attack: each took the other's receipt for its own payment, and spent the whole epsilon."""
    curator = opened()
    first, second = curator.purely(), curator.purely()
    first.ask("x", share=F(1, 8), request_id="same")
    second.ask("x", share=F(1, 8), request_id="same")  # a retry: answered from the book
    assert second.left == first.left == F(7, 8)
    second.ask("x", share=F(3, 8))
    first.ask("x", share=F(1, 2))
    for pocket in (first, second, curator.purely() or second):
        with pytest.raises(BudgetSpent):
            pocket.ask("x", epsilon=1e-9)
    assert F(99, 100) < pure_spent(curator.ledger) <= 1


@pytest.mark.parametrize("whose", ["curator", "bob"])
def test_a_pocket_is_not_paid_for_by_anothers_receipt(tmp_path, whose):
    """Forty pockets on an unspent ledger, all with the same request id: one epsilon in all, whoever opens them."""
    place = tmp_path / "book"
    pockets = [
        dd.Curator(TABLE, PROMISE, place, analyst=whose if i else "curator", create=True).purely() for i in range(40)
    ]
    had = 0
    for number, pocket in enumerate(pockets):
        with contextlib.suppress(BudgetSpent):
            pocket.ask("x", epsilon=0.1, request_id="the same")
            pocket.ask("x", epsilon=0.899, request_id=f"fresh {number}")
            had += 1
    assert had == 1
    book = pockets[0].ledger
    assert book.spent() <= UNITS
    assert book.verify().spent == PROMISE.capacity


def test_a_pocket_outlives_the_process_and_only_who_paid_goes_on(tmp_path):
    place = tmp_path / "book"
    first = dd.Curator(TABLE, PROMISE, place, analyst="ann", create=True)
    answer = first.purely().ask("x", share=F(1, 2), request_id="q")
    first.ledger.close()
    other = dd.Curator(TABLE, PROMISE, place, analyst="bob", create=True)
    assert other.purely() is None
    with pytest.raises(BudgetSpent):
        Pocket(other.ledger, "bob").charge(amount=1, analyst="bob", request_id="r", what="q")
    again = dd.Curator(TABLE, PROMISE, place, analyst="ann", create=True).purely()
    assert again.ask("x", share=F(1, 2), request_id="q") == answer
    assert again.left == 0.5
    again.ask("x", share=F(1, 2))
    with pytest.raises(BudgetSpent):
        again.ask("x", epsilon=1e-9)


def test_all_of_it_for_one_question_leaves_no_pocket_and_a_pocket_leaves_nothing_for_it():
    schema = dd.Schema({"x": dd.Integer(0, 1), "g": dd.Category("a", "b", public=True)})
    table = dd.Table({"x": np.arange(90) % 2, "g": ["a", "b"] * 45}, schema)
    groups = [dd.Gate(dd.parse(f"g = '{g}'"), dd.Value(dd.parse("x"))) for g in "ab"]
    curator = dd.Curator(table, PROMISE)
    early = curator.purely()
    curator.ask(groups[0], share=1)
    for question in (*groups, "x"):
        with pytest.raises(BudgetSpent):
            early.ask(question, epsilon=1e-6)
    curator.ask(groups[1], share=1)  # the other group has its own
    other = dd.Curator(table, PROMISE)
    pocket = other.purely()
    pocket.ask(groups[0], epsilon=0.5)
    assert other.ledger.entries()[0].scope is not None
    for question in (*groups, "x"):
        with pytest.raises(BudgetSpent):
            other.ask(question, share=1e-3)
    pocket.ask(groups[1], epsilon=1)  # within the pocket groups are paid for in parallel
    with pytest.raises(BudgetSpent):
        pocket.ask("x", epsilon=1e-6)
    pocket.ask(groups[0], epsilon=0.49)
    other.ledger.verify()


def test_a_quota_below_the_whole_has_no_pocket():
    curator = opened()
    curator.ledger.grant("curator", PROMISE.capacity - 1)
    with pytest.raises(BudgetSpent, match="quota"):
        curator.purely().ask("x", share=F(1, 8))
    assert curator.ledger.spent() == 0


def test_a_retry_is_answered_from_the_book_and_not_charged_again():
    pure = opened().purely()
    first = pure.ask("x", share=F(1, 2), request_id="q")
    assert pure.ask("x", share=F(1, 2), request_id="q") == first
    assert pure.left == 0.5
    with pytest.raises(Refused, match="another"):
        pure.ask("x = 0", share=F(1, 2), request_id="q")


def test_what_costs_nothing_pays_for_nothing():
    curator = opened()
    pure = curator.purely()
    free = pure.ask("1", share=F(1, 2), request_id="free")  # the number of rows is public
    assert (free.cost.amount, curator.ledger.spent()) == (0, 0)
    assert pure.ask("1", share=F(1, 2), request_id="free") == free
    curator.ask("x", share=0.1)
    with pytest.raises(BudgetSpent):
        pure.ask("x", share=F(1, 2))


def test_a_request_id_of_another_question_is_refused_before_anything_is_paid():
    curator = opened()
    curator.ask("1", share=F(1, 2), request_id="q")
    pure = curator.purely()
    with pytest.raises(Refused, match="another"):
        pure.ask("x", share=F(1, 2), request_id="q")
    assert curator.ledger.spent() == 0
    pure.ask("x", share=F(1, 2))


def test_only_who_opened_it_may_ask():
    curator = opened()
    pocket = curator.purely().ledger
    with pytest.raises(Refused, match="opened"):
        pocket.charge(amount=1, analyst="bob", request_id="1", what="q")
    assert curator.ledger.spent() == 0


@pytest.mark.parametrize("epsilon", [F(1, 10**5), F(1, 100), 1])
def test_all_of_it_is_stated_as_all_of_it(epsilon):
    """Found by attack: rho rounds down, so what the capacity converts to is a hair below the epsilon that was lost."""
    budget = Budget(epsilon=epsilon, delta=F(1, 10**15))
    assert budget.guarantee(budget.capacity)[0] >= epsilon
    assert budget.guarantee(budget.capacity, F(epsilon)) == (epsilon, budget.delta)
    assert budget.guarantee(budget.capacity // 2)[0] < epsilon


def test_threads_share_it_and_do_not_overspend():
    curator = opened()
    pure, got = curator.purely(), []

    def ask():
        try:
            got.append(pure.ask("x", share=F(1, 8)))
        except BudgetSpent:
            got.append(None)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answer is not None for answer in got) == 8
    assert sum(entry.amount for entry in curator.ledger.entries()) == PROMISE.capacity


@pytest.mark.parametrize(("place", "code"), [("book", 3), (None, 7)], ids=["file", "memory"])
def test_a_forked_child_spends_from_the_same_pocket(tmp_path, place, code):
    pure = opened(place and tmp_path / place).purely()
    pure.ask("x", share=F(1, 2))
    child = os.fork()
    if child == 0:
        found = 1
        try:
            pure.ask("x", share=F(1, 2))
            found = 3
        except LedgerUnavailable:  # in memory there is no place to share
            found = 7
        finally:
            os._exit(found)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    if place is None:
        pure.ask("x", share=F(1, 2))
    with pytest.raises(BudgetSpent):
        pure.ask("x", share=F(1, 2))


def test_a_book_that_fails_gives_no_answer():
    curator = opened()
    pure = curator.purely()
    curator.ledger.close()
    with pytest.raises(DodonaError):
        pure.ask("x", share=F(1, 2))
    with pytest.raises(Unsupported, match="quotas"):
        pure.ledger.grant("a", 1)


COSTS = st.one_of(
    st.builds(lambda n: Cost.pure(F(n, 64)), st.integers(0, 100)),
    st.builds(lambda n: Cost.concentrated(F(n, 6400)), st.integers(0, 200)),
)


@given(st.lists(st.tuples(COSTS, st.sampled_from([None, (0,), (1,), (0, 1)])), max_size=12))
@settings(max_examples=150, deadline=None)
def test_what_the_ledger_admits_keeps_the_promise_on_every_atom(asked):
    """On each atom: rho within the budget's, or one pure release within its epsilon and nothing else that costs."""
    paid: dict[int, list[Cost]] = {atom: [] for atom in range(3)}
    with SqliteLedger.open(None, PROMISE, atoms=3) as ledger:
        for number, (cost, scope) in enumerate(asked):
            try:
                ledger.charge(amount=PROMISE.due(cost), analyst="a", request_id=str(number), what="q", scope=scope)
            except BudgetSpent:
                continue
            for atom in scope or paid:
                paid[atom].append(cost)
        ledger.verify()
    for costs in paid.values():
        private = [cost for cost in costs if cost.rho]
        alone = len(private) == 1 and private[0].epsilon is not None and private[0].epsilon <= 1
        assert alone or sum((cost.rho for cost in private), F(0)) <= PROMISE.rho


def test_what_is_due():
    whole, small = PROMISE.capacity, Cost.pure(F(1, 100))
    assert PROMISE.due(Cost.pure(F(1))) == PROMISE.due(Cost.pure(F(1, 2))) == whole
    assert PROMISE.due(small) == PROMISE.units(small) < whole
    above = Cost.pure(1 + F(1, UNITS))
    assert PROMISE.due(above) == PROMISE.units(above) > whole
    gauss = Cost.concentrated(2 * PROMISE.rho)
    assert PROMISE.due(gauss) == PROMISE.units(gauss) > whole
    for other in (Budget(epsilon=1), Budget(rho=PROMISE.rho), Budget.sulq(1, 1e-6, queries=1)):
        assert other.due(Cost.pure(F(2))) == other.units(Cost.pure(F(2)))


def test_all_of_it_in_one_question_has_the_better_noise():
    curator = opened()
    one, not_quite = curator.price("x", share=1), curator.price("x", share=0.999)
    assert (one.cost.mechanism, not_quite.cost.mechanism) == ("discrete Laplace", "discrete Gaussian")
    assert one.spread < not_quite.spread / 3
    assert one.cost.share == 1
    many = Stack(tuple(as_query("x = 1") for _ in range(40)))
    assert curator.price(many, share=1).cost.mechanism == "discrete Gaussian"
    answer = curator.ask("x", share=1)
    assert answer.cost.amount == one.cost.amount == float(PROMISE.amount(PROMISE.capacity))
    assert curator.left == 0
    assert pure_spent(curator.ledger) == 1


def test_nothing_but_all_of_it_takes_all_of_it():
    curator = opened()
    assert not curator.price("x", tolerance=F(4, 90)).affordable
    with pytest.raises(BudgetSpent):
        curator.ask("x", tolerance=F(4, 90))
    with pytest.raises(BudgetSpent):
        curator.ask("x", epsilon=1)
    with pytest.raises(BudgetSpent):
        curator.select(["x = 0", "x = 1"], epsilon=1)
    assert curator.left == float(PROMISE.total)
    assert curator.ask("x", share=1).margin <= 4


def test_a_choice_with_all_of_it_has_the_whole_epsilon():
    choices = ["x = 0", "x = 1"]
    for mechanism in ("permute-and-flip", "exponential"):
        one = opened(budget=Budget(epsilon=1)).select(choices, share=1, mechanism=mechanism)
        other = opened().select(choices, share=1, mechanism=mechanism)
        assert one.margin == other.margin
    loose = Budget(epsilon=F(1, 10), delta=F(1, 2))  # so much delta that rho buys more
    bought = dd.Curator(TABLE, loose).select(choices, share=1, mechanism="exponential")
    least = dd.Curator(TABLE, Budget(epsilon=F(1, 10))).select(choices, share=1, mechanism="exponential")
    assert bought.margin < least.margin


def test_intervals_plan_both_ways_and_take_the_better():
    rng = np.random.default_rng(5)
    values = np.where(rng.random(4000) < 0.95, 0, rng.integers(1400, 2100, 4000))
    table = dd.Table({"x": values}, dd.Schema({"x": dd.Integer(0, 4095)}), neighbours="add-remove", rows=4000)
    budget = Budget(epsilon=0.1, delta=1e-6)
    curator = dd.Curator(table, budget)
    plan = dd.release.plan_intervals(curator, "x", share=1)
    both = [outlook for outlook in plan if outlook.method == "quantile buckets"]
    assert [outlook.unit for outlook in both] == ["epsilon", "rho"]
    assert plan[0] is both[0]
    alone = dd.release.plan_intervals(dd.Curator(table, Budget(epsilon=0.1)), "x", share=1)
    assert plan[0].error == pytest.approx(min(outlook.error for outlook in alone))
    assert {outlook.unit for outlook in dd.release.plan_intervals(curator, "x", share=0.9)} == {"rho"}
    synopsis = dd.release.intervals(curator, "x", share=1)
    assert synopsis.header.notes["method"] == "quantile buckets, pure"
    assert "one pure epsilon" in synopsis.header.method
    assert synopsis.header.cost.unit == "epsilon"
    assert synopsis.header.cost.share == pytest.approx(1)
    assert curator.left == 0
    assert curator.ledger.verify().spent == budget.capacity
    assert F(99, 1000) < pure_spent(curator.ledger) <= F(1, 10)
    with pytest.raises(BudgetSpent):
        dd.release.intervals(curator, "x", share=0.1)


def test_what_stands_in_front_of_a_curator_passes_it_on():
    told = []
    curator = opened()
    front = Recorded(Counted(curator.select_columns("x"), "r", lambda asked, share: told.append((asked, share))), "fit")
    pure = front.purely()
    assert set(pure.schema) == {"x"}
    pure.ask("x", share=F(1, 4))
    pure.ask("x", share=F(3, 4))
    assert told == [(1, 0.25), (2, pytest.approx(1))]
    assert [bill.unit for bill in front.bills] == ["epsilon", "epsilon"]
    asked = [entry.request_id for entry in curator.ledger.entries() if entry.kind == "charge"]
    assert asked == ["r/0", "r/1"]
    assert not front.purely().price("x", epsilon=1e-6).affordable  # opened again by who paid: what is left is left
    assert dd.Exact(TABLE).purely() is None
