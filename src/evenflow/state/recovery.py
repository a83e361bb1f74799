"""Where a query stands, by its records: for those who only read."""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.model import Epoch, RoutingTable, SlotId
from evenflow.model.slots import IntArray, frozen_array
from evenflow.state.files import FileRef
from evenflow.state.holdings import SlotSources
from evenflow.state.ledger import Ledger
from evenflow.state.records import Block, EpochRecord


@dataclass(frozen=True, slots=True)
class Recovery:
    """Where the query stands, by its records; what is read off it later is as it is then."""

    ledger: Ledger

    @property
    def table(self) -> RoutingTable | None:
        """The routing table of the newest accepted epoch."""
        return None if self.ledger.newest is None else self.ledger.newest.table()

    @property
    def newest(self) -> EpochRecord | None:
        """The record of the newest accepted epoch."""
        return self.ledger.newest

    @property
    def last_accepted(self) -> Epoch:
        """The newest accepted epoch, -1 if there is none."""
        return self.ledger.accepted

    @property
    def last_published(self) -> Epoch:
        """The epoch up to which the sink has everything, -1 if there is none."""
        return self.ledger.published

    @property
    def frontier(self) -> Epoch:
        """The last epoch that every slot has reached, -1 if there is none."""
        return self.ledger.frontier

    @property
    def slot_versions(self) -> IntArray:
        """The committed version of each slot, -1 for none."""
        return frozen_array(self.ledger.slot_versions, int)

    @property
    def pending(self) -> list[EpochRecord]:
        """The accepted epochs that some slot has not reached, oldest first."""
        return list(self.ledger.pending.values())

    @property
    def unpublished(self) -> list[tuple[Epoch, tuple[FileRef, ...]]]:
        """The epochs up to the frontier that the sink does not have, oldest first, with their outputs by lane."""
        return self.ledger.unpublished()

    def fed(self, epoch: Epoch) -> tuple[Block, ...]:
        """Return what stages have put out as input of others in a pending epoch."""
        return self.ledger.fed.get(epoch, ())

    def sources(self, slot: SlotId) -> SlotSources:
        """Return what it takes to rebuild a slot at its committed version."""
        return self.ledger.sources(slot)
