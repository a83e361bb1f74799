"""What each slot needs to be rebuilt: the rows of its newest snapshot, and of the changes after it; in columns.

A commit adds a row for each slot that changed, and a snapshot makes the rows up to its version useless. Nothing is
removed then: now and then `settled` leaves out what is useless, for all slots in one go. So a commit costs what it
brings, and a slot that nobody asks for costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from evenflow.model import Epoch, SlotId
from evenflow.model.slots import BoolArray, IntArray
from evenflow.state.files import FileRef
from evenflow.state.held_files import HeldFiles
from evenflow.state.records import Parts, SlotRef

_SLOT, _FILE, _VERSION, _START, _ROWS, _BYTES = range(6)
_NONE = -1


@dataclass(frozen=True, slots=True)
class SlotSources:
    """All it takes to rebuild a slot at its committed version: a snapshot, then the changes after it, in order."""

    snapshot: SlotRef | None
    changes: tuple[SlotRef, ...]


@dataclass(slots=True)
class Holdings:
    """The snapshots, one column per slot; the changes, one per slot and commit; and what they come to per slot.

    `state_rows`: rows of a slot's state, as its lane said last. `stored_rows`, `stored_bytes`: what must be read of it.
    """

    slots: int
    files: HeldFiles
    state_rows: IntArray = field(init=False)
    stored_rows: IntArray = field(init=False)
    stored_bytes: IntArray = field(init=False)
    oldest_change: IntArray = field(init=False)  # the version of the first one, far ahead for none
    _snapshots: IntArray = field(init=False)
    _rows_then: IntArray = field(init=False)  # of the state, when its snapshot was written
    _changes: IntArray = field(init=False)
    _count: int = 0
    _order: IntArray | None = None  # the changes by slot, made when it is asked for

    def __post_init__(self) -> None:
        """Begin with slots that hold nothing."""
        self.state_rows, self.stored_rows, self.stored_bytes = (np.zeros(self.slots, np.int64) for _ in range(3))
        self.oldest_change = np.full(self.slots, np.iinfo(np.int64).max)
        self._snapshots = np.full((6, self.slots), _NONE)
        self._snapshots[_ROWS:] = 0
        self._rows_then = np.zeros(self.slots, np.int64)
        self._changes = np.empty((6, 1024), np.int64)

    # --- in ------------------------------------------------------------------------------------------------------

    def add_changes(self, parts: IntArray, state_rows: IntArray) -> None:
        """Add changes: columns of slot, file, version, first row, rows, bytes; and how many rows the slots have now."""
        self.state_rows[parts[_SLOT]] = state_rows
        self._append(parts)
        np.add.at(self.stored_rows, parts[_SLOT], parts[_ROWS])
        np.add.at(self.stored_bytes, parts[_SLOT], parts[_BYTES])
        np.minimum.at(self.oldest_change, parts[_SLOT], parts[_VERSION])

    def _append(self, parts: IntArray) -> None:
        count = parts.shape[1]
        if self._count + count > self._changes.shape[1]:
            grown = np.empty((6, 2 * (self._count + count)), np.int64)
            grown[:, : self._count] = self._changes[:, : self._count]
            self._changes = grown
        self._changes[:, self._count : self._count + count] = parts
        self._count += count
        self._order = None

    def set_snapshots(self, snapshots: Sequence[tuple[SlotId, SlotRef, int]]) -> None:
        """Take in the snapshots of a commit, with their shares of their files by rows.

        Slots that are packed have as many rows each, however large they are: what they take together is shared out by
        the rows of their states.
        """
        sizes: defaultdict[FileRef, int] = defaultdict(int)
        rows: defaultdict[FileRef, int] = defaultdict(int)
        for slot, ref, size in snapshots:
            sizes[ref.file] += size
            rows[ref.file] += int(self.state_rows[slot])
        for slot, ref, size in snapshots:
            of_all = rows[ref.file]
            share = sizes[ref.file] * int(self.state_rows[slot]) // of_all if of_all else size
            self._set_snapshot(slot, ref, share)

    def _set_snapshot(self, slot: SlotId, ref: SlotRef, size: int) -> None:
        """Let a newer snapshot replace the one before and all changes up to it."""
        number = self.files.number(ref.file)  # even one that comes too late: so its file is known, and goes
        if ref.version <= self._snapshots[_VERSION, slot] and self._snapshots[_FILE, slot] != _NONE:
            return
        self._snapshots[:, slot] = (slot, number, ref.version, ref.start, ref.rows, size)
        self._rows_then[slot] = self.state_rows[slot]
        self._order = None
        # Changes that are newer than the snapshot count again when `settled` has looked.
        self.stored_rows[slot], self.stored_bytes[slot] = ref.rows, size
        self.oldest_change[slot] = np.iinfo(np.int64).max

    def settle(self) -> BoolArray:
        """Leave out what is useless; return which ranges of files are used by the rest."""
        snapshots, changes = self._snapshots, self._changes[:, : self._count]
        kept = changes[:, changes[_VERSION] > snapshots[_VERSION, changes[_SLOT]]]
        self._count = kept.shape[1]
        self._changes[:, : self._count] = kept
        self._order = None
        for stored, column in ((self.stored_rows, _ROWS), (self.stored_bytes, _BYTES)):
            stored[:] = snapshots[column] + np.bincount(kept[_SLOT], kept[column], self.slots).astype(np.int64)
        self.oldest_change[:] = np.iinfo(np.int64).max
        self.oldest_change[kept[_SLOT, ::-1]] = kept[_VERSION, ::-1]  # the first of each slot is written last
        used = np.zeros(len(self.files.refs), dtype=bool)
        used[kept[_FILE]] = True
        used[snapshots[_FILE, snapshots[_FILE] != _NONE]] = True
        return used

    # --- out -----------------------------------------------------------------------------------------------------

    def sources(self, slot: SlotId) -> SlotSources:
        """Return what it takes to rebuild a slot at its committed version."""
        if self._order is None:
            self._order = np.argsort(self._changes[_SLOT, : self._count], kind="stable")
        order, slots = self._order, self._changes[_SLOT]
        low, high = np.searchsorted(slots[: self._count], [slot, slot + 1], sorter=order)
        snapshot = None if self._snapshots[_FILE, slot] == _NONE else self._ref(self._snapshots[:, slot])
        least = -2 if snapshot is None else snapshot.version
        changes = (self._ref(self._changes[:, at]) for at in order[low:high] if self._changes[_VERSION, at] > least)
        return SlotSources(snapshot, tuple(changes))

    def state_bytes(self, slots: IntArray) -> IntArray:
        """Return about how many bytes slots would take if they were written out now.

        That is what the snapshot took, for as many rows as there are now. Rows of a snapshot say nothing: a dict is
        packed into two of them. Where there is none, rows take what those of the changes do.
        """
        rows, then = self.state_rows[slots], self._rows_then[slots]
        known = (self._snapshots[_FILE, slots] != _NONE) & (then > 0)
        size = np.where(known, self._snapshots[_BYTES, slots], self.stored_bytes[slots])
        found: IntArray = rows * size // np.maximum(1, np.where(known, then, self.stored_rows[slots]))
        return found

    def snapshot_version(self, slot: SlotId) -> Epoch | None:
        """Return the version of a slot's newest snapshot."""
        version: int | None = self._snapshots[_VERSION, slot].item()
        return None if self._snapshots[_FILE, slot] == _NONE else version

    def bytes_by_file(self) -> tuple[IntArray, Iterator[tuple[IntArray, IntArray]]]:
        """Return the bytes that are needed of each range; and (slots, ranges) of all that is needed."""
        there = self._snapshots[:, self._snapshots[_FILE] != _NONE]
        changes = self._changes[:, : self._count]
        size = len(self.files.refs)
        needed = sum(np.bincount(part[_FILE], part[_BYTES], size) for part in (there, changes))
        return np.asarray(needed, dtype=np.int64), ((part[_SLOT], part[_FILE]) for part in (there, changes))

    def _ref(self, part: IntArray) -> SlotRef:
        _, file, version, start, rows, _ = part.tolist()
        return SlotRef(self.files.ref(file), version, start, rows)

    # --- as records ----------------------------------------------------------------------------------------------

    def to_parts(self, renumbered: IntArray) -> tuple[Parts, Parts]:
        """Return the snapshots and the changes with other numbers for ranges."""
        there = self._snapshots[:, self._snapshots[_FILE] != _NONE].copy()
        changes = self._changes[:, : self._count].copy()
        for part in (there, changes):
            part[_FILE] = renumbered[part[_FILE]]
        return _parts(there), _parts(changes)

    def take_parts(self, snapshots: Parts, changes: Parts, numbers: IntArray, state_rows: Sequence[int]) -> None:
        """Take in what `to_parts` has given; `numbers[i]` is the range that it calls i.

        How many rows slots had at their snapshots is not kept: they are taken to have had those of now.
        """
        self.state_rows[:] = self._rows_then[:] = state_rows
        there, changed = _columns(snapshots), _columns(changes)
        for part in (there, changed):
            part[_FILE] = numbers[part[_FILE]]
        self._snapshots[:, there[_SLOT]] = there
        self._append(changed)
        self.settle()


def _parts(columns: IntArray) -> Parts:
    return Parts(*(tuple(column.tolist()) for column in columns))


def _columns(parts: Parts) -> IntArray:
    columns = (parts.slots, parts.files, parts.versions, parts.starts, parts.rows, parts.sizes)
    return np.array(columns, dtype=np.int64).reshape(6, len(parts.slots))
