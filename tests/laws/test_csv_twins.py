"""Two CSV files that differ in one record: every other record is read alike, and no question errs on either.

The record is any bytes at all as the content of quoted fields, and any bytes without quotes and line breaks as a bare
line, with any number of fields.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dodona.engines.duckdb import DuckDBEngine
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Real, Schema
from dodona.query.statistic import Partition, Stack, Value, as_expr

SCHEMA = Schema({"x": Real(0, 16), "g": Category("a", "b", "c\nd"), "f": Flag()})
VALUES = [Value(as_expr(text)) for text in ("1", "x", "x IS NULL", "f")]
QUERY = Stack((*VALUES, Partition(as_expr("g"), VALUES[0])))
PLAN = compile_query(QUERY, SCHEMA, level=False)
MOST = np.array([1, 16, 1, 1, 1, 1, 1]) / PLAN.units  # of one row, in each sum

RAW = st.one_of(
    st.binary(max_size=40),
    st.text(st.sampled_from('",;\r\n\x00\x10\x1f7.ab'), max_size=12).map(str.encode),
    st.sampled_from([b"", b"7", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\x00", b"x" * 70_000, b"\n" * 600]),
)


def quoted(field: bytes) -> bytes:
    return b'"' + field.replace(b'"', b'""') + b'"'


def bare(line: bytes) -> bytes:
    return line.translate(None, b'"\r\n')


PLAIN = st.sampled_from([b"7,a,1", b"3.5,b,false", b"7x,a,maybe", b"--,z,2", b",,", b"1e999,b,0x1", b"NaN,a,t"])
RECORDS = st.one_of(PLAIN, st.lists(RAW.map(quoted), min_size=1, max_size=5).map(b",".join), RAW.map(bare))


def opened(folder: Path, records: list[bytes], end: bytes) -> tuple[int, np.ndarray]:
    path = folder / "rows.csv"
    path.write_bytes(end.join([b'"x",g,f', *records, b""]))
    engine = DuckDBEngine(path, SCHEMA, threads=1)
    return engine.rows(), engine.totals(PLAN.program)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([b"1,a,1"], 1, b"7x,a,1", b"7,b,x", b"\n")
@example([b"1,a,1"], 1, b"\xff,\xff,\xff", b'"\n","\r\n","\r"', b"\n")
@example([b"1,a,1", b'"2","b","0"'], 1, b"", b'"' + b'""\n' * 300 + b'"', b"\r")
@given(st.lists(RECORDS, max_size=6), st.integers(0, 6), RECORDS, RECORDS, st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_one_record_moves_its_own_row_and_nothing_else(
    tmp_path: Path, others: list[bytes], place: int, one: bytes, other: bytes, end: bytes
) -> None:
    place = min(place, len(others))
    rows, sums = opened(tmp_path, others, end)
    assert rows == len(others) == sums[0]
    own = []
    for record in (one, other):
        found, total = opened(tmp_path, [*others[:place], record, *others[place:]], end)
        assert found == rows + 1 == total[0]
        own.append(total - sums)
        alone = opened(tmp_path, [record], end)[1]
        assert list(own[-1]) == list(alone)
    assert (np.abs(own[0] - own[1]) <= MOST).all()
