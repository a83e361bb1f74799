"""The shell around the engine of one query: feeds in what happens, and does what the engine wants done.

What happens to an epoch, and what a crash at each point means::

    route     blocks written              crash: Spark replays the batch, the orphan blocks are swept
    accept    epoch record durable        crash: the epoch is folded from the record, the replay is skipped
    work      lanes fold and write files  crash: those files are not committed, the slots are folded again
    commit    manifest entry durable      crash: outputs are published from the manifest
    publish   outputs in the sink         crash: published again, under the same names

Another driver may have been started on the same checkpoint: then this one's next record fails, at the latest (see
`state/runs.py`). It also looks from time to time, since one that has nothing to do writes none, and Spark's part of the
checkpoint is shared as well; and before it does what takes long or reaches the sink.

Four threads: Spark's, which routes and accepts batches and waits when lanes are too far behind (`intake`); the one that
begins an epoch without rows when something is due; the loop, which is the only one to run the engine's actions
(`acting`); and the one that publishes (`publisher`). One lock guards what they share in memory. No file, socket or sink
is touched while it is held, so whoever looks (status, progress, stop) gets an answer at once.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from evenflow.control import Balancer
from evenflow.control.journal import Entry, Journal
from evenflow.engine import (
    Asked,
    Committed,
    Engine,
    Event,
    TimePassed,
)
from evenflow.errors import EvenflowError, InputError, StoppedError, TakenOverError
from evenflow.lane import LaneConfig
from evenflow.lane.cut import Cut, cut_of
from evenflow.lane.events import Joined, Said
from evenflow.lane.faults import Faults
from evenflow.lane.messages import Released
from evenflow.log import QueryLog
from evenflow.model import LaneId, Move, SlotId, StageUnits
from evenflow.policies import Policy
from evenflow.policies.base import policy_name
from evenflow.spark.acting import Acting
from evenflow.spark.intake import Intake
from evenflow.spark.lane_links import LaneLinks
from evenflow.spark.lane_start import LaneStart
from evenflow.spark.progress import Progress
from evenflow.spark.publisher import Publisher
from evenflow.spark.route import Router
from evenflow.spark.sink import Sink
from evenflow.spark.telling import JournalLog
from evenflow.state import Checkpoint

_GATHER_S = 0.005  # a commit costs a few flushes to disk; lanes that finish within this time share one
_POLL_S = 0.2  # how often a wait looks at the stop flag
PATIENCE_S = 10.0  # how long a stop waits for a sink that does not return
_LOOK_S = 1.0  # how often a driver without anything to do looks whether another one has taken over


@dataclass
class Shell:
    """Runs the engine of one query."""

    spark: SparkSession
    checkpoint: Checkpoint
    balancer: Balancer
    links: LaneLinks
    engine: Engine
    router: Router
    sink: InitVar[Sink]
    progress: Progress
    config: LaneConfig
    max_lag: int = 0
    ends_by_itself: bool = False  # Spark's part ends with the last batch there is: see `on_batch`
    event_time: bool = False  # whether a tick follows when the watermark has moved: see `Intake.owes_a_tick`
    spare_slots: Callable[[], int] = lambda: 0  # task slots in which more lanes could run
    lane_start_s: float = 60.0
    clock: Callable[[], float] = time.time
    threaded: bool = True  # tests that play all parts in one thread say no
    log: QueryLog = field(default_factory=lambda: QueryLog("query"))
    prepare_thread: Callable[[], None] = lambda: None  # in each thread of ours, before it does anything
    was_stopped: Callable[[], bool] = lambda: False  # whether Spark's query was stopped, by whomever
    faults: Faults = field(default_factory=Faults.scripted)
    error: BaseException | None = None
    over: threading.Event = field(default_factory=threading.Event)  # it has failed, or is to stop
    _to_tell: deque[Entry] = field(default_factory=deque)  # of the journal, for the log
    _threads: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _reading: threading.Lock = field(default_factory=threading.Lock)  # files that are read must not be swept
    _changed: threading.Condition = field(init=False)

    def __post_init__(self, sink: Sink) -> None:
        """Share one lock."""
        self._changed = threading.Condition(self._lock)
        self.checkpoint.lock = self._lock
        self.progress.not_curable = lambda: [self.config.names.named(row) for row in self.engine.hot_spots.rows()]
        self.journal.heard = self._to_tell.append
        self._journal_log = JournalLog(self.log, self.config.names)
        self._lane_start = LaneStart(self.engine, self.links, self.lane_start_s)
        self._acting = Acting(
            self.checkpoint, self.links, self.engine, self.progress, self.log, self.faults, self.spare_slots
        )
        self.intake = Intake(
            self.checkpoint,
            self.engine,
            self.router,
            self.progress,
            self.log,
            self.faults,
            self._changed,
            self._stop,
            self.max_lag,
            self.clock,
            self._wait_for,
            self._post,
            self.event_time,
        )
        self.publisher = Publisher(
            self.checkpoint, sink, self.progress, self.log, self.faults, self._changed, self._reading, self._stop
        )

    @property
    def journal(self) -> Journal:
        """The record of all decisions and moves."""
        return self.balancer.journal

    # --- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the lanes; they finish what an earlier run of the query has left behind."""
        self.checkpoint.sweep_orphans()
        self._acting.act(self.engine.start())
        if self.threaded:
            self._start_thread("loop", self._loop)
        self._wait_for(lambda: not self.engine.missing(), time.monotonic() + self.lane_start_s)

    def start_publishing(self) -> None:
        """Bring to the sink what is committed, from now on.

        If Spark's part may end at once, since there is nothing new to read, what an earlier run has left is finished
        first, within reason: what fails of it fails the start, where Spark's query could not tell of it any more.
        """
        if self.threaded:
            self._start_thread("publish", self.publisher.keep_publishing)
            self._start_thread("ticks", self.intake.keep_ticking)
        if self.ends_by_itself:
            deadline = time.monotonic() + self.lane_start_s
            last = self.checkpoint.recover().last_accepted
            self._wait_for(lambda: self._is_published(last) or time.monotonic() > deadline)

    def _start_thread(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._guarded, args=(run,), name=f"evenflow-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def interrupt(self) -> None:
        """End all waiting: what lanes are at is abandoned, it will be carried out again after a restart."""
        self._stop.set()
        self.over.set()
        self._wake()

    def stop(self, patience_s: float = PATIENCE_S) -> None:
        """End the lanes. A sink, or a disk, that does not return within `patience_s` is given up."""
        self.interrupt()
        deadline = time.monotonic() + patience_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        self.publisher.give_up(_POLL_S)
        hung = [thread.name.removeprefix("evenflow-") for thread in self._threads if thread.is_alive()]
        if hung:
            self.log.warning(
                "the query ends, although what %s waits for (the sink, or the checkpoint's disk) has not returned "
                "within %g s; what was not published is published again after a restart",
                " and ".join(hung),
                patience_s,
            )
        self.links.stop()

    def drain(self) -> None:
        """Wait until everything that was accepted is published, and nothing is due that was due when this began.

        The source must rest: where the watermark has moved, that is waited for, and the tick that follows.
        """
        last, now_s, intake = self.checkpoint.last_accepted, self.clock(), self.intake
        self._wait_for(
            lambda: (
                not intake.owes_a_tick and self._is_published(max(last, intake.last_tick)) and not intake.is_due(now_s)
            )
        )

    def _is_published(self, epoch: int) -> bool:
        return self.checkpoint.recover().last_published >= epoch

    def on_batch(self, rows: DataFrame, batch: int) -> None:
        """Spark hands over a micro-batch: accept it; lanes take it from there. A replayed one is accepted already.

        If Spark ends by itself, any batch may be its last one, after which it tells its listeners how it has ended: so
        it gets each back only when its epoch is published, and a failure is known in time.
        """
        try:
            self.intake.take(rows, batch)
            if self.ends_by_itself:
                last = self.checkpoint.last_accepted
                self._wait_for(lambda: self._is_published(last))
        except BaseException as error:
            self.fail(error)
            raise

    # --- asked for -----------------------------------------------------------------------------------------------

    def request(self, moves: Iterable[Move | tuple[SlotId, LaneId]], not_before: int = 0) -> None:
        """Plan moves that were asked for by hand, to take effect at epoch `not_before` or later."""
        with self._changed:
            self._refuse_if_ended("rebalance")
            owners = dict(enumerate(self.balancer.table.owners.tolist()))
            asked = [
                move if isinstance(move, Move) else Move(move[0], owners.get(move[0], -1), move[1]) for move in moves
            ]
            self.balancer.request([move for move in asked if move.source != move.target], not_before)
        self._post(Asked())

    def set_policy(self, policy: Policy) -> None:
        """Decide by another policy."""
        with self._lock:
            self.balancer.set_policy(policy)
        self.log.info("policy %s from now on", policy_name(policy))

    def resize(self, lanes: int) -> None:
        """Run with another number of lanes from now on: new ones take over slots, those to go are drained first."""
        spare = self.spare_slots()
        with self._changed:
            self._refuse_if_ended("resize")
            self.engine.resize(lanes, spare, self.clock())
        self._post(Asked())

    def _refuse_if_ended(self, what: str) -> None:
        if self._stop.is_set():
            raise InputError(f"{what}: the query has ended; start it again from its checkpoint")

    def slot_rows(self) -> list[dict[str, Any]]:
        """Return what each slot cost last, and how many rows of accepted epochs wait for it."""
        with self._lock:
            rows = self.progress.slot_rows(self.engine.pending_rows(), self.balancer.table)
        return [self.config.names.named(row) for row in rows]

    @contextlib.contextmanager
    def cut(self, stage: StageUnits) -> Iterator[Cut]:
        """Give references to the state of a stage at one epoch; their files stay for as long as they are read."""
        with self._reading:
            with self._lock:
                cut = cut_of(self.checkpoint.recover(), stage)
            try:
                yield cut
            except Exception as error:
                if (taken_over := self._taken_over()) is not None:  # and its files may have been removed by the other
                    raise taken_over from error
                raise

    # --- the loop ------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        looked_s = time.monotonic()
        while not self._stop.is_set():
            self._listen()
            if time.monotonic() - looked_s > _LOOK_S:
                self.checkpoint.refuse_if_taken_over()
                looked_s = time.monotonic()

    def _listen(self) -> None:
        """Take in what has happened, all that has come, and do what follows from it."""
        events = self._gathered()
        for event in events:
            if isinstance(event, Joined):
                hello = event.hello
                self.log.info("process %d on %s is there", hello.pid, hello.host, lane=hello.lane)
            if isinstance(event, Said) and isinstance(event.message, Released):
                self.faults.reach("driver.during-move", epoch=max(version for _, version in event.message.slots))
        with self._lock:
            if self.clock() >= self.engine.waits_until_s():
                events.append(TimePassed())
        if events:
            self._handle(events)

    def _post(self, event: Event) -> None:
        """Tell the loop of something; where there is no thread for it, this is the loop."""
        self.links.events.put(event)
        if not self.threaded:
            self._listen()

    def _gathered(self) -> list[Event]:
        """Return what has come; if other lanes are at work, wait a moment for them: one commit does for all."""
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            events.append(self.links.events.get(timeout=_POLL_S))
            with self._lock:
                expected = self.engine.lanes_at_work
            deadline = time.monotonic() + _GATHER_S
            while True:
                left_s = deadline - time.monotonic() if len(events) < expected else 0.0
                events.append(self.links.events.get(block=left_s > 0, timeout=max(0.0, left_s)))
        return events

    def _handle(self, events: Sequence[Event]) -> None:
        """Let the engine decide, do what it wants done, and wake who waits; until nothing follows any more."""
        while events:
            with self._changed:
                actions = self.engine.handle(events, self.clock())
                self._changed.notify_all()
            follows = self._acting.act(actions)
            if any(isinstance(event, Committed) for event in events):  # and what lanes said with it is known
                self.publisher.up_to = self.checkpoint.frontier
                self.progress.committed(self.checkpoint.frontier)
            events = follows
            while self._to_tell:
                self._journal_log(self._to_tell.popleft())

    # --- waiting -------------------------------------------------------------------------------------------------

    def _wait_for(self, condition: Callable[[], bool], deadline: float = math.inf) -> None:
        """Wait until a condition holds; end when the query stops, fails, or lanes do not come up."""
        while True:
            with self._changed:
                if condition():
                    return
                if self.error is not None:
                    raise self.error
                if self._stop.is_set():
                    raise StoppedError("the query was stopped")
                self._lane_start.refuse_to_wait(deadline)
                if self.threaded:
                    self._changed.wait(_POLL_S)
            if not self.threaded and not self.publisher.publish_ready() and not self.intake.tick_if_due():
                self._listen()

    def _guarded(self, run: Callable[[], None]) -> None:
        """Run a thread; what ends it ends the query."""
        try:
            self.prepare_thread()
            run()
        except BaseException as error:  # noqa: BLE001 - raised again in Spark's thread, or by the query
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Keep what has ended the query; if another driver has taken over, that is why, whatever it was that failed."""
        if self.error is None:
            stopped = StoppedError("the query was stopped") if self._stop.is_set() or self.was_stopped() else None
            self.error = stopped or self._taken_over() or error
        self.over.set()
        self._wake()

    @property
    def failure(self) -> BaseException | None:
        """What the query has failed of; None if it runs, or was stopped in good order."""
        return None if isinstance(self.error, StoppedError) else self.error

    def _wake(self) -> None:
        """Wake who waits; one that waits for a lock which is held too long looks by itself after a while."""
        if self._lock.acquire(timeout=_POLL_S):
            self._changed.notify_all()
            self._lock.release()

    def _taken_over(self) -> TakenOverError | None:
        try:
            self.checkpoint.refuse_if_taken_over()
        except TakenOverError as error:
            return error
        except EvenflowError:
            pass  # what the query has failed of says more
        return None
