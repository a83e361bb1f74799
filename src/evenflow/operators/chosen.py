"""Aggregates that keep one of the values that came: first, last, by another column, extremes that are no numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.model.slots import IntArray
from evenflow.operators.arrays import grown, take, validity
from evenflow.operators.column import Block, Column
from evenflow.operators.values import values_for

_UNRANKED = np.iinfo(np.int64).max
_LOWEST = np.iinfo(np.int64).min


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


class ExtremeBy(Chosen):
    """The value of the row in which another column is smallest or largest; of several such rows, the last."""

    def __init__(self, name: str, function: str, kind: pa.DataType, by: pa.DataType) -> None:
        """Start empty, with values of type `kind` that go by values of type `by`."""
        super().__init__(name, kind)
        self._sign = -1 if function == "min_by" else 1
        self._by = values_for(by)  # null as long as there was no row
        self.fields = (self.result, pa.field(f"{name}.by", by))

    def reserve(self, capacity: int, used: int) -> None:
        super().reserve(capacity, used)
        self._by.reserve(capacity, used)

    def start(self, low: int, high: int) -> None:
        super().start(low, high)
        self._by.clear(low, high)

    def fold(self, block: Block, values: pa.Array) -> None:
        kept, by = values.flatten()
        valid = validity(by)
        came = np.arange(len(by)) if valid is None else np.flatnonzero(valid)
        held = self._by.wide_take(block.touched)  # old and new together may be more than 32-bit offsets reach
        ranks = self._sign * ranks_of(pa.concat_arrays([held, take(by, came).cast(held.type)]))
        stood = held.is_valid().to_numpy(zero_copy_only=False)
        best = np.where(stood, ranks[: len(stood)], _LOWEST)
        np.maximum.at(best, block.group[came], ranks[len(stood) :])
        wins = came[ranks[len(stood) :] == best[block.group[came]]]  # the last of them stays
        at = np.full(len(block.touched), -1, np.int64)
        at[block.group[wins]] = wins
        new = np.flatnonzero(at >= 0)
        self._values.put(block.touched[new], take(kept, at[new]))
        self._by.put(block.touched[new], take(by, at[new]))

    def read(self, rows: IntArray) -> list[pa.Array]:
        return [*super().read(rows), self._by.take(rows)]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        super().write(rows, state)
        self._by.put(rows, state[1])

    def keep(self, rows: IntArray) -> None:
        super().keep(rows)
        self._by.keep(rows)

    def nbytes(self, used: int) -> int:
        return super().nbytes(used) + self._by.nbytes(used)


def ranks_of(values: pa.Array) -> IntArray:
    """Return numbers that are in the order of the values, as Spark sorts them; a null has 0, the others more."""
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 is 0.0
    encoded = values.dictionary_encode()
    ascending = pc.array_sort_indices(encoded.dictionary).to_numpy()  # NaN comes last
    rank = np.empty(len(ascending), np.int64)
    rank[ascending] = np.arange(1, len(ascending) + 1)
    codes = encoded.indices
    if codes.null_count:
        return np.where(codes.is_valid(), rank[codes.fill_null(0).to_numpy()] if len(rank) else 0, 0)
    ranks: IntArray = rank[codes.to_numpy()]
    return ranks
