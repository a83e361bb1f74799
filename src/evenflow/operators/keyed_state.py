"""State rows by key: the keys of all slots of a lane and what is held for each, in columns.

Row numbers are good until the next `remove`, `install` or `drop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from evenflow.model.slots import IntArray
from evenflow.operators.arrays import constant, pieces, whole, widened
from evenflow.operators.base import GONE, HASH, SLOT
from evenflow.operators.column import StateColumn
from evenflow.operators.keys import check_keys, is_direct, keys_for
from evenflow.operators.values import TooLongError

_Part = TypeVar("_Part")

_PIECE = 1 << 22  # rows read at a time, which bounds the temporary arrays


def key_fields(schema: pa.Schema, keys: tuple[str, ...]) -> list[pa.Field]:
    return [pa.field(name, schema.field(name).type) for name in keys]


def state_schema_of(schema: pa.Schema, keys: tuple[str, ...], held: Sequence[pa.Field]) -> pa.Schema:
    """Return the columns of a state that holds some fields for each key."""
    check_keys(schema, keys)
    head = [pa.field(SLOT, pa.int32())]
    if not is_direct(schema, keys):
        head.append(pa.field(HASH, pa.int64()))
    return pa.schema([*head, *key_fields(schema, keys), *held, pa.field(GONE, pa.bool_())])


class KeyedState:
    """The keys of all slots of a lane and their columns: one table, however many slots."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...], slots: int, columns: Sequence[StateColumn]) -> None:
        """Start empty."""
        self._state_schema = state_schema_of(schema, keys, [each for column in columns for each in column.fields])
        self._keys = keys_for(schema, keys, slots)
        self._held = columns

    def install(self, state: pa.Table) -> None:
        for piece in pieces(state):
            self._install(piece)
        self._compact()

    def _install(self, state: pa.Table) -> None:
        born = self._keys.index.rows
        rows = self._keys.load(state)
        self._start(born)
        chosen, leaving = self._last_of_each(rows), np.empty(0, np.int64)
        gone = whole(state, GONE, pa.bool_())
        if gone.true_count:
            each = np.arange(len(rows)) if chosen is None else chosen
            over = gone.to_numpy(zero_copy_only=False)[each]
            chosen, leaving = each[~over], rows[each[over]]
        for column in self._held:
            arrays = _stored(state, column)
            if arrays is None:
                continue
            if chosen is None:
                column.write(rows, arrays)
            else:
                column.write(rows[chosen], [array.take(pa.array(chosen)) for array in arrays])
        self._keys.forget(leaving)

    def remove(self, rows: IntArray) -> pa.Table:
        """Remove the keys of some state rows, each once; return their tombstones, sorted by slot."""
        rows = rows[np.argsort(self._keys.index.slots(rows), kind="stable")]
        tombstones = pa.concat_tables(in_parts(rows, self._tombstones))
        self._keys.forget(rows)
        self._compact()
        return tombstones

    def rows_of(self, slots: Sequence[int]) -> IntArray:
        """Return the state rows of some slots, sorted by slot."""
        return self._keys.index.rows_of_slots(np.asarray(slots, np.int64))

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        return self.state(self.rows_of(slots))

    def state(self, rows: IntArray) -> pa.Table:
        """Return the state of some rows."""
        return pa.concat_tables(in_parts(rows, lambda some: self._state(some)[0]))

    def drop(self, slots: Sequence[int]) -> None:
        self._keys.forget(self.rows_of(slots))
        self._compact()

    def slot_rows(self) -> IntArray:
        return self._keys.index.slot_rows.copy()

    def slot_bytes(self) -> IntArray:
        """Return the memory per slot: all of it, shared out by rows."""
        index = self._keys.index
        total = self._keys.nbytes
        for column in self._held:
            total += column.nbytes(index.rows)
        return (index.slot_rows * (total / max(1, index.live))).astype(np.int64)

    def _each_once(self, rows: IntArray) -> IntArray:
        """Return state rows in the order in which they come first."""
        first = self._keys.index.first_positions(rows)
        each: IntArray = rows[first == np.arange(len(rows))]
        return each

    def _start(self, born: int) -> None:
        """Let the columns grow along with the keys."""
        index = self._keys.index
        for column in self._held:
            column.reserve(index.capacity, born)
            column.start(born, index.rows)

    def _compact(self) -> None:
        """Give memory back once more rows are dead than alive."""
        index = self._keys.index
        if index.live * 2 < index.rows:
            kept = self._keys.keep()
            for column in self._held:
                column.keep(kept)

    def _last_of_each(self, rows: IntArray) -> IntArray | None:
        """Return the positions at which each row comes last; None if no row comes twice."""
        backwards = rows[::-1]
        first = self._keys.index.first_positions(backwards)
        kept = np.flatnonzero(first == np.arange(len(first)))
        return None if len(kept) == len(rows) else len(rows) - 1 - kept[::-1]

    def _tombstones(self, rows: IntArray) -> pa.Table:
        head = {
            SLOT: pa.array(self._keys.index.slots(rows)),
            **self._keys.read(rows),
            GONE: constant(len(rows), value=True),
        }
        columns = (head.get(each.name, pa.nulls(len(rows), each.type)) for each in self._state_schema)
        return pa.table(list(columns), self._state_schema)

    def _state(self, rows: IntArray) -> tuple[pa.Table, list[list[pa.Array]]]:
        """Return the state of rows that fit one array per column, and what each column holds of it."""
        held = [column.read(rows) for column in self._held]
        arrays = (array for each in held for array in each)
        slots, absent = pa.array(self._keys.index.slots(rows)), constant(len(rows), value=False)
        return pa.table([slots, *self._keys.read(rows).values(), *arrays, absent], self._state_schema), held


def in_parts(rows: IntArray, read: Callable[[IntArray], _Part]) -> list[_Part]:
    """Read rows in as many parts as it takes for each column to fit one array; at least one."""

    def parts(some: IntArray) -> list[_Part]:
        try:
            return [read(some)]
        except TooLongError:
            half = len(some) // 2
            return [*parts(some[:half]), *parts(some[half:])]

    return [part for at in range(0, max(1, len(rows)), _PIECE) for part in parts(rows[at : at + _PIECE])]


def _stored(state: pa.Table, column: StateColumn) -> list[pa.Array] | None:
    """Return what a state table holds of a column; None if it is from before the column began."""
    arrays = []
    for wanted in column.fields:
        at = state.schema.get_field_index(wanted.name)
        if at < 0 or state.schema.field(at).metadata != wanted.metadata:
            return None
        arrays.append(widened(whole(state, wanted.name, state.schema.field(at).type), wanted))
    return arrays
