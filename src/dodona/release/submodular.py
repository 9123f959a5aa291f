"""A submodular function published as a tree of pieces: Algorithm 1 of Gupta, Hardt, Roth and Ullman (2011).

Lemma 3.1: from B = {} add elements of gain above gamma in every possible order; each B reached is a piece, on which no
element gains more than gamma, so that f varies little around its mean there (Corollary A.3). Theorem 3.3: for functions
that are not monotone, the same downwards on each piece. Theorem 3.5: with noisy gains, the threshold absorbs the noise.

Mended: the piece of S is the one REACHED inside S, not any B inside S (ERRATA 13); it is found from the recorded noisy
answers, never by asking again (14); for sets of width w means are over sets of width w that contain B (15). A piece
that opens others is also the piece of the sets that contain none of the elements that open them, and on all other sets
its function is not Lipschitz: so its mean is over the sets that are led to it (those that contain B and no element of
gain above gamma), where the proof of Claim 3.2 does hold; printed is a mean over all sets. As printed gamma is alpha^2
/ (ln(2/beta)(5 alpha/3 + 2)), about 1.54e-3 at alpha = beta = 0.1, and every subset is a piece (16): so gamma may be
stated, the number of ``pieces`` is fixed beforehand, and the mean of a piece is ONE query, not a sample.

Theorem 3.5 as printed asks for answers within alpha/4; gains are compared with alpha', so it must be alpha'/4 (33).
Below the noise of a gain every element seems to gain, pieces open by chance, and a finer tree is a worse one. The noise
is known from prices: gamma is raised to ``CLEAR`` standard deviations of a gain, and unless stated there are only as
many pieces as keep it below gamma.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Unpack

import numpy as np

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.bounds.releases import submodular_release, threshold
from dodona.concepts.grid import Grid
from dodona.concepts.parities import nullable_in
from dodona.concepts.set_functions import NOTHING, Disjunctions, Members, SetFunction
from dodona.errors import BadEffort, BadQuery
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Divisible, Effort, combined
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.expr import Expr, Literal
from dodona.query.schema import Flag, Schema
from dodona.query.statistic import Stack, Value
from dodona.release.registry import Case, Release, Setting, registered, whole_cost
from dodona.synopses.cells import Floats
from dodona.synopses.set_functions import Piece, Tree

PRACTICAL = 0.25
COUNTING = Fraction(1, 50)  # of the effort, for the number of rows where that is private
CLEAR = 3.0  # standard deviations of a gain's noise: from here on it is no chance
MOST_PIECES = 64
_FAR = 6.0  # standard deviations


def submodular(
    oracle: Oracle,
    function: SetFunction,
    *,
    alpha: float = 0.1,
    beta: float = 0.1,
    gamma: float | None = None,
    pieces: int | None = None,
    **stated: Unpack[Divisible],
) -> Synopsis:
    """The synopsis; ``synopsis.body.value({0, 3})`` answers any set, ``ask`` conjunctions and disjunctions of literals.

    ``alpha``, ``beta``: all but a fraction beta of sets err by at most alpha, where the theorem's constants allow it.
    ``gamma``: the gain above which an element opens a new piece (the theorem's where it is not below 0.25, else 0.25);
    raised where noise hides such a gain. ``pieces``: at most so many are asked, each for an equal part of the budget;
    64, or as many as leave gamma clear of the noise, unless stated.
    """
    effort, counting = _counting(oracle, Effort.divisible(**stated))
    rows, wanted, above, most = _settings(oracle, function, effort, alpha, beta, gamma, pieces)
    grown = _Growth(oracle, function, effort, above, most)
    whole = (1.0, 0.0) if counting is None else grown.count(counting)
    grown.run()
    verdict = submodular_release(function.elements, alpha, beta, rows=rows, monotone=function.monotone)
    deviations = np.array(grown.deviations)
    body = Tree(
        grown.found,
        np.stack([grown.gain_table(0), grown.gain_table(1)]),
        np.clip(np.array(grown.means), 0.0, 1.0),
        threshold=above,
        places=function.places,
        literals=function.literals(),
        rows=rows,
        deviation=float(deviations.max()),
        deviations=deviations,
        width=getattr(function, "width", None),
        whole=whole,
        nullable=nullable_in(function.literals(), oracle.schema),
    )
    promise = f"{verdict.outcome.value}: {verdict.why}"
    raised = "" if above == wanted else f" (raised from {wanted:.3g}: less is hidden by the noise)"
    accuracy = (
        f"{len(grown.found)} pieces at gamma = {above:.3g}{raised}; standard deviations of {deviations.min():.3g} to "
        f"{deviations.max():.3g}, estimated from noise and gains; what Theorem 3.5 promises here is {promise}"
    )
    notes = {"pieces": len(grown.found), "cut_short": grown.short, "gamma": above, "most_pieces": most}
    about = f"a submodular function of sets of {function.elements} elements"
    bill = combined(grown.bills)
    header = Header(
        oracle.name, about, accuracy, "submodular tree (GHRU Algorithm 1)", oracle.schema, oracle.rows, bill, notes
    )
    return Synopsis(header, body)


def plan_submodular(
    oracle: Oracle,
    function: SetFunction,
    *,
    alpha: float = 0.1,
    beta: float = 0.1,
    gamma: float | None = None,
    pieces: int | None = None,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """The noise of a piece's mean and the gain that opens one, in rows; then what Theorem 3.5 says. Spends nothing.

    How many pieces there will be depends on the rows, so no error is promised beforehand: what is shown is the larger
    of the two, within which sets stay where the function varies little on a piece.
    """
    given = Effort.divisible(**stated)
    effort, _ = _counting(oracle, given)
    rows, _, above, most = _settings(oracle, function, effort, alpha, beta, gamma, pieces)
    price = oracle.price(Value(function.value(NOTHING)), effort=effort.part(1 / (2 * most)))
    noise, cost = float(np.max(price.margin)), whole_cost(oracle, given)
    own = Outlook(
        f"a submodular function of sets of {function.elements} elements in at most {most} pieces",
        Outcome.VACUOUS,
        error=max(above, alpha) * rows + noise,
        cost=cost,
        why="How many pieces there are depends on the rows; the release says whether it was cut short.",
        details={"gamma": above, "pieces": float(most), "rows off by noise": noise},
        method="tree",
        measure="a set",
        scale="rows",
    )
    epsilon = None if cost is None or cost.epsilon is None else float(cost.epsilon)
    known = function.elements, alpha, beta
    return Outlooks([own, submodular_release(*known, rows=rows, epsilon=epsilon, monotone=function.monotone)])


def _counting(oracle: Oracle, effort: Effort) -> tuple[Effort, Effort | None]:
    """(the effort for the tree, that for the number of rows), where that is private: a conjunction is what a
    disjunction leaves of the rows that count, and the public number may be far off.
    """
    if oracle.price(Value(Literal(1.0)), effort=effort.part()).cost.amount == 0:
        return effort, None
    return effort.part(1 - COUNTING), effort.part(COUNTING)


def _settings(
    oracle: Oracle,
    function: SetFunction,
    effort: Effort,
    alpha: float,
    beta: float,
    gamma: float | None,
    pieces: int | None,
) -> tuple[int, float, float, int]:
    """(the public number of rows, gamma as wanted, as noise allows, at most how many pieces), if they make sense."""
    if not 0 < alpha < 1 or not 0 < beta < 1:
        raise BadEffort(f"alpha and beta must lie in (0, 1). Got {alpha!r} and {beta!r}.")
    if oracle.rows is None:
        raise BadEffort("a released mean needs a public number of rows: state Table(..., rows=...).")
    if pieces is not None and (isinstance(pieces, bool) or not isinstance(pieces, int) or pieces < 1):
        raise BadQuery(f"pieces must be a whole number of at least 1. Got {pieces!r}.")
    wanted = gamma if gamma is not None else max(threshold(alpha, beta, monotone=function.monotone), PRACTICAL)
    most = pieces if pieces is not None else MOST_PIECES
    while pieces is None and most > 1 and clear_gain(oracle, function, effort, most) > wanted:
        most //= 2
    return oracle.rows, wanted, max(wanted, clear_gain(oracle, function, effort, most)), most


def plan_by_tree(oracle: Oracle, grid: Grid, width: int, effort: Effort) -> Outlooks:
    """What ``conjunctions_by_tree`` would give."""
    function = Disjunctions.of(oracle.schema, grid.columns, width, both=True)
    own, theorem = plan_submodular(oracle, function, effort=effort.part())
    return Outlooks([replace(own, method="submodular"), theorem])


def conjunctions_by_tree(oracle: Oracle, grid: Grid, width: int, effort: Effort) -> Synopsis:
    """All conjunctions of exactly ``width`` of true/false columns, by Algorithm 1 on disjunctions of both literals."""
    function = Disjunctions.of(oracle.schema, grid.columns, width, both=True)
    return submodular(oracle, function, effort=effort.part())


def clear_gain(oracle: Oracle, function: SetFunction, effort: Effort, pieces: int) -> float:
    """The least gain that noise is not mistaken for, by the price of the first question of ``pieces`` pieces."""
    exprs = [function.value(frozenset(s)) for s in ((), *((x,) for x in range(function.elements)))]
    part = effort.part(_for_gains(function) / pieces)
    spread = oracle.price(Stack(tuple(map(Value, exprs))), effort=part).spread
    return CLEAR * math.sqrt(2) * float(np.max(np.asarray(spread))) / max(oracle.rows or 1, 1)


def _for_gains(function: SetFunction) -> float:
    """The part of a piece's effort for gains: upwards, and downwards as much again where f may fall."""
    return 1 / 2 if function.monotone else 1 / 4


@dataclass
class _Growth:
    """Asks piece after piece, breadth first; every piece costs the same part, whether it opens others or not."""

    oracle: Oracle
    function: SetFunction
    effort: Effort
    above: float
    most: int

    def __post_init__(self) -> None:
        self.found: list[Piece] = []
        self.means: list[float] = []
        self.gains: list[tuple[Floats, Floats]] = []
        self.bills: list[Bill] = []
        self.deviations: list[float] = []
        self._led_up: dict[Members, Members] = {}
        self.short = False
        self._deviation = self._latest = self._gain_noise = 0.0

    def count(self, effort: Effort) -> tuple[float, float]:
        """(all rows that count, their deviation), as fractions of the public number."""
        answer = self.oracle.ask(Value(Literal(1.0)), effort=effort)
        self.bills.append(answer.cost)
        return max(float(np.asarray(answer.mean)), 0.0), float(np.asarray(answer.stddev))

    def run(self) -> None:
        self._known: set[Piece] = {(NOTHING, NOTHING)}
        waiting: deque[Piece] = deque(self._known)
        while waiting:
            waiting.extend(self._ask(waiting.popleft()))

    def _ask(self, piece: Piece) -> list[Piece]:
        """The gains at a piece, then its mean over the sets led to it; returns the pieces it opens."""
        chosen, left_out = piece
        up, down = (np.full(self.function.elements, np.nan) for _ in range(2))
        opened: list[Piece] = []
        if left_out:
            up, over = self.gains[self.found.index((chosen, NOTHING))][0], self._led_up[chosen]
        else:
            self._gain(chosen, [(x, chosen | {x}) for x in self._free(chosen)], up)
            over = self._led_up[chosen] = self._opened(up, lambda x: (chosen | {x}, NOTHING), opened)
        if not self.function.monotone:
            most = (frozenset(range(self.function.elements)) - left_out - over) | chosen
            self._gain(most, [(x, most - {x}) for x in sorted(most - chosen)], down)
        under = self._opened(down, lambda x: (chosen, left_out | {x}), opened)
        self._check(piece, up, down)
        mean = self.function.mean(chosen | (under - over), left_out | (over - under))
        self.means.append(float(self._fractions([mean], 1 / 2)[0]))
        self.found.append(piece)
        self.gains.append((up, down))
        self.deviations.append(self._spread_of(piece, up, down, over | under))
        return opened

    def _opened(self, gains: Floats, grown: Callable[[int], Piece], opened: list[Piece]) -> Members:
        """The elements of gain above gamma whose pieces there is room for, the largest gains first.

        Sets with an element that there is no room for stay where they are, so the mean is over them too.
        """
        kept = []
        for x in sorted(self._over(gains), key=lambda x: (-gains[x], x)):
            if grown(x) not in self._known:
                if len(self._known) == self.most:
                    self.short = True
                    continue
                self._known.add(grown(x))
                opened.append(grown(x))
            kept.append(x)
        return frozenset(kept)

    def _gain(self, base: Members, others: list[tuple[int, Members]], into: Floats) -> None:
        """f of each of the others less f of the base."""
        if others:
            exprs = [self.function.value(s) for s in (base, *(s for _, s in others))]
            values = self._fractions(exprs, _for_gains(self.function))
            self._gain_noise = self._latest
            into[[x for x, _ in others]] = values[1:] - values[0]

    def _over(self, gains: Floats) -> Members:
        return frozenset(np.flatnonzero(np.nan_to_num(gains, nan=-1.0) > self.above).tolist())

    def _fractions(self, exprs: Sequence[Expr], part: float) -> Floats:
        answer = self.oracle.ask(Stack(tuple(map(Value, exprs))), effort=self.effort.part(part / self.most))
        self.bills.append(answer.cost)
        self._latest = float(np.max(np.asarray(answer.stddev)))
        self._deviation = max(self._deviation, self._latest)
        return np.asarray(answer.mean, dtype=np.float64).ravel()

    def _spread_of(self, piece: Piece, up: Floats, down: Floats, gone: Members) -> float:
        """The standard deviation of f(S) about the noisy mean, for a random set S that is led to the piece.

        Noise of the mean, and of f itself at most sum_x p (1 - p) g_x^2 (Efron and Stein 1981): with x in S or not, f
        differs by at most its gain g_x here, since gains fall as sets grow (Fact 2.1). Noisy gains have squares that
        are 2 sigma^2 too large on average; two standard deviations of what is left of that are added.
        """
        free = [x for x in self._free(piece[0]) if x not in piece[1] and x not in gone]
        gains = np.nan_to_num(np.maximum(np.nan_to_num(up, nan=0.0), np.nan_to_num(down, nan=0.0)))[free]
        width = getattr(self.function, "width", None)
        chance = 1 / 2 if width is None else min(1 / 2, max(width - len(piece[0]), 0) / max(len(free), 1))
        doubt = 2 * self._gain_noise**2
        square = chance * (1 - chance) * float((np.maximum(gains, 0.0) ** 2 - doubt).sum())
        slack = 2 * chance * (1 - chance) * doubt * math.sqrt(2 * len(free))
        return math.sqrt(self._latest**2 + min(max(square, 0.0) + slack, 1 / 4))

    def _free(self, chosen: Members) -> list[int]:
        places = self.function.places
        taken = {places[i] for i in chosen}
        return [i for i in range(self.function.elements) if places[i] not in taken]

    def _check(self, piece: Piece, up: Floats, down: Floats) -> None:
        """Gains of a submodular function only fall as sets grow (Fact 2.1): beyond noise, anything else is refused."""
        slack = _FAR * 2 * self._deviation + 1e-6
        for earlier, (before_up, before_down) in zip(self.found, self.gains, strict=True):
            if not (earlier[0] <= piece[0] and earlier[1] <= piece[1]):
                continue
            rises = [-1.0]
            if not piece[1]:
                rises += (up - before_up)[~np.isnan(up - before_up)].tolist()
            if piece[0] == earlier[0]:
                rises += (down - before_down)[~np.isnan(down - before_down)].tolist()
            if max(rises) > slack:
                raise BadQuery(
                    "the function must be submodular: gains may only fall as sets grow (GHRU Fact 2.1). On the answers "
                    f"seen, an element gains {max(rises):.3g} more on a larger set, which noise does not explain."
                )

    def gain_table(self, which: int) -> Floats:
        """Noisy gains, piece by element; what was not asked is below any threshold."""
        table = np.stack([gains[which] for gains in self.gains])
        return np.where(np.isnan(table), -1.0, table)


def _cases() -> list[Case]:
    schema = Schema({name: Flag(missing=False) for name in "abcd"})

    def draw(rows: int, random: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: random.random(rows) < chance for name, chance in zip("abcd", (0.1, 0.3, 0.5, 0.7), strict=True)}

    settings = {"function": Disjunctions.of(schema, "abc", both=True), "pieces": 8}
    inside, edge = ("a AND NOT b", "a OR b", "NOT a AND NOT b"), ("a AND b AND c", "a")
    return [Case("disjunctions", schema, draw, settings, "Tree", inside, edge, ("d", "a = b"))]


RELEASE = registered(
    Release(
        submodular,
        plan_submodular,
        "A submodular function of sets",
        (
            Setting("function", "value", "The function of sets."),
            Setting("alpha", "number", "The error of all but a part of the sets.", least=0, most=1),
            Setting("beta", "number", "That part.", least=0, most=1),
            Setting("gamma", "number", "The gain above which an element opens a new piece.", least=0, most=1),
            Setting("pieces", "whole", "At most so many pieces are asked.", least=1, most=100_000),
        ),
        ("Tree",),
        _cases,
    )
)
