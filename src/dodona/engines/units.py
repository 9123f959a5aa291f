"""Whose rows they are, as sources in memory say it: a whole number for each row's unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadTable
from dodona.query.unit import Unit


def require_unit(unit: Unit, family: str, kind: str) -> None:
    """Refuses a unit column whose equality is not plain."""
    if family not in ("integer", "text", "csv"):
        raise BadTable(
            f"the unit column {unit.column!r} must hold whole numbers or text. Got {kind}: store it as one of them."
        )


def require_alike(kinds: Sequence[tuple[str, str]]) -> None:
    """Refuses units of other types in tables that are joined. ``kinds``: each unit's column, whole numbers or text."""
    if len({kind for _, kind in kinds}) > 1:
        listed = ", ".join(f"{column} holds {kind}" for column, kind in kinds)
        raise BadTable(f"whose rows they are must be of one type in all tables. Got {listed}: store them alike.")


def readable_twice(source: Any) -> Any:
    """The source itself, or, of an Arrow stream, which can be read once only, its table."""
    known = isinstance(source, np.ndarray | Mapping) or type(source).__name__ == "DataFrame"
    if known or not hasattr(source, "__arrow_c_stream__"):
        return source
    from dodona.engines.memory.frames import whole_table

    return whole_table(source)


def unit_codes(source: Any, unit: Unit) -> Callable[[], NDArray[np.int64]]:
    """A function that gives a whole number for each row's unit, from arrays, data frames and Arrow tables; rows without
    one share one. What it needs is held or copied now: a source in memory may change later.
    """
    try:
        column = source.column(unit.column) if hasattr(source, "column_names") else source[unit.column]
    except (KeyError, IndexError, ValueError, TypeError):
        raise BadTable(f"the data must have the unit column {unit.column!r}, by name.") from None
    if hasattr(column, "dictionary_encode"):  # Arrow
        return _arrow_codes(column, unit)
    if hasattr(column, "to_physical"):  # Polars
        texts = str(column.dtype).startswith(("String", "Categorical", "Enum"))
        family = "text" if texts else "integer" if column.dtype.is_integer() else "other"
        require_unit(unit, family, str(column.dtype))
        return lambda: np.asarray(column.rank("dense").fill_null(0).to_numpy()).astype(np.int64)
    if hasattr(column, "factorize"):  # pandas
        codes, labels = column.factorize()
        require_unit(unit, _array_family(np.asarray(labels)), str(column.dtype))
        found = np.asarray(codes).astype(np.int64)
        return lambda: found
    array = np.ma.array(column, copy=True)
    values, null = np.ma.getdata(array), np.ma.getmaskarray(array)
    require_unit(unit, _array_family(values), str(values.dtype))
    return lambda: _array_codes(values, null)


def _array_codes(values: NDArray[Any], null: NDArray[np.bool_]) -> NDArray[np.int64]:
    if values.dtype.kind in "OT":  # NumPy takes two texts of kind T for one if they differ after a NUL
        known: dict[Any, int] = {None: -1}
        whose = (value if isinstance(value, str | int) else None for value in values.tolist())
        return np.fromiter((known.setdefault(value, len(known)) for value in whose), np.int64, len(values))
    _, codes = np.unique(values, return_inverse=True)
    return np.where(null, -1, codes).astype(np.int64)


def _arrow_codes(column: Any, unit: Unit) -> Callable[[], NDArray[np.int64]]:
    import pyarrow as pa

    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    require_unit(unit, _arrow_family(plain.type), str(column.type))

    def codes() -> NDArray[np.int64]:
        encoded = plain.combine_chunks().dictionary_encode()
        return np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)

    return codes


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
