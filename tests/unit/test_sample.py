"""The made-up survey: documented, reproducible, plausible, within the bounds its schema states."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dodona import sample
from dodona.config import Config
from dodona.errors import BadTable
from dodona.oracles.exact import Exact
from dodona.query.schema import Category, Flag

ROWS = 50_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("sample")
    sample.write_sample(where / "survey.parquet", ROWS)
    sample.write_schema(where / "survey.toml", where / "survey.parquet")
    return where


def value(folder: Path, expression: str, where: str = "true") -> Any:
    return duckdb.sql(f"SELECT {expression} FROM '{folder}/survey.parquet' WHERE {where}").fetchall()[0][0]


def test_every_value_is_within_the_stated_bounds(folder: Path) -> None:
    schema = Config.read(folder / "survey.toml").schema
    for name, column in schema.items():
        if isinstance(column, Category):
            listed = ", ".join(f"'{label}'" for label in column.values)
            assert value(folder, "count(*)", f"{name} NOT IN ({listed})") == 0
        elif not isinstance(column, Flag):
            assert value(folder, f"min({name})") >= column.low
            assert value(folder, f"max({name})") <= column.high


def test_every_column_is_documented(folder: Path) -> None:
    documented = {line.split()[0] for line in (sample.__doc__ or "").splitlines() if line}
    assert set(Config.read(folder / "survey.toml").schema) <= documented


def test_the_people_are_plausible(folder: Path) -> None:
    assert value(folder, "avg((sex = 'Female')::INTEGER)") == pytest.approx(0.51, abs=0.02)
    assert value(folder, "avg(smoker::INTEGER)") == pytest.approx(0.22, abs=0.03)
    assert value(folder, "avg(obese::INTEGER)") == pytest.approx(0.23, abs=0.03)
    assert value(folder, "avg((income IS NULL)::INTEGER)") == pytest.approx(0.05, abs=0.01)
    assert value(folder, "avg((education IS NULL)::INTEGER)") == pytest.approx(0.01, abs=0.005)
    old, young = (value(folder, "avg(disease::INTEGER)", age) for age in ("age > 65", "age < 35"))
    assert old > 2 * young
    rich, poor = (value(folder, "avg(income)", f"education = '{level}'") for level in ("university", "school"))
    assert rich > 1.2 * poor
    assert value(folder, "avg(disease::INTEGER)", "smoker") > value(folder, "avg(disease::INTEGER)", "NOT smoker")


def test_columns_are_not_tied_together(folder: Path) -> None:
    """What is independent by construction is uncorrelated: the hash mixes row and column."""
    for pair in ("sex = 'Male', region = 'North'", "age, sex = 'Male'", "income IS NULL, smoker IS NULL"):
        left, right = pair.split(", ")
        assert abs(value(folder, f"corr(({left})::DOUBLE, ({right})::DOUBLE)")) < 0.03


def test_a_seed_makes_the_same_file(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for file, seed in zip(files, (5, 5, 6), strict=True):
        sample.write_sample(file, 1000, seed)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes() != files[2].read_bytes()


def test_it_can_be_asked(folder: Path, tmp_path: Path) -> None:
    truth = Exact(Config.read(folder / "survey.toml").open_table())
    assert truth.rows == ROWS
    expected = value(folder, "count(*)", "age >= 65 AND smoker")
    assert truth.ask("age >= 65 AND smoker").total == expected
    sample.write_sample(tmp_path / "survey.csv", 1000)  # the same people in text
    sample.write_schema(tmp_path / "survey.toml", tmp_path / "survey.csv")
    text = Exact(Config.read(tmp_path / "survey.toml").open_table())
    sample.write_sample(tmp_path / "survey.parquet", 1000)
    sample.write_schema(tmp_path / "other.toml", tmp_path / "survey.parquet")
    binary = Exact(Config.read(tmp_path / "other.toml").open_table())
    for question in ("income", "smoker", "education = 'school'", "income IS NULL"):
        assert text.ask(question).total == binary.ask(question).total


def test_nobody_at_all(tmp_path: Path) -> None:
    sample.write_sample(tmp_path / "none.parquet", 0)
    sample.write_schema(tmp_path / "none.toml", tmp_path / "none.parquet")
    assert Exact(Config.read(tmp_path / "none.toml").open_table()).ask("age").total == 0


@pytest.mark.parametrize(
    ("name", "rows", "seed"),
    [("a.xlsx", 1, 1), ("a.parquet", -1, 1), ("a.parquet", True, 1), ("a.csv", 1, -1), ("no/such/a.csv", 1, 1)],
)
def test_bad_requests(tmp_path: Path, name: str, rows: int, seed: int) -> None:
    with pytest.raises(BadTable):
        sample.write_sample(tmp_path / name, rows, seed)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(BadTable, match="must not exist"):
        sample.write_sample(tmp_path / "a.csv", 10)
    with pytest.raises(BadTable, match="must not exist"):
        sample.write_schema(tmp_path / "a.csv", "x.csv")
    assert (tmp_path / "a.csv").read_text() == "mine"


def test_a_million_in_seconds(tmp_path: Path) -> None:
    started = time.process_time()
    sample.write_sample(tmp_path / "a.parquet", 1_000_000)
    assert time.process_time() - started < 60  # about 1.5 on two free cores
