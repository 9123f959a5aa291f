"""Query release by repeated agnostic learning: Algorithm 2 of Gupta, Hardt, Roth and Ullman (2011), and back again.

*Release from learning* (Theorem 5.1): keep a distribution D_t over all cells, start uniform; let an agnostic learner
find the concept on which the data and D_t differ most, and move D_t towards the data by multiplicative weights.

Mended (ERRATA 12): the update is exp(+eta q) when q came from A+ (the data's mean is the larger) and exp(-eta q) when
it came from A-; as printed both are +. The proof's "|4 Pr - 2|" is |2 Pr - 1| by Lemma 5.2; then a step not stopped by
(5) has |E_D q - E_{D_t} q| >= beta/2, and (7) with its eta^2 would give no drop at all. Hoeffding's lemma has eta^2/8
there: with eta = beta/2 each step drops the potential by 7 beta^2/32, so T = ceil(32 ln|X| / (7 beta^2)) steps are
enough, which the statement's 8 ln|X| / beta^2 covers.

The theorem speaks of answers within tau <= beta/8; noise beyond that can fire the rule (5) by itself. Whether they are
is known from prices, so without ``rounds=`` such a release is refused before anything is spent, and with it no round
stops the release early. What is promised never rests on the rule: a fifth of the budget finds the finished table's
worst member privately, within s, upward and downward, and measures it as g, within t; no member errs by more than
|g| + s + t, each of the four steps failing with probability 1/80. It holds for the rows as they are.

*Learning from release* (Theorem 5.5): publish the rows of each label, take the concept with the largest difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol, Unpack

import numpy as np

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.concepts.concept import Agreement, Learnable
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.grid import Grid
from dodona.errors import BadEffort, BadQuery
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Divisible, Effort, combined
from dodona.oracles.fronts import LABEL, Mixed, Where
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import compile_query
from dodona.query.schema import Flag, Schema
from dodona.query.statistic import Value
from dodona.release.registry import Case, Release, Setting, registered, whole_cost
from dodona.synopses.cells import Cells, DenseWeights, Floats
from dodona.synopses.reading import Reading, answered

CERTAIN = 0.95
_SUREST = 1 - 1e-9  # no answer states more
CERTIFICATE = Fraction(1, 5)
"""The part of the budget that tells how good the finished table is."""


class Learner(Protocol):
    """An agnostic learner: the condition that agrees with the flag ``target`` on about the most rows of an oracle."""

    def __call__(self, oracle: Oracle, target: str, effort: Divisible) -> Expr:
        """Spends ``effort`` (the keywords of ``ask``) of the oracle's budget."""


def member_by_choice(concepts: Learnable) -> Learner:
    """The generic private agnostic learner: one private choice among all members (KLNRS Theorem 3.4)."""

    def learn(oracle: Oracle, target: str, effort: Divisible) -> Expr:
        chosen = oracle.select(Agreement(concepts, Column(target)), **effort)
        return concepts.member(oracle.schema, chosen.index)

    return learn


def fitted_by(estimator: Any) -> Learner:
    """Any estimator of ``dodona.learn`` that ends in a condition, as ``AgnosticLearner(concepts)``."""

    def learn(oracle: Oracle, target: str, effort: Divisible) -> Expr:
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
    **stated: Unpack[Divisible],
) -> Synopsis:
    """Algorithm 2 as printed, sign mended. ``beta``: the learner's advantage; eta = beta/2.

    ``rounds``: at most so many. Without it all that Theorem 5.1 needs are made: thousands, each with little of the
    budget, and refused where that is too little. ``release.conjunctions`` has the repaired form. ``learner``: by one
    private choice unless given. The error promised is the one certified at the end, not ``beta``.
    """
    grid, rows, most = _sizes(oracle, concepts, columns, beta, rounds)
    effort = Effort.divisible(**stated)
    off = tolerance_of(oracle, concepts, most, effort)
    if rounds is None and off > beta / 8:
        raise _too_noisy(rows, most, beta, off)
    run = _Run(oracle, grid, learner or member_by_choice(concepts), effort, most, beta)
    stopped = run.run(may_stop=off <= beta / 8)
    worst = _certified(oracle, concepts, run, effort)
    width = int(getattr(concepts, "width", len(grid.sides)))
    edges = dict(getattr(concepts, "edges", ()))
    body = Cells(oracle.schema, grid, width, run.weights.flat() * rows, edges, certified=worst)
    ended = "stopped by itself" if stopped else f"ran all {most} rounds without stopping by itself"
    accuracy = (
        f"{ended}; certified: with probability {CERTAIN:g}, no member is off by more than "
        f"{worst / rows:.3g} of the rows"
    )
    notes = {"rounds": run.done, "theorem_rounds": rounds_needed(grid.cells, beta), "tolerance": off}
    words = "multiplicative weights as printed (GHRU Algorithm 2, sign mended)"
    told = concepts.describe(), accuracy, words, oracle.schema, rows, combined(run.bills), notes
    return Synopsis(Header(oracle.name, *told), body)


def plan_multiplicative_weights(
    oracle: Oracle,
    concepts: Learnable,
    *,
    beta: float,
    rounds: int | None = None,
    learner: Learner | None = None,
    columns: tuple[str, ...] | None = None,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """Whether a round's part of the budget answers within beta/8, as Theorem 5.1 needs; if so members err by about
    beta of the rows once it stops by itself. Spends nothing.
    """
    grid, rows, most = _sizes(oracle, concepts, columns, beta, rounds)
    effort = Effort.divisible(**stated)
    off = tolerance_of(oracle, concepts, most, effort)
    needed = math.ceil(8 * off * rows / beta)
    enough = rows >= needed
    found = Outlook(
        f"{concepts.describe()} over {grid.cells:,} cells by {most:,} rounds of two learners",
        Outcome.FEASIBLE if enough else Outcome.VACUOUS,
        "GHRU Theorem 5.1, mended",
        error=beta * rows,
        rows_needed=needed,
        cost=whole_cost(oracle, effort),
        why="" if enough else "Each round gets too little of the budget; release.conjunctions has the repaired form.",
        details={"rounds": float(most), "rows off in a round": off * rows},
        method="multiplicative weights",
        measure="a member of the class",
        scale="rows",
        confidence=CERTAIN,
    )
    return Outlooks([found])


def _sizes(
    oracle: Oracle, concepts: Learnable, columns: tuple[str, ...] | None, beta: float, rounds: int | None
) -> tuple[Grid, int, int]:
    """(the grid, the public number of rows, the most rounds), once the settings make sense."""
    if not 0 < beta <= 0.5:
        raise BadEffort(f"beta must lie in (0, 1/2]. Got {beta!r}.")
    if oracle.rows is None:
        raise BadEffort("the model needs the public number of rows: state Table(..., rows=...).")
    names = columns if columns is not None else getattr(concepts, "columns", None)
    grid = Grid.of(oracle.schema, names, dict(getattr(concepts, "edges", ())))
    most = rounds_needed(grid.cells, beta) if rounds is None else rounds
    if most < 1:
        raise BadQuery(f"rounds must be at least 1. Got {most}.")
    return grid, oracle.rows, most


def tolerance_of(oracle: Oracle, concepts: Learnable, rounds: int, effort: Effort) -> float:
    """tau: what an answer or a choice of any of ``rounds`` rounds may be off by, as a fraction of data and model.

    With probability 19/20 for all of them together; by prices alone. A choice at epsilon is within (2/epsilon)
    ln(|C|/failure) of the best, in rows.
    """
    rows, part = int(oracle.rows or 1), effort.part(_in_each(rounds))
    failure = (1 - CERTAIN) / (4 * rounds)
    price = oracle.price(Value(concepts.typical(oracle.schema)), confidence=min(1 - failure, _SUREST), effort=part)
    strength = price.cost.strength
    choice = 2 / strength * math.log(concepts.size(oracle.schema) / failure) if strength else 0.0
    return max(float(np.max(price.margin)), choice) / (2 * rows)


def _too_noisy(rows: int, rounds: int, beta: float, off: float) -> BadEffort:
    times = off / (beta / 8)
    return BadEffort(
        f"GHRU Theorem 5.1 at beta = {beta:g} needs {rounds:,} rounds with answers within beta/8 = {beta / 8:.3g}; at "
        f"this budget they are within {off:.3g}, so that noise alone would stop it. It takes about "
        f"{math.ceil(rows * times):,} rows, or {times:.3g} times the epsilon ({times**2:.3g} times the rho). State "
        "rounds= to make fewer and have the error certified, take a larger beta, or release.conjunctions."
    )


def _in_each(rounds: int) -> Fraction:
    """The part of the effort for each of two choices and two answers of a round."""
    return (1 - CERTIFICATE) / (4 * rounds)


class _Run:
    """Rounds of Algorithm 2: the ``weights`` so far, the ``bills``, how many rounds are ``done``."""

    def __init__(self, oracle: Oracle, grid: Grid, learner: Learner, effort: Effort, rounds: int, beta: float) -> None:
        self.oracle, self.grid, self._learner, self._rounds, self._beta = oracle, grid, learner, rounds, beta
        self.rows, self._part = int(oracle.rows or 1), effort.part(_in_each(rounds))
        self.weights, self.bills, self.done = DenseWeights(grid), list[Bill](), 0

    def mixed(self, sign: int) -> _Billed:
        """A+ (sign 1) or A- of the weights so far."""
        model = _as_synopsis(self.oracle, self.grid, self.weights, self.rows)
        return _Billed(Mixed(self.oracle, model, self.grid.columns, label=sign > 0), self.bills)

    def run(self, *, may_stop: bool) -> bool:
        """Whether the rule (5) stopped it."""
        for _ in range(self._rounds):
            found = []
            for sign in (1, -1):
                mixed = self.mixed(sign)
                q = self._learner(mixed, LABEL, self._part.keywords)
                right = Call("eq", (Call("coalesce", (q, Literal(False))), Column(LABEL)))
                answer = mixed.ask(Value(right), effort=self._part)
                tau = float(np.asarray(answer.margin)) / (2 * self.rows)
                found.append((float(np.asarray(answer.mean)) - 0.5, sign, q, tau))
            self.done += 1
            value, sign, q, tau = max(found, key=lambda one: one[0])
            if may_stop and value <= self._beta / 2 - min(tau, self._beta / 8):  # (5), with the answer's own tau
                return True
            reading = reading_of(q, self.oracle, self.grid)
            self.weights.update(reading.support, reading.piece.values, sign * self._beta / 2)
        return False


def _certified(oracle: Oracle, concepts: Learnable, run: _Run, effort: Effort) -> float:
    """A bound on the error of every member, in rows, that holds with probability ``CERTAIN``.

    The score of q on A+ is the rows of data in q less those of the model, and a constant; on A- the opposite. The
    chosen q is within s of the best, and within twice what rounding the model to whole rows moves a score.
    """
    part, each = effort.part(CERTIFICATE / 4), 1 - (1 - CERTAIN) / 4
    worst = 0.0
    for sign in (1, -1):
        mixed, scores = run.mixed(sign), Agreement(concepts, Column(LABEL))
        chosen = mixed.select(scores, confidence=each, effort=part)
        q = Value(concepts.member(oracle.schema, chosen.index))
        answer = oracle.ask(q, confidence=each, effort=part)
        run.bills.append(answer.cost)
        gap = sign * (float(np.asarray(answer.total)) - float(np.asarray(mixed.model_total(q))))
        worst = max(worst, gap + float(np.asarray(answer.margin)) + chosen.margin + 2 * mixed.rounding(scores))
    return worst


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
    release: Callable[[Oracle, Divisible], Synopsis],
    oracle: Oracle,
    concepts: Learnable,
    target: Expr,
    **stated: Unpack[Divisible],
) -> Expr:
    """Theorem 5.5: an agnostic learner from any release. ``release(oracle, effort)`` publishes the class.

    It runs once on the rows where ``target`` is true and once where it is false, half of the effort each, and returns
    the member with the largest difference of answers: right on within 2 alpha of the most rows if the release errs by
    alpha.
    """
    effort = Effort.divisible(**stated)
    members = list(concepts.members(oracle.schema))
    sums = []
    for where in (target, Call("not", (target,))):
        synopsis = release(Where(oracle, where), effort.part(0.5).keywords)
        sums.append(np.array([float(np.asarray(synopsis.ask(Value(member)).total)) for member in members]))
    return members[int(np.argmax(sums[0] - sums[1]))]


def _cases() -> list[Case]:
    schema = Schema({name: Flag(missing=False) for name in "abc"})

    def draw(rows: int, random: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: random.random(rows) < chance for name, chance in zip("abc", (0.2, 0.5, 0.8), strict=True)}

    settings = {"concepts": Conjunctions.over(("a", "b"), 2), "beta": 0.1, "rounds": 4}
    return [Case("conjunctions", schema, draw, settings, "Cells", ("a", "a AND b"), ("a AND NOT b",), ("c", "a = c"))]


RELEASE = registered(
    Release(
        multiplicative_weights,
        plan_multiplicative_weights,
        "Multiplicative weights as printed, for comparison",
        (
            Setting("concepts", "value", "The class it is made for."),
            Setting("beta", "number", "The advantage of the learner.", least=0, most=0.5),
            Setting("rounds", "whole", "At most so many rounds.", least=1, most=1_000_000),
            Setting("learner", "value", "The agnostic learner."),
            Setting("columns", "columns", "Columns", types=("category", "flag", "integer", "real")),
        ),
        ("Cells",),
        _cases,
    )
)
