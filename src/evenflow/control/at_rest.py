"""Which lanes' loads count: none of a window in which a slot of theirs moved (AF-A26), nor while they cool down."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from evenflow.model import Epoch, LaneId, LoadWindow


@dataclass
class AtRest:
    """Notes the lanes of moves that have ended; the lanes of moves under way are known elsewhere."""

    cooldown_windows: int = 0
    _moved_at: dict[LaneId, Epoch] = field(default_factory=dict)
    _cooling: dict[LaneId, int] = field(default_factory=dict)  # windows still to be watched

    def moved(self, lanes: Iterable[LaneId], epoch: Epoch) -> None:
        """A move of these lanes has ended."""
        for lane in lanes:
            self._moved_at[lane] = epoch
            if self.cooldown_windows:
                self._cooling[lane] = self.cooldown_windows

    def of(self, window: LoadWindow, busy: Collection[LaneId]) -> tuple[LaneId, ...]:
        """Return the lanes of a window that are in no move, and were in none while it lasted."""
        start = window.epochs[0]
        return tuple(lane for lane in window.lane_ids if lane not in busy and self._moved_at.get(lane, -1) < start)

    def watch(self, lanes: Iterable[LaneId]) -> dict[LaneId, int]:
        """Watch these lanes for one more window; return those that were to be watched, and for how many more."""
        cooling = {lane: self._cooling[lane] - 1 for lane in lanes if lane in self._cooling}
        self._cooling = {lane: left for lane, left in {**self._cooling, **cooling}.items() if left > 0}
        return cooling

    def only(self, lanes: Iterable[LaneId]) -> None:
        """Forget the lanes that are no more."""
        kept = set(lanes)
        self._moved_at = {lane: epoch for lane, epoch in self._moved_at.items() if lane in kept}
        self._cooling = {lane: left for lane, left in self._cooling.items() if lane in kept}
