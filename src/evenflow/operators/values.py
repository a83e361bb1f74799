"""One value, or null, per row, of any supported type: fixed width in an array, variable width in a heap of bytes."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from evenflow.model.slots import IntArray
from evenflow.operators.arrays import Array, array_of, fixed_dtype, grown, take, validity, values_of, with_nulls

LONGEST = (1 << 31) - 1  # bytes of strings in one array: its offsets have 32 bits
_GARBAGE = 4096  # outdated values a heap may hold before it is looked at


class TooLongError(Exception):
    """More strings were asked for than fit one array: ask for fewer rows at a time."""


class Values(Protocol):
    """A column that grows at its end, and whose rows may be overwritten."""

    def reserve(self, capacity: int, used: int) -> None:
        """Make room for `capacity` rows, of which the first `used` hold values."""
        ...

    def clear(self, low: int, high: int) -> None:
        """Set the rows from `low` to `high` to null."""
        ...

    def put(self, rows: IntArray, values: pa.Array) -> None:
        """Overwrite rows, each at most once."""
        ...

    def take(self, rows: IntArray) -> pa.Array:
        """Return the values of some rows."""
        ...

    def wide_take(self, rows: IntArray) -> pa.Array:
        """Return the values of some rows, strings with 64-bit offsets: as many as it may be."""
        ...

    def keep(self, rows: IntArray) -> None:
        """Keep these rows only, renumbered from 0."""
        ...

    def nbytes(self, used: int) -> int:
        """Return the memory that the first `used` rows take."""
        ...


def values_for(kind: pa.DataType) -> Values:
    """Return an empty column for a supported type."""
    return VariableValues(kind) if fixed_dtype(kind) is None else FixedValues(kind)


class FixedValues:
    """Values of fixed width, side by side."""

    def __init__(self, kind: pa.DataType) -> None:
        """Start empty."""
        self.kind = kind
        self._values: Array = np.empty(0, fixed_dtype(kind))
        self._valid = np.empty(0, np.bool_)

    def reserve(self, capacity: int, used: int) -> None:
        if len(self._values) < capacity:
            self._values = grown(self._values, capacity, used)
            self._valid = grown(self._valid, capacity, used)

    def clear(self, low: int, high: int) -> None:
        self._values[low:high] = np.zeros(1, self._values.dtype)
        self._valid[low:high] = False

    def put(self, rows: IntArray, values: pa.Array) -> None:
        valid = validity(values)
        self._values[rows] = values_of(values)
        self._valid[rows] = True if valid is None else valid

    def take(self, rows: IntArray) -> pa.Array:
        return array_of(self._values[rows], self.kind, self._valid[rows])

    def wide_take(self, rows: IntArray) -> pa.Array:
        return self.take(rows)

    def keep(self, rows: IntArray) -> None:
        self._values, self._valid = self._values[rows], self._valid[rows]

    def nbytes(self, used: int) -> int:
        return used * (self._values.itemsize + 1)


class VariableValues:
    """Strings or bytes: each row points into a heap, which is cleared of outdated values when half is outdated."""

    def __init__(self, kind: pa.DataType) -> None:
        """Start empty."""
        self.kind = kind
        self._heap = Heap(kind)
        self._at = np.empty(0, np.int64)  # -1: null
        self._used = 0

    def reserve(self, capacity: int, used: int) -> None:
        if len(self._at) < capacity:
            self._at = grown(self._at, capacity, used)

    def clear(self, low: int, high: int) -> None:
        self._at[low:high] = -1
        self._used = max(self._used, high)

    def put(self, rows: IntArray, values: pa.Array) -> None:
        valid = validity(values)
        present = np.ones(len(values), np.int64) if valid is None else valid.astype(np.int64)
        self._at[rows] = np.where(present, self._heap.size + np.cumsum(present) - 1, -1)
        self._heap.append(values if valid is None else values.drop_null())
        if self._heap.size > 2 * self._used + _GARBAGE:
            self.keep(np.arange(self._used))

    def take(self, rows: IntArray) -> pa.Array:
        at = self._at[rows]
        if not self._heap.size:
            return pa.nulls(len(at), self.kind)
        return with_nulls(self._heap.take(np.maximum(at, 0)), at >= 0)

    def wide_take(self, rows: IntArray) -> pa.Array:
        at = self._at[rows]
        if not self._heap.size:
            return pa.nulls(len(at), self._heap.wide)
        return with_nulls(self._heap.wide_take(np.maximum(at, 0)), at >= 0)

    def keep(self, rows: IntArray) -> None:
        at = self._at[rows]
        present = at >= 0
        kept = self._heap.wide_take(at[present])  # all of them may be more than 32-bit offsets reach
        self._heap = Heap(self.kind)
        self._heap.append(kept)
        self._at = np.where(present, np.cumsum(present) - 1, -1)
        self._used = len(rows)

    def nbytes(self, used: int) -> int:
        return used * self._at.itemsize + self._heap.nbytes


class Heap:
    """Strings or bytes without nulls, addressed by the order in which they came.

    It is one pair of buffers that doubles, not a list of chunks: Arrow's `take` is fast on one chunk only.
    """

    def __init__(self, kind: pa.DataType) -> None:
        """Start empty."""
        self.kind = kind
        textual = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        self.wide = pa.large_string() if textual else pa.large_binary()
        self.size = 0
        self._offsets = np.zeros(1, np.int64)
        self._data = np.empty(0, np.uint8)

    def append(self, values: pa.Array) -> None:
        if not len(values):
            return
        wide = values.cast(self.wide)
        _, offsets_buffer, data = wide.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64, len(wide) + 1, wide.offset * 8)
        start, size, end = int(self._offsets[self.size]), self.size, self.size + len(wide)
        stop = start + int(offsets[-1] - offsets[0])
        if end >= len(self._offsets):
            self._offsets = grown(self._offsets, max(end + 1, 2 * len(self._offsets)), size + 1)
        if stop > len(self._data):
            self._data = grown(self._data, max(stop, 2 * len(self._data)), start)
        np.add(offsets[1:], start - offsets[0], out=self._offsets[size + 1 : end + 1])
        if stop > start:
            self._data[start:stop] = np.frombuffer(data, np.uint8, stop - start, int(offsets[0]))
        self.size = end

    def wide_take(self, at: IntArray) -> pa.Array:
        """Return values with 64-bit offsets, the form in which they are stored."""
        buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(self._data)]
        return take(pa.Array.from_buffers(self.wide, self.size, buffers), at)

    def take(self, at: IntArray) -> pa.Array:
        """Return values in the type of the heap."""
        taken = self.wide_take(at)
        if taken.type == self.kind:
            return taken
        data = taken.buffers()[2]
        if data is not None and data.size > LONGEST:
            raise TooLongError
        return taken.cast(self.kind)

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return 8 * self.size + int(self._offsets[self.size])
