"""A query in virtual time: feeds the engine what happens and does what it wants done, as the shell on Spark does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import floor
from typing import Protocol

import numpy as np

from evenflow.control import Balancer
from evenflow.engine import (
    Accepted,
    Action,
    Asked,
    Commit,
    Committed,
    Discard,
    Engine,
    Event,
    FindRoom,
    Handover,
    RetireLane,
    Room,
    StartLane,
    Tell,
)
from evenflow.errors import InputError
from evenflow.lane.events import Joined, Lost, Said
from evenflow.lane.messages import PROTOCOL, FromLane, Hello, ToLane, Work
from evenflow.model import Epoch, LaneId, RoutingTable
from evenflow.model.slots import IntArray
from evenflow.sim.engine_run.agenda import Agenda, Line
from evenflow.sim.engine_run.files import PlayedFiles
from evenflow.sim.engine_run.lane import Plant, PlayedLane
from evenflow.sim.engine_run.operator import PlayedOperator
from evenflow.sim.engine_run.prices import Network, Pace, Prices, SpeedsInSteps
from evenflow.sim.engine_run.records import HeldRecords
from evenflow.sim.engine_run.watching import Watcher
from evenflow.state import Block, EpochRecord, FileRef, Segment, block_name

_MESSAGE_S = 1e-3  # what a message takes between a driver and a lane, as measured on Spark
_EVER = 1 << 30


class Source(Protocol):
    """Where rows come from."""

    def take(self, epoch: Epoch, since_s: float, until_s: float) -> IntArray:
        """Return how many rows of each slot have come between two moments; they are the epoch's."""


@dataclass(frozen=True, slots=True)
class _Link:
    """An attempt of a lane and its connection, both ways."""

    lane: PlayedLane
    to: Line
    back: Line


@dataclass
class PlayedQuery:
    """The real engine, its balancer and its ledger, with lanes that are played. `start` it, then let time pass.

    `max_lag`: how many epochs may be accepted that the sink does not have; None for any number. An epoch that has to
    wait takes all that has come until then. `goes_on` is asked before each epoch: after the last one lanes finish.
    `delay_s`: what a message takes between a driver and a lane.
    """

    balancer: Balancer
    source: Source
    operator: PlayedOperator
    epoch_s: float
    handover: Handover = "at once"
    max_lag: int | None = None
    prices: Prices = field(default_factory=Prices)
    pace: Pace = field(default_factory=SpeedsInSteps)
    delay_s: Callable[[], float] = lambda: _MESSAGE_S
    watcher: Watcher = field(default_factory=Watcher)
    goes_on: Callable[[], bool] = lambda: True
    agenda: Agenda = field(default_factory=Agenda)
    files: PlayedFiles = field(default_factory=PlayedFiles)
    epoch: Epoch = -1  # the newest accepted one
    waited: int = 0  # how many epochs had to wait for lanes
    records: HeldRecords = field(init=False)
    engine: Engine = field(init=False)
    _links: dict[LaneId, _Link] = field(default_factory=dict)
    _attempts: Counter[LaneId] = field(default_factory=Counter)
    _inbox: list[Event] = field(default_factory=list)
    _taken_s: float = 0.0
    _waits: bool = False  # an epoch is due and lanes are too far behind
    _started: bool = False

    def __post_init__(self) -> None:
        """Build the engine; no lane is there yet."""
        balancer, network = self.balancer, Network(self.agenda, self.prices)
        self.records = HeldRecords(balancer.table.slots)
        self.engine = Engine(
            self.records, balancer, self.handover, most_losses=_EVER, unit_weights=balancer.slot_shares
        )
        self._plant = Plant(self.agenda, self.files, network, self.operator, self.prices, self.pace, self.watcher)

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return self.agenda.now_s

    @property
    def lanes(self) -> Mapping[LaneId, PlayedLane]:
        """The attempts of lanes that are there."""
        return {lane: link.lane for lane, link in self._links.items()}

    def start(self) -> None:
        """Begin: the lanes are there at once, epochs come from the end of the first one on."""
        self._act(self.engine.start())
        self._started = True
        self.agenda.at(self.epoch_s, self._epoch_due)

    def run(self, until_s: float = float("inf")) -> None:
        """Let time pass."""
        self.agenda.run(until_s)

    # --- what happens from outside -------------------------------------------------------------------------------

    def kill(self, lane: LaneId) -> None:
        """A lane's process dies; it is started again."""
        link = self._links.pop(lane, None)
        if link is None:
            return
        link.lane.alive = False
        lost = Lost(lane, link.lane.hello.token)
        self.agenda.at(self.now_s + self.prices.notice_s, lambda: link.back.send(partial(self._hear, lost)))
        self.agenda.at(self.now_s + self.prices.start_s, partial(self._join, lane))

    def add_lanes(self, count: int) -> None:
        """Go on with more lanes, as soon as none is coming or going."""
        try:
            self.engine.resize(len(self.balancer.table.lanes) + count, count, self.now_s)
        except InputError:
            if self.engine.missing() or self.balancer.draining:
                self.agenda.at(self.now_s + self.epoch_s, partial(self.add_lanes, count))
                return
            raise
        self._hear(Asked())

    # --- epochs --------------------------------------------------------------------------------------------------

    def _epoch_due(self) -> None:
        if not self.goes_on():
            return
        if self.max_lag is not None and self.records.lag > self.max_lag:
            self._waits = True
            self.waited += 1
            return
        self._accept()
        turns = floor(self.now_s / self.epoch_s + 1e-9) + 1
        self.agenda.at(turns * self.epoch_s, self._epoch_due)

    def _accept(self) -> None:
        self._waits = False
        self.epoch += 1
        epoch, since_s, self._taken_s = self.epoch, self._taken_s, self.now_s
        message = self.balancer.next_epoch(epoch, self.now_s)
        table, rows = self.balancer.table, self.source.take(epoch, since_s, self.now_s)
        record = EpochRecord(
            epoch=epoch,
            batch=epoch,
            table_version=table.version,
            lanes=table.lanes,
            owners=tuple(table.owners.tolist()),
            moves=tuple((move.slot, move.source, move.target) for move in message.moves),
            blocks=tuple(_blocks(epoch, rows, table)),
            watermarks=(),
            rows=int(rows.sum()),
            accepted_at_s=self.now_s,
        )
        self.records.accept(record)
        self.watcher.accepted(record, since_s, self.now_s)
        self._hear(Accepted(record))

    # --- the loop ------------------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        """Take something in, together with all else that happens at this moment."""
        self._inbox.append(event)
        if len(self._inbox) == 1:
            self.agenda.at(self.now_s, self._listen)

    def _listen(self) -> None:
        while self._inbox:
            events, self._inbox = self._inbox, []
            self._act(self.engine.handle(events, self.now_s))

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Tell):
                self._tell(action.lane, action.token, action.message)
            elif isinstance(action, Commit):
                self.agenda.at(self.now_s + self.prices.commit_s, partial(self._commit, action))
            elif isinstance(action, Discard):
                self.records.discard(action.files)
            elif isinstance(action, FindRoom):
                self._hear(Room(action.lanes, action.lanes))
            elif isinstance(action, StartLane):
                self.agenda.at(self.now_s + self.prices.start_s * self._started, partial(self._join, action.lane))
            elif isinstance(action, RetireLane):
                link = self._links.pop(action.lane, None)
                if link is not None:
                    link.lane.alive = False

    def _commit(self, action: Commit) -> None:
        before = self.records.frontier
        self.records.commit(action.lanes)
        self._hear(Committed())
        if self.records.frontier > before:
            self.files.delete(self.records.take_useless())
        if self._waits and self.records.lag <= (self.max_lag or 0):
            self._waits = False
            self.agenda.at(self.now_s, self._epoch_due)

    # --- lanes ---------------------------------------------------------------------------------------------------

    def _join(self, lane: LaneId) -> None:
        if lane not in self.engine.lanes or lane in self._links:
            return
        hello = Hello(PROTOCOL, lane, self._attempts[lane], 0, 0, "virtual", "virtual", "sim")
        self._attempts[lane] += 1
        to, back = (Line(self.agenda, self.delay_s) for _ in range(2))
        played = PlayedLane(hello, self._plant, partial(self._say, back, hello))
        self._links[lane] = _Link(played, to, back)
        back.send(partial(self._hear, Joined(hello)))

    def _say(self, back: Line, hello: Hello, message: FromLane) -> None:
        back.send(partial(self._hear, Said(hello.lane, hello.token, message)))

    def _tell(self, lane: LaneId, token: str, message: ToLane) -> None:
        link = self._links.get(lane)
        if link is None or link.lane.hello.token != token:
            return
        if isinstance(message, Work):
            self.watcher.told(lane, message)
        link.to.send(partial(link.lane.hear, message))


def _blocks(epoch: Epoch, rows: IntArray, table: RoutingTable) -> Iterator[Block]:
    """Yield a block for each lane that gets any, as the exchange by shuffle makes them."""
    for lane in table.lanes:
        slots = table.slots_of(lane)
        slots = slots[rows[slots] > 0]
        if slots.size:
            counts = rows[slots]
            segment = Segment(lane, 0, int(counts.sum()), tuple(slots.tolist()), tuple(counts.tolist()))
            yield Block(FileRef(block_name(epoch, "sim", lane), int(np.sum(counts)), 0), (segment,))
