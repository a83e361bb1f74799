"""The moves that lanes have been told of and that are not settled: whose they are and where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from evenflow.control.messages import Ack
from evenflow.errors import ProtocolError
from evenflow.migration import Event, MoveLife, Phase
from evenflow.model import Epoch, LaneId, Move, SlotId

BEFORE_THE_RESTART = 0  # the plan of moves that were told by a balancer that is no more

_LANES_SAY = (Event.HANDED_OFF, Event.INSTALLED, Event.HANDOFF_DAMAGED)


@dataclass(frozen=True, slots=True)
class Told:
    """A move that lanes were told of, and the number of the plan it belongs to."""

    life: MoveLife
    plan: int


@dataclass(frozen=True, slots=True)
class Change:
    """What has happened to a move."""

    plan: int
    before: MoveLife
    event: Event
    after: MoveLife

    @property
    def freed(self) -> set[LaneId]:
        """The lanes that had a part in the move, and have none any more."""
        if self.after.phase.is_over:
            return {self.after.move.source, self.after.move.target}
        has_let_go = self.before.phase is Phase.ANNOUNCED is not self.after.phase
        return {self.after.move.source} if has_let_go else set()


class MovesUnderWay:
    """One entry per slot on its way; `MoveLife` says what may happen to it."""

    def __init__(self) -> None:
        """Start with nothing under way."""
        self._told: dict[SlotId, Told] = {}
        self._began_s: float | None = None  # unknown after a restart

    def __iter__(self) -> Iterator[Told]:
        """Go through the moves under way, in the order in which they were told."""
        return iter(tuple(self._told.values()))

    def __bool__(self) -> bool:
        """Tell whether anything is under way."""
        return bool(self._told)

    @property
    def plans(self) -> set[int]:
        """The plans that have a step under way."""
        return {told.plan for told in self._told.values()}

    @property
    def lanes(self) -> set[LaneId]:
        """The lanes that moves under way come from or lead to."""
        return {lane for life in self.lives for lane in (life.move.source, life.move.target)}

    @property
    def busy(self) -> dict[LaneId, str]:
        """The lanes that still have a part in a move, and which; a source has none once it has let go of the slot."""
        busy: dict[LaneId, str] = {}
        for life in self.lives:
            if life.phase is Phase.ANNOUNCED:
                busy.setdefault(life.move.source, f"still gives slot {life.move.slot}")
            busy.setdefault(life.move.target, f"still takes slot {life.move.slot}")
        return busy

    @property
    def lives(self) -> tuple[MoveLife, ...]:
        """The moves under way and where they stand."""
        return tuple(told.life for told in self._told.values())

    def begin(self, moves: Sequence[Move], plan: int, epoch: Epoch, at_s: float) -> list[Change]:
        """Tell lanes of moves that take effect at an epoch."""
        if moves and not self._told:
            self._began_s = at_s
        changes = []
        for move in moves:
            planned = MoveLife(move)
            if move.slot in self._told:  # the lane that it was to come to is gone
                before = self._told[move.slot].life
                changes.append(self._happened(before, Event.TARGET_GONE))
                if before.phase is Phase.ANNOUNCED and before.move.source != move.target:
                    planned = MoveLife(replace(move, source=before.move.source))  # which has not let go of it
            self._told[move.slot] = Told(planned.announced(epoch), plan)
            changes.append(Change(plan, planned, Event.ANNOUNCE, self._told[move.slot].life))
        return changes

    def restore(self, lives: Iterable[MoveLife]) -> list[Change]:
        """Go on with moves that were told before a restart."""
        self._told = {life.move.slot: Told(life, BEFORE_THE_RESTART) for life in lives}
        return [self._happened(told.life, Event.BALANCER_RESTARTED) for told in self]

    def acknowledge(self, ack: Ack) -> list[Change] | str:
        """Take a lane's word on a move: return what it changes, or why it changes nothing."""
        told = self._told.get(ack.slot)
        if told is None or told.life.epoch != ack.epoch:
            return f"no move at epoch {ack.epoch} is under way"
        if ack.event not in _LANES_SAY:
            raise ProtocolError(f"lanes cannot say {ack.event.value!r} of {told.life.move}")
        changes: list[Change] = []
        if ack.event is Event.HANDOFF_DAMAGED and told.life.phase is Phase.ANNOUNCED:
            # The target has looked at the handoff before the source's word of it arrived.
            changes.append(self._happened(told.life, Event.HANDED_OFF))
        life = self._told[ack.slot].life
        if life.after(ack.event).phase is life.phase:
            return f"the move is {life.phase.value} already"
        changes.append(self._happened(life, ack.event))
        return changes

    def took_s(self, at_s: float) -> float:
        """Return how long moves have been under way, where the last one ended just now."""
        return 0.0 if self._began_s is None else max(0.0, at_s - self._began_s)

    def lost(self, lane: LaneId) -> list[Change]:
        """A lane's attempt died: the moves it is in go on by another way."""
        changes = []
        for life in self.lives:
            if lane == life.move.source:
                changes.append(self._happened(life, Event.SOURCE_LOST))
            elif lane == life.move.target:
                changes.append(self._happened(life, Event.TARGET_LOST))
        return changes

    def _happened(self, life: MoveLife, event: Event) -> Change:
        slot, changed = life.move.slot, life.after(event)
        told = self._told[slot]
        if changed.phase.is_over:
            del self._told[slot]
        else:
            self._told[slot] = replace(told, life=changed)
        return Change(told.plan, life, event, changed)
