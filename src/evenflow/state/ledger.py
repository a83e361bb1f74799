"""What the records come to: how far each slot is, which files each slot needs, and which nobody needs any more.

Pure bookkeeping, no I/O. Each step is checked first (`checked`, or a `check_...`), which changes nothing; then
`Checkpoint` writes it down; and only then is it taken in, which cannot fail. So what is in memory never runs ahead of
what is on disk, and a step costs what it changes, not what there is.

The life of a file: a record names it, later records do without it, and when nobody needs it, it is garbage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from evenflow.errors import ProtocolError
from evenflow.model import Contents, Epoch, LaneId, SlotId
from evenflow.model.slots import IntArray
from evenflow.state.files import FileRef
from evenflow.state.held_files import HeldFiles
from evenflow.state.holdings import Holdings, SlotSources
from evenflow.state.naming import BLOCKS
from evenflow.state.records import Base, Block, CommitEntry, EpochRecord, LaneCommit
from evenflow.state.snapshots import SnapshotOptions, SnapshotPlanner
from evenflow.state.stepping import Step, check_name, checked_step

NEVER: Epoch = -1


@dataclass(slots=True)
class Ledger:
    """The sum of all records. `pending` are the epochs after the frontier, ascending; `outputs` those not published.

    `reached` is the record of the frontier's epoch, without its blocks. `fed` is what stages have put out as input of
    others, by pending epoch.
    """

    slot_versions: IntArray
    options: SnapshotOptions = field(default_factory=SnapshotOptions)
    sequence: int = 0
    accepted: Epoch = NEVER
    published: Epoch = NEVER
    frontier: Epoch = NEVER
    newest: EpochRecord | None = None
    reached: EpochRecord | None = None
    pending: dict[Epoch, EpochRecord] = field(default_factory=dict)
    outputs: dict[Epoch, tuple[tuple[LaneId, FileRef], ...]] = field(default_factory=dict)
    fed: dict[Epoch, tuple[Block, ...]] = field(default_factory=dict)
    contents: tuple[Contents, ...] | None = None  # what each stage's state is made of; None: as at the beginning
    files: HeldFiles = field(default_factory=HeldFiles)
    holdings: Holdings = field(init=False)
    planner: SnapshotPlanner = field(init=False)
    _blocks: set[str] = field(default_factory=set)  # of the pending epochs

    def __post_init__(self) -> None:
        """Begin with slots that hold nothing."""
        self.holdings = Holdings(self.slot_versions.size, self.files)
        self.planner = SnapshotPlanner(self.holdings, self.options)

    @classmethod
    def empty(cls, slots: int, options: SnapshotOptions | None = None) -> Ledger:
        """Return the ledger of a query that has not begun."""
        return cls(np.full(slots, NEVER), options or SnapshotOptions())

    @classmethod
    def from_base(cls, base: Base, options: SnapshotOptions | None = None) -> Ledger:
        """Return the ledger that a base was made of, without its epoch records."""
        ledger = cls(
            np.array(base.slot_versions, dtype=np.int64),
            options or SnapshotOptions(),
            sequence=base.sequence,
            accepted=base.accepted,
            frontier=base.frontier,
            reached=base.reached,
            outputs=dict(base.outputs),
            fed=dict(base.fed),
            contents=base.contents,
        )
        numbers = np.array([ledger.files.number(ref) for ref in base.files], dtype=np.int64)
        ledger.holdings.take_parts(base.snapshots, base.changes, numbers, base.state_rows)
        for _, outputs in base.outputs:
            for _, file in outputs:
                ledger.files.number(file)
        for _, blocks in base.fed:
            for block in blocks:
                ledger.files.number(block.file)
        return ledger

    def to_base(self) -> Base:
        """Return everything but the pending epochs, which keep their own records."""
        self.settle()
        kept = [number for number, ref in enumerate(self.files.refs) if ref is not None]
        renumbered = np.full(len(self.files.refs), NEVER)
        renumbered[kept] = np.arange(len(kept))
        snapshots, changes = self.holdings.to_parts(renumbered)
        return Base(
            sequence=self.sequence,
            frontier=self.frontier,
            accepted=self.accepted,
            reached=self.reached,
            slot_versions=tuple(self.slot_versions.tolist()),
            state_rows=tuple(self.holdings.state_rows.tolist()),
            files=tuple(self.files.ref(number) for number in kept),
            snapshots=snapshots,
            changes=changes,
            outputs=tuple(self.outputs.items()),
            contents=self.contents,
            fed=tuple(self.fed.items()),
        )

    def sources(self, slot: SlotId) -> SlotSources:
        """Return what it takes to rebuild a slot at its committed version."""
        return self.holdings.sources(slot)

    # --- accepting -----------------------------------------------------------------------------------------------

    def check_record(self, record: EpochRecord) -> None:
        """Raise unless an epoch can be accepted."""
        if record.epoch <= self.accepted:
            raise ProtocolError(f"epoch {record.epoch} cannot be accepted: epoch {self.accepted} already is")
        if len(record.owners) != self.slot_versions.size:
            raise ProtocolError(
                f"epoch {record.epoch}: the record names owners of {len(record.owners)} slots, "
                f"the query has {self.slot_versions.size}"
            )
        strangers = set(record.owners) - set(record.lanes)
        if strangers:
            raise ProtocolError(
                f"epoch {record.epoch}: slots are owned by lanes {sorted(strangers)}, which do not exist"
            )
        for block in record.blocks:
            check_name(block.file, record.epoch, BLOCKS)

    def accept(self, record: EpochRecord) -> None:
        """Take in an accepted epoch, which was checked."""
        self._blocks.update(block.file.name for block in record.blocks)
        self.pending[record.epoch] = record
        self.outputs.setdefault(record.epoch, ())
        self.newest, self.accepted = record, record.epoch

    def give_back(self, first: Epoch) -> None:
        """Forget the epochs from one on; no slot may have passed any of them."""
        for epoch in [epoch for epoch in self.pending if epoch >= first]:
            record = self.pending.pop(epoch)
            del self.outputs[epoch]
            self._blocks.difference_update(block.file.name for block in record.blocks)
        self.newest = next(reversed(self.pending.values()), self.reached)
        self.accepted = NEVER if self.newest is None else self.newest.epoch

    # --- committing ----------------------------------------------------------------------------------------------

    def checked(self, lanes: Iterable[LaneCommit]) -> list[Step]:
        """Return what commits come to, taken in the order given; raise if one of them cannot be."""
        versions = self.slot_versions.copy()
        return [checked_step(done, versions, self.pending, self.frontier) for done in lanes]

    def commit(self, sequence: int, steps: Sequence[Step]) -> None:
        """Take in what lanes have done, which was checked."""
        for step in steps:
            self.slot_versions[step.slots] = step.until
            for file, parts, state_rows in step.changes:
                parts[1] = self.files.number(file)
                self.planner.changed(parts, state_rows)
                self.holdings.add_changes(parts, state_rows)
            self.holdings.set_snapshots(step.snapshots)
            for epoch, file in step.outputs:
                self.files.number(file)
                self.outputs[epoch] += ((step.lane, file),)
            for epoch, block in step.feeds:
                self.files.number(block.file)
                self.fed[epoch] = (*self.fed.get(epoch, ()), block)
        self.sequence = sequence
        self._advance_frontier()

    def _advance_frontier(self) -> None:
        lowest = int(self.slot_versions.min())
        for epoch in [epoch for epoch in self.pending if epoch <= lowest]:
            record = self.pending.pop(epoch)
            self.fed.pop(epoch, None)
            self.frontier, self.reached = epoch, msgspec.structs.replace(record, blocks=())
            names = [block.file.name for block in record.blocks]
            self._blocks.difference_update(names)
            self.files.discard(names)

    # --- publishing ----------------------------------------------------------------------------------------------

    def check_publish(self, epoch: Epoch) -> None:
        """Raise unless an epoch can be published."""
        if epoch > self.frontier:
            raise ProtocolError(f"epoch {epoch} cannot be published: all slots have reached {self.frontier} only")
        if epoch < self.published:
            raise ProtocolError(f"epoch {epoch} cannot be published: epoch {self.published} already is")

    def publish(self, epoch: Epoch) -> None:
        """Take in that the sink has everything up to an epoch, which was checked."""
        self.published = epoch
        for old in [old for old in self.outputs if old <= epoch]:
            del self.outputs[old]

    def unpublished(self) -> list[tuple[Epoch, tuple[FileRef, ...]]]:
        """Return the epochs that all lanes have finished and the sink has not, with their outputs by lane."""
        return [
            (epoch, tuple(file for _, file in sorted(outputs, key=lambda output: output[0])))
            for epoch, outputs in sorted(self.outputs.items())
            if epoch <= self.frontier
        ]

    def due_snapshots(self, slots: IntArray, lanes: int) -> list[SlotId]:
        """Return which of the slots that a lane takes further it is to write out; `lanes` share what may be written."""
        return self.planner.due(slots, lanes, self.frontier)

    # --- sweeping ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Find out which files nobody needs any more."""
        used = self.holdings.settle()
        used[[self.files.number(file) for outputs in self.outputs.values() for _, file in outputs]] = True
        used[[self.files.number(block.file) for blocks in self.fed.values() for block in blocks]] = True
        self.files.keep_only(used)

    def needs(self, name: str) -> bool:
        """Tell whether a record needs a data file."""
        return name in self._blocks or name in self.files

    def needed(self) -> set[str]:
        """Return the names of all data files that a record needs."""
        self.settle()
        return self._blocks | set(self.files)


def replayed(
    base: Base, records: Sequence[EpochRecord], entries: Iterable[CommitEntry], options: SnapshotOptions
) -> Ledger:
    """Return the ledger of a base and of all that was written after it.

    Epochs first: a commit says the same whether later epochs were accepted before it or after.
    """
    ledger = Ledger.from_base(base, options)
    ledger.accepted = base.frontier
    for record in records:
        if record.epoch > base.frontier:
            ledger.check_record(record)
            ledger.accept(record)
    if records:
        ledger.newest, ledger.accepted = records[-1], records[-1].epoch
    for entry in entries:
        ledger.commit(entry.sequence, ledger.checked(entry.lanes))
    return ledger
