"""What a lane does with each message. It knows no Spark and no socket: messages in, messages out.

State that comes or goes is read and written in the background, and installed a piece at a time between messages, so
that the slots that stay are served meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from evenflow.errors import EvenflowError, ProtocolError
from evenflow.lane.background import Background, Future, Inline
from evenflow.lane.config import LaneConfig
from evenflow.lane.faults import Faults
from evenflow.lane.holding import must_hold, must_not_hold
from evenflow.lane.hot_keys import KeyCounter
from evenflow.lane.loading import places_of, rows_of, tables_of
from evenflow.lane.messages import (
    Adopt,
    Adopted,
    Done,
    EpochLoad,
    Failed,
    Forget,
    FromLane,
    Prepare,
    Prepared,
    Release,
    Released,
    SlotColumns,
    ToLane,
    Work,
)
from evenflow.model import Due
from evenflow.model.slots import FloatArray, IntArray
from evenflow.operators import SLOT, Folded, Resident, by_slot
from evenflow.operators.calling import at_epoch
from evenflow.operators.clock import NeededTime
from evenflow.state import (
    Changes,
    FileRef,
    Folder,
    LaneCommit,
    SlotRef,
    handoff_name,
    output_name,
    work_name,
    write_output,
)

_PIECE = 1 << 16  # state rows installed at a time: what other slots may have to wait for


@dataclass
class _Coming:
    """State on its way into this lane; no tables: what is here of the slots is to be forgotten."""

    message: Adopt | Prepare | Forget
    tables: Future[list[pa.Table]] | None
    began: float
    pieces: deque[pa.Table] | None = None
    failed: EvenflowError | None = None


@dataclass
class _Going:
    """State on its way out of this lane."""

    versions: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, int, int], ...]
    file: Future[FileRef | None]
    began: float


@dataclass
class LaneWorker:
    """The state of one lane and how messages change it."""

    config: LaneConfig
    attempt: str
    folder: Folder
    faults: Faults = field(default_factory=Faults)
    clock: Callable[[], float] = time.perf_counter
    needed: Callable[[], float] = field(default_factory=NeededTime)
    background: Background = field(default_factory=Inline)
    _resident: Resident = field(init=False)
    _versions: dict[int, int] = field(default_factory=dict)  # of the slots that this lane serves
    _coming: deque[_Coming] = field(default_factory=deque)
    _going: deque[_Going] = field(default_factory=deque)
    _files: int = 0
    _idle_since: float = field(init=False)

    def __post_init__(self) -> None:
        """Start with no slot."""
        config = self.config
        self._resident = config.operator.open(config.schema, config.keys, config.slots)
        self._idle_since = self.clock()

    def handle(self, message: ToLane) -> list[FromLane]:
        """Do what a message says and return what there is to answer now."""
        if isinstance(message, Work):
            return [self._work(message)]
        if isinstance(message, Release):
            self._release(message)
        elif isinstance(message, Adopt | Prepare):
            point = "lane.adopting" if isinstance(message, Adopt) else "lane.preparing"
            self.faults.reach(point, self.config.lane)
            entries = message.slots
            tables = self.background.submit(lambda: tables_of(self.folder, entries))
            self._coming.append(_Coming(message, tables, self.clock()))
        elif isinstance(message, Forget):
            self._coming.append(_Coming(message, None, self.clock()))
        else:
            raise ProtocolError(f"lane {self.config.lane} cannot handle {type(message).__name__}")
        return []

    @property
    def is_moving_state(self) -> bool:
        """Whether state is on its way in or out: `step` brings it on."""
        return bool(self._coming or self._going)

    def step(self) -> list[FromLane]:
        """Bring what is in the background a piece further; return what has become ready."""
        return self._step_out() or self._step_in()  # who waits for what has left need not wait for the rest

    # --- slots come and go ---------------------------------------------------------------------------------------

    def _step_in(self) -> list[FromLane]:
        if not self._coming or not self._is_ready(self._coming[0]):
            return []
        job = self._coming[0]
        if job.pieces is None:
            job.pieces = self._unpacked(job)
        if job.pieces:
            self._resident.install(job.pieces.popleft())
        if job.pieces:
            return []
        self._coming.popleft()
        return self._arrived(job)

    def _is_ready(self, job: _Coming) -> bool:
        """Tell whether a job can go on. What leaves without a file has left in a moment: freeing its memory waits."""
        if job.tables is not None:
            return job.tables.done()
        leaving = {slot for going in self._going if not going.places for slot, _ in going.versions}
        return leaving.isdisjoint(entry for entry in job.message.slots if isinstance(entry, int))

    def _unpacked(self, job: _Coming) -> deque[pa.Table]:
        """Make room for what comes and return it in pieces."""
        if isinstance(job.message, Forget):
            for slot in job.message.slots:
                self._versions.pop(slot, None)
            self._resident.drop(job.message.slots)
            return deque()
        if isinstance(job.message, Prepare):
            must_not_hold(self.config.lane, self._versions.keys(), [entry.slot for entry in job.message.slots])
        self._resident.drop([entry.slot for entry in job.message.slots if entry.prepared is None])
        try:
            tables = job.tables.result() if job.tables else []
        except EvenflowError as error:
            job.failed, tables = error, []
        job.tables = None
        if not self._versions:  # nobody waits, and the whole installs faster than its pieces
            return deque(tables)
        return deque(table.slice(at, _PIECE) for table in tables for at in range(0, table.num_rows, _PIECE))

    def _arrived(self, job: _Coming) -> list[FromLane]:
        message = job.message
        if isinstance(message, Forget):
            return []
        slots = tuple(entry.slot for entry in message.slots)
        size, seconds = int(self._resident.slot_bytes()[list(slots)].sum()), self.clock() - job.began
        if isinstance(message, Prepare):
            there = tuple((entry.slot, None if job.failed else entry.version) for entry in message.slots)
            return [Prepared(there, size, seconds)]
        if job.failed:
            return [Failed(type(job.failed).__name__, str(job.failed), "", slots)]
        self._versions.update({entry.slot: entry.version for entry in message.slots})
        return [Adopted(slots, size, seconds, self._due())]

    def _release(self, message: Release) -> None:
        """Stop serving slots. What is written is as they stand now; their memory is freed after they have left."""
        began = self.clock()
        must_hold(self.config.lane, self._versions.keys(), message.slots, "hand off")
        version = max(self._versions[slot] for slot in message.slots)
        self.faults.reach("lane.releasing", self.config.lane, version)
        versions = tuple((slot, self._versions.pop(slot)) for slot in message.slots)
        state = self._resident.snapshot(message.slots) if message.handoff else None
        places = places_of(state, message.slots) if state is not None else ()
        name = handoff_name(version, self.config.lane, self._file())

        def written() -> FileRef | None:
            return None if state is None else self.folder.write_table(name, state)

        file = self.background.submit(written)
        self._going.append(_Going(versions, places, file, began))
        self._coming.append(_Coming(Forget(message.slots), None, began))

    def _step_out(self) -> list[FromLane]:
        if not self._going or not self._going[0].file.done():
            return []
        job = self._going.popleft()
        file, versions = job.file.result(), dict(job.versions)
        self.faults.reach("lane.released", self.config.lane, max(versions.values()))
        seconds = self.clock() - job.began
        if file is None:
            return [Released(job.versions, (), 0, seconds)]
        handoffs = tuple((slot, SlotRef(file, versions[slot], start, rows)) for slot, start, rows in job.places)
        return [Released(job.versions, handoffs, file.size, seconds)]

    def _due(self) -> Due | None:
        """Return when something is to be done next in the slots that are served here."""
        return self._resident.due(list(self._versions))

    # --- work ----------------------------------------------------------------------------------------------------

    def _work(self, message: Work) -> Done:
        began, needed = self.clock(), self.needed()
        idle_s, lane = began - self._idle_since, self.config.lane
        self._check(message)
        self.faults.reach("lane.before-fold", lane, message.epoch)
        counter = KeyCounter(self.config.keys, message.hot_slots)
        folded, outputs, records = self._fold(message, counter)
        self.faults.reach("lane.folded", lane, message.epoch)
        commit = self._write(message, folded, outputs)
        self.faults.reach("lane.changes-written", lane, message.epoch)
        for advance in message.advances:
            self._versions.update(dict.fromkeys(advance.slots, advance.version))
        self._keep_pace(sum(int(counts.sum()) for counts in records.values()), began)
        busy_s = self.clock() - began
        # A lane that is kept to a pace stands for a machine of its own: what else runs here is not on its cores.
        paced = self.config.rows_per_second is not None
        needed_s = busy_s if paced else min(busy_s, self.needed() - needed)
        hot_keys = counter.hottest()  # for people to know: no cost of the slots
        self._idle_since = self.clock()
        held = np.zeros(self.config.slots, dtype=bool)
        held[list(self._versions)] = True
        sizes, keys = self._resident.slot_bytes() * held, self._resident.slot_rows() * held
        loads = self._loads(records, folded, busy_s, needed_s, sizes)
        return Done(commit, loads, idle_s, int(keys.sum()), int(sizes.sum()), hot_keys, self._due())

    def _check(self, message: Work) -> None:
        """Refuse work that does not begin where the slots are: rows would be folded twice, or not at all."""
        for advance in message.advances:
            must_hold(self.config.lane, self._versions.keys(), advance.slots, "fold rows of")
            wrong = [slot for slot in advance.slots if self._versions[slot] != advance.since]
            if wrong:
                raise ProtocolError(
                    f"lane {self.config.lane} was told to fold slot {wrong[0]} from version {advance.since}, "
                    f"it is at {self._versions[wrong[0]]}"
                )

    def _fold(
        self, message: Work, counter: KeyCounter
    ) -> tuple[dict[int, Folded], dict[int, pa.Table], dict[int, IntArray]]:
        """Fold the epochs one by one, so that what each puts out does not depend on how many come together.

        Return by epoch what was done, the rows for the sink, and how many rows each slot had.
        """
        folded: dict[int, Folded] = {}
        outputs: dict[int, pa.Table | None] = {}
        records = {}
        for each in message.inputs:
            rows, slots = rows_of(self.folder, each.parts, self.config.schema)
            records[each.epoch] = np.bincount(slots, minlength=self.config.slots)
            must_hold(
                self.config.lane, self._versions.keys(), np.flatnonzero(records[each.epoch]).tolist(), "fold rows of"
            )
            counter.add(rows, slots)
            if rows.num_rows:
                with at_epoch(each.epoch):
                    folded[each.epoch] = self._resident.fold(rows, slots, each.time)
            passing = [
                slot
                for advance in message.advances
                if advance.since < each.epoch <= advance.version
                for slot in advance.slots
            ]
            with at_epoch(each.epoch):
                fired = self._resident.fire(passing, each.time)
            if fired is not None:
                folded[each.epoch] = folded[each.epoch].then(fired) if each.epoch in folded else fired
            if self.config.publishes:
                changed = folded[each.epoch].output if each.epoch in folded else None
                outputs[each.epoch] = self._resident.output(passing) if self.config.complete else changed
        return folded, {at: rows for at, rows in outputs.items() if rows is not None and rows.num_rows}, records

    def _write(self, message: Work, folded: dict[int, Folded], outputs: dict[int, pa.Table]) -> LaneCommit:
        """Write changes, snapshots and outputs, all in one file; nothing counts before the driver commits it."""
        lane, epoch, attempt, form = self.config.lane, message.epoch, self._file(), self.config.output
        changes = _latest([each.changes for each in folded.values() if each.changes.num_rows])
        state = self._resident.snapshot(message.snapshot_slots) if message.snapshot_slots else None
        tables = [table for table in (changes, state) if table is not None]
        if form.codec is None:
            tables += outputs.values()
        written = iter(self.folder.write_tables(work_name(epoch, lane, attempt), tables) if tables else ())
        return LaneCommit(
            lane,
            self.attempt,
            epoch,
            message.advances,
            () if changes is None else (Changes(next(written), self._changed(changes)),),
            snapshots=() if state is None else self._snapshots(message, state, next(written)),
            outputs=tuple(
                # A sink that takes files as they are needs each by itself.
                (at, write_output(self.folder, output_name(at, lane, attempt, form.ending), rows, form))
                if form.codec is not None
                else (at, next(written))
                for at, rows in outputs.items()
            ),
        )

    def _changed(self, changes: pa.Table) -> tuple[tuple[int, int, int, int], ...]:
        """Return where the changes of each slot lie, and how many rows of state the slot has now."""
        rows = self._resident.slot_rows()
        return tuple((slot, start, count, int(rows[slot])) for slot, start, count in places_of(changes, None))

    def _snapshots(self, message: Work, state: pa.Table, file: FileRef) -> tuple[tuple[int, SlotRef], ...]:
        """Return where each slot that was written out lies."""
        versions = {slot: advance.version for advance in message.advances for slot in advance.slots}
        return tuple(
            (slot, SlotRef(file, versions[slot], start, rows))
            for slot, start, rows in places_of(state, message.snapshot_slots)
        )

    def _file(self) -> str:
        """Return what tells this attempt's files apart, from those of others and from each other."""
        self._files += 1
        return f"{self.attempt}.{self._files}"

    def _keep_pace(self, rows: int, began: float) -> None:
        if self.config.rows_per_second is not None:
            time.sleep(max(0.0, rows / self.config.rows_per_second - (self.clock() - began)))

    def _loads(
        self,
        records: dict[int, IntArray],
        folded: dict[int, Folded],
        busy_s: float,
        needed_s: float,
        sizes: IntArray,
    ) -> tuple[EpochLoad, ...]:
        """Say what each slot cost: what its operator measured, or by rows; time without a core is nobody's cost."""
        total = sum(int(counts.sum()) for counts in records.values())
        loads = []
        for epoch, counts in records.items():
            rows = int(counts.sum())
            share = rows / total if total else 1 / len(records)
            measured = folded[epoch].busy_s if epoch in folded else None
            if measured is None or self.config.rows_per_second is not None:
                weights = counts if measured is None else measured
                measured = weights * (needed_s * share / max(1e-9, weights.sum()))
            columns = _columns(counts, sizes, measured)
            loads.append(EpochLoad(epoch, columns, rows, busy_s * share, (busy_s - needed_s) * share))
        return tuple(loads)


def _columns(records: IntArray, sizes: IntArray, busy_s: FloatArray) -> SlotColumns:
    """Report every slot with records or state."""
    listed = np.flatnonzero((records > 0) | (sizes > 0))
    return SlotColumns(
        tuple(listed.tolist()),
        tuple(records[listed].tolist()),
        tuple(busy_s[listed].tolist()),
        tuple(sizes[listed].tolist()),
    )


def _latest(changes: Sequence[pa.Table]) -> pa.Table | None:
    """Return the changes of several epochs sorted by slot, older ones first: the last row of a key counts."""
    return by_slot([(each, each[SLOT].to_numpy()) for each in changes])[0] if changes else None
