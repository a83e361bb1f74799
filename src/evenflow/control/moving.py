"""Plans and the moves that come of them: what waits, what begins with the next epoch, what is under way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from evenflow.control.journal import AckIgnored, Entry, PhaseChanged, Refusal, Refused, Requested, StepWaits
from evenflow.control.messages import Ack
from evenflow.control.options import BalancerOptions
from evenflow.control.plan_queue import Origin, PlanQueue, check_plan, moves_of
from evenflow.control.starting import Starting, Wait, newly, to_copy_ahead
from evenflow.control.under_way import Change, MovesUnderWay
from evenflow.errors import InputError
from evenflow.migration import Event, MoveLife, Phase, QueuedStep
from evenflow.model import Epoch, LaneId, Move, RoutingTable, SlotId

_AHEAD_EPOCHS = 8  # before a step may begin, its slots are copied: in time, and not kept twice for long


class Moving:
    """Keeps plans, begins their steps, follows their moves. `size` tells the bytes of a slot.

    `freed` is told of lanes that had a part in a move, and have none any more.
    """

    def __init__(
        self,
        options: BalancerOptions,
        size: Callable[[SlotId], int],
        record: Callable[[Entry], None],
        freed: Callable[[set[LaneId], Epoch], None],
    ) -> None:
        """Start with nothing planned and nothing under way."""
        self.options, self.size, self.record, self.freed = options, size, record, freed
        self.epoch: Epoch = -1  # the newest
        self.queue = PlanQueue()
        self.under_way = MovesUnderWay()
        self._copied: set[SlotId] = set()  # of the planned moves: their targets have loaded the slot ahead
        self._said: dict[int, str] = {}  # what the journal says that plans wait for

    @property
    def planned(self) -> tuple[Move, ...]:
        """The moves still to be announced, in order; without those of slots that are there by now."""
        return tuple(move for step in self.queue for move in step.to_do)

    @property
    def busy(self) -> set[LaneId]:
        """The lanes in moves that are told and not settled, or that may begin with the next epoch."""
        return self.under_way.busy.keys() | self.queue.lanes_by(self.epoch + 1)

    # --- plans ---------------------------------------------------------------------------------------------------

    def check(
        self, plan: Sequence[QueuedStep], table: RoutingTable, leaving: Collection[LaneId], gone: Collection[LaneId]
    ) -> None:
        """Raise if a plan that was asked for cannot be; what is planned for other slots has no say in it."""
        try:
            check_plan(plan, table, leaving, gone)
        except InputError as error:
            self.record(Refused(self.epoch, Refusal.BAD_REQUEST, moves_of(plan), str(error)))
            raise

    def add(self, plan: Sequence[QueuedStep], origin: Origin) -> int:
        """Queue a plan; return its number. What somebody asked for is put on record, what was decided is already."""
        number = self.queue.add(plan, origin, self.epoch + 1)
        if origin is not Origin.POLICY:
            self.record(Requested(self.epoch, moves_of(plan), number))
        return number

    def drop(self, slots: set[SlotId], event: Event) -> bool:
        """Drop all that is planned for `slots`; return whether there was anything."""
        dropped = self.queue.drop(slots)
        for move, plan in dropped:
            after = MoveLife(move).after(event).phase
            self.record(PhaseChanged(self.epoch, move, event, Phase.PLANNED, after, plan))
        return bool(dropped)

    def too_late(self) -> set[SlotId]:
        """Return the slots of plans of the policy that wait for a step of their own that takes long."""
        last, slots = self.epoch - self.options.patience, set()
        late = {told.plan: told.life for told in self.under_way if (told.life.epoch or 0) < last}
        for step in self.queue if late else ():
            if step.plan in late and step.origin is Origin.POLICY:
                why = f"given up, {late[step.plan].move} takes more than {self.options.patience} epochs"
                self.record(StepWaits(self.epoch, step.plan, step.moves, why))
                slots |= {move.slot for move in step.moves}
        return slots

    # --- copies --------------------------------------------------------------------------------------------------

    def prepared(self, slot: SlotId) -> None:
        """The target of a planned move has loaded the slot ahead."""
        self._copied.add(slot)

    def unprepared(self, slot: SlotId) -> None:
        """What was loaded ahead is of no use any more."""
        self._copied.discard(slot)

    def to_prepare(self) -> tuple[Move, ...]:
        """Return the moves of the next steps whose slots shall be loaded by their new lanes before they move."""
        if self.options.copy_ahead_bytes is None:
            return ()
        steps = self.queue.next_steps(self.epoch + _AHEAD_EPOCHS)
        coming = to_copy_ahead(steps, self.under_way, overlap=self.options.overlap)
        return tuple(filter(self._is_copied_ahead, coming))

    def _is_copied_ahead(self, move: Move) -> bool:
        least = self.options.copy_ahead_bytes
        return least is not None and self.size(move.slot) >= least

    def _is_ready(self, move: Move) -> bool:
        """Whether a move need not wait until its slot is copied ahead."""
        return move.slot in self._copied or not self._is_copied_ahead(move)

    # --- moves ---------------------------------------------------------------------------------------------------

    def begin(self, at_s: float) -> tuple[Move, ...]:
        """Begin with the newest epoch all steps that nothing stands in the way of; return their moves."""
        self.queue.drop_done(self.epoch)
        starting = Starting(self.options.overlap, self.options.max_bytes_in_flight, self.size, self._is_ready)
        starting.choose(self.queue.next_steps(self.epoch), self.under_way)
        self._tell_of(starting.waits)
        for step, moves in starting.begun:
            self.queue.take(step, moves)
            self._copied.difference_update(move.slot for move in moves)
            self.changed(self.under_way.begin(moves, step.plan, self.epoch, at_s))
        return tuple(move for _, moves in starting.begun for move in moves)

    def adopt(self, at_s: float) -> tuple[Move, ...]:
        """Begin, with the newest epoch, what is planned for slots of lanes that are gone; return these moves."""
        steps = [step for step in self.queue.next_steps(self.epoch + 1) if step.origin is Origin.GONE]
        for step in steps:
            self.queue.take(step, step.moves)
            self._copied.difference_update(move.slot for move in step.moves)
            self.changed(self.under_way.begin(step.moves, step.plan, self.epoch, at_s))
        return tuple(move for step in steps for move in step.moves)

    def acknowledge(self, ack: Ack) -> bool:
        """Take a lane's word on a move; return whether that has ended it."""
        changes = self.under_way.acknowledge(ack)
        if isinstance(changes, str):
            self.record(AckIgnored(self.epoch, ack.slot, ack.event, changes))
            return False
        self.changed(changes)
        return any(change.after.phase.is_over for change in changes)

    def changed(self, changes: Iterable[Change]) -> None:
        """Put on record what has happened to moves."""
        for change in changes:
            self.freed(change.freed, self.epoch)
            before, after = change.before.phase, change.after.phase
            self.record(PhaseChanged(self.epoch, change.after.move, change.event, before, after, change.plan))

    def _tell_of(self, waits: Sequence[Wait]) -> None:
        """Put into the journal what has not been said of steps that wait."""
        for wait in newly(waits, self._said):
            if wait.for_bytes:
                self.record(Refused(self.epoch, Refusal.BYTES_IN_FLIGHT, wait.moves, wait.why))
            else:
                self.record(StepWaits(self.epoch, wait.plan, wait.moves, wait.why))
        self._said = {wait.plan: wait.why for wait in waits}
