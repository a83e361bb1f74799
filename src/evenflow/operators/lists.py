"""Any number of entries per row, each of one or several values: lists, sets and the last or best rows of a key.

The entries of a row stand side by side. A row that changes is written anew behind all others, and the store is cleared
of what is outdated when that is more than half of it: the row's entries go to the changelog as a whole anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from evenflow.model.slots import IntArray
from evenflow.operators.arrays import grown, take
from evenflow.operators.values import LONGEST, TooLongError, values_for

_GARBAGE = 4096  # outdated entries that are not worth clearing


def list_of(kind: pa.DataType, *, nullable: bool = False) -> pa.DataType:
    """Return the type of lists, as Spark's arrays are in Arrow."""
    return pa.list_(pa.field("element", kind, nullable))


class Lists:
    """Entries of all rows; an entry has a value of each of `kinds`, which may be null."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        """Start empty."""
        self._stores = [values_for(kind) for kind in kinds]
        self._starts = np.empty(0, np.int64)
        self._sizes = np.empty(0, np.int64)
        self._used = self._capacity = 0  # rows there are, entries there is room for
        self._end = self._live = 0  # entries in the store, and those that count

    def reserve(self, capacity: int, used: int) -> None:
        """Make room for `capacity` rows, of which the first `used` hold entries."""
        if len(self._sizes) < capacity:
            self._starts, self._sizes = grown(self._starts, capacity, used), grown(self._sizes, capacity, used)

    def clear(self, low: int, high: int) -> None:
        """Let the new rows from `low` to `high` have no entries."""
        self._starts[low:high] = self._sizes[low:high] = 0
        self._used = max(self._used, high)

    def sizes(self, rows: IntArray) -> IntArray:
        """Return how many entries rows have."""
        sizes: IntArray = self._sizes[rows]
        return sizes

    def take(self, rows: IntArray) -> list[pa.Array]:
        """Return the values of all entries of some rows, row after row."""
        at = self._places(rows)
        return [store.take(at) for store in self._stores]

    def at(self, rows: IntArray, places: IntArray) -> list[pa.Array]:
        """Return the values of one entry of each row, that at a place of its entries."""
        at = self._starts[rows] + places
        return [store.take(at) for store in self._stores]

    def with_new(self, rows: IntArray, group: IntArray, values: Sequence[pa.Array]) -> tuple[IntArray, list[pa.Array]]:
        """Return the entries of rows, each row's own first and then new ones; nothing is changed.

        New entry i belongs to `rows[group[i]]`. The first array says to which of `rows` each of all entries belongs.
        """
        at = self._places(rows)
        groups = np.concatenate([np.repeat(np.arange(len(rows)), self._sizes[rows]), group])
        order = np.argsort(groups, kind="stable")
        both = []
        for store, new in zip(self._stores, values, strict=True):
            held = store.wide_take(at)  # old and new together may be more than 32-bit offsets reach
            both.append(take(pa.concat_arrays([held, new.cast(held.type)]), order))
        return groups[order], both

    def put(self, rows: IntArray, sizes: IntArray, values: Sequence[pa.Array]) -> None:
        """Let rows, each at most once, have these entries, row after row."""
        added = int(sizes.sum())
        end = self._end + added
        if end > self._capacity:
            self._capacity = max(end, 2 * self._capacity)
        for store, array in zip(self._stores, values, strict=True):
            store.reserve(self._capacity, self._end)
            store.clear(self._end, end)
            store.put(np.arange(self._end, end), array)
        self._live += added - int(self._sizes[rows].sum())
        self._starts[rows] = self._end + np.cumsum(sizes) - sizes
        self._sizes[rows] = sizes
        self._end = end
        if end > 2 * self._live + _GARBAGE:
            self.keep(np.arange(self._used))

    def keep(self, rows: IntArray) -> None:
        """Keep these rows only, renumbered from 0."""
        at = self._places(rows)
        for store in self._stores:
            store.keep(at)
        self._sizes = self._sizes[rows]
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._used, self._end, self._live, self._capacity = len(rows), len(at), len(at), len(at)

    def nbytes(self, used: int) -> int:
        """Return the memory that the first `used` rows take."""
        total = used * (self._starts.itemsize + self._sizes.itemsize)
        for store in self._stores:
            total += store.nbytes(self._end)
        return total

    def _places(self, rows: IntArray) -> IntArray:
        """Return where the entries of some rows are, row after row."""
        sizes = self._sizes[rows]
        before = np.cumsum(sizes) - sizes
        places: IntArray = np.repeat(self._starts[rows] - before, sizes) + np.arange(int(sizes.sum()))
        return places


def as_lists(kind: pa.DataType, sizes: IntArray, values: pa.Array) -> pa.Array:
    """Return values as lists of these sizes."""
    if len(values) > LONGEST:
        raise TooLongError
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def sizes_of(lists: pa.Array) -> IntArray:
    """Return how many values each list has; a null has none."""
    sizes: IntArray = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes
