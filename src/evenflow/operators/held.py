"""A plain column of a keyed state: one value, or null, per key; and what of it has changed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import Array, fixed_dtype, validity, values_of
from evenflow.operators.column import StateColumn
from evenflow.operators.values import values_for


class HeldColumn(StateColumn):
    """Values as they were written."""

    def __init__(self, field: pa.Field) -> None:
        """Start empty."""
        self.fields = (field,)
        self._values = values_for(field.type)

    def reserve(self, capacity: int, used: int) -> None:
        self._values.reserve(capacity, used)

    def start(self, low: int, high: int) -> None:
        self._values.clear(low, high)

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [self._values.take(rows)]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        self._values.put(rows, state[0])

    def keep(self, rows: IntArray) -> None:
        self._values.keep(rows)

    def nbytes(self, used: int) -> int:
        return self._values.nbytes(used)


def differing(before: pa.Array, after: pa.Array) -> BoolArray:
    """Tell where two arrays of one type hold different values; floats by their bits, so that NaN is NaN."""
    if fixed_dtype(before.type) is None:
        differ: BoolArray = pc.not_equal(before, after).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    else:
        differ = _bits(values_of(before)) != _bits(values_of(after))
    was, now = validity(before), validity(after)
    if was is None and now is None:
        return differ
    was = np.ones(len(before), np.bool_) if was is None else was
    now = np.ones(len(after), np.bool_) if now is None else now
    either: BoolArray = (was != now) | (was & now & differ)
    return either


def without(values: pa.Array, gone: BoolArray) -> pa.Array:
    """Return values with nulls where they are gone."""
    return pc.if_else(pa.array(gone), pa.scalar(None, values.type), values)


def _bits(values: Array) -> Array:
    return values.view(f"i{values.dtype.itemsize}") if values.dtype.kind == "f" else values
