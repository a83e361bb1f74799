"""What can be seen of a run while it happens; whoever wants to keep something of it watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenflow.lane.messages import Work
from evenflow.model import Epoch, LaneId, SlotId
from evenflow.state import EpochRecord


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one slot and one epoch that a lane folds in one go, and when."""

    lane: LaneId
    slot: SlotId
    epoch: Epoch
    rows: int
    since_s: float
    until_s: float


class Watcher:
    """Is told of everything and keeps nothing; times are virtual seconds."""

    def accepted(self, record: EpochRecord, since_s: float, until_s: float) -> None:
        """An epoch was accepted, with what came between two moments."""

    def told(self, lane: LaneId, work: Work) -> None:
        """A lane was given work."""

    def folded(self, pieces: Sequence[Piece]) -> None:
        """A lane has folded rows; what it has done is on its way to count."""

    def worked(self, lane: LaneId, since_s: float, until_s: float) -> None:
        """A lane was busy: with work, or with state that came or went."""

    def released(self, lane: LaneId, versions: Mapping[SlotId, Epoch], size: int, now_s: float) -> None:
        """A lane has let go of slots, and written so many bytes for their next lanes."""

    def adopted(self, lane: LaneId, slots: Sequence[SlotId], now_s: float) -> None:
        """A lane serves slots from now on."""
