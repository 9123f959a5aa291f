"""Cleans columns of numbers, all of them for a block of rows at a time, into the rows of one matrix.

A block is read while its cache lines are near: columns of one array share them. The matrix lets the memory engine take
products of many columns at once. A Real is missing where NULL or NaN, and otherwise clipped; an
Integer is missing also where not whole; ``missing`` stands where a column declares it, else the lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.engines.homes import what_instead
from dodona.engines.kernels import Mask, Vector, either
from dodona.engines.memory import letters
from dodona.engines.memory.layout import divided
from dodona.errors import BadTable
from dodona.query.columns import steps_in, steps_of_objects
from dodona.query.program import FATE
from dodona.query.schema import Category, Column, Date, Flag, Integer, Label, Real, Schema, Text, Timestamp

CELLS = 1 << 18  # of a block: two megabytes of doubles

Source = tuple[Real | Integer, NDArray[Any], NDArray[np.bool_] | None]
"""The declared column, its raw numbers, and where they are NULL."""


def cleaned_numbers(sources: Mapping[str, Source], rows: int) -> dict[str, Vector]:
    """The cleaned columns, by name: a row of a matrix each, and its mark of NULL unless it declares what is missing."""
    if not sources:
        return {}
    columns = [column for column, _, _ in sources.values()]
    matrix = np.empty((len(columns), rows))
    nulls = np.empty((len(columns), rows), dtype=np.bool_)
    low, high = (np.array([[getattr(column, end)] for column in columns], dtype=float) for end in ("low", "high"))
    stand_in = np.array([[c.low if c.missing is None else c.missing] for c in columns], dtype=float)
    whole = [i for i, column in enumerate(columns) if isinstance(column, Integer)]
    table = _table([values for _, values, _ in sources.values()])
    height = max(64, CELLS // len(columns))

    @np.errstate(all="ignore")
    def clean(starts: range) -> None:
        for start in starts:
            part = slice(start, start + height)
            numbers, bad = matrix[:, part], nulls[:, part]
            if table is None:
                for i, (_, values, _) in enumerate(sources.values()):
                    numbers[i] = values[part]
            else:
                numbers[:] = table[part].T
            np.isnan(numbers, out=bad)
            for i in whole:
                bad[i] |= numbers[i] != np.floor(numbers[i])
            for i, (_, _, null) in enumerate(sources.values()):
                if null is not None:
                    bad[i] |= null[part]
            np.clip(numbers, low, high, out=numbers)
            np.copyto(numbers, stand_in, where=bad)

    divided(clean, range(0, rows, height))
    # The mark depends on the schema alone: time must not tell whether any row is missing (HOSTILE R1).
    return {
        name: (matrix[i], nulls[i] if column.missing is None else None)
        for i, (name, (column, _, _)) in enumerate(sources.items())
    }


def _table(arrays: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The array of which these are all the columns, in order, if they are: then a block of it is read at once."""
    whole = arrays[0].base if arrays else None
    if not isinstance(whole, np.ndarray) or whole.ndim != 2 or whole.shape[1] != len(arrays):
        return None
    alike = all(
        array.__array_interface__["data"] == whole[:, i].__array_interface__["data"]
        and (array.dtype, array.shape, array.strides) == (whole.dtype, whole.shape[:1], whole.strides[:1])
        for i, array in enumerate(arrays)
    )
    return whole if alike else None


# Cleans raw columns into vectors for the memory engine: from NumPy, pandas, Polars and anything that speaks Arrow.
#
# Meaning (``schema.py``): a Real is missing where NULL or NaN, and otherwise clipped; an Integer is missing also where
# not whole; a Category is the position among its values, missing where it is none of them; a Flag is a
# boolean or exactly 0 or 1; a Date or Timestamp is the whole number of its steps (``query/columns.py``). A declared
# ``missing`` replaces what is missing. No row can raise: what is refused is refused for the column's type alone.


class Raw(NamedTuple):
    """A raw column. ``family``: float, integer, boolean, moment (dates and times), text or listed (objects).

    Text and listed objects come already as positions among the category's values, NaN where they are none of them, and
    below 0 where there is nothing; what is declared a date or time comes as its whole steps, and open texts as a matrix
    of their characters (``letters.py``).
    """

    family: str
    kind: str
    values: NDArray[Any]
    null: Mask


def require_physical(name: str, column: Column, family: str, kind: str) -> None:
    """Refuses a column whose stored type cannot hold what the schema declares."""
    numbers = {"float", "integer", "decimal", "boolean"}
    fits = numbers
    if isinstance(column, Date | Timestamp):
        fits = {"moment", "text"}
    elif isinstance(column, Category):
        by_label: dict[type, set[str]] = {str: {"text"}, int: numbers - {"boolean"}, bool: numbers}
        fits = by_label[type(column.values[0])]
    elif isinstance(column, Text):
        fits = {"text"}
    if family not in fits and not (family == "listed" and isinstance(column, Category)):
        stored = " or ".join(sorted(fits)).replace("moment", "date or timestamp")
        raise BadTable(f"column {name!r} is declared {column.kind} and must be stored as {stored}. Got {kind}.")


def read_columns(source: Any, schema: Schema) -> tuple[dict[str, Vector], int]:
    """The cleaned columns of the schema, in its order, and the number of rows; other columns are left alone."""
    return _cleaned(*_read(source, schema), schema)


def read_told(source: Any, schema: Schema) -> tuple[dict[str, Vector], int, dict[str, Vector]]:
    """The same, and what cleaning does to each value (``program.FATES``), a byte each, by ``FATE`` and the column's
    name.
    """
    raws, rows = _read(source, schema)
    columns, _ = _cleaned(raws, rows, schema)
    numbers = {name: c for name, c in schema.items() if isinstance(c, Real | Integer)}
    told = _number_fates({name: (c, raws[name].values, raws[name].null) for name, c in numbers.items()}, rows)
    told |= {name: _fate(c, raws[name]).astype(np.int8) for name, c in schema.items() if name not in numbers}
    return columns, rows, {FATE + name: (told[name], None) for name in schema}


def _read(source: Any, schema: Schema) -> tuple[dict[str, Raw], int]:
    try:
        return _raws(source, schema)
    except UnicodeDecodeError:
        raise BadTable("the texts of a table must be UTF-8. Got one that is not.") from None


def _cleaned(raws: Mapping[str, Raw], rows: int, schema: Schema) -> tuple[dict[str, Vector], int]:
    for name, column in schema.items():
        require_physical(name, column, raws[name].family, raws[name].kind)
    declared = {name: c for name, c in schema.items() if isinstance(c, Real | Integer)}
    numbers = cleaned_numbers({name: (c, raws[name].values, raws[name].null) for name, c in declared.items()}, rows)
    listed = {name: clean(c, raws[name]) for name, c in schema.items() if isinstance(c, Flag | Category)}
    texts = {name: _read_text(c, raws[name]) for name, c in schema.items() if isinstance(c, Text)}
    return {name: (numbers | listed | texts)[name] for name in schema}, rows


def _read_text(column: Text, raw: Raw) -> Vector:
    assert raw.null is not None, "texts come with a mark of where there are none"
    return letters.cleaned(column, raw.values, raw.null)


def _number_fates(sources: Mapping[str, Source], rows: int) -> dict[str, NDArray[np.int8]]:
    """Of numbers, piece by piece on all cores."""
    found = {name: np.empty(rows, dtype=np.int8) for name in sources}

    @np.errstate(all="ignore")
    def tell(starts: range) -> None:
        for start in starts:
            part = slice(start, start + CELLS)
            for name, (column, values, null) in sources.items():
                numbers, own = values[part].astype(np.float64), found[name][part]
                bad = np.isnan(numbers)
                bad |= numbers != np.floor(numbers) if isinstance(column, Integer) else False
                bad |= False if null is None else null[part]
                np.multiply(numbers > column.high, 2, out=own, casting="unsafe")
                own += numbers < column.low
                np.copyto(own, 4, where=bad)

    divided(tell, range(0, rows, CELLS))
    return found


def _fate(column: Column, raw: Raw) -> NDArray[np.float64]:
    """Of all else."""
    values, null = raw.values, np.zeros(len(raw.values), dtype=np.bool_) if raw.null is None else raw.null
    if isinstance(column, Text):
        return np.where(null, 4.0, np.where(letters.too_long(column, values), 2.0, 0.0))
    assert isinstance(column, Flag | Category), "numbers are told in pieces"
    coded = raw.family in ("text", "listed") or (raw.family == "boolean" and values.dtype.kind == "f")
    if coded:  # positions already; below 0 where there was nothing
        missing, listed = null | (values < 0), values >= 0
        if isinstance(column, Category) and column.cleaning.other is not None:
            listed &= values < len(column.values)  # others have the place after the last
    else:
        missing = null | np.isnan(values) if values.dtype.kind == "f" else null
        known = (
            (values == 0) | (values == 1) if isinstance(column, Flag) else ~np.isnan(_positions(values, column.values))
        )
        listed = np.asarray(known)
    return np.where(missing, 4.0, np.where(listed, 0.0, 3.0))


def clean(column: Flag | Category, raw: Raw) -> Vector:
    """One cleaned column of truths or positions."""
    values, null = raw.values, raw.null
    if isinstance(column, Flag):
        true, false = np.asarray(values == 1), np.asarray(values == 0)
        return _filled(true, either(null, ~(true | false)), column.missing, False)
    codes = values if raw.family in ("text", "listed") else _positions(values, column.values)
    if column.cleaning.other is not None:
        other = float(column.values.index(column.cleaning.other))
        absent = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=np.bool_)
        codes = np.where(np.isnan(codes) & ~absent | (codes >= len(column.values)), other, codes)
    missing = None if column.missing is None else float(column.values.index(column.missing))
    return _filled(codes, either(null, ~(codes >= 0)), missing, 0.0)


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
    """Positions of texts or objects among the labels, -1 where there is nothing, NaN for anything else; the loop is the
    interpreter's ``map``.
    """
    table: dict[Any, float] = {label: float(i) for i, label in enumerate(labels)} | {None: -1.0, np.nan: -1.0}
    try:
        return np.fromiter(map(table.get, values, repeat(np.nan)), np.float64, len(values))
    except TypeError:
        return np.fromiter((_found(table, value) for value in values), np.float64, len(values))


def _found(table: Mapping[Any, float], value: Any) -> float:
    """What is unhashable is no label; all others are what they are in any company."""
    try:
        return table.get(value, np.nan)
    except TypeError:
        return np.nan


def read_texts(values: Sequence[Any], column: Column) -> NDArray[np.float64]:
    """What texts, or objects, are of a column: positions among its labels, or steps of its dates; NaN for the rest."""
    if isinstance(column, Date | Timestamp):
        return steps_of_objects(values, column)
    if not isinstance(column, Category) or not isinstance(column.values[0], str):
        return positions_of_text(values, ())
    return positions_in(values, column)


def positions_in(values: Sequence[Any], column: Category) -> NDArray[np.float64]:
    """Of what cleaning leaves, as ``positions_of_text``; where there is an ``other``, the rest come after the last."""
    cleaning, labels = column.cleaning, column.values
    codes = cleaning.codes(labels)
    if cleaning.changes_texts:
        values = [cleaning.text(value) if isinstance(value, str) else value for value in values]
    found = positions_of_text(values, [*codes])
    places = np.array([*codes.values(), -1.0], dtype=np.float64)
    found = np.where(found >= 0, places[np.where(found >= 0, found, -1).astype(np.intp)], found)
    return found if cleaning.other is None else np.where(np.isnan(found), float(len(labels)), found)


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
        from dodona.engines.memory import frames

        return getattr(frames, f"from_{module}")(source, schema)  # type: ignore[no-any-return]
    if isinstance(source, Mapping):
        return _arrays(source, schema)
    if module == "pyarrow" or hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        from dodona.engines.memory import frames

        return frames.from_arrow(source, schema)
    raise BadTable(f"rows must be in a file, arrays or a frame. Got {type(source).__name__}: {what_instead(source)}.")


def one_by_one(source: Mapping[Any, Any], schema: Schema) -> dict[Any, Any]:
    """Lists as arrays in which each value is what it is by itself.

    NumPy finds one type for all that a list holds, and a single row decides which: beside one text all numbers are
    texts, beside one fraction whole ones are rounded, and a NUL at the end of a text is dropped.
    """
    return {
        name: _listed(values, schema.get(name)) if isinstance(values, list | tuple) else values
        for name, values in source.items()
    }


def _listed(values: Sequence[Any], column: Column | None) -> NDArray[Any]:
    kinds = set(map(type, values))
    numeric = isinstance(column, Real | Integer) and not isinstance(column, Date | Timestamp)
    if numeric and all(kind is type(None) or issubclass(kind, Number) for kind in kinds):
        return np.fromiter(map(_double, values), np.float64, len(values))
    if kinds <= {float} or kinds <= {bool} or (kinds <= {str} and not any(text.endswith("\0") for text in values)):
        return np.asarray(values)
    if kinds <= {int} and all(-(2**63) <= value < 2**63 for value in values):
        return np.asarray(values, dtype=np.int64)
    plain = (None if isinstance(value, float) and np.isnan(value) else value for value in values)
    return np.fromiter(plain, dtype=np.object_, count=len(values))


def _double(value: Any) -> float:
    """The nearest double; a number beyond all of them is infinite, one that has none is missing."""
    try:
        return np.nan if value is None else float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
    except (TypeError, ValueError):
        return np.nan


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
    if isinstance(column, Date | Timestamp):
        steps = steps_in(values, column)
        return Raw(
            "other" if steps is None else "moment", kind, np.zeros(len(values)) if steps is None else steps, null
        )
    if values.dtype.kind == "O" and isinstance(column, Flag):  # booleans with None among them
        return Raw("boolean", kind, positions_of_text(values.tolist(), (False, True)), null)
    if values.dtype.kind == "O" and isinstance(column, Category):
        return Raw("listed", kind, positions_in(values.tolist(), column), null)
    if isinstance(column, Text) and family == "text":
        codes, absent = letters.stored(values.tolist(), column)
        return Raw("text", kind, codes, absent if null is None else absent | null)
    if family == "text":
        family = family if values.dtype.kind != "O" else "other"
        return Raw(family, kind, read_texts(values.tolist(), column), null)
    return Raw(family, kind, values, null)
