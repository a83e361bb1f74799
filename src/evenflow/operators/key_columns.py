"""One column of stored keys: appended row by row, compared with the keys of input rows, never changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import (
    Array,
    array_of,
    fixed_dtype,
    grown,
    is_variable,
    take,
    validity,
    values_of,
    with_nulls,
)
from evenflow.operators.values import Heap


@dataclass(frozen=True)
class Encoded:
    """The keys of some input rows in the form in which they are compared, and which of them are not null."""

    values: Any
    valid: BoolArray | None


def bits_of(array: pa.Array) -> tuple[Array, BoolArray | None]:
    """Return fixed-width keys as integers or bytes that are equal when Spark groups them together; nulls are zeros."""
    values, valid = values_of(array), validity(array)
    if values.dtype.kind == "f":
        values = values + values.dtype.type(0)  # -0.0 becomes 0.0
        values[np.isnan(values)] = np.nan  # one of the many bit patterns
    if values.dtype.kind != "V":
        values = values.view(f"i{values.dtype.itemsize}")
    if valid is not None:
        values = values.copy()
        values[~valid] = np.zeros(1, values.dtype)
    return values, valid


def key_column_for(kind: pa.DataType) -> KeyColumn:
    """Return an empty column for a type that may be a key."""
    return VariableKeys(kind) if is_variable(kind) else FixedKeys(kind)


class KeyColumn(ABC):
    """The keys of all rows, in row order."""

    def __init__(self, kind: pa.DataType) -> None:
        """Start empty."""
        self.kind = kind
        self.size = 0
        self._valid: BoolArray | None = None  # not there until a null comes

    @abstractmethod
    def encode(self, keys: pa.Array) -> Encoded:
        """Bring keys of input rows into the form that the other methods take."""

    @abstractmethod
    def same(self, keys: Encoded, at: IntArray, rows: IntArray) -> BoolArray:
        """Tell for each i whether the key at `at[i]` is that of row `rows[i]`."""

    @abstractmethod
    def items(self, keys: Encoded, at: IntArray) -> list[Hashable]:
        """Return the keys at some positions as Python values."""

    @abstractmethod
    def take(self, rows: IntArray) -> pa.Array:
        """Return the keys of some rows."""

    @abstractmethod
    def keep(self, rows: IntArray) -> None:
        """Keep these rows only, renumbered from 0."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The memory taken."""

    @abstractmethod
    def _append(self, keys: Encoded, at: IntArray | None) -> int:
        """Append and return how many were."""

    def append(self, keys: Encoded, at: IntArray | None) -> None:
        """Append the keys at these positions, or all, as the next rows."""
        added = self._append(keys, at)
        if keys.valid is not None and self._valid is None:
            self._valid = np.ones(self.size, np.bool_)
        if self._valid is not None:
            valid = np.ones(added, np.bool_) if keys.valid is None else keys.valid if at is None else keys.valid[at]
            if self.size + added > len(self._valid):
                self._valid = grown(self._valid, max(self.size + added, 2 * len(self._valid)), self.size)
            self._valid[self.size : self.size + added] = valid
        self.size += added

    def valid(self, rows: IntArray) -> BoolArray | None:
        """Tell which rows have a key that is not null; None if all have."""
        if self._valid is None:
            return None
        valid: BoolArray = self._valid[rows]
        return valid

    def _same_nulls(self, keys: Encoded, at: IntArray, rows: IntArray) -> BoolArray | None:
        """Tell where both are null or neither; None if there are no nulls at all."""
        if self._valid is None and keys.valid is None:
            return None
        stored = np.ones(len(rows), np.bool_) if self._valid is None else self._valid[rows]
        same: BoolArray = stored == (True if keys.valid is None else keys.valid[at])
        return same

    def _keep_valid(self, rows: IntArray) -> None:
        self.size = len(rows)
        if self._valid is not None:
            self._valid = self._valid[rows]


class FixedKeys(KeyColumn):
    """Keys of fixed width, as normalised bits."""

    def __init__(self, kind: pa.DataType) -> None:
        """Start empty."""
        super().__init__(kind)
        dtype = np.dtype(fixed_dtype(kind))
        self._bits: Array = np.empty(0, dtype if dtype.kind == "V" else f"i{dtype.itemsize}")

    def encode(self, keys: pa.Array) -> Encoded:
        return Encoded(*bits_of(keys))

    def same(self, keys: Encoded, at: IntArray, rows: IntArray) -> BoolArray:
        same: BoolArray = self._bits[rows] == keys.values[at]
        nulls = self._same_nulls(keys, at, rows)
        return same if nulls is None else same & nulls

    def items(self, keys: Encoded, at: IntArray) -> list[Hashable]:
        # NULs at the end of a void's bytes stay: tolist() gives all of them.
        items = keys.values[at].tolist()
        return items if keys.valid is None else [i if ok else None for i, ok in zip(items, keys.valid[at], strict=True)]

    def take(self, rows: IntArray) -> pa.Array:
        return array_of(self._bits[rows], self.kind, self.valid(rows))

    def keep(self, rows: IntArray) -> None:
        self._keep_valid(rows)
        self._bits = self._bits[rows]

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return self.size * (self._bits.itemsize + (self._valid is not None))

    def _append(self, keys: Encoded, at: IntArray | None) -> int:
        bits = keys.values if at is None else keys.values[at]
        end = self.size + len(bits)
        if end > len(self._bits):
            self._bits = grown(self._bits, max(end, 2 * len(self._bits)), self.size)
        self._bits[self.size : end] = bits
        return len(bits)


class VariableKeys(KeyColumn):
    """Strings or bytes, in a heap; null is stored as an empty one."""

    def __init__(self, kind: pa.DataType) -> None:
        """Start empty."""
        super().__init__(kind)
        self._heap = Heap(kind)

    def encode(self, keys: pa.Array) -> Encoded:
        valid = validity(keys)
        if valid is not None:
            keys = keys.fill_null("" if pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type) else b"")
        return Encoded(keys.cast(self._heap.wide), valid)

    def same(self, keys: Encoded, at: IntArray, rows: IntArray) -> BoolArray:
        given = keys.values if len(at) == len(keys.values) else take(keys.values, at)
        same: BoolArray = pc.equal(self._heap.wide_take(rows), given).to_numpy(zero_copy_only=False)
        nulls = self._same_nulls(keys, at, rows)
        return same if nulls is None else same & nulls

    def items(self, keys: Encoded, at: IntArray) -> list[Hashable]:
        items = take(keys.values, at).to_pylist()
        return items if keys.valid is None else [i if ok else None for i, ok in zip(items, keys.valid[at], strict=True)]

    def take(self, rows: IntArray) -> pa.Array:
        return with_nulls(self._heap.take(rows), self.valid(rows))

    def keep(self, rows: IntArray) -> None:
        self._keep_valid(rows)
        kept = self._heap.wide_take(rows)  # all of them may be more than 32-bit offsets reach
        self._heap = Heap(self.kind)
        self._heap.append(kept)

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return self._heap.nbytes + self.size * (self._valid is not None)

    def _append(self, keys: Encoded, at: IntArray | None) -> int:
        values = keys.values if at is None else take(keys.values, at)
        self._heap.append(values)
        return len(values)
