"""A part of the stream as a whole of its own: some lanes with their slots, numbered from 0, and the way back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np

from evenflow.migration import Weights
from evenflow.model import LaneId, LoadView, LoadWindow, Move, RoutingTable, SlotLoads
from evenflow.model.slots import IntArray
from evenflow.policies import Proposal


@dataclass(frozen=True, slots=True)
class Part:
    """Lanes that a policy can be asked about while others are in moves; slot i of the part is `slots[i]`."""

    lanes: tuple[LaneId, ...]
    slots: IntArray

    @classmethod
    def of(cls, table: RoutingTable, lanes: Iterable[LaneId]) -> Part:
        """Return the part of `table` that belongs to `lanes`."""
        chosen = tuple(sorted(lanes))
        return cls(chosen, np.flatnonzero(np.isin(table.owners, chosen)))

    @property
    def can_be_balanced(self) -> bool:
        """Whether there is anything to move, and a place to move it to."""
        return len(self.lanes) > 1 and self.slots.size > 0

    def view(self, whole: LoadView) -> LoadView:
        """Return what a view shows of the part. A policy has no memory of a part, and made no moves there."""
        table = RoutingTable(whole.table.owners[self.slots], self.lanes, whole.table.version)
        windows = tuple(self._window(window) for window in whole.windows)
        return replace(whole, windows=windows, table=table, memory=None, last_move_s=0.0)

    def _window(self, window: LoadWindow) -> LoadWindow:
        columns = {part.name: getattr(window.slots, part.name)[self.slots] for part in fields(window.slots)}
        lanes = tuple(load for load in window.lanes if load.lane in self.lanes)
        return replace(window, slots=SlotLoads(**columns), lanes=lanes)

    def whole(self, proposal: Proposal) -> Proposal:
        """Return what was proposed for the part in the numbers of the whole."""
        return replace(
            proposal,
            moves=self.renamed(proposal.moves),
            on_their_own=self.renamed(proposal.on_their_own),
            not_curable=tuple(int(self.slots[slot]) for slot in proposal.not_curable),
        )

    def renamed(self, moves: Iterable[Move]) -> tuple[Move, ...]:
        """Return moves of the part in the numbers of the whole."""
        return tuple(replace(move, slot=int(self.slots[move.slot])) for move in moves)

    def weights(self, whole: Weights) -> Weights:
        """Return what strategies may weigh the part's slots by, in the part's numbers."""
        slots = self.slots.tolist()
        load = {at: whole.load[slot] for at, slot in enumerate(slots) if slot in whole.load}
        sizes = {at: whole.state_bytes[slot] for at, slot in enumerate(slots) if slot in whole.state_bytes}
        return replace(whole, load=load, state_bytes=sizes)
