"""``dodona release`` and ``dodona synopsis``: published once, asked without the data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.commands import Outcome, fingerprint, make_ledger


def test_a_release_is_published_asked_and_drawn_from(survey: Path, call: Callable[..., Outcome]) -> None:
    """Charged once, and after that nothing; a file that is there is refused before anything is charged."""
    order = ("release", "survey.toml", "conjunctions", "-o", "c.synopsis", "--set", "width=1", "--share", "0.5")
    done = call(*order, "--synthetic", "rows.csv")
    assert done.code == 0, done.err
    head, *lines = (survey / "rows.csv").read_text().splitlines()
    assert (head.split(",")[0], len(lines)) == ("age", 2000)
    after = fingerprint(survey)
    again = call(*order)
    assert again.code == 2
    assert "is there already" in again.err
    (survey / "survey.parquet").unlink()
    told = call("synopsis", "about", "c.synopsis")
    assert "conjunctions of at most 1 conditions" in told.out
    table = call("synopsis", "sql", "c.synopsis", "SELECT smoker, COUNT(*) AS n FROM survey GROUP BY smoker", "--csv")
    assert table.out.startswith("smoker,n,n_margin,n_low,n_high,notes\n"), table.err
    assert "free" in call("synopsis", "ask", "c.synopsis", "smoker").out
    drawn = call("synopsis", "sample", "c.synopsis", "rows.parquet", "--rows", "10")
    assert "10 rows of age" in drawn.out
    assert call("synopsis", "sample", "c.synopsis", "rows.txt").code == 2
    assert fingerprint(survey) == after


def test_keys_are_found_and_grouped_by(tmp_path: Path, call: Callable[..., Outcome], monkeypatch: Any) -> None:
    """A list that a release found is a category to `sql`, `price` and `explain`; one budget pays for both."""
    monkeypatch.chdir(tmp_path)
    words = np.repeat(["aspirin", "ibuprofen", "a rare one"], [400, 300, 1])
    pq.write_table(pa.table({"drug": words}), tmp_path / "sales.parquet")
    (tmp_path / "survey.toml").write_text(
        'data = "sales.parquet"\nledger = "survey.ledger"\nneighbours = "add-remove"\n\n[budget]\nepsilon = 2\n'
        'delta = 1e-6\nkeys = 1e-7\n\n[columns]\ndrug = { type = "text", max_length = 20 }\n'
    )
    make_ledger("survey.toml")
    settings = ("--set", "column=drug", "--set", "delta=5e-8", "--share", "0.5")
    done = call("release", "survey.toml", "keys", "-o", "drugs.synopsis", *settings)
    assert done.code == 0, done.err
    statement = "SELECT drug, COUNT(*) AS n FROM sales GROUP BY drug"
    stated = ("survey.toml", statement, "--share", "0.1")
    before = fingerprint(tmp_path)
    for command in ("price", "explain"):
        told = call(command, *stated, "--keys", "drugs.synopsis")
        assert told.code == 0, told.err
    assert "release.keys" in call("sql", *stated).err
    assert "not behind a server" in call("sql", *stated, "--keys", "drugs.synopsis", "--server", "http://x").err
    assert call("sql", *stated, "--keys", "nothing.synopsis").code == 2
    assert fingerprint(tmp_path) == before
    table = call("sql", *stated, "--keys", "drugs.synopsis", "--csv")
    assert [line.partition(",")[0] for line in table.out.splitlines()] == ["drug", "aspirin", "ibuprofen", "(other)"]
    assert fingerprint(tmp_path) != before
