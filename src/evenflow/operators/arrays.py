"""Arrow arrays seen as numpy arrays and back, without a copy where the layout allows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import InputError
from evenflow.model.slots import BoolArray

Array: TypeAlias = npt.NDArray[Any]

JOINED = 1 << 30  # bytes in one array at most, where it is ours to say: strings in one array end at 2 GiB

_AS_INTEGER = {"date32": "i4", "time32": "i4", "date64": "i8", "time64": "i8", "timestamp": "i8", "duration": "i8"}


def fixed_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the dtype that holds one value of a fixed-width type; None for types of other layouts."""
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        number: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return number
    if pa.types.is_boolean(kind):
        return np.dtype(np.uint8)
    if pa.types.is_decimal128(kind) or pa.types.is_fixed_size_binary(kind):
        return np.dtype(f"V{kind.byte_width}")
    name = _AS_INTEGER.get(str(kind).partition("[")[0])
    return np.dtype(name) if name else None


def is_variable(kind: pa.DataType) -> bool:
    """Tell whether values are strings or bytes of any length."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def whole(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    """Return a column as one array; refuse a table that does not have it with this type."""
    at = table.schema.get_field_index(name)
    if at < 0:
        raise InputError(f"rows lack the column {name!r}; they have {', '.join(table.column_names)}")
    column = table.column(at)
    if column.type != kind:
        raise InputError(f"column {name!r}: expected {kind}, got {column.type}")
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, kind)


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows that may have been written before the query was changed in the columns of today.

    What they lack is null, what is not wanted any more is left out, narrower types get wider.
    """
    if rows.schema.names == schema.names and rows.schema.types == schema.types:
        return rows
    there = set(rows.column_names)
    columns = [
        widened(rows[field.name], field) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema.names)


def widened(array: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Return values that were written in a narrower type in that of today."""
    try:
        return array if array.type == field.type else array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"column {field.name!r} was written as {array.type}, and is {field.type} now, which cannot be had of it "
            f"({error}): go on with the type of before"
        ) from error


def pieces(table: pa.Table, most: int | None = None) -> Iterator[pa.Table]:
    """Yield a table in row ranges of no more bytes than `most` (JOINED), unless a single row has more."""
    if table.nbytes <= (JOINED if most is None else most) or table.num_rows <= 1:
        yield table
        return
    half = table.num_rows // 2
    yield from pieces(table.slice(0, half), most)
    yield from pieces(table.slice(half), most)


def validity(array: pa.Array) -> BoolArray | None:
    """Return which values are not null; None if all are not."""
    if not array.null_count:
        return None
    valid: BoolArray = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def values_of(array: pa.Array) -> Array:
    """Return the values of a fixed-width array, read-only; what stands at nulls is arbitrary."""
    dtype = fixed_dtype(array.type)
    if dtype is None:
        raise InputError(f"values of type {array.type} have no fixed width")
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def array_of(values: Array, kind: pa.DataType, valid: BoolArray | None = None) -> pa.Array:
    """Return `values`, which must not change afterwards, as an Arrow array with nulls where not `valid`."""
    packed = np.packbits(values.astype(np.bool_), bitorder="little") if pa.types.is_boolean(kind) else values
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(packed))])


def with_nulls(array: pa.Array, valid: BoolArray | None) -> pa.Array:
    """Return `array`, which has no nulls and no offset, with nulls where not `valid`."""
    if valid is None or valid.all():
        return array
    return pa.Array.from_buffers(array.type, len(array), [_bitmap(valid), *array.buffers()[1:]])


def constant(rows: int, *, value: bool) -> pa.Array:
    """Return an array of one truth value."""
    return pa.repeat(pa.scalar(value), rows)


def take(array: pa.Array, positions: Array) -> pa.Array:
    """Return the values at `positions`."""
    return pc.take(array, pa.array(positions), boundscheck=False)


def grown(values: Array, capacity: int, used: int) -> Array:
    """Return a longer array that starts with the first `used` values; the rest is not initialised."""
    longer = np.empty(capacity, values.dtype)
    longer[:used] = values[:used]
    return longer


def _bitmap(valid: BoolArray | None) -> pa.Buffer | None:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
