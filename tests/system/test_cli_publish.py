"""``dodona release`` and ``dodona synopsis``: published once, asked without the data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.commands import Outcome, fingerprint


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
    assert table.out.startswith("smoker,n,n_margin,n_low,n_high\n"), table.err
    assert "free" in call("synopsis", "ask", "c.synopsis", "smoker").out
    drawn = call("synopsis", "sample", "c.synopsis", "rows.parquet", "--rows", "10")
    assert "10 rows of age" in drawn.out
    assert call("synopsis", "sample", "c.synopsis", "rows.txt").code == 2
    assert fingerprint(survey) == after
