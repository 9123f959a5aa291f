"""Every kind of release: one file that loads without the data, refuses damage, and answers the same for nothing."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dodona.concepts.set_functions import Disjunctions
from dodona.engines.table import Table
from dodona.errors import BadTable
from dodona.graphs import edge_table
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.budget import Budget
from dodona.query.schema import Category, Flag, Schema
from dodona.release import conjunctions, cuts, submodular
from dodona.synopses import load
from dodona.testing.oracles import seeded_curator

BITS = Schema({name: Flag(missing=False) for name in "abcde"})


def bits() -> Table:
    held = np.random.default_rng(0).random((4000, 5)) < 0.4
    return Table({name: held[:, i] for i, name in enumerate("abcde")}, BITS, name="t")


def wide() -> Table:
    names = [f"c{i}" for i in range(11)]
    codes = np.random.default_rng(0).integers(0, 4, (1500, 11))
    schema = Schema({name: Category(*range(4), missing=0) for name in names})
    return Table({name: codes[:, i] for i, name in enumerate(names)}, schema, name="t")


def published(table: Table, method: str) -> Synopsis:
    return conjunctions(seeded_curator(table, Budget(epsilon=1), 1), width=2, share=1, method=method)


RELEASES: dict[str, tuple[Callable[[], Synopsis], str]] = {
    "Marginals": (lambda: published(bits(), "blocks"), "a AND NOT b"),
    "Cells": (lambda: published(bits(), "adaptive"), "a AND NOT b"),
    "Mixture": (lambda: published(wide(), "adaptive"), "c0 = 1 AND c3 = 2"),
    "JunctionTree": (lambda: published(wide(), "tree"), "c0 = 1 AND c3 = 2"),
    "Tree": (
        lambda: submodular(
            seeded_curator(bits(), Budget(epsilon=1), 1), Disjunctions.of(BITS, "abcde", both=True), pieces=8, share=1
        ),
        "a AND NOT b",
    ),
    "Degrees": (
        lambda: cuts(seeded_curator(edge_table([(0, 1), (1, 2), (2, 3)], vertices=5), Budget(epsilon=1), 1), share=1),
        "(u IN (0, 1)) <> (v IN (0, 1))",
    ),
}


@pytest.mark.parametrize("kind", RELEASES)
def test_the_file_answers_as_the_release_did(kind: str, tmp_path: Path) -> None:
    make, question = RELEASES[kind]
    synopsis, file = make(), tmp_path / "release.synopsis"
    assert synopsis.body.kind == kind
    synopsis.save(file)
    again = load(file)
    first, second = synopsis.ask(question), again.ask(question)
    assert second.to_json() == first.to_json()
    assert str(second.cost) == "free"
    assert str(again) == str(synopsis)
    with zipfile.ZipFile(file) as archive:
        header = json.loads(archive.read("header.json"))
    assert header["cost"]["neighbours"]
    assert header["accuracy"]
    assert header["about"]


@pytest.mark.parametrize("kind", RELEASES)
def test_a_damaged_file_is_refused(kind: str, tmp_path: Path) -> None:
    synopsis, file = RELEASES[kind][0](), tmp_path / "release.synopsis"
    synopsis.save(file)
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    victim = next(name for name in parts if name.endswith(".parquet"))
    with zipfile.ZipFile(file, "w") as archive:
        for name, held in parts.items():
            archive.writestr(name, held[:-9] + b"x" * 9 if name == victim else held)
    with pytest.raises(BadTable, match="damaged"):
        load(file)
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(BadTable, match="truncated"):
        load(file)


@pytest.mark.parametrize("kind", ["Marginals", "Cells"])
def test_numbers_changed_by_hand_are_refused(kind: str, tmp_path: Path) -> None:
    """A file that is whole in every other way, but holds numbers that nobody released."""
    synopsis, file = RELEASES[kind][0](), tmp_path / "release.synopsis"
    synopsis.save(file)
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    victim = next(name for name in parts if name.endswith(".parquet"))
    table = pq.read_table(io.BytesIO(parts[victim]))
    column = next(name for name in table.column_names if pa.types.is_floating(table.schema.field(name).type))
    held = table.schema.field(column)
    moved = pa.array(table.column(column).to_numpy() + 1, held.type)
    written = io.BytesIO()
    pq.write_table(table.set_column(table.column_names.index(column), held, moved), written)
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, written.getvalue() if name == victim else data)
    with pytest.raises(BadTable, match="damaged"):
        load(file)
