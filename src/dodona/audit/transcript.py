"""From a curator's answers to what an adversary who knows all rows but one has seen of that one.

The questions are compiled and priced again exactly as the curator does it, which needs no secret: the noise a question
gets is public, a function of the question, its effort, the budget and the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dodona.answer import Answer
from dodona.audit.belief import Observation
from dodona.effort import Effort
from dodona.engines.table import Table
from dodona.errors import Unsupported
from dodona.oracle import Question
from dodona.privacy.budget import Budget
from dodona.privacy.numbers import Number
from dodona.query.plan import compile_query
from dodona.query.statistic import as_query
from dodona.trust.noise import noise_for

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

    def see(
        self,
        question: Question,
        answer: Answer,
        *,
        tolerance: Number | None = None,
        share: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
    ) -> None:
        """Adds one ``answer`` with the effort it was asked with, coordinate by coordinate."""
        effort = Effort.of(tolerance, share, epsilon, rho, answer.confidence)
        plan = compile_query(as_query(question), self._others.schema, level=effort.kind == "tolerance")
        noise = noise_for(plan, plan.reach.under(self._others.neighbours), effort, self._budget, answer.rows)
        flat = np.concatenate([np.ravel(np.asarray(answer.total))])
        steps = flat / plan.units
        if not np.all(np.abs(steps) < _EXACT) or not np.array_equal(steps, np.rint(steps)):
            raise Unsupported("these totals are too large for doubles to hold each whole step of them.")
        rest = self._others.engine.totals(plan.program)
        each = [table.engine.totals(plan.program) for table in self._candidates]
        weight_of = {int(place): weight for weight, places in plan.places.items() for place in places}
        self.observations += tuple(
            Observation(int(steps[i]) - int(rest[i]), tuple(int(e[i]) for e in each), noise.by_weight[weight_of[i]])
            for i in range(plan.dimension)
            if weight_of[i] in noise.by_weight
        )
