"""The parity learner A, exactly: every subset S, every outcome, every pair of neighbouring tables, in fractions."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.parity import COIN, ParitySolver, Roles, Vector, packed, solve

Law = dict[Vector | None, Fraction]
Rows = tuple[tuple[int, ...], ...]


def below_e_to(epsilon: Fraction) -> Fraction:
    """A rational just below e^epsilon: 1 over an upper bound of e^-epsilon."""
    return Fraction(1 << 128, exp_bracket(epsilon, 128)[1])


def laws(solver: ParitySolver, bits: int, rows: int) -> dict[Rows, Law]:
    """The law of A on every table of so many rows, consistent or not; the order of rows does not matter to it."""
    kinds = list(itertools.product((0, 1), repeat=bits + 1))
    return {
        table: solver.probabilities(np.array(table, dtype=bool).reshape(rows, bits + 1))
        for table in itertools.combinations_with_replacement(kinds, rows)
    }


def worst_ratio(one: Law, other: Law) -> Fraction:
    """max over outcomes of P/P'; an outcome possible on one side only has no finite ratio."""
    ratios = []
    for outcome in one.keys() | other.keys():
        p, q = one.get(outcome, Fraction(0)), other.get(outcome, Fraction(0))
        assert (p > 0) == (q > 0), "an outcome tells the tables apart"
        ratios += [p / q, q / p] if p else []
    return max(ratios)


def neighbours(found: dict[Rows, Law], bits: int) -> list[tuple[Rows, Rows]]:
    kinds = list(itertools.product((0, 1), repeat=bits + 1))
    pairs = set()
    for table in found:
        for place, kind in itertools.product(range(len(table)), kinds):
            near = tuple(sorted((*table[:place], kind, *table[place + 1 :])))
            if near > table:
                pairs.add((table, near))
    return sorted(pairs)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(2), Fraction(8)])
@pytest.mark.parametrize(("bits", "rows"), [(1, 1), (1, 3), (1, 4), (2, 2), (2, 3)])
def test_a_is_epsilon_private_on_all_neighbouring_tables(bits: int, rows: int, epsilon: Fraction) -> None:
    solver = ParitySolver(epsilon)
    found = laws(solver, bits, rows)
    assert all(sum(law.values()) == 1 for law in found.values())
    worst = max(worst_ratio(found[a], found[b]) for a, b in neighbours(found, bits))
    assert worst <= below_e_to(epsilon)
    # The bound is met: a proof with slack would be rows thrown away.
    assert worst > 1 + (below_e_to(epsilon) - 1) * Fraction(1, 3)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(3)])
def test_a_is_epsilon_private_when_a_row_comes_or_goes(epsilon: Fraction) -> None:
    solver = ParitySolver(epsilon)
    small, large = laws(solver, 2, 2), laws(solver, 2, 3)
    for table, law in large.items():
        for gone in range(3):
            rest = table[:gone] + table[gone + 1 :]
            assert worst_ratio(law, small[rest]) <= below_e_to(epsilon)


def test_without_the_one_half_refusal_contradictory_rows_break_it() -> None:
    """ERRATA 21: two failures look alike only because of step 1."""
    solver = ParitySolver(Fraction(1, 2))

    def bare(table: Rows) -> Law:
        law = solver.probabilities(np.array(table, dtype=bool))
        return {
            outcome: 2 * chance - (outcome is None) for outcome, chance in law.items() if 2 * chance > (outcome is None)
        }

    consistent, contradictory = ((0, 0), (0, 0)), ((0, 0), (0, 1))
    with pytest.raises(AssertionError, match="tells the tables apart"):
        worst_ratio(bare(consistent), bare(contradictory))


def test_picking_with_more_than_tanh_of_half_epsilon_would_break_it() -> None:
    """The largest p allowed is the one used: one part in a thousand more is caught."""
    epsilon = Fraction(1, 2)

    class Greedy(ParitySolver):
        @property
        def probability(self) -> Fraction:
            return Fraction(self.pick, COIN) * Fraction(1001, 1000)

    found = laws(Greedy(epsilon), 1, 1)
    assert max(worst_ratio(found[a], found[b]) for a, b in neighbours(found, 1)) > below_e_to(epsilon)


def test_the_picking_probability_is_the_largest_allowed() -> None:
    for epsilon in (Fraction(1, 1000), Fraction(1, 2), Fraction(3, 2), Fraction(10)):
        p = ParitySolver(epsilon).probability
        assert (1 + p) / (1 - p) <= below_e_to(epsilon)
        more = p + Fraction(2, COIN)
        assert more >= 1 or (1 + more) / (1 - more) > below_e_to(epsilon)


def test_disjoint_parts_cost_no_more_than_one() -> None:
    """The joint law of the candidates of two parts, roles drawn at random, over all pairs of tables of two rows."""
    epsilon, bits, parts = Fraction(1, 2), 1, 2
    solver, chance = ParitySolver(epsilon), Fraction(3, 8)
    kinds = list(itertools.product((0, 1), repeat=bits + 1))

    def joint(table: Rows) -> dict[tuple[Vector | None, ...], Fraction]:
        law: dict[tuple[Vector | None, ...], Fraction] = {}
        for roles in itertools.product(range(parts + 1), repeat=len(table)):
            weight = np.prod([chance if role < parts else 1 - parts * chance for role in roles])
            own = [
                solver.probabilities(
                    np.array([row for row, role in zip(table, roles, strict=True) if role == part], dtype=bool).reshape(
                        -1, bits + 1
                    )
                )
                for part in range(parts)
            ]
            for outcome in itertools.product(*own):
                together = weight * np.prod([law_of[o] for law_of, o in zip(own, outcome, strict=True)])
                law[outcome] = law.get(outcome, Fraction(0)) + together
        return law

    found = {table: joint(table) for table in itertools.product(kinds, repeat=2)}
    for table, one in found.items():
        for kind in kinds:
            other = found[(table[0], kind)]
            assert all(one[o] <= below_e_to(epsilon) * other.get(o, Fraction(0)) for o in one)


def test_roles_have_the_stated_chances() -> None:
    class Counting:
        def words(self, n: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
            return (np.arange(n, dtype=np.uint64) << np.uint64(60)) & np.uint64(2**64 - 1)

    roles = Roles(3, COIN // 4)
    assert np.bincount(roles.draw(16, Counting())).tolist() == [4, 4, 4, 4]
    with pytest.raises(ValueError, match="at most 1"):
        Roles(3, COIN // 2)


def test_solutions_are_all_and_only_those_that_fit() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        d, m = int(rng.integers(1, 5)), int(rng.integers(0, 6))
        examples = rng.random((m, d + 1)) < 0.5
        fits = [r for r in itertools.product((0, 1), repeat=d) if all(np.dot(r, x[:d]) % 2 == x[d] for x in examples)]
        solutions = solve(packed(examples), d)
        assert (solutions is None) == (not fits)
        if solutions is not None:
            assert 2**solutions.dimension == len(fits)
            law = ParitySolver(Fraction(1, 2)).probabilities(examples)
            assert set(fits) <= set(law)
