"""A submodular function published as a tree of pieces: Algorithm 1 of Gupta, Hardt, Roth and Ullman (2011).

Lemma 3.1: from B = {} add elements of gain above gamma in every possible order; each B reached is a piece, on which no
element gains more than gamma, so that f varies little around its mean there (Corollary A.3). Theorem 3.3: for functions
that are not monotone, the same downwards on each piece. Theorem 3.5: with noisy gains, the threshold absorbs the noise.

Mended: the piece of S is the one REACHED inside S, not any B inside S (ERRATA 13); it is found from the recorded noisy
answers, never by asking again (14); for sets of width w means are over sets of width w that contain B (15). A piece
that opens others is also the piece of the sets that contain none of the elements that open them, and on all other sets
its function is not Lipschitz: so its mean is over the sets that are led to it (those that contain B and no element of
gain above gamma), where the proof of Claim 3.2 does hold; printed is a mean over all sets. As printed gamma is alpha^2
/ (ln(2/beta)(5 alpha/3 + 2)), about 6e-4 at alpha = beta = 0.1, and every subset is a piece (16): so gamma may be
stated, the number of ``pieces`` is fixed beforehand, and the mean of a piece is ONE query, not a sample.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dodona.answer import Bill
from dodona.bounds.ghru import submodular_release, threshold
from dodona.concepts.grid import Grid
from dodona.concepts.set_functions import NOTHING, Disjunctions, Members, SetFunction
from dodona.errors import BadEffort, BadQuery
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr
from dodona.query.statistic import Stack, Value
from dodona.release.portion import Portion, combined
from dodona.synopses.base import Header, Synopsis
from dodona.synopses.basis import Floats
from dodona.synopses.tree import Piece, Tree

PRACTICAL = 0.25
_FAR = 6.0  # standard deviations


def submodular(
    oracle: Oracle,
    function: SetFunction,
    *,
    alpha: float = 0.1,
    beta: float = 0.1,
    gamma: float | None = None,
    pieces: int = 64,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> Synopsis:
    """The synopsis; ``synopsis.body.value({0, 3})`` answers any set, ``ask`` conjunctions and disjunctions of literals.

    ``alpha``, ``beta``: all but a fraction beta of sets err by at most alpha, where the theorem's constants allow it.
    ``gamma``: the gain above which an element opens a new piece (the theorem's where it is not below 0.25, else 0.25).
    ``pieces``: at most so many are asked; each gets an equal part of the budget.
    """
    if not 0 < alpha < 1 or not 0 < beta < 1:
        raise BadEffort(f"alpha and beta must lie in (0, 1). Got {alpha!r} and {beta!r}.")
    if oracle.rows is None:
        raise BadEffort("a released mean needs a public number of rows: state Table(..., rows=...).")
    if isinstance(pieces, bool) or not isinstance(pieces, int) or pieces < 1:
        raise BadQuery(f"pieces must be a whole number of at least 1. Got {pieces!r}.")
    above = gamma if gamma is not None else max(threshold(alpha, beta, monotone=function.monotone), PRACTICAL)
    grown = _Growth(oracle, function, Portion.of(share, epsilon, rho), above, pieces)
    grown.run()
    verdict = submodular_release(function.elements, alpha, beta, rows=oracle.rows, monotone=function.monotone)
    deviation = max(above, alpha)
    body = Tree(
        grown.found,
        np.stack([grown.gain_table(0), grown.gain_table(1)]),
        np.clip(np.array(grown.means), 0.0, 1.0),
        threshold=above,
        places=function.places,
        literals=function.literals(),
        rows=oracle.rows,
        deviation=deviation,
    )
    promise = f"{verdict.outcome.value}: {verdict.why}"
    accuracy = f"{len(grown.found)} pieces at gamma = {above:.3g}; what Theorem 3.5 promises here is {promise}"
    notes = {"pieces": len(grown.found), "cut_short": grown.short, "gamma": above}
    about = f"a submodular function of sets of {function.elements} elements"
    bill = combined(grown.bills)
    header = Header(
        oracle.name, about, accuracy, "submodular tree (GHRU Algorithm 1)", oracle.schema, oracle.rows, bill, notes
    )
    return Synopsis(header, body)


def conjunctions_by_tree(oracle: Oracle, grid: Grid, width: int, portion: Portion) -> Synopsis:
    """All conjunctions of exactly ``width`` of true/false columns, by Algorithm 1 on disjunctions of both literals."""
    function = Disjunctions.of(oracle.schema, grid.columns, width, both=True)
    return submodular(oracle, function, **portion.part())


@dataclass
class _Growth:
    """Asks piece after piece, breadth first; every piece costs the same part, whether it opens others or not."""

    oracle: Oracle
    function: SetFunction
    portion: Portion
    above: float
    most: int

    def __post_init__(self) -> None:
        self.found: list[Piece] = []
        self.means: list[float] = []
        self.gains: list[tuple[Floats, Floats]] = []
        self.bills: list[Bill] = []
        self.short = False
        self._deviation = 0.0

    def run(self) -> None:
        waiting: deque[Piece] = deque([(NOTHING, NOTHING)])
        seen = {waiting[0]}
        while waiting:
            if len(self.found) == self.most:
                self.short = True
                return
            piece = waiting.popleft()
            for grown in self._ask(piece):
                if grown not in seen:
                    seen.add(grown)
                    waiting.append(grown)

    def _ask(self, piece: Piece) -> list[Piece]:
        """The gains at a piece, then its mean over the sets led to it; returns the pieces it opens."""
        chosen, left_out = piece
        up, down = (np.full(self.function.elements, np.nan) for _ in range(2))
        if left_out:
            up = self.gains[self.found.index((chosen, NOTHING))][0]
        else:
            self._gain(chosen, [(x, chosen | {x}) for x in self._free(chosen)], up)
        over = self._over(up)
        if not self.function.monotone:
            most = (frozenset(range(self.function.elements)) - left_out - over) | chosen
            self._gain(most, [(x, most - {x}) for x in sorted(most - chosen)], down)
        under = self._over(down)
        self._check(piece, up, down)
        mean = self.function.mean(chosen | (under - over), left_out | (over - under))
        self.means.append(float(self._fractions([mean], 1 / 2)[0]))
        self.found.append(piece)
        self.gains.append((up, down))
        opened: list[Piece] = [(chosen, left_out | {x}) for x in sorted(under)]
        return opened if left_out else [*((chosen | {x}, NOTHING) for x in sorted(over)), *opened]

    def _gain(self, base: Members, others: list[tuple[int, Members]], into: Floats) -> None:
        """f of each of the others less f of the base."""
        if others:
            values = self._fractions([self.function.value(s) for s in (base, *(s for _, s in others))], 1 / 4)
            into[[x for x, _ in others]] = values[1:] - values[0]

    def _over(self, gains: Floats) -> Members:
        return frozenset(np.flatnonzero(np.nan_to_num(gains, nan=-1.0) > self.above).tolist())

    def _fractions(self, exprs: Sequence[Expr], part: float) -> Floats:
        answer = self.oracle.ask(Stack(tuple(map(Value, exprs))), **self.portion.part(part / self.most))
        self.bills.append(answer.cost)
        self._deviation = max(self._deviation, float(np.max(np.asarray(answer.stddev))))
        return np.asarray(answer.mean, dtype=np.float64).ravel()

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
