"""The local oracle keeps the contract of every oracle, on memory and on files, at small and large epsilon."""

import numpy as np
import pytest

from dodona.engines.table import Table
from dodona.oracles.collected import Shuffled
from dodona.oracles.exact import Exact
from dodona.oracles.local import Local
from dodona.testing.oracles import SCHEMA, SeededBits, check_oracle, conformance_table, questions


def seeded(table: Table, epsilon: float, seed: int = 0) -> Local:
    """A local oracle with reproducible reports: never for real data."""
    oracle = Local(table, epsilon)
    oracle._bits = SeededBits(seed)
    return oracle


def seeded_shuffled(table: Table, epsilon: float, seed: int = 0) -> Shuffled:
    """The same behind a shuffler."""
    oracle = Shuffled(table, epsilon, 1e-6)
    oracle._bits = SeededBits(seed)
    return oracle


@pytest.mark.parametrize("epsilon", [0.5, 30])
def test_local_is_an_oracle(epsilon):
    check_oracle(lambda table: seeded(table, epsilon), {"share": 0.05})


@pytest.mark.parametrize("epsilon", [2, 30])
def test_shuffled_is_an_oracle(epsilon):
    check_oracle(lambda table: seeded_shuffled(table, epsilon), {"share": 0.05})


def test_whole_budget_by_epsilon_is_an_oracle():
    check_oracle(lambda table: seeded(table, 400), {"epsilon": 20})


def test_error_bars_hold_for_every_kind_of_question():
    table = conformance_table(rows=4000)
    truth = Exact(table)
    for number, query in enumerate(questions()):
        exact = np.asarray(truth.ask(query).total)
        answers = [seeded(table, 2, seed=5000 + 100 * number + i).ask(query, share=1) for i in range(12)]
        off = np.array([np.asarray(a.total) - exact for a in answers])
        margin, spread = np.asarray(answers[0].margin), np.asarray(answers[0].spread)
        assert np.mean(np.abs(off) <= margin) >= 0.93, str(query)
        # Rows known to be constant have no spread; all others must be about as wrong as stated, not less by far.
        told = spread > 0
        if told.any():
            ratio = np.sqrt(np.mean((off[:, told] / spread[told]) ** 2))
            assert 0.3 < ratio < 1.6, (str(query), ratio)


def test_files_and_arrays_report_alike(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    rng = np.random.default_rng(1)
    n = 3000
    columns = {
        "age": rng.integers(0, 100, n),
        "sex": np.array(["Female", "Male"])[rng.integers(0, 2, n)],
        "smoker": rng.random(n) < 0.3,
        "income": rng.gamma(2.0, 120.0, n),
    }
    path = tmp_path / "people.parquet"
    connection = duckdb.connect()
    connection.register("people", {name: np.asarray(values) for name, values in columns.items()})
    connection.execute(f"COPY (SELECT * FROM people) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    connection.close()
    stored, held = Local(Table(path, SCHEMA), 3), Local(Table(columns, SCHEMA, name="people"), 3)
    assert stored.rows == held.rows == n
    for oracle in (stored, held):
        oracle._bits = SeededBits(7)
        oracle._blocks = held._blocks  # the deal depends on the population's name
    for query in questions():
        a, b = stored.ask(query, share=0.02), held.ask(query, share=0.02)
        np.testing.assert_allclose(np.asarray(a.total), np.asarray(b.total), err_msg=str(query))
