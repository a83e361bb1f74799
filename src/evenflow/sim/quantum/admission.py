"""Who gets into lanes' bounded queues: all slots alike, or important ones first, in the place of others if need be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from evenflow.model.slots import BoolArray, FloatArray, IntArray
from evenflow.sim.quantum.counts import sum_by


@dataclass(frozen=True, slots=True, eq=False)
class Queues:
    """What is `waiting` for each slot, at its `owner`, and how many records may wait for a lane."""

    waiting: FloatArray
    owner: IntArray
    lanes: int
    limit: float

    def admit(self, offered: FloatArray) -> FloatArray:
        """Return what finds room; slots of a lane that has too little are cut in proportion."""
        room = np.maximum(0.0, self.limit - self._by_lane(self.waiting))
        asked = self._by_lane(offered)
        share = np.divide(room, asked, out=np.ones_like(asked), where=asked > room)
        found: FloatArray = offered * share[self.owner]
        return found

    def admit_by_class(
        self, offered: FloatArray, important: BoolArray, may_go: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return what gets in, and the share of what waits that has to go for it, of slots that `may_go`.

        An important record is refused only if important ones fill the queue. If others do, it takes the place of one.
        """
        first = replace(self, waiting=np.where(important, self.waiting, 0.0)).admit(np.where(important, offered, 0.0))
        share = self._displaced(first, may_go)
        rest = replace(self, waiting=self.waiting * (1.0 - share) + first).admit(np.where(important, 0.0, offered))
        return first + rest, share

    def _displaced(self, coming: FloatArray, may_go: BoolArray) -> FloatArray:
        asked = self._by_lane(coming)
        too_much = np.maximum(0.0, self._by_lane(self.waiting) + asked - self.limit)
        there = self._by_lane(np.where(may_go, self.waiting, 0.0))
        going = np.minimum(np.minimum(too_much, asked), there)  # one for one: what came with a slot that moved may stay
        share = np.divide(going, there, out=np.zeros_like(there), where=there > 0)
        return np.where(may_go, share[self.owner], 0.0)

    def _by_lane(self, per_slot: FloatArray) -> FloatArray:
        return sum_by(self.owner, per_slot, self.lanes)
