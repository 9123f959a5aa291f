"""The smallest tests of what a planted bug would break: noise as paid for, charges before reading, exact sums.

They are quick, so that every mutant can be run against them; broader tests of the same things are elsewhere.
"""

from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.errors import AnswerLost, BudgetSpent, LedgerUnavailable, Refused
from dodona.local import Client, invitation
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, RandomizedResponse, SecureBits
from dodona.mechanisms.bits import BadRandomness
from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.parity import ParitySolver, packed
from dodona.oracles.effort import Effort
from dodona.oracles.noise import noise_for
from dodona.privacy import UNITS, Budget, Cost, SqliteLedger
from dodona.privacy.ledger import Entry
from dodona.privacy.numbers import delta_of, epsilon_of, rho_of, sulq_epsilon_of
from dodona.query.candidates import ParityProcedure
from dodona.query.compiler import Compiler
from dodona.query.plan import compile_query
from dodona.query.program import Block, Builder, Program
from dodona.query.statistic import Gate, Partition, Stack, Value, as_expr
from dodona.testing.oracles import seeded_curator
from dodona.testing.reference import reference_totals
from tests.support.twins import Twins

SCHEMA = dd.Schema({"x": dd.Real(0, 10), "y": dd.Real(-1, 1000), "f": dd.Flag(), "id": dd.Integer(0, 2999)})
PURE, GAUSS = Budget(epsilon=50), Budget(rho=50)
ONE = Value(as_expr("1"))
STACK = Stack((Value(as_expr("x")), Value(as_expr("y")), Value(as_expr("f"))))


def rows(n: int = 4, **changed: Any) -> dd.Table:
    columns = {"x": np.full(n, 3.0), "y": np.full(n, 5.0), "f": np.full(n, True), "id": np.arange(float(n))}
    return dd.Table(columns | changed, SCHEMA, name="t", population="t")


@pytest.mark.parametrize("level", [True, False])
@pytest.mark.parametrize(
    "query", [STACK, Partition(as_expr("f"), STACK), Gate(as_expr("f"), Value(as_expr("y")))], ids=str
)
def test_each_coordinate_gets_the_noise_its_cost_pays_for(query: Any, level: bool) -> None:
    """epsilon >= sum of |v_i| / t_i and rho >= sum of v_i^2 / (2 s_i) for every two rows there are."""
    plan = compile_query(query, SCHEMA, level=level)
    weights = {int(i): weight for weight, places in plan.places.items() for i in places}
    norms = plan.reach.under("replace")
    pure = noise_for(plan, norms, Effort.of(epsilon=1), PURE, 4)
    gauss = noise_for(plan, norms, Effort.of(rho=1), GAUSS, 4)
    few = [{"x": 0.0, "y": -1.0, "f": False, "id": 0.0}, {"x": 10.0, "y": 1000.0, "f": True, "id": 0.0}]
    few += [{"x": None, "y": None, "f": None, "id": None}, {"x": 10.0, "y": 1000.0, "f": False, "id": 0.0}]
    vectors = [reference_totals(plan.program, [row]) for row in few]
    for a in vectors:
        for b in vectors:
            gaps = [abs(p - q) for p, q in zip(a, b, strict=True)]
            loss = sum(Fraction(g) / pure.by_weight[weights[i]].scale for i, g in enumerate(gaps))  # type: ignore[union-attr]
            assert loss <= pure.cost.epsilon <= 1  # type: ignore[operator]
            rho = sum(Fraction(g * g) / (2 * gauss.by_weight[weights[i]].variance) for i, g in enumerate(gaps))  # type: ignore[union-attr]
            assert rho <= gauss.cost.rho <= 1


@pytest.mark.parametrize(("budget", "effort"), [(PURE, {"epsilon": 1}), (GAUSS, {"rho": 1})], ids=["pure", "gauss"])
def test_noise_is_as_wide_as_it_says_and_fresh_for_each_number(budget: Budget, effort: dict[str, Any]) -> None:
    curator = seeded_curator(rows(1, id=np.array([np.nan])), budget, 7)
    answers = [curator.ask(Partition(as_expr("id"), Value(as_expr("x"))), **effort) for _ in range(2)]
    first, second = (np.asarray(answer.total) for answer in answers)
    spread = float(np.asarray(answers[0].spread)[0])
    for noise in (first, second):
        assert 0.9 * spread < np.std(noise) < 1.1 * spread
        assert abs(np.mean(noise)) < 6 * spread / math.sqrt(noise.size)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.12
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.12


@pytest.mark.parametrize("mechanism", [DiscreteLaplace(Fraction(40)), DiscreteGaussian(Fraction(900))], ids=str)
def test_draws_follow_the_stated_probabilities(mechanism: Any) -> None:
    draws = mechanism.sample(40_000, SecureBits())
    assert 0.95 < np.std(draws) / mechanism.stddev < 1.05
    small = DiscreteLaplace(Fraction(1)) if isinstance(mechanism, DiscreteLaplace) else DiscreteGaussian(Fraction(1))
    for sampled in (
        small.sample(40_000, SecureBits()),
        np.array([small.sample(1, SecureBits())[0] for _ in range(500)]),
    ):
        for k in (-1, 0, 1):
            expected = float(small.probability(k)[0])
            slack = 6 * math.sqrt(expected * (1 - expected) / len(sampled))
            assert abs(np.mean(sampled == k) - expected) < slack


def test_costs_are_what_the_theorems_say() -> None:
    assert DiscreteLaplace(Fraction(4)).cost(2).epsilon == Fraction(1, 2)
    assert DiscreteGaussian(Fraction(8)).cost(4).rho == Fraction(1, 4)
    assert Cost.pure(Fraction(1)).rho == Fraction(1, 2)
    both = Cost.pure(Fraction(1)) + Cost.pure(Fraction(2))
    assert (both.epsilon, both.rho) == (3, Fraction(5, 2))
    assert (Cost.concentrated(Fraction(1)) + Cost.pure(Fraction(1))).epsilon is None
    assert Budget(epsilon=1).units(Cost.pure(Fraction(1, 7 * UNITS))) == 1
    assert Budget(epsilon=Fraction(3 * UNITS + 1, 3 * UNITS)).capacity == UNITS


def test_conversions_are_on_the_safe_side() -> None:
    """Against the formula at many orders: delta is never below its minimum, and what is allowed keeps the promise."""
    for rho, epsilon in ((0.01, 0.5), (0.1, 1.0), (1.0, 5.0)):
        orders = 1 + np.geomspace(1e-3, 1e4, 20_000)
        logs = (orders - 1) * (orders * rho - epsilon) - np.log(orders - 1) + orders * np.log1p(-1 / orders)
        least = math.exp(float(np.min(logs)))
        found = float(delta_of(Fraction(rho), Fraction(epsilon)))
        assert least * (1 - 1e-6) <= found <= least * 1.001
        assert float(epsilon_of(Fraction(rho), Fraction(found))) == pytest.approx(epsilon, rel=1e-3)
        assert float(rho_of(Fraction(epsilon), Fraction(found))) == pytest.approx(rho, rel=1e-3)
    exact = 0.5 + 2 * math.sqrt(0.5 * math.log(1e6))
    assert float(sulq_epsilon_of(Fraction(1, 2), Fraction(1, 10**6))) == pytest.approx(exact, rel=1e-12)


def large_sums() -> tuple[dd.Schema, Program]:
    """A program whose rows add up to more than a double can hold exactly."""
    schema, build = dd.Schema({"n": dd.Real(0, 2.0**52)}), Builder()
    step = Compiler(schema, build).value(as_expr("n")).step
    grid = build.emit("grid", step, constants=(0.0, 2.0**52, 0))
    return schema, Program(tuple(build.steps), (Block((grid,), 2**52),))


def test_sums_are_exact_whatever_their_size() -> None:
    schema, program = large_sums()
    counts = np.array([2.0**52, 1.0, 1.0, 1.0] * 50)
    assert int(dd.Table({"n": counts}, schema).engine.totals(program)[0]) == 50 * (2**52 + 3)
    squares = Program(program.steps, (Block((len(program.steps) - 1,), 2**26, gram=True),))
    roots = np.array([2.0**26, 1.0, 1.0, 1.0] * 50)
    assert int(dd.Table({"n": roots}, schema).engine.totals(squares)[0]) == 50 * (2**52 + 3)


def test_sums_in_files_are_exact_whatever_their_size(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, program = large_sums()
    pq.write_table(pa.table({"n": [2.0**52, 1.0, 1.0, 1.0] * 50}), tmp_path / "t.parquet")
    assert int(dd.Table(tmp_path / "t.parquet", schema).engine.totals(program)[0]) == 50 * (2**52 + 3)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e300, -1e300])
def test_an_odd_cell_moves_no_total_further_than_any_other(odd: float) -> None:
    strange = rows(x=np.array([odd, 3, 3, 3]), y=np.array([odd, 5, 5, 5]), f=np.array([odd, 1, 1, 1]))
    twins = Twins(rows(), strange, PURE)
    for text in ("x", "y", "x * y", "f", "x > 3 OR f", "LEAST(x / (y - 5), 9)", "SQRT(x - 3)", "COALESCE(x, 4)"):
        try:
            twins.ask(text, epsilon=1)
        except Refused:
            continue
    twins.sql("SELECT f, COUNT(*), AVG(x), SUM(y) FROM t GROUP BY f", epsilon=1)
    twins.select(["x", "f", "y"], epsilon=1)


@pytest.mark.parametrize("changed", [{"f": np.array([False, True, True, True])}, {"x": np.array([10.0, 3, 3, 3])}])
def test_a_row_that_changes_its_group_is_paid_for(changed: dict[str, Any]) -> None:
    twins = Twins(rows(), rows(**changed), PURE)
    twins.ask(Partition(as_expr("f"), STACK), epsilon=1)
    twins.ask(Gate(as_expr("f"), STACK), epsilon=1)
    twins.ask(Partition(as_expr("f"), Partition(as_expr("x > 5"), ONE)), tolerance=1)
    twins.select([STACK.parts[0], STACK.parts[1]], epsilon=1)


def test_a_charge_comes_first_and_is_durable(tmp_path: Path) -> None:
    table = rows()
    seen: list[int] = []
    real = table.engine.totals

    def totals(program: Any) -> Any:
        other = sqlite3.connect(tmp_path / "l")
        seen.append(other.execute("SELECT count(*) FROM entries").fetchone()[0])
        other.close()
        return real(program)

    table.engine.totals = totals  # type: ignore[method-assign]
    dd.Curator(table, PURE, tmp_path / "l", create=True).ask("x", epsilon=1)
    assert seen == [1]


def test_every_question_is_charged_its_price_and_a_fault_is_not_refunded() -> None:
    table = rows()
    curator = seeded_curator(table, PURE, 1)
    for number in range(1, 4):
        curator.ask("x", epsilon=1)
        assert curator.ledger.spent() == number * UNITS

    def broken(_: Any) -> Any:
        raise ValueError("secret 42")

    table.engine.totals = broken  # type: ignore[method-assign]
    with pytest.raises(AnswerLost):
        curator.ask("x", epsilon=1, request_id="lost")
    assert curator.ledger.spent() == 4 * UNITS
    del table.engine.totals  # type: ignore[method-assign]
    with pytest.raises(AnswerLost):
        curator.ask("x", epsilon=1, request_id="lost")
    assert curator.ledger.spent() == 4 * UNITS


def test_a_fault_of_the_disk_stays_until_the_ledger_is_opened_again(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(tmp_path / "l", PURE, create=True)
    session: Any = ledger._session

    def fails() -> None:
        raise OSError(5, "Input/output error")

    session._commit = fails
    with pytest.raises(LedgerUnavailable):
        ledger.charge(amount=1, analyst="a", request_id="r", what="q")
    del session._commit
    with pytest.raises(LedgerUnavailable):
        ledger.charge(amount=1, analyst="a", request_id="s", what="q")
    with SqliteLedger.open(tmp_path / "l", PURE, create=True) as again:
        assert again.spent() == 0


def test_scopes_pay_for_their_worst_atom() -> None:
    with SqliteLedger.open(None, Budget(epsilon=Fraction(10, UNITS)), atoms=3) as ledger:
        ledger.charge(amount=6, analyst="a", request_id="1", what="q", scope=(0,))
        ledger.charge(amount=3, analyst="a", request_id="2", what="q", scope=(1,))
        assert ledger.spent() == 6
        with pytest.raises(BudgetSpent):
            ledger.charge(amount=5, analyst="a", request_id="3", what="q", scope=(0, 1))
        ledger.charge(amount=4, analyst="a", request_id="4", what="q")
        with pytest.raises(BudgetSpent):
            ledger.charge(amount=1, analyst="a", request_id="5", what="q")
        ledger.charge(amount=3, analyst="a", request_id="6", what="q", scope=(1,))
        assert ledger.verify().spent == 10


def test_parity_candidates_are_judged_with_noise_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One validation row moves every candidate's errors by one: the sensitivity is how many there are."""
    from dodona.oracles import procedures

    told: list[tuple[int, Fraction]] = []
    real = procedures.DiscreteLaplace.for_epsilon

    def spy(sensitivity: int, epsilon: Fraction) -> Any:
        told.append((sensitivity, epsilon))
        return real(sensitivity, epsilon)

    monkeypatch.setattr(procedures.DiscreteLaplace, "for_epsilon", spy)
    schema = dd.Schema({"a": dd.Flag(), "b": dd.Flag(), "y": dd.Flag()})
    flags = np.arange(60) % 2 == 0
    table = dd.Table({"a": flags, "b": ~flags, "y": flags}, schema)
    bits = (as_expr("a"), as_expr("b"))
    procedure = ParityProcedure(bits, as_expr("y"), parts=2, repeats=3, part_rows=20, test_rows=20)
    seeded_curator(table, PURE, 0).run(procedure, epsilon=2)
    assert told == [(6, Fraction(2))]


def test_a_procedure_divides_its_epsilon_by_the_rows_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Private at epsilon/k for each of a person's k rows, so at epsilon for the person."""
    from dodona.oracles import procedures

    told: list[Fraction] = []
    real = procedures.ParitySolver

    def spy(epsilon: Fraction) -> Any:
        told.append(epsilon)
        return real(epsilon)

    monkeypatch.setattr(procedures, "ParitySolver", spy)
    schema, flags = dd.Schema({"a": dd.Flag(), "y": dd.Flag()}), np.arange(40) % 2 == 0
    columns = {"a": flags, "y": flags, "who": np.arange(40) // 4}
    table = dd.Table(columns, schema, neighbours="add-remove", rows=40, unit=dd.Unit("who", max_rows=4))
    procedure = ParityProcedure((as_expr("a"),), as_expr("y"), parts=1, repeats=1, part_rows=10, test_rows=10)
    seeded_curator(table, PURE, 0).run(procedure, epsilon=2)
    assert told
    assert all(epsilon <= Fraction(2, 4) for epsilon in told)


def test_a_margin_counts_what_the_grid_takes_off_every_row() -> None:
    """Hardly any noise, and numbers that each lose nearly a step of the grid: the truth is still within the margin."""
    table = rows(4000, y=np.full(4000, 100 - 1e-9))
    answer = seeded_curator(table, Budget(epsilon=100_000), 0).ask("y", epsilon=100_000)
    missed = abs(float(np.asarray(answer.total)) - 4000 * (100 - 1e-9))
    assert float(np.asarray(answer.spread)) * 10 < missed <= float(np.asarray(answer.margin))


def test_a_question_about_several_groups_is_paid_by_all_of_them() -> None:
    schema = dd.Schema({"town": dd.Category("a", "b", "c", public=True), "ill": dd.Flag()})
    table = dd.Table({"town": np.array(["a", "b", "c"]), "ill": np.array([True] * 3)}, schema)
    curator = seeded_curator(table, Budget(epsilon=1), 0)
    ill = Value(as_expr("ill"))
    curator.ask(Stack((Gate(as_expr("town = 'a'"), ill), Gate(as_expr("town = 'b'"), ill))), epsilon=1)
    for town, fits in (("a", False), ("b", False), ("c", True)):
        assert curator.price(Gate(as_expr(f"town = '{town}'"), ill), epsilon="1/2").affordable == fits


def test_low_parts_of_a_draw_are_thinned_as_they_must() -> None:
    """Scale 64 draws in blocks of 8: kept unthinned, every place in a block would be equally likely."""
    mechanism = DiscreteLaplace(Fraction(64))
    draws = mechanism.sample(80_000, SecureBits())
    found = np.bincount((draws ^ (draws >> 63)) % 8, minlength=8)
    chances = np.zeros(8)
    for k in range(-1500, 1500):
        chances[(k if k >= 0 else -k - 1) % 8] += float(mechanism.probability(k)[0])
    assert float(((found - 80_000 * chances) ** 2 / (80_000 * chances)).sum()) < 60  # 7 degrees of freedom


def test_a_source_that_gets_stuck_is_found_at_its_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SecureBits()
    monkeypatch.setattr("dodona.mechanisms.bits.urandom", bytes)
    for n in (1, 600):
        with pytest.raises(BadRandomness):
            SecureBits.words(source, n)
        source._seen.clear()


def test_a_hash_covers_every_field() -> None:
    entry = Entry(1, "charge", "t", "a", "r", "w", "d", 5, (1,), 5, 5, "p")
    others = [
        *({"seq": 2}, {"kind": "grant"}, {"time": "u"}, {"analyst": "b"}, {"request_id": "s"}, {"what": "x"}),
        *({"detail": "e"}, {"amount": 4}, {"scope": (2,)}, {"common_after": 4}, {"total_after": 4}, {"previous": "q"}),
    ]
    assert len({entry.digest(), *(replace(entry, **other).digest() for other in others)}) == 1 + len(others)
    newer = replace(entry, number=1, further=(("pure", 1, 2),), schema="c", state="s", salt="t")
    sums = [
        {"number": 2},
        {"further": (("pure", 2, 2),)},
        {"schema": "d"},
        {"state": "u"},
        {"salt": "v"},
        {"state": ""},
    ]
    all_of_it = [replace(newer, **other).digest() for other in (*others, *sums)]
    assert len({entry.digest(), newer.digest(), *all_of_it}) == 2 + len(others) + len(sums) - 1


def test_a_choice_knows_how_far_a_row_moves_it() -> None:
    twins = Twins(rows(), rows(f=np.array([False, True, True, True])), PURE)
    twins.select(["f", "NOT f"], epsilon=1)
    twins.select([Gate(as_expr("f"), Value(as_expr("x"))), Value(as_expr("x"))], epsilon=1)


def test_parity_refuses_half_the_time() -> None:
    solver, source = ParitySolver(Fraction(1)), SecureBits()
    none = packed(np.zeros((0, 3), dtype=bool))
    refused = sum(solver.finish(none, 2, source) is None for _ in range(300))
    assert 90 < refused < 210


def test_noise_is_another_each_time_whoever_seeds_what() -> None:
    question = Partition(as_expr("id"), ONE)
    answers = {tuple(np.asarray(dd.Curator(rows(), PURE).ask(question, epsilon=1).total)) for _ in range(2)}
    assert len(answers) == 2


def test_a_client_keeps_its_own_cap() -> None:
    client = Client(1)
    with pytest.raises(BudgetSpent):
        client.report(invitation(Value(as_expr("f")), SCHEMA, 2), {"f": True})
    assert client.left == 1


def test_a_report_tells_at_most_e_to_the_epsilon() -> None:
    for k, epsilon in ((2, Fraction(1)), (5, Fraction(1, 3)), (1000, Fraction(7, 2)), (2, Fraction(1, 10**6))):
        response = RandomizedResponse(k, epsilon)
        above = Fraction(exp_bracket(epsilon, 400)[1], 1 << 400)
        assert response.probability(0, 0) * above <= response.probability(1, 0)


@pytest.mark.parametrize("missing", [None, 2.0])
def test_cells_are_cleaned_before_anything_is_computed(missing: float | None) -> None:
    cells = [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e9, -3.0, 4.0]
    schema = dd.Schema({"x": dd.Real(0, 10, missing=missing)})
    query = Stack(
        tuple(Value(as_expr(text)) for text in ("x / 1000", "x IS NULL", "COALESCE(x, 7)", "x = 10", "10 - x"))
    )
    program = compile_query(query, schema, level=False).program
    found = dd.Table({"x": np.array(cells)}, schema).engine.totals(program)
    assert [int(f) for f in found] == reference_totals(program, [{"x": cell} for cell in cells])
