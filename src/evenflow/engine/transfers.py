"""How units get from lane to lane: moves begin, sources let go, targets load; from a handoff, a copy or the checkpoint.

What a lane is told and what it answers takes units through the places of `units`; what is loaded ahead is in `copies`,
what is on its way in `handoffs`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from evenflow.control import Ack, Balancer, LaneWish
from evenflow.control.journal import StateMoved
from evenflow.engine.actions import Action, Discard, Tell
from evenflow.engine.copies import Copies
from evenflow.engine.handoffs import Handoffs
from evenflow.engine.lanes import Lane
from evenflow.engine.records import Records
from evenflow.engine.units import Place, Turn, Units
from evenflow.lane.messages import Adopt, Forget, Prepare, Prepared, Release, Released, SlotToLoad, ToLane
from evenflow.migration import Event as MoveEvent
from evenflow.model import Epoch, LaneId, Move, SlotId

Handover: TypeAlias = Literal["at the timestamp", "at once"]

_ABSENCES = 2_000


@dataclass(frozen=True)
class Absence:
    """A unit that moved was served by nobody for a while: from when its old lane let go until the new one had it."""

    move: Move
    epoch: Epoch
    since_s: float
    until_s: float


@dataclass
class Transfers:
    """The moves that are under way, and what lanes are told to let go of and to load for them."""

    balancer: Balancer
    records: Records
    lanes: Mapping[LaneId, Lane]
    units: Units
    copies: Copies
    handoffs: Handoffs
    handover: Handover
    act: Callable[[Action], None]
    wished: Callable[[LaneWish | None], None]  # what the balancer wants of lanes, now that a move is further
    absences: deque[Absence] = field(default_factory=lambda: deque(maxlen=_ABSENCES))
    _released: list[Released] = field(default_factory=list)
    _left_s: dict[SlotId, float] = field(default_factory=dict)

    # --- what happens --------------------------------------------------------------------------------------------

    def begin(self, move: Move, epoch: Epoch, now_s: float) -> None:
        """Let a move begin: whoever holds the unit is to let go of it; one that nobody holds is its target's."""
        unit, lane = move.slot, int(self.units.lane[move.slot])
        self.units.begins(move, epoch)
        place = self.units.place(unit)
        if place is Place.RESIDENT and lane == move.target:  # the lane that it was to go to is gone: it stays
            self.units.ends(unit)
            self._acknowledge(unit, epoch, MoveEvent.INSTALLED, now_s)
        elif place is Place.ABSENT or (place is Place.LOADING and lane != move.target):  # nothing is to be handed off
            if place is Place.LOADING:
                self._call_off(lane, unit)
            self.units.happens(Turn.CALLED_OFF, [unit])
            self.units.give([unit], move.target)

    def released(self, message: Released) -> None:
        """A lane has let go of units: that is taken in when what it had folded before is committed."""
        self._released.append(message)

    def let_go_of_released(self, now_s: float) -> None:
        """Take in what lanes have let go of; what they had folded before is committed."""
        released, self._released = self._released, []
        for message in released:
            self._let_go(message, now_s)

    def _let_go(self, message: Released, now_s: float) -> None:
        """Units are on their way: the next lane may load them."""
        handoffs = dict(message.handoffs)
        self.balancer.measured_move(message.state_bytes, message.seconds)
        rows = max(1, sum(ref.rows for ref in handoffs.values()))
        self.units.happens(Turn.LEFT, [unit for unit, _ in message.slots])
        for unit, _ in message.slots:
            under_way = self.units.moves[unit]
            self.units.give([unit], under_way.move.target)
            self._left_s[unit] = now_s - message.seconds
            if unit in handoffs:
                outdated = self.handoffs.written(unit, handoffs[unit])
                if outdated is not None:
                    self.act(Discard((outdated.file,)))
                share = message.state_bytes * handoffs[unit].rows // rows
                moved = StateMoved(under_way.epoch, under_way.move, handoffs[unit].rows, share, message.seconds)
                self.balancer.journal.record(moved)
            self._acknowledge(unit, under_way.epoch, MoveEvent.HANDED_OFF, now_s)

    def loaded(self, lane: LaneId, now_s: float) -> list[SlotId]:
        """A lane has loaded what it was told to, as far as it was not called off: their moves end; return them."""
        units = sorted(self.lanes[lane].asked.popleft())
        self.units.happens(Turn.LOADED, units)
        for unit in units:
            under_way = self.units.moves.get(unit)
            if under_way is not None:
                if unit in self._left_s:
                    since_s = self._left_s.pop(unit)
                    self.absences.append(Absence(under_way.move, under_way.epoch, since_s, now_s))
                self.units.ends(unit)
                self._acknowledge(unit, under_way.epoch, MoveEvent.INSTALLED, now_s)
        return units

    def prepared(self, lane: LaneId, message: Prepared) -> None:
        """A lane has loaded units ahead of their moves, or could not."""
        self.balancer.measured_move(message.state_bytes, message.seconds)
        status = self.lanes[lane]
        self.copies.made(lane, str(status.token), message, status.asked.popleft())

    def lost(self, lane: LaneId) -> None:
        """A lane's attempt is gone, and with it what it held, was to load, and had copied."""
        mine = self.units.of(lane)
        self.units.happens(Turn.LOST, mine)
        for unit in mine[self.units.are_moving(mine)].tolist():
            self.units.give([unit], self.units.moves[unit].move.target)
        self.copies.lane_lost(lane)

    def _acknowledge(self, unit: SlotId, epoch: Epoch, event: MoveEvent, now_s: float) -> None:
        self.wished(self.balancer.acknowledge(Ack(unit, epoch, event, now_s)))

    # --- what lanes are told -------------------------------------------------------------------------------------

    def copy_ahead(self) -> None:
        """Have targets load ahead what is planned to come and big enough; forget what is not planned any more."""
        for lane, unit in list(self.copies.useless()):
            self._call_off(lane, unit)
        for lane, units in self.copies.wanted().items():
            entries = tuple(map(self._entry, units))
            self._tell(lane, Prepare(entries))
            self.copies.begun(lane, str(self.lanes[lane].token), entries)
            self.lanes[lane].asked.append(set(units))

    def release(self, pending: Collection[Epoch]) -> None:
        """Tell sources to let go of what may leave now; `pending` are the accepted epochs that are not over."""
        ready: defaultdict[tuple[LaneId, bool], list[SlotId]] = defaultdict(list)
        for unit, under_way in self.units.moves.items():
            if self.units.place(unit) is Place.RESIDENT and self._may_leave(unit, under_way.epoch, pending):
                ready[int(self.units.lane[unit]), self.copies.version_of(unit) is None].append(unit)
        for (lane, handoff), units in ready.items():
            self._tell(lane, Release(tuple(units), handoff))
            self.units.happens(Turn.LET_GO, units)

    def _may_leave(self, unit: SlotId, epoch: Epoch, pending: Collection[Epoch]) -> bool:
        """At once, or after the last epoch before the move; the work a lane is at comes before the release."""
        if self.handover == "at once":
            return True
        work = self.lanes[int(self.units.lane[unit])].work
        told = next((advance.version for advance in work.advances if unit in advance.slots), -1) if work else -1
        reached = max(told, int(self.records.slot_versions[unit]))
        return not any(reached < waiting < epoch for waiting in pending)

    def adopt(self) -> None:
        """Tell lanes to load what is to be theirs and nobody holds."""
        for lane in self.units.lanes_with_absent():
            status = self.lanes.get(lane)
            if status is None or status.token is None:
                continue
            units = self.units.at(lane, Place.ABSENT).tolist()
            self._tell(lane, Adopt(tuple(map(self._entry, units))))
            self.units.happens(Turn.LOAD, units)
            status.asked.append(set(units))
            for unit in units:
                self.copies.used(unit)

    def _entry(self, unit: SlotId) -> SlotToLoad:
        """Return where a unit is loaded from: its handoff, the changes since it was copied, or the checkpoint."""
        sources, version = self.records.sources(unit), int(self.records.slot_versions[unit])
        copied = self.copies.version_of(unit)
        if copied is not None:
            newer = tuple(change for change in sources.changes if change.version > copied)
            return SlotToLoad(unit, version, None, newer, copied)
        handoff = self.handoffs.of(unit, version)
        if handoff is not None:
            return SlotToLoad(unit, version, handoff)
        return SlotToLoad(unit, version, sources.snapshot, sources.changes)

    def _call_off(self, lane: LaneId, unit: SlotId) -> None:
        """Let a lane forget a unit: what it answers to what it was told before does not count for it any more.

        Else a unit that is to come here again would be taken for loaded while the lane still has it as it was.
        """
        self.lanes[lane].calls_off(unit)
        if self.lanes[lane].token is not None:
            self._tell(lane, Forget((unit,)))

    def _tell(self, lane: LaneId, message: ToLane) -> None:
        self.act(Tell(lane, str(self.lanes[lane].token), message))
