"""gamma_2 and margins between two proven numbers: against closed forms, by exact arithmetic, and by simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dodona.bounds.alda_simon import plan_matrix, sign_matrix
from dodona.bounds.factorisation import factorise, margins, plan_finite, prefixes
from dodona.concepts.boxes import Boxes, Halfspaces
from dodona.concepts.concept import Finite
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.trees import DecisionLists
from dodona.errors import BadEffort, Unsupported
from dodona.query.schema import Flag, Integer, Real, Schema
from dodona.synopses.domain import signs_of

SCHEMA = Schema({"a": Flag(missing=False), "b": Flag(missing=False), "v": Integer(0, 7, missing=0), "x": Real(0, 1)})


def exact_rows(matrix):
    return [[Fraction(float(value)) for value in row] for row in matrix]


def exact_bounds(matrix, found):
    """Both bounds of gamma_2 again, from the same factors and weights, in rational numbers alone."""
    a, left, right = exact_rows(matrix), exact_rows(found.left), exact_rows(found.right)
    columns = list(zip(*right, strict=True))
    off = [
        [a[i][j] - sum(x * y for x, y in zip(row, col, strict=True)) for j, col in enumerate(columns)]
        for i, row in enumerate(left)
    ]
    spare = Fraction(1, 10**12)
    rows = max(sum(x * x for x in row) + sum(e * e for e in gone) / spare for row, gone in zip(left, off, strict=True))
    upper = rows * max(sum(x * x for x in col) + spare for col in columns)
    return math.sqrt(upper)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.tri(24),
        lambda: sign_matrix("monomial", 3),
        lambda: sign_matrix("monomial", 3).T,
        lambda: np.random.default_rng(0).choice([-1.0, 1.0], (12, 40)),
    ],
)
def test_what_is_stated_holds_in_exact_arithmetic(make):
    matrix = np.asarray(make(), dtype=np.float64)
    found = factorise(matrix, gap=1e-3)
    assert found.lower <= found.upper <= found.lower * 1.002
    assert exact_bounds(matrix, found) <= found.upper * (1 + 1e-9)
    # The dual's value is the trace norm at the weights; by eigenvalues of another implementation it is no less.
    scaled = np.sqrt(found.rows)[:, None] * matrix * np.sqrt(found.columns)
    assert np.linalg.norm(scaled, "nuc") >= found.lower * (1 - 1e-12)
    assert found.rows.sum() == pytest.approx(1) == found.columns.sum()


def test_bounds_hold_however_badly_it_was_climbed():
    matrix = np.tri(40)
    good = factorise(matrix, gap=1e-4)
    for rounds in (1, 2, 4):
        poor = factorise(matrix, gap=0, rounds=rounds)
        assert poor.lower <= good.upper
        assert poor.upper >= good.lower


def test_gamma_2_of_known_matrices():
    identity, ones = factorise(np.eye(9)), factorise(np.ones((5, 9)))
    assert identity.lower == pytest.approx(1) == identity.upper
    assert ones.lower == pytest.approx(1) == ones.upper
    parity = factorise(np.column_stack([np.ones(16), sign_matrix("parity", 4)]))
    assert parity.lower == pytest.approx(4) == parity.upper  # orthogonal: the root of their number


def test_prefixes_meet_what_is_known_of_them():
    """At most 1 + ln(N)/pi, and what the solver proves lies between the closed forms."""
    for cells, known in ((1024, 3.21), (4096, 3.65), (65_536, 4.53)):
        low, high = prefixes(cells)
        assert low < high <= 1 + math.log(cells) / math.pi < known + 0.005
        assert high / low < 1.1
    for cells in (1, 2, 33, 128):
        low, high = prefixes(cells)
        found = factorise(np.tri(cells), gap=1e-3)
        assert low * (1 - 1e-9) <= found.upper
        assert found.lower <= high * (1 + 1e-9)
    with pytest.raises(BadEffort):
        prefixes(0)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_the_margin_of_monomials_is_one_over_the_root_of_two_more(bits):
    """Within [.408, .431] at 4 bits, as was known; the two proven numbers close in on 1/sqrt(k + 2)."""
    signs = sign_matrix("monomial", bits)
    found = margins(signs)
    assert found.lower <= 1 / math.sqrt(bits + 2) <= found.upper <= found.lower * 1.001
    # The arrangement is one: unit vectors whose Gram matrix X is, and every member's average margin under it.
    vectors = np.linalg.cholesky(found.points + 1e-9 * np.eye(len(signs)))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    normals = signs.T.astype(float) @ vectors
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    averages = (signs * (vectors @ normals.T)).mean(axis=0)
    assert averages.min() >= found.lower * (1 - 1e-6)


def test_margins_of_parities_are_forsters():
    found = margins(sign_matrix("parity", 4))
    assert found.lower <= 1 / math.sqrt(15) <= found.upper <= found.lower * 1.001
    with pytest.raises(BadEffort, match="-1 and 1"):
        margins(np.eye(3))
    with pytest.raises(Unsupported, match="together"):
        margins(np.ones((2, 2000)))


@pytest.mark.parametrize(
    ("concepts", "bits", "shape"),
    [
        (Finite.of(["a", "NOT b", "a AND v >= 3", "TRUE", "a"]), None, (6, 3)),
        (Conjunctions.over(["a", "b"], 2), None, (4, 8)),
        (DecisionLists.over(["a", "b"], 2), None, (4, 12)),
        (Boxes.over({"v": (2.0, 5.0)}), None, (3, 5)),
        (Halfspaces.over(["x", "v"], 1, 3), 3, None),
    ],
)
def test_any_class_becomes_a_sign_matrix(concepts, bits, shape):
    signs = signs_of(concepts, SCHEMA, bits=bits)
    assert set(np.unique(signs)) == {-1, 1}
    assert len(np.unique(signs, axis=0)) == len(signs)
    assert len(np.unique(signs, axis=1).T) == signs.shape[1]
    if shape:
        assert signs.shape == shape
    curator, local = plan_finite(signs, 1)
    assert curator.rows_needed < local.rows_needed
    assert plan_matrix(signs, 1).details["margin_at_least"] > 0


@pytest.mark.parametrize("trust", ["curator", "nobody"])
def test_the_planned_rows_are_enough_in_simulation(trust):
    """The best factors, run: all members within the tolerance at the stated confidence, and not by far."""
    signs, tolerance, beta, epsilon = sign_matrix("monomial", 2), 0.1, 0.2, 1.0
    plans = plan_finite(signs, epsilon, 1e-6, tolerance=tolerance, beta=beta)
    plan, rng = plans[trust == "nobody"], np.random.default_rng(3)
    n, found = plan.rows_needed, factorise(signs.T.astype(float), gap=0.01)
    right = found.right / np.linalg.norm(found.right, axis=0).max()
    left = found.left * np.linalg.norm(found.right, axis=0).max()
    held = rng.integers(0, len(signs), n)
    truth = 1 / 2 + (signs[held].mean(axis=0)) / 2
    wrong, errors = 0, []
    for _ in range(120):
        if trust == "curator":
            seen = right[:, held].sum(axis=1) + rng.normal(0, 2 / math.sqrt(2 * float(plan.cost.rho)), len(right))
        else:
            extra = np.sqrt(np.maximum(1 - (right**2).sum(axis=0), 0))
            full = np.vstack([right, extra])[:, held]
            directions = rng.normal(size=full.shape)
            directions /= np.linalg.norm(directions, axis=0)
            told = np.sign((directions * full).sum(axis=0)) * np.where(
                rng.random(n) < 1 / (1 + math.exp(epsilon)), -1, 1
            )
            k = len(full)
            mean = math.gamma(k / 2) / (math.sqrt(math.pi) * math.gamma((k + 1) / 2))
            seen = (told * directions).sum(axis=1)[:-1] / (mean * math.tanh(epsilon / 2))
        off = np.abs(1 / 2 + left @ seen / (2 * n) - truth).max()
        wrong, errors = wrong + (off > tolerance), [*errors, off]
    assert wrong <= beta * 120
    assert np.max(errors) > tolerance / 4  # a bound, but not an idle one


def test_what_is_no_matrix_is_refused():
    for bad in (np.zeros((2, 2)), np.ones(3), np.full((2, 2), np.nan)):
        with pytest.raises(BadEffort):
            factorise(bad)
    with pytest.raises(Unsupported, match="4,096"):
        factorise(np.ones((5000, 5000), dtype=np.int8))
