"""The belief audit: how much an adversary's confidence about one row grows, computed exactly (SuLQ Definition 1).

The adversary knows every other row, has a prior over the values the row may have, and a predicate f of the row. With p
its belief that f holds, conf(p) = ln(p/(1 - p)), and the *gain* is conf after all answers minus conf before. A
mechanism is (epsilon, delta, T)-private if Pr[gain > epsilon] <= delta for every prior, predicate and row, whatever T
questions were asked. The paper reads conf in bits in 3.1.4 and in nats in its proof; here it is nats (ERRATA 2).

Only the law of the noise enters: P(answer | row = x) = P(noise = answer - rest - g(x)). All our noise can state it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

import numpy as np

from dodona.engines.table import Table
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.answer import Answer
from dodona.oracles.effort import Effort, Stated
from dodona.oracles.noise import noise_for
from dodona.oracles.oracle import Question
from dodona.privacy.budget import Budget
from dodona.query.plan import compile_query
from dodona.query.statistic import as_query

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
