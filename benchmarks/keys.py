"""Keys found at (1, 1e-6), beside other libraries on the same people; and the time of counting beside plain DuckDB.

People have 1 key, or 1 to 20 as many the one as the other, drawn from a law in which the j-th key is 1/j as common as
the first (search terms are near that: 10^6 people, 10^6 keys); or they are the lines of a text, and their keys its
words, twenty of a line at most. ``DODONA_TEXTS`` names a folder of texts. ``DODONA_PEER_PYTHON`` names a Python that
has ``opendp`` and ``pipeline-dp``, ``DODONA_TUMULT_PYTHON`` one that has ``tmlt.analytics``; without them theirs are
left out. What is published and in no library of these stands beside: the policy Gaussian of Gopi et al. 2020 (at the
best of four gaps) and DP-SIPS of Swanberg, Desfontaines and Haney 2023 (three rounds, 5, 15 and 80 %), both here, in
NumPy, at our own tight accounting. Where each way has one key a person, all best ones are the same law.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import dodona as dd
from dodona import release
from dodona.engines.keys import Counting
from dodona.privacy.numbers import rho_of

Codes = NDArray[np.int64]
DELTA = Fraction(1, 10**6)
RUNS = 3
TURNS = 5


def drawn(people: int, each: int, seed: int) -> tuple[Codes, Codes]:
    """(whose, key), each pair once."""
    random = np.random.default_rng(seed)
    held = random.integers(1, each + 1, people)
    common = 1 / np.arange(1, people + 1)
    ends = np.cumsum(common / common.sum())
    whose = np.repeat(np.arange(people), held)
    key = np.minimum(np.searchsorted(ends, random.random(len(whose))), people - 1)
    pairs = np.unique(whose * people + key)
    return pairs // people, pairs % people


def lines(folder: Path, each: int) -> tuple[Codes, Codes]:
    """The words of every line that has one, in the order of its words; at most ``each``."""
    whose, words = [], []
    for text in sorted(folder.glob("*.txt")):
        for line in text.read_text(encoding="utf-8", errors="replace").splitlines():
            found = list(dict.fromkeys(re.findall(r"[a-z]{2,}", line.lower())))[:each]
            whose += [len(whose) and whose[-1] + 1] * len(found)
            words += found
    _, key = np.unique(words, return_inverse=True)
    _, who = np.unique(whose, return_inverse=True)
    return who.astype(np.int64), key.astype(np.int64)


def ours(whose: Codes, key: Codes, each: int, folder: Path) -> tuple[float, str, float]:
    """(keys found, by which way, seconds), on a curator of a Parquet file; the mean of a few runs."""
    path = folder / "people.parquet"
    pq.write_table(pa.table({"who": whose, "key": key}), path)
    schema = dd.Schema({"key": dd.Integer(0, int(key.max()))})
    table = dd.Table(str(path), schema, name="t", unit=dd.Unit("who", each), neighbours="add-remove")
    # One key: all of the budget is one pure release, so all of delta may be for keys.
    apart = DELTA * Fraction(999, 1000) if each == 1 else DELTA / 2
    found, seconds, way = [], [], ""
    for _ in range(RUNS):
        curator = dd.Curator(table, dd.Budget(epsilon=1, delta=DELTA, keys=apart))
        start = time.perf_counter()
        listed = release.keys(curator, "key", delta=apart, each=each, counts=each == 1, share=1)
        seconds.append(time.perf_counter() - start)
        way = listed.header.method
        settings = listed.body.settings()
        beyond = re.search(r"; ([0-9,]+) more", listed.header.about)
        found.append(len(settings["keys"]) + (int(beyond[1].replace(",", "")) if beyond else 0))
    return float(np.mean(found)), way, min(seconds)


def sips(whose: Codes, key: Codes, each: int, random: np.random.Generator) -> int:
    """DP-SIPS: rounds of 5, 15 and 80 %."""
    size, found = int(key.max()) + 1, 0
    rho = float(rho_of(Fraction(1), DELTA / 2))
    for part in (0.05, 0.15, 0.8):
        noise = 1 / math.sqrt(2 * rho * part)
        least = lowest(noise, float(DELTA / 2) * part, each)
        totals = np.bincount(key, 1 / np.sqrt(np.bincount(whose)[whose]), minlength=size)
        shown = (totals > 0) & (totals + random.normal(0, noise, size) >= least)
        found += int(shown.sum())
        whose, key = whose[~shown[key]], key[~shown[key]]
    return found


def policy(whose: Codes, key: Codes, each: int, random: np.random.Generator, gap: float) -> int:
    """The policy Gaussian: each person moves the totals of their keys towards a mark ``gap`` deviations above the
    threshold, by a vector of length 1 at most, in the direction of what is missing.
    """
    noise = 1 / math.sqrt(2 * float(rho_of(Fraction(1), DELTA / 2)))
    least = lowest(noise, float(DELTA / 2), each)
    mark, totals = least + gap * noise, [0.0] * (int(key.max()) + 1)
    starts = np.flatnonzero(np.append(True, whose[1:] != whose[:-1])).tolist()
    keys = key.tolist()
    for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
        missing = [(mark - totals[k], k) for k in keys[start:stop] if totals[k] < mark]
        length = math.sqrt(sum(by * by for by, _ in missing))
        for by, k in missing:
            totals[k] += by / max(length, 1.0)
    reached = np.array(totals)
    return int(((reached > 0) & (reached + random.normal(0, noise, len(reached)) >= least)).sum())


def lowest(noise: float, delta: float, each: int) -> float:
    """The threshold for people who stand alone with up to ``each`` keys."""
    return max(
        1 / math.sqrt(k) - noise * NormalDist().inv_cdf(-math.expm1(math.log1p(-delta) / k)) for k in range(1, each + 1)
    )


def peers(whose: Codes, key: Codes, each: int, folder: Path, quick: bool) -> dict[str, float]:
    """What each other way finds, on average."""
    random, found = np.random.default_rng(1), {}
    if each > 1:
        found["DP-SIPS as published"] = float(np.mean([sips(whose, key, each, random) for _ in range(RUNS)]))
        gaps = {gap: policy(whose, key, each, random, gap) for gap in (2.0, 3.0, 4.0, 5.0)}
        found["policy Gaussian, best gap"] = float(max(gaps.values()))
    np.save(folder / "whose.npy", whose)
    np.save(folder / "key.npy", key)
    for kind in () if quick else ("opendp", "pipelinedp", "tumult"):
        python = os.environ.get("DODONA_TUMULT_PYTHON" if kind == "tumult" else "DODONA_PEER_PYTHON")
        if not python:
            print(f"  {kind} left out: no Python is named that has it")
            continue
        command = [python, str(Path(__file__).resolve().with_name("_keys_peer.py")), str(folder), kind, str(each)]
        env = {**os.environ, "PYSPARK_PYTHON": python, "PYTHONPATH": ""}
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, timeout=900, check=False)
        if done.returncode:
            print(f"  {kind} failed: {done.stderr[-400:]}")
            continue
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


def found_rows(name: str, whose: Codes, key: Codes, each: int, folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Ours beside every other; ``quick``: beside what is computed here."""
    many, way, seconds = ours(whose, key, each, folder)
    print(f"{name}: {many:,.0f} keys by {way}, {seconds:.1f} s")
    rows = []
    for peer, theirs in peers(whose, key, each, folder, quick).items():
        print(f"  {peer}: {theirs:,.0f}, ours {many / max(theirs, 1):.2f} times as many")
        # One key a person: the best ways are one law, and what one run finds is spread by noise.
        asked = theirs * (1.1 if each > 1 else 0.99)
        rows.append(
            {
                "case": f"{name}, beside {peer}",
                "ours": many,
                "peer": theirs,
                "peer name": peer,
                "target": asked,
                "better": "higher",
                "unit": "keys",
                "runs": RUNS,
                "way": way,
            }
        )
    return rows or [{"case": name, "ours": many, "better": "higher", "unit": "keys", "runs": RUNS, "way": way}]


def counting(rows: int, kinds: int, folder: Path) -> dict[str, Any]:
    """The time to count texts, beside plain DuckDB's GROUP BY on the same file, in turns."""
    path = folder / "texts.parquet"
    made = f"SELECT 'term ' || CAST(hash(i) % {kinds} AS VARCHAR) AS word FROM range({rows}) AS t(i)"
    duckdb.sql(f"COPY ({made}) TO '{path}' (FORMAT parquet)")
    table = dd.Table(str(path), dd.Schema({"word": dd.Text(40)}), name="t", neighbours="add-remove")

    def plain() -> None:
        with duckdb.connect() as session:
            session.execute(f"SELECT word, COUNT(*) FROM '{path}' GROUP BY word").fetchnumpy()

    taken: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(TURNS):
        for who, run in (("ours", lambda: table.engine.people_by_key("word", Counting(1))), ("plain", plain)):
            start = time.perf_counter()
            run()
            taken[who].append(time.perf_counter() - start)
    mine, theirs = (float(np.median(taken[who])) for who in ("ours", "plain"))
    print(f"{rows:,} rows, {kinds:,} texts: {mine:.2f} s, plain DuckDB {theirs:.2f} s")
    return {
        "case": f"{rows:,} rows, {kinds:,} texts: counted by key",
        "ours": mine,
        "peer": theirs,
        "peer name": "plain DuckDB, GROUP BY",
        "target": 2 * theirs,
        "unit": "s",
        "runs": TURNS,
    }


def run(quick: bool) -> list[dict[str, Any]]:
    """Every figure; ``quick``: few people."""
    people = 20_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as place:
        folder, rows = Path(place), []
        for each in (1, 20):
            name = f"{people:,} people with {'one key' if each == 1 else 'up to 20 keys'}"
            rows += found_rows(name, *drawn(people, each, 5), each, folder, quick)
        texts = os.environ.get("DODONA_TEXTS")
        if texts:
            rows += found_rows("words of the lines of five papers", *lines(Path(texts), 20), 20, folder, quick)
        return [*rows, counting(*((200_000, 20_000) if quick else (10_000_000, 1_000_000)), folder)]


def main() -> list[dict[str, Any]]:
    """All of it."""
    return run(quick=False)
