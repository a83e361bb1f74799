"""From the identity of a key, 64 bits, to the row that holds its state: open addressing in numpy.

Rows are dense and numbered in the order in which keys came, so that every other column of the state is a plain array.
Lookups are vectorised: one pass finds all keys that lie at their home position, then each round of linear probing
carries on with those that are left, a number that shrinks fast because the table is at most half full at the start
of a call.
"""

from __future__ import annotations

import numpy as np

from evenflow.model.slots import IntArray
from evenflow.operators.arrays import Array, grown

_EMPTY, _REMOVED = -1, -2
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio
_FEWEST = 1024  # positions of the smallest table
_DEAD = -1  # slot of a row that is no longer used


class KeyIndex:
    """Identity -> row; knows identity and slot of each row.

    A row may be *loose*: it exists, but no identity leads to it, because whoever keeps the index finds it otherwise
    (a null key has no identity of its own; two different keys may share one).
    """

    def __init__(self, slots: int) -> None:
        """Start empty, in a key space of `slots` slots."""
        self.rows = 0  # rows ever numbered, dead ones included until the next `keep`
        self.slot_rows = np.zeros(slots, np.int64)  # live rows of each slot
        self._identities = np.empty(_FEWEST, np.int64)
        self._slots = np.empty(_FEWEST, np.int32)
        self._scratch = np.empty(_FEWEST, np.int32)
        self._loose: set[int] = set()
        self._allocate(0)

    @property
    def capacity(self) -> int:
        """The rows there is room for; other columns grow along."""
        return len(self._identities)

    @property
    def live(self) -> int:
        """The rows in use."""
        return int(self.slot_rows.sum())

    @property
    def nbytes(self) -> int:
        """The memory taken, without room for rows to come."""
        row = self._identities.itemsize + self._slots.itemsize + self._scratch.itemsize
        return self._table.nbytes + self.rows * row

    def identities(self, rows: IntArray) -> IntArray:
        found: IntArray = self._identities[rows]
        return found

    def slots(self, rows: IntArray) -> Array:
        return self._slots[rows]

    def rows_of_slots(self, slots: Array) -> IntArray:
        """Return the live rows of some slots, sorted by slot."""
        wanted = np.zeros(len(self.slot_rows) + 1, np.bool_)
        wanted[slots] = True
        wanted[_DEAD] = False
        rows = np.flatnonzero(wanted[self._slots[: self.rows]])
        return rows[np.argsort(self._slots[rows], kind="stable")]

    def find(self, identities: IntArray, slots: Array) -> tuple[Array, IntArray]:
        """Return the row of each identity, and the positions in `identities` that made a new row, in row order."""
        self._make_room(len(identities))
        home = self._home(identities)
        found = self._table[home]
        # An empty or removed position (-1, -2) reads some identity from the end: it does not count, even if equal.
        left = np.flatnonzero((self._identities[found] != identities) | (found < 0))
        if not len(left):
            return found, left
        before, created = self.rows, []
        at, wanted, last = home[left], identities[left], np.int64(len(self._table) - 1)
        while len(left):
            row = self._table[at]
            empty = np.flatnonzero(row == _EMPTY)
            if len(empty):
                won = self._claim(at, empty, wanted)
                created.append(left[won])
                row = self._table[at]
            hit = (self._identities[row] == wanted) & (row >= 0)
            found[left[hit]] = row[hit]
            rest = np.flatnonzero(~hit)
            left, wanted, at = left[rest], wanted[rest], (at[rest] + 1) & last
        new: IntArray = np.concatenate(created) if created else left
        self._settle(before, slots[new])
        return found, new

    def _claim(self, at: IntArray, empty: IntArray, wanted: IntArray) -> IntArray:
        """Give each empty position to one of those that want it, with a new row; return who got one."""
        positions = at[empty]
        self._table[positions] = empty  # of several, one stays: read back which
        won: IntArray = empty[self._table[positions] == empty]
        high = self.rows + len(won)
        self._identities[self.rows : high] = wanted[won]
        self._table[at[won]] = np.arange(self.rows, high, dtype=np.int32)
        self.rows = high
        return won

    def append(self, identities: IntArray, slots: Array) -> None:
        """Add many identities, all new and different, as the next rows: one rebuild, no probing."""
        self._extend(self.rows + len(identities))
        low = self.rows
        self.rows += len(identities)
        self._identities[low : self.rows] = identities
        self._settle(low, slots)
        self._rebuild(self.rows)

    def append_loose(self, identities: IntArray, slots: Array) -> IntArray:
        """Add loose rows and return them."""
        self._make_room(len(identities))
        low = self.rows
        self.rows += len(identities)
        self._identities[low : self.rows] = identities
        self._settle(low, slots)
        added = np.arange(low, self.rows)
        self._loose.update(added.tolist())
        return added

    def tie(self, row: int) -> bool:
        """Let the identity of a loose row lead to it, unless it leads to another row; tell whether it does now."""
        identity = self._identities[row : row + 1]
        at, last = int(self._home(identity)[0]), len(self._table) - 1
        while (there := int(self._table[at])) != _EMPTY:
            if there >= 0 and self._identities[there] == identity[0]:
                return False
            at = (at + 1) & last
        self._table[at] = row
        self._loose.discard(row)
        return True

    def forget(self, rows: IntArray) -> None:
        """Remove live rows; their numbers are not used again before `keep`."""
        self.slot_rows -= np.bincount(self._slots[rows], minlength=len(self.slot_rows))
        self._slots[rows] = _DEAD
        if self._loose:
            loose = np.isin(rows, self._loose_rows())
            self._loose.difference_update(rows[loose].tolist())
            rows = rows[~loose]
        self._unlink(rows)

    def _unlink(self, rows: IntArray) -> None:
        """Take rows out of the table."""
        left, at, last = rows, self._home(self._identities[rows]), np.int64(len(self._table) - 1)
        while len(left):
            hit = self._table[at] == left
            self._table[at[hit]] = _REMOVED
            left, at = left[~hit], (at[~hit] + 1) & last

    def keep(self) -> IntArray:
        """Renumber the live rows from 0 and return their old numbers, ascending."""
        kept = np.flatnonzero(self._slots[: self.rows] != _DEAD)
        self._loose = set(np.searchsorted(kept, self._loose_rows()).tolist())
        self._identities, self._slots, self.rows = self._identities[kept], self._slots[kept], len(kept)
        self._extend(_FEWEST)
        self._scratch = np.empty(self.capacity, np.int32)
        self._rebuild(self.rows)
        return kept

    def first_positions(self, rows: Array) -> Array:
        """Return for each entry of `rows` the position at which the same row comes first; no sort."""
        backwards = np.arange(len(rows) - 1, -1, -1, dtype=np.int32)
        self._scratch[rows[::-1]] = backwards  # numpy: of repeated indexes the last assignment stays
        return self._scratch[rows]

    def has_any(self, identities: IntArray) -> bool:
        """Tell whether one of the identities, or one of them twice, would not be new."""
        live = np.flatnonzero(self._slots[: self.rows] != _DEAD)
        sorted_ = np.sort(np.concatenate([identities, self._identities[live]]))
        return bool((sorted_[1:] == sorted_[:-1]).any())

    def _home(self, identities: IntArray) -> IntArray:
        """Return the position at which probing starts; the shift lets high bits take part (floats, composed ids)."""
        bits = identities.view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * _MULTIPLIER
        home: IntArray = (mixed >> self._shift).view(np.int64)
        return home

    def _settle(self, low: int, slots: Array) -> None:
        """Record the slots of the rows from `low` on."""
        self._slots[low : self.rows] = slots
        self.slot_rows += np.bincount(slots, minlength=len(self.slot_rows))

    def _make_room(self, extra: int) -> None:
        """Prepare for `extra` rows: half full at most now, nine tenths if all of them are new."""
        need, positions = self.rows + extra, len(self._table)
        self._extend(need)
        if self.rows * 2 > positions or need * 10 > positions * 9:
            self._rebuild(max(need, self.rows * 2))

    def _extend(self, rows: int) -> None:
        if rows > self.capacity:
            capacity = max(rows, self.capacity * 2)
            self._identities = grown(self._identities, capacity, self.rows)
            self._slots = grown(self._slots, capacity, self.rows)
            self._scratch = np.empty(capacity, np.int32)

    def _allocate(self, rows: int) -> None:
        bits = max(_FEWEST, 2 * rows - 1).bit_length()
        self._shift = np.uint64(64 - bits)
        self._table = np.full(1 << bits, _EMPTY, np.int32)

    def _loose_rows(self) -> IntArray:
        return np.sort(np.fromiter(self._loose, np.int64, len(self._loose)))

    def _rebuild(self, rows: int) -> None:
        """Make a table for `rows` rows.

        Linear probing in closed form: sorted by home, ``at[i] = max(home[i], at[i - 1] + 1)``.
        """
        linked = self._slots[: self.rows] != _DEAD
        linked[self._loose_rows()] = False
        members = np.flatnonzero(linked)
        self._allocate(max(rows, len(members)))
        packed = self._home(self._identities[members]) << 32 | members  # sorting integers is 5 x faster than argsort
        packed.sort()
        order = np.arange(len(packed))
        at = np.maximum.accumulate((packed >> 32) - order) + order
        members = packed & 0xFFFFFFFF
        fitting = int(np.searchsorted(at, len(self._table)))
        self._table[at[:fitting]] = members[:fitting]
        free = 0
        for row in members[fitting:].tolist():  # the run that wraps around the end: a handful
            while self._table[free] != _EMPTY:
                free += 1
            self._table[free] = row
