"""The skeletons of docs/extend.md work: each passes the conformance suite of what it is a skeleton of."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dodona as dd
from dodona.engines import homes
from dodona.engines.engine import Engine
from dodona.errors import BadTable
from dodona.mechanisms import mechanism
from dodona.testing import SeededBits, check_engine, seeded_curator
from dodona.testing.engines import arrays
from dodona.testing.mechanisms import check_mechanism, check_reports
from dodona.testing.strategies import RawColumn

SKELETONS = Path(__file__).resolve().parents[2] / "examples" / "skeletons"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a skeleton registers is known while its test runs, and to no other."""
    homes.home_of("")
    monkeypatch.setattr(homes, "_REGISTERED", list(homes._REGISTERED))
    monkeypatch.setattr(mechanism, "_REGISTERED", mechanism.registered_mechanisms())


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

    def halves(schema: dd.Schema, columns: Mapping[str, RawColumn], unit: dd.Unit | None) -> Engine:
        whole = arrays(columns)
        rows = len(next(iter(whole.values())))
        cuts = ((0, rows // 2), (rows // 2, rows))
        pieces = [{n: c[a:b] for n, c in whole.items()} for a, b in cuts]
        return engine(schema, lambda: pieces, unit=unit)  # type: ignore[no-any-return]

    check_engine(halves, examples=30)


def test_a_table_over_the_engine_bounds_units_reports_and_refuses_a_changed_store() -> None:
    engine = skeleton("engine").PiecewiseEngine
    schema, unit = dd.Schema({"x": dd.Real(0, 10)}), dd.Unit("person", 5)
    pieces = [{"person": np.arange(125) % 10, "x": np.full(125, 1.0)}]
    rows = engine(schema, lambda: pieces, unit=unit, public_rows=False)
    table = dd.Table(rows, schema, neighbours="add-remove", rows=125, unit=unit)
    assert dd.Exact(table).ask("x").total == 50  # ten persons, five rows each
    with pytest.raises(BadTable, match="as many rows of each unit"):
        dd.Table(engine(schema, lambda: pieces, public_rows=False), schema, neighbours="add-remove", unit=unit)
    local = dd.Local(dd.Table(engine(schema, lambda: pieces), schema), 8)
    assert abs(local.ask("x", share=0.5).total - 125) < 125
    spent = local.ledger.spent()
    pieces[0] = {"person": np.arange(125) % 10, "x": np.full(125, "1")}
    with pytest.raises(BadTable, match="open anew"):
        local.ask("x", share=0.1)
    assert local.ledger.spent() == spent


def test_the_mechanism_keeps_its_claim() -> None:
    spinner = skeleton("mechanism").Spinner(Fraction(3, 4))
    check_mechanism(spinner, bits=SeededBits(1), draws=50_000)
    (law,) = spinner.laws()
    with pytest.raises(AssertionError, match="under-claimed"):
        check_reports(replace(law, epsilon=Fraction(1)), SeededBits(1), 1_000)
    ones = int(spinner.sample((np.arange(40_000) % 4 == 0).astype(np.int64), SeededBits(2)).sum())
    share, spread = spinner.estimate(ones, 40_000)
    assert abs(share - 0.25) < 5 * spread


def test_every_skeleton_is_shown_in_the_guide() -> None:
    guide = (SKELETONS.parents[1] / "docs" / "extend.md").read_text(encoding="utf-8")
    for file in SKELETONS.glob("*.py"):
        assert f"examples/skeletons/{file.name}" in guide
