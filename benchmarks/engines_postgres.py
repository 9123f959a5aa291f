"""20 and 1,000 bounded sums over 10 million rows in PostgreSQL against the same sums without privacy.

A PostgreSQL of our own is started on loopback. Plain PostgreSQL runs the same bounded sums in doubles, with no grid, no
care for NaN or NULL and no privacy; the 1,000 are over columns bounded once, behind the same fence as ours. For scale,
the bare sums of the columns, not even bounded, are shown too. Ours runs ``totals`` whole: compile to SQL, run in a
snapshot, read the integers. Turn by turn, in one run, with the server's own settings; the median of the turns counts.
The 1,000 sums run over a fiftieth of the rows: they take a thousand times as long. ``ROWS=2000000`` makes it shorter.
"""

from __future__ import annotations

import itertools
import os

import numpy as np

from benchmarks._turns import Row, compared, seconds
from dodona.engines.postgres import PostgresEngine
from dodona.query.plan import compile_query
from dodona.query.schema import Column, Integer, Real, Schema
from dodona.query.statistic import Stack, Value, as_expr
from tests.support.postgres import PostgresServer

ROWS = int(os.environ.get("ROWS", "10000000"))
TURNS = 3
COLUMNS: dict[str, Column] = {f"x{i}": Real(0, 100) for i in range(16)} | {f"n{i}": Integer(0, 40) for i in range(4)}
SCHEMA = Schema(COLUMNS)


def make(server: PostgresServer) -> None:
    """Ordinary rows, about one in six outside its bounds."""
    listed = ", ".join(
        f"random() * 120 - 10 AS {name}" if name.startswith("x") else f"floor(50 * random())::int AS {name}"
        for name in COLUMNS
    )
    with server.connect() as db:
        db.execute(f"CREATE UNLOGGED TABLE survey AS SELECT {listed} FROM generate_series(1, {ROWS})")
        db.execute(f"CREATE UNLOGGED TABLE small AS SELECT * FROM survey LIMIT {max(ROWS // 50, 1000)}")
        db.execute("VACUUM ANALYZE survey")
        db.execute("VACUUM ANALYZE small")


def bounded(name: str) -> str:
    """The column between its bounds, as one writes it by hand."""
    low, high = (f"{COLUMNS[name].low:g}", f"{COLUMNS[name].high:g}")  # type: ignore[union-attr]
    return f"least(greatest({name}, {low}), {high})"


def twenty(server: PostgresServer) -> Row:
    """Each column's own sum."""
    names = list(COLUMNS)
    sums = ", ".join(f"sum({bounded(name)})" for name in names)
    with server.connect() as db:
        bare = f"SELECT {', '.join(f'sum({name})' for name in names)} FROM survey"
        took = min(seconds(lambda: db.execute(bare).fetchall()) for _ in range(2))
    print(f"20 bare sums, not bounded, {ROWS:,} rows: {took:.2f} s", flush=True)
    return measured("20 bounded sums", server, "survey", names, f"SELECT {sums} FROM survey", 1.3)


def thousand(server: PostgresServer) -> Row:
    """Columns, products of two, and counts above a limit."""
    names = list(COLUMNS)
    pairs = list(itertools.combinations_with_replacement(names, 2))
    limits = [(name, 2 * k + 1) for k in range(40) for name in names][: 1000 - 20 - len(pairs)]
    ours = [*names, *(f"{a} * {b}" for a, b in pairs), *(f"{a} > {t}" for a, t in limits)]
    plain = [f"sum({name})" for name in names] + [f"sum({a} * {b})" for a, b in pairs]
    plain += [f"sum(CASE WHEN {a} > {t} THEN 1 ELSE 0 END)" for a, t in limits]
    inner = ", ".join(f"{bounded(name)}::float8 AS {name}" for name in names)
    fenced = f"(SELECT {inner} FROM small OFFSET '0'::bigint) AS bounded"
    return measured("1,000 bounded sums", server, "small", ours, f"SELECT {', '.join(plain)} FROM {fenced}", 1.5)


def measured(what: str, server: PostgresServer, table: str, ours: list[str], plain: str, target: float) -> Row:
    """The ratio, having checked that the sums are the same."""
    plan = compile_query(Stack(tuple(Value(as_expr(text)) for text in ours)), SCHEMA, level=False)
    engine = PostgresEngine(f"{server.url()}#{table}", SCHEMA)
    with server.connect() as db:
        if len(ours) > 100:
            db.execute("SET jit = off")  # compiling 1,000 sums takes PostgreSQL minutes
        case = f"{what}, {engine.rows():,} rows"
        row = compared(
            case,
            lambda: engine.totals(plan.program),
            lambda: db.execute(plain).fetchall(),
            TURNS,
            target,
            "plain PostgreSQL",
        )
        exact = engine.totals(plan.program) * plan.units
        rough = np.array(db.execute(plain).fetchone(), dtype=float)
    engine.close()
    assert np.allclose(exact, rough, rtol=1e-3, atol=engine.rows() * 1e-3), "the sums differ"
    return row


def main() -> list[Row]:
    """Prints each ratio."""
    with PostgresServer(shared_buffers="2GB") as server:
        make(server)
        return [twenty(server), thousand(server)]


if __name__ == "__main__":
    main()
