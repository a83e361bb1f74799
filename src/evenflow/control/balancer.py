"""The balancer: load reports and acknowledgements in, control messages and wishes for lanes out. No I/O, no clock.

It asks the policy when a window is complete, about the lanes that are in no move (`deciding`); lets the strategy cut
into steps what the brakes leave of the answer; keeps plans until their time comes (`plan_queue`); and announces, with
the control message of an epoch, all steps that nothing stands in the way of (`moving`). What it does and what it
refuses, with the reason, stands in the journal. The Spark engine and the simulator run this same class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy.typing as npt

from evenflow.control.deciding import Deciding, Decision, Situation
from evenflow.control.gone import adoptions, share_of
from evenflow.control.journal import (
    Entry,
    Journal,
    LanesChanged,
    LanesWanted,
    Refusal,
    Refused,
)
from evenflow.control.lane_changes import LaneChanges, refitted
from evenflow.control.messages import Ack, BalancerState, LaneWish
from evenflow.control.moving import Moving
from evenflow.control.options import BalancerOptions
from evenflow.control.plan_queue import Origin
from evenflow.control.windows import ReportCollector
from evenflow.errors import ProtocolError
from evenflow.migration import Event, MoveLife, QueuedStep, Strategy, scheduled
from evenflow.model import ControlMessage, Epoch, LaneId, LoadReport, LoadWindow, Move, RoutingTable
from evenflow.model.slots import FloatArray, SlotId
from evenflow.policies import Policy
from evenflow.policies.base import with_reason

_AHEAD_EPOCHS = 8  # before a step may begin, its slots are copied: in time, and not kept twice for long


class Balancer:
    """See the module. Every method is called by one thread, in the order in which things happen."""

    def __init__(
        self,
        table: RoutingTable,
        policy: Policy,
        strategy: Strategy,
        options: BalancerOptions | None = None,
        journal: Journal | None = None,
    ) -> None:
        """Start with `table` in force and nothing under way."""
        self.options = options or BalancerOptions()
        self.journal = journal if journal is not None else Journal()
        self._table = table
        self._collector = ReportCollector(
            table.slots, table.lanes, self._record, self.options.window_epochs, self.options.patience
        )
        self._deciding = Deciding(policy, strategy, table.slots, self.options, self._record)
        self._moving = Moving(self.options, self._size, self._record, self._deciding.at_rest.moved)
        self._lanes = LaneChanges()

    @classmethod
    def restored(
        cls,
        state: BalancerState,
        policy: Policy,
        strategy: Strategy,
        options: BalancerOptions | None = None,
        journal: Journal | None = None,
    ) -> Balancer:
        """Return a balancer that goes on after a restart: announced moves are recovered, plans are forgotten."""
        balancer = cls(state.table, policy, strategy, options, journal)
        balancer._moving.epoch = state.epoch
        balancer._collector.restart(state.table.lanes, state.epoch, "the balancer restarted")
        balancer._moving.changed(balancer._moving.under_way.restore(state.in_flight))
        return balancer

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
    def state(self) -> BalancerState:
        """What a restarted balancer needs to go on."""
        return BalancerState(self._table, self.in_flight, self._moving.epoch)

    @property
    def in_flight(self) -> tuple[MoveLife, ...]:
        """The moves that lanes have been told of and that are not settled."""
        return self._moving.under_way.lives

    @property
    def planned(self) -> tuple[Move, ...]:
        """The moves still to be announced, in order; without those of slots that are there by now."""
        return self._moving.planned

    @property
    def not_curable(self) -> Mapping[SlotId, Epoch]:
        """The slots that no move can help, by the policy's newest word, and the epoch since which it says so."""
        return self._deciding.asking.not_curable

    def slot_shares(self) -> FloatArray:
        """Return each slot's part of the load of the newest window that counts; nothing if there is none."""
        return self._deciding.asking.slot_shares()

    @property
    def adoption_waits(self) -> bool:
        """Whether slots of a lane that is gone wait for the next epoch, be it empty: until then nobody serves them."""
        return bool(self._lanes.gone)

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
        if not self._moving.acknowledge(ack):
            return None
        if not self._moving.under_way:
            # The window in which a move ends does not count (AF-A26); with the last one a new window begins for all.
            self._deciding.last_move_s += self._moving.under_way.took_s(ack.at_s)
            self._collector.restart(self._table.lanes, self._moving.epoch, "a move completed in it")
        return self._let_go()

    def lane_lost(self, lane: LaneId) -> None:
        """The lane's attempt died. Told moves go on by another way, plans that need the lane are dropped."""
        self._record(LanesChanged(self._moving.epoch, self._table.lanes, (lane,)))
        self._deciding.settling = self.options.settle_windows
        self._moving.changed(self._moving.under_way.lost(lane))
        for event, side in ((Event.SOURCE_LOST, "source"), (Event.TARGET_LOST, "target")):
            # A resize is carried out all the same, and slots of a lane that is gone are not left there.
            steps = (step for step in self._moving.queue if step.origin not in (Origin.RESIZE, Origin.GONE))
            self._drop({move.slot for step in steps for move in step.moves if getattr(move, side) == lane}, event)

    def lanes_changed(self, lanes: Iterable[LaneId]) -> None:
        """Lanes were added or have stopped: `lanes` are all there are now. One that owns slots cannot have gone."""
        table = self._table.with_lanes(sorted(lanes))
        self._lanes.are_now(table.lanes)
        self._have_lanes_of(table)

    def lane_gone(self, lane: LaneId, weights: npt.ArrayLike | None = None) -> None:
        """A lane that was lost does not come back: plans with it are dropped, its slots go to others at the next epoch.

        Or at once, by `adopt`. They wait for nothing else: their new lanes recover them from the checkpoint, and then
        the lane is none of the table's any more. `weights` are the loads of slots, if they are not to be those of the
        newest window. The last lane cannot be gone.
        """
        if lane not in self._table.lanes or lane in self._lanes.gone:
            return
        if len(self._table.lanes) == len(self._lanes.gone) + 1:
            self._record(
                Refused(self._moving.epoch, Refusal.LAST_LANE, (), f"nobody can take the slots of lane {lane}")
            )
            return
        self._lanes.gone |= {lane}
        self._record(LanesChanged(self._moving.epoch, self._table.lanes, gone=(lane,)))
        self._drop({move.slot for move in self._moving.queue.moves if lane in (move.source, move.target)}, Event.CANCEL)
        self._adopt(weights)

    def lane_back(self, lane: LaneId, weights: npt.ArrayLike | None = None) -> None:
        """A lane that was taken for gone is there: it keeps its slots if they are still its own, else gets a share."""
        self._deciding.settling = self.options.settle_windows
        if lane in self._lanes.gone:
            self._lanes.gone -= {lane}
            self._record(LanesChanged(self._moving.epoch, self._table.lanes))
            self._adopt(weights)
        elif lane not in self._table.lanes:
            moves = share_of(lane, self._table, self._lanes.takers(self._table), self._loads(weights))
            self._have_lanes_of(self._table.with_lanes([*self._table.lanes, lane]))
            steps = self.strategy.steps(moves, self._deciding.asking.weights())
            self._plan(scheduled(steps, self._moving.epoch + 1, every=0), Origin.RESIZE)

    def join_failed(self, lanes: Iterable[LaneId]) -> None:
        """Lanes that the engine was to start do not come: nobody waits for them any more."""
        self._lanes.do_not_come()
        why = f"lanes {', '.join(map(str, lanes))} were started and did not come"
        self._record(Refused(self._moving.epoch, Refusal.LANES_DO_NOT_COME, (), why))

    def request(self, moves: Sequence[Move], not_before: Epoch = 0) -> None:
        """Plan moves asked for by hand; they supersede plans for the same slots. A bad one refuses them all."""
        asked = with_reason(moves, "asked for by hand")
        self._moving.check([QueuedStep(asked)], self._table, self.draining, self._lanes.gone)
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
        others = (move for move in self._table.difference(wanted) if move.source not in self._lanes.gone)
        moves = tuple(replace(move, reason=refitted(move, table.lanes)) for move in others)
        self._lanes.resize(())
        self._drop(self._moving.queue.slots, Event.SUPERSEDED)
        steps = self.strategy.steps(moves, self._deciding.asking.weights())
        self._plan(scheduled(steps, self._moving.epoch + 1, every=0), Origin.RESIZE)
        self._lanes.resize(tuple(lane for lane in self._table.lanes if lane not in table.lanes))
        self._adopt()
        return self._let_go()

    def measured_move(self, state_bytes: int, seconds: float) -> None:
        """Learn what moving state costs."""
        self._deciding.asking.measured_move(state_bytes, seconds)

    def prepared(self, slot: SlotId) -> None:
        """The target of a planned move has loaded the slot ahead."""
        self._moving.prepared(slot)

    def unprepared(self, slot: SlotId) -> None:
        """What was loaded ahead is of no use any more."""
        self._moving.unprepared(slot)

    # --- lanes ---------------------------------------------------------------------------------------------------

    def _have_lanes_of(self, table: RoutingTable) -> None:
        """Go on with the lanes of `table`, which has the same slots on the same lanes."""
        self._table = table
        self._lanes.forget_all_but(table.lanes)
        self._record(LanesChanged(self._moving.epoch, table.lanes))
        for source in {life.move.source for life in self.in_flight} - {*table.lanes}:
            self._moving.changed(self._moving.under_way.lost(source))
        self._drop({move.slot for move in self._moving.queue.moves if move.target not in table.lanes}, Event.CANCEL)
        self._collector.restart(table.lanes, self._moving.epoch, "the lanes changed")
        self._deciding.asking.forget_windows()
        self._deciding.at_rest.only(table.lanes)
        self._adopt()

    def _adopt(self, weights: npt.ArrayLike | None = None) -> None:
        """Plan for all slots of lanes that are gone to go to others, whatever was planned for them."""
        self._drop(self._moving.queue.slots_for(Origin.GONE), Event.SUPERSEDED)
        takers, loads = self._lanes.takers(self._table), self._loads(weights)
        moves = adoptions(self._table, self._lanes.gone, takers, loads) if self._lanes.gone else ()
        if moves:
            self._moving.add([QueuedStep(moves)], Origin.GONE)

    def _loads(self, weights: npt.ArrayLike | None) -> npt.ArrayLike:
        return self.slot_shares() if weights is None else weights

    # --- out -----------------------------------------------------------------------------------------------------

    def to_prepare(self) -> tuple[Move, ...]:
        """Return the moves of the next steps whose slots shall be loaded by their new lanes before they move."""
        return self._moving.to_prepare()

    def next_epoch(self, epoch: Epoch, at_s: float = 0.0) -> ControlMessage:
        """Return the control message of `epoch`, with the moves of all steps whose time has come."""
        if epoch <= self._moving.epoch:
            raise ProtocolError(f"epoch {epoch} was asked for after epoch {self._moving.epoch}")
        self._moving.epoch = epoch
        if self._deciding.takes_parts and len({*self._table.lanes} - self._moving.under_way.lanes) > 1:
            self._drop(self._moving.too_late(), Event.CANCEL)  # the policy can ask anew for the other lanes
        moves = self._moving.begin(at_s)
        self._moved(moves)
        return ControlMessage(epoch, moves)

    def adopt(self, at_s: float = 0.0) -> tuple[MoveLife, ...]:
        """Let slots of lanes that are gone be others' now, without waiting for an epoch; return their moves.

        An epoch that has been routed and not accepted may still name the lanes that are gone; lanes find its rows.
        """
        moves = self._moving.adopt(at_s)
        self._moved(moves)
        slots = {move.slot for move in moves}
        return tuple(life for life in self.in_flight if life.move.slot in slots)

    def _moved(self, moves: Sequence[Move]) -> None:
        """Put moves that have begun in force; lanes that are gone have nothing any more."""
        self._table = self._table.apply(moves) if moves else self._table
        if self._lanes.gone:
            self._have_lanes_of(self._table.with_lanes(self._lanes.there(self._table)))

    # --- deciding ------------------------------------------------------------------------------------------------

    def _decide_on(self, window: LoadWindow) -> LaneWish | None:
        """Use a complete window: carry out what is decided on it."""
        self.journal.keep_window(window, self._table)
        now = Situation(self._moving.epoch, self._table, frozenset(self._busy), self._lanes.awaited)
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
            self._moving.queue.moved_before(entry.moves)
            steps = scheduled(decision.steps, self._moving.epoch + 1, every=0)
            plan = self._moving.add(steps, Origin.POLICY)
        self._record(replace(entry, plan=plan))
        if decision.add_lanes or decision.retire:
            lanes = len(self._table.lanes) + decision.add_lanes - len(decision.retire)
            self._record(LanesWanted(self._moving.epoch, lanes, entry.note))
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
        leaving = self._lanes.let_go(self._table, self._busy | self._moving.under_way.lanes)
        self._drop({move.slot for move in self._moving.queue.moves if move.target in leaving}, Event.CANCEL)
        return LaneWish(retire=leaving) if leaving else None

    # --- moving --------------------------------------------------------------------------------------------------

    @property
    def _busy(self) -> set[LaneId]:
        """The lanes that nothing else can be decided about."""
        return self._moving.busy | self._lanes.gone

    def _plan(self, plan: Sequence[QueuedStep], origin: Origin) -> None:
        """Queue a plan that somebody asked for; it supersedes what is planned for the same slots."""
        self._moving.check(plan, self._table, self.draining, self._lanes.gone)
        self._drop({move.slot for step in plan for move in step.moves}, Event.SUPERSEDED)
        self._moving.add(plan, origin)

    def _drop(self, slots: set[SlotId], event: Event) -> None:
        """Drop all that is planned for `slots`."""
        if self._moving.drop(slots, event):
            self._lanes.plan_lost_a_part()

    def _size(self, slot: SlotId) -> int:
        return int(self._deciding.asking.state_bytes[slot])

    def _record(self, entry: Entry) -> None:
        self.journal.record(entry)
