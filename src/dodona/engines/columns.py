"""Cleans raw columns into vectors for the memory engine: from NumPy, pandas, Polars and anything that speaks Arrow.

Meaning (``schema.py``): a Real is missing where NULL, NaN or infinite, and otherwise clipped; an Integer is missing
also where not whole; a Category is the position among its values, missing where it is none of them; a Flag is a
boolean or exactly 0 or 1. A declared ``missing`` replaces what is missing. No row can raise: what is refused is refused
for the column's type alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.engines.cleaning import cleaned_numbers
from dodona.engines.kernels import Mask, Vector, either
from dodona.errors import BadTable
from dodona.query.schema import Category, Column, Flag, Integer, Label, Real, Schema


class Raw(NamedTuple):
    """A raw column. ``family``: float, integer, boolean, text or listed (objects).

    Text and listed objects come already as positions among the category's values, NaN where they are none of them.
    """

    family: str
    kind: str
    values: NDArray[Any]
    null: Mask


def require_physical(name: str, column: Column, family: str, kind: str) -> None:
    """Refuses a column whose stored type cannot hold what the schema declares."""
    numbers = {"float", "integer", "decimal", "boolean"}
    fits = numbers
    if isinstance(column, Category):
        by_label: dict[type, set[str]] = {str: {"text"}, int: numbers - {"boolean"}, bool: numbers}
        fits = by_label[type(column.values[0])]
    if family not in fits and not (family == "listed" and isinstance(column, Category)):
        raise BadTable(
            f"column {name!r} is declared {column.kind} and must be stored as {' or '.join(sorted(fits))}. Got {kind}."
        )


def read_columns(source: Any, schema: Schema) -> tuple[dict[str, Vector], int]:
    """The cleaned columns of the schema, in its order, and the number of rows; other columns are left alone."""
    try:
        raws, rows = _raws(source, schema)
    except UnicodeDecodeError:
        raise BadTable("the texts of a table must be UTF-8. Got one that is not.") from None
    for name, column in schema.items():
        require_physical(name, column, raws[name].family, raws[name].kind)
    declared = {name: c for name, c in schema.items() if isinstance(c, Real | Integer)}
    numbers = cleaned_numbers({name: (c, raws[name].values, raws[name].null) for name, c in declared.items()}, rows)
    listed = {name: clean(c, raws[name]) for name, c in schema.items() if isinstance(c, Flag | Category)}
    return {name: (numbers | listed)[name] for name in schema}, rows


def clean(column: Flag | Category, raw: Raw) -> Vector:
    """One cleaned column of truths or positions."""
    values, null = raw.values, raw.null
    if isinstance(column, Flag):
        true, false = np.asarray(values == 1), np.asarray(values == 0)
        return _filled(true, either(null, ~(true | false)), column.missing, False)
    codes = values if raw.family in ("text", "listed") else _positions(values, column.values)
    missing = None if column.missing is None else float(column.values.index(column.missing))
    return _filled(codes, either(null, np.isnan(codes)), missing, 0.0)


def _filled(values: NDArray[Any], null: Mask, missing: Any, stand_in: Any) -> Vector:
    """``missing`` in place of NULL; under a NULL mark a value that computes."""
    null = np.zeros(len(values), dtype=np.bool_) if null is None else null
    filled = np.where(null, stand_in if missing is None else missing, values)
    # The mark depends on the schema alone: time must not tell whether any row is missing (HOSTILE R1).
    return filled, null if missing is None else None


def _positions(values: NDArray[Any], labels: Sequence[Label]) -> NDArray[np.float64]:
    """Positions of numbers among whole (or true/false) labels, NaN where none; equality is exact."""
    order = sorted(range(len(labels)), key=lambda i: int(labels[i]))
    wanted = [int(labels[i]) for i in order]
    if values.dtype.kind == "f":
        values = values.astype(np.result_type(values.dtype, np.float64))
        held = values.dtype.type
        kept = [(w, i) for w, i in zip(wanted, order, strict=True) if abs(w) < 2**1000 and int(held(w)) == w]
    else:
        info = np.iinfo(np.uint8 if values.dtype.kind == "b" else values.dtype)
        kept = [(w, i) for w, i in zip(wanted, order, strict=True) if info.min <= w <= info.max]
    if not kept:
        return np.full(len(values), np.nan)
    table = np.array([w for w, _ in kept], dtype=np.uint8 if values.dtype.kind == "b" else values.dtype)
    at = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return np.where(table[at] == values, np.array([float(i) for _, i in kept])[at], np.nan)


def positions_of_text(values: Sequence[Any], labels: Sequence[Label]) -> NDArray[np.float64]:
    """Positions of texts or objects among the labels, NaN for anything else; the loop is the interpreter's ``map``."""
    table: dict[Any, float] = {label: float(i) for i, label in enumerate(labels)}
    try:
        return np.fromiter(map(table.get, values, repeat(np.nan)), np.float64, len(values))
    except TypeError:  # what is unhashable is no label
        known = [value if isinstance(value, str | int | float) else None for value in values]
        return np.fromiter(map(table.get, known, repeat(np.nan)), np.float64, len(values))


def labels_of(column: Column) -> Sequence[Label]:
    """The texts a column may hold; none unless it is a category of texts."""
    return column.values if isinstance(column, Category) and isinstance(column.values[0], str) else ()


def whole_labels(column: Column) -> Sequence[Label]:
    """The whole numbers a category may hold; none unless it is one of them. Decimals are looked up among them as they
    are: made doubles, those beyond 2^53 would be taken for one another.
    """
    return column.values if isinstance(column, Category) and type(column.values[0]) is int else ()


# -- sources -------------------------------------------------------------------------------------------------------


def _raws(source: Any, schema: Schema) -> tuple[dict[str, Raw], int]:
    module = type(source).__module__.partition(".")[0]
    if isinstance(source, np.ndarray) and source.dtype.names is not None:
        return _arrays({name: source[name] for name in source.dtype.names}, schema)
    if isinstance(source, np.ndarray):
        if source.ndim != 2 or source.shape[1] != len(schema):
            raise BadTable(f"an array must have {len(schema)} columns, as the schema. Got shape {source.shape}.")
        return _arrays({name: source[:, i] for i, name in enumerate(schema)}, schema)
    if module in ("pandas", "polars") and type(source).__name__ == "DataFrame":
        from dodona.engines import frames

        return getattr(frames, f"from_{module}")(source, schema)  # type: ignore[no-any-return]
    if isinstance(source, Mapping):
        return _arrays(source, schema)
    if module == "pyarrow" or hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        from dodona.engines import frames

        return frames.from_arrow(source, schema)
    raise BadTable(
        f"rows must be an array, a mapping of arrays, a data frame or Arrow data. Got {type(source).__name__}."
    )


def present(names: Any, schema: Schema) -> None:
    """Refuses data without a column of the schema."""
    for name in schema:
        if name not in names:
            raise BadTable(f"the data must have column {name!r}. It has {', '.join(map(str, names))}.")


def _arrays(source: Mapping[Any, Any], schema: Schema) -> tuple[dict[str, Raw], int]:
    present(list(source), schema)
    arrays = {
        name: np.ma.asarray(source[name]) if np.ma.isMA(source[name]) else np.asarray(source[name]) for name in schema
    }
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) != 1 or any(len(shape) != 1 for shape in shapes):
        raise BadTable(f"columns must be one-dimensional and of one length. Got shapes {sorted(map(str, shapes))}.")
    return {name: from_array(array, schema[name]) for name, array in arrays.items()}, next(iter(shapes))[0]


def from_array(array: Any, column: Column) -> Raw:
    """A one-dimensional NumPy array. Objects can only be flags or a category's values: numbers have number types."""
    null = np.ma.getmaskarray(array) if np.ma.isMA(array) else None
    values = np.ma.getdata(array) if null is not None else array
    family = {"b": "boolean", "i": "integer", "u": "integer", "f": "float", "U": "text", "T": "text", "O": "text"}.get(
        values.dtype.kind, "other"
    )
    kind = str(values.dtype)
    if values.dtype.kind == "O" and isinstance(column, Flag):  # booleans with None among them
        return Raw("boolean", kind, positions_of_text(values.tolist(), (False, True)), null)
    if values.dtype.kind == "O" and isinstance(column, Category):
        return Raw("listed", kind, positions_of_text(values.tolist(), column.values), null)
    if family == "text":
        family = family if values.dtype.kind != "O" else "other"
        return Raw(family, kind, positions_of_text(values.tolist(), labels_of(column)), null)
    return Raw(family, kind, values, null)
