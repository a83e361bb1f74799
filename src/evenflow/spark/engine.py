"""The engine of one query: accepts epochs, has lanes carry them out, commits and publishes; one epoch at a time.

What happens to an epoch, and what a crash at each point means::

    route     blocks written              crash: Spark replays the batch, the orphan blocks are swept
    accept    epoch record durable        crash: the epoch is carried out again from the record, the replay is skipped
    move      sources release, targets adopt     crash: targets rebuild from the checkpoint
    work      lanes fold and write files  crash: those files are not committed, the epoch is carried out again
    commit    manifest entry durable      crash: outputs are published from the manifest
    publish   outputs in the sink         crash: published again, under the same names
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from evenflow.control import Ack, Controller
from evenflow.control.journal import Journal, StateMoved
from evenflow.errors import EvenflowError, LaneFailedError, StoppedError
from evenflow.lane import LaneConfig
from evenflow.lane.faults import Faults
from evenflow.lane.messages import Adopt, Adopted, BlockSegment, Done, Failed, Release, Released, SlotToLoad, Work
from evenflow.lane.worker import committed_state
from evenflow.migration import Event
from evenflow.model import LaneId, LaneLoad, LoadReport, Move, RoutingTable, SlotId, SlotLoads
from evenflow.spark.coordinator import Coordinator, Joined, LaneEvent, Lost, Said
from evenflow.spark.progress import EpochTimes, Progress
from evenflow.spark.route import Router
from evenflow.spark.sink import Sink
from evenflow.state import Checkpoint, EpochRecord, LaneCommit, SlotRef, handoff_name

_HOPELESS = 3  # a lane whose job fails this often before it says hello will not come up
_POLL_S = 0.2  # how often a wait looks at the stop flag
_SNAPSHOTS_PER_EPOCH = 8  # slots whose state is written out with an epoch, so that the changelog stays short


@dataclass
class _LaneStatus:
    token: str | None = None
    ready: bool = False


@dataclass
class Engine:
    """Carries out the epochs of one query."""

    spark: SparkSession
    checkpoint: Checkpoint
    controller: Controller
    coordinator: Coordinator
    router: Router
    sink: Sink
    progress: Progress
    config: LaneConfig
    lane_start_s: float = 60.0
    faults: Faults = field(default_factory=Faults.scripted)
    _lanes: dict[LaneId, _LaneStatus] = field(default_factory=dict)
    _handoffs: dict[SlotId, SlotRef] = field(default_factory=dict)
    _moves_told: dict[SlotId, tuple[Move, int]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _carrying: threading.Lock = field(default_factory=threading.Lock)
    error: BaseException | None = None

    @property
    def journal(self) -> Journal:
        """The record of all decisions and moves."""
        return self.controller.journal

    # --- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the lanes, and finish what an earlier run of the query has left behind."""
        self.checkpoint.sweep_orphans()
        for lane in self.controller.table.lanes:
            self._lanes[lane] = _LaneStatus()
            self.coordinator.start(lane)
        self._until_ready(self.lane_start_s)
        for record in self.checkpoint.recover().pending:
            self._carry_out(_under(self.controller.table, record), EpochTimes(began_s=time.time()))
        self._publish()

    def interrupt(self) -> None:
        """End all waiting: a running epoch is abandoned, it will be carried out again after a restart."""
        self._stop.set()

    def stop(self) -> None:
        """End the lanes."""
        self.interrupt()
        with self._carrying:
            self.coordinator.stop()

    def on_batch(self, batch: DataFrame, epoch: int) -> None:
        """Spark hands over a micro-batch: accept it, carry it out, publish. A replayed one is done already."""
        with self._carrying:
            try:
                self._on_batch(batch, epoch)
            except BaseException as error:
                self.error = self.error or error
                raise

    def _on_batch(self, batch: DataFrame, epoch: int) -> None:
        if self.checkpoint.accepted(epoch):
            return
        times = EpochTimes(began_s=time.time())
        message = self.controller.next_epoch(epoch, times.began_s)
        table = self.controller.table
        routed = self.router.route(batch, epoch, table)
        times.routed_s, times.arrivals = time.time(), routed.arrivals
        self.faults.reach("driver.before-accept", epoch=epoch)
        record = EpochRecord(
            epoch=epoch,
            table_version=table.version,
            lanes=table.lanes,
            owners=tuple(table.owners.tolist()),
            moves=tuple((move.slot, move.source, move.target) for move in message.moves),
            blocks=routed.blocks,
            watermark=None,
            rows=sum(segment.rows for block in routed.blocks for segment in block.segments),
            accepted_at_s=times.routed_s,
        )
        self.checkpoint.accept(record)
        times.accepted_s = time.time()
        self.faults.reach("driver.after-accept", epoch=epoch)
        self._carry_out(record, times)
        self._publish()
        times.published_s = time.time()
        self.checkpoint.sweep()
        self.progress.finish(record, times, self.journal)

    def request(self, moves: Sequence[Move]) -> None:
        """Plan moves that were asked for by hand; between two epochs, since the controller knows no threads."""
        with self._carrying:
            self.controller.request(moves)

    def state_table(self) -> pa.Table:
        """Return the committed state of all slots: a row per key, or per slot for operators of the user's own."""
        with self._carrying:
            entries = [self._sources(slot) for slot in range(self.controller.table.slots)]
            return committed_state(self.config, self.checkpoint.folder, entries)

    # --- one epoch -----------------------------------------------------------------------------------------------

    def _carry_out(self, record: EpochRecord, times: EpochTimes) -> None:
        """Move what has to move, have all lanes work, commit."""
        moves = [Move(*move) for move in record.moves]
        self._moves_told = {move.slot: (move, record.epoch) for move in moves}
        if moves:
            self._hand_over(record, moves)
        times.moved_s = time.time()
        done = self._work(record)
        times.worked_s = time.time()
        self.faults.reach("driver.before-commit", epoch=record.epoch)
        self.checkpoint.commit([self._with_handoffs(answer.commit, record) for answer in done.values()])
        self.faults.reach("driver.after-commit", epoch=record.epoch)
        self._handoffs.clear()
        times.committed_s = time.time()
        self._report(record, done)
        self.progress.lanes_done(record, done)
        self._readmit()

    def _hand_over(self, record: EpochRecord, moves: list[Move]) -> None:
        """Have sources write their slots and targets load them; whoever is lost is gone around."""
        self._until_ready(self.lane_start_s)
        waiting: dict[LaneId, tuple[SlotId, ...]] = {}
        for source in sorted({move.source for move in moves}):
            slots = tuple(move.slot for move in moves if move.source == source)
            token = self._lanes[source].token if source in self._lanes else None
            name = handoff_name(record.epoch, source, token or "lost")
            if token and self.coordinator.send(source, Release(slots, record.epoch - 1, name)) == token:
                waiting[source] = slots
        while waiting:
            event = self._next_event()
            if isinstance(event, Said) and isinstance(event.message, Released) and event.lane in waiting:
                self._handoffs.update(event.message.handoffs)
                self._tell_moved(event.message, moves, record.epoch)
                for slot in waiting.pop(event.lane):
                    self._acknowledge(slot, Event.HANDED_OFF)
            elif isinstance(event, Lost):
                waiting.pop(event.lane, None)
        self.faults.reach("driver.during-move", epoch=record.epoch)
        for target in sorted({move.target for move in moves}):
            self._adopt(target, [move.slot for move in moves if move.target == target])
        self._until_ready(self.lane_start_s)

    def _work(self, record: EpochRecord) -> dict[LaneId, Done]:
        """Have every lane fold its part of the epoch; one that is lost does so again in its next attempt."""
        done: dict[LaneId, Done] = {}
        messages = self._messages(record)
        given: dict[LaneId, str | None] = {}
        while len(done) < len(messages):
            for lane, message in messages.items():
                status = self._lanes[lane]
                if lane not in done and status.ready and given.get(lane) != status.token:
                    given[lane] = self.coordinator.send(lane, message)
            event = self._next_event()
            if (
                isinstance(event, Said)
                and isinstance(event.message, Done)
                and event.token == self._lanes[event.lane].token
                and event.message.commit.epoch == record.epoch
            ):
                done[event.lane] = event.message
                self._lanes[event.lane].ready = True
            elif isinstance(event, Joined) and event.hello.lane not in done:
                # One that has done its part already is loaded after the commit, with that part in it.
                self._adopt(event.hello.lane, self._slots_of(record, event.hello.lane))
        return done

    def _messages(self, record: EpochRecord) -> dict[LaneId, Work]:
        blocks: dict[LaneId, list[BlockSegment]] = {lane: [] for lane in record.lanes}
        for block in record.blocks:
            for segment in block.segments:
                owners = {record.owners[slot] for slot in segment.slots}
                for lane in sorted(owners):
                    mine = tuple(slot for slot in segment.slots if record.owners[slot] == lane)
                    blocks[lane].append(BlockSegment(block.file, segment, mine if len(owners) > 1 else None))
        due = self.checkpoint.due_snapshots(_SNAPSHOTS_PER_EPOCH)
        return {
            lane: Work(record.epoch, tuple(parts), tuple(slot for slot in due if record.owners[slot] == lane))
            for lane, parts in blocks.items()
        }

    def _with_handoffs(self, commit: LaneCommit, record: EpochRecord) -> LaneCommit:
        """Let the handoffs that a lane has loaded count as snapshots: they save reading older changes."""
        own = [(slot, ref) for slot, ref in self._handoffs.items() if record.owners[slot] == commit.lane]
        fresh = {slot for slot, _ in commit.snapshots}
        kept = tuple((slot, ref) for slot, ref in own if slot not in fresh)
        return msgspec.structs.replace(commit, snapshots=(*commit.snapshots, *kept))

    def _publish(self) -> None:
        """Bring committed outputs to the sink, in the order of their epochs."""
        for epoch, files in self.checkpoint.recover().unpublished:
            self.sink.publish(epoch, files)
            self.faults.reach("driver.during-publish", epoch=epoch)
            self.checkpoint.publish(epoch)

    # --- lanes ---------------------------------------------------------------------------------------------------

    def _next_event(self) -> LaneEvent:
        """Wait for a lane to say something; keep book of who is there; stop waiting when the query stops."""
        while not self._stop.is_set():
            try:
                event = self.coordinator.events.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            self._note(event)
            return event
        raise StoppedError("the query was stopped")

    def _note(self, event: LaneEvent) -> None:
        if isinstance(event, Joined):
            self._lanes[event.hello.lane] = _LaneStatus(event.hello.token)
        elif isinstance(event, Lost):
            status = self._lanes.get(event.lane)
            if status is not None and status.token == event.token:
                self._lanes[event.lane] = _LaneStatus()
                self.controller.lane_lost(event.lane)
        elif isinstance(event.message, Failed):
            failure = event.message
            raise LaneFailedError(event.lane, failure.kind, failure.message, failure.detail)
        elif isinstance(event.message, Adopted):
            status = self._lanes[event.lane]
            if status.token == event.token:
                status.ready = True
                for slot in event.message.slots:
                    self._acknowledge(slot, Event.INSTALLED)

    def _until_ready(self, patience_s: float) -> None:
        """Wait until every lane has its slots; say what is missing if that takes too long."""
        deadline = time.monotonic() + patience_s
        self._readmit()
        while missing := [lane for lane, status in self._lanes.items() if not status.ready]:
            hopeless = [lane for lane in missing if self.coordinator.failures_in_a_row(lane) >= _HOPELESS]
            if hopeless or time.monotonic() > deadline:
                said = self.coordinator.last_failure((hopeless or missing)[0])
                raise EvenflowError(
                    f"lanes {hopeless or missing} do not start (waited up to {patience_s:g} s). Spark says: "
                    f"{said or 'nothing; are all task slots taken by other jobs?'}"
                )
            try:
                event = self.coordinator.events.get(timeout=_POLL_S)
            except queue.Empty:
                if self._stop.is_set():
                    raise StoppedError("the query was stopped") from None
                continue
            self._note(event)
            if isinstance(event, Joined):
                self._adopt(event.hello.lane, self.controller.table.slots_of(event.hello.lane).tolist())

    def _readmit(self) -> None:
        """Give their slots to attempts that have joined but were not given any yet."""
        for lane, status in self._lanes.items():
            hello = self.coordinator.hello_of(lane)
            if status.token is not None and not status.ready and hello is not None and hello.token == status.token:
                self._adopt(lane, self.controller.table.slots_of(lane).tolist())

    def _adopt(self, lane: LaneId, slots: Iterable[SlotId]) -> None:
        """Tell a lane to load slots: from their handoff if there is one, else from the checkpoint."""
        self._lanes[lane].ready = False
        entries = tuple(
            SlotToLoad(slot, self._handoffs[slot]) if slot in self._handoffs else self._sources(slot) for slot in slots
        )
        self.coordinator.send(lane, Adopt(entries))

    def _sources(self, slot: SlotId) -> SlotToLoad:
        sources = self.checkpoint.recover().sources(slot)
        return SlotToLoad(slot, sources.snapshot, sources.changes)

    def _slots_of(self, record: EpochRecord, lane: LaneId) -> list[SlotId]:
        return [slot for slot, owner in enumerate(record.owners) if owner == lane]

    # --- the controller ------------------------------------------------------------------------------------------

    def _acknowledge(self, slot: SlotId, event: Event) -> None:
        if slot in self._moves_told:
            move, epoch = self._moves_told[slot]
            self.controller.acknowledge(Ack(move.slot, epoch, event, time.time()))

    def _tell_moved(self, released: Released, moves: list[Move], epoch: int) -> None:
        by_slot = {move.slot: move for move in moves}
        for slot, ref in released.handoffs:
            share = released.state_bytes * ref.rows // max(1, sum(other.rows for _, other in released.handoffs))
            self.journal.record(StateMoved(epoch, by_slot[slot], ref.rows, share, released.seconds))

    def _report(self, record: EpochRecord, done: dict[LaneId, Done]) -> None:
        """Pass on what the lanes say their slots cost."""
        span = max((answer.busy_s + answer.idle_s for answer in done.values()), default=0.0) or 1e-9
        for lane, answer in done.items():
            load = answer.load
            loads = SlotLoads.of(load.records, load.busy_s, load.state_bytes)
            lane_load = LaneLoad(lane, max(0.0, span - answer.busy_s), span)
            self.controller.report(LoadReport(record.epoch, lane_load, np.array(load.slots, dtype=np.int64), loads))


def initial_table(checkpoint: Checkpoint, slots: int, lanes: int) -> RoutingTable:
    """Return the table to start with: the newest accepted one, fitted to the lanes there are now."""
    found = checkpoint.recover().table
    if found is None:
        return RoutingTable.even(slots, lanes)
    if found.lanes == tuple(range(lanes)):
        return found
    # Another number of lanes than before: slots of lanes that are gone are dealt out to the least filled ones.
    owners, counts = found.owners.copy(), np.bincount(found.owners[found.owners < lanes], minlength=lanes)
    for slot in np.flatnonzero(owners >= lanes):
        owners[slot] = counts.argmin()
        counts[owners[slot]] += 1
    return RoutingTable(owners, tuple(range(lanes)), found.version + 1)


def _under(table: RoutingTable, record: EpochRecord) -> EpochRecord:
    """Return a record that an earlier run accepted, to be carried out under the table of this run."""
    return msgspec.structs.replace(record, lanes=table.lanes, owners=tuple(table.owners.tolist()), moves=())
