"""The records of a query that are nowhere but in memory: the ledger itself, without a checkpoint around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from evenflow.model import Epoch, SlotId
from evenflow.model.slots import IntArray
from evenflow.state import Block, EpochRecord, FileRef, LaneCommit, SlotSources
from evenflow.state.ledger import Ledger
from evenflow.state.naming import epoch_of


class HeldRecords:
    """What the engine looks at, and what a shell writes down. The sink takes everything at once."""

    def __init__(self, slots: int) -> None:
        """Begin with a query that has not begun."""
        self.ledger = Ledger.empty(slots)

    @property
    def slot_versions(self) -> IntArray:
        """The committed version of each slot, -1 for none."""
        return self.ledger.slot_versions

    @property
    def frontier(self) -> Epoch:
        """The last epoch that every slot has reached."""
        return self.ledger.frontier

    @property
    def pending(self) -> Mapping[Epoch, EpochRecord]:
        """The accepted epochs that some slot has not reached, oldest first."""
        return self.ledger.pending

    @property
    def last_accepted(self) -> Epoch:
        """The newest accepted epoch."""
        return self.ledger.accepted

    def fed(self, epoch: Epoch) -> tuple[Block, ...]:
        """Return what stages have put out as input of others in a pending epoch."""
        return self.ledger.fed.get(epoch, ())

    def sources(self, unit: SlotId) -> SlotSources:
        """Return what it takes to rebuild a slot at its committed version."""
        return self.ledger.sources(unit)

    def due_snapshots(self, slots: IntArray, lanes: int) -> list[SlotId]:
        """Return which of the slots that a lane takes further it is to write out."""
        return self.ledger.due_snapshots(slots, lanes)

    @property
    def lag(self) -> int:
        """How many accepted epochs the sink does not have."""
        return len(self.ledger.outputs)

    def accept(self, record: EpochRecord) -> None:
        """Make an epoch count."""
        self.ledger.check_record(record)
        self.ledger.accept(record)

    def commit(self, lanes: Sequence[LaneCommit]) -> None:
        """Make what lanes did count, and publish what all of them have reached."""
        if lanes:
            self.ledger.commit(self.ledger.sequence + 1, self.ledger.checked(lanes))
        if self.ledger.frontier > self.ledger.published:
            self.ledger.publish(self.ledger.frontier)

    def discard(self, files: Iterable[FileRef]) -> None:
        """Take files for useless that no record names or will name."""
        self.ledger.files.discard(file.name for file in files)

    def take_useless(self) -> list[str]:
        """Return the files that nobody needs any more, once; not those that a lane that lags behind may still read."""
        ledger = self.ledger
        ledger.settle()
        names = [name for name in ledger.files.garbage if (epoch_of(name) or 0) < ledger.frontier]
        for name in names:
            del ledger.files.garbage[name]
        return names
