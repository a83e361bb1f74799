"""Aggregates that are one number per row, changed in place: counts, sums, smallest and largest."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pyarrow as pa

from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import Array, array_of, fixed_dtype, grown, validity, values_of
from evenflow.operators.column import Block, Column, overflow

_LIMIT = 1 << 63
_LOW_HALF = np.int64(0xFFFFFFFF)


class Count(Column):
    """Rows, or values that are not null."""

    def __init__(self, name: str) -> None:
        """Start empty."""
        self.result = pa.field(name, pa.int64())
        self.fields = (self.result,)
        self._counts = np.empty(0, np.int64)

    def reserve(self, capacity: int, used: int) -> None:
        if len(self._counts) < capacity:
            self._counts = grown(self._counts, capacity, used)

    def start(self, low: int, high: int) -> None:
        self._counts[low:high] = 0

    def fold(self, block: Block, values: pa.Array) -> None:
        valid = None if values is None else validity(values)
        np.add.at(self._counts, block.rows if valid is None else block.rows[valid], 1)

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [pa.array(self._counts[rows])]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        self._counts[rows] = values_of(state[0])

    def keep(self, rows: IntArray) -> None:
        self._counts = self._counts[rows]

    def nbytes(self, used: int) -> int:
        return used * self._counts.itemsize


class CountIf(Count):
    """Rows in which a truth value is true."""

    def fold(self, block: Block, values: pa.Array) -> None:
        np.add.at(self._counts, block.rows[values.fill_null(fill_value=False).to_numpy(zero_copy_only=False)], 1)


class Accumulator(Column):
    """A number per row into which a ufunc draws the values that are not null; null as long as there were none."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        """Start empty, with results of type `kind`."""
        self.kind = kind
        self.result = pa.field(name, kind)
        self.fields = (self.result,)
        self._totals: Array = np.empty(0, fixed_dtype(kind))
        self._seen = np.empty(0, np.bool_)
        self.neutral: float = 0

    @abstractmethod
    def _draw(self, values: Array, rows: IntArray, block: Block, valid: BoolArray | None) -> None:
        """Draw `values`, those of the block that are valid, into `rows`."""

    def reserve(self, capacity: int, used: int) -> None:
        if len(self._totals) < capacity:
            self._totals = grown(self._totals, capacity, used)
            self._seen = grown(self._seen, capacity, used)

    def start(self, low: int, high: int) -> None:
        self._totals[low:high] = self.neutral
        self._seen[low:high] = False

    def fold(self, block: Block, values: pa.Array) -> None:
        valid, rows, drawn = validity(values), block.rows, values_of(values)
        if valid is not None:
            rows, drawn = rows[valid], drawn[valid]
        if len(rows):
            with np.errstate(invalid="ignore"):  # NaN and infinity are values like any other
                self._draw(drawn.astype(self._totals.dtype, copy=False), rows, block, valid)
            self._seen[rows] = True

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [array_of(self._totals[rows], self.kind, self._seen[rows])]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        valid, totals = validity(state[0]), values_of(state[0])
        self._totals[rows] = totals if valid is None else np.where(valid, totals, self._totals.dtype.type(self.neutral))
        self._seen[rows] = True if valid is None else valid

    def keep(self, rows: IntArray) -> None:
        self._totals, self._seen = self._totals[rows], self._seen[rows]

    def nbytes(self, used: int) -> int:
        return used * (self._totals.itemsize + 1)


class FloatSum(Accumulator):
    """The sum of floats, or of integers taken as floats, as a double."""

    def __init__(self, name: str) -> None:
        """Start empty."""
        super().__init__(name, pa.float64())

    def _draw(self, values: Array, rows: IntArray, block: Block, valid: BoolArray | None) -> None:  # noqa: ARG002
        np.add.at(self._totals, rows, values)


class IntegerSum(Accumulator):
    """The sum of integers as a 64-bit integer; a sum that does not fit is an error, as in Spark."""

    def __init__(self, name: str, label: str) -> None:
        """Start empty; `label` stands in messages."""
        super().__init__(name, pa.int64())
        self._label = label
        self._bound = 0  # no sum is farther from 0 than this

    def _draw(self, values: Array, rows: IntArray, block: Block, valid: BoolArray | None) -> None:
        reach = _farthest(values) * len(values)
        if self._bound + reach >= _LIMIT and _farthest(self._totals[block.touched]) + reach >= _LIMIT:
            self._refuse_overflow(values, block, valid)
        np.add.at(self._totals, rows, values)
        self._bound += reach

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        super().write(rows, state)
        self._bound = max(self._bound, _farthest(self._totals[rows]))

    def _refuse_overflow(self, values: Array, block: Block, valid: BoolArray | None) -> None:
        """Add up upper and lower halves apart, which cannot overflow, and look whether the upper half still fits."""
        group = block.group if valid is None else block.group[valid]
        totals = self._totals[block.touched]
        upper, lower = totals >> 32, totals & _LOW_HALF
        np.add.at(upper, group, values >> 32)
        np.add.at(lower, group, values & _LOW_HALF)
        upper += lower >> 32
        over = np.flatnonzero((upper < -(1 << 31)) | (upper >= 1 << 31))
        if len(over):
            raise overflow(self._label, "64-bit integer", block.slot_of(int(over[0])))


class Extreme(Accumulator):
    """The smallest or largest number, date, time or truth value."""

    def __init__(self, name: str, function: str, kind: pa.DataType) -> None:
        """Start empty."""
        super().__init__(name, kind)
        dtype, smallest = self._totals.dtype, function == "min"
        if dtype.kind == "f":
            # NaN is larger than any number: `fmin` passes over it, `maximum` does not let go of it.
            self._ufunc: np.ufunc = np.fmin if smallest else np.maximum
            self.neutral = np.nan if smallest else -np.inf
        else:
            self._ufunc = np.minimum if smallest else np.maximum
            self.neutral = np.iinfo(dtype).max if smallest else np.iinfo(dtype).min

    def _draw(self, values: Array, rows: IntArray, block: Block, valid: BoolArray | None) -> None:  # noqa: ARG002
        self._ufunc.at(self._totals, rows, values)


def _farthest(values: Array) -> int:
    """Return the largest distance from 0."""
    return max(-int(values.min()), int(values.max())) if len(values) else 0
