"""Keeps at most so many rows of each unit, before any sum (``query/unit.py`` says which and why).

In SQL the rows are numbered within their unit by a window, and those beyond the bound are left out; what comes out is
a relation of cleaned columns, so that nothing is computed twice. In memory the rows to keep are found once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.engines.dialect import Dialect
from dodona.engines.kernels import Vector
from dodona.engines.memory import MemoryEngine
from dodona.engines.sql import Compiled
from dodona.errors import BadTable
from dodona.query.schema import Schema
from dodona.query.unit import Unit, order


class Bounded(NamedTuple):
    """``relation``: stands in FROM. ``clean``: the name of each schema column's cleaned value there."""

    relation: str
    clean: dict[str, str]


def require_unit(unit: Unit, family: str, kind: str) -> None:
    """Refuses a unit column whose equality is not plain."""
    if family not in ("integer", "text", "csv"):
        raise BadTable(
            f"the unit column {unit.column!r} must hold whole numbers or text. Got {kind}: store it as one of them."
        )


def bounded_relation(schema: Schema, unit: Unit, dialect: Dialect, relation: str) -> Bounded:
    """A sub-select of the rows that count. ``relation`` has, beside what the dialect reads, the unit as ``whose``."""
    ranked = order(schema)
    compiled = Compiled(ranked.program, dialect, relation, carried=("whose",))
    columns = {name: f"c{i}" for i, name in enumerate(schema)}
    cleaned = ", ".join(f"{compiled.read(ranked.columns[name])} AS {own}" for name, own in columns.items())
    inner = f"(SELECT whose, {compiled.read(ranked.hash)} AS h, {cleaned} FROM {compiled.inner}) AS ranked"
    by = ", ".join(["h", *(f"{own} NULLS FIRST" for own in columns.values())])
    if unit.max_rows_per_group is not None:
        within = ", ".join(["whose", *(columns[name] for name in unit.group)])
        inner = _first(inner, within, by, unit.max_rows_per_group, ["whose", "h", *columns.values()], "grouped")
    return Bounded(_first(inner, "whose", by, unit.max_rows, [*columns.values()], "bounded"), columns)


def _first(relation: str, within: str, by: str, most: int, columns: list[str], name: str) -> str:
    """The first ``most`` rows of ``relation`` in each window."""
    listed = ", ".join(columns)
    placed = f"SELECT {listed}, ROW_NUMBER() OVER (PARTITION BY {within} ORDER BY {by}) AS place FROM {relation}"
    return f"(SELECT {listed} FROM ({placed}) AS placed_{name} WHERE place <= {most}) AS {name}"


def bounded_columns(
    schema: Schema, unit: Unit, columns: Mapping[str, Vector], whose: NDArray[np.int64]
) -> tuple[dict[str, Vector], int]:
    """The cleaned columns with only the rows that count, and how many these are. ``whose``: a code for each unit."""
    ranked = order(schema)
    rows = len(whose)
    values = MemoryEngine(schema, columns, rows).run(ranked.program, 0, rows)
    keys: list[NDArray[Any]] = []
    for step in (ranked.hash, *ranked.columns.values()):
        own, null = values[step]
        own = np.broadcast_to(own, (rows,))
        null = np.broadcast_to(False if null is None else null, (rows,))
        keys += [~null, np.where(null, 0, own)]  # NULL first
    kept: NDArray[np.intp] = np.arange(rows)
    if unit.max_rows_per_group is not None:
        group = [_codes(*columns[name]) for name in unit.group]
        kept = _first_of([whose, *group], keys, unit.max_rows_per_group)
    kept = np.sort(kept[_first_of([whose[kept]], [key[kept] for key in keys], unit.max_rows)])
    chosen = {name: (own[kept], None if null is None else null[kept]) for name, (own, null) in columns.items()}
    return chosen, len(kept)


def readable_twice(source: Any) -> Any:
    """The source itself, or, of an Arrow stream, which can be read once only, its table."""
    known = isinstance(source, np.ndarray | Mapping) or type(source).__name__ == "DataFrame"
    if known or not hasattr(source, "__arrow_c_stream__"):
        return source
    from dodona.engines.frames import whole_table

    return whole_table(source)


def unit_codes(source: Any, unit: Unit) -> NDArray[np.int64]:
    """A whole number for each row's unit, from arrays, data frames and Arrow tables; rows without one share one."""
    try:
        column = source.column(unit.column) if hasattr(source, "column_names") else source[unit.column]
    except (KeyError, IndexError, ValueError, TypeError):
        raise BadTable(f"the data must have the unit column {unit.column!r}, by name.") from None
    if hasattr(column, "dictionary_encode"):  # Arrow
        import pyarrow as pa

        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        require_unit(unit, _arrow_family(plain.type), str(column.type))
        encoded = plain.combine_chunks().dictionary_encode()
        return np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)
    if hasattr(column, "to_physical"):  # Polars
        texts = str(column.dtype).startswith(("String", "Categorical", "Enum"))
        family = "text" if texts else "integer" if column.dtype.is_integer() else "other"
        require_unit(unit, family, str(column.dtype))
        return np.asarray(column.rank("dense").fill_null(0).to_numpy()).astype(np.int64)
    if hasattr(column, "factorize"):  # pandas
        codes, labels = column.factorize()
        require_unit(unit, _array_family(np.asarray(labels)), str(column.dtype))
        return np.asarray(codes).astype(np.int64)
    array = np.ma.asarray(column)
    values, null = np.ma.getdata(array), np.ma.getmaskarray(array)
    require_unit(unit, _array_family(values), str(values.dtype))
    if values.dtype.kind == "O":
        known: dict[Any, int] = {None: -1}
        return np.fromiter((known.setdefault(value, len(known)) for value in values.tolist()), np.int64, len(values))
    _, codes = np.unique(values, return_inverse=True)
    return np.where(null, -1, codes).astype(np.int64)


def _array_family(values: NDArray[Any]) -> str:
    """Of a NumPy array; objects must be texts, whole numbers or None."""
    if values.dtype.kind == "O":
        listed = {type(value) for value in values.tolist()} - {type(None)}
        return "text" if listed <= {str, int} else "other"
    return {"i": "integer", "u": "integer", "U": "text", "T": "text"}.get(values.dtype.kind, "other")


def _arrow_family(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return "integer"
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return "text" if any(test(kind) for test in texts) else "other"


def _codes(values: NDArray[Any], null: NDArray[np.bool_] | None) -> NDArray[Any]:
    """A number for each value, another for NULL."""
    _, codes = np.unique(values, return_inverse=True)
    return codes if null is None else np.where(null, -1, codes)


def _first_of(within: list[NDArray[Any]], by: list[NDArray[Any]], most: int) -> NDArray[np.intp]:
    """The positions of the first ``most`` rows of each window."""
    if not len(within[0]):
        return np.zeros(0, dtype=np.intp)
    sequence = np.lexsort([*reversed(by), *reversed(within)])
    starts = np.ones(len(sequence), dtype=np.bool_)
    starts[1:] = np.any([key[sequence][1:] != key[sequence][:-1] for key in within], axis=0)
    first = np.maximum.accumulate(np.where(starts, np.arange(len(sequence)), 0))
    return sequence[np.arange(len(sequence)) - first < most]
