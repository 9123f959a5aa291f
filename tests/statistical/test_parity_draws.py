"""Draws of the parity solver match its exact law, and not that of a solver without the refusal."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dodona.mechanisms.parity import ParitySolver, packed
from dodona.testing.mechanisms import FALSE_ALARM, p_value
from dodona.testing.oracles import SeededBits

DRAWS = 6000


@pytest.mark.parametrize(
    "rows", [((1, 0, 1), (0, 1, 1), (1, 1, 0)), ((1, 0, 1), (1, 0, 0)), ((0, 0, 1),)], ids=["fit", "clash", "never"]
)
def test_draws_match_the_law(rows: tuple[tuple[int, ...], ...]) -> None:
    examples = np.array(rows, dtype=bool)
    solver, bits = ParitySolver(Fraction(2)), SeededBits(7)
    law = solver.probabilities(examples)
    outcomes = list(law)
    counts = dict.fromkeys(outcomes, 0)
    for _ in range(DRAWS):
        drawn = solver.sample(packed(examples), 2, bits)
        counts[None if drawn is None else tuple(int(bit) for bit in drawn)] += 1
    observed = [counts[outcome] for outcome in outcomes]
    assert p_value(observed, [float(law[outcome]) for outcome in outcomes]) > FALSE_ALARM
    bare = [float(2 * law[o] - (o is None)) for o in outcomes]
    assert p_value(observed, [max(chance, 1e-12) for chance in bare]) < FALSE_ALARM
