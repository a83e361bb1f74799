"""What a `KeyOperator` returns, brought into the columns it declared; what does not fit is named."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.frames import PlainFrames
from evenflow.operators.output import conform


def columns_of(given: Any, schema: pa.Schema, what: str, rows: int) -> pa.Table:
    """Return columns in whatever form as a table of exactly `schema` with so many rows."""
    try:
        table = _by_name(given, schema, rows) if isinstance(given, Mapping) else _of_rows(given, schema)
    except InputError as error:
        raise InputError(f"{what}: {error}") from error
    if table.num_rows != rows:
        raise InputError(f"{what}: expected {rows} rows, one for each key, got {table.num_rows}")
    return table


def marks_of(given: Any, keys: int) -> BoolArray:
    """Return which keys are marked; None: none is."""
    if given is None:
        return np.zeros(keys, np.bool_)
    marks = np.asarray(given)
    if marks.dtype != np.bool_ or marks.shape != (keys,):
        raise InputError(
            f"removed: expected {keys} truth values, one for each key, got {marks.dtype} of shape {marks.shape}"
        )
    return marks


def places_of(given: Any, keys: int) -> IntArray:
    """Return to which key each output row belongs."""
    places = np.asarray(given)
    if not places.size:
        return np.empty(0, np.int64)
    if places.ndim != 1 or places.dtype.kind not in "iu" or places.min() < 0 or places.max() >= keys:
        raise InputError(f"output_keys: expected places of keys in the batch, from 0 to {keys - 1}, got {given!r}")
    return places.astype(np.int64)


def _by_name(given: Mapping[str, Any], schema: pa.Schema, rows: int) -> pa.Table:
    if set(given) != set(schema.names):
        raise InputError(f"expected columns {', '.join(schema.names)}; got {', '.join(map(str, given))}")
    columns = [_column(given[field.name], field, rows) for field in schema]
    sizes = {field.name: len(column) for field, column in zip(schema, columns, strict=True)}
    if len(set(sizes.values())) > 1:
        raise InputError(f"columns have different lengths: {sizes}")
    return pa.table(columns, schema)


def _column(values: Any, field: pa.Field, rows: int) -> Any:
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            column = values if values.type == field.type else values.cast(field.type)
        elif values is None or isinstance(values, str | bytes) or np.ndim(values) == 0:  # the same for all
            column = pa.repeat(pa.scalar(values, field.type), rows)
        else:
            column = pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kind = getattr(values, "dtype", None) or getattr(values, "type", None) or type(values).__name__
        raise InputError(f"column {field.name!r}: expected {field.type}, got {kind} ({error})") from error
    if column.null_count and not field.nullable:
        raise InputError(f"column {field.name!r} is declared not null, got {column.null_count} nulls")
    return column


def _of_rows(given: Any, schema: pa.Schema) -> pa.Table:
    pandas = sys.modules.get("pandas")
    if not isinstance(given, pa.Table | pa.RecordBatch) and not (
        pandas is not None and isinstance(given, pandas.DataFrame)
    ):
        raise InputError(
            f"expected a dictionary of columns, a pyarrow table or a pandas frame, got {type(given).__name__}"
        )
    return conform(given, schema, PlainFrames(schema))
