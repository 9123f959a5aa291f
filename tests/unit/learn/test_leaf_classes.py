"""Classes of leaves: counted in groups, drawn to what is expected as far as they are noise; else the majority."""

from __future__ import annotations

import numpy as np
import pytest

from dodona.learn.id3.leaves import _group, _Judged, _merge, _seen, _surprise, _worth
from dodona.learn.id3.tree import Node


def leaf(rows: float, chance: float) -> Node:
    node = Node(rows, {})
    node.chances = np.array([1 - chance, chance])
    return node


def test_leaves_held_alike_are_counted_together() -> None:
    leaves = [leaf(10, 0.9), leaf(10, 0.1), leaf(10, 0.8), leaf(30, 0.2), leaf(10, 0.7)]
    groups = _group(leaves, least=20)
    assert [[one.rows for one in group] for group in groups] == [[30], [10], [10, 10], [10]]
    for group in groups:
        assert len({int(one.chances.argmax()) for one in group}) == 1


def test_leaves_without_expectation_stand_alone() -> None:
    assert len(_group([Node(10, {}), Node(10, {})], least=1e9)) == 2


def test_counts_rule_without_noise() -> None:
    group = _Judged.of([leaf(100, 0.2)], np.array([10.0, 90.0]), np.array([0.5, 0.5]))
    surprise, most = _surprise([group], 0.0)
    group.settle(0.0, surprise)
    assert most == surprise
    np.testing.assert_allclose(group.leaves[0].chances, [0.1, 0.9])


def test_expectation_rules_where_counts_agree_within_noise() -> None:
    groups = [_Judged.of([leaf(100, 0.3)], np.array([70.0 + off, 30.0 - off]), np.zeros(2)) for off in (4, -5, 3, -2)]
    surprise, most = _surprise(groups, 10.0)
    assert surprise == 0.0 < most
    for group in groups:
        group.settle(10.0, surprise)
        np.testing.assert_allclose(group.leaves[0].chances, [0.7, 0.3])
        assert group.gain(0, 10.0, most) == (0.0, 0.0)


def test_a_gain_is_doubted_less_than_counts_alone_would_have_it() -> None:
    group = _Judged.of([leaf(100, 0.7)], np.array([30.0, 70.0]), np.zeros(2))
    gain, variance = group.gain(0, 10.0, 1e-3)
    assert gain == pytest.approx(40.0)
    assert 0 < variance < 2 * 10.0**2


@pytest.mark.parametrize("noise", [0.0, 1.0, 5.0])
def test_two_runs_are_those_of_all_pairs(noise: float) -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        size, classes = int(random.integers(1, 12)), int(random.integers(2, 5))
        table = random.poisson(20, (size, classes)) + noise * random.normal(size=(size, classes))
        counts, seen = _seen(table, noise)
        runs = _merge(counts, seen, noise, 2)
        every = [[(0, size)], *([(0, cut), (cut, size)] for cut in range(1, size))]
        worth = []
        for own in every:
            sums, widths = [counts[a:b].sum(axis=0) for a, b in own], [seen[a:b].sum() for a, b in own]
            worth.append(float(_worth(np.array(sums), np.array(widths), noise).sum()))
        best = max(range(1, size), key=lambda i: worth[i], default=0)
        wanted = every[best] if worth[best] - worth[0] > noise + 1e-9 else every[0]
        assert runs == wanted
