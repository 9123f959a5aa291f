"""Raw columns out of pandas, Polars and Arrow; each library is imported only when its data is handed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dodona.engines.columns import Raw, from_array, labels_of, positions_of_text, present, whole_labels
from dodona.errors import BadTable
from dodona.query.schema import Column, Label, Schema


def from_pandas(frame: Any, schema: Schema) -> tuple[dict[str, Raw], int]:
    """A pandas DataFrame."""
    present(list(frame.columns), schema)
    if not frame.columns.is_unique:
        raise BadTable("the columns of a data frame must have different names.")
    return {name: _series(frame[name], column) for name, column in schema.items()}, len(frame)


def _series(series: Any, column: Column) -> Raw:
    import pandas as pd

    dtype, types = series.dtype, pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        return _taken(_series(dtype.categories.to_series(), column), series.cat.codes.to_numpy(), "category")
    if isinstance(dtype, pd.StringDtype):
        return Raw("text", str(dtype), positions_of_text(series.tolist(), labels_of(column)), None)
    if isinstance(dtype, np.dtype):
        return from_array(series.to_numpy(), column)
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
        return Raw(listed.family, kind, np.zeros(len(codes), listed.values.dtype), np.ones(len(codes), bool))
    at = np.where(null, 0, codes)
    return Raw(listed.family, kind, listed.values[at], null if listed.null is None else null | listed.null[at])


def from_polars(frame: Any, schema: Schema) -> tuple[dict[str, Raw], int]:
    """A Polars DataFrame."""
    present(frame.columns, schema)
    return {name: _polars(frame[name], column) for name, column in schema.items()}, frame.height


def _polars(series: Any, column: Column) -> Raw:
    import polars as pl

    dtype = series.dtype
    if dtype in (pl.String, pl.Categorical) or isinstance(dtype, pl.Enum | pl.Categorical):
        return Raw("text", str(dtype), _looked_up(series.cast(pl.String), labels_of(column)), None)
    if isinstance(dtype, pl.Decimal) and whole_labels(column):
        return Raw("listed", str(dtype), _looked_up(series, whole_labels(column)), None)
    null = series.is_null().to_numpy() if series.null_count() else None
    if isinstance(dtype, pl.Decimal):
        series, dtype = series.cast(pl.String).cast(pl.Float64), pl.Float64  # correctly rounded
    if dtype == pl.Boolean:
        return Raw("boolean", str(dtype), series.fill_null(False).to_numpy(), null)
    if dtype.is_integer() and dtype not in (pl.Int128,):
        return Raw("integer", str(dtype), series.fill_null(0).to_numpy(), null)
    if dtype.is_float():
        return Raw("float", str(dtype), series.fill_null(float("nan")).to_numpy(), null)
    return Raw("other", str(dtype), np.zeros(len(series)), None)


def _looked_up(series: Any, labels: Sequence[Label]) -> Any:
    """Positions among the labels; distinct values are few, and each is looked up once."""
    import polars as pl

    unique = series.unique()
    table = pl.DataFrame({"value": unique, "at": positions_of_text(unique.to_list(), labels)})
    found = pl.DataFrame({"value": series}).join(table, on="value", how="left", maintain_order="left")["at"]
    return found.fill_null(float("nan")).to_numpy()


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
            f"Arrow data must be a table, or a stream readable to its end. Got {type(source).__name__}."
        ) from None


def _arrow(array: Any, column: Column) -> Raw:
    import pyarrow as pa

    kind, types = array.type, pa.types
    if isinstance(array, pa.Array):
        array = pa.chunked_array([array])
    if types.is_dictionary(kind):
        array, kind = array.cast(kind.value_type), kind.value_type
    shown = str(kind)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return Raw("text", shown, _encoded(array.cast(pa.large_string()), labels_of(column)), None)
    if types.is_decimal(kind) and whole_labels(column):
        wide = pa.decimal256 if types.is_decimal256(kind) else pa.decimal128  # narrower ones cannot be encoded
        plain = array.cast(wide(kind.precision, kind.scale))
        return Raw("listed", shown, _encoded(plain, whole_labels(column)), None)
    null = np.asarray(array.is_null()) if array.null_count else None
    if types.is_decimal(kind):
        array, kind = array.cast(pa.string()).cast(pa.float64()), pa.float64()  # correctly rounded
    if types.is_boolean(kind):
        return Raw("boolean", shown, np.asarray(array.fill_null(False)).astype(bool), null)
    if types.is_integer(kind):
        return Raw("integer", shown, np.asarray(array.fill_null(0)), null)
    if types.is_floating(kind):
        return Raw("float", shown, np.asarray(array.cast(pa.float64()).fill_null(float("nan"))), null)
    return Raw("other", shown, np.zeros(len(array)), None)


def _encoded(array: Any, labels: Sequence[Label]) -> Any:
    """Positions among the labels; each distinct value is looked up once."""
    chunks = [_indices(chunk, labels) for chunk in array.dictionary_encode().unify_dictionaries().chunks]
    return np.concatenate(chunks or [np.zeros(0)])


def _indices(chunk: Any, labels: Sequence[Label]) -> Any:
    at = positions_of_text(chunk.dictionary.to_pylist(), labels)
    codes = np.asarray(chunk.indices.fill_null(len(at)))
    return np.append(at, np.nan)[codes]
