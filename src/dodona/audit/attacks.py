"""What others would learn: their beliefs, computed exactly, and attacks that turn answers back into rows.

The belief audit: how much an adversary's confidence about one row grows (SuLQ Definition 1). The adversary knows every
other row, has a prior over the values the row may have, and a predicate f of the row. With p its belief that f holds,
conf(p) = ln(p/(1 - p)), and the *gain* is conf after all answers minus conf before. A mechanism is
(epsilon, delta, T)-private if Pr[gain > epsilon] <= delta for every prior, predicate and row, whatever T questions were
asked. The paper reads conf in bits in 3.1.4 and in nats in its proof; here it is nats (ERRATA 2). Only the law of the
noise enters: P(answer | row = x) = P(noise = answer - rest - g(x)). All our noise can state it.

Reconstruction wins against exact answers, not against a budget. Every row has a public number and a secret bit. Dinur
and Nissim (2003): answers to random subset sums within o(sqrt n) give nearly all bits back, by linear programming.
Averaging, differencing and the salary search are those of SuLQ section 1. Under a total of epsilon (one row's secret
replaced) any guess of a fair bit is right with probability at most e^epsilon/(1 + e^epsilon), by Bayes' rule; asking
for every row in turn reaches exactly that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.answer import Answer
from dodona.oracles.effort import Effort, Stated
from dodona.oracles.noise import noise_for
from dodona.oracles.oracle import Oracle, Question
from dodona.privacy.budget import Budget
from dodona.query.plan import compile_query
from dodona.query.schema import Flag, Integer, Schema
from dodona.query.statistic import Partition, Stack, Value, as_expr, as_query
from dodona.query.text import parse

# From a curator's answers to what an adversary who knows all rows but one has seen of that one.
#
# The questions are compiled and priced again exactly as the curator does it, which needs no secret: the noise a
# question gets is public, a function of the question, its effort, the budget and the number of rows.


_EXACT = 2**53


class Adversary:
    """Knows ``others``, every row but one; thinks of that one as one of ``candidates``; sees a curator's answers.

    ``budget`` is the curator's. ``candidates``: possible values of the row, each a mapping of all columns.
    """

    def __init__(self, others: Table, candidates: Sequence[Mapping[str, Any]], budget: Budget) -> None:
        self._others, self._budget = others, budget
        self._candidates = [
            Table({name: np.array([row[name]]) for name in others.schema}, others.schema) for row in candidates
        ]
        self.observations: tuple[Observation, ...] = ()

    def see(self, question: Question, answer: Answer, **stated: Unpack[Stated]) -> None:
        """Adds one ``answer`` with the effort it was asked with, coordinate by coordinate."""
        stated.setdefault("confidence", answer.confidence)
        effort = Effort.of(**stated)
        plan = compile_query(as_query(question), self._others.schema, level=effort.kind == "tolerance")
        noise = noise_for(plan, plan.reach.under(self._others.neighbours), effort, self._budget, answer.rows)
        flat = np.concatenate([np.ravel(np.asarray(answer.total))])
        steps = flat / plan.units
        if not np.all(np.abs(steps) < _EXACT) or not np.array_equal(steps, np.rint(steps)):
            raise Unsupported("these totals are too large for doubles to hold each whole step of them.")
        if any(block.counts_values for block in plan.program.blocks):
            raise Unsupported("different values do not add up over rows: a belief is of sums.")
        rest = self._others.engine.totals(plan.program)
        each = [table.engine.totals(plan.program) for table in self._candidates]
        weight_of = {int(place): weight for weight, places in plan.places.items() for place in places}
        self.observations += tuple(
            Observation(int(steps[i]) - int(rest[i]), tuple(int(e[i]) for e in each), noise.by_weight[weight_of[i]])
            for i in range(plan.dimension)
            if weight_of[i] in noise.by_weight
        )


class NoiseLaw(Protocol):
    """Integer noise that states its probabilities: every mechanism of ours that adds noise."""

    def log_probability(self, k: int) -> float:
        """ln P(X = k)."""
        ...

    def quantile(self, confidence: float) -> int:
        """The least t with P(|X| <= t) >= confidence."""
        ...


@dataclass(frozen=True)
class Observation:
    """One noisy total, in whole steps, as the adversary sees it.

    ``answer``: the noisy total minus what the other rows contribute. ``contributions``: what the row would contribute
    for each of its possible values. ``noise``: the law of what was added.
    """

    answer: int
    contributions: tuple[int, ...]
    noise: NoiseLaw

    def log_likelihoods(self) -> list[float]:
        """ln P(answer | row = x) for each possible value x."""
        return [self.noise.log_probability(self.answer - value) for value in self.contributions]


@dataclass(frozen=True)
class Belief:
    """``before`` and ``after``: the confidence ln(p/(1 - p)) that the predicate holds, in nats."""

    before: float
    after: float

    @property
    def gain(self) -> float:
        """The change of confidence that Definition 1 bounds."""
        return self.after - self.before

    def __str__(self) -> str:
        start, end = (1 / (1 + math.exp(-conf)) for conf in (self.before, self.after))
        return f"belief {start:.4g} -> {end:.4g}: confidence {self.gain:+.4g} nats"


def belief(observations: Sequence[Observation], prior: Sequence[float], predicate: Sequence[bool]) -> Belief:
    """What the answers did to the belief that ``predicate`` holds of the row.

    ``prior``: a weight for each possible value, in the order of the observations' contributions. ``predicate``: whether
    f holds of each. The gain is equation (18) of SuLQ, ln of (sum over f(x) = 1 of w_x P(answers | x)) over the same
    for f(x) = 0, minus its value before any answer. Questions may depend on earlier answers, since P factors.
    """
    if len(prior) != len(predicate) or any(len(seen.contributions) != len(prior) for seen in observations):
        raise BadQuery("the prior, the predicate and each observation must speak of the same list of possible values.")
    if not all(weight >= 0 and math.isfinite(weight) for weight in prior):
        raise BadQuery("the weights of a prior must be finite and not negative.")
    logs = [math.log(weight) if weight > 0 else -math.inf for weight in prior]
    before = _confidence(logs, predicate)
    for seen in observations:
        logs = [a + b for a, b in zip(logs, seen.log_likelihoods(), strict=True)]
    return Belief(before, _confidence(logs, predicate))


def worst_case(noise: NoiseLaw, shift: int, epsilon: float) -> float:
    """Pr[gain > epsilon] for the adversary who asks once for exactly what is in doubt, to about 1e-12.

    The row contributes ``shift`` or 0, the prior has these two values alone, and the row's is ``shift``. The gain is
    then the privacy loss ln P(k) - ln P(k + shift) itself, k the noise drawn. For Gaussian noise of variance R, T
    questions of shift 1 are this with shift^2 = T (their losses add as normals do): Q((epsilon - rho)/sqrt(2 rho)),
    rho = T/2R.
    """
    reach = noise.quantile(1 - 1e-13) + abs(shift)
    logs = {k: noise.log_probability(k) for k in range(-reach - abs(shift), reach + abs(shift) + 1)}
    return math.fsum(math.exp(logs[k]) for k in range(-reach, reach + 1) if logs[k] - logs[k + shift] > epsilon)


def _confidence(logs: Sequence[float], predicate: Sequence[bool]) -> float:
    holds, fails = (
        _log_sum([log for log, yes in zip(logs, predicate, strict=True) if yes is side]) for side in (True, False)
    )
    if holds == fails == -math.inf or math.isinf(holds) or math.isinf(fails):
        raise BadQuery(
            "a prior must leave some weight on both sides of the predicate: confidence is infinite otherwise."
        )
    return holds - fails


def _log_sum(logs: Sequence[float]) -> float:
    top = max(logs, default=-math.inf)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(log - top) for log in logs))


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
