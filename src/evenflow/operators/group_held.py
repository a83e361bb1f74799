"""What is kept per key between calls, by slot: a state as bytes, when it times out, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from evenflow.model.slots import IntArray
from evenflow.operators.base import GONE, SLOT
from evenflow.operators.key_groups import Key, identities_of, plain_value
from evenflow.operators.readable import VIEW_SCHEMA

_STATE, _TIMEOUT = "__state", "__timeout"
_ROW_BYTES = 64  # what an entry takes beside its state
_NEVER = np.iinfo(np.int64).max


class Entry(NamedTuple):
    """What is kept of a key. With neither state nor timeout there is nothing to keep."""

    state: bytes | None
    timeout_ms: int | None = None


NOTHING = Entry(None)
Change = tuple[int, Key, Entry]  # slot, key, and what is kept from now on


def held_schema(schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
    """Return the columns of the state."""
    key_fields = [(key, schema.field(key).type) for key in keys]
    own = [(_STATE, pa.large_binary()), (_TIMEOUT, pa.int64()), (GONE, pa.bool_())]
    return pa.schema([(SLOT, pa.int32()), *key_fields, *own])


class Held:
    """The entries of a lane's slots, and of each slot a time before which none of its timeouts is over."""

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty; `schema` is that of the state."""
        self._schema, self._keys = schema, keys
        self._entries: dict[int, dict[Key, Entry]] = {}
        self._bytes: IntArray = np.zeros(slots, np.int64)
        self._rows: IntArray = np.zeros(slots, np.int64)
        self._first: IntArray = np.full(slots, _NEVER, np.int64)  # may be too early
        self._awaited: IntArray = np.full(slots, _NEVER, np.int64)  # the same, without those that were called already

    def get(self, slot: int, key: Key) -> Entry | None:
        """Return what is kept of a key."""
        entries = self._entries.get(slot)
        return None if entries is None else entries.get(key)

    def put(self, slot: int, key: Key, entry: Entry) -> None:
        """Keep an entry instead of what there was."""
        entries = self._entries.setdefault(slot, {})
        old = entries.get(key)
        if old is not None:
            self._bytes[slot] -= len(old.state or b"")
            self._rows[slot] -= 1
        if entry == NOTHING:
            entries.pop(key, None)
            return
        entries[key] = entry
        self._bytes[slot] += len(entry.state or b"")
        self._rows[slot] += 1
        if entry.timeout_ms is not None:
            self._first[slot] = min(self._first[slot], entry.timeout_ms)
            self._awaited[slot] = min(self._awaited[slot], entry.timeout_ms)

    # --- timeouts ------------------------------------------------------------------------------------------------

    def over(self, slots: Sequence[int], now_ms: int) -> list[tuple[int, Key, Entry]]:
        """Return the entries whose timeout is before `now_ms`, by slot, then by time, whatever has moved."""
        listed = np.asarray(sorted(set(slots)), np.int64)
        found: list[tuple[int, Key, Entry]] = []
        for slot in listed[self._first[listed] < now_ms].tolist():
            timed = [
                (entry.timeout_ms, key, entry)
                for key, entry in self._entries.get(slot, {}).items()
                if entry.timeout_ms is not None and entry.timeout_ms < now_ms
            ]
            found += [(slot, key, entry) for _, key, entry in sorted(timed, key=lambda each: (each[0], repr(each[1])))]
        return found

    def passed(self, slots: Sequence[int], now_ms: int) -> None:
        """Take in that all timeouts before `now_ms` were called; some may have stayed as they are."""
        for slot in set(slots):
            if self._first[slot] < now_ms:
                times = [
                    each.timeout_ms for each in self._entries.get(slot, {}).values() if each.timeout_ms is not None
                ]
                self._first[slot] = min(times, default=_NEVER)
                self._awaited[slot] = min((time for time in times if time >= now_ms), default=_NEVER)

    def next_ms(self, slots: Sequence[int]) -> int | None:
        """Return the earliest timeout that was not called yet."""
        earliest = min((int(self._awaited[slot]) for slot in slots), default=_NEVER)
        return None if earliest == _NEVER else earliest

    # --- as tables -----------------------------------------------------------------------------------------------

    def table(self, changes: Sequence[Change]) -> pa.Table:
        """Return state rows as they are, with tombstones where nothing is kept; they are sorted by slot."""
        keys = [[plain_value(key[at]) for _, key, _ in changes] for at in range(len(self._keys))]
        entries = [entry for _, _, entry in changes]
        columns = [
            [slot for slot, _, _ in changes],
            *keys,
            [entry.state for entry in entries],
            [entry.timeout_ms for entry in entries],
            [entry == NOTHING for entry in entries],
        ]
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)], self._schema
        )

    def key_table(self, keys: Sequence[Key]) -> pa.Table:
        """Return keys as rows."""
        schema = pa.schema([self._schema.field(name) for name in self._keys])
        columns = [[plain_value(key[at]) for key in keys] for at in range(len(self._keys))]
        return pa.table([pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)], schema)

    def install(self, state: pa.Table) -> None:
        """Keep what state rows say."""
        slots, states, timeouts, gone = (state[name].to_pylist() for name in (SLOT, _STATE, _TIMEOUT, GONE))
        rows = zip(slots, identities_of(state, self._keys), states, timeouts, gone, strict=True)
        for slot, key, stored, timeout_ms, is_gone in rows:
            self.put(slot, key, NOTHING if is_gone else Entry(stored, timeout_ms))

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        """Return all that is kept in some slots."""
        return self.table(list(self._listed(slots)))

    def view(self, slots: Sequence[int], shown: Callable[[Entry], str]) -> pa.Table:
        """Return it as people read it."""
        rows = [(slot, ", ".join(map(str, key)), shown(entry)) for slot, key, entry in self._listed(slots)]
        return pa.table([list(column) for column in zip(*rows, strict=True)] or [[], [], []], VIEW_SCHEMA)

    def drop(self, slots: Sequence[int]) -> None:
        """Forget slots."""
        for slot in slots:
            self._entries.pop(slot, None)
            self._bytes[slot] = self._rows[slot] = 0
            self._first[slot] = self._awaited[slot] = _NEVER

    def slot_rows(self) -> IntArray:
        """Return the number of entries of each slot."""
        return self._rows.copy()

    def slot_bytes(self) -> IntArray:
        """Return about how much memory each slot takes."""
        return self._bytes + _ROW_BYTES * self._rows

    def _listed(self, slots: Sequence[int]) -> Iterator[Change]:
        return ((slot, *each) for slot in sorted(set(slots)) for each in self._entries.get(slot, {}).items())
