"""The average: sum and count side by side."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.model.slots import IntArray
from evenflow.operators.accumulators import Count, FloatSum
from evenflow.operators.column import Block, Column
from evenflow.operators.decimals import DecimalSum, divided


class Mean(Column):
    """Sum and count, divided when the result is wanted."""

    def __init__(self, name: str, total: FloatSum | DecimalSum, kind: pa.DataType) -> None:
        """Start empty, with results of type `kind`."""
        self.result = pa.field(name, kind)
        self._sum, self._count = total, Count(f"{name}.count")
        self.fields = (*total.fields, *self._count.fields)
        self._parts: tuple[Column, ...] = (self._sum, self._count)

    def reserve(self, capacity: int, used: int) -> None:
        for part in self._parts:
            part.reserve(capacity, used)

    def start(self, low: int, high: int) -> None:
        for part in self._parts:
            part.start(low, high)

    def fold(self, block: Block, values: pa.Array) -> None:
        for part in self._parts:
            part.fold(block, values)

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [array for part in self._parts for array in part.read(rows)]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        for part, array in zip(self._parts, state, strict=True):
            part.write(rows, [array])

    def keep(self, rows: IntArray) -> None:
        for part in self._parts:
            part.keep(rows)

    def nbytes(self, used: int) -> int:
        total = 0
        for part in self._parts:
            total += part.nbytes(used)
        return total

    def results(self, state: list[pa.Array]) -> pa.Array:
        total, count = state
        if not pa.types.is_decimal(total.type):
            return pc.divide(total, count.cast(pa.float64()))  # a null sum gives null, and only there is the count 0
        return divided(total, count, self.result.type)
