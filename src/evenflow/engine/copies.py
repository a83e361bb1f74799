"""Units that are loaded by their next lane ahead of their move, while another lane still serves them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field

from evenflow.control import Balancer
from evenflow.control.journal import StateMoved
from evenflow.engine.lanes import Lane
from evenflow.engine.units import Place, Units
from evenflow.lane.messages import Prepared, SlotToLoad
from evenflow.model import Epoch, LaneId, SlotId
from evenflow.state import SlotSources


@dataclass(frozen=True, slots=True)
class _Copy:
    """Who loads, or has loaded, a unit ahead: a lane's attempt; `version` is None until it is there."""

    lane: LaneId
    token: str
    version: Epoch | None = None


@dataclass
class Copies:
    """The copies that are made, or being made, for moves that are planned or under way."""

    balancer: Balancer
    lanes: Mapping[LaneId, Lane]
    units: Units
    sources: Callable[[SlotId], SlotSources]  # where the checkpoint has a unit
    handoffs: Container[SlotId]
    _copies: dict[SlotId, _Copy] = field(default_factory=dict)

    def __contains__(self, unit: object) -> bool:
        """Tell whether a unit is copied, or being copied: the changes since must stay."""
        return unit in self._copies

    def __iter__(self) -> Iterator[SlotId]:
        """Go through the units that are copied, or being copied."""
        return iter(self._copies)

    def __len__(self) -> int:
        """Return how many units are copied, or being copied."""
        return len(self._copies)

    def version_of(self, unit: SlotId) -> Epoch | None:
        """Return the version of the copy that the unit's next lane has loaded ahead and can bring up to date.

        A snapshot that is newer than the copy has taken the changes in between with it: then the copy is of no use.
        """
        copy = self._copies.get(unit)
        under_way = self.units.moves.get(unit)
        if copy is None or copy.version is None or under_way is None or under_way.move.target != copy.lane:
            return None
        if self.lanes[copy.lane].token != copy.token:
            return None
        snapshot = self.sources(unit).snapshot
        return copy.version if snapshot is None or snapshot.version <= copy.version else None

    def wanted(self) -> dict[LaneId, list[SlotId]]:
        """Return the units to load ahead now, by the lane that is to: planned to come, and big enough."""
        # A unit that is to move on is copied when it is there: until then the lane it goes back to may still serve it.
        found: defaultdict[LaneId, list[SlotId]] = defaultdict(list)
        for move in self.balancer.to_prepare():
            unit = move.slot
            if unit not in self._copies and unit not in self.units.moves and not self._is_being_rewritten(unit):
                target = self.lanes.get(move.target)
                if target is not None and target.token is not None:
                    found[move.target].append(unit)
        return found

    def useless(self) -> Iterator[tuple[LaneId, SlotId]]:
        """Yield, and forget, the copies that are not planned any more; those that a lane still has."""
        planned = {move.slot: move.target for move in self.balancer.to_prepare()} if self._copies else {}
        for unit, copy in list(self._copies.items()):
            if unit not in self.units.moves and planned.get(unit) != copy.lane:
                self.drop(unit)
                if copy.lane in self.lanes and self.lanes[copy.lane].token == copy.token:
                    yield copy.lane, unit

    def begun(self, lane: LaneId, token: str, entries: tuple[SlotToLoad, ...]) -> None:
        """A lane was told to load units ahead."""
        self._copies.update({entry.slot: _Copy(lane, token) for entry in entries})

    def made(self, lane: LaneId, token: str, answer: Prepared, wanted: set[SlotId]) -> None:
        """Units were loaded ahead, or could not be; either way their moves need not wait any longer."""
        moves = {move.slot: move for move in self.balancer.to_prepare()}
        for unit, version in answer.slots:
            copy = self._copies.get(unit)
            if unit not in wanted or copy is None or (copy.lane, copy.token) != (lane, token):
                continue
            self._copies[unit] = _Copy(lane, token, version)
            self.balancer.prepared(unit)
            if version is not None and unit in moves:
                share = answer.state_bytes // len(answer.slots)
                entry = StateMoved(version, moves[unit], 0, share, answer.seconds, ahead=True)
                self.balancer.journal.record(entry)

    def used(self, unit: SlotId) -> None:
        """A unit was told to be loaded for good: whatever copy there was has served."""
        self._copies.pop(unit, None)

    def lane_lost(self, lane: LaneId) -> None:
        """The copies on a lane are gone."""
        for unit in [unit for unit, copy in self._copies.items() if copy.lane == lane]:
            self.drop(unit)

    def drop(self, unit: SlotId) -> None:
        """Give a copy up; its move is made without one."""
        self._copies.pop(unit, None)
        self.balancer.unprepared(unit)

    def _is_being_rewritten(self, unit: SlotId) -> bool:
        """Tell whether a snapshot of the unit is under way: the files of now might go before they are read."""
        if unit in self.handoffs or self.units.place(unit) is not Place.RESIDENT:
            return True
        work = self.lanes[int(self.units.lane[unit])].work
        return work is not None and unit in work.snapshot_slots
