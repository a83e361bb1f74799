"""What a lane does with each message. It knows no Spark and no socket: a message in, a message out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from evenflow.errors import ProtocolError
from evenflow.lane.faults import Faults
from evenflow.lane.messages import (
    Adopt,
    Adopted,
    BlockSegment,
    Done,
    FromLane,
    Release,
    Released,
    SlotColumns,
    SlotToLoad,
    ToLane,
    Work,
)
from evenflow.model.slots import FloatArray, IntArray
from evenflow.operators import SLOT, Apply, Folded, Operator, Resident
from evenflow.state import FileRef, Folder, LaneCommit, SlotRef, changes_name, output_name, snapshot_name


@dataclass(frozen=True)
class LaneConfig:
    """What a lane is told when it starts, whatever its attempt."""

    lane: int
    location: str
    operator: Operator
    schema: pa.Schema
    keys: tuple[str, ...]
    slots: int
    complete: bool = False
    rows_per_second: float | None = None  # stands for a slower machine in demos and experiments; None in real use
    publishes: bool = True  # False if no sink wants the outputs: then they are not written


@dataclass
class LaneWorker:
    """The state of one lane and how messages change it."""

    config: LaneConfig
    attempt: str
    folder: Folder
    faults: Faults = field(default_factory=Faults)
    clock: Callable[[], float] = time.perf_counter
    _resident: Resident = field(init=False)
    _slots: set[int] = field(default_factory=set)  # those whose state is resident
    _idle_since: float = field(init=False)

    def __post_init__(self) -> None:
        """Start with no slot."""
        config = self.config
        self._resident = config.operator.open(config.schema, config.keys, config.slots)
        self._idle_since = self.clock()

    def handle(self, message: ToLane) -> FromLane:
        """Do what a message says and return the answer."""
        if isinstance(message, Work):
            return self._work(message)
        if isinstance(message, Adopt):
            return self._adopt(message)
        if isinstance(message, Release):
            return self._release(message)
        raise ProtocolError(f"lane {self.config.lane} cannot handle {type(message).__name__}")

    # --- slots come and go ---------------------------------------------------------------------------------------

    def _adopt(self, message: Adopt) -> Adopted:
        began = self.clock()
        slots = tuple(entry.slot for entry in message.slots)
        self.faults.reach("lane.adopting", self.config.lane)
        self._resident.drop(slots)
        for table in _in_order(self.folder, message.slots):
            self._resident.install(table)
        self._slots.update(slots)
        sizes = self._resident.slot_bytes()
        return Adopted(slots, int(sizes[list(slots)].sum()), self.clock() - began)

    def _release(self, message: Release) -> Released:
        began = self.clock()
        self._must_hold(message.slots, "hand off")
        self.faults.reach("lane.releasing", self.config.lane, message.version)
        state = self._resident.snapshot(message.slots)
        file = self.folder.write_table(message.handoff, state)
        places = _places(state, message.slots)
        self._resident.drop(message.slots)
        self._slots.difference_update(message.slots)
        self.faults.reach("lane.released", self.config.lane, message.version)
        handoffs = tuple((slot, SlotRef(file, message.version, start, rows)) for slot, start, rows in places)
        return Released(handoffs, file.size, self.clock() - began)

    def _must_hold(self, slots: Iterable[int], what: str) -> None:
        """Refuse to take a slot that is elsewhere for an empty one."""
        absent = sorted(set(slots) - self._slots)
        if absent:
            raise ProtocolError(f"lane {self.config.lane} was told to {what} slots {absent}, which it does not hold")

    # --- an epoch ------------------------------------------------------------------------------------------------

    def _work(self, message: Work) -> Done:
        began = self.clock()
        idle_s, lane = began - self._idle_since, self.config.lane
        self.faults.reach("lane.before-fold", lane, message.epoch)
        rows, slots = self._rows_of(message.blocks)
        self._must_hold((slot for block in message.blocks for slot in block.segment.slots), "fold rows of")
        folded = self._resident.fold(rows, slots) if rows.num_rows else None
        self.faults.reach("lane.folded", lane, message.epoch)
        commit = self._write(message, folded)
        self.faults.reach("lane.changes-written", lane, message.epoch)
        self._keep_pace(rows.num_rows, began)
        busy_s = self.clock() - began
        self._idle_since = self.clock()
        sizes, keys = self._resident.slot_bytes(), self._resident.slot_rows()
        load = self._load(slots, sizes, busy_s, None if folded is None else folded.busy_s)
        return Done(commit, load, rows.num_rows, busy_s, idle_s, int(keys.sum()), int(sizes.sum()))

    def _rows_of(self, blocks: Sequence[BlockSegment]) -> tuple[pa.Table, IntArray]:
        """Return the rows of all blocks ordered by slot, within a slot in the order of the blocks; and their slots."""
        tables, slots = [], []
        for block in blocks:
            table = pa.Table.from_batches(self.folder.read_batches(block.file, [block.segment.batch]))
            row_slots = np.repeat(np.array(block.segment.slots), np.array(block.segment.counts))
            tables.append(table)
            slots.append(row_slots)
        if not tables:
            return self.config.schema.empty_table(), np.empty(0, dtype=np.int64)
        rows, all_slots = pa.concat_tables(tables), np.concatenate(slots)
        if len(tables) > 1:
            order = np.argsort(all_slots.astype(np.uint16), kind="stable")  # 16 bits: a radix sort
            rows, all_slots = rows.combine_chunks().take(pa.array(order)), all_slots[order]
        return rows, all_slots

    def _write(self, message: Work, folded: Folded | None) -> LaneCommit:
        """Write changes, output and snapshots; nothing counts before the coordinator commits it."""
        lane, epoch = self.config.lane, message.epoch
        changes, output = None, None
        places: tuple[tuple[int, int, int], ...] = ()
        if folded is not None and folded.changes.num_rows:
            changes = self.folder.write_table(changes_name(epoch, lane, self.attempt), folded.changes)
            places = _places(folded.changes, None)
        rows_out = self._output(folded)
        if rows_out is not None and rows_out.num_rows:
            output = self.folder.write_table(output_name(epoch, lane, self.attempt), rows_out)
        snapshots = self._snapshots(epoch, message.snapshot_slots)
        return LaneCommit(lane, self.attempt, epoch, changes, places, output, snapshots)

    def _output(self, folded: Folded | None) -> pa.Table | None:
        if not self.config.publishes:
            return None
        return self._resident.output() if self.config.complete else (folded.output if folded else None)

    def _snapshots(self, epoch: int, slots: Sequence[int]) -> tuple[tuple[int, SlotRef], ...]:
        if not slots:
            return ()
        state = self._resident.snapshot(slots)
        file = self.folder.write_table(snapshot_name(epoch, self.config.lane, self.attempt), state)
        return tuple((slot, SlotRef(file, epoch, start, rows)) for slot, start, rows in _places(state, slots))

    def _keep_pace(self, rows: int, began: float) -> None:
        if self.config.rows_per_second is not None:
            time.sleep(max(0.0, rows / self.config.rows_per_second - (self.clock() - began)))

    def _load(self, slots: IntArray, sizes: IntArray, busy_s: float, known: FloatArray | None) -> SlotColumns:
        """Report every slot with records or state; busy time is shared out by records unless the operator knows."""
        records = np.bincount(slots, minlength=self.config.slots)
        shares = records.astype(np.float64) if known is None else known
        total = float(shares.sum())
        busy = shares * (busy_s / total) if total > 0 else np.zeros(self.config.slots)
        listed = np.flatnonzero((records > 0) | (sizes > 0))
        return SlotColumns(
            tuple(listed.tolist()),
            tuple(records[listed].tolist()),
            tuple(busy[listed].tolist()),
            tuple(sizes[listed].tolist()),
        )


def _places(state: pa.Table, slots: Sequence[int] | None) -> tuple[tuple[int, int, int], ...]:
    """Return (slot, first row, rows) for each slot of a table sorted by slot; of `slots`, also those without rows."""
    column = state[SLOT].to_numpy()
    # Sorted: a slot begins where its row differs from the one before; np.unique would hash or sort all rows.
    begins = np.flatnonzero(np.diff(column, prepend=-1))
    listed = column[begins] if slots is None else np.array(sorted(slots), dtype=np.int64)
    starts, ends = np.searchsorted(column, listed), np.searchsorted(column, listed, side="right")
    return tuple(zip(listed.tolist(), starts.tolist(), (ends - starts).tolist(), strict=True))


def _in_order(folder: Folder, slots: Sequence[SlotToLoad]) -> list[pa.Table]:
    """Return the tables to install: all snapshots first, then changes by version; each file is read once."""
    wanted: dict[tuple[int, str], tuple[FileRef, list[tuple[int, int]]]] = {}
    for entry in slots:
        refs = [*([(-1, entry.snapshot)] if entry.snapshot else []), *((ref.version, ref) for ref in entry.changes)]
        for order, ref in refs:
            _, parts = wanted.setdefault((order, ref.file.name), (ref.file, []))
            parts.append((ref.start, ref.rows))
    tables = []
    for _, (file, parts) in sorted(wanted.items()):
        whole = folder.read_table(file)
        if sum(rows for _, rows in parts) == whole.num_rows:
            tables.append(whole)
        else:
            tables.append(pa.concat_tables([whole.slice(start, rows) for start, rows in sorted(parts)]))
    return [table for table in tables if table.num_rows]


def committed_state(config: LaneConfig, folder: Folder, slots: Sequence[SlotToLoad]) -> pa.Table:
    """Return the state in the checkpoint for `slots`: a row per key as it would be put out, or per slot as stored.

    No lane is disturbed.
    """
    resident = config.operator.open(config.schema, config.keys, config.slots)
    for table in _in_order(folder, slots):
        resident.install(table)
    if isinstance(config.operator, Apply):
        return resident.snapshot([entry.slot for entry in slots])
    return resident.output()
