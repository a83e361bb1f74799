"""Rows that user code returns, brought into the schema it declared; what does not fit is named."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from evenflow.errors import InputError
from evenflow.operators.widening import widens

if TYPE_CHECKING:
    from evenflow.operators.frames import Frames


def conform(rows: Any, schema: pa.Schema, frames: Frames) -> pa.Table:
    """Return output rows as a table of exactly `schema`; columns may come in any order."""
    if rows is None:
        return schema.empty_table()
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    # Who returns a pandas frame has imported pandas; we need not.
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        rows = frames.table(rows)
    elif not isinstance(rows, pa.Table):
        raise InputError(f"output rows must be a pyarrow table, a pandas frame or None, got {type(rows).__name__}")
    check_columns(rows.column_names, schema)
    return pa.table([_filled(_from_table(rows, field), field) for field in schema], schema)


def check_columns(names: Sequence[Any], schema: pa.Schema) -> None:
    """Refuse output with other columns than those declared; their order does not matter."""
    if sorted(names, key=str) != sorted(schema.names):
        raise InputError(f"output columns: expected {', '.join(schema.names)}; got {', '.join(map(str, names))}")


def _from_table(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    column = rows[field.name]
    if column.type == field.type:
        return column
    if not widens(column.type, field.type):
        raise InputError(f"output column {field.name!r}: expected {field.type}, got {column.type}")
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"output column {field.name!r}: expected {field.type}, got {column.type} ({error})") from error


def _filled(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    if column.null_count and not field.nullable:
        raise InputError(f"output column {field.name!r} is declared not null, got {column.null_count} nulls")
    return column
