"""The controller: load reports and acknowledgements in, control messages and wishes for lanes out. No I/O, no clock.

It asks the policy when a window is complete, about the lanes that are in no move (`deciding`); lets the strategy cut
into steps what the brakes leave of the answer; keeps plans until their time comes (`plan_queue`); and announces, with
the control message of an epoch, all steps that nothing stands in the way of (`starting`, `under_way`). What it does and
what it refuses, with the reason, stands in the journal. The Spark engine and the simulator run this same class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evenflow.control.deciding import Deciding, Decision, Situation
from evenflow.control.journal import (
    AckIgnored,
    Entry,
    Journal,
    LanesChanged,
    LanesWanted,
    PhaseChanged,
    Refusal,
    Refused,
    Requested,
    StepWaits,
)
from evenflow.control.lane_changes import LaneChanges, refitted
from evenflow.control.messages import Ack, ControllerState, LaneWish
from evenflow.control.options import ControllerOptions
from evenflow.control.plan_queue import Origin, PlanQueue, check_plan, moves_of
from evenflow.control.starting import Starting, Wait, newly, to_copy_ahead
from evenflow.control.under_way import Change, MovesUnderWay
from evenflow.control.windows import ReportCollector
from evenflow.errors import InputError, ProtocolError
from evenflow.migration import Event, MoveLife, Phase, QueuedStep, Strategy, scheduled
from evenflow.model import ControlMessage, Epoch, LaneId, LoadReport, LoadWindow, Move, RoutingTable
from evenflow.model.slots import FloatArray, SlotId
from evenflow.policies import Policy
from evenflow.policies.base import with_reason

_AHEAD_EPOCHS = 8  # before a step may begin, its slots are copied: in time, and not kept twice for long


class Controller:
    """See the module. Every method is called by one thread, in the order in which things happen."""

    def __init__(
        self,
        table: RoutingTable,
        policy: Policy,
        strategy: Strategy,
        options: ControllerOptions | None = None,
        journal: Journal | None = None,
    ) -> None:
        """Start with `table` in force and nothing under way."""
        self.options = options or ControllerOptions()
        self.journal = journal if journal is not None else Journal()
        self._table = table
        self._epoch: Epoch = -1
        self._collector = ReportCollector(
            table.slots, table.lanes, self._record, self.options.window_epochs, self.options.patience
        )
        self._deciding = Deciding(policy, strategy, table.slots, self.options, self._record)
        self._queue = PlanQueue()
        self._under_way = MovesUnderWay()
        self._lanes = LaneChanges()
        self._copied: set[SlotId] = set()  # of the planned moves: their targets have loaded the slot ahead
        self._said: dict[int, str] = {}  # what the journal says that plans wait for

    @classmethod
    def restored(
        cls,
        state: ControllerState,
        policy: Policy,
        strategy: Strategy,
        options: ControllerOptions | None = None,
        journal: Journal | None = None,
    ) -> Controller:
        """Return a controller that goes on after a restart: announced moves are recovered, plans are forgotten."""
        controller = cls(state.table, policy, strategy, options, journal)
        controller._epoch = state.epoch
        controller._collector.restart(state.table.lanes, state.epoch, "the controller restarted")
        controller._changed(controller._under_way.restore(state.in_flight))
        return controller

    @property
    def strategy(self) -> Strategy:
        """The strategy that cuts plans into steps."""
        return self._deciding.strategy

    @property
    def policy(self) -> Policy:
        """The policy that is asked."""
        return self._deciding.asking.policy

    @property
    def table(self) -> RoutingTable:
        """The table that the newest control message put in force."""
        return self._table

    @property
    def state(self) -> ControllerState:
        """What a restarted controller needs to go on."""
        return ControllerState(self._table, self.in_flight, self._epoch)

    @property
    def in_flight(self) -> tuple[MoveLife, ...]:
        """The moves that lanes have been told of and that are not settled."""
        return self._under_way.lives

    @property
    def planned(self) -> tuple[Move, ...]:
        """The moves still to be announced, in order; without those of slots that are there by now."""
        return tuple(move for step in self._queue for move in step.to_do)

    @property
    def not_curable(self) -> Mapping[SlotId, Epoch]:
        """The slots that no move can help, by the policy's newest word, and the epoch since which it says so."""
        return self._deciding.asking.not_curable

    def slot_shares(self) -> FloatArray:
        """Return each slot's part of the load of the newest window that counts; nothing if there is none."""
        return self._deciding.asking.slot_shares()

    @property
    def draining(self) -> tuple[LaneId, ...]:
        """The lanes that a resize has give away their slots, and those that are about to stop."""
        return self._lanes.draining

    def _size(self, slot: SlotId) -> int:
        return int(self._deciding.asking.state_bytes[slot])

    # --- in ------------------------------------------------------------------------------------------------------

    def report(self, report: LoadReport) -> LaneWish | None:
        """Take a lane's load report; return a wish for other lanes if the decision it completes has one."""
        self._collector.add(report)
        wish = None
        while (window := self._collector.take()) is not None:
            wish = self._decide_on(window) or wish
        return wish

    def report_all(self, load: LoadWindow) -> LaneWish | None:
        """Take the reports of all lanes for one epoch in one piece; the same as `report` for each of them."""
        whole = self._collector.add_all(load, self._table)
        wish = self._decide_on(whole) if whole is not None else None
        while (window := self._collector.take()) is not None:
            wish = self._decide_on(window) or wish
        return wish

    def acknowledge(self, ack: Ack) -> LaneWish | None:
        """Take a lane's word on a move; return which lanes may stop once the last one of theirs has left."""
        changes = self._under_way.acknowledge(ack)
        if isinstance(changes, str):
            self._record(AckIgnored(self._epoch, ack.slot, ack.event, changes))
            return None
        self._changed(changes)
        if not any(change.after.phase.is_over for change in changes):
            return None
        if not self._under_way:
            # The window in which a move ends does not count (AF-A26); with the last one a new window begins for all.
            self._deciding.last_move_s += self._under_way.took_s(ack.at_s)
            self._collector.restart(self._table.lanes, self._epoch, "a move completed in it")
        return self._let_go()

    def lane_lost(self, lane: LaneId) -> None:
        """The lane's attempt died. Told moves go on by another way, plans that need the lane are dropped."""
        self._record(LanesChanged(self._epoch, self._table.lanes, (lane,)))
        self._deciding.settling = self.options.settle_windows
        self._changed(self._under_way.lost(lane))
        for event, side in ((Event.SOURCE_LOST, "source"), (Event.TARGET_LOST, "target")):
            # A resize is carried out all the same.
            steps = (step for step in self._queue if step.origin is not Origin.RESIZE)
            self._drop({move.slot for step in steps for move in step.moves if getattr(move, side) == lane}, event)

    def lanes_changed(self, lanes: Iterable[LaneId]) -> None:
        """Lanes were added or have stopped: `lanes` are all there are now. One that owns slots cannot have gone."""
        self._table = self._table.with_lanes(sorted(lanes))
        self._lanes.are_now(self._table.lanes)
        self._record(LanesChanged(self._epoch, self._table.lanes))
        for source in {life.move.source for life in self.in_flight} - {*self._table.lanes}:
            self._changed(self._under_way.lost(source))
        self._drop({move.slot for move in self._queue.moves if move.target not in self._table.lanes}, Event.CANCEL)
        self._collector.restart(self._table.lanes, self._epoch, "the lanes changed")
        self._deciding.asking.forget_windows()
        self._deciding.at_rest.only(self._table.lanes)

    def request(self, moves: Sequence[Move], not_before: Epoch = 0) -> None:
        """Plan moves asked for by hand; they supersede plans for the same slots. A bad one refuses them all."""
        asked = with_reason(moves, "asked for by hand")
        self._refuse_impossible([QueuedStep(asked)])
        self.queue(scheduled(self.strategy.steps(asked, self._deciding.asking.weights()), not_before, every=0))

    def queue(self, plan: Sequence[QueuedStep]) -> None:
        """Queue steps; each waits for its epoch, for the step before it and for what may begin before (LR-M6, M8).

        They supersede what is planned for the same slots. A step that cannot be refuses the whole plan. Until its epoch
        a step stands in nobody's way: loads are watched, the policy is asked, other steps go first.
        """
        self._plan(plan, Origin.BY_HAND)

    def set_policy(self, policy: Policy) -> None:
        """Ask another policy from now on; what is planned or under way is carried out. It starts with no memory."""
        self._deciding.asking.set_policy(policy)
        self._collector.min_span_s = 0.0

    def resize(self, table: RoutingTable) -> LaneWish | None:
        """Go to a table over the lanes that shall stay, all of which are there; return a wish if that is done already.

        Its moves supersede all plans; lanes that it does not have are let go when they own nothing any more, and take
        no slot until then.
        """
        wanted = table.with_lanes(sorted({*self._table.lanes, *table.lanes}))
        moves = self._table.difference(wanted)
        moves = tuple(replace(move, reason=refitted(move, table.lanes)) for move in moves)
        self._lanes.resize(())
        self._drop(self._queue.slots, Event.SUPERSEDED)
        steps = self.strategy.steps(moves, self._deciding.asking.weights())
        self._plan(scheduled(steps, self._epoch + 1, every=0), Origin.RESIZE)
        self._lanes.resize(tuple(lane for lane in self._table.lanes if lane not in table.lanes))
        return self._let_go()

    def measured_move(self, state_bytes: int, seconds: float) -> None:
        """Learn what moving state costs."""
        self._deciding.asking.measured_move(state_bytes, seconds)

    def prepared(self, slot: SlotId) -> None:
        """The target of a planned move has loaded the slot ahead."""
        self._copied.add(slot)

    def unprepared(self, slot: SlotId) -> None:
        """What was loaded ahead is of no use any more."""
        self._copied.discard(slot)

    # --- out -----------------------------------------------------------------------------------------------------

    def to_prepare(self) -> tuple[Move, ...]:
        """Return the moves of the next steps whose slots shall be loaded by their new lanes before they move."""
        if self.options.copy_ahead_bytes is None:
            return ()
        steps = self._queue.next_steps(self._epoch + _AHEAD_EPOCHS)
        coming = to_copy_ahead(steps, self._under_way, overlap=self.options.overlap)
        return tuple(filter(self._is_copied_ahead, coming))

    def next_epoch(self, epoch: Epoch, at_s: float = 0.0) -> ControlMessage:
        """Return the control message of `epoch`, with the moves of all steps whose time has come."""
        if epoch <= self._epoch:
            raise ProtocolError(f"epoch {epoch} was asked for after epoch {self._epoch}")
        self._epoch = epoch
        self._queue.drop_done(epoch)
        self._give_up_late_plans()
        starting = Starting(self.options.overlap, self.options.max_bytes_in_flight, self._size, self._is_ready)
        starting.choose(self._queue.next_steps(epoch), self._under_way)
        self._tell_of(starting.waits)
        for step, moves in starting.begun:
            self._queue.take(step, moves)
            self._table = self._table.apply(moves)
            self._copied.difference_update(move.slot for move in moves)
            self._changed(self._under_way.begin(moves, step.plan, epoch, at_s))
        return ControlMessage(epoch, tuple(move for _, moves in starting.begun for move in moves))

    # --- deciding ------------------------------------------------------------------------------------------------

    def _decide_on(self, window: LoadWindow) -> LaneWish | None:
        """Use a complete window: carry out what is decided on it."""
        self.journal.keep_window(window, self._table)
        now = Situation(self._epoch, self._table, frozenset(self._busy), self._lanes.awaited)
        decision = self._deciding.on(window, now)
        self._collector.min_span_s = self._deciding.asking.collect_s
        if decision is None:
            return None
        if decision.is_about_all_lanes:
            self._lanes.retiring = ()
        return self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> LaneWish | None:
        entry, plan = decision.entry, 0
        if decision.steps and not decision.add_lanes:
            self._queue.moved_before(entry.moves)
            steps = scheduled(decision.steps, self._epoch + 1, every=0)
            plan = self._queue.add(steps, Origin.POLICY, self._epoch + 1)
        self._record(replace(entry, plan=plan))
        if decision.add_lanes or decision.retire:
            lanes = len(self._table.lanes) + decision.add_lanes - len(decision.retire)
            self._record(LanesWanted(self._epoch, lanes, entry.note))
        if decision.add_lanes:
            # The moves to lanes that are not there yet are proposed again once they are.
            self._lanes.awaited = True
            return LaneWish(add=decision.add_lanes)
        if decision.retire:
            self._lanes.retiring = decision.retire
        return self._let_go()

    def _let_go(self) -> LaneWish | None:
        """Let those of the retiring lanes go that own nothing and are in no move any more."""
        if not self._lanes.retiring:
            return None
        leaving = self._lanes.let_go(self._table, self._busy | self._under_way.lanes)
        self._drop({move.slot for move in self._queue.moves if move.target in leaving}, Event.CANCEL)
        return LaneWish(retire=leaving) if leaving else None

    # --- moving --------------------------------------------------------------------------------------------------

    @property
    def _busy(self) -> set[LaneId]:
        """The lanes in moves that are told and not settled, or that may begin with the next epoch."""
        return self._under_way.busy.keys() | self._queue.lanes_by(self._epoch + 1)

    def _plan(self, plan: Sequence[QueuedStep], origin: Origin) -> None:
        """Queue a plan that somebody asked for; it supersedes what is planned for the same slots."""
        self._refuse_impossible(plan)
        moves = moves_of(plan)
        self._drop({move.slot for move in moves}, Event.SUPERSEDED)
        self._record(Requested(self._epoch, moves, self._queue.add(plan, origin, self._epoch + 1)))

    def _refuse_impossible(self, plan: Sequence[QueuedStep]) -> None:
        """Raise if a plan asked for by hand cannot be; what is planned for other slots has no say in it."""
        try:
            check_plan(plan, self._table, self.draining)
        except InputError as error:
            self._record(Refused(self._epoch, Refusal.BAD_REQUEST, moves_of(plan), str(error)))
            raise

    def _drop(self, slots: set[SlotId], event: Event) -> None:
        """Drop all that is planned for `slots`."""
        dropped = self._queue.drop(slots)
        for move, plan in dropped:
            after = MoveLife(move).after(event).phase
            self._record(PhaseChanged(self._epoch, move, event, Phase.PLANNED, after, plan))
        if dropped:
            self._lanes.plan_lost_a_part()

    def _is_ready(self, move: Move) -> bool:
        """Whether a move need not wait until its slot is copied ahead."""
        return move.slot in self._copied or not self._is_copied_ahead(move)

    def _is_copied_ahead(self, move: Move) -> bool:
        least = self.options.copy_ahead_bytes
        return least is not None and bool(self._deciding.asking.state_bytes[move.slot] >= least)

    def _give_up_late_plans(self) -> None:
        """Drop the rest of plans of the policy whose present step takes long: it can ask anew for the other lanes."""
        if not self._deciding.takes_parts or len({*self._table.lanes} - self._under_way.lanes) < 2:  # noqa: PLR2004
            return
        last = self._epoch - self.options.patience
        late = {told.plan: told.life for told in self._under_way if (told.life.epoch or 0) < last}
        for step in self._queue:
            if step.plan in late and step.origin is Origin.POLICY:
                why = f"given up, {late[step.plan].move} takes more than {self.options.patience} epochs"
                self._record(StepWaits(self._epoch, step.plan, step.moves, why))
                self._drop({move.slot for move in step.moves}, Event.CANCEL)

    def _tell_of(self, waits: Sequence[Wait]) -> None:
        """Put into the journal what has not been said of steps that wait."""
        for wait in newly(waits, self._said):
            if wait.for_bytes:
                self._record(Refused(self._epoch, Refusal.BYTES_IN_FLIGHT, wait.moves, wait.why))
            else:
                self._record(StepWaits(self._epoch, wait.plan, wait.moves, wait.why))
        self._said = {wait.plan: wait.why for wait in waits}

    def _changed(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._deciding.at_rest.moved(change.freed, self._epoch)
            before, after = change.before.phase, change.after.phase
            self._record(PhaseChanged(self._epoch, change.after.move, change.event, before, after, change.plan))

    def _record(self, entry: Entry) -> None:
        self.journal.record(entry)
