"""How epochs begin: with a micro-batch of Spark's, or as a tick, which carries only the time.

One begins at a time. Its number is our own; the record says which of Spark's batches it holds, so that a batch which is
handed over again is known. From its record on the epoch survives a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from evenflow.engine import Accepted, Engine, Event
from evenflow.lane.faults import Faults
from evenflow.log import QueryLog
from evenflow.model import ControlMessage, Epoch, EpochTime, RoutingTable, Watermarks
from evenflow.spark.progress import EpochTimes, Progress
from evenflow.spark.route import Routed, Router
from evenflow.spark.telling import shown
from evenflow.state import Checkpoint, EpochRecord

_NOTHING = Routed((), ())
_TICK_S = 0.05  # how often to look whether something is due


@dataclass
class Intake:
    """Routes what comes, accepts it as an epoch, and tells the engine; waits when lanes are too far behind."""

    checkpoint: Checkpoint
    engine: Engine
    router: Router
    progress: Progress
    log: QueryLog
    faults: Faults
    changed: threading.Condition  # of what it guards: the engine, and the balancer with it
    stopped: threading.Event
    max_lag: int
    clock: Callable[[], float]
    wait_for: Callable[[Callable[[], bool]], None]
    post: Callable[[Event], None]
    event_time: bool = False  # whether an operator goes by the watermark of before the epoch: see `owes_a_tick`
    source_rests: Callable[[], bool] = lambda: False  # whether the source had no more rows when it was looked at last
    last_tick: Epoch = -1
    _beginning: threading.Lock = field(default_factory=threading.Lock)  # nobody who only looks takes it

    @property
    def lag(self) -> int:
        """How many accepted epochs are not published yet."""
        return self.checkpoint.unpublished

    def take(self, rows: DataFrame, batch: int) -> None:
        """Accept a micro-batch as the next epoch, unless it was accepted before."""
        if self.checkpoint.has_batch(batch):
            return
        self.checkpoint.refuse_if_taken_over()
        times = EpochTimes(began_s=self.clock())
        # What is decided while lanes are behind goes with this epoch; lanes have another one to do while it is routed.
        self.wait_for(lambda: self.lag <= max(1, self.max_lag))
        with self._beginning:
            times.ready_s = self.clock()
            message, table = self._begin(times.ready_s)
            routed = self.router.route(rows, message.event_time, table)
            times.routed_s, times.arrivals = self.clock(), routed.arrivals
            self.wait_for(lambda: self.lag <= self.max_lag)
            self._accept(message, table, routed, times, batch)

    # --- ticks ---------------------------------------------------------------------------------------------------

    def keep_ticking(self) -> None:
        """Begin an epoch without rows whenever something is due, until the query ends."""
        while not self.stopped.is_set():
            with self.changed:
                self.changed.wait_for(lambda: self.stopped.is_set() or self.is_due(self.clock()), _TICK_S)
            self.tick_if_due()
            self.stopped.wait(_TICK_S)

    def tick_if_due(self) -> bool:
        """Begin an epoch without rows if something is due, or the watermark has moved; return whether one began."""
        with self.changed:
            newest = self.checkpoint.newest
            if newest is None or self.stopped.is_set():
                return False
            is_due, owes_a_tick = self.is_due(self.clock()), self.owes_a_tick
        return (is_due or (owes_a_tick and self.source_rests())) and self._tick(newest.epoch)

    def is_due(self, now_s: float) -> bool:
        """Tell whether an epoch without rows is wanted, by what lanes say is to be done next; `changed` is held."""
        due, newest = self.engine.due(), self.checkpoint.newest
        if due is None or newest is None:
            return False
        return due.is_reached(EpochTime(newest.epoch + 1, newest.time.watermark_us, round(now_s * 1e6)))

    @property
    def owes_a_tick(self) -> bool:
        """Whether the rows of the newest epoch have moved a watermark that operators see one epoch later only.

        If the source rests then, Spark runs a batch without rows, and so do we: it closes what the watermark has
        reached, and what comes after it is late by that watermark.
        """
        newest = self.checkpoint.newest
        return self.event_time and newest is not None and newest.watermark_us != newest.before_us

    def _tick(self, after: Epoch) -> bool:
        """Accept an epoch without rows; return False if another epoch has begun by now, which brings the time too."""
        if not self._beginning.acquire(blocking=False):
            return False
        try:
            if self.checkpoint.last_accepted != after:
                return False
            self.checkpoint.refuse_if_taken_over()
            now_s = self.clock()
            times = EpochTimes(began_s=now_s, ready_s=now_s, routed_s=now_s)
            message, table = self._begin(now_s)
            self._accept(message, table, _NOTHING, times, None)
            self.last_tick = message.event_time
        finally:
            self._beginning.release()
        return True

    # --- any epoch -----------------------------------------------------------------------------------------------

    def _begin(self, now_s: float) -> tuple[ControlMessage, RoutingTable]:
        with self.changed:
            epoch: Epoch = self.checkpoint.last_accepted + 1
            balancer = self.engine.balancer
            message, table = balancer.next_epoch(epoch, now_s), balancer.table
        if message.moves:
            moves = shown(message.moves, balancer.journal.names)
            self.log.info("%d moves take effect: %s", len(message.moves), moves, epoch=epoch)
        return message, table

    def _accept(
        self, message: ControlMessage, table: RoutingTable, routed: Routed, times: EpochTimes, batch: int | None
    ) -> None:
        epoch, newest = message.event_time, self.checkpoint.newest
        watermarks = routed.heard.after(Watermarks() if newest is None else newest.marks)
        times.waited_s = self.clock()
        self.faults.reach("driver.before-accept", epoch=epoch)
        record = EpochRecord(
            epoch=epoch,
            batch=batch if batch is not None else newest.batch if newest is not None else -1,
            table_version=table.version,
            lanes=table.lanes,
            owners=tuple(table.owners.tolist()),
            moves=tuple((move.slot, move.source, move.target) for move in message.moves),
            blocks=routed.blocks,
            watermarks=watermarks.inputs,
            rows=sum(segment.rows for block in routed.blocks for segment in block.segments),
            accepted_at_s=max(times.waited_s, newest.accepted_at_s if newest is not None else 0.0),
            tick=batch is None,
            watermark_us=watermarks.now_us,
            before_us=watermarks.before_us,
            late_us=watermarks.late_us,
        )
        self.progress.accepted(record, times)
        self.checkpoint.accept(record)
        times.accepted_s = self.clock()
        self.faults.reach("driver.after-accept", epoch=epoch)
        self.post(Accepted(record))
