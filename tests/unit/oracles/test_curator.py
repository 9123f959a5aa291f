"""The curator's order of things: refuse, price, charge, compute, store. Hostile cases V35, V38, V40-V45, V47."""

import json
from fractions import Fraction

import numpy as np
import pytest

import dodona as dd
from dodona.errors import AnswerLost, BadEffort, BadQuery, BudgetSpent, LedgerError, Refused, Unsupported
from dodona.query.candidates import ParityProcedure
from dodona.testing import check_oracle, seeded_curator
from dodona.testing.engines import PassingEngine
from dodona.testing.oracles import SCHEMA, conformance_table


@pytest.fixture
def table():
    return conformance_table()


@pytest.fixture
def curator(table):
    return dd.Curator(table, dd.Budget(epsilon=1, delta=1e-6))


@pytest.mark.parametrize("budget", [dd.Budget(epsilon=2), dd.Budget(epsilon=2, delta=1e-6), dd.Budget(rho="1/10")])
def test_curators_keep_the_contract_under_every_budget(budget):
    check_oracle(lambda table: seeded_curator(table, budget, seed=7), {"share": 0.02})


def test_a_pocket_answers_everything_too():
    budget = dd.Budget(epsilon=2, delta=1e-6)
    check_oracle(lambda table: seeded_curator(table, budget, seed=7).purely(), {"share": 0.02})


def test_exact_keeps_the_contract():
    check_oracle(dd.Exact, {"share": 0.02})


def test_add_remove_keeps_n_private():
    table = conformance_table(neighbours="add-remove")
    curator = dd.Curator(table, dd.Budget(epsilon=1))
    count = curator.ask("1", epsilon="1/10")
    assert count.margin > 0
    assert count.cost.amount == pytest.approx(0.1)
    bare = dd.Table({"x": np.arange(10.0)}, dd.Schema({"x": dd.Real(0, 10)}), neighbours="add-remove")
    private = dd.Curator(bare, dd.Budget(epsilon=1))
    assert private.rows is None
    with pytest.raises(BadEffort, match="public number of rows"):
        private.ask("x", tolerance=0.1)
    with pytest.raises(Unsupported, match="rows="):
        _ = private.ask("x", epsilon="1/10").mean


def test_under_replace_the_number_of_rows_is_public_and_free(curator):
    answer = curator.ask("1", share=0.5)
    assert answer.total == 2000
    assert answer.cost.amount == 0
    assert curator.ledger.spent() == 0


@pytest.mark.parametrize(
    "effort",
    [
        {},
        {"share": 0.1, "epsilon": 0.1},
        {"tolerance": 0.01, "rho": 0.1},
        *(
            {"epsilon": bad}
            for bad in (0, -1, float("nan"), float("inf"), "1e-400", 1e400, 5e-324, True, "", "one", 1e9)
        ),
        {"share": 1.5},
        {"share": 0},
        {"tolerance": 0},
        {"tolerance": 1e-40},
        {"share": 0.1, "confidence": 1},
        {"share": 0.1, "confidence": 0},
        {"share": 0.1, "confidence": float("nan")},
    ],
)
def test_v7_odd_efforts_are_refused_with_one_code_and_cost_nothing(curator, effort):
    with pytest.raises(BadEffort):
        curator.ask("age >= 65", **effort)
    assert curator.ledger.entries() == []


def test_refused_questions_cost_nothing(curator):
    for question in ("nope", "1 / age", "SUM(age)", "sex", "SELECT COUNT(*) FROM people"):
        with pytest.raises(BadQuery):
            curator.ask(question, share=0.1)
    with pytest.raises(Refused):
        dd.Curator(conformance_table(), dd.Budget(epsilon=1)).ask("age", rho=0.1)
    assert curator.ledger.entries() == []


class Traced(PassingEngine):
    """An engine that notes what is asked of it."""

    def __init__(self, engine):
        super().__init__(engine)
        self.calls = []

    def totals(self, program):
        self.calls.append(program)
        return self.engine.totals(program)


def test_v40_a_price_reads_no_row_and_is_the_charge(table):
    traced = Traced(table.engine)
    table.engine = traced
    curator = dd.Curator(table, dd.Budget(epsilon=1, delta=1e-6))
    price = curator.price("age >= 65 AND smoker", tolerance=0.05)
    statement = curator.price("SELECT sex, COUNT(*) FROM people GROUP BY sex", share=0.1)
    assert traced.calls == []
    assert curator.ledger.entries() == []
    answer = curator.ask("age >= 65 AND smoker", tolerance=0.05)
    assert len(traced.calls) == 1
    assert answer.cost.amount == price.cost.amount
    assert answer.margin == price.margin
    assert np.all(price.tolerance <= 0.05 + 1e-12)
    assert statement.cost.share == pytest.approx(0.1, rel=1e-6)


def test_a_tolerance_is_met_as_often_as_it_says(table):
    truth = dd.Exact(table).ask("smoker").mean
    inside = 0
    for seed in range(400):
        curator = seeded_curator(table, dd.Budget(rho=1), seed=seed)
        inside += abs(curator.ask("smoker", tolerance=0.01, confidence=0.8).mean - truth) <= 0.01
    assert 280 <= inside <= 360  # 320 expected, standard deviation 8


def test_v41_the_same_question_again_is_charged_again(curator):
    answers = {curator.ask("smoker", share=0.01).total for _ in range(20)}
    assert len(answers) > 10
    assert len(curator.ledger.entries()) >= 20
    assert curator.ledger.spent() >= 0.19 * curator.budget.capacity


def test_v42_a_retry_is_neither_charged_nor_noised_again(curator):
    first = curator.ask("smoker", share=0.1, request_id="r1")
    spent = curator.ledger.spent()
    assert curator.ask("smoker", share=0.1, request_id="r1") == first
    assert curator.ledger.spent() == spent
    with pytest.raises(Refused):
        curator.ask("age >= 65", share=0.1, request_id="r1")
    with pytest.raises(Refused):
        curator.ask("smoker", share=0.2, request_id="r1")
    table = curator.sql("SELECT sex, COUNT(*) FROM people GROUP BY sex", share=0.1, request_id="r2")
    assert curator.sql("SELECT sex, COUNT(*) FROM people GROUP BY sex", share=0.1, request_id="r2") == table
    chosen = curator.select(["smoker", "age > 50"], share=0.1, request_id="r3")
    assert curator.select(["smoker", "age > 50"], share=0.1, request_id="r3") == chosen


def test_v43_ten_tenths_are_one_and_no_unit_more(table):
    for parts in (10, 11):
        curator = dd.Curator(table, dd.Budget(epsilon=1))
        for _ in range(parts):
            curator.ask("smoker", epsilon=Fraction(1, parts))
        with pytest.raises(BudgetSpent):
            curator.ask("smoker", epsilon="1e-12")


def test_v44_less_than_a_unit_is_rounded_up(table):
    curator = dd.Curator(table, dd.Budget(epsilon=1))
    curator.ask("smoker", epsilon=1)
    with pytest.raises(BudgetSpent) as caught:
        curator.ask("smoker", epsilon=Fraction(1, 10**12))
    assert caught.value.left == 0
    assert caught.value.unit == "epsilon"


class Broken(Traced):
    def totals(self, program):
        self.calls.append(program)
        raise ValueError("secret of row 7: 42")


def test_v45_a_fault_after_the_charge_costs_and_says_nothing(table):
    table.engine = Broken(table.engine)
    curator = dd.Curator(table, dd.Budget(epsilon=1))
    with pytest.raises(AnswerLost) as caught:
        curator.ask("smoker", epsilon="1/4", request_id="r")
    assert "42" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert curator.left == 0.75
    with pytest.raises(AnswerLost):
        curator.ask("smoker", epsilon="1/4", request_id="r")
    assert curator.left == 0.75, "the same request is not charged twice"
    with pytest.raises(AnswerLost):
        curator.ask("smoker", epsilon="1/4")
    assert curator.left == 0.5, "a new request is"


def test_nothing_is_read_when_the_ledger_fails(table):
    traced = Traced(table.engine)
    table.engine = traced

    class Failing:
        genesis = dd.Curator(conformance_table(), dd.Budget(epsilon=1)).ledger.genesis

        def charge(self, **_):
            raise LedgerError("no")

    with pytest.raises(LedgerError):
        dd.Curator.sharing(table, Failing(), analyst="a").ask("smoker", epsilon=1)
    assert traced.calls == []


def test_the_charge_is_durable_before_rows_are_read(table, tmp_path):
    path = tmp_path / "x.ledger"

    class Looking(Traced):
        def totals(self, program):
            self.calls.append([entry.amount for entry in curator.ledger.entries()])
            return self.engine.totals(program)

    table.engine = Looking(table.engine)
    curator = dd.Curator(table, dd.Budget(epsilon=1), ledger=path, create=True)
    curator.ask("smoker", epsilon="1/4")
    assert table.engine.calls == [[curator.budget.capacity // 4]]
    again = dd.Curator(conformance_table(), dd.Budget(epsilon=1), ledger=path)
    assert again.left == 0.75


def test_v47_the_next_epsilon_may_depend_on_the_last_answer(table):
    curator = seeded_curator(table, dd.Budget(epsilon=1), seed=3)
    spent, last = Fraction(0), 0.0
    for _ in range(300):
        epsilon = Fraction(1 + int(last) % 7, 1000)
        try:
            last = curator.ask("smoker", epsilon=epsilon).total
            spent += epsilon
        except BudgetSpent:
            assert spent + epsilon > 1
    charged = [entry.amount for entry in curator.ledger.entries(1, 1000)]
    assert curator.ledger.spent() == sum(charged) <= curator.budget.capacity
    assert sum(charged) == pytest.approx(float(spent * curator.budget.capacity), rel=1e-8)
    assert spent <= 1


@pytest.mark.parametrize("rows", [0, 1])
def test_v35_empty_and_tiny_tables_look_like_any_other(rows):
    columns = {
        "age": np.full(rows, 30),
        "sex": np.full(rows, "Male"),
        "smoker": np.full(rows, True),
        "income": np.full(rows, 5.0),
    }
    table = dd.Table(columns, SCHEMA, name="people")
    curator = dd.Curator(table, dd.Budget(epsilon=1))
    result = curator.sql("SELECT sex, COUNT(*) AS n, AVG(income), VARIANCE(income) FROM people GROUP BY sex", share=0.1)
    assert [record[0] for record in result] == ["Female", "Male", "(other)"]
    assert all(0 <= record[2].value <= 1000 for record in result)
    assert curator.ledger.spent() == pytest.approx(curator.budget.capacity / 10, rel=1e-8)
    assert np.isfinite(curator.ask("income", share=0.1).mean)


def test_v38_the_order_is_the_schemas(curator):
    result = curator.sql("SELECT sex, smoker, COUNT(*) FROM people GROUP BY sex, smoker", share=0.1)
    keys = [record[:2] for record in result]
    assert keys == [(sex, smoker) for sex in ("Female", "Male", "(other)") for smoker in (False, True, "(other)")]


def test_public_groups_are_charged_in_parallel():
    schema = dd.Schema({"region": dd.Category("n", "s", public=True), "sick": dd.Flag(), "old": dd.Flag(public=True)})
    rng = np.random.default_rng(0)
    columns = {
        "region": np.array(["n", "s"])[rng.integers(0, 2, 1000)],
        "sick": rng.random(1000) < 0.5,
        "old": rng.random(1000) < 0.5,
    }
    curator = dd.Curator(dd.Table(columns, schema), dd.Budget(epsilon=1))
    sick = dd.Value(dd.parse("sick"))
    curator.ask(dd.Gate(dd.parse("region = 'n'"), sick), epsilon=1)
    curator.ask(dd.Gate(dd.parse("region = 's' AND old"), sick), epsilon="1/2")
    curator.ask(dd.Gate(dd.parse("region = 's' AND NOT old"), sick), epsilon="1/2")
    assert curator.left == 0
    with pytest.raises(BudgetSpent):
        curator.ask(dd.Gate(dd.parse("region = 'n' AND sick"), sick), epsilon="1/100")
    curator.ask(dd.Gate(dd.parse("region = 's' AND old"), sick), epsilon="1/2")
    with pytest.raises(BudgetSpent):
        curator.ask(sick, epsilon="1/100")
    grouped = curator.price("SELECT region, SUM(sick) FROM data GROUP BY region", epsilon="1/10")
    assert grouped.cost.amount == pytest.approx(0.1)
    assert "public columns fixed: region, old" in grouped.cost.neighbours


PUBLIC = dd.Schema(
    {
        "region": dd.Category("n", "s", public=True),
        "old": dd.Flag(public=True),
        "sick": dd.Flag(),
        "age": dd.Integer(0, 99),
    }
)
SPELLINGS = [  # a condition, and the same as what is counted under a WHERE of its public part
    ("sick AND region = 'n'", "sick", "region = 'n'"),
    ("region = 'n' AND (age > 30 OR sick) AND NOT old", "age > 30 OR sick", "region = 'n' AND NOT old"),
    ("(old AND REGION IN ('n')) AND sick", "sick", "old AND Region = 'n'"),
    ("region = 'n' AND old", "TRUE", "region = 'n' AND old"),
    ("region IS NULL AND age < 50", "age < 50", "region IS NULL"),
]


@pytest.mark.parametrize(("joined", "inner", "where"), SPELLINGS)
@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_a_public_condition_is_a_gate_however_it_is_spelt(joined, inner, where, neighbours):
    """As a conjunction, a WHERE or a Gate: one reach, one charge, to the same groups; and NULLs read alike."""
    rng = np.random.default_rng(5)
    cells = {
        "region": np.array(["n", "s", "?"], dtype=object)[rng.integers(0, 3, 60)],
        "old": np.ma.array(rng.random(60) < 0.5, mask=rng.random(60) < 0.3),
        "sick": np.ma.array(rng.random(60) < 0.5, mask=rng.random(60) < 0.3),
        "age": np.ma.array(rng.integers(0, 99, 60), mask=rng.random(60) < 0.3),
    }
    table = dd.Table(cells, PUBLIC, neighbours=neighbours, name="t")
    gate = dd.Gate(dd.parse(where), dd.Value(dd.parse(inner)))
    charges, totals = [], []
    for asked in (joined, gate, f"SELECT COUNT(*) FROM t WHERE {joined}", f"SELECT COUNT_ FROM t WHERE {where}"):
        curator = dd.Curator(table, dd.Budget(epsilon=1))
        if isinstance(asked, str) and asked.startswith("SELECT"):
            text = asked.replace("COUNT_", f"SUM({inner})") if inner != "TRUE" else asked.replace("COUNT_", "COUNT(*)")
            curator.sql(text, epsilon="1/2")
            ((number,),) = dd.Exact(table).sql(text)
            totals.append(number.value)
        else:
            curator.ask(asked, epsilon="1/2")
            totals.append(dd.Exact(table).ask(asked).total)
        (charge,) = [entry for entry in curator.ledger.entries() if entry.kind == "charge"]
        charges.append((charge.amount, charge.scope))
    assert len(set(charges)) == 1, charges
    assert charges[0][1] is not None
    assert len(set(totals)) == 1


def test_what_is_not_joined_by_and_is_charged_to_everyone():
    for text in (
        "sick OR region = 'n'",
        "NOT (sick AND region = 'n')",
        "sick",
        "CASE WHEN region = 'n' THEN 2 ELSE 1 END + age",
    ):
        curator = dd.Curator(
            dd.Table({"region": ["n"], "old": [True], "sick": [True], "age": [3]}, PUBLIC), dd.Budget(epsilon=1)
        )
        curator.ask(text, epsilon="1/2")
        assert [entry.scope for entry in curator.ledger.entries() if entry.kind == "charge"] == [None], text


def test_a_procedure_is_charged_to_everyone():
    """It sees every row as an equation, also one whose conditions are all false."""
    rng = np.random.default_rng(5)
    cells = {"region": ["n"] * 64, "old": rng.random(64) < 0.5, "sick": rng.random(64) < 0.5, "age": [3] * 64}
    curator = dd.Curator(dd.Table(cells, PUBLIC), dd.Budget(epsilon=100))
    bits = tuple(map(dd.parse, ("old", "region = 'n' AND old")))
    curator.run(ParityProcedure(bits, dd.parse("region = 's' AND old"), 1, 1, 16, 16), epsilon=1)
    assert [entry.scope for entry in curator.ledger.entries() if entry.kind == "charge"] == [None]


def test_public_groups_do_not_move_a_row(table):
    hidden = dd.Schema({**SCHEMA, "sex": dd.Category("Female", "Male", public=True)})
    few = {"age": np.zeros(3), "income": np.zeros(3), "smoker": np.full(3, True), "sex": np.full(3, "Male")}
    open_table = dd.Table(few, hidden)
    question = dd.Partition(dd.parse("sex"), dd.Value(dd.parse("smoker")))
    private = dd.Curator(table, dd.Budget(epsilon=1)).price(question, epsilon=1)
    public = dd.Curator(open_table, dd.Budget(epsilon=1)).price(question, epsilon=1)
    assert np.max(public.spread) < 0.6 * np.max(private.spread)


def test_selection_names_its_mechanism_and_keeps_its_margin(table):
    truth = dd.Exact(table)
    candidates = [f"age >= {a}" for a in range(10, 100, 10)]
    best = max(truth.ask(c).total for c in candidates)
    pure = dd.Budget(epsilon=1)
    for mechanism in ("best", "permute-and-flip", "exponential"):
        misses = 0
        for seed in range(30):
            chosen = seeded_curator(table, pure, seed=seed).select(candidates, share=0.05, mechanism=mechanism)
            misses += best - truth.ask(candidates[chosen.index]).total > chosen.margin
        assert misses <= 6
    assert seeded_curator(table, pure, seed=0).select(candidates, share=0.05).cost.mechanism == "permute-and-flip"
    concentrated = seeded_curator(table, dd.Budget(rho=1), seed=0).select(candidates, share=0.05)
    assert concentrated.cost.mechanism == "exponential"
    with pytest.raises(BadEffort, match="mechanism"):
        seeded_curator(table, pure, seed=0).select(candidates, share=0.05, mechanism="argmax")
    priced = seeded_curator(table, pure, seed=0).select(candidates, tolerance=0.2)
    assert priced.margin <= 0.2 * 2000


def test_answers_print_what_a_reader_needs(curator):
    answer = curator.ask("age >= 65 AND smoker", tolerance=0.05)
    text = str(answer)
    assert "+/- 0.050 (95 %, proven)" in text
    assert "rho" in text
    assert "left" in text
    assert json.loads(answer.to_json())["cost"]["hash"] == curator.ledger.entries()[0].hash
    low, high = answer.interval()
    assert low < answer.mean < high
    assert answer.total_interval()[1] == pytest.approx(high * 2000)
    assert "candidate 1 of 2" in str(curator.select(["FALSE", "age >= 0"], share=0.1))


def test_two_analysts_share_one_lifetime(table):
    first = dd.Curator(table, dd.Budget(epsilon=1), analyst="ann")
    second = dd.Curator.sharing(table, first.ledger, analyst="bob")
    first.ask("smoker", epsilon="1/2")
    second.ask("smoker", epsilon="1/2")
    for oracle in (first, second):
        with pytest.raises(BudgetSpent):
            oracle.ask("smoker", epsilon="1/100")
    assert {entry.analyst for entry in first.ledger.entries() if entry.kind == "charge"} == {"ann", "bob"}


def test_a_ledger_serves_one_population_only(table):
    first = dd.Curator(table, dd.Budget(epsilon=1))
    other = dd.Table({"x": np.arange(3.0)}, dd.Schema({"x": dd.Real(0, 3)}), name="other")
    with pytest.raises(Unsupported, match="one population"):
        dd.Curator.sharing(other, first.ledger, analyst="bob")


def test_a_stored_answer_is_not_given_for_another_meaning_of_its_columns(tmp_path):
    """Found by attack: the bounds of a private column changed between openings, and the old answer came back."""
    place, rows = tmp_path / "book", {"x": [0.0, 5.0, 10.0]}
    asked = []
    for high in (10, 1000):
        table = dd.Table(rows, dd.Schema({"x": dd.Real(0, high)}), name="t")
        curator = dd.Curator(table, dd.Budget(epsilon=10), place, create=True)
        if high == 10:
            asked.append(curator.ask("x > 1", share=0.1, request_id="q"))
        else:
            with pytest.raises(Refused, match="another"):
                curator.ask("x > 1", share=0.1, request_id="q")
            asked.append(curator.ask("x > 1", share=0.1, request_id="r"))
        curator.ledger.close()
    book = dd.Curator(table, dd.Budget(epsilon=10), place).ledger
    kinds = [entry.kind for entry in book.entries()]
    assert kinds == ["charge", "answer", "schema", "charge", "answer"]
    assert [answer.cost.seq for answer in asked] == [1, 2]
    first, change, second = (book.entries()[place] for place in (0, 2, 3))
    assert change.schema == second.schema != first.schema == change.detail
    book.verify()


def test_every_fact_of_a_schema_is_in_its_digest():
    columns = {
        "low": dd.Real(0, 2),
        "high": dd.Real(0, 2),
        "missing": dd.Integer(0, 2),
        "kind": dd.Integer(0, 1),
        "category": dd.Category("a", "b"),
    }
    others = {
        "low": dd.Real(1, 2),
        "high": dd.Real(0, 3),
        "missing": dd.Integer(0, 2, missing=1),
        "kind": dd.Flag(),
        "category": dd.Category("a", "c"),
    }
    one = dd.Schema(columns)
    assert dd.Schema(dict(reversed(columns.items()))).digest == one.digest
    digests = {dd.Schema({**columns, name: other}).digest for name, other in others.items()} | {one.digest}
    assert len(digests) == 1 + len(others)
