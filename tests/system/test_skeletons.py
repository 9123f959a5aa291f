"""The skeletons of docs/extend.md work: each passes the conformance suite of what it is a skeleton of."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dodona as dd
from dodona.engines.base import Engine
from dodona.testing import SeededBits, check_engine, seeded_curator
from dodona.testing.engines import arrays
from dodona.testing.mechanisms import p_value
from dodona.testing.responses import Law, check_law
from dodona.testing.strategies import RawColumn

SKELETONS = Path(__file__).resolve().parents[2] / "examples" / "skeletons"


def skeleton(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"skeleton_{name}", SKELETONS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_algorithm_is_right_on_every_oracle() -> None:
    correlation = skeleton("algorithm").correlation
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 100, 20_000)
    y = np.clip(0.6 * x + rng.normal(20, 15, len(x)), 0, 100)
    schema = dd.Schema({"x": dd.Real(0, 100), "y": dd.Real(0, 100)})
    table = dd.Table({"x": x, "y": y}, schema)
    truth = float(np.corrcoef(x, y)[0, 1])
    assert correlation(dd.Exact(table), "x", "y", share=1).value == pytest.approx(truth, abs=1e-6)
    for oracle in (seeded_curator(table, dd.Budget(epsilon=1, delta=1e-6), 0), dd.Local(table, 4)):
        found = correlation(oracle, "x", "y", share=0.5)
        assert found.spread > 0
        assert abs(found.value - truth) < 8 * found.spread


def test_the_engine_passes_its_conformance_suite() -> None:
    engine = skeleton("engine").PiecewiseEngine

    def halves(schema: dd.Schema, columns: Mapping[str, RawColumn]) -> Engine:
        whole = arrays(columns)
        rows = len(next(iter(whole.values())))
        cuts = ((0, rows // 2), (rows // 2, rows))
        return engine(schema, lambda: [{n: c[a:b] for n, c in whole.items()} for a, b in cuts])  # type: ignore[no-any-return]

    check_engine(halves, examples=30)


def test_the_mechanism_keeps_its_claim() -> None:
    spinner = skeleton("mechanism").Spinner(Fraction(3, 4))

    def draw(held: int, n: int, bits: object) -> np.ndarray:
        return spinner.sample(np.full(n, held, dtype=np.int64), bits)  # type: ignore[no-any-return]

    check_law(Law("spinner", 2, (0, 1), spinner.epsilon, spinner.probability, draw), SeededBits(1), 50_000, p_value)
    cheap = Law("spinner", 2, (0, 1), Fraction(1), spinner.probability, draw)
    with pytest.raises(AssertionError, match="under-claimed"):
        check_law(cheap, SeededBits(1), 1_000, p_value)
    ones = int(spinner.sample((np.arange(40_000) % 4 == 0).astype(np.int64), SeededBits(2)).sum())
    share, spread = spinner.estimate(ones, 40_000)
    assert abs(share - 0.25) < 5 * spread


def test_every_skeleton_is_shown_in_the_guide() -> None:
    guide = (SKELETONS.parents[1] / "docs" / "extend.md").read_text(encoding="utf-8")
    for file in SKELETONS.glob("*.py"):
        assert f"examples/skeletons/{file.name}" in guide
