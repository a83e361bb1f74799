"""What the engine asks of the checkpoint's records: how far units are, what is pending, where their state lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from evenflow.model import Epoch, SlotId
from evenflow.model.slots import IntArray
from evenflow.state import Block, EpochRecord, SlotSources


class Records(Protocol):
    """What the checkpoint has written down, as far as the engine looks at it."""

    @property
    def slot_versions(self) -> IntArray:
        """The committed version of each unit, -1 for none."""

    @property
    def frontier(self) -> Epoch:
        """The last epoch that every unit has reached."""

    @property
    def pending(self) -> Mapping[Epoch, EpochRecord]:
        """The accepted epochs that some unit has not reached, oldest first."""

    @property
    def last_accepted(self) -> Epoch:
        """The newest accepted epoch."""

    def fed(self, epoch: Epoch) -> tuple[Block, ...]:
        """Return what stages have put out as input of others in a pending epoch."""

    def sources(self, unit: SlotId) -> SlotSources:
        """Return what it takes to rebuild a unit at its committed version."""

    def due_snapshots(self, slots: IntArray, lanes: int) -> list[SlotId]:
        """Return which of the units that a lane takes further it is to write out; `lanes` share what may be written."""
