"""The agnostic learner, exactly: its law over all members on all neighbouring tiny tables, against e^epsilon."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dodona.concepts.concept import Agreement, Learnable
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.parities import Parities
from dodona.concepts.trees import Stumps
from dodona.engines.table import Table
from dodona.mechanisms import Exponential, PermuteAndFlip
from dodona.mechanisms.fixed import exp_bracket
from dodona.query.plan import compile_query
from dodona.query.schema import Flag, Schema
from dodona.query.statistic import as_expr

SCHEMA = Schema({"a": Flag(), "b": Flag(missing=False), "y": Flag()})
KINDS = list(itertools.product((False, True), repeat=3))
CLASSES = [Conjunctions.over(["a", "b"], 2), Stumps.over(["a", "b"]), Parities.over(["a", "b"])]
Rows = tuple[tuple[bool, ...], ...]


def scores_of(concepts: Learnable, table: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    columns = dict(zip(SCHEMA, np.array(table, dtype=bool).reshape(-1, 3).T, strict=True))
    scores = Agreement(concepts, as_expr("y"))
    program = compile_query(scores.statistics(SCHEMA), SCHEMA, level=True).program
    return scores.tally(SCHEMA, Table(columns, SCHEMA).engine.totals(program))


@pytest.mark.parametrize("concepts", CLASSES, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("mechanism", [PermuteAndFlip, Exponential])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(3)])
def test_choice_is_epsilon_private_on_all_neighbouring_tables(
    concepts: Learnable, mechanism: type[PermuteAndFlip | Exponential], epsilon: Fraction
) -> None:
    chooser = mechanism(epsilon, Fraction(1))
    shrunk = Fraction(exp_bracket(epsilon, 128)[1], 1 << 128)  # just above e^-epsilon
    tables = list(itertools.combinations_with_replacement(KINDS, 2))
    seen: dict[tuple[int, ...], list[tuple[Fraction, Fraction]]] = {}

    def law(scores: tuple[int, ...]) -> list[tuple[Fraction, Fraction]]:
        if scores not in seen:
            seen[scores] = chooser.probabilities(np.array(scores, dtype=np.int64))
        return seen[scores]

    counted = {table: tuple(scores_of(concepts, table).tolist()) for table in tables}
    pairs = {
        (counted[table], counted[tuple(sorted((table[0], kind)))])  # type: ignore[index]
        for table, kind in itertools.product(tables, KINDS)
    }
    worst = Fraction(0)
    for one, other in pairs:
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 1
        for (low, _), (_, high) in zip(law(one), law(other), strict=True):
            assert low * shrunk <= high
            worst = max(worst, low / high)
    assert worst > 1 + Fraction(1, 10), "neighbours that never differ prove nothing"


@pytest.mark.parametrize("concepts", CLASSES, ids=lambda c: type(c).__name__)
def test_scoring_by_signed_sums_alone_would_break_it(concepts: Learnable) -> None:
    """The sum of signed labels moves by 2 when a label flips: without the count of negatives the promise is void."""
    flipped = [((True, True, True),), ((True, True, False),)]
    bare = [scores_of(concepts, table) - (table == flipped[1]) for table in flipped]
    assert np.abs(bare[0] - bare[1]).max() == 2
    kept = [scores_of(concepts, table) for table in flipped]
    assert np.abs(kept[0] - kept[1]).max() == 1
