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

import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable
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
from evenflow.policies import Policy
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
    """A lane's present attempt: was it told to load all its slots, has it loaded what it was told."""

    token: str | None = None
    given: bool = False
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
    most_losses: int = 5
    faults: Faults = field(default_factory=Faults.scripted)
    _lanes: dict[LaneId, _LaneStatus] = field(default_factory=dict)
    _handoffs: dict[SlotId, SlotRef] = field(default_factory=dict)
    _moves_told: dict[SlotId, tuple[Move, int]] = field(default_factory=dict)
    _losses: Counter[LaneId] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)
    _carrying: threading.RLock = field(default_factory=threading.RLock)  # foreachBatch may ask for state and moves
    error: BaseException | None = None

    @property
    def journal(self) -> Journal:
        """The record of all decisions and moves."""
        return self.controller.journal

    # --- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the lanes, and finish what an earlier run of the query has left behind."""
        self.checkpoint.sweep_orphans()
        for record in self.checkpoint.recover().pending:
            if record.table() != self.controller.table:
                self._finish_for_others(record)
        for lane in self.controller.table.lanes:
            self._lanes[lane] = _LaneStatus()
            self.coordinator.start(lane)
        self._until_ready()
        for record in self.checkpoint.recover().pending:
            self._carry_out(msgspec.structs.replace(record, moves=()), EpochTimes(began_s=time.time()))
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
                stopped = self._stop.is_set() and StoppedError("the query was stopped")
                self.error = self.error or stopped or error
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

    def request(self, moves: Iterable[Move | tuple[SlotId, LaneId]]) -> None:
        """Plan moves that were asked for by hand; between two epochs, since the controller knows no threads."""
        with self._carrying:
            owners = dict(enumerate(self.controller.table.owners.tolist()))
            asked = [
                move if isinstance(move, Move) else Move(move[0], owners.get(move[0], -1), move[1], "asked for by hand")
                for move in moves
            ]
            self.controller.request([move for move in asked if move.source != move.target])

    def set_policy(self, policy: Policy) -> None:
        """Decide by another policy; between two epochs, as only one thread may talk to the controller."""
        with self._carrying:
            self.controller.set_policy(policy)

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
        self._losses.clear()
        times.committed_s = time.time()
        self._report(record, done)
        self.progress.lanes_done(record, done)
        self._readmit()

    def _finish_for_others(self, record: EpochRecord) -> None:
        """Finish an epoch that was accepted for other lanes than there are now, before these begin."""
        table = record.table()
        answers = self.coordinator.stand_in(
            {
                lane: (Adopt(tuple(self._sources(slot) for slot in table.slots_of(lane).tolist())), work)
                for lane, work in self._messages(record).items()
            }
        )
        for lane, answer in answers.items():
            if isinstance(answer, Failed):
                raise LaneFailedError(lane, answer.kind, answer.message, answer.detail)
        self.checkpoint.commit([answer.commit for answer in answers.values() if isinstance(answer, Done)])

    def _hand_over(self, record: EpochRecord, moves: list[Move]) -> None:
        """Have sources write their slots and targets load them; whoever is lost is gone around."""
        self._take_handoffs(record, moves)
        self.faults.reach("driver.during-move", epoch=record.epoch)
        for target in sorted({move.target for move in moves}):
            if self._lanes[target].given:
                self._adopt(target, [move.slot for move in moves if move.target == target])
        self._until_ready()

    def _take_handoffs(self, record: EpochRecord, moves: list[Move]) -> None:
        """Have sources write their slots. A slot whose source is lost is loaded from the checkpoint."""
        waiting: dict[LaneId, str] = {}
        for source in sorted({move.source for move in moves}):
            status = self._lanes[source]
            if status.token is None or not status.given:
                continue  # a new attempt: it will load what the new table gives it, and no more
            slots = tuple(move.slot for move in moves if move.source == source)
            release = Release(slots, record.epoch - 1, handoff_name(record.epoch, source, status.token))
            if self.coordinator.send(source, status.token, release):
                waiting[source] = status.token
        while waiting:
            event = self._next_event()
            if isinstance(event, Joined) or waiting.get(event.lane) != event.token:
                continue
            if isinstance(event, Lost):
                del waiting[event.lane]
            elif isinstance(event.message, Released):
                del waiting[event.lane]
                self._handoffs.update(event.message.handoffs)
                self._tell_moved(event.message, moves, record.epoch)
                for slot, _ in event.message.handoffs:
                    self._acknowledge(slot, Event.HANDED_OFF)

    def _work(self, record: EpochRecord) -> dict[LaneId, Done]:
        """Have every lane fold its part of the epoch; one that is lost does so again in its next attempt."""
        done: dict[LaneId, Done] = {}
        messages = self._messages(record)
        given: dict[LaneId, str] = {}
        while len(done) < len(messages):
            # A lane that dies after its part is done is loaded after the commit, with that part in it.
            self._readmit(but=done)
            for lane, message in messages.items():
                status = self._lanes[lane]
                if lane in done or not status.ready or status.token is None or given.get(lane) == status.token:
                    continue
                if self.coordinator.send(lane, status.token, message):
                    given[lane] = status.token
            event = self._next_event()
            if (
                isinstance(event, Said)
                and isinstance(event.message, Done)
                and event.token == self._lanes[event.lane].token
                and event.message.commit.epoch == record.epoch
            ):
                done[event.lane] = event.message
        return done

    def _messages(self, record: EpochRecord) -> dict[LaneId, Work]:
        blocks: dict[LaneId, list[BlockSegment]] = {lane: [] for lane in record.lanes}
        for block in record.blocks:
            for segment in block.segments:
                blocks[segment.lane].append(BlockSegment(block.file, segment))
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

    def _next_event(self, deadline: float = math.inf) -> LaneEvent:
        """Wait for a lane to say something; keep book of who is there; stop waiting when the query stops."""
        while not self._stop.is_set():
            try:
                event = self.coordinator.events.get(timeout=_POLL_S)
            except queue.Empty:
                self._refuse_to_wait(deadline)
                continue
            self._note(event)
            return event
        raise StoppedError("the query was stopped")

    def _refuse_to_wait(self, deadline: float) -> None:
        """Raise if a lane will not come: its job fails time and again, or it takes too long."""
        missing = [lane for lane, status in self._lanes.items() if not status.ready]
        hopeless = [lane for lane in missing if self.coordinator.failures_in_a_row(lane) >= _HOPELESS]
        if hopeless or (missing and time.monotonic() > deadline):
            said = self.coordinator.last_failure((hopeless or missing)[0])
            raise EvenflowError(
                f"lanes {hopeless or missing} do not start (waited up to {self.lane_start_s:g} s). Spark says: "
                f"{said or 'nothing; are all task slots taken by other jobs?'}"
            )

    def _note(self, event: LaneEvent) -> None:
        if isinstance(event, Joined):
            self._lanes[event.hello.lane] = _LaneStatus(event.hello.token)
            return
        status = self._lanes[event.lane]
        if status.token != event.token:
            return  # fenced off: whatever it says does not count
        if isinstance(event, Lost):
            self._lanes[event.lane] = _LaneStatus()
            self._count_loss(event.lane)
            self.controller.lane_lost(event.lane)
        elif isinstance(event.message, Failed):
            failure = event.message
            raise LaneFailedError(event.lane, failure.kind, failure.message, failure.detail)
        elif isinstance(event.message, Adopted):
            status.ready = True
            for slot in event.message.slots:
                self._acknowledge(slot, Event.INSTALLED)

    def _count_loss(self, lane: LaneId) -> None:
        """Give up on a lane that dies of the same epoch again and again: it would do so for ever."""
        self._losses[lane] += 1
        if self._losses[lane] >= self.most_losses:
            raise EvenflowError(
                f"lane {lane} was lost {self._losses[lane]} times in one epoch: its Python worker dies each time. See "
                f"the executor's log; often memory runs out (more lanes hold less each), or the operator crashes it"
            )

    def _until_ready(self) -> None:
        """Wait until every lane has its slots; say what is missing if that takes too long."""
        deadline = time.monotonic() + self.lane_start_s
        self._readmit()
        while not all(status.ready for status in self._lanes.values()):
            self._next_event(deadline)
            self._readmit()

    def _readmit(self, but: Collection[LaneId] = ()) -> None:
        """Give their slots to attempts that have joined and were not given any yet."""
        for lane, status in self._lanes.items():
            if status.token is not None and not status.given and lane not in but:
                status.given = True
                self._adopt(lane, self.controller.table.slots_of(lane).tolist())

    def _adopt(self, lane: LaneId, slots: Iterable[SlotId]) -> None:
        """Tell a lane to load slots: from their handoff if there is one, else from the checkpoint."""
        status = self._lanes[lane]
        status.ready = False
        entries = tuple(
            SlotToLoad(slot, self._handoffs[slot]) if slot in self._handoffs else self._sources(slot) for slot in slots
        )
        if status.token is not None:
            self.coordinator.send(lane, status.token, Adopt(entries))

    def _sources(self, slot: SlotId) -> SlotToLoad:
        sources = self.checkpoint.recover().sources(slot)
        return SlotToLoad(slot, sources.snapshot, sources.changes)

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
    # Another number of lanes than before: slots of lanes that are gone are dealt out to the least filled ones, and
    # lanes that are new get their share from the fullest.
    owners, counts = found.owners.copy(), np.bincount(found.owners[found.owners < lanes], minlength=lanes)
    for slot in np.flatnonzero(owners >= lanes):
        owners[slot] = counts.argmin()
        counts[owners[slot]] += 1
    for lane in range(len(found.lanes), lanes):
        while counts[lane] < slots // lanes:
            fullest = int(counts.argmax())
            owners[np.flatnonzero(owners == fullest)[-1]] = lane
            counts[fullest] -= 1
            counts[lane] += 1
    return RoutingTable(owners, tuple(range(lanes)), found.version + 1)
