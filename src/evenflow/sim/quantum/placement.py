"""Where each slot is: its owner, whether its state is there, and who still serves what came before a move."""

from __future__ import annotations

import numpy as np

from evenflow.model import LaneId, RoutingTable, SlotId
from evenflow.model.slots import BoolArray, IntArray
from evenflow.sim.quantum.backlog import NOBODY

_NO_STEP = -1


class Placement:
    """One owner per slot, always. Records from before a slot's `boundary` step belong to `source`."""

    def __init__(self, table: RoutingTable) -> None:
        """Start with every slot's state at its owner, in memory."""
        slots = table.slots
        self.owner = table.owners.copy()
        self.absent = np.zeros(slots, np.bool_)
        self.spilled = np.zeros(slots, np.bool_)
        self.source = table.owners.copy()
        self.boundary = np.full(slots, _NO_STEP, np.int64)
        self.settle()

    def settle(self) -> None:
        """Look up who takes in and who serves what comes now; that holds until the next change."""
        self._taker: IntArray = np.where(self.absent, NOBODY, self.owner + 1)
        self._server: IntArray = np.where(self.spilled, NOBODY, self._taker)
        self._two_servers = self.has_boundaries
        self.changed = False

    @property
    def draining(self) -> BoolArray:
        """Tell of each slot whether its old owner still serves what came before a boundary."""
        has_one: BoolArray = self.boundary != _NO_STEP
        return has_one

    @property
    def has_boundaries(self) -> bool:
        """Whether any slot is still served by two lanes."""
        return bool(self.draining.any())

    def route(self, slot: SlotId, target: LaneId, *, drain_before: int | None, absent: bool) -> None:
        """Give a slot to `target`; its old owner still serves what came before step `drain_before`, if given."""
        self.source[slot] = self.owner[slot]
        self.owner[slot] = target
        self.absent[slot] = absent
        if drain_before is not None:
            self.boundary[slot] = drain_before
        self.changed = True

    def drained(self, slot: SlotId) -> None:
        """The old owner has nothing more to serve of the slot."""
        self.boundary[slot] = _NO_STEP
        self.changed = True

    def arrived(self, slot: SlotId) -> None:
        """The state is at its owner."""
        self.absent[slot] = False
        self.changed = True

    def spill(self, slot: SlotId, *, out: bool) -> None:
        """The state has left memory for the disk (`out`), or is back."""
        self.spilled[slot] = out
        self.changed = True

    @property
    def holder(self) -> IntArray:
        """The lane at which what waits for each slot is: the old owner until it has drained."""
        return np.where(self.draining, self.source, self.owner)

    def servers(self, slots: IntArray, steps: IntArray | int) -> IntArray:
        """Return who may serve records of `slots` that came in `steps`, NOBODY where the state is not at hand."""
        if not self._two_servers:
            return self._server[slots]
        return np.where(self.spilled[slots], NOBODY, self.takers(slots, steps))

    def takers(self, slots: IntArray, steps: IntArray | int) -> IntArray:
        """Return who may take in records of `slots` that came in `steps`, be it only to put them aside."""
        takers = self._taker[slots]
        if not self._two_servers:
            return takers
        return np.where(steps < self.boundary[slots], self.source[slots] + 1, takers)
