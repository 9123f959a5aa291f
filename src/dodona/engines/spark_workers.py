"""What Spark's Python workers run for a program too long for SQL: the memory engine's kernels, batch by batch.

A task sums its own rows and gives one line per total: its number, and its value as high * 2^31 + low, so that sums of
lines stay within 64 bits whatever the totals are. Line -1 counts the rows. Nothing else leaves a worker.

The code travels with the job (``shipped``), so workers need NumPy and PyArrow, not this package.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.base import empty_totals
from dodona.engines.kernels import Vector
from dodona.engines.memory import MemoryEngine
from dodona.query.program import Program
from dodona.query.schema import Schema

LINES = "place bigint, high bigint, low bigint"
LOW = 31
_pickling = Lock()  # the register of what is pickled by value is the whole process's

Work = Callable[[Iterator[Any]], Iterator[Any]]


def work(program: Program, schema: Schema, rows: int) -> Work:
    """The task of one partition; ``rows``: of the whole table, which decides how wide sums must be."""
    names = program.columns

    def partition(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        totals, counted = None, 0
        wide = empty_totals_of(program, rows)
        for batch in batches:
            columns = {name: vector(batch.column(i)) for i, name in enumerate(names)}
            engine = MemoryEngine(schema, columns, batch.num_rows, threads=1, public_rows=False)
            own = engine.totals(program).astype(wide.dtype)
            totals = own if totals is None else totals + own
            counted += batch.num_rows
        values = [counted] if totals is None else [counted, *totals.tolist()]
        lines = np.array([(v >> LOW, v & ((1 << LOW) - 1)) for v in values], dtype=np.int64).T
        places = np.arange(-1, len(values) - 1)
        yield pa.RecordBatch.from_arrays([pa.array(a) for a in (places, *lines)], ["place", "high", "low"])

    return partition


def empty_totals_of(program: Program, rows: int) -> NDArray[Any]:
    """Zeros for all totals: 64 bits where none can overflow, else Python's integers."""
    return np.concatenate([empty_totals(block, rows) for block in program.blocks])


def vector(array: Any) -> Vector:
    """NumPy's view of an Arrow array of doubles or booleans; NULL computes as 0."""
    import pyarrow as pa

    filled = array.fill_null(pa.scalar(0, pa.int8()).cast(array.type))
    return filled.to_numpy(zero_copy_only=False), array.is_null().to_numpy(zero_copy_only=False)


def shipped(frame: Any, task: Work) -> Any:
    """The lines of all tasks. Our functions are pickled by value while the plan is made."""
    from pyspark import cloudpickle

    whole = sys.modules["dodona"]
    register: Any = cloudpickle
    with _pickling, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of pandas' version: only Arrow is used here
        register.register_pickle_by_value(whole)
        try:
            return frame.mapInArrow(task, LINES)
        finally:
            register.unregister_pickle_by_value(whole)
