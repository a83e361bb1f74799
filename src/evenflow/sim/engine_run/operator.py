"""What played lanes calculate; counting rows is all it takes to see that none is lost or folded twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from evenflow.model import SlotId
from evenflow.model.slots import FloatArray
from evenflow.sim.engine_run.watching import Piece

SlotState: TypeAlias = dict[Any, Any]
"""The state of one slot, by key."""

_ROWS = "rows"


class PlayedOperator(Protocol):
    """A calculation on the rows of a slot."""

    def seconds(self, slot: SlotId, rows: int) -> float:
        """Return how long an ordinary lane folds so many rows of a slot."""

    def fold(self, piece: Piece, state: SlotState) -> SlotState:
        """Fold rows into a slot's state; return what of it has changed."""

    def size(self, slot: SlotId, state: SlotState) -> int:
        """Return the bytes of a slot's state."""


@dataclass(frozen=True, eq=False, slots=True)
class RowCounts:
    """Counts rows; what a row costs, and what a slot that has had any weighs, is given."""

    seconds_per_row: FloatArray
    state_bytes: FloatArray

    def seconds(self, slot: SlotId, rows: int) -> float:
        """Return the time it takes."""
        return rows * float(self.seconds_per_row[slot])

    def fold(self, piece: Piece, state: SlotState) -> SlotState:
        """Count the rows."""
        return {_ROWS: state.get(_ROWS, 0) + piece.rows}

    def size(self, slot: SlotId, state: SlotState) -> int:
        """Return the bytes: the same whatever the count."""
        return round(float(self.state_bytes[slot])) if state else 0

    @staticmethod
    def rows_in(state: SlotState) -> int:
        """Return how many rows were folded into a state."""
        return int(state.get(_ROWS, 0))
