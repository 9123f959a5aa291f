"""What a test asks of Spark in a process of its own: ``python spark_scenarios.py NAME FOLDER`` ends with ``ok``.

One process has one Spark at a time, so the cluster and Connect cannot share the tests' own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dodona as dd
from dodona.engines.spark import SparkEngine
from dodona.engines.table import Table
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.statistic import Features, Outer, Partition, Stack, Value, as_expr
from tests.support.spark import cluster_session, connect_session, standalone_session

SCHEMA = dd.Schema({"x": dd.Real(0, 1), "n": dd.Integer(0, 9), "g": dd.Category("a", "b", "c")})
ROWS = 40_000


def rows() -> Any:
    generator = np.random.default_rng(8)
    x = generator.normal(0.5, 1, ROWS)
    x[::17] = np.nan
    return pa.table({"x": x, "n": generator.integers(-3, 14, ROWS), "g": generator.choice(list("abcd"), ROWS)})


def programs() -> list[Any]:
    """One for SQL, one for Python workers."""
    short = Stack(
        (Value(as_expr("x")), Value(as_expr("LN(x + n + 1)")), Partition(as_expr("g"), Value(as_expr("x * n"))))
    )
    edges = dd.bucket(Column("x"), np.linspace(0, 1, 200).tolist())
    long = Stack((Outer(Features((Column("x"), Column("n")))), Partition(edges, Value(as_expr("n")))))
    return [compile_query(query, SCHEMA, level=False).program for query in (short, long)]


def stored(folder: Path) -> Path:
    path = folder / "rows"
    path.mkdir()
    table = rows()
    for part in range(4):
        pq.write_table(table.slice(part * ROWS // 4, ROWS // 4), path / f"{part}.parquet")
    return path


def agree(session: Any, folder: Path) -> None:
    """Both ways give the memory engine's integers."""
    engine, memory = SparkEngine(session.read.parquet(str(stored(folder))), SCHEMA), Table(rows(), SCHEMA).engine
    assert engine.rows() == ROWS
    for program in programs():
        assert engine.totals(program).tolist() == memory.totals(program).tolist()


def cluster(folder: Path) -> None:
    """Executors in processes of their own."""
    with cluster_session() as session:
        agree(session, folder)


def standalone(folder: Path) -> None:
    """A master and a worker as a cluster has them."""
    with standalone_session() as session:
        assert session.sparkContext.master.startswith("spark://")
        agree(session, folder)


def connect(folder: Path) -> None:
    """A server in another process, through Spark Connect."""
    with connect_session() as session:
        assert "connect" in type(session).__module__
        agree(session, folder)
        table = dd.Table(session.read.parquet(str(folder / "rows")), SCHEMA)
        assert table.public_rows == ROWS


def executors(session: Any) -> list[int]:
    """The processes of this application's executors, found by its id in their command line."""
    application = session.sparkContext.applicationId
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if application in words and any("CoarseGrainedExecutorBackend" in word for word in words):
                found.append(int(process.name))
    return found


def kill(folder: Path) -> None:
    """An executor dies in mid-query: the answer is exact, and charged once."""
    with cluster_session() as session:
        path = stored(folder)
        # Each partition takes some seconds, so that the executor dies while it computes.
        slow = session.read.parquet(str(path)).repartition(8).mapInArrow(_slowly, "x double, n bigint, g string")
        table = dd.Table(slow, SCHEMA, population="people")
        ledger = str(folder / "people.ledger")
        curator = dd.Curator(table, dd.Budget(epsilon=1e6), ledger=ledger, create=True)
        assert len(executors(session)) == 2
        killed: list[int] = []

        def strike() -> None:
            time.sleep(2.0)
            victim = executors(session)[0]
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

        thread = threading.Thread(target=strike)
        thread.start()
        started = time.monotonic()
        answer = curator.ask("n >= 5", epsilon=1e5)
        took = time.monotonic() - started
        thread.join()
        assert killed
        assert took > 2.0, "the question was over before the executor died"
        exact = int((rows()["n"].to_numpy() >= 5).sum())
        assert round(float(answer.total)) == exact, (answer.total, exact)
        charged = [entry for entry in curator.ledger.entries() if entry.amount]
        assert len(charged) == 1, charged


def _slowly(batches: Any) -> Any:
    import time

    for batch in batches:
        time.sleep(1.5)
        yield batch


if __name__ == "__main__":
    {"cluster": cluster, "connect": connect, "kill": kill, "standalone": standalone}[sys.argv[1]](Path(sys.argv[2]))
    print("ok")
