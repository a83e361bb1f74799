"""Variables of keys: named values, lists and maps per key, and timers. What a user's processor keeps between its calls.

All are *cells*: a value by key, name of the variable, and entry. A list has an entry per element, a map one per key of
its own, a timer is an entry of the variable without a name. Each cell is a state row, so only those that changed are
written.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.model.slots import IntArray
from evenflow.operators.agenda import Agenda
from evenflow.operators.base import GONE, SLOT
from evenflow.operators.key_groups import Key, identities_of, plain_value
from evenflow.operators.readable import VIEW_SCHEMA

TIMERS = None  # the name of the variable that holds them

_NAME = "__name"
_ENTRY = "__entry"
_VALUE = "__value"
_ENDS = "__ends_ms"
_ROW_BYTES = 200  # what a cell takes beside its value


# A value, until when it counts (milliseconds of processing time; None: for ever), and its stored bytes. Plain tuples:
# once they are known to refer to nothing that could refer back, Python's garbage collector does not look at them again.
Cell = tuple[Any, int | None, int]
Cells = dict[Any, Cell]
_Row = tuple[int, Key, str | None, Any, bytes | None, int | None]
_NO_CELLS: Mapping[Any, Cell] = MappingProxyType({})


def variables_schema(schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
    """Return the columns of the state rows."""
    return pa.schema(
        [
            (SLOT, pa.int32()),
            *((key, schema.field(key).type) for key in keys),
            (_NAME, pa.string()),
            (_ENTRY, pa.large_binary()),
            (_VALUE, pa.large_binary()),
            (_ENDS, pa.int64()),
            (GONE, pa.bool_()),
        ]
    )


class _Slot:
    """The cells of one slot: by key, then by name, then by entry."""

    __slots__ = ("cells", "ends", "keys", "size", "timers")

    def __init__(self) -> None:
        self.keys: dict[Key, dict[str | None, Cells]] = {}
        self.timers: Agenda[Key] = Agenda()
        self.ends: Agenda[tuple[Key, str | None, Any]] = Agenda()
        self.cells = self.size = 0


class KeyVariables:
    """The variables of all keys of a lane. Calls are about the key that `go_to` named last."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        self._schema, self._names, self._number = schema, keys, slots
        self._slots: dict[int, _Slot] = {}
        self._changed: dict[tuple[int, Key, str | None, Any], Cells] = {}
        self.now_ms = 0

    # --- the cells of one key --------------------------------------------------------------------------------------

    def go_to(self, slot: int, key: Key) -> None:
        """Let the next calls be about this key."""
        held = self._slots.get(slot)
        if held is None:
            held = self._slots[slot] = _Slot()
        variables = held.keys.get(key)
        if variables is None:
            variables = held.keys[key] = {}
        self._slot, self._held, self._key, self._variables = slot, held, key, variables

    def cells(self, name: str | None) -> Mapping[Any, Cell]:
        """Return the cells of a variable, also those whose time is over; a list's are in its order."""
        return self._variables.get(name, _NO_CELLS)

    def alive(self, name: str | None) -> Iterator[tuple[Any, Any]]:
        """Yield entries and values of a variable that still count, as of now."""
        now = self.now_ms
        for entry, (value, ends, _) in self.cells(name).items():
            if ends is None or ends > now:
                yield entry, value

    def put(self, name: str | None, entry: Any, value: Any, ends_ms: int | None = None) -> None:
        cells, held = self._variables.get(name), self._held
        if cells is None:
            cells = self._variables[name] = {}
        old = cells.get(entry)
        if old is None:
            held.cells += 1
            if name is TIMERS:
                held.timers.put(entry, self._key)
        else:
            held.size -= old[2]
            if old[1] is not None:
                held.ends.remove(old[1], (self._key, name, entry))
        if ends_ms is not None:
            held.ends.put(ends_ms, (self._key, name, entry))
        cells[entry] = (value, ends_ms, 0)
        self._changed[self._slot, self._key, name, entry] = cells

    def remove(self, name: str | None, entry: Any) -> None:
        cells, held = self._variables.get(name), self._held
        old = None if cells is None else cells.pop(entry, None)
        if cells is None or old is None:
            return
        held.cells -= 1
        held.size -= old[2]
        if name is TIMERS:
            held.timers.remove(entry, self._key)
        if old[1] is not None:
            held.ends.remove(old[1], (self._key, name, entry))
        self._changed[self._slot, self._key, name, entry] = cells

    def clear(self, name: str | None) -> None:
        for entry in list(self.cells(name)):
            self.remove(name, entry)

    # --- times -----------------------------------------------------------------------------------------------------

    def due_timers(self, slots: Sequence[int], now_ms: int) -> list[tuple[int, int, Key]]:
        """Return (slot, time, key) of timers that are due, by slot and time; each is told once."""
        there = ((slot, self._slots[slot]) for slot in sorted(slots) if slot in self._slots)
        return [(slot, at, key) for slot, held in there for at, key in held.timers.take(now_ms)]

    def expire(self, slots: Sequence[int]) -> None:
        """Remove cells whose time is over."""
        for slot in sorted(slots):
            held = self._slots.get(slot)
            if held is None:
                continue
            for _, (key, name, entry) in held.ends.take(self.now_ms):
                self.go_to(slot, key)
                self.remove(name, entry)

    def first_ms(self, slots: Sequence[int]) -> int | None:
        """Return the earliest time of a timer, or at which a cell ends."""
        held = (self._slots[slot] for slot in slots if slot in self._slots)
        times = (at for each in held for at in (each.timers.first(), each.ends.first()) if at is not None)
        return min(times, default=None)

    # --- state rows ------------------------------------------------------------------------------------------------

    def changes(self) -> pa.Table:
        """Return the cells that have changed since this was asked last, as they are now, and tombstones."""
        rows: list[_Row] = []
        for (slot, key, name, entry), cells in sorted(self._changed.items(), key=_slot_of):
            cell = cells.get(entry)
            if cell is None:
                rows.append((slot, key, name, entry, None, None))
                self._tidy(slot, key, name)
                continue
            value, ends, size = cell
            data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
            cells[entry] = (value, ends, len(data))
            self._slots[slot].size += len(data) - size
            rows.append((slot, key, name, entry, data, ends))
        self._changed = {}
        return self._table(rows)

    def forget_changes(self) -> None:
        """Take cells as they are for stored, as they are if they have just been read."""
        self.changes()

    def install(self, state: pa.Table) -> None:
        columns = (state[name].to_pylist() for name in (SLOT, _NAME, _ENTRY, _VALUE, _ENDS, GONE))
        for key, (slot, name, entry, value, ends, gone) in zip(
            identities_of(state, self._names), zip(*columns, strict=True), strict=True
        ):
            self.go_to(slot, key)
            place = _loaded(entry)
            if gone:
                self.remove(name, place)
            else:
                self.put(name, place, pickle.loads(value), ends)  # noqa: S301 - of our own checkpoint
        self.forget_changes()

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        return self._table(
            [
                (slot, key, name, entry, pickle.dumps(value, pickle.HIGHEST_PROTOCOL), ends)
                for slot in sorted(set(slots))
                if slot in self._slots
                for key, variables in self._slots[slot].keys.items()
                for name, cells in variables.items()
                for entry, (value, ends, _) in cells.items()
            ]
        )

    def drop(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._slots.pop(slot, None)

    def view(self, slots: Sequence[int]) -> pa.Table:
        rows = [
            (slot, ", ".join(map(str, key)), _shown(variables))
            for slot in sorted(set(slots))
            if slot in self._slots
            for key, variables in self._slots[slot].keys.items()
            if any(variables.values())
        ]
        return pa.table([list(column) for column in zip(*rows, strict=True)] or [[], [], []], VIEW_SCHEMA)

    def slot_rows(self) -> IntArray:
        return self._of_slots({slot: held.cells for slot, held in self._slots.items()})

    def slot_bytes(self) -> IntArray:
        return self._of_slots({slot: held.size + _ROW_BYTES * held.cells for slot, held in self._slots.items()})

    def _of_slots(self, figures: dict[int, int]) -> IntArray:
        found = np.zeros(self._number, np.int64)
        found[list(figures)] = list(figures.values())
        return found

    def _tidy(self, slot: int, key: Key, name: str | None) -> None:
        """Keep nothing of a variable or key without cells."""
        keys = self._slots[slot].keys
        variables = keys.get(key)
        if variables is not None:
            if not variables.get(name, True):
                del variables[name]
            if not variables:
                del keys[key]

    def _table(self, rows: Sequence[_Row]) -> pa.Table:
        slots, found, names, entries, values, ends = zip(*rows, strict=True) if rows else ((),) * 6
        keys = [[plain_value(key[at]) for key in found] for at in range(len(self._names))]
        stored = [None if entry is None else pickle.dumps(entry, pickle.HIGHEST_PROTOCOL) for entry in entries]
        columns = [slots, *keys, names, stored, values, ends, [value is None for value in values]]
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)], self._schema
        )


def _slot_of(changed: tuple[tuple[int, Key, str | None, Any], Cells]) -> int:
    return changed[0][0]


def _loaded(entry: bytes | None) -> Any:
    """Return an entry as it was stored; of NaN there is one only, or it would not be found."""
    found = None if entry is None else pickle.loads(entry)  # noqa: S301 - of our own checkpoint
    if isinstance(found, tuple):
        return tuple(math.nan if isinstance(each, float) and math.isnan(each) else each for each in found)
    return found


def _shown(variables: dict[str | None, Cells]) -> str:
    """Return the variables of a key as people read them."""
    said = []
    for name, cells in sorted(variables.items(), key=lambda each: each[0] or ""):
        if name is TIMERS:
            said.append(f"timers: {sorted(cells)}")
        elif None in cells:
            said.append(f"{name}: {cells[None][0]}")
        elif all(isinstance(entry, int) for entry in cells):
            said.append(f"{name}: {[value for value, _, _ in cells.values()]}")
        else:
            said.append(f"{name}: { {entry: cells[entry][0] for entry in sorted(cells, key=repr)} }")
    return ", ".join(said)
