"""Rows that user code returns, brought into the schema it declared; what does not fit is named."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from evenflow.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def conform(rows: Any, schema: pa.Schema) -> pa.Table:
    """Return output rows as a table of exactly `schema`; columns may come in any order."""
    if rows is None:
        return schema.empty_table()
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    # Who returns a pandas frame has imported pandas; we need not.
    pandas = sys.modules.get("pandas")
    is_frame = pandas is not None and isinstance(rows, pandas.DataFrame)
    if not is_frame and not isinstance(rows, pa.Table):
        raise InputError(f"output rows must be a pyarrow table, a pandas frame or None, got {type(rows).__name__}")
    names = list(rows.columns) if is_frame else rows.column_names
    if sorted(names, key=str) != sorted(schema.names):
        raise InputError(f"output columns: expected {', '.join(schema.names)}; got {', '.join(map(str, names))}")
    read = _from_frame if is_frame else _from_table
    return pa.table([_filled(read(rows, field), field) for field in schema], schema)


def _from_table(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    column = rows[field.name]
    if column.type == field.type:
        return column
    if pa.types.is_null(column.type):
        return column.cast(field.type)
    raise InputError(f"output column {field.name!r}: expected {field.type}, got {column.type}")


def _from_frame(rows: pd.DataFrame, field: pa.Field) -> pa.Array:
    column = rows[field.name]
    try:
        return pa.Array.from_pandas(column, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise InputError(
            f"output column {field.name!r}: expected {field.type}, got {column.dtype} ({error})"
        ) from error


def _filled(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    if column.null_count and not field.nullable:
        raise InputError(f"output column {field.name!r} is declared not null, got {column.null_count} nulls")
    return column
