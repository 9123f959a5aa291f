"""Features: what an oracle sums and what rows are encoded to are the same numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.learn._encoding import Feature, alike, encode_rows, features_of
from dodona.oracles.exact import Exact
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Value

SCHEMA = Schema({"r": Real(-2, 6), "i": Integer(0, 9), "c": Category("x", "y"), "k": Category(1, 2), "f": Flag()})
ROWS = pd.DataFrame(
    {
        "r": [-3.0, 0.0, 6.0, np.nan, np.inf],
        "i": [0, 9, 4, 12, -1],
        "c": ["x", "y", "z", "x", "y"],
        "k": [1, 2, 2, 3, 1],
        "f": [True, False, True, True, False],
    }
)


@pytest.mark.parametrize("kind", ["own", "alike", "moved"])
def test_both_faces_agree(kind: str) -> None:
    features = features_of(SCHEMA, tuple(SCHEMA))
    if kind != "own":
        features = alike(features)
    if kind == "moved":
        features = tuple(feature.moved(0.25) for feature in features)
    held = encode_rows(features, ROWS, tuple(SCHEMA))
    for row in range(len(ROWS)):
        oracle = Exact(Table(ROWS.iloc[[row]], SCHEMA))
        asked = [float(oracle.ask(Value(feature.expr)).total) for feature in features]
        np.testing.assert_allclose(asked, held[row], atol=2**-20, err_msg=str(row))


@given(st.floats(-1e6, 1e6), st.floats(0.01, 1e6), st.floats(-2, 2))
def test_decode_is_the_inverse(middle: float, half: float, by: float) -> None:
    feature = Feature("x", middle, half).moved(by)
    inside = np.array([middle - half / 2, middle, middle + half / 2])
    np.testing.assert_allclose(
        feature.decode(feature.encode(inside)), inside, rtol=1e-6, atol=1e-6 * (half + abs(middle))
    )
    assert feature.low == pytest.approx(-1 - by)
    assert feature.high == pytest.approx(1 - by)


def test_alike_keeps_distances() -> None:
    features = alike(features_of(SCHEMA, ("r", "i")))
    assert {feature.half for feature in features} == {4.5}
    rows = encode_rows(features, pd.DataFrame({"r": [0.0, 1.0], "i": [3, 7]}), ("r", "i"))
    np.testing.assert_allclose(np.linalg.norm(rows[1] - rows[0]) * 4.5, np.hypot(1, 4))
    assert all(-1 <= end <= 1 for feature in features for end in (feature.low, feature.high))


def test_wrong_columns_are_named() -> None:
    with pytest.raises(BadQuery, match="nope"):
        features_of(SCHEMA, ("nope",))
    features = features_of(SCHEMA, ("r", "i"))
    with pytest.raises(BadQuery, match="miss i"):
        encode_rows(features, ROWS[["r"]], ("r", "i"))
    with pytest.raises(BadQuery, match="2 columns"):
        encode_rows(features, np.zeros((3, 5)), ("r", "i"))
