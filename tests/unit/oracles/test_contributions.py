"""What a bound of a person costs: the noise is free to know, the loss is paid for, and both are what they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dodona as dd
from dodona.errors import BadQuery, Unsupported

SCHEMA = dd.Schema({"cost": dd.Integer(0, 100), "zip": dd.Category(0, 1, 2)})
COUNT = "SELECT COUNT(*) FROM visits"


def rows(count: int = 2_000) -> pa.Table:
    draw = np.random.default_rng(3)
    whose = (draw.pareto(1.0, count) * 10).astype(int) % 300
    return pa.table({"patient": whose, "cost": draw.integers(0, 101, count), "zip": draw.integers(0, 3, count)})


def table(unit: dd.Unit | None = None) -> dd.Table:
    return dd.Table(rows(), SCHEMA, neighbours="add-remove", unit=unit or dd.Unit("patient", 4), name="visits")


def sizes() -> np.ndarray:
    return np.unique(rows().column("patient").to_numpy(), return_counts=True)[1]


def test_without_noise_it_is_what_people_have():
    found = dd.Contributions(dd.Exact(table()), most=20).ask()
    own = sizes()
    assert [round(n.value) for n in found.people.values()] == [
        0,
        *(int((own == n).sum()) for n in range(1, 21)),
        (own > 20).sum(),
    ]
    for bound in (1, 4, 20):
        assert round(found.over(bound).value) == (own > bound).sum()
        assert round(found.lost(bound).value) == np.maximum(np.minimum(own, 20) - bound, 0).sum()
    spent = dd.Contributions(dd.Exact(table()), "cost", most=1_000, cells=100).ask()
    sums = np.bincount(rows().column("patient").to_numpy(), weights=rows().column("cost").to_numpy())
    here = sums[np.bincount(rows().column("patient").to_numpy()) > 0]
    assert round(sum(n.value for n in spent.people.values())) == len(own)
    lost = np.maximum(np.minimum(here, 1_000) - 300, 0).sum()
    assert lost <= spent.lost(300).value <= lost + 10 * len(own)
    few = dd.Contributions(dd.Exact(table()), most=20, where="zip = 1").ask()
    assert sum(n.value for n in few.people.values()) < len(own)


def test_the_noise_is_free_and_the_loss_is_paid_for_once():
    curator = dd.Curator(table(), dd.Budget(epsilon=1))
    asked = dd.Contributions(curator, most=32)
    free = asked.plan(COUNT, share=0.1)
    assert "not known before ask()" in str(free)
    assert [way.bound for way in free.ways] == [1, 2, 4, 8, 16, 32]
    assert [way.margin for way in free.ways] == sorted(way.margin for way in free.ways)
    assert free.ways[2].margin == curator.bounded(max_rows=4).price(COUNT, share=0.1).columns[0].margin
    assert free.best.bound == 1
    assert asked.price(share=0.25).cost.share == pytest.approx(0.25)
    with pytest.raises(BadQuery, match="before ask"):
        asked.lost(3)
    assert curator.left == 1
    paid = asked.ask(share=0.25)
    plan = paid.plan(COUNT, share=0.1)
    assert curator.left == pytest.approx(0.75)
    assert plan.best.lost is not None
    assert not plan.best.lost.proven
    assert "least together" in str(plan)
    assert "more:" in str(paid)
    clip = dd.Contributions(curator, "cost", most=1_000).plan("SELECT SUM(cost) FROM visits", [100, 500], share=0.1)
    assert clip.kind == "clip"
    assert clip.ways[1].margin == pytest.approx(5 * clip.ways[0].margin, rel=0.05)


def test_one_person_moves_it_by_one_whatever_they_have():
    curator = dd.Curator(table(), dd.Budget(epsilon=1))
    for of in (None, "cost"):
        price = dd.Contributions(curator, of, most=16).price(epsilon=0.5)
        assert price.sensitivity.endswith("by 1 in L2 and 1 in L1 (add-remove)")


@pytest.mark.parametrize(
    "odd", [{"most": 0}, {"most": True}, {"most": 2.5}, {"most": 5000}, {"of": "cost", "cells": 0}]
)
def test_what_makes_no_histogram_is_refused(odd):
    with pytest.raises(BadQuery):
        dd.Contributions(dd.Exact(table()), **odd)


def test_it_needs_people():
    plain = dd.Exact(dd.Table(rows(), SCHEMA, name="visits"))
    with pytest.raises(Unsupported, match="cannot leave out rows of a person"):
        dd.Contributions(plain)
