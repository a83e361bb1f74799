"""Which slots to write out next, so that there is little to read after a crash, and little is written for it.

A slot is rewritten when what is stored of it is more than twice its state: then rewriting it takes at least as much
off what must be read as it costs to write. So a budget of what was changed lately keeps what must be read at twice the
state. What is left of the budget goes to slots that need old files: else a checkpoint would become many small files, or
large ones of which little is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from evenflow.errors import InputError
from evenflow.model import Epoch, SlotId
from evenflow.model.slots import BoolArray, IntArray
from evenflow.state.holdings import Holdings

_SLOT, _ROWS, _BYTES = 0, 4, 5


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """How much is written to keep recovery short.

    `budget_bytes`: as much may be written out per epoch, by all lanes together; as much as was changed may be in any
    case. `old_epochs`: the age from which on a file is worth getting rid of, if there is budget left.
    """

    budget_bytes: int = 8 << 20
    old_epochs: int = 16

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        for name in ("budget_bytes", "old_epochs"):
            if getattr(self, name) < 0:
                raise InputError(f"snapshots: {name} must not be negative, got {getattr(self, name)}")


@dataclass(slots=True)
class SnapshotPlanner:
    """Knows what slots have changed lately, and chooses which to write out."""

    holdings: Holdings
    options: SnapshotOptions
    _earned: IntArray = field(init=False)  # the bytes that each slot's newest commit lets its lane write
    _wasteful: BoolArray = field(init=False)  # slots that keep a file of which little is needed
    _asked: int = 0

    def __post_init__(self) -> None:
        """Begin with slots that have not changed."""
        self._earned = np.zeros(self.holdings.slots, np.int64)
        self._wasteful = np.zeros(self.holdings.slots, dtype=bool)

    def changed(self, parts: IntArray, state_rows: IntArray) -> None:
        """Take in the changes of a commit; rows that are gone count twice, since they make the state smaller."""
        slots = parts[_SLOT]
        gone = np.maximum(0, self.holdings.state_rows[slots] - state_rows)
        self._earned[slots] = parts[_BYTES] + 2 * gone * parts[_BYTES] // np.maximum(1, parts[_ROWS])

    def due(self, slots: IntArray, lanes: int, frontier: Epoch) -> list[SlotId]:
        """Return which of a lane's slots it is to write out with its next work; `lanes` share the budget.

        Half of it is for all, in equal parts. The other half goes to one lane after the other, for old files.
        """
        holdings, least = self.holdings, self.options.budget_bytes // 2
        self._asked += 1
        turn = (self._asked + self._asked // lanes) % lanes == 0
        budget = max(least if turn else least // lanes, int(self._earned[slots].sum()))
        stored, state, oldest = holdings.stored_bytes[slots], holdings.state_bytes(slots), holdings.oldest_change[slots]
        outweighed = stored > 2 * state
        old = (oldest < frontier - self.options.old_epochs) | self._wasteful[slots]
        candidates = np.flatnonzero(outweighed | old if turn else outweighed)
        if not candidates.size:
            return []
        urgency = np.where(outweighed, -stored / (state + 1), oldest)[candidates]
        order = candidates[np.lexsort((urgency, ~outweighed[candidates]))]
        # The first goes in any case: a slot cannot be written in parts.
        chosen = order[(np.cumsum(state[order]) <= budget) | (np.arange(order.size) == 0)]
        found: list[SlotId] = slots[chosen].tolist()
        return found

    def look_at_files(self, frontier: Epoch) -> None:
        """Find the slots that keep old files of which little is needed any more."""
        needed, parts = self.holdings.bytes_by_file()
        wasteful = self.holdings.files.wasteful(needed, frontier - self.options.old_epochs)
        self._wasteful[:] = False
        for of_slots, of_files in parts:
            self._wasteful[of_slots[wasteful[of_files]]] = True
