"""Raw columns out of pandas, Polars and Arrow, and such tables joined on whose rows they are: of each person every row
of one beside every one of the others. Each library is imported only when its data is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Link, Part
from dodona.engines.homes import what_instead
from dodona.engines.kernels import Vector
from dodona.engines.memory import letters
from dodona.engines.memory.columns import Raw, from_array, positions_of_text, present, read_texts, whole_labels
from dodona.engines.units import require_alike
from dodona.errors import BadTable, Unsupported
from dodona.query.columns import NANOSECONDS, steps_of
from dodona.query.schema import Column, Date, Schema, Text, Timestamp

Look = Callable[[list[Any]], Any]
"""From distinct values to numbers, NaN for what is missing."""


def from_pandas(frame: Any, schema: Schema) -> tuple[dict[str, Raw], int]:
    """A pandas DataFrame."""
    present(list(frame.columns), schema)
    if not frame.columns.is_unique:
        raise BadTable("the columns of a data frame must have different names.")
    return {name: _series(frame[name], column) for name, column in schema.items()}, len(frame)


def _series(series: Any, column: Column) -> Raw:
    import pandas as pd

    dtype, types = series.dtype, pd.api.types
    if isinstance(column, Text) and isinstance(dtype, pd.StringDtype):
        return Raw("text", str(dtype), *letters.stored(series.tolist(), column))
    if isinstance(dtype, pd.CategoricalDtype):
        return _taken(_series(dtype.categories.to_series(), column), series.cat.codes.to_numpy(), "category")
    if isinstance(dtype, pd.StringDtype):
        return Raw("text", str(dtype), read_texts(series.tolist(), column), series.isna().to_numpy())
    if isinstance(dtype, np.dtype):
        return from_array(series.to_numpy(), column)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return from_array(series.dt.tz_convert(None).to_numpy(), column)
    null = series.isna().to_numpy()
    if types.is_bool_dtype(dtype):
        return Raw("boolean", str(dtype), series.to_numpy(dtype=bool, na_value=False), null)
    if types.is_integer_dtype(dtype):
        wide = np.uint64 if types.is_unsigned_integer_dtype(dtype) else np.int64
        return Raw("integer", str(dtype), series.to_numpy(dtype=wide, na_value=0), null)
    if types.is_float_dtype(dtype):
        return Raw("float", str(dtype), series.to_numpy(dtype=np.float64, na_value=np.nan), null)
    if isinstance(dtype, pd.ArrowDtype):
        return _arrow(series.array.__arrow_array__(), column)
    return Raw("other", str(dtype), np.zeros(len(series)), None)


def _taken(listed: Raw, codes: Any, kind: str) -> Raw:
    """A dictionary-encoded column: what the codes stand for; a negative code is NULL."""
    null = codes < 0
    if len(listed.values) == 0:
        none = np.zeros((len(codes), *listed.values.shape[1:]), listed.values.dtype)
        return Raw(listed.family, kind, none, np.ones(len(codes), bool))
    at = np.where(null, 0, codes)
    return Raw(listed.family, kind, listed.values[at], null if listed.null is None else null | listed.null[at])


def from_polars(frame: Any, schema: Schema) -> tuple[dict[str, Raw], int]:
    """A Polars DataFrame."""
    present(frame.columns, schema)
    return {name: _polars(frame[name], column) for name, column in schema.items()}, frame.height


def _polars(series: Any, column: Column) -> Raw:
    import polars as pl

    dtype = series.dtype
    if isinstance(column, Text) and (dtype == pl.String or isinstance(dtype, pl.Enum | pl.Categorical)):
        return Raw("text", str(dtype), *letters.stored(series.cast(pl.String).to_list(), column))
    if dtype in (pl.String, pl.Categorical) or isinstance(dtype, pl.Enum | pl.Categorical):
        return Raw(
            "text", str(dtype), _looked_up(series.cast(pl.String), lambda texts: read_texts(texts, column)), None
        )
    if isinstance(dtype, pl.Decimal) and whole_labels(column):
        return Raw(
            "listed",
            str(dtype),
            _looked_up(series, lambda numbers: positions_of_text(numbers, whole_labels(column))),
            None,
        )
    null = series.is_null().to_numpy() if series.null_count() else None
    if isinstance(column, Date | Timestamp) and (dtype == pl.Date or isinstance(dtype, pl.Datetime)):
        unit = NANOSECONDS["D" if dtype == pl.Date else dtype.time_unit]  # a zone is only shown: counts are of UTC
        return Raw("moment", str(dtype), steps_of(series.to_physical().fill_null(0).to_numpy(), unit, column), null)
    if isinstance(dtype, pl.Decimal):
        series, dtype = series.cast(pl.String).cast(pl.Float64), pl.Float64  # correctly rounded
    if dtype == pl.Boolean:
        return Raw("boolean", str(dtype), series.fill_null(False).to_numpy(), null)
    if dtype.is_integer() and dtype not in (pl.Int128,):
        return Raw("integer", str(dtype), series.fill_null(0).to_numpy(), null)
    if dtype.is_float():
        return Raw("float", str(dtype), series.fill_null(float("nan")).to_numpy(), null)
    return Raw("other", str(dtype), np.zeros(len(series)), None)


def _looked_up(series: Any, look: Look) -> Any:
    """What each value is; distinct values are few, and each is looked up once."""
    import polars as pl

    unique = series.unique()
    table = pl.DataFrame({"value": unique, "at": look(unique.to_list())})
    found = pl.DataFrame({"value": series}).join(table, on="value", how="left", maintain_order="left")["at"]
    return found.fill_null(float(look([None])[0])).to_numpy()  # NULL is equal to nothing


def from_arrow(source: Any, schema: Schema) -> tuple[dict[str, Raw], int]:
    """An Arrow table, record batch, reader, or anything that exports an Arrow stream."""
    table = whole_table(source)
    present(table.column_names, schema)
    if len(set(table.column_names)) < len(table.column_names):
        raise BadTable("the columns of a table must have different names.")
    return {name: _arrow(table.column(name), column) for name, column in schema.items()}, table.num_rows


def whole_table(source: Any) -> Any:
    """The Arrow table of a source; a stream can be read once only: here, to its end."""
    try:
        import pyarrow as pa
    except ImportError:
        raise BadTable("Arrow data needs pyarrow: pip install dodona[arrow].") from None
    try:
        if isinstance(source, pa.RecordBatchReader):
            return source.read_all()
        return source if isinstance(source, pa.Table) else pa.table(source)
    except Exception:  # whatever a source of someone else's says may quote rows
        raise BadTable(
            f"Arrow data must be a table, or a stream readable to its end. Got {type(source).__name__}: "
            f"{what_instead(source)}."
        ) from None


def _arrow(array: Any, column: Column) -> Raw:
    import pyarrow as pa

    kind, types = array.type, pa.types
    if isinstance(array, pa.Array):
        array = pa.chunked_array([array])
    if types.is_dictionary(kind):
        array, kind = array.cast(kind.value_type), kind.value_type
    shown = str(kind)
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if isinstance(column, Text) and texts:
        return Raw("text", shown, *letters.stored(array.to_pylist(), column))
    if texts:
        return Raw(
            "text", shown, _encoded(array.cast(pa.large_string()), lambda texts: read_texts(texts, column)), None
        )
    if types.is_decimal(kind) and whole_labels(column):
        wide = pa.decimal256 if types.is_decimal256(kind) else pa.decimal128  # narrower ones cannot be encoded
        plain = array.cast(wide(kind.precision, kind.scale))
        return Raw(
            "listed", shown, _encoded(plain, lambda numbers: positions_of_text(numbers, whole_labels(column))), None
        )
    null = np.asarray(array.is_null()) if array.null_count else None
    if isinstance(column, Date | Timestamp) and (types.is_date(kind) or types.is_timestamp(kind)):
        unit = NANOSECONDS["D" if types.is_date32(kind) else "ms" if types.is_date64(kind) else kind.unit]
        counts = np.asarray(array.cast(pa.int32() if types.is_date32(kind) else pa.int64()).fill_null(0))
        return Raw("moment", shown, steps_of(counts, unit, column), null)
    if types.is_decimal(kind):
        array, kind = array.cast(pa.string()).cast(pa.float64()), pa.float64()  # correctly rounded
    if types.is_boolean(kind):
        return Raw("boolean", shown, np.asarray(array.fill_null(False)).astype(bool), null)
    if types.is_integer(kind):
        return Raw("integer", shown, np.asarray(array.fill_null(0)), null)
    if types.is_floating(kind):
        return Raw("float", shown, np.asarray(array.cast(pa.float64()).fill_null(float("nan"))), null)
    return Raw("other", shown, np.zeros(len(array)), None)


def arrow_vector(array: Any) -> Vector:
    """NumPy's view of an Arrow array of cleaned doubles or booleans; NULL computes as 0."""
    import pyarrow as pa

    # The mark is made even if nothing is NULL: time must not tell whether a row is (HOSTILE R1).
    filled = array.fill_null(pa.scalar(0, pa.int8()).cast(array.type))
    return filled.to_numpy(zero_copy_only=False), array.is_null().to_numpy(zero_copy_only=False)


def _encoded(array: Any, look: Look) -> Any:
    """What each value is; each distinct one is looked up once."""
    chunks = [_indices(chunk, look) for chunk in array.dictionary_encode().unify_dictionaries().chunks]
    return np.concatenate(chunks or [np.zeros(0)])


def _indices(chunk: Any, look: Look) -> Any:
    at = look(chunk.dictionary.to_pylist())
    codes = np.asarray(chunk.indices.fill_null(len(at)))
    return np.append(at, look([None]))[codes]


def join_rows(parts: Sequence[Part]) -> Any:
    """The rows of all, side by side, as an Arrow table; ids are equal as whole numbers, or as texts byte by byte."""
    pa = _pyarrow()
    ids, kind = _ids([(part.given, part.unit) for part in parts])
    tables = _tables(parts)
    codes = _codes(ids)
    found = [np.arange(tables[0].num_rows)]
    for code, part in zip(codes[1:], parts[1:], strict=True):
        place, other = _matched(codes[0][found[0]], code, part.outer)
        found = [*(rows[place] for rows in found), other]
    made: dict[str, Any] = {parts[0].unit: ids[0].take(pa.array(found[0]))}
    for table, rows, part in zip(tables, found, parts, strict=True):
        at = pa.array(rows, mask=rows < 0)
        made |= {called: table.column(name).take(at) for name, called in part.names.items()}
    return pa.table(made).replace_schema_metadata({_IDS: kind})


def lead_rows(first: Part, links: Sequence[Link]) -> Any:
    """The rows of the first, each once for everyone whom its key leads to (``engines/engine.py``)."""
    pa = _pyarrow()
    names = [first.unit, *(link.leads for link in links)]
    held = [first.given, *(link.given for link in links)]
    hops = [_codes(_ids([(held[i], names[i]), (link.given, link.key)])[0]) for i, link in enumerate(links)]
    (whose,), kind = _ids([(held[-1], names[-1])])
    begin = end = np.arange(len(hops[0][1]))  # of each way through the links: its row in the first, and in the last
    for left, right in hops[1:]:
        place, other = _matched(left[end], right, outer=False)
        begin, end = begin[place], other
    people = _codes([whose])[0]
    keys, rows = hops[0][1][begin], end
    _, single = np.unique(np.stack([keys, people[rows]]), axis=1, return_index=True)
    place, other = _matched(hops[0][0], keys[single], outer=False)
    table, at = _tables([first])[0], pa.array(place)
    made: dict[str, Any] = {names[-1]: whose.take(pa.array(rows[single][other]))}
    made |= {called: table.column(name).take(at) for name, called in first.names.items()}
    return pa.table(made).replace_schema_metadata({_IDS: kind})


def stack_rows(parts: Sequence[Part]) -> Any:
    """The rows of all, one table below another, as an Arrow table."""
    pa, first, made = _pyarrow(), parts[0], list[Any]()
    ids, told = _ids([(part.given, part.unit) for part in parts])
    for part, table, own in zip(parts, _tables(parts), ids, strict=True):
        made.append(pa.table({first.unit: own} | {called: table.column(n) for n, called in part.names.items()}))
    for name in first.names.values():
        kinds = {str(table.schema.field(name).type) for table in made} - {"null"}
        if len(kinds) > 1 and not all("int" in kind for kind in kinds):
            raise BadTable(
                f"tables below each other must store a column alike. {name} is {' and '.join(sorted(kinds))}: store it "
                "as one type."
            )
    whole = pa.concat_tables([table.select(made[0].column_names) for table in made], promote_options="permissive")
    return whole.replace_schema_metadata({_IDS: told})


_IDS = b"dodona.ids"  # stands in the schema of a table whose ids were named already, with what they are


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise Unsupported("joining tables in memory needs pyarrow: pip install dodona[arrow].") from None
    return pyarrow


def _ids(columns: Sequence[tuple[Any, str]]) -> tuple[list[Any], str]:
    """Columns of ids, in which whole numbers and texts are apart, and what they are, where their types say so; refused
    where these are not alike.
    """
    pa = _pyarrow()
    named = [_named(given, column) for given, column in columns]
    require_alike([(column, kind) for (_, column), (_, kind) in zip(columns, named, strict=True) if kind])
    kinds = [kind for _, kind in named if kind]
    return [pa.chunked_array([pa.array(own, pa.large_string())]) for own, _ in named], (kinds or [""])[0]


def _tables(parts: Sequence[Part]) -> list[Any]:
    """The columns that the parts name, as Arrow tables."""
    import pyarrow as pa

    try:
        return [_as_arrow(part.given, part.names) for part in parts]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # which would say a value
        raise BadTable("columns of tables that are joined must each hold values of one type: store them so.") from None


def _as_arrow(source: Any, names: Iterable[str]) -> Any:
    """These columns of a source."""
    import pyarrow as pa

    if isinstance(source, np.ndarray | Mapping):
        return pa.table({name: _array(source[name]) for name in names})
    if type(source).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(source[list(names)], preserve_index=False)
    return whole_table(source).select(list(names))


def _array(values: Any) -> Any:
    import pyarrow as pa

    masked = np.ma.asarray(values)
    plain, null = np.ma.getdata(masked), np.ma.getmaskarray(masked)
    return pa.array(plain.tolist() if plain.dtype.kind in "UT" else plain, mask=null if null.any() else None)


def _named(source: Any, unit: str) -> tuple[list[str | None], str]:
    """Ids as texts, in which whole numbers are apart from texts; and what all of them are, where their type says so:
    where it does not, what each is says it, and nothing is refused for what one row holds.
    """
    if isinstance(source, np.ndarray | Mapping):
        masked = np.ma.asarray(source[unit])
        listed, dtype = masked.tolist(), str(np.ma.getdata(masked).dtype)
    elif type(source).__module__.partition(".")[0] == "pandas":
        column, dtype = source[unit], str(source[unit].dtype)
        listed = [None if void else x for x, void in zip(column.tolist(), column.isna().tolist(), strict=True)]
    else:
        table = whole_table(source)
        column = table.column(unit)
        listed, dtype = column.to_pylist(), str(column.type)
        told = (table.schema.metadata or {}).get(_IDS)
        if told is not None:
            return listed, told.decode()
    mixed = dtype in ("object", "category")
    kind = "" if mixed else "whole numbers" if "int" in dtype.lower() and "str" not in dtype else "text"
    return [_tagged(x) for x in listed], kind


def _tagged(value: Any) -> str | None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:  # half a surrogate pair, which Arrow does not hold
            return f"x{value.encode('utf-8', 'surrogatepass').hex()}"
        return f"t{value}"
    return f"i{value}" if isinstance(value, int | np.integer) else None


def _codes(ids: Sequence[Any]) -> list[NDArray[np.int64]]:
    """A number for each id, the same in all tables; below 0 for none."""
    import pyarrow as pa

    whole = pa.chunked_array([chunk for own in ids for chunk in own.chunks], pa.large_string())
    encoded = whole.combine_chunks().dictionary_encode()
    flat = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)
    return np.split(flat, np.cumsum([len(own) for own in ids])[:-1])


def _matched(left: NDArray[np.int64], right: NDArray[np.int64], outer: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pairs of places whose codes are equal; with ``outer`` also left ones alone, beside -1."""
    order = np.argsort(right, kind="stable")
    ranked = right[order]
    start = np.searchsorted(ranked, left, side="left")
    count = np.where(left < 0, 0, np.searchsorted(ranked, left, side="right") - start)
    kept = np.maximum(count, 1) if outer else count
    place = np.repeat(np.arange(len(left)), kept)
    step = np.arange(len(place)) - np.repeat(np.cumsum(kept) - kept, kept)
    alone = np.repeat(count, kept) == 0
    at = np.where(alone, 0, np.repeat(start, kept) + step)
    return place, np.where(alone, -1, order[at] if len(order) else -1)
