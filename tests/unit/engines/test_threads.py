"""Rows divided among threads: every chunk once, faults come through, cleaning gives the same for any number."""

from __future__ import annotations

import numpy as np
import pytest

from dodona.engines.memory import columns as cleaning
from dodona.engines.memory import layout
from dodona.engines.memory.columns import Source, cleaned_numbers
from dodona.query.schema import Integer, Real


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("starts", [range(0), range(0, 5, 5), range(0, 100, 7)])
def test_every_chunk_is_worked_once(count: int, starts: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "cores", lambda: count)
    parts = layout.divided(list, starts)
    assert sorted(start for part in parts for start in part) == list(starts)
    assert len(parts) == max(1, min(count, len(starts)))


def test_a_fault_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "cores", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        layout.divided(lambda starts: [1 // start for start in starts], range(2))


def test_cleaning_does_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "CELLS", 128)  # blocks of 64 rows
    raw = np.random.default_rng(0).normal(0, 3, (1000, 2))
    raw[::7, 0], raw[::11, 1] = np.nan, np.inf
    raw[::5, 1] = 2.0
    null = np.arange(1000) % 13 == 0
    sources: dict[str, Source] = {"x": (Real(-1, 1), raw[:, 0], null), "n": (Integer(0, 3, missing=1), raw[:, 1], None)}
    found = []
    for count in (1, 3):
        monkeypatch.setattr(layout, "cores", lambda count=count: count)
        found.append(cleaned_numbers(sources, 1000))
    expected = np.isnan(raw[:, 0]) | null
    for cleaned in found:
        (x, missing), (n, unmarked) = cleaned["x"], cleaned["n"]
        assert missing is not None
        assert unmarked is None
        assert np.array_equal(missing, expected)
        assert np.array_equal(x, np.where(expected, -1.0, np.clip(raw[:, 0], -1, 1)))
        whole = raw[:, 1] == np.floor(raw[:, 1])  # infinities too: they are clipped
        assert np.array_equal(n, np.where(whole, np.clip(raw[:, 1], 0, 3), 1.0))
