"""The composition root for arrays: a table and an oracle made from what a scikit-learn user hands to ``fit``.

This is the one door between the estimators, which know no engine and no trust model, and the rooms that do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import read_columns
from dodona.engines.table import Table
from dodona.oracles.curator import Curator
from dodona.oracles.oracle import Oracle
from dodona.privacy.budget import Budget
from dodona.privacy.numbers import Number
from dodona.query.compiler import Compiler
from dodona.query.expr import Expr, columns_of
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Schema


def curator_over(columns: Mapping[str, NDArray[Any]], schema: Schema, epsilon: Number, delta: Number) -> Oracle:
    """A curator over arrays with a budget of its own, kept as long as the oracle is."""
    cleaned, rows = read_columns(dict(columns), schema)
    engine = MemoryEngine(schema, cleaned, rows, public_rows=True)  # nobody asks a fit what cleaning left out
    return Curator(Table(engine, schema, name="data"), Budget(epsilon=epsilon, delta=delta))


# Conditions judged on rows a user holds: what a hypothesis predicts for a data frame or arrays.
#
# A hypothesis is a row condition;
# the same compiled program that an oracle sums over its rows is run here over the user's, so both faces agree on every
# row, clipping, missing values and unlisted categories included.


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
