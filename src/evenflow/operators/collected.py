"""Aggregates that keep many of the values that came: lists, sets, and the exact number of different values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import array_of, take, validity, values_of
from evenflow.operators.column import Block, Column
from evenflow.operators.key_columns import bits_of
from evenflow.operators.lists import Lists, as_lists, list_of, sizes_of


class CollectList(Column):
    """All values that are not null, in the order in which they came."""

    def __init__(self, name: str, kinds: Sequence[pa.DataType]) -> None:
        """Start empty; an entry has a value of each of `kinds`."""
        self.fields = tuple(
            pa.field(f"{name}.{place}" if place else name, list_of(kind)) for place, kind in enumerate(kinds)
        )
        self.result = pa.field(name, self.fields[0].type, nullable=False)
        self._lists = Lists(kinds)

    def reserve(self, capacity: int, used: int) -> None:
        self._lists.reserve(capacity, used)

    def start(self, low: int, high: int) -> None:
        self._lists.clear(low, high)

    def fold(self, block: Block, values: pa.Array) -> None:
        parts = _parts(values)
        valid = _without_nulls(parts)
        group = block.group
        if valid is not None:
            group, parts = group[valid], [part.filter(pa.array(valid)) for part in parts]
        groups, entries = self._lists.with_new(block.touched, group, parts)
        self._put(block.touched, groups, entries)

    def _put(self, rows: IntArray, groups: IntArray, entries: list[pa.Array]) -> None:
        """Keep what is to be kept of all entries that rows have now."""
        self._lists.put(rows, np.bincount(groups, minlength=len(rows)), entries)

    def read(self, rows: IntArray) -> list[pa.Array]:
        sizes, values = self._lists.sizes(rows), self._lists.take(rows)
        return [as_lists(each.type, sizes, array) for each, array in zip(self.fields, values, strict=True)]

    def write(self, rows: IntArray, state: list[pa.Array]) -> None:
        self._lists.put(rows, sizes_of(state[0]), [array.flatten() for array in state])

    def keep(self, rows: IntArray) -> None:
        self._lists.keep(rows)

    def nbytes(self, used: int) -> int:
        return self._lists.nbytes(used)


class CollectSet(CollectList):
    """The different values that are not null, in the order in which they came first."""

    def _put(self, rows: IntArray, groups: IntArray, entries: list[pa.Array]) -> None:
        plain = [_normal(entry) for entry in entries]
        first = first_of_each(groups, plain)
        super()._put(rows, groups[first], [take(entry, first) for entry in plain])


class CountDistinct(CollectSet):
    """How many different values came, or combinations of values, none of them null."""

    def __init__(self, name: str, kinds: Sequence[pa.DataType]) -> None:
        """Start empty."""
        super().__init__(name, kinds)
        self.result = pa.field(name, pa.int64(), nullable=False)

    def results(self, state: list[pa.Array]) -> pa.Array:
        return state[0].value_lengths().cast(pa.int64())


def first_of_each(groups: IntArray, values: Sequence[pa.Array]) -> IntArray:
    """Return the positions, ascending, at which a combination of group and values comes first; there are no nulls."""
    codes = groups
    for array in values:
        bits = pa.array(bits_of(array)[0]) if pa.types.is_floating(array.type) else array
        encoded = bits.dictionary_encode()
        # Kept below the number of entries, so that no product can overflow.
        codes = np.unique(codes, return_inverse=True)[1] * np.int64(max(1, len(encoded.dictionary)))
        codes = codes + encoded.indices.to_numpy()
    return np.sort(np.unique(codes, return_index=True)[1])


def _parts(values: pa.Array) -> list[pa.Array]:
    return values.flatten() if pa.types.is_struct(values.type) else [values]


def _without_nulls(parts: Sequence[pa.Array]) -> BoolArray | None:
    """Return which entries have no null; None if all have none."""
    masks = [valid for valid in map(validity, parts) if valid is not None]
    return np.logical_and.reduce(masks) if masks else None


def _normal(array: pa.Array) -> pa.Array:
    """Return floats as Spark compares them: one zero, one NaN; anything else as it is."""
    if not pa.types.is_floating(array.type):
        return array
    bits = bits_of(array)[0]
    return array_of(bits.view(values_of(array).dtype), array.type)
