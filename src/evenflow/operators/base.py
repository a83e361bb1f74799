"""The contract between a lane and what it runs: an operator, and the state of the lane's slots in memory.

::

    Operator ──open(schema, keys, slots)──▶ Resident ──fold(rows, time)──▶ changes for the changelog, rows for the sink
                                              ▲   │ └──fire(slots, time)─▶ likewise, of what has become due
                             install(state) ──┘   └──▶ snapshot(slots), then drop(slots)

State travels as tables: a snapshot, a handoff and the changes of an epoch have the same columns and are all given
to `install`. So an operator needs to know nothing of moves, recovery or storage.

A state row has a key. Changes may hold *tombstones*: rows in which `GONE` is true say that the state has the row's key
no longer; what stands in their other columns does not count. Snapshots and handoffs hold no tombstones.

Time is a value: `EpochTime` stands in the epoch's record, and an operator reads no clock. What is to happen at some
time is state like any other, so it moves and recovers with its slot: `due` says when, `fire` does it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from evenflow.model import Contents, Due, EpochTime
from evenflow.model.slots import FloatArray, IntArray
from evenflow.operators.slot_order import by_slot

SLOT = "__slot"  # int32, first column of every state table
LATEST = EpochTime(sys.maxsize)  # an epoch after all others, for those who fold without any
HASH = "__hash"  # int64, the hash that decided the slot of the row's key
GONE = "__gone"  # bool, last column of every state table: true in a tombstone


@dataclass(frozen=True)
class Folded:
    """What one call of `fold` or `fire` did.

    `changes` are the state rows it changed, as they are now, and tombstones of those it removed, sorted by slot, no key
    twice; `output` the rows for the sink in update mode, or for the stage that this one feeds, and `output_slots` the
    slot of each. The rows of one slot are in an order that depends on the slot's state and input only, not on what else
    the lane holds. `busy_s`: the seconds spent on each slot of the key space, if the operator knows.
    """

    changes: pa.Table
    output: pa.Table
    output_slots: IntArray
    busy_s: FloatArray | None = None

    def then(self, later: Folded) -> Folded:
        """Return what both have done in one epoch: of a key in both changes, the later row counts."""
        both = [(table, table[SLOT].to_numpy()) for table in (self.changes, later.changes)]
        known = [each.busy_s for each in (self, later) if each.busy_s is not None]
        output = pa.concat_tables([self.output, later.output])
        slots = np.concatenate([self.output_slots, later.output_slots])
        return Folded(by_slot(both)[0], output, slots, np.sum(known, axis=0) if known else None)


class Resident(Protocol):
    """The state of all slots that one lane holds in memory. After an error of `fold` it must be thrown away."""

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:
        """Fold rows of an epoch into the state; `slots[i]` is the slot of row i, ascending, input order within a slot.

        What the operator has been keeping since a later epoch only does not see them.
        """
        ...

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:
        """Do what is due in these slots, also where no rows came; None if nothing is.

        It is called once for each epoch that the slots pass, after its rows were folded; what was done must not be due
        any more.
        """
        ...

    def due(self, slots: Sequence[int]) -> Due | None:
        """Return when something is to be done next in these slots; None if nothing is, at no time."""
        ...

    def install(self, state: pa.Table) -> None:
        """Insert, overwrite or remove state rows, of resident or of new slots.

        Of several rows for one key the last counts: the key has that state, or none if it is a tombstone. The table may
        have been written by the operator before it was changed.
        """
        ...

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        """Return the state rows of these slots, sorted by slot, without tombstones; nothing is removed."""
        ...

    def drop(self, slots: Sequence[int]) -> None:
        """Forget these slots."""
        ...

    def output(self, slots: Sequence[int]) -> pa.Table:
        """Return the output rows of all keys of these slots (complete mode)."""
        ...

    def view(self, slots: Sequence[int]) -> pa.Table:
        """Return the state of these slots as people read it, in the columns of `Operator.view_schema`."""
        ...

    def slot_rows(self) -> IntArray:
        """Return the number of state rows of each slot of the key space."""
        ...

    def slot_bytes(self) -> IntArray:
        """Return an estimate of the memory that each slot of the key space takes."""
        ...


class Operator(Protocol):
    """What a lane does with the rows of its slots; itself without state. `schema` is that of the input rows."""

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        """Tell whether the rows for `fold` must carry the column `HASH`."""
        ...

    def columns(self) -> tuple[str, ...] | None:
        """Return the value columns that `fold` needs besides the keys; None for all there are."""
        ...

    def output_modes(self) -> tuple[str, ...]:
        """Return the output modes of Spark's that it has, the one that counts if none is said first."""
        ...

    def uses_event_time(self) -> bool:
        """Tell whether it goes by `before_us` and `late_us` of the epochs, as Spark's operators do.

        Then a tick follows the rows that moved the watermark, as soon as no more rows come.
        """
        ...

    def in_mode(self, mode: str) -> Operator:
        """Return the operator as it puts out rows in an output mode; raise if it has none such, and say why."""
        ...

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        """Return what the state is made of, by which a checkpoint knows whether it can go on from it."""
        ...

    def resumed(self, contents: Contents) -> Operator:
        """Return the operator as it goes on from a checkpoint that holds `contents`."""
        ...

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        """Return the columns of the output rows."""
        ...

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        """Return the columns of changes and snapshots."""
        ...

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        """Return the columns in which people read the state."""
        ...

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> Resident:
        """Return the empty state of a lane in a key space of `slots` slots."""
        ...
