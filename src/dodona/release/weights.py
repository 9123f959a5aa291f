"""Query release by repeated agnostic learning: Algorithm 2 of Gupta, Hardt, Roth and Ullman (2011), and back again.

*Release from learning* (Theorem 5.1): keep a distribution D_t over all cells, start uniform; let an agnostic learner
find the concept on which the data and D_t differ most, and move D_t towards the data by multiplicative weights.

Mended (ERRATA 12): the update is exp(+eta q) when q came from A+ (the data's mean is the larger) and exp(-eta q) when
it came from A-; as printed both are +. The proof's "|4 Pr - 2|" is |2 Pr - 1| by Lemma 5.2; then a step not stopped by
(5) has |E_D q - E_{D_t} q| >= beta/2, and (7) with its eta^2 would give no drop at all. Hoeffding's lemma has eta^2/8
there: with eta = beta/2 each step drops the potential by 7 beta^2/32, so T = ceil(32 ln|X| / (7 beta^2)) steps are
enough, which the statement's 8 ln|X| / beta^2 covers.

*Learning from release* (Theorem 5.5): publish the rows of each label, take the concept with the largest difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dodona.answer import Bill
from dodona.concepts.grid import Grid
from dodona.concepts.learnable import Agreement, Learnable
from dodona.errors import BadEffort, BadQuery
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import compile_query
from dodona.query.statistic import Value
from dodona.release.dense_weights import DenseWeights
from dodona.release.mixed import LABEL, Mixed
from dodona.release.portion import Portion, Stated, combined
from dodona.release.where import Where
from dodona.synopses.base import Header, Synopsis
from dodona.synopses.basis import Floats
from dodona.synopses.cells import Cells
from dodona.synopses.reading import Reading, answered


class Learner(Protocol):
    """An agnostic learner: the condition that agrees with the flag ``target`` on about the most rows of an oracle."""

    def __call__(self, oracle: Oracle, target: str, effort: Stated) -> Expr:
        """Spends ``effort`` (the keywords of ``ask``) of the oracle's budget."""


def member_by_choice(concepts: Learnable) -> Learner:
    """The generic private agnostic learner: one private choice among all members (KLNRS Theorem 3.4)."""

    def learn(oracle: Oracle, target: str, effort: Stated) -> Expr:
        chosen = oracle.select(Agreement(concepts, Column(target)), **effort)
        return concepts.member(oracle.schema, chosen.index)

    return learn


def fitted_by(estimator: Any) -> Learner:
    """Any estimator of ``dodona.learn`` that ends in a condition, as ``AgnosticLearner(concepts)``."""

    def learn(oracle: Oracle, target: str, effort: Stated) -> Expr:
        if "share" not in effort and effort:
            raise BadEffort("an estimator takes a share of the oracle's budget: give share=, not epsilon= or rho=.")
        estimator.set_params(share=effort.get("share", 1))
        condition: Expr = estimator.fit(oracle, target).hypothesis_.condition
        return condition

    return learn


def rounds_needed(cells: int, beta: float) -> int:
    """T = ceil(32 ln|X| / (7 beta^2)): Theorem 5.1, mended as above."""
    return math.ceil(32 * math.log(cells) / (7 * beta**2))


def multiplicative_weights(
    oracle: Oracle,
    concepts: Learnable,
    *,
    beta: float,
    rounds: int | None = None,
    learner: Learner | None = None,
    columns: tuple[str, ...] | None = None,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> Synopsis:
    """Algorithm 2 as printed, sign mended. ``beta``: the learner's advantage; eta = beta/2.

    ``rounds``: at most so many (``rounds_needed`` unless given: as printed they are thousands, so each gets little of
    the budget; ``release.conjunctions`` has the repaired form). ``learner``: by one private choice unless given.
    """
    if not 0 < beta <= 0.5:
        raise BadEffort(f"beta must lie in (0, 1/2]. Got {beta!r}.")
    if oracle.rows is None:
        raise BadEffort("the model needs the public number of rows: state Table(..., rows=...).")
    names = columns if columns is not None else getattr(concepts, "columns", None)
    grid = Grid.of(oracle.schema, names, dict(getattr(concepts, "edges", ())))
    most = rounds_needed(grid.cells, beta) if rounds is None else rounds
    if most < 1:
        raise BadQuery(f"rounds must be at least 1. Got {most}.")
    found = _run(oracle, grid, learner or member_by_choice(concepts), Portion.of(share, epsilon, rho), most, beta)
    weights, bills, stopped = found
    width = int(getattr(concepts, "width", len(grid.sides)))
    deviation = beta * oracle.rows if stopped else oracle.rows / 2
    body = Cells(
        oracle.schema,
        grid,
        width,
        weights.flat() * oracle.rows,
        dict(getattr(concepts, "edges", ())),
        deviation=deviation,
    )
    accuracy = (
        f"stopped by itself: no member found to be off by more than {beta:g} of the rows"
        if stopped
        else f"ran all {most} rounds without stopping by itself: nothing is promised"
    )
    notes = {"rounds": len(bills) // 4, "theorem_rounds": rounds_needed(grid.cells, beta)}
    words = "multiplicative weights as printed (GHRU Algorithm 2, sign mended)"
    return Synopsis(
        Header(oracle.name, concepts.describe(), accuracy, words, oracle.schema, oracle.rows, combined(bills), notes),
        body,
    )


def _run(
    oracle: Oracle, grid: Grid, learner: Learner, portion: Portion, rounds: int, beta: float
) -> tuple[DenseWeights, list[Bill], bool]:
    rows = int(oracle.rows or 1)
    weights = DenseWeights(grid)
    bills: list[Bill] = []
    effort = portion.part(1 / (4 * rounds))
    for _ in range(rounds):
        model = _as_synopsis(oracle, grid, weights, rows)
        found = []
        for sign in (1, -1):
            mixed = Mixed(oracle, model, grid.columns, label=sign > 0)
            recorded = _Billed(mixed, bills)
            q = learner(recorded, LABEL, effort)
            right = Call("eq", (Call("coalesce", (q, Literal(False))), Column(LABEL)))
            answer = recorded.ask(Value(right), **effort)
            found.append((float(np.asarray(answer.mean)) - 0.5, sign, q, float(np.asarray(answer.margin)) / (2 * rows)))
        value, sign, q, tau = max(found, key=lambda one: one[0])
        if value <= beta / 2 - min(tau, beta / 8):  # (5), with the tau that the answer really has
            return weights, bills, True
        reading = reading_of(q, oracle, grid)
        weights.update(reading.support, reading.piece.values, sign * beta / 2)
    return weights, bills, False


class _Billed(Mixed):
    """Keeps the bill of every question."""

    def __init__(self, mixed: Mixed, bills: list[Bill]) -> None:
        self.__dict__.update(mixed.__dict__)
        self._bills = bills

    def answer(self, request: Any) -> Any:
        given = super().answer(request)
        self._bills.append(given.cost)
        return given

    def choose(self, request: Any, mechanism: str) -> Any:
        given = super().choose(request, mechanism)
        self._bills.append(given.cost)
        return given


def _as_synopsis(oracle: Oracle, grid: Grid, weights: DenseWeights, rows: int) -> Synopsis:
    schema = oracle.schema
    edges = {side.column: side.edges for side in grid.sides if side.edges}
    body = Cells(schema, grid, len(grid.sides), weights.flat() * rows, edges)
    free = Bill(0.0, "nothing", 0.0, 0.0, "", "a model")
    return Synopsis(Header(oracle.name, "the model so far", "", "a model", schema, rows, free), body)


def reading_of(condition: Expr, oracle: Oracle, grid: Grid) -> Reading:
    """A condition as a function of the cells of the sides it reads."""
    kept: list[Reading] = []

    def keep(reading: Reading) -> tuple[Floats, Floats]:
        kept.append(reading)
        return np.zeros(1), np.zeros(1)

    answered(compile_query(Value(condition), oracle.schema, level=True), oracle.schema, grid, keep)
    return kept[0]


def learn_by_release(
    release: Callable[[Oracle, Stated], Synopsis],
    oracle: Oracle,
    concepts: Learnable,
    target: Expr,
    *,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> Expr:
    """Theorem 5.5: an agnostic learner from any release. ``release(oracle, effort)`` publishes the class.

    It runs once on the rows where ``target`` is true and once where it is false, half of the effort each, and returns
    the member with the largest difference of answers: right on within 2 alpha of the most rows if the release errs by
    alpha.
    """
    portion = Portion.of(share, epsilon, rho)
    members = list(concepts.members(oracle.schema))
    sums = []
    for where in (target, Call("not", (target,))):
        synopsis = release(Where(oracle, where), portion.part(0.5))
        sums.append(np.array([float(np.asarray(synopsis.ask(Value(member)).total)) for member in members]))
    return members[int(np.argmax(sums[0] - sums[1]))]
