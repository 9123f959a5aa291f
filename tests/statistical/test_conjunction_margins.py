"""Published conjunctions err as they say: noise of the published variance and of mean 0, from which margins follow.

The judge must also turn down a wrong scale, so each check is repeated with scales that are 30 % off.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Schema
from dodona.release import conjunctions
from dodona.testing.oracles import seeded_curator
from dodona.trust.exact import Exact

NAMES = [f"b{i}" for i in range(6)]
SCHEMA = Schema({name: Flag(missing=False) for name in NAMES})
SEEDS = range(40)
WRONG = (0.7, 1.3)


def bits() -> Table:
    rng = np.random.default_rng(3)
    held = rng.random((1500, 6)) < [0.5, 0.4, 0.3, 0.2, 0.1, 0.05]
    held[:, 1] |= held[:, 0]
    columns = {name: held[:, i] for i, name in enumerate(NAMES)}
    return Table(columns, SCHEMA, neighbours="add-remove", rows=1500, name="bits")


def scores(method: str, delta: str | int) -> NDArray[np.float64]:
    """(published - true) / stated standard deviation, of every residual of every run: independent, of variance 1."""
    table = bits()
    true = conjunctions(Exact(table), width=2, method=method).body.residuals  # type: ignore[attr-defined]
    found = []
    for seed in SEEDS:
        body = conjunctions(
            seeded_curator(table, Budget(epsilon=1, delta=delta), seed), width=2, share=1, method=method
        ).body
        kept = body.variances > 0  # type: ignore[attr-defined]
        off = (body.residuals - true)[kept]  # type: ignore[attr-defined]
        found.append(off / np.sqrt(body.variances[kept]))  # type: ignore[attr-defined]
    return np.concatenate(found)


def accepts(z: NDArray[np.float64]) -> bool:
    """A mean square of 1 within four of its own standard errors, and a mean of 0 likewise."""
    squares = z**2
    near = abs(squares.mean() - 1) < 4 * squares.std() / np.sqrt(len(z))
    return bool(near and abs(z.mean()) < 4 * z.std() / np.sqrt(len(z)))


@pytest.mark.parametrize("delta", [0, "1e-6"])
@pytest.mark.parametrize("method", ["characters", "blocks"])
def test_noise_has_the_variance_that_is_published(method: str, delta: str | int) -> None:
    z = scores(method, delta)
    assert accepts(z)
    for scale in WRONG:
        assert not accepts(z * scale)
    assert not accepts(z + 0.3)
