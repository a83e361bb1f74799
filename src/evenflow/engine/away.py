"""Lanes that are waited for: those that are lost and those that were never there, each only for so long."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from evenflow.model import LaneId

LANE_GRACE_S = 120.0
LANE_START_S = 60.0


@dataclass
class Away:
    """Who is not there, and since when. No clock: all times are told."""

    grace_s: float = LANE_GRACE_S  # for a lane that was there
    start_s: float = LANE_START_S  # for a new one
    lost: dict[LaneId, float] = field(default_factory=dict)
    joining: dict[LaneId, float] = field(default_factory=dict)
    gone: set[LaneId] = field(default_factory=set)  # not waited for any more; one that comes is welcome

    def came(self, lane: LaneId) -> bool:
        """A lane is there; return whether nobody had waited for it any more."""
        self.lost.pop(lane, None)
        was_gone = lane in self.gone
        self.gone.discard(lane)
        return was_gone

    def forget(self, lane: LaneId) -> None:
        """There is no such lane any more."""
        self.lost.pop(lane, None)
        self.joining.pop(lane, None)
        self.gone.discard(lane)

    def overdue(self, now_s: float, there: Collection[LaneId]) -> list[LaneId]:
        """Return the lost lanes that need not be waited for any longer; while no lane is `there`, all are."""
        if not there:
            return []
        return sorted(lane for lane, since_s in self.lost.items() if now_s >= since_s + self.grace_s)

    def not_come(self, now_s: float, there: Collection[LaneId]) -> list[LaneId]:
        """Return the new lanes that have not come in time, of those that are not `there`."""
        late = (lane for lane, since_s in self.joining.items() if now_s >= since_s + self.start_s)
        return sorted(lane for lane in late if lane not in there)

    def until_s(self, there: Collection[LaneId]) -> float:
        """Return when the next of them is overdue; never if nobody is waited for."""
        lost = (since_s + self.grace_s for since_s in self.lost.values() if there)
        joining = (since_s + self.start_s for lane, since_s in self.joining.items() if lane not in there)
        return min((*lost, *joining), default=math.inf)
