"""The state of one slot of a user's operator, as rows: one per entry of a dictionary, one for any other object.

::

    RestingState ──wake──▶ LiveState ──update(what process returned)──▶ rows that have changed, tombstones
      rows as they came      the object itself ──rows()──▶ all of them

The *head* is the row without a place: the object, or for a dictionary all but its entries. When all of a dictionary is
written, its entries are together in one row, the *pack*, which is many times faster; rows of single entries that come
later count instead of what the pack has at their places. Rows of a slot have one version: what an operator upgrades is
written anew, all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from evenflow.operators.stored_state import PICKLE, StateCodec, StoredState
from evenflow.operators.tracked import (
    NEW,
    SHOWN,
    Plain,
    Tracked,
    Tracker,
    emptied,
    fill,
    is_fixed,
    is_trackable,
    same,
    succeeding,
    tracked,
)

ENTRIES = "entries"  # kind of a head: a dictionary without its entries, which have rows of their own
_ROW_BYTES = 64  # what a row takes beside a value that is packed
_COARSE = 8
_SIZE_BITS = 48
PACK = -(1 << 63)  # the place of the row that holds many entries; its key is their places, as runs


class Runs:
    """Ascending places as bytes: pairs of the first place of a run and how many there are."""

    def __init__(self, data: bytes) -> None:
        """Read them."""
        self._first, self._count = np.frombuffer(data, np.int64).reshape(-1, 2).T

    @staticmethod
    def of(places: Sequence[int]) -> bytes:
        """Write them."""
        there = np.array(places, np.int64)
        starts = np.flatnonzero(np.diff(there, prepend=there[:1] - 2) != 1)
        runs = np.column_stack([there[starts], np.diff(starts, append=len(there))])
        return runs.astype(np.int64).tobytes()

    def __len__(self) -> int:
        return int(self._count.sum())

    def __contains__(self, place: int) -> bool:
        at = int(np.searchsorted(self._first, place, side="right")) - 1
        return at >= 0 and place < int(self._first[at] + self._count[at])

    def places(self) -> list[int]:
        """Return all of them."""
        runs = zip(self._first.tolist(), self._count.tolist(), strict=True)
        return [place for first, count in runs for place in range(first, first + count)]


class StateRow(NamedTuple):
    """One row: the head, or the entry at a place; a tombstone has nothing stored."""

    place: int | None
    key: bytes | None
    stored: StoredState | None


@dataclass
class RestingState:
    """A state that is not in use: its rows, as they were written."""

    head: StoredState | None = None
    pack: tuple[bytes, StoredState] | None = None
    entries: dict[int, tuple[bytes, StoredState] | None] = field(default_factory=dict)  # None: in the pack, and gone
    size: int = 0  # bytes of all rows
    _runs: Runs = field(default_factory=lambda: Runs(b""))

    def put(self, row: StateRow) -> None:
        """Take in a row that counts from now on."""
        place, key, stored = row
        if place is None:
            self.size += _size(row) - (0 if self.head is None else len(self.head.data))
            self.head = stored
            if stored is None or stored.kind != ENTRIES:
                self._clear()
        elif place == PACK:
            self._clear()
            if stored is not None and key is not None:
                self.pack, self._runs = (key, stored), Runs(key)
                self.size += _size(row)
        else:
            before = self.entries.pop(place, None)
            self.size += _size(row) - (0 if before is None else len(before[0]) + len(before[1].data))
            if stored is not None and key is not None:
                self.entries[place] = key, stored
            elif place in self._runs:
                self.entries[place] = None

    def _clear(self) -> None:
        self.pack, self._runs, self.entries = None, Runs(b""), {}
        self.size = 0 if self.head is None else len(self.head.data)

    def rows(self, codec: StateCodec) -> list[StateRow]:
        """Return all rows, without tombstones; entries that have changed since they were packed are packed anew."""
        rows = [] if self.head is None else [StateRow(None, None, self.head)]
        if self.head is None or self.head.kind != ENTRIES:
            return rows
        if self.pack is None or self.entries:
            self.put(packed(self.load(codec), self.places(), codec, self.head.version))
        return [*rows, StateRow(PACK, *self.pack)] if self.pack else rows

    def __len__(self) -> int:
        """Return the number of entries; 1 for a state that is no dictionary."""
        if self.head is None or self.head.kind != ENTRIES:
            return 1
        beside = sum(-1 if entry is None else place not in self._runs for place, entry in self.entries.items())
        return len(self._runs) + beside

    def places(self) -> list[int]:
        """Return the places of all entries, ascending."""
        if not self.entries:
            return self._runs.places()
        there = dict.fromkeys(self._runs.places())
        for place, entry in self.entries.items():
            if entry is None:
                del there[place]
            else:
                there[place] = None
        return sorted(there)

    def load(self, codec: StateCodec) -> Any:
        """Return the object, as it was stored; a dictionary has its entries in the order of their places."""
        if self.head is None:
            raise ValueError("rows of a state without its head")
        if self.head.kind != ENTRIES:
            return codec.load(self.head)
        whole = codec.load(StoredState(PICKLE, self.head.data))
        together = codec.load(self.pack[1]) if self.pack else {}
        if not self.entries:
            fill(whole, together.items())
            return whole
        held = dict(zip(self._runs.places(), together.items(), strict=True))
        for place, entry in self.entries.items():
            if entry is None:
                del held[place]
            else:
                held[place] = codec.load(StoredState(PICKLE, entry[0])), codec.load(entry[1])
        fill(whole, (held[place] for place in sorted(held)))
        return whole


def packed(whole: Plain, places: Sequence[int], codec: StateCodec, version: int) -> StateRow:
    """Return all entries of a dictionary as one row."""
    return StateRow(PACK, Runs.of(places), codec.store(whole, version))


class LiveState:
    """A state in use; `value` is what user code gets, `size` about the bytes of its rows."""

    def __init__(self, codec: StateCodec, version: int, value: Any, buried: set[int] | None = None) -> None:
        """Take a state of which nothing is stored yet; `buried`: places of entries that are stored and do not count."""
        self._codec, self._version = codec, version
        self._head: int | None = None  # tells the head that is stored from others
        self._buried: set[int] = set() if buried is None else buried
        self.value, self.size = value, 0
        if is_trackable(value):
            tracker = Tracker(self._mark_of, min(self._buried, default=0), max(self._buried, default=-1) + 1)
            for key in value:
                tracker.add(key)
            tracker.gone, self._buried = self._buried, set()
            self.value = tracked(value, tracker)

    @classmethod
    def woken(
        cls, codec: StateCodec, version: int, resting: RestingState, upgrade: Callable[[Any, int], Any]
    ) -> LiveState:
        """Take a state into use; one of an older version is upgraded as a whole, and all of it written anew."""
        value, places = resting.load(codec), resting.places()
        stored = resting.head
        if stored is None or stored.version != version:
            older = 0 if stored is None else stored.version
            return cls(codec, version, upgrade(value, older), set(places))
        as_stored = is_trackable(value) and len(value) == len(places)  # else keys have become equal: write all anew
        live = cls(codec, version, None if as_stored else value, set(places))
        live.size, live._head = resting.size, _mark(stored)
        if as_stored:
            tracker, live._buried = Tracker(live._mark_of), set()
            tracker.keep(value.items(), places)
            live.value = tracked(value, tracker)
        return live

    def __len__(self) -> int:
        """Return the number of entries; 1 for a state that is no dictionary."""
        return len(self.value) if isinstance(self.value, Tracked) else 1

    def update(self, state: Any) -> list[StateRow]:
        """Go on with what user code has returned; return what is to be written of it."""
        before = self.value
        if state is not before or (isinstance(state, Tracked) and state.has_more):
            self.value = self._taken(state.plain() if isinstance(state, Tracked) else state, before)
        head = self._stored_head()
        rows = []
        if _mark(head) != self._head:
            self.size += len(head.data) - (0 if self._head is None else _size_of(self._head))
            self._head = _mark(head)
            rows.append(StateRow(None, None, head))
        if isinstance(self.value, Tracked):
            return rows + self._changed_entries(self.value)
        rows += [StateRow(place, None, None) for place in sorted(self._buried)]
        if self._buried:
            self._buried, self.size = set(), len(head.data)
        return rows

    def rows(self) -> list[StateRow]:
        """Return all of the state."""
        rows = [StateRow(None, None, self._stored_head())]
        if isinstance(self.value, Tracked):
            rows.append(self._packed(self.value))
        self.size = sum(map(_size, rows))
        return rows

    def _taken(self, state: Any, before: Any) -> Any:
        """Return a state in the form in which it is held; what is stored of the one before counts as far as it fits."""
        if not is_trackable(state):
            if isinstance(before, Tracked):
                self._buried = before.tracker.stored_places
            return state
        if isinstance(before, Tracked):
            return succeeding(state, before)
        tracker = Tracker(self._mark_of)
        for key in state:
            tracker.add(key)
        tracker.gone, self._buried = self._buried, set()
        return tracked(state, tracker)

    def _mark_of(self, value: Any) -> int:
        return _mark(self._codec.store(value, self._version))

    def _stored_head(self) -> StoredState:
        if not isinstance(self.value, Tracked):
            return self._codec.store(self.value, self._version)
        stored = self._codec.store(emptied(self.value), self._version)
        return StoredState(ENTRIES, stored.data, self._version)

    def _changed_entries(self, entries: Tracked) -> list[StateRow]:
        """Return rows of the entries that have changed; of all, as one, where that is less."""
        tracker = entries.tracker
        gone, count, size = sorted(tracker.gone), len(entries) + len(tracker.gone), self.size
        most = size * count // (size + _ROW_BYTES * count) if count else 0  # so many rows are as much as one for all
        changed = self._changed_keys(entries, most - len(gone))
        if len(changed) + len(gone) > most:
            tracker.packed(entries.raw())
            row = self._packed(entries)
            self.size = _size_of(self._head or 0) + _size(row)
            return [row]
        rows = [StateRow(place, None, None) for place in gone]
        self.size -= size * len(rows) // max(1, count)  # as if all had the same size; a pack makes it exact
        for key in sorted(changed, key=tracker.places.__getitem__):
            value, before = entries.raw_value(key), tracker.touched.get(key, SHOWN)
            stored = self._codec.store(value, self._version)
            was = tracker.marks[key] if before is SHOWN else None if before is NEW else self._mark_of(before)
            if is_fixed(value):
                tracker.marks.pop(key, None)
            else:
                tracker.marks[key] = _mark(stored)
            if _mark(stored) != was:
                row = StateRow(tracker.places[key], self._codec.store(_own_key(entries, key)).data, stored)
                self.size += _size(row) if was is None else len(stored.data) - _size_of(was)
                rows.append(row)
        tracker.settled()
        self.size = max(0, self.size)  # entries that share something are smaller together than apart
        return rows

    def _changed_keys(self, entries: Tracked, most: int) -> list[Any]:
        """Return the keys of entries that have changed, or may have; if they are more than `most`, not all of them."""
        tracker = entries.tracker
        changed: list[Any] = []
        compared: list[tuple[Any, Any]] = []
        held = dict.__getitem__
        for key, before in tracker.candidates():
            if before is NEW or (before is SHOWN and tracker.marks[key] is None):
                changed.append(key)
            elif before is SHOWN or not same(before, held(entries, key)):
                compared.append((key, before))
        tracker.coarse = max(0, tracker.coarse - 1)
        for key, before in compared if len(changed) <= most else ():
            was = tracker.marks[key] if before is SHOWN else self._mark_of(before)
            if self._mark_of(entries.raw_value(key)) != was:
                changed.append(key)
                if len(changed) > most:
                    tracker.coarse = _COARSE
                    break
        return changed

    def _packed(self, entries: Tracked) -> StateRow:
        places = list(map(entries.tracker.places.__getitem__, entries))
        return packed(entries.plain(), places, self._codec, self._version)


class _Probe:
    """Equal to a key, and keeps what it was compared with."""

    def __init__(self, key: Any) -> None:
        self._key = self.found = key

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        same = bool(self._key == other)
        if same:
            self.found = other
        return same


def _own_key(entries: Tracked, key: Any) -> Any:
    """Return the key as the dictionary has it: it may be 1.0 where 1 was asked for."""
    probe = _Probe(key)
    return probe.found if probe in entries else key


def _mark(stored: StoredState) -> int:
    """Return what tells stored values apart in this process, and how many bytes they are."""
    return (hash(stored.data) ^ hash(stored.kind)) << _SIZE_BITS | len(stored.data)


def _size_of(mark: int) -> int:
    return mark & ((1 << _SIZE_BITS) - 1)


def _size(row: StateRow) -> int:
    return len(row.key or b"") + (0 if row.stored is None else len(row.stored.data))
