"""Laws of cost, budget, conversion and ledger, on generated cases."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dodona.errors import BudgetSpent, Refused
from dodona.privacy import UNITS, Budget, Cost, SqliteLedger
from dodona.privacy.ledger import read_scope, write_scope
from dodona.privacy.numbers import delta_of, epsilon_of, rho_of, sulq_epsilon_of, sulq_rho_of

amounts = st.fractions(min_value=0, max_value=100, max_denominator=10**15)
positive = st.fractions(min_value=Fraction(1, 10**9), max_value=1000, max_denominator=10**9)
deltas = st.integers(1, 60).flatmap(lambda k: st.integers(1, 9).map(lambda d: Fraction(d, 10**k * 2)))
costs = st.one_of(*(amounts.map(kind) for kind in (Cost.pure, Cost.ranged, Cost.concentrated, Cost.gaussian)))


@given(costs, st.integers(0, 50))
def test_n_times_a_cost_is_its_sum(cost: Cost, times: int) -> None:
    total = Cost.pure(Fraction(0))
    for _ in range(times):
        total = total + cost
    assert times * cost == cost * times
    assert total.rho == (times * cost).rho
    if cost.epsilon is not None:
        assert total == times * cost
    if times:  # none at all is pure and free, whatever it would have been
        assert total.mu_squared == (times * cost).mu_squared


@given(costs, costs, costs)
def test_costs_add_in_any_order(a: Cost, b: Cost, c: Cost) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)


@given(costs, costs)
def test_charging_apart_is_never_cheaper_than_together(a: Cost, b: Cost) -> None:
    budget = Budget(rho=1)
    assert budget.units(a) + budget.units(b) >= budget.units(a + b)
    assert budget.amount(budget.units(a)) >= a.rho
    assert (budget.units(a) == 0) == (a.rho == 0)


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=30),
    st.sampled_from([Budget(epsilon=1, delta=1e-6), Budget(rho="1/7")]),
)
def test_shares_that_sum_to_one_all_fit(parts: list[int], budget: Budget) -> None:
    portions = [budget.portion(Fraction(part, sum(parts))) for part in parts]
    assert sum(budget.units(Cost.concentrated(portion)) for portion in portions) <= budget.capacity


@settings(max_examples=60, deadline=None)
@given(positive, positive, deltas)
def test_conversions_are_monotone(rho: Fraction, step: Fraction, delta: Fraction) -> None:
    more = rho + step
    hair = 1 + Fraction(1, 10**15)  # tightness is promised to far better than this, monotony to no better
    assert epsilon_of(rho, delta) <= epsilon_of(more, delta) * hair
    assert epsilon_of(rho, delta / 2) >= epsilon_of(rho, delta)
    assert rho_of(rho, delta) <= rho_of(more, delta)
    assert rho_of(rho, delta / 2) <= rho_of(rho, delta) * hair
    assert delta_of(rho, step) <= delta_of(more, step) * hair
    assert delta_of(rho, more) <= delta_of(rho, rho) * hair


@settings(max_examples=60, deadline=None)
@given(positive, deltas)
def test_conversions_are_inverse_and_safe(value: Fraction, delta: Fraction) -> None:
    hair = 1 + Fraction(1, 10**20)
    epsilon = epsilon_of(value, delta)
    if epsilon:
        assert value * (1 - Fraction(1, 10**12)) <= rho_of(epsilon, delta) <= value * hair
        assert delta_of(value, epsilon) <= delta * hair
    rho = rho_of(value, delta)
    assert epsilon_of(rho, delta) <= value * hair
    assert delta_of(rho, value) <= delta * hair
    assert sulq_epsilon_of(sulq_rho_of(value, delta), delta) <= value * hair
    assert epsilon_of(rho, delta) <= sulq_epsilon_of(rho, delta) * hair  # the tight one is never worse


@given(st.sets(st.integers(0, 200), min_size=1))
def test_scopes_survive_writing(atoms: set[int]) -> None:
    scope = tuple(sorted(atoms))
    assert read_scope(write_scope(scope)) == scope


@pytest.mark.parametrize("parts", [10, 11, 7, 13, 1000])
def test_v43_n_nths_are_one(parts: int) -> None:
    budget = Budget(epsilon=1)
    price = budget.units(Cost.pure(budget.portion(Fraction(1, parts))))
    assert price == budget.units(Cost.pure(Fraction(1, parts)))
    with SqliteLedger.open(None, budget) as ledger:
        for number in range(parts):
            ledger.charge(amount=price, analyst="a", request_id=str(number), what="")
        assert ledger.left() == 0
        with pytest.raises(BudgetSpent):
            ledger.charge(amount=1, analyst="a", request_id="one more", what="")


def test_v44_the_smallest_cost_is_refused_after_the_last() -> None:
    budget = Budget(epsilon=1)
    with SqliteLedger.open(None, budget) as ledger:
        ledger.charge(amount=budget.capacity, analyst="a", request_id="all", what="")
        least = budget.units(Cost.pure(Fraction(1, 10**300)))
        with pytest.raises(BudgetSpent):
            ledger.charge(amount=least, analyst="a", request_id="x", what="")


@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False))
def test_v47_adaptive_prices(random: Any) -> None:
    """A thousand prices, each chosen from what happened before; the ledger equals an exact sum with a cap."""
    budget, model, last = Budget(epsilon=1), Fraction(0), Fraction(1, 50)
    with SqliteLedger.open(None, budget) as ledger:
        for number in range(1000):
            price = last * Fraction(random.randint(1, 300), 100)
            units = budget.units(Cost.pure(price))
            fits = model + Fraction(units, UNITS) <= 1
            try:
                ledger.charge(amount=units, analyst="a", request_id=str(number), what="")
                assert fits
                model += Fraction(units, UNITS)
                last = price
            except BudgetSpent:
                assert not fits
                last = price / 2
            assert budget.amount(ledger.spent()) == model <= 1


class LedgerAgainstModel(RuleBasedStateMachine):
    """The real file against a dictionary and a sum: charges, scopes, retries, answers, grants, reopening."""

    ATOMS, CAP = 5, 1000

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dodona-law-"))
        self.budget = Budget(epsilon=Fraction(self.CAP, UNITS))
        self.open()
        self.paid = [0] * self.ATOMS
        self.asked: dict[tuple[str, str], tuple[int, tuple[int, ...] | None, int]] = {}
        self.answers: dict[int, str] = {}
        self.quota: dict[str, int] = {}
        self.spent_by = {"ann": 0, "bob": 0}
        self.count = 0

    def open(self) -> None:
        self.ledger = SqliteLedger.open(self.folder / "l", self.budget, atoms=self.ATOMS, create=True)

    @rule(
        amount=st.integers(0, 400),
        who=st.sampled_from(["ann", "bob"]),
        request=st.sampled_from("abcdefghijklmnop"),
        scope=st.none() | st.sets(st.integers(0, 4), min_size=1).map(lambda atoms: tuple(sorted(atoms))),
    )
    def charge(self, amount: int, who: str, request: str, scope: tuple[int, ...] | None) -> None:
        scope = None if scope is not None and len(scope) == self.ATOMS else scope
        hit = range(self.ATOMS) if scope is None else scope
        earlier = self.asked.get((who, request))
        fits = max(self.paid[atom] for atom in hit) + amount <= self.CAP
        allowed = amount == 0 or self.spent_by[who] + amount <= self.quota.get(who, 10**9)
        fields: dict[str, Any] = {"amount": amount, "analyst": who, "request_id": request, "what": "q", "scope": scope}
        if earlier is not None:
            if earlier[:2] != (amount, scope):
                with pytest.raises(Refused, match="used for another"):
                    self.ledger.charge(**fields)
                fields |= {"amount": earlier[0], "scope": earlier[1]}
            again = self.ledger.charge(**fields)
            assert again.repeated
            assert (again.entry.seq, again.answer) == (earlier[2], self.answers.get(earlier[2]))
        elif not (fits and allowed):
            with pytest.raises(BudgetSpent):
                self.ledger.charge(**fields)
        else:
            charge = self.ledger.charge(**fields)
            self.count += 1
            assert charge.entry.seq == self.count
            self.asked[who, request] = (amount, scope, self.count)
            self.spent_by[who] += amount
            for atom in hit:
                self.paid[atom] += amount

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), text=st.text(max_size=5))
    def store(self, data: st.DataObject, text: str) -> None:
        seq = data.draw(st.sampled_from(sorted(value[2] for value in self.asked.values())))
        if seq not in self.answers:
            self.ledger.store_answer(seq, text)
            self.answers[seq] = text
            self.count += 1
        assert self.ledger.answer(seq) == self.answers[seq]

    @rule(who=st.sampled_from(["ann", "bob"]), units=st.integers(0, 800))
    def grant(self, who: str, units: int) -> None:
        self.ledger.grant(who, units)
        self.quota[who] = units
        self.count += 1

    @rule(politely=st.booleans())
    def reopen(self, politely: bool) -> None:
        if politely:
            self.ledger.close()
        self.open()

    @invariant()
    def agrees(self) -> None:
        assert self.ledger.spent() == max(self.paid) <= self.CAP
        assert [self.ledger.left((atom,)) for atom in range(self.ATOMS)] == [self.CAP - paid for paid in self.paid]
        verified = self.ledger.verify()
        assert (verified.entries, verified.spent) == (self.count, max(self.paid))

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self.ledger.close()
            shutil.rmtree(self.folder)


TestLedgerAgainstModel = LedgerAgainstModel.TestCase
TestLedgerAgainstModel.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
