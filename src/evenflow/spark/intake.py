"""How epochs begin: with a micro-batch of Spark's, or as a tick, which carries only the time.

One begins at a time. Its number is our own; the record says which of Spark's batches it holds, so that a batch which is
handed over again is known. From its record on the epoch survives a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest

from pyspark.sql import DataFrame

from evenflow.control import Controller
from evenflow.engine import Accepted, Event
from evenflow.lane.faults import Faults
from evenflow.log import QueryLog
from evenflow.model import ControlMessage, Epoch, RoutingTable
from evenflow.spark.progress import EpochTimes, Progress
from evenflow.spark.route import Routed, Router
from evenflow.spark.telling import shown
from evenflow.state import Checkpoint, EpochRecord

_NOTHING = Routed((), ())


@dataclass
class Intake:
    """Routes what comes, accepts it as an epoch, and tells the engine; waits when lanes are too far behind."""

    checkpoint: Checkpoint
    controller: Controller
    router: Router
    progress: Progress
    log: QueryLog
    faults: Faults
    lock: threading.RLock  # what guards the controller
    max_lag: int
    clock: Callable[[], float]
    wait_for: Callable[[Callable[[], bool]], None]
    post: Callable[[Event], None]
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

    def tick(self) -> bool:
        """Accept an epoch without rows; return False if another epoch is about to begin, which brings the time too."""
        if not self._beginning.acquire(blocking=False):
            return False
        try:
            self.checkpoint.refuse_if_taken_over()
            now_s = self.clock()
            times = EpochTimes(began_s=now_s, ready_s=now_s, routed_s=now_s)
            message, table = self._begin(now_s)
            self._accept(message, table, _NOTHING, times, None)
            self.last_tick = message.event_time
        finally:
            self._beginning.release()
        return True

    def _begin(self, now_s: float) -> tuple[ControlMessage, RoutingTable]:
        with self.lock:
            epoch: Epoch = self.checkpoint.last_accepted + 1
            message, table = self.controller.next_epoch(epoch, now_s), self.controller.table
        if message.moves:
            self.log.info("%d moves take effect: %s", len(message.moves), shown(message.moves), epoch=epoch)
        return message, table

    def _accept(
        self, message: ControlMessage, table: RoutingTable, routed: Routed, times: EpochTimes, batch: int | None
    ) -> None:
        epoch, newest = message.event_time, self.checkpoint.newest
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
            watermarks=_never_back(routed.watermarks, newest.watermarks if newest is not None else ()),
            rows=sum(segment.rows for block in routed.blocks for segment in block.segments),
            accepted_at_s=max(times.waited_s, newest.accepted_at_s if newest is not None else 0.0),
            tick=batch is None,
        )
        self.progress.accepted(record, times)
        self.checkpoint.accept(record)
        times.accepted_s = self.clock()
        self.faults.reach("driver.after-accept", epoch=epoch)
        self.post(Accepted(record))


def _never_back(now: tuple[int | None, ...], before: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return the watermarks of the inputs: they only rise; where an epoch says nothing, it stays as it was."""
    known = ([mark for mark in pair if mark is not None] for pair in zip_longest(now, before))
    return tuple(max(marks, default=None) for marks in known)
