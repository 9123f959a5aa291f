"""Projections as columns: questions about them are questions about the rows (SuLQ 4.1.2)."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.learn.pca import PCA, SVD
from dodona.oracles.answer import Answer
from dodona.oracles.exact import Exact
from dodona.oracles.oracle import Request
from dodona.oracles.view import Subspace, projected
from dodona.privacy.budget import Budget
from dodona.query.expr import Column, Literal
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Value, as_expr
from dodona.testing.oracles import seeded_curator

ROWS = load_digits().data
TABLE = Table(ROWS, Schema({f"x{i}": Real(0, 16) for i in range(64)}))


@pytest.mark.parametrize("kind", [PCA, SVD])
def test_a_view_sums_what_transform_shows(kind: type) -> None:
    exact = Exact(TABLE)
    model = kind(3).fit(exact)
    view = exact.project(model)
    assert list(view.schema) == ["pc1", "pc2", "pc3"]
    shown = model.transform(ROWS)
    for index in range(3):
        assert view.ask(f"pc{index + 1}").mean == pytest.approx(shown[:, index].mean(), abs=0.01)
        above = view.ask(f"pc{index + 1} > 5").mean
        assert above == pytest.approx((shown[:, index] > 5).mean(), abs=0.002)


def test_after_noise_the_ranges_follow_the_rows() -> None:
    table = Table(ROWS, Schema({f"x{i}": Real(-50, 50) for i in range(64)}))
    curator = seeded_curator(table, Budget(epsilon=20, delta=1e-6), seed=0)
    model = PCA(2, share=0.5).fit(curator)
    view = curator.project(model)
    wide = Exact(table).project(PCA(2).fit(Exact(table)))
    for name in ("pc1", "pc2"):
        assert view.schema[name].high - view.schema[name].low < 0.5 * (wide.schema[name].high - wide.schema[name].low)
    shown = model.transform(ROWS)
    inside = (shown >= [low for low, _ in model.ranges_]) & (shown <= [high for _, high in model.ranges_])
    assert inside.mean() > 0.9
    assert view.ask("pc1 > 0", share=0.4).mean == pytest.approx((shown[:, 0] > 0).mean(), abs=0.1)


def test_values_are_clipped_to_the_declared_range() -> None:
    table = Table({"a": np.array([0.0, 1.0]), "b": np.array([1.0, 1.0])}, Schema({"a": Real(0, 1), "b": Real(0, 1)}))
    subspace = Subspace((Column("a"), Column("b")), ((2.0, 1.0), (0.0, 3.0)), ("s", "t"), ((0.0, 2.0), (0.0, 9.0)))
    view = projected(Exact(table), subspace)
    assert view.ask("s").total == pytest.approx(1 + 2, abs=1e-4)
    assert view.ask("t").total == pytest.approx(6, abs=1e-4)


def test_a_direction_of_nothing_is_zero() -> None:
    subspace = Subspace((Literal(1.0),), ((0.0,),), ("z",), ((-1.0, 1.0),))
    assert projected(Exact(TABLE), subspace).ask("z").total == 0


class Asked(Exact):
    """Keeps the last query it was asked."""

    def answer(self, request: Request) -> Answer:
        self.query = request.query
        return super().answer(request)


def test_columns_that_stand_for_themselves_are_not_rewritten() -> None:
    oracle = Asked(TABLE)
    assert oracle.select_columns(*oracle.schema) is oracle
    view = oracle.select_columns("x1", "x0")
    expr = as_expr("x0 > 3 AND x1 + 1 < 9")
    view.ask(Value(expr))
    assert isinstance(oracle.query, Value)
    assert oracle.query.expr is expr
    view.ask("X0 > 3")
    assert oracle.query == Value(as_expr("x0 > 3"))
    for hidden in ("x2 > 0", "x0 + x2"):
        with pytest.raises(BadQuery, match="'x2' is not a column here"):
            view.ask(hidden)
