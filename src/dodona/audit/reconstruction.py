"""Reconstruction: attacks that turn answers back into rows. They win against exact answers, not against a budget.

Every row has a public number and a secret bit. Dinur and Nissim (2003): answers to random subset sums within o(sqrt n)
give nearly all bits back, by linear programming. Averaging, differencing and the salary search are those of SuLQ
section 1. Under a total of epsilon (one row's secret replaced) any guess of a fair bit is right with probability at
most e^epsilon/(1 + e^epsilon), by Bayes' rule; asking for every row in turn reaches exactly that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.oracles.oracle import Oracle
from dodona.query.schema import Flag, Integer, Schema
from dodona.query.statistic import Partition, Stack, Value, as_expr
from dodona.query.text import parse

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reconstruction:
    """``recovered`` of ``rows`` secrets were guessed right, from ``answers`` numbers."""

    attack: str
    rows: int
    recovered: int
    answers: int

    @property
    def fraction(self) -> float:
        """The part of the secrets that was guessed right; 1/2 is chance."""
        return self.recovered / self.rows

    def __str__(self) -> str:
        return f"{self.attack}: {self.recovered} of {self.rows} secrets from {self.answers} answers"


def privacy_limit(epsilon: float, rows: int, delta: float = 0.0, sigmas: float = 4.0) -> float:
    """e^epsilon/(1 + e^epsilon) + delta, and ``sigmas`` standard deviations for luck over so many rows."""
    best = min(1.0, 1 / (1 + math.exp(-epsilon)) + delta)
    return best + sigmas * math.sqrt(best * (1 - best) / rows)


def secrets_table(secrets: Bits) -> Table:
    """Row i has the public number ``id`` = i and the secret ``secret``."""
    schema = Schema({"id": Integer(0, len(secrets) - 1, public=True), "secret": Flag()})
    columns = {"id": np.arange(len(secrets)), "secret": np.asarray(secrets, dtype=np.bool_)}
    return Table(columns, schema, name="secrets")


def subset_sums(oracle: Oracle, rows: int, count: int, seed: int) -> tuple[Floats, Floats]:
    """``count`` random subsets (by rows) and the oracle's answers: how many secrets each holds, for all its budget."""
    rng = np.random.default_rng(seed)
    inside = rng.random((count, rows)) < 0.5
    inside[:, 0] |= ~inside.any(axis=1)  # no empty list of numbers
    questions = [Value(parse(f"secret AND id IN ({', '.join(map(str, np.flatnonzero(row)))})")) for row in inside]
    answer = oracle.ask(Stack(tuple(questions)), share=1)
    return inside.astype(np.float64), np.ravel(np.asarray(answer.total, dtype=np.float64))


def by_linear_program(inside: Floats, answers: Floats) -> Bits:
    """The bits that minimise the summed absolute errors of the answers (Dinur and Nissim 2003, Theorem 3)."""
    from scipy.optimize import linprog

    count, rows = inside.shape
    cost = np.concatenate([np.zeros(rows), np.ones(count)])
    slack = -np.eye(count)
    bounds = [(0, 1)] * rows + [(0, None)] * count
    found = linprog(
        cost,
        A_ub=np.block([[inside, slack], [-inside, slack]]),
        b_ub=np.concatenate([answers, -answers]),
        bounds=bounds,
        method="highs",
    )
    return np.asarray(found.x[:rows] >= 0.5)


def by_least_squares(inside: Floats, answers: Floats) -> Bits:
    """The least squares fit, rounded."""
    found, *_ = np.linalg.lstsq(inside, answers, rcond=None)
    return np.asarray(found >= 0.5)


def by_row(oracle: Oracle, rows: int) -> tuple[Bits, int]:
    """Every row asked for by its number, in one question for all the budget: the best there is."""
    answer = oracle.ask(Partition(as_expr("id"), Value(as_expr("secret"))), share=1)
    cells = np.ravel(np.asarray(answer.total, dtype=np.float64))[:rows]
    return np.asarray(cells >= 0.5), rows


def by_averaging(oracle: Oracle, row: int, times: int) -> bool:
    """One row's secret, asked for ``times`` times over, each for its share: noise that averages out, if it may."""
    share = Fraction(1, times)
    question = f"secret AND id = {row}"
    answers = [float(oracle.ask(question, share=share).total) for _ in range(times)]
    return bool(np.mean(answers) >= 0.5)


def by_differencing(oracle: Oracle, row: int) -> bool:
    """How many secrets there are, less how many there are without this row (SuLQ section 1)."""
    half = Fraction(1, 2)
    everyone = float(oracle.ask("secret", share=half).total)
    others = float(oracle.ask(f"secret AND id <> {row}", share=half).total)
    return everyone - others >= 0.5


def salary(oracle: Oracle, person: int, low: int, high: int) -> int:
    """A person's salary by binary search: earners of at least X, less those not numbered so (SuLQ section 1).

    The table has ``id`` and ``salary``, a whole number in low..high; each of 2 ceil(log2(high - low + 1)) questions
    gets an equal share.
    """
    if high < low:
        raise BadQuery(f"high must be at least low. Got {low} and {high}.")
    steps = max(1, math.ceil(math.log2(high - low + 1)))
    share = Fraction(1, 2 * steps)
    while low < high:
        middle = (low + high + 1) // 2
        with_them = float(oracle.ask(f"salary >= {middle}", share=share).total)
        without = float(oracle.ask(f"salary >= {middle} AND id <> {person}", share=share).total)
        low, high = (middle, high) if with_them - without >= 0.5 else (low, middle - 1)
    return low


def reconstruct(
    open_oracle: Callable[[Table], Oracle], secrets: Bits, *, queries: int, seed: int
) -> list[Reconstruction]:
    """Every attack on all rows, each on a fresh oracle over these secrets with its own whole budget."""
    table, rows = secrets_table(secrets), len(secrets)
    inside, answers = subset_sums(open_oracle(table), rows, queries, seed)
    told, asked = by_row(open_oracle(table), rows)
    attempts: list[tuple[str, Bits, int]] = [
        ("linear program", by_linear_program(inside, answers), queries),
        ("least squares", by_least_squares(inside, answers), queries),
        ("row by row", told, asked),
    ]
    return [
        Reconstruction(name, rows, int((np.asarray(guess) == secrets).sum()), count) for name, guess, count in attempts
    ]
