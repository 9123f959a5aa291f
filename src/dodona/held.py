"""Conditions judged on rows a user holds: what a hypothesis predicts for a data frame or arrays.

The second door between learners and the engine room (``session.py`` is the first). A hypothesis is a row condition; the
same compiled program that an oracle sums over its rows is run here over the user's, so both faces agree on every row,
clipping, missing values and unlisted categories included.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.columns import read_columns
from dodona.engines.memory import MemoryEngine
from dodona.query.compiler import Compiler
from dodona.query.expr import Expr, columns_of
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Schema


def truth(condition: Expr, rows: Any, schema: Schema) -> NDArray[np.bool_]:
    """Where ``condition`` is true of ``rows`` (a data frame, an Arrow table or a mapping of arrays); NULL is not.

    Only the columns it reads must be there.
    """
    build = Builder()
    step = Compiler(schema, build).condition(condition).step
    program = Program(tuple(build.steps), (Block((), 0, where=step),))
    read = columns_of(condition)
    known = {name: column for name, column in schema.items() if name in read} or dict(schema)
    columns, count = read_columns(rows, Schema(known))
    values, null = MemoryEngine(schema, columns, count, public_rows=True).run(program, 0, count)[step]
    true = values if null is None else values & ~null
    return np.array(np.broadcast_to(true, (count,)), dtype=bool)
