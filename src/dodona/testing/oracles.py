"""``check_oracle``: what every oracle must do, whoever it trusts. And the one explicit door for seeds (HOSTILE R8):
reproducible and scripted bits, and a curator with seeded noise, are for tests only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery
from dodona.oracles.answer import Answer
from dodona.oracles.curator import Curator
from dodona.oracles.effort import Stated
from dodona.oracles.groups import Atoms
from dodona.oracles.oracle import Oracle
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import Ledger
from dodona.privacy.ledger.sqlite import SqliteLedger
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Features, Gate, Nearest, Outer, Partition, Query, Stack, Value, as_expr, bucket


class SeededBits:
    """Reproducible words from a seed (HOSTILE V60). Never hand this to anything that protects people."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def words(self, n: int) -> NDArray[np.uint64]:
        return self._generator.integers(0, 1 << 64, size=n, dtype=np.uint64)


class TapeExhausted(Exception):
    """The tape has been read to its end."""


class TapeBits:
    """The given words in order, then ``TapeExhausted``."""

    def __init__(self, words: Iterable[int]) -> None:
        self._tape = list(words)
        self.used = 0

    def words(self, n: int) -> NDArray[np.uint64]:
        if self.used + n > len(self._tape):
            raise TapeExhausted(
                f"the tape holds {len(self._tape)} words; {self.used} were read, {n} more were asked for."
            )
        piece = self._tape[self.used : self.used + n]
        self.used += n
        return np.array(piece, dtype=np.uint64)


SCHEMA = Schema(
    {
        "age": Integer(0, 99),
        "sex": Category("Female", "Male"),
        "smoker": Flag(),
        "income": Real(0, 1000),
    }
)


def seeded_curator(
    table: Table, budget: Budget, seed: int, *, ledger: Ledger | None = None, analyst: str = "test"
) -> Curator:
    """A curator whose noise is drawn from a seed: never for real data."""
    kept = ledger or SqliteLedger.open(
        None, budget, atoms=Atoms(table.schema).count, neighbours=table.neighbours, population=table.population
    )
    curator = Curator.sharing(table, kept, analyst=analyst)
    curator._bits = SeededBits(seed)
    return curator


def conformance_table(rows: int = 2000, seed: int = 0, neighbours: str = "replace") -> Table:
    """A made-up table over ``SCHEMA``."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.integers(0, 100, rows),
        "sex": np.array(["Female", "Male"])[rng.integers(0, 2, rows)],
        "smoker": rng.random(rows) < 0.3,
        "income": rng.gamma(2.0, 120.0, rows),
    }
    return Table(
        columns, SCHEMA, neighbours=neighbours, rows=rows if neighbours == "add-remove" else None, name="people"
    )


def questions() -> list[Query]:
    """One query of every kind."""
    scaled = Features((as_expr("age / 50 - 1"), as_expr("income / 500 - 1")))
    ball = Features(scaled.exprs, radius=1.0)
    one = Value(as_expr("1"))
    return [
        Value(as_expr("age >= 65 AND smoker")),
        Value(as_expr("income")),
        Stack((Value(as_expr("smoker")), Value(as_expr("age")))),
        Gate(as_expr("smoker"), Value(as_expr("income"))),
        Partition(as_expr("sex"), Stack((one, Value(as_expr("income"))))),
        Partition(bucket("age", [0, 18, 65, 99]), Partition(as_expr("sex"), one)),
        Partition(bucket("age", [0, 18, 65]), Partition(as_expr("sex"), one, other=True), other=True),
        scaled,
        ball,
        Outer(scaled),
        Outer(ball),
        Gate(as_expr("sex = 'Male'"), Outer(scaled)),
        Nearest(scaled, ((-0.5, -0.5), (0.5, 0.5)), Stack((one, scaled))),
    ]


def check_oracle(make: Callable[[Table], Oracle], effort: Stated, *, slack: float = 6.0) -> None:
    """Every kind of question: right shape, priced before, within ``slack`` times its stated margin of the truth.

    ``make`` gives a fresh oracle over a table; ``effort``: what each question is asked with, as {"share": 0.01}.
    """
    from dodona.oracles.exact import Exact

    table = conformance_table()
    oracle, truth = make(table), Exact(table)
    assert oracle.schema == SCHEMA
    assert oracle.rows == 2000
    for query in questions():
        price = oracle.price(query, **effort)
        answer, exact = oracle.ask(query, **effort), truth.ask(query)
        assert np.shape(answer.total) == np.shape(exact.total), str(query)
        np.testing.assert_allclose(np.asarray(price.margin), np.asarray(answer.margin), rtol=1e-9, err_msg=str(query))
        off = np.abs(np.asarray(answer.total) - np.asarray(exact.total))
        assert np.all(off <= slack * np.asarray(answer.margin) + 1e-6), str(query)
        assert Answer.from_json(answer.to_json()).to_json() == answer.to_json()
    _check_refusals(oracle, effort)
    rows = oracle.sql("SELECT sex, COUNT(*) AS n, AVG(income) FROM people WHERE smoker GROUP BY sex", **effort)
    assert [record[0] for record in rows] == ["Female", "Male", "(other)"]
    chosen = oracle.select(["FALSE", "age >= 0", "age >= 99"], **effort)
    assert chosen.index == 1


def _check_refusals(oracle: Oracle, effort: Stated) -> None:
    for question in ("nothing", "SUM(age)", "1 / age", "age; DROP TABLE people", "random()"):
        try:
            oracle.ask(question, **effort)
        except BadQuery:
            continue
        raise AssertionError(f"{question!r} must be refused")
    try:
        oracle.ask("age", epsilon=1, share=0.1)
    except BadEffort:
        return
    raise AssertionError("two efforts at once must be refused")
