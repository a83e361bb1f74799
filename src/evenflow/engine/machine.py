"""The engine: takes in what has happened, and says what is to be done next. It waits for nobody.

Lanes take epochs at their own pace. What they have done counts when it is committed; what follows from it (the next
work, units that may be loaded now) is decided after that. So there is one commit at a time, and what happens meanwhile
is taken in when it is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

import numpy as np

from evenflow.control import Balancer
from evenflow.engine.actions import Action, Commit, LookForStrays, Progressed, RetireLane, StartLane, Tell
from evenflow.engine.away import LANE_GRACE_S, LANE_START_S, Away
from evenflow.engine.copies import Copies
from evenflow.engine.elastic import Elastic
from evenflow.engine.events import Accepted, Committed, Event, Room, TimePassed
from evenflow.engine.flow import Flow
from evenflow.engine.handoffs import Handoffs
from evenflow.engine.hot_spots import HotSpots
from evenflow.engine.inputs import EpochIndex
from evenflow.engine.lanes import Lane
from evenflow.engine.loads import LoadAccounts
from evenflow.engine.planning import Planner
from evenflow.engine.records import Records
from evenflow.engine.transfers import Absence, Handover, Transfers
from evenflow.engine.units import Turn, Units
from evenflow.errors import EvenflowError, LaneFailedError
from evenflow.lane.events import Joined, Lost, Said
from evenflow.lane.messages import Adopted, Done, Failed, FromLane, Prepared, Released, Work
from evenflow.model import Due, Epoch, LaneId, SlotId, StageUnits
from evenflow.model.slots import FloatArray, IntArray
from evenflow.state import EpochRecord

_MOST_LOSSES = 5  # of one lane without progress


class Engine:
    """See the module. One thread at a time calls it."""

    def __init__(  # noqa: PLR0913 - settings by name
        self,
        records: Records,
        balancer: Balancer,
        handover: Handover = "at once",
        *,
        most_losses: int = _MOST_LOSSES,
        lane_grace_s: float = LANE_GRACE_S,
        lane_start_s: float = LANE_START_S,
        unit_weights: Callable[[], FloatArray] | None = None,
        stages: Sequence[StageUnits] = (),
    ) -> None:
        """Start with all units absent, to be held by the lanes of the balancer's table; no lane is there yet.

        `stages` says which units feed which, where there is more than one stage.
        """
        self.balancer = balancer
        self._actions: list[Action] = []
        self._now_s = 0.0
        self._records, self._most_losses = records, most_losses
        self._lanes: dict[LaneId, Lane] = {}
        self._units = Units(balancer.table)
        self._inputs = {epoch: EpochIndex(record) for epoch, record in records.pending.items()}
        for epoch, index in self._inputs.items():
            for block in records.fed(epoch):
                index.feed(block)
        self._flow = Flow(stages, lambda: records.slot_versions)
        self._planner = Planner(self._units, self._inputs, lambda: records.slot_versions, self._extras, self._flow)
        self._loads = LoadAccounts()
        self._handoffs = Handoffs()
        self._copies = Copies(balancer, self._lanes, self._units, records.sources, self._handoffs)
        self.hot_spots = HotSpots(balancer)
        weights = unit_weights or (lambda: np.zeros(balancer.table.slots))
        self._away = Away(lane_grace_s, lane_start_s)
        act = self._actions.append
        self._elastic = Elastic(balancer, self._lanes, self._add_lane, self._remove_lane, act, weights, self._away)
        self._transfers = Transfers(
            balancer,
            records,
            self._lanes,
            self._units,
            self._copies,
            self._handoffs,
            handover,
            act,
            self._elastic.act_on,
        )
        self._waiting: deque[Event] = deque()
        self._done: list[tuple[Done, Work]] = []
        self._committing: list[tuple[Done, Work]] = []
        self._idle: set[LaneId] = set()  # lanes for which there may be something to do now

    # --- looking -------------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> Mapping[LaneId, Lane]:
        """All lanes there are or should be."""
        return self._lanes

    @property
    def lanes_at_work(self) -> int:
        """How many lanes have work that they have not answered."""
        return sum(status.work is not None for status in self._lanes.values())

    def missing(self) -> list[LaneId]:
        """Return the lanes that are to serve units and are not there, or have not loaded all that waits for them."""
        lanes = self.balancer.table.lanes
        return [lane for lane in lanes if self._lanes[lane].token is None or not self._units.is_complete(lane)]

    def waits_until_s(self) -> float:
        """Return when `TimePassed` is wanted, be there nothing else to tell."""
        return self._elastic.waits_until_s()

    @property
    def absences(self) -> list[Absence]:
        """How long each unit that moved was served by nobody; the newest, oldest first."""
        return list(self._transfers.absences)

    def due(self) -> Due | None:
        """Return when something is to be done next, rows or not; None if nothing is, or if lanes are still at work.

        Every epoch brings the time with it: so nothing needs one of its own before all that were accepted are over.
        """
        if self._inputs or self._done or self._committing:
            return None
        found = [status.due for status in self._lanes.values() if status.due is not None]
        return reduce(Due.or_earlier, found) if found else None

    def pending_rows(self) -> IntArray:
        """Return for each unit the rows of accepted epochs that it has not folded, wherever they were routed to."""
        versions = self._records.slot_versions
        pending = np.zeros(versions.size, dtype=np.int64)
        for epoch, index in self._inputs.items():
            pending += np.where(versions < epoch, index.rows, 0)
        return pending

    # --- in ------------------------------------------------------------------------------------------------------

    def start(self) -> list[Action]:
        """Begin: have the lanes of the balancer's table started."""
        for lane in self.balancer.table.lanes:
            self._add_lane(lane)
        return self._flushed()

    def resize(self, lanes: int, spare: int, now_s: float) -> None:
        """Run with another number of lanes from now on; `Asked` carries it out. There is room for `spare` more."""
        self._elastic.resize(lanes, spare, now_s)

    def handle(self, events: Iterable[Event], now_s: float) -> list[Action]:
        """Take in what has happened, in this order, and return what is to be done."""
        self._now_s = now_s
        for event in events:
            if isinstance(event, Committed):
                self._committed()
            else:
                self._waiting.append(event)
        while self._waiting and not self._committing:
            event = self._waiting.popleft()
            if isinstance(event, Lost) and self._is_present(event.lane, event.token) and self._done:
                self._waiting.appendleft(event)  # what it said before counts, and makes what is lost less
                break
            self._take_in(event)
        if not self._committing:
            if self._done:
                self._commit()
            else:
                self._decide()
        return self._flushed()

    def _take_in(self, event: Event) -> None:
        if isinstance(event, Joined):
            if event.hello.lane in self._lanes:
                self._lanes[event.hello.lane].token = event.hello.token
                self._idle.add(event.hello.lane)
                self._elastic.came(event.hello.lane)
        elif isinstance(event, Said):
            if self._is_present(event.lane, event.token):
                self._said(event.lane, event.message)
        elif isinstance(event, Lost):
            if self._is_present(event.lane, event.token):
                self._lost(event.lane)
        elif isinstance(event, Accepted):
            self._accepted(event.record)
        elif isinstance(event, Room):
            self._elastic.found(event, self._now_s)
        elif isinstance(event, TimePassed):
            self._elastic.give_up_new(self._now_s)
            self._give_up_lost()

    def _is_present(self, lane: LaneId, token: str) -> bool:
        """Tell whether an attempt is the present one of its lane; whatever an older one says does not count."""
        return lane in self._lanes and self._lanes[lane].token == token

    def _accepted(self, record: EpochRecord) -> None:
        self._inputs[record.epoch] = EpochIndex(record)
        lanes = [lane for lane in record.lanes if lane in self._lanes and lane not in self._away.gone]
        self._loads.accepted(record.epoch, lanes)
        for life in self.balancer.in_flight if record.moves else ():
            # What was begun before, since a lane is gone, leads elsewhere by now, or is under way already.
            move = life.move
            if (move.slot, move.source, move.target) in record.moves and life.epoch == record.epoch:
                begun = self._units.moves.get(move.slot)
                if begun is None or begun.epoch != record.epoch:
                    self._transfers.begin(move, record.epoch, self._now_s)
        self._idle.update(self._lanes)

    # --- lanes speak ---------------------------------------------------------------------------------------------

    def _said(self, lane: LaneId, message: FromLane) -> None:
        status = self._lanes[lane]
        if isinstance(message, Failed):
            self._failed(lane, message)
        elif isinstance(message, Done) and status.work is not None:
            self._done.append((message, status.work))
            status.work, status.losses = None, 0
        elif isinstance(message, Released):
            self._transfers.released(message)
        elif isinstance(message, Adopted):
            self._adopted(lane, message)
        elif isinstance(message, Prepared):
            self._transfers.prepared(lane, message)

    def _failed(self, lane: LaneId, message: Failed) -> None:
        """End the query, unless a lane could not load units that were moved elsewhere meanwhile: then load the rest."""
        wanted = self._lanes[lane].asked.popleft() if message.slots else set()
        if len(wanted) == len(message.slots):
            raise LaneFailedError(lane, message.kind, message.message, message.detail)
        self._units.happens(Turn.CALLED_OFF, sorted(wanted))

    def _adopted(self, lane: LaneId, message: Adopted) -> None:
        self.balancer.measured_move(message.state_bytes, message.seconds)
        self._lanes[lane].due = message.due
        if self._transfers.loaded(lane, self._now_s):
            self._loads.loaded(lane, self._now_s)
            self._idle.add(lane)

    def _lost(self, lane: LaneId) -> None:
        """A lane's attempt is gone: so is what it held, and what it was told to load; what it handed off is not."""
        self._transfers.let_go_of_released(self._now_s)
        status = self._lanes[lane]
        status.is_lost()
        self._actions.append(LookForStrays())
        if status.losses >= self._most_losses:
            raise EvenflowError(
                f"lane {lane} was lost {status.losses} times in one epoch: its Python worker dies each time. See "
                f"the executor's log; often memory runs out (more lanes hold less each), or the operator crashes it"
            )
        self.balancer.lane_lost(lane)
        self._transfers.lost(lane)
        if lane in self.balancer.table.lanes:
            self._away.lost[lane] = self._now_s
        elif lane not in self._away.joining:
            self._away.gone.add(lane)

    def _give_up_lost(self) -> None:
        """Let others have the units of lanes that were lost too long ago, now: nobody serves them.

        What an epoch announced that is not accepted yet is part of it: that may wait for these very units.
        """
        overdue = self._away.overdue(self._now_s, self._elastic.serving)
        for lane in overdue:
            self.balancer.lane_gone(lane, self._elastic.weights())
            self._away.gone.add(lane)
            del self._away.lost[lane]
            self._loads.remove(lane)
        if not overdue:
            return
        adopted = self.balancer.adopt(self._now_s)
        told = [life for life in self.balancer.in_flight if life.move.source in overdue and life not in adopted]
        for life in (*adopted, *(life for life in told if life.move.slot not in self._units.moves)):
            self._transfers.begin(life.move, -1 if life.epoch is None else life.epoch, self._now_s)
        self._idle.update(self._lanes)

    # --- commits -------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        self._committing, self._done = self._done, []
        commits = [self._handoffs.noted_in(answer.commit) for answer, _ in self._committing if answer.commit.advances]
        self._actions.append(Commit(tuple(commits)))

    def _committed(self) -> None:
        """Note what the answers that count now say, and report the epochs that lanes are through with."""
        passed = [epoch for epoch in self._inputs if epoch <= self._records.frontier]
        present = [(answer, work) for answer, work in self._committing if answer.commit.lane in self._lanes]
        answered = {answer.commit.lane for answer, _ in present}
        for answer, work in present:  # without the last word of a lane that was retired meanwhile, it had nothing
            status = self._lanes[answer.commit.lane]
            self._actions.append(Progressed(answer))
            self.hot_spots.heard(work.epoch, answer.hot_keys)
            self._loads.worked(answer, status.epoch, self._now_s)
            status.worked(answer)
            if any(load.epoch > status.epoch for load in answer.loads):
                status.epoch = work.epoch
        feeds = [feed for answer, _ in self._committing for feed in answer.commit.feeds]
        self._committing = []
        for epoch, block in feeds:
            self._inputs[epoch].feed(block)
        for epoch in passed:
            del self._inputs[epoch]
        self._report(self._lanes if passed else answered)
        self._idle |= answered
        for stage in self._flow.advanced():  # whoever has units of it may go on, whatever it has said last
            self._idle.update(np.unique(self._units.lane[stage.units]).tolist())

    def _report(self, lanes: Iterable[LaneId]) -> None:
        known = [(lane, self._lanes[lane]) for lane in lanes]
        for _, status in known:
            if status.work is None:  # one without units may have been at an older epoch while all others took this one
                status.epoch = max(status.epoch, self._records.frontier)
        reports = self._loads.reports(known, self._units, self._records.slot_versions, self.pending_rows())
        for report in list(reports):
            self._elastic.act_on(self.balancer.report(report))

    # --- out -----------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Tell lanes what is next, now that all they have done counts."""
        self._transfers.let_go_of_released(self._now_s)
        self._elastic.welcome()
        self._transfers.copy_ahead()
        self._transfers.release(self._inputs)
        self._transfers.adopt()
        self._give_work()

    def _give_work(self) -> None:
        """Give lanes that have none the next work there is for them."""
        looked, self._idle = self._idle, set()
        for lane in sorted(looked):
            status = self._lanes.get(lane)
            if status is None or not status.is_idle:
                continue
            work = self._planner.next_work(lane, status)
            if work is not None:
                self._actions.append(Tell(lane, str(status.token), work))
                status.work = work

    def _extras(self, units: IntArray, epoch: Epoch) -> tuple[tuple[SlotId, ...], tuple[SlotId, ...]]:
        """Return the units to write out whole, and those whose hottest key is wanted.

        A unit of which a copy is made ahead is not written: the copy needs the changes since.
        """
        free = units[~np.isin(units, list(self._copies))] if self._copies else units
        due = self._records.due_snapshots(free, len(self._lanes))
        return tuple(due), self.hot_spots.to_ask(units.tolist(), epoch)

    def _add_lane(self, lane: LaneId) -> None:
        self._lanes[lane] = Lane(self._records.last_accepted)
        self._actions.append(StartLane(lane))

    def _remove_lane(self, lane: LaneId) -> None:
        del self._lanes[lane]
        self._away.forget(lane)
        self._loads.remove(lane)
        self._idle.discard(lane)
        self._actions.append(RetireLane(lane))

    def _flushed(self) -> list[Action]:
        actions = self._actions.copy()
        self._actions.clear()
        return actions
