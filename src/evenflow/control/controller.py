"""The controller: load reports and acknowledgements in, control messages and wishes for lanes out. No I/O, no clock.

It asks the policy when a window is complete and nothing is under way, disposes of what the policy proposes, lets
the strategy cut it into steps, and hands out one step at a time with the control message of an epoch. What it does
and what it refuses, with the reason, stands in the journal. The Spark engine and the simulator run this same class.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import numpy as np

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
from evenflow.control.measure import balance_of
from evenflow.control.windows import ReportCollector
from evenflow.errors import InputError, PolicyError, ProtocolError
from evenflow.migration import Event, MoveLife, Phase, QueuedStep, Strategy, Weights, scheduled
from evenflow.model import (
    Balance,
    ControlMessage,
    Epoch,
    LaneId,
    LoadReport,
    LoadView,
    LoadWindow,
    Move,
    MoveCost,
    RoutingTable,
    SlotId,
)
from evenflow.model.balance import moved_state
from evenflow.model.slots import FloatArray, IntArray
from evenflow.policies import Policy, Proposal, proposal_of
from evenflow.policies.base import policy_name, with_reason

_NEWEST = 0.3  # the weight of the newest measurement of what a move costs
_TELLING_BYTES = 1 << 20
_AHEAD_EPOCHS = 8  # before a step may begin, its slots are copied: in time, and not kept twice for long


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """The brakes. All have defaults; the policies' own thresholds are theirs.

    `window_epochs`: epochs per load window, at least. `settle_windows`: windows not used after the start
    and after a lane was lost, since a lane that has just started is slow. `warm_up_windows`: windows to see before the
    policy is asked for the first time; with two, noise can be told from skew. `history`: windows kept for policies
    that look back; `even` takes 12 to tell that a skew lasts.
    `cooldown_windows`: full windows that are watched after the last move before the policy is asked again; the one
    in which a move completed is never used (AF-A26). `max_bytes_in_flight`: state announced and not yet settled;
    one slot may always go. `min_gain`: share of the busiest lane's time that a plan must take off it, 0 trusts the
    policy. `min_lanes`, `max_lanes`: bounds for policies that ask for more or fewer lanes; None keeps the number.
    `patience`: how many epochs a report may lag behind the others before its window is given up.
    `copy_ahead_bytes`: slots with at least so much state are loaded by their new lane before they move; None for none.
    `whole_epochs`: rows come an epoch at a time, as on Spark, not one by one (see `LoadView`).
    """

    window_epochs: int = 1
    settle_windows: int = 0
    warm_up_windows: int = 1
    history: int = 24
    cooldown_windows: int = 0
    max_bytes_in_flight: int | None = None
    min_gain: float = 0.0
    min_lanes: int | None = None
    max_lanes: int | None = None
    patience: int = 8
    copy_ahead_bytes: int | None = None
    whole_epochs: bool = True
    move_cost: MoveCost = field(default_factory=MoveCost)

    def __post_init__(self) -> None:
        """Refuse numbers that would stop the controller for good."""
        least_of = {
            "window_epochs": 1,
            "settle_windows": 0,
            "warm_up_windows": 1,
            "history": 1,
            "cooldown_windows": 0,
            "patience": 0,
        }
        for name, least in least_of.items():
            if getattr(self, name) < least:
                raise InputError(f"controller: {name} must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.min_gain < 1:
            raise InputError(f"controller: min_gain is a share from 0 to below 1, got {self.min_gain}")
        for name in ("max_bytes_in_flight", "copy_ahead_bytes"):
            most = getattr(self, name)
            if most is not None and most < 0:
                raise InputError(f"controller: {name} must not be negative, got {most}")
        fewest = 1 if self.min_lanes is None else self.min_lanes
        if fewest < 1 or (self.max_lanes is not None and self.max_lanes < fewest):
            raise InputError(f"controller: lanes from {self.min_lanes} to {self.max_lanes} is no range")


@dataclass(frozen=True, slots=True)
class Ack:
    """A lane's word on a move: which one (its slot and the epoch it took effect at) and what happened."""

    slot: SlotId
    epoch: Epoch
    event: Event
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LaneWish:
    """A command to the engine: start `add` more lanes, stop those in `retire`, which own nothing any more."""

    add: int = 0
    retire: tuple[LaneId, ...] = ()


@dataclass(frozen=True, slots=True)
class ControllerState:
    """What must survive a restart: the table and the moves that lanes were told of."""

    table: RoutingTable
    in_flight: tuple[MoveLife, ...] = ()
    epoch: Epoch = -1


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
        self.policy, self.strategy = policy, strategy
        self._table = table
        self._epoch: Epoch = -1
        self._collector = ReportCollector(
            table.slots, table.lanes, self._record, self.options.window_epochs, self.options.patience
        )
        self._windows: deque[LoadWindow] = deque(maxlen=self.options.history)
        self._memory: Any = None
        self._queue: deque[QueuedStep] = deque()  # by the epochs they may begin at
        self._told: dict[SlotId, MoveLife] = {}
        self._state_bytes: IntArray = np.zeros(table.slots, np.int64)  # of each slot, as last seen
        self._move_cost = self.options.move_cost
        self._copied: set[SlotId] = set()  # of the planned moves: their targets have loaded the slot ahead
        self._retiring: tuple[LaneId, ...] = ()  # may go once the plan is carried out
        self._leaving: tuple[LaneId, ...] = ()  # the engine was told to stop them
        self._drained: tuple[LaneId, ...] = ()  # of the retiring: a resize wants it, so nothing calls it off
        self._refitted: set[SlotId] = set()  # planned to move by a resize
        self._resizing = False
        self._cooldown = 0
        self._settling = self.options.settle_windows
        self._step_began_s: float | None = None  # unknown after a restart
        self._last_move_s = 0.0
        self._not_curable: dict[SlotId, Epoch] = {}

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
        for life in state.in_flight:
            controller._change(life, Event.CONTROLLER_RESTARTED)
        return controller

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
        return tuple(self._told.values())

    @property
    def planned(self) -> tuple[Move, ...]:
        """The moves still to be announced, in order; without those of slots that are there by now."""
        return tuple(move for move in _moves_of(self._queue) if _is_to_do(move))

    @property
    def not_curable(self) -> Mapping[SlotId, Epoch]:
        """The slots that no move can help, by the policy's newest word, and the epoch since which it says so."""
        return self._not_curable

    def slot_shares(self) -> FloatArray:
        """Return each slot's part of the load of the newest window that counts; nothing if there is none."""
        busy_s = self._windows[-1].slots.busy_s if self._windows else np.zeros(self._table.slots)
        shares: FloatArray = busy_s / max(1e-12, busy_s.sum())
        return shares

    @property
    def draining(self) -> tuple[LaneId, ...]:
        """The lanes that a resize has give away their slots, and those that are about to stop."""
        return (*self._drained, *self._leaving)

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
        life = self._told.get(ack.slot)
        if life is None or life.epoch != ack.epoch:
            self._record(AckIgnored(self._epoch, ack.slot, ack.event, f"no move at epoch {ack.epoch} is under way"))
            return None
        if ack.event not in (Event.HANDED_OFF, Event.INSTALLED, Event.HANDOFF_DAMAGED):
            raise ProtocolError(f"lanes cannot say {ack.event.value!r} of {life.move}")
        if ack.event is Event.HANDOFF_DAMAGED and life.phase is Phase.ANNOUNCED:
            # The target has looked at the handoff before the source's word of it arrived.
            life = self._change(life, Event.HANDED_OFF)
        if life.after(ack.event).phase is life.phase:
            self._record(AckIgnored(self._epoch, ack.slot, ack.event, f"the move is {life.phase.value} already"))
            return None
        self._change(life, ack.event)
        if self._told:
            return None
        self._end_step(ack.at_s)
        return self._let_go()

    def lane_lost(self, lane: LaneId) -> None:
        """The lane's attempt died. Told moves go on by another way, plans that need the lane are dropped."""
        self._record(LanesChanged(self._epoch, self._table.lanes, (lane,)))
        self._settling = self.options.settle_windows
        for life in self.in_flight:
            if lane == life.move.source:
                self._change(life, Event.SOURCE_LOST)
            elif lane == life.move.target:
                self._change(life, Event.TARGET_LOST)
        for event, side in ((Event.SOURCE_LOST, "source"), (Event.TARGET_LOST, "target")):
            lost = {move.slot for move in _moves_of(self._queue) if getattr(move, side) == lane}
            self._drop_plans(lost - self._refitted, event)  # a resize is carried out all the same

    def lanes_changed(self, lanes: Iterable[LaneId]) -> None:
        """Lanes were added or have stopped: `lanes` are all there are now. One that owns slots cannot have gone."""
        self._table = self._table.with_lanes(sorted(lanes))
        self._resizing, self._leaving = False, ()
        self._drained = tuple(lane for lane in self._drained if lane in self._table.lanes)
        self._record(LanesChanged(self._epoch, self._table.lanes))
        for life in self.in_flight:
            if life.move.source not in self._table.lanes:
                self._change(life, Event.SOURCE_LOST)
        gone = {move.slot for move in _moves_of(self._queue) if move.target not in self._table.lanes}
        self._drop_plans(gone, Event.CANCEL)
        self._collector.restart(self._table.lanes, self._epoch, "the lanes changed")
        self._windows.clear()
        self._not_curable = {}

    def request(self, moves: Sequence[Move], not_before: Epoch = 0) -> None:
        """Plan moves asked for by hand; they supersede plans for the same slots. A bad one refuses them all."""
        asked = with_reason(moves, "asked for by hand")
        self._refuse_impossible([QueuedStep(asked)])
        self.queue(scheduled(self.strategy.steps(asked, self._weights()), not_before, every=0))

    def queue(self, plan: Sequence[QueuedStep]) -> None:
        """Queue steps; each waits for its epoch, for the step before it and for what may begin before (LR-M6, M8).

        They supersede what is planned for the same slots. A step that cannot be refuses the whole plan. Until its epoch
        a step stands in nobody's way: loads are watched, the policy is asked, other steps go first.
        """
        self._refuse_impossible(plan)
        moves = _moves_of(plan)
        self._drop_plans({move.slot for move in moves}, Event.SUPERSEDED)
        self._record(Requested(self._epoch, moves))
        self._enqueue(plan)

    def set_policy(self, policy: Policy) -> None:
        """Ask another policy from now on; what is planned or under way is carried out. It starts with no memory."""
        self.policy, self._memory, self._not_curable = policy, None, {}
        self._collector.min_span_s = 0.0

    def resize(self, table: RoutingTable) -> LaneWish | None:
        """Go to a table over the lanes that shall stay, all of which are there; return a wish if that is done already.

        Its moves supersede all plans; lanes that it does not have are let go when they own nothing any more, and take
        no slot until then.
        """
        wanted = table.with_lanes(sorted({*self._table.lanes, *table.lanes}))
        moves = tuple(_refitted(move, table.lanes) for move in self._table.difference(wanted))
        self._drained = ()
        self._drop_plans({move.slot for move in _moves_of(self._queue)}, Event.SUPERSEDED)
        self.queue(scheduled(self.strategy.steps(moves, self._weights()), self._epoch + 1, every=0))
        self._refitted = {move.slot for move in moves}
        self._retiring = self._drained = tuple(lane for lane in self._table.lanes if lane not in table.lanes)
        return None if moves or self._told else self._let_go()

    def measured_move(self, state_bytes: int, seconds: float) -> None:
        """Learn what moving state costs: the newest measurements count most; small ones tell only what a move costs."""
        cost, weight = self._move_cost, _NEWEST
        if state_bytes >= _TELLING_BYTES:
            per_byte = (1 - weight) * cost.seconds_per_byte + weight * seconds / state_bytes
            self._move_cost = replace(cost, seconds_per_byte=per_byte)
        else:
            per_move = (1 - weight) * cost.seconds_per_move + weight * seconds
            self._move_cost = replace(cost, seconds_per_move=per_move)

    def prepared(self, slot: SlotId) -> None:
        """The target of a planned move has loaded the slot ahead."""
        self._copied.add(slot)

    def unprepared(self, slot: SlotId) -> None:
        """What was loaded ahead is of no use any more."""
        self._copied.discard(slot)

    # --- out -----------------------------------------------------------------------------------------------------

    def to_prepare(self) -> tuple[Move, ...]:
        """Return the moves of the next step whose slots shall be loaded by their new lanes before they move."""
        least = self.options.copy_ahead_bytes
        if least is None:
            return ()
        moves = self._next_step(self._epoch + _AHEAD_EPOCHS).moves
        return tuple(move for move in moves if self._state_bytes[move.slot] >= least)

    def next_epoch(self, epoch: Epoch, at_s: float = 0.0) -> ControlMessage:
        """Return the control message of `epoch`, with the moves of the next step if its time has come."""
        if epoch <= self._epoch:
            raise ProtocolError(f"epoch {epoch} was asked for after epoch {self._epoch}")
        self._epoch = epoch
        moves = self._next_moves(epoch)
        if moves:
            self._table = self._table.apply(moves)
            self._step_began_s = at_s
            for move in moves:
                self._copied.discard(move.slot)
                self._refitted.discard(move.slot)
                told = MoveLife(move).announced(epoch)
                self._told[move.slot] = told
                self._record(PhaseChanged(epoch, move, Event.ANNOUNCE, Phase.PLANNED, told.phase))
        return ControlMessage(epoch, moves)

    # --- deciding ------------------------------------------------------------------------------------------------

    def _decide_on(self, window: LoadWindow) -> LaneWish | None:
        """Use a complete window: ask the policy unless something speaks against it."""
        balance = balance_of(window, self._table)
        self._record(WindowClosed(self._epoch, window.epochs, balance))
        self.journal.keep_window(window, self._table)
        # A slot on its way is reported by nobody, and has its state all the same.
        unseen = (window.slots.state_bytes == 0) & (window.slots.records == 0)
        self._state_bytes = np.where(unseen, self._state_bytes, window.slots.state_bytes)
        if self._settling > 0:
            self._settling -= 1
            self._record(WindowDropped(self._epoch, window.epochs, "lanes have just started"))
            return None
        if self._is_under_way or self._resizing:
            self._record(WindowDropped(self._epoch, window.epochs, "moves are under way"))
            return None
        self._windows.append(window)
        if self._cooldown > 0:
            self._cooldown -= 1
            self._record(Refused(self._epoch, Refusal.COOLING_DOWN, (), f"{self._cooldown} more windows to watch"))
            return None
        if len(self._windows) < min(self.options.warm_up_windows, self.options.history):
            return None
        view = LoadView(
            tuple(self._windows),
            self._table,
            self._memory,
            self._last_move_s,
            self._move_cost,
            self.options.whole_epochs,
        )
        try:
            proposal = proposal_of(self.policy, view)
        except PolicyError as error:
            self._record(Refused(self._epoch, Refusal.BAD_PROPOSAL, (), str(error)))
            return None
        self._memory, self._last_move_s = proposal.memory, 0.0
        self._not_curable = {int(slot): self._not_curable.get(slot, self._epoch) for slot in proposal.not_curable}
        self._collector.min_span_s = proposal.collect_s or 0.0
        return self._dispose(proposal, view, balance)

    def _dispose(self, proposal: Proposal, view: LoadView, before_balance: Balance) -> LaneWish | None:
        """Carry out what the policy proposes, or refuse it with a reason."""
        wish = proposal.add_lanes or proposal.retire
        if wish and not self._may_have(len(self._table.lanes) + proposal.add_lanes - len(proposal.retire)):
            why = f"{proposal.add_lanes} more and {len(proposal.retire)} fewer lanes were asked for"
            self._record(Refused(self._epoch, Refusal.LANES_ARE_FIXED, proposal.moves, why))
            return None
        if not proposal.moves and not wish:
            self._stay(proposal, before_balance)
            return None
        after = proposal.table_after(self._table, view.new_lanes(proposal.add_lanes))
        after_balance = balance_of(view.last, after)
        gain = before_balance.max_load - after_balance.max_load
        least = self.options.min_gain * before_balance.max_load
        if proposal.moves and not wish and self.options.min_gain > 0 and gain < least:
            why = f"{gain:.3g} s off the busiest lane's {before_balance.max_load:.3g} s"
            self._record(Refused(self._epoch, Refusal.GAIN_TOO_SMALL, proposal.moves, why))
            return None
        steps = self.strategy.steps(proposal.moves, self._weights())
        if self._move_cost.stops_all and proposal.on_their_own and not wish and len(steps) > 1:
            # Stops in a row add up, and what was planned before one is outdated after it.
            first = self.strategy.steps(proposal.on_their_own, self._weights())[0]
            later = tuple(move for move in proposal.moves if move not in first)
            why = f"{len(steps)} steps in a row; what is left after one is for the next decision"
            self._record(Refused(self._epoch, Refusal.LANES_WOULD_STOP, later, why))
            proposal, steps = replace(proposal, moves=first), (first,)
            after = proposal.table_after(self._table)
            after_balance = balance_of(view.last, after)
        self._record(
            Decided(
                self._epoch,
                policy_name(self.policy),
                proposal.moves,
                len(steps),
                proposal.not_curable,
                before_balance,
                after_balance,
                int(moved_state(self._table, after, view.last.slots.state_bytes)),
                proposal.note,
            )
        )
        if wish:
            self._record(LanesWanted(self._epoch, len(after.lanes), proposal.note))
        if proposal.add_lanes:
            # The moves to lanes that are not there yet are proposed again once they are.
            self._resizing = True
            return LaneWish(add=proposal.add_lanes)
        self._retiring = proposal.retire
        self._queue = deque(_after(proposal.moves, self._queue))
        self._enqueue(scheduled(steps, self._epoch + 1, every=0))
        return self._let_go() if not steps else None

    def _stay(self, proposal: Proposal, balance: Balance) -> None:
        """Leave all as it is: there is nothing to weigh, to cut into steps or to carry out."""
        name, not_curable = policy_name(self.policy), proposal.not_curable
        self._record(Decided(self._epoch, name, (), 0, not_curable, balance, balance, 0, proposal.note))
        self._retiring = ()

    def _may_have(self, lanes: int) -> bool:
        if self.options.min_lanes is None and self.options.max_lanes is None:
            return False
        return (self.options.min_lanes or 1) <= lanes <= (self.options.max_lanes or lanes)

    def _let_go(self) -> LaneWish | None:
        """Once nothing is under way any more, let those of the retiring lanes go that own nothing."""
        if self._is_under_way or not self._retiring:
            return None
        owners = {*self._table.owners.tolist()}
        self._leaving = tuple(lane for lane in self._retiring if lane in self._table.lanes and lane not in owners)
        self._retiring = self._drained = ()
        self._drop_plans({move.slot for move in _moves_of(self._queue) if move.target in self._leaving}, Event.CANCEL)
        self._resizing = bool(self._leaving)
        return LaneWish(retire=self._leaving) if self._leaving else None

    # --- moving --------------------------------------------------------------------------------------------------

    @property
    def _is_under_way(self) -> bool:
        """Whether moves are told and not settled, or may begin with the next epoch. Plans for later are neither."""
        return bool(self._told or self._next_step(self._epoch + 1).moves)

    def _enqueue(self, plan: Sequence[QueuedStep]) -> None:
        """Put steps behind those that may begin as early; none may begin before the one before it."""
        earliest = self._epoch + 1
        for step in plan:
            earliest = max(earliest, step.not_before)
            if step.moves:
                self._queue.append(replace(step, not_before=earliest))
        self._queue = deque(sorted(self._queue, key=lambda step: step.not_before))

    def _next_step(self, epoch: Epoch) -> QueuedStep:
        """Return the next step if it may begin by an epoch, else one without moves."""
        early = takewhile(lambda step: step.not_before <= epoch, self._queue)
        return next((step for step in map(_to_do, early) if step.moves), QueuedStep(()))

    def _end_step(self, at_s: float) -> None:
        """Close a step whose last move has settled: its time counts, its window does not (AF-A26); cool down."""
        if self._step_began_s is not None:
            self._last_move_s += max(0.0, at_s - self._step_began_s)
        self._collector.restart(self._table.lanes, self._epoch, "a move completed in it")
        self._cooldown = self.options.cooldown_windows

    def _refuse_impossible(self, plan: Sequence[QueuedStep]) -> None:
        """Raise if a plan asked for by hand cannot be; what is planned for other slots has no say in it."""
        try:
            _check_plan(plan, self._table, self.draining)
        except InputError as error:
            self._record(Refused(self._epoch, Refusal.BAD_REQUEST, _moves_of(plan), str(error)))
            raise

    def _drop_plans(self, slots: set[SlotId], event: Event) -> None:
        """Drop all that is planned for `slots`: later moves of a slot build on the earlier ones.

        A plan that lost a part does not end as decided: the policy has to ask again for lanes to retire.
        """
        for move in _moves_of(self._queue):
            if move.slot in slots:
                dropped = MoveLife(move).after(event)
                self._record(PhaseChanged(self._epoch, move, event, Phase.PLANNED, dropped.phase))
                self._retiring = self._drained
        self._refitted -= slots
        self._queue = deque(_without(self._queue, slots))

    def _next_moves(self, epoch: Epoch) -> tuple[Move, ...]:
        """Take from the queue what may be announced now: the next step, or as much of it as may be in flight."""
        while self._queue and self._queue[0].not_before <= epoch and not _to_do(self._queue[0]).moves:
            self._queue.popleft()
        step = self._next_step(epoch)
        if self._told or not step.moves or any(move.slot not in self._copied for move in self.to_prepare()):
            return ()
        self._queue.popleft()
        limit = self.options.max_bytes_in_flight
        if limit is None:
            return step.moves
        now: list[Move] = []
        used = 0
        for move in step.moves:
            used += int(self._state_bytes[move.slot])
            if now and used > limit:
                break
            now.append(move)
        later = step.moves[len(now) :]
        if later:
            why = f"at most {limit} bytes may be in flight"
            self._record(Refused(epoch, Refusal.BYTES_IN_FLIGHT, later, why))
            self._queue.appendleft(replace(step, moves=later))
        return tuple(now)

    def _change(self, life: MoveLife, event: Event) -> MoveLife:
        changed = life.after(event)
        self._record(PhaseChanged(self._epoch, life.move, event, life.phase, changed.phase))
        if changed.phase.is_over:
            self._told.pop(life.move.slot, None)
        else:
            self._told[life.move.slot] = changed
        return changed

    def _weights(self) -> Weights:
        load = dict(enumerate(self._windows[-1].slots.busy_s.tolist())) if self._windows else {}
        return Weights(load, dict(enumerate(self._state_bytes.tolist())), self._move_cost.seconds_per_byte)

    def _record(self, entry: Entry) -> None:
        self.journal.record(entry)


def _refitted(move: Move, lanes: tuple[LaneId, ...]) -> Move:
    """Return a move of a resize to `lanes` with its reason."""
    why = f"lane {move.target} takes its share" if move.source in lanes else f"lane {move.source} leaves"
    return replace(move, reason=f"resize to {len(lanes)} lane{'s' if len(lanes) > 1 else ''}: {why}")


def _moves_of(plan: Iterable[QueuedStep]) -> tuple[Move, ...]:
    return tuple(move for step in plan for move in step.moves)


def _check_plan(plan: Sequence[QueuedStep], table: RoutingTable, leaving: tuple[LaneId, ...]) -> None:
    """Raise unless each move goes from where the ones before it leave the slot to another lane that stays."""
    for moves in _rounds(plan):
        table = table.apply(moves)
    for move in _moves_of(plan):
        if move.source == move.target:
            raise InputError(f"{move}: the slot is there already")
        if move.target in leaving:
            raise InputError(f"{move}: lane {move.target} is being stopped")


def _rounds(plan: Iterable[QueuedStep]) -> list[list[Move]]:
    """Return the first moves of all slots, then the second ones, and so on: far fewer than there are steps."""
    rounds: list[list[Move]] = []
    before: Counter[SlotId] = Counter()
    for step in plan:
        slots = Counter(move.slot for move in step.moves)
        if len(slots) < len(step.moves):
            raise InputError(f"slot {slots.most_common(1)[0][0]} is moved twice in one step")
        for move in step.moves:
            if before[move.slot] == len(rounds):
                rounds.append([])
            rounds[before[move.slot]].append(move)
        before.update(slots)
    return rounds


def _is_to_do(move: Move) -> bool:
    """Tell whether a planned move has anything to do; its slot may have come there by another one since."""
    return move.source != move.target


def _to_do(step: QueuedStep) -> QueuedStep:
    return replace(step, moves=tuple(filter(_is_to_do, step.moves)))


def _after(moves: Iterable[Move], later: Iterable[QueuedStep]) -> Iterator[QueuedStep]:
    """Return what is planned for later as it is after `moves`: their slots begin elsewhere, and end where they did."""
    where = {move.slot: move.target for move in moves}
    for step in later:
        # Further moves of a slot build on the first.
        yield replace(step, moves=tuple(replace(move, source=where.pop(move.slot, move.source)) for move in step.moves))


def _without(queue: Iterable[QueuedStep], slots: set[SlotId]) -> list[QueuedStep]:
    """Return the steps less the moves of `slots`; steps left empty go."""
    kept = (replace(step, moves=tuple(move for move in step.moves if move.slot not in slots)) for step in queue)
    return [step for step in kept if step.moves]
