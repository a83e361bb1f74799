"""The controller: load reports and acknowledgements in, control messages and wishes for lanes out. No I/O, no clock.

It asks the policy when a window is complete and nothing is under way (`asking`), disposes of what the policy proposes
(`brakes`), lets the strategy cut it into steps, which wait (`plan_queue`), and hands out one step at a time with the
control message of an epoch (`under_way`). What it does and what it refuses, with the reason, stands in the journal. The
Spark engine and the simulator run this same class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evenflow.control.asking import Asking
from evenflow.control.brakes import Brakes
from evenflow.control.journal import (
    AckIgnored,
    Decided,
    Entry,
    Journal,
    LanesChanged,
    LanesWanted,
    PhaseChanged,
    Refusal,
    Refused,
    Requested,
    WindowClosed,
    WindowDropped,
)
from evenflow.control.lane_changes import LaneChanges, refitted
from evenflow.control.measure import balance_of
from evenflow.control.messages import Ack, ControllerState, LaneWish
from evenflow.control.options import ControllerOptions
from evenflow.control.plan_queue import Origin, PlanQueue, WaitingStep, check_plan, moves_of
from evenflow.control.under_way import Change, MovesUnderWay
from evenflow.control.windows import ReportCollector
from evenflow.errors import InputError, PolicyError, ProtocolError
from evenflow.migration import Event, MoveLife, Phase, QueuedStep, Step, Strategy, scheduled
from evenflow.model import Balance, ControlMessage, Epoch, LaneId, LoadReport, LoadView, LoadWindow, Move, RoutingTable
from evenflow.model.balance import moved_state
from evenflow.model.slots import FloatArray, SlotId
from evenflow.policies import Policy, Proposal
from evenflow.policies.base import policy_name, with_reason

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
        self.strategy = strategy
        self._table = table
        self._epoch: Epoch = -1
        self._collector = ReportCollector(
            table.slots, table.lanes, self._record, self.options.window_epochs, self.options.patience
        )
        self._asking = Asking(policy, table.slots, self.options)
        self._queue = PlanQueue()
        self._under_way = MovesUnderWay()
        self._lanes = LaneChanges()
        self._copied: set[SlotId] = set()  # of the planned moves: their targets have loaded the slot ahead
        self._cooldown = 0
        self._settling = self.options.settle_windows

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
    def policy(self) -> Policy:
        """The policy that is asked."""
        return self._asking.policy

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
        return self._asking.not_curable

    def slot_shares(self) -> FloatArray:
        """Return each slot's part of the load of the newest window that counts; nothing if there is none."""
        return self._asking.slot_shares()

    @property
    def draining(self) -> tuple[LaneId, ...]:
        """The lanes that a resize has give away their slots, and those that are about to stop."""
        return self._lanes.draining

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
        if self._under_way:
            return None
        # The window in which a step ends does not count (AF-A26).
        self._collector.restart(self._table.lanes, self._epoch, "a move completed in it")
        self._cooldown = self.options.cooldown_windows
        return self._let_go()

    def lane_lost(self, lane: LaneId) -> None:
        """The lane's attempt died. Told moves go on by another way, plans that need the lane are dropped."""
        self._record(LanesChanged(self._epoch, self._table.lanes, (lane,)))
        self._settling = self.options.settle_windows
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
        self._asking.forget_windows()

    def request(self, moves: Sequence[Move], not_before: Epoch = 0) -> None:
        """Plan moves asked for by hand; they supersede plans for the same slots. A bad one refuses them all."""
        asked = with_reason(moves, "asked for by hand")
        self._refuse_impossible([QueuedStep(asked)])
        self.queue(scheduled(self.strategy.steps(asked, self._asking.weights()), not_before, every=0))

    def queue(self, plan: Sequence[QueuedStep]) -> None:
        """Queue steps; each waits for its epoch, for the step before it and for what may begin before (LR-M6, M8).

        They supersede what is planned for the same slots. A step that cannot be refuses the whole plan. Until its epoch
        a step stands in nobody's way: loads are watched, the policy is asked, other steps go first.
        """
        self._plan(plan, Origin.BY_HAND)

    def set_policy(self, policy: Policy) -> None:
        """Ask another policy from now on; what is planned or under way is carried out. It starts with no memory."""
        self._asking.set_policy(policy)
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
        steps = self.strategy.steps(moves, self._asking.weights())
        self._plan(scheduled(steps, self._epoch + 1, every=0), Origin.RESIZE)
        self._lanes.resize(tuple(lane for lane in self._table.lanes if lane not in table.lanes))
        return None if moves or self._under_way else self._let_go()

    def measured_move(self, state_bytes: int, seconds: float) -> None:
        """Learn what moving state costs."""
        self._asking.measured_move(state_bytes, seconds)

    def prepared(self, slot: SlotId) -> None:
        """The target of a planned move has loaded the slot ahead."""
        self._copied.add(slot)

    def unprepared(self, slot: SlotId) -> None:
        """What was loaded ahead is of no use any more."""
        self._copied.discard(slot)

    # --- out -----------------------------------------------------------------------------------------------------

    def to_prepare(self) -> tuple[Move, ...]:
        """Return the moves of the next step whose slots shall be loaded by their new lanes before they move."""
        least, coming = self.options.copy_ahead_bytes, self._queue.next_steps(self._epoch + _AHEAD_EPOCHS)
        if least is None or not coming:
            return ()
        return tuple(move for move in coming[0].moves if self._asking.state_bytes[move.slot] >= least)

    def next_epoch(self, epoch: Epoch, at_s: float = 0.0) -> ControlMessage:
        """Return the control message of `epoch`, with the moves of the next step if its time has come."""
        if epoch <= self._epoch:
            raise ProtocolError(f"epoch {epoch} was asked for after epoch {self._epoch}")
        self._epoch = epoch
        self._queue.drop_done(epoch)
        moves: Step = ()
        for step in self._queue.next_steps(epoch)[:1]:
            moves = self._as_many_as_may_begin(step)
            if moves:
                self._queue.take(step, moves)
                self._table = self._table.apply(moves)
                self._copied.difference_update(move.slot for move in moves)
                self._changed(self._under_way.begin(moves, step.plan, epoch, at_s))
        return ControlMessage(epoch, moves)

    # --- deciding ------------------------------------------------------------------------------------------------

    def _decide_on(self, window: LoadWindow) -> LaneWish | None:
        """Use a complete window: ask the policy unless something speaks against it."""
        balance = balance_of(window, self._table)
        self._record(WindowClosed(self._epoch, window.epochs, balance))
        self.journal.keep_window(window, self._table)
        self._asking.saw_sizes(window)
        if self._settling > 0:
            self._settling -= 1
            self._record(WindowDropped(self._epoch, window.epochs, "lanes have just started"))
            return None
        if self._is_under_way or self._lanes.awaited:
            self._record(WindowDropped(self._epoch, window.epochs, "moves are under way"))
            return None
        self._asking.keep(window)
        if self._cooldown > 0:
            self._cooldown -= 1
            self._record(Refused(self._epoch, Refusal.COOLING_DOWN, (), f"{self._cooldown} more windows to watch"))
            return None
        if not self._asking.is_warm:
            return None
        view = self._asking.view(self._table, self._under_way.took_s)
        try:
            proposal = self._asking.ask(view, self._epoch)
        except PolicyError as error:
            self._record(Refused(self._epoch, Refusal.BAD_PROPOSAL, (), str(error)))
            return None
        self._under_way.took_s = 0.0
        self._collector.min_span_s = proposal.collect_s or 0.0
        return self._dispose(proposal, view, balance)

    def _dispose(self, proposal: Proposal, view: LoadView, before: Balance) -> LaneWish | None:
        """Carry out what the policy proposes, or refuse it with a reason."""
        name = policy_name(self.policy)
        if not proposal.moves and not proposal.add_lanes and not proposal.retire:
            # There is nothing to weigh, to cut into steps or to carry out.
            self._record(Decided(self._epoch, name, (), 0, proposal.not_curable, before, before, 0, proposal.note))
            self._lanes.retiring = ()
            return None
        weights = self._asking.weights()
        verdict, denied = Brakes(self.strategy, self.options).dispose(proposal, view, before, weights)
        if denied is not None:
            self._record(Refused(self._epoch, denied.refusal, denied.moves, denied.why))
        if verdict is None:
            return None
        proposal, steps, after = verdict.proposal, verdict.steps, verdict.table_after
        moved = int(moved_state(self._table, after, view.last.slots.state_bytes))
        cannot, note = proposal.not_curable, proposal.note
        self._record(
            Decided(self._epoch, name, proposal.moves, len(steps), cannot, before, verdict.balance_after, moved, note)
        )
        if proposal.add_lanes or proposal.retire:
            self._record(LanesWanted(self._epoch, len(after.lanes), note))
        if proposal.add_lanes:
            # The moves to lanes that are not there yet are proposed again once they are.
            self._lanes.awaited = True
            return LaneWish(add=proposal.add_lanes)
        self._lanes.retiring = proposal.retire
        self._queue.moved_before(proposal.moves)
        self._queue.add(scheduled(steps, self._epoch + 1, every=0), Origin.POLICY, self._epoch + 1)
        return self._let_go() if not steps else None

    def _let_go(self) -> LaneWish | None:
        """Once nothing is under way any more, let those of the retiring lanes go that own nothing."""
        if self._is_under_way or not self._lanes.retiring:
            return None
        leaving = self._lanes.let_go(self._table)
        self._drop({move.slot for move in self._queue.moves if move.target in leaving}, Event.CANCEL)
        return LaneWish(retire=leaving) if leaving else None

    # --- moving --------------------------------------------------------------------------------------------------

    @property
    def _is_under_way(self) -> bool:
        """Whether moves are told and not settled, or may begin with the next epoch. Plans for later are neither."""
        return bool(self._under_way or self._queue.next_steps(self._epoch + 1))

    def _plan(self, plan: Sequence[QueuedStep], origin: Origin) -> None:
        """Queue a plan that somebody asked for; it supersedes what is planned for the same slots."""
        self._refuse_impossible(plan)
        moves = moves_of(plan)
        self._drop({move.slot for move in moves}, Event.SUPERSEDED)
        self._record(Requested(self._epoch, moves))
        self._queue.add(plan, origin, self._epoch + 1)

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
        for move, _ in dropped:
            after = MoveLife(move).after(event).phase
            self._record(PhaseChanged(self._epoch, move, event, Phase.PLANNED, after))
        if dropped:
            self._lanes.plan_lost_a_part()

    def _as_many_as_may_begin(self, step: WaitingStep) -> Step:
        """Return the moves of a step that may be announced now: all of them, or as many as may be in flight."""
        if self._under_way or any(move.slot not in self._copied for move in self.to_prepare()):
            return ()
        limit = self.options.max_bytes_in_flight
        if limit is None:
            return step.moves
        now: list[Move] = []
        used = 0
        for move in step.moves:
            used += int(self._asking.state_bytes[move.slot])
            if now and used > limit:
                break
            now.append(move)
        later = step.moves[len(now) :]
        if later:
            why = f"at most {limit} bytes may be in flight"
            self._record(Refused(self._epoch, Refusal.BYTES_IN_FLIGHT, later, why))
        return tuple(now)

    def _changed(self, changes: Iterable[Change]) -> None:
        for change in changes:
            before, after = change.before.phase, change.after.phase
            self._record(PhaseChanged(self._epoch, change.after.move, change.event, before, after))

    def _record(self, entry: Entry) -> None:
        self.journal.record(entry)
