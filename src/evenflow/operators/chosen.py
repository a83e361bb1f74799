"""Aggregates that keep one of the values that came: first, last, and the extremes of strings, bytes, decimals."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.model.slots import IntArray
from evenflow.operators.arrays import grown, take, validity
from evenflow.operators.column import Block, Column
from evenflow.operators.values import values_for

_UNRANKED = np.iinfo(np.int64).max


class Chosen(Column):
    """One of the values that came, of any supported type."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        """Start empty."""
        self.kind = kind
        self.result = pa.field(name, kind)
        self.fields = (self.result,)
        self._values = values_for(kind)

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


class First(Chosen):
    """The value of the first row, be it null; so it is also kept whether there has been one."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        """Start empty."""
        super().__init__(name, kind)
        self._seen = np.empty(0, np.bool_)
        self.fields = (self.result, pa.field(f"{name}.seen", pa.bool_()))

    def reserve(self, capacity: int, used: int) -> None:
        super().reserve(capacity, used)
        if len(self._seen) < capacity:
            self._seen = grown(self._seen, capacity, used)

    def start(self, low: int, high: int) -> None:
        super().start(low, high)
        self._seen[low:high] = False

    def fold(self, block: Block, values: pa.Array) -> None:
        fresh = ~self._seen[block.touched]
        rows = block.touched[fresh]
        self._values.put(rows, take(values, block.starts[fresh]))
        self._seen[rows] = True

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [*super().read(rows), pa.array(self._seen[rows])]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        super().write(rows, state)
        self._seen[rows] = state[1].to_numpy(zero_copy_only=False)

    def keep(self, rows: IntArray) -> None:
        super().keep(rows)
        self._seen = self._seen[rows]

    def nbytes(self, used: int) -> int:
        return super().nbytes(used) + used


class Last(Chosen):
    """The value of the last row, be it null."""

    def fold(self, block: Block, values: pa.Array) -> None:
        self._values.put(block.touched, take(values, block.ends))


class ExtremeByRank(Chosen):
    """The smallest or largest value of a type that numpy cannot compare: strings, bytes, decimals."""

    def __init__(self, name: str, function: str, kind: pa.DataType) -> None:
        """Start empty."""
        super().__init__(name, kind)
        self._order = "ascending" if function == "min" else "descending"

    def fold(self, block: Block, values: pa.Array) -> None:
        valid = validity(values)
        present = self._values.wide_take(block.touched)  # old and new together may be more than 32-bit offsets reach
        holders = np.flatnonzero(present.is_valid())
        group = block.group if valid is None else block.group[valid]
        both = pa.concat_arrays([values.drop_null().cast(present.type), present.drop_null()]).dictionary_encode()
        best_first = pc.array_sort_indices(both.dictionary, order=self._order).to_numpy()
        rank = np.empty(len(best_first), np.int64)
        rank[best_first] = np.arange(len(best_first))
        came, stood = np.split(rank[both.indices.to_numpy()], [len(group)])
        before = np.full(len(block.touched), _UNRANKED)
        before[holders] = stood
        best = before.copy()
        np.minimum.at(best, group, came)
        better = np.flatnonzero(best < before)
        self._values.put(block.touched[better], take(both.dictionary, best_first[best[better]]))
