"""People: time and memory of questions bounded by person, and their error beside OpenDP's and Tumult's.

Times: a sum by group of at most 4 rows of each person, over ten rows a person, in memory and in a file, beside DuckDB's
window function and Polars doing the same by hand; opening such a table in memory; and a join of three tables (visits,
people, public zips), beside the same join in DuckDB, bounded by a window and not bounded at all. They are processor
seconds of the whole process, so that what other programs take from the machine counts for nobody.

Errors, at equal epsilon without delta: how many people each group has (in at most 3 groups), what everyone spends in
all (one person's sum clipped at 500), and what one spends on average. ``DODONA_PEER_PYTHON`` names a Python that has
``opendp[polars]``, whose own statement of its noise (``summarize``) is taken, as ours is (``price``); without it the
same is worked out here. So are Tumult's, by its documented algorithms: geometric noise of scale g / epsilon and clip /
epsilon, and for an average the sum of deviations from the middle and the count, with half of epsilon each.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import dodona as dd
from dodona.query.plan import compile_query

ROWS = int(os.environ.get("DODONA_ROWS", "10000000"))
TURNS = 3
VISITS = dd.Schema({"ward": dd.Integer(0, 19), "cost": dd.Real(0, 90), "zip": dd.Integer(0, 999)})
PEOPLE = dd.Schema({"age": dd.Integer(0, 120)})
CLIP, GROUPS, WARDS = 500, 3, ("a", "b", "c", "d", "e")
Rows = list[dict[str, Any]]

_PEER = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import polars as pl
import opendp.prelude as dp
dp.enable_features("contrib")
path, epsilon, clip, groups, wards = json.load(sys.stdin)
def asked():
    return dp.Context.compositor(
        data=pl.scan_parquet(path), privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("patient")),
        privacy_loss=dp.loss_of(epsilon=epsilon), split_evenly_over=1,
        margins=[dp.polars.Margin(max_length=10**7), dp.polars.Margin(by=["ward"], max_length=10**7)],
    ).query()
cost = pl.col("cost").fill_null(0).dp.sum((0, clip))
each = asked().group_by("patient").agg(pl.col("cost").sum())
people = asked().truncate_per_group(1, by=["ward"]).truncate_num_groups(groups, by=["ward"])
people = people.group_by("ward").agg(dp.len()).with_keys(pl.LazyFrame({"ward": wards}))
found = [people, each.select(cost), asked().group_by("patient").agg(pl.col("cost").sum()).select(cost, dp.len())]
print(json.dumps([query.summarize()["scale"].to_list() for query in found]))
"""


def spent(run: Callable[[], Any], turns: int = TURNS) -> float:
    """Processor seconds: the least of several turns."""
    taken = []
    for _ in range(turns):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def table(source: Any) -> dd.Table:
    """Visits, of which 4 of each person count."""
    facts: dict[str, Any] = {"neighbours": "add-remove", "population": "p", "name": "visits"}
    return dd.Table(source, VISITS, unit=dd.Unit("person", 4), **facts)


def written(folder: Path) -> tuple[Path, Path]:
    """Visits and people, as Parquet files."""
    visits, people, persons = folder / "visits.parquet", folder / "people.parquet", ROWS // 10
    columns = f"CAST(floor(random() * {persons}) AS BIGINT) AS person, CAST(floor(random() * 20) AS INT) AS ward"
    columns += ", random() * 100 AS cost, CAST(floor(random() * 1000) AS INT) AS zip"
    connection = duckdb.connect()
    connection.execute(f"COPY (SELECT {columns} FROM range({ROWS})) TO '{visits}' (FORMAT parquet)")
    aged = "CAST(floor(random() * 100) AS INT) AS age"
    connection.execute(f"COPY (SELECT range AS person, {aged} FROM range({persons})) TO '{people}' (FORMAT parquet)")
    return visits, people


def by_window(visits: Path) -> Callable[[], Any]:
    """DuckDB by hand."""
    placed = "SELECT *, row_number() OVER (PARTITION BY person ORDER BY hash(ward, cost, zip)) AS place"
    text = f"SELECT ward, sum(least(cost, 90)) FROM ({placed} FROM '{visits}') WHERE place <= 4 GROUP BY ward"
    connection = duckdb.connect()
    return lambda: connection.execute(text).fetchall()


def by_polars(visits: Path) -> Callable[[], Any]:
    """Polars by hand: sorted by a hash, and the first 4 of each person."""
    import polars as pl

    def run() -> Any:
        hashed = pl.scan_parquet(visits).with_columns(pl.struct("ward", "cost", "zip").hash().alias("h"))
        few = hashed.sort("h").group_by("person").head(4)
        return few.group_by("ward").agg(pl.col("cost").clip(0, 90).sum()).collect()

    return run


def times(folder: Path) -> Rows:
    """Sums bounded by person, and a join."""
    import pyarrow.parquet as pq

    visits, people = written(folder)
    program = compile_query(dd.Partition(dd.parse("ward"), dd.Value(dd.parse("cost"))), VISITS, level=False).program
    hand, polars = spent(by_window(visits)), spent(by_polars(visits), 2)
    wall, cpu, first, again, peak = in_memory(pq.read_table(visits), program)
    stored = table(visits)
    file = spent(lambda: stored.engine.totals(program))
    named = f"{ROWS:,} rows, at most 4 of each of {ROWS // 10:,} people"
    rows: Rows = [
        {"case": f"sum by group, {named}: in a file, processor", "ours": file, "target": hand, "peer": hand},
        {"case": f"sum by group, {named}: in a file, beside Polars, processor", "ours": file, "peer": polars},
        {
            "case": f"sum by group, {named}: in memory, the first, processor",
            "ours": first,
            "target": hand,
            "peer": hand,
        },
        {"case": f"sum by group, {named}: in memory, again, processor", "ours": again, "target": hand, "peer": hand},
        {"case": f"opening {ROWS:,} rows of people in memory, processor", "ours": cpu, "target": 1.0, "wall s": wall},
    ]
    for row in rows:
        row["unit"] = "s"
        if "peer" in row:
            row["peer name"] = "Polars" if "Polars" in str(row["case"]) else "a window of DuckDB"
    rows.append(
        {"case": f"memory, {ROWS:,} rows of people, peers included", "ours": peak, "target": 2.0, "unit": "GiB"}
    )
    return rows + joins(visits, people)


def in_memory(read: Any, program: Any) -> tuple[float, float, float, float, float]:
    """Opening: seconds, and of the processor; the first question, and the next ones; the most memory, GiB."""
    table(read.slice(0, 1000))  # what is imported once is no part of it
    start, used = time.perf_counter(), time.process_time()
    held = table(read)
    wall, cpu = time.perf_counter() - start, time.process_time() - used
    first = spent(lambda: held.engine.totals(program), 1)
    again = spent(lambda: held.engine.totals(program))
    return wall, cpu, first, again, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def joins(visits: Path, people: Path) -> Rows:
    """Visits, people and public zips."""
    zips = {"zip": np.arange(1000), "city": [f"c{i % 30}" for i in range(1000)]}
    facts: dict[str, Any] = {"neighbours": "add-remove", "population": "p", "name": "people"}
    held = {
        "visits": table(visits),
        "people": dd.Table(people, PEOPLE, unit=dd.Unit("person", 1), **facts),
        "zips": dd.Public(zips),
    }
    data = dd.Dataset(held, "person", budget=dd.Budget(epsilon=1000))
    asked = "SELECT city, AVG(cost) AS c, COUNT(*) AS n FROM visits JOIN people ON visits.person = people.person "
    asked += "JOIN zips USING (zip) WHERE age > 30 GROUP BY city"
    ours = spent(lambda: data.sql(asked, share=0.001))
    connection = duckdb.connect()
    connection.execute("CREATE TABLE zips AS SELECT range AS zip, 'c' || (range % 30) AS city FROM range(1000)")
    both = f"'{visits}' v JOIN '{people}' p ON v.person = p.person"
    plain = f"SELECT city, avg(cost), count(*) FROM {both} JOIN zips USING (zip) WHERE age > 30 GROUP BY city"
    placed = f"SELECT *, row_number() OVER (PARTITION BY v.person ORDER BY hash(cost, ward, age)) AS place FROM {both}"
    few = f"SELECT city, avg(cost), count(*) FROM ({placed} WHERE age > 30) JOIN zips USING (zip)"
    few += " WHERE place <= 4 GROUP BY city"
    named = f"join of 3 tables, {ROWS:,} visits, processor"
    found: Rows = []
    for how, text in (("", plain), (", bounded by a window", few)):
        peer = spent(lambda text=text: connection.execute(text).fetchall())  # type: ignore[misc]
        found.append({"case": named + how, "ours": ours, "peer": peer, "target": 1.5 * peer, "unit": "s"})
        found[-1] |= {"peer name": f"DuckDB{how}", "ratio": round(ours / peer, 2)}
    return found


def scales(path: Path, epsilon: float) -> list[list[float]]:
    """OpenDP's Laplace noise: of people by group, of a clipped sum, and of a sum and a count for an average."""
    python = os.environ.get("DODONA_PEER_PYTHON")
    if not python:
        return [[GROUPS / epsilon], [CLIP / epsilon], [2 * CLIP / epsilon, 2 / epsilon]]
    given = json.dumps([str(path), epsilon, CLIP, GROUPS, WARDS])
    run = subprocess.run([python, "-c", _PEER], input=given, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def errors(folder: Path, people: int = 5_000) -> Rows:
    """Root mean square errors of the noise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw, path, count = np.random.default_rng(2012), folder / "spent.parquet", 6 * people
    stored = pa.table(
        {
            "patient": draw.integers(0, people, count),
            "ward": draw.choice(WARDS, count).tolist(),
            "cost": draw.lognormal(3, 1, count).astype(int).clip(0, 200),
        }
    )
    pq.write_table(stored, path)
    schema = dd.Schema({"ward": dd.Category(*WARDS), "cost": dd.Integer(0, 200)})
    facts: dict[str, Any] = {"neighbours": "add-remove", "unit": dd.Unit("patient", 6), "name": "visits"}
    held, named = (
        dd.Table(stored, schema, **facts),
        "OpenDP" if os.environ.get("DODONA_PEER_PYTHON") else "OpenDP's noise",
    )
    inner = f"SELECT patient, LEAST(SUM(cost), {CLIP}) AS spent FROM visits GROUP BY patient"
    texts = {
        "people of each group": "SELECT ward, COUNT(DISTINCT patient) AS x FROM visits GROUP BY ward "
        f"OPTIONS (max_groups = {GROUPS})",
        "spent by all": f"SELECT SUM(cost) AS x FROM visits OPTIONS (clip = {CLIP})",
        "spent by one, on average": f"SELECT AVG(spent) AS x FROM ({inner})",
    }
    each = np.bincount(stored.column("patient").to_numpy(), weights=stored.column("cost").to_numpy()).clip(0, CLIP)
    each = each[np.bincount(stored.column("patient").to_numpy()) > 0]
    rows: Rows = []
    for epsilon in (0.1, 1.0):
        noise = scales(path, epsilon)
        middle = each - CLIP / 2
        opendp = [np.sqrt(2) * noise[0][0], np.sqrt(2) * noise[1][0], _ratio(each.sum(), len(each), *noise[2])]
        tumult = [np.sqrt(2) * GROUPS / epsilon, np.sqrt(2) * CLIP / epsilon]
        tumult.append(_ratio(middle.sum(), len(each), CLIP / epsilon, 2 / epsilon))
        for at, (what, text) in enumerate(texts.items()):
            spread = np.ravel(dd.Curator(held, dd.Budget(epsilon=epsilon)).price(text, share=1).spread) / np.sqrt(2)
            ours = np.sqrt(2) * spread[0] if at < 2 else _ratio(middle.sum(), len(each), *spread)
            peer, who = min((opendp[at], named), (tumult[at], "Tumult's algorithm"))
            rows.append(
                {"case": f"{what}, epsilon {epsilon:g}", "ours": float(ours), "peer": float(peer), "peer name": who}
            )
            rows[-1] |= {"target": 0.9 * float(peer), "ratio": round(float(ours / peer), 2)}
    return rows


def _ratio(total: float, count: int, wide: float, narrow: float) -> float:
    """The root mean square error of a noisy sum over a noisy count, both with Laplace noise."""
    draw = np.random.default_rng(5)
    found = (total + draw.laplace(0, wide, 50_000)) / np.maximum(count + draw.laplace(0, narrow, 50_000), 1)
    return float(np.sqrt(((found - total / count) ** 2).mean()))


def main() -> Rows:
    """Errors, then times; printed as they come."""
    with tempfile.TemporaryDirectory() as folder:
        rows = errors(Path(folder)) + times(Path(folder))
    for row in rows:
        told = f", {row['peer name']} {row['peer']:.4g}" if "peer" in row else ""
        print(f"{row['case']}: ours {row['ours']:.4g}{told}")
    return rows
