"""Thresholds of few bits: Theorem 9's weights against truth tables, margins against enumeration, signs recognised."""

import itertools
import math

import numpy as np
import pytest

from dodona.concepts.arrangement import (
    clause,
    conditions_of,
    decision_list,
    monomial,
    threshold_of,
    weight_bound,
)
from dodona.concepts.boxes import Boxes
from dodona.concepts.conjunctions import Conjunctions, Disjunctions
from dodona.concepts.parities import (
    MaskedParity,
    Parities,
    boolean,
    character,
    characters,
    characters_of,
    masks_up_to,
    packed,
    spectrum,
)
from dodona.concepts.trees import DecisionLists
from dodona.engines.table import Table
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.exact import Exact
from dodona.query.expr import Call, Column
from dodona.query.schema import Category, Flag, Integer, Schema
from dodona.query.statistic import Stack, Value, as_expr

SCHEMA = Schema({"a": Flag(), "b": Flag(), "c": Category("x", "y", "z"), "n": Integer(0, 9)})


def test_every_decision_list_of_four_bits_is_its_threshold():
    rng = np.random.default_rng(0)
    for _ in range(400):
        size = int(rng.integers(1, 5))
        places = rng.permutation(5)[:size].tolist()
        rules = [(place, bool(rng.integers(2)), bool(rng.integers(2))) for place in places]
        default = bool(rng.integers(2))
        rule = decision_list(rules, default)
        says = [said for _, _, said in rules] + [default]
        changes = sum(x != y for x, y in itertools.pairwise(says))
        assert max(map(abs, rule.weights), default=0) <= weight_bound(size, max(changes, 1)) + 1e-9
        for point in itertools.product((False, True), repeat=5):
            truth = next((said for place, when, said in rules if point[place] == when), default)
            assert rule.holds([point[place] for place in rule.places]) == truth


def test_monomials_and_clauses_are_their_thresholds():
    for literals in itertools.product((True, False), repeat=3):
        listed = tuple(enumerate(literals))
        for point in itertools.product((False, True), repeat=3):
            agree = [bit == wanted for bit, wanted in zip(point, literals, strict=True)]
            assert monomial(listed).holds(point) == all(agree)
            assert clause(listed).holds(point) == any(agree)


def test_levels_and_margins_are_exact():
    rules = [(0, True, True), (1, False, False), (2, True, True), (3, True, False)]
    for rule in (
        monomial(((0, True), (1, False), (2, True))),
        clause(((0, True), (1, True))),
        decision_list(rules, True),
    ):
        k = 6
        sums = {False: [], True: []}
        margins = []
        for point in itertools.product((0, 1), repeat=k):
            bits = [point[place] for place in rule.places]
            total = float(np.dot(rule.weights, bits))
            sums[total >= rule.least].append(total)
            signs = 1 - 2 * np.array(point)
            u = np.concatenate([signs, [math.sqrt(k)]]) / math.sqrt(2 * k)
            w = np.zeros(k)
            w[list(rule.places)] = rule.weights
            offset = rule.least - 0.5 - sum(rule.weights) / 2
            v = np.concatenate([-w / 2, [-offset / math.sqrt(k)]])
            margins.append((total >= rule.least, float(u @ v / np.linalg.norm(v))))
        assert rule.levels() == pytest.approx((np.mean(sums[False]), np.mean(sums[True])))
        zero, one = rule.margin(k)
        assert one == pytest.approx(np.mean([m for true, m in margins if true]))
        assert zero == pytest.approx(np.mean([-m for true, m in margins if not true]))
        least = min(m if true else -m for true, m in margins)
        assert least >= 1 / (4 * k * max(map(abs, rule.weights)))  # Lemma 9


def test_weight_bound_at_one_change_is_one():
    assert weight_bound(10, 1) == 1.0  # printed as 0/0
    assert weight_bound(10, 2) == pytest.approx(10)


def test_thresholds_are_read_off_expressions():
    places = {as_expr("a"): 0, as_expr("b"): 1, as_expr("c = 'x'"): 2}
    assert threshold_of(as_expr("a AND NOT b AND c = 'x'"), places) == monomial(((0, True), (1, False), (2, True)))
    assert threshold_of(as_expr("a OR NOT b"), places) == clause(((0, True), (1, False)))
    listed = as_expr("CASE WHEN a THEN TRUE WHEN b THEN FALSE ELSE TRUE END")
    assert threshold_of(listed, places) == decision_list([(0, True, True), (1, True, False)], True)
    assert threshold_of(as_expr("a"), places) == monomial(((0, True),))
    assert threshold_of(as_expr("n > 3"), places) is None
    with pytest.raises(BadQuery):
        decision_list([(0, True, True), (0, True, False)], True)


def test_members_of_classes_are_made_of_their_conditions():
    classes = [
        Conjunctions.over(["a", "b", "c"], 2),
        Disjunctions.over(["a", "b", "c"], 2),
        DecisionLists.over(["a", "b", "c"], 2),
        Boxes.over({"n": [3, 6]}),
    ]
    for concepts in classes:
        places = {condition: i for i, condition in enumerate(conditions_of(concepts, SCHEMA))}
        for index in range(0, concepts.size(SCHEMA), 7):
            member = concepts.member(SCHEMA, index)
            assert threshold_of(member, places) is not None or boolean(member, places) is not None, str(member)
    with pytest.raises(Unsupported, match="parities have none"):
        conditions_of(Parities.over(["a", "b"]) if hasattr(Parities, "over") else Parities(("a", "b"), 2), SCHEMA)


def test_characters_are_recognised_and_nothing_else_is():
    conditions = (as_expr("a"), as_expr("b"), as_expr("c = 'x'"))
    masks = masks_up_to(3, 2)
    query = characters(conditions, masks, [1.0] * 3 + [0.5] * 3)
    assert characters_of(query) == (conditions, tuple(masks), (1.0, 1.0, 1.0, 0.5, 0.5, 0.5))
    assert characters_of(Value(as_expr("a"))) is None
    assert characters_of(Stack((Value(as_expr("a")), Value(character(conditions))))) is None
    assert characters_of(Stack((Value(character([conditions[0], conditions[0]])),))) is None


def test_a_boolean_function_is_its_spectrum():
    def truth(point):
        return point[0] and not (point[1] or point[2])

    coefficients = spectrum(truth, 3)
    for point in itertools.product((False, True), repeat=3):
        signs = [-1 if bit else 1 for bit in point]
        value = sum(c * math.prod(signs[i] for i in s) for s, c in coefficients.items())
        assert value == pytest.approx(float(truth(point)))
    assert packed(np.array([[True, False, True]])).tolist() == [5]


def _and_not(first, second):
    return Call("and", (first, Call("not", (second,))))


def test_masked_parity_labels_are_its_concept():
    concepts = MaskedParity(4)
    mask = (True, False, True, True)
    for negated in (False, True):
        rows = concepts.sample(500, mask, negated, seed=1)
        oracle = Exact(Table(rows, concepts.schema, name="rows"))
        member = concepts.concept(mask, negated)
        wrong = Call("or", (_and_not(member, Column("label")), _and_not(Column("label"), member)))
        assert oracle.ask(Value(wrong)).total == 0
    with pytest.raises(BadQuery):
        MaskedParity(1)
