"""What the records come to: how far each slot is, which files each slot needs, and which nobody needs any more.

Pure bookkeeping, no I/O. A `Ledger` is changed on a copy: the change is checked there, written down by `Checkpoint`,
and only then does the copy take the place of the old one. So what is in memory never runs ahead of what is on disk.

The life of a file: a record names it (it is *held*, once per slot that needs it), later records free it again, and
when nobody holds it, it is *garbage*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from evenflow.errors import ProtocolError
from evenflow.model import Contents, Epoch, LaneId, SlotId
from evenflow.model.slots import IntArray
from evenflow.state.files import FileRef
from evenflow.state.naming import BLOCKS, CHANGES, HANDOFFS, OUTPUTS, SNAPSHOTS, epoch_of
from evenflow.state.records import Advance, Base, ChangeFile, CommitEntry, EpochRecord, LaneCommit, SlotRef

NEVER: Epoch = -1


@dataclass(frozen=True, slots=True)
class SlotSources:
    """All it takes to rebuild a slot at its committed version: a snapshot, then the changes after it, in order."""

    snapshot: SlotRef | None
    changes: tuple[SlotRef, ...]


@dataclass(slots=True)
class Ledger:
    """The sum of all records. `pending` are the epochs after the frontier, ascending; `outputs` those not published."""

    slot_versions: IntArray
    sequence: int = 0
    accepted: Epoch = NEVER
    published: Epoch = NEVER
    frontier: Epoch = NEVER
    newest: EpochRecord | None = None
    pending: dict[Epoch, EpochRecord] = field(default_factory=dict)
    snapshots: dict[SlotId, SlotRef] = field(default_factory=dict)
    changes: dict[SlotId, tuple[SlotRef, ...]] = field(default_factory=dict)
    outputs: dict[Epoch, tuple[tuple[LaneId, FileRef], ...]] = field(default_factory=dict)
    holders: Counter[str] = field(default_factory=Counter)
    garbage: list[str] = field(default_factory=list)
    contents: Contents | None = None  # what the state is made of; None: as when the checkpoint was created

    @classmethod
    def empty(cls, slots: int) -> Ledger:
        """Return the ledger of a query that has not begun."""
        return cls(np.full(slots, NEVER))

    @classmethod
    def from_base(cls, base: Base) -> Ledger:
        """Return the ledger that a base was made of, without its epoch records."""
        ledger = cls(
            np.array(base.slot_versions),
            sequence=base.sequence,
            accepted=base.accepted,
            frontier=base.frontier,
            outputs=dict(base.outputs),
            contents=base.contents,
        )
        parts = [(part, change.file) for change in base.changes for part in change.parts]
        for (slot, version, start, rows), file in sorted(parts, key=lambda found: found[0][1]):
            ledger._add_change(slot, SlotRef(file, version, start, rows))
        for slot, ref in base.snapshots:
            ledger._set_snapshot(slot, ref)
        for _, outputs in base.outputs:
            for _, file in outputs:
                ledger._hold(file)
        return ledger

    def to_base(self) -> Base:
        """Return everything but the pending epochs, which keep their own records."""
        files: dict[str, FileRef] = {}
        parts: dict[str, list[tuple[SlotId, Epoch, int, int]]] = {}
        for slot, refs in self.changes.items():
            for ref in refs:
                files[ref.file.name] = ref.file
                parts.setdefault(ref.file.name, []).append((slot, ref.version, ref.start, ref.rows))
        return Base(
            sequence=self.sequence,
            frontier=self.frontier,
            accepted=self.accepted,
            slot_versions=tuple(self.slot_versions.tolist()),
            snapshots=tuple(self.snapshots.items()),
            changes=tuple(ChangeFile(files[name], tuple(parts[name])) for name in files),
            outputs=tuple(self.outputs.items()),
            contents=self.contents,
        )

    def copy(self) -> Ledger:
        """Return a ledger that can be changed without changing this one; its values are immutable."""
        return replace(
            self,
            slot_versions=self.slot_versions.copy(),
            pending=dict(self.pending),
            snapshots=dict(self.snapshots),
            changes=dict(self.changes),
            outputs=dict(self.outputs),
            holders=self.holders.copy(),
            garbage=list(self.garbage),
        )

    def sources(self, slot: SlotId) -> SlotSources:
        """Return what it takes to rebuild a slot at its committed version."""
        return SlotSources(self.snapshots.get(slot), self.changes.get(slot, ()))

    def accept(self, record: EpochRecord) -> None:
        """Take in an accepted epoch."""
        self._check_record(record)
        for block in record.blocks:
            _check_name(block.file, record.epoch, BLOCKS)
            self._hold(block.file)
        self.pending[record.epoch] = record
        self.outputs.setdefault(record.epoch, ())
        self.newest, self.accepted = record, record.epoch

    def commit(self, entry: CommitEntry) -> None:
        """Take in what lanes have done, in the order given."""
        for done in entry.lanes:
            self._commit_lane(done)
        # A handoff may hold slots of several lanes: the first may not need it, and the next one does.
        self.garbage = [name for name in self.garbage if name not in self.holders]
        self.sequence = entry.sequence
        self._advance_frontier()

    def publish(self, epoch: Epoch) -> None:
        """Take in that the sink has everything up to an epoch."""
        if epoch > self.frontier:
            raise ProtocolError(f"epoch {epoch} cannot be published: all slots have reached {self.frontier} only")
        if epoch < self.published:
            raise ProtocolError(f"epoch {epoch} cannot be published: epoch {self.published} already is")
        self.published = epoch
        for old in [old for old in self.outputs if old <= epoch]:
            for _, file in self.outputs.pop(old):
                self._free(file)

    def unpublished(self) -> list[tuple[Epoch, tuple[FileRef, ...]]]:
        """Return the epochs that all lanes have finished and the sink has not, with their outputs by lane."""
        return [
            (epoch, tuple(file for _, file in sorted(outputs, key=lambda output: output[0])))
            for epoch, outputs in sorted(self.outputs.items())
            if epoch <= self.frontier
        ]

    def due_snapshots(self, budget_slots: int) -> list[SlotId]:
        """Return the slots to snapshot next: half of them those with the oldest change, half those with most rows.

        The oldest bound how long a changes file lives, the largest how much there is to read after a crash.
        """
        changed = {slot: refs for slot, refs in self.changes.items() if refs}
        oldest = sorted(changed, key=lambda slot: (changed[slot][0].version, slot))
        largest = sorted(changed, key=lambda slot: (-sum(ref.rows for ref in changed[slot]), slot))
        due = dict.fromkeys(oldest[: (budget_slots + 1) // 2])
        due.update(dict.fromkeys(slot for slot in largest if slot not in due))
        return list(due)[: max(0, budget_slots)]

    def _check_record(self, record: EpochRecord) -> None:
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

    def _commit_lane(self, done: LaneCommit) -> None:
        who = f"lane {done.lane} (attempt {done.attempt}) cannot commit epoch {done.epoch}"
        advanced = self._advanced(done, who)
        self._commit_changes(done, who, advanced)
        self._commit_snapshots(done, who, advanced)
        for epoch, file in done.outputs:
            if epoch not in self.pending:
                raise ProtocolError(f"{who}: it has output of epoch {epoch}, which is {self._state_of(epoch)}")
            if not any(way.since < epoch <= way.version for way in advanced.values()):
                raise ProtocolError(f"{who}: it has output of epoch {epoch}, which it has taken no slot through")
            _check_name(file, epoch, OUTPUTS)
            self._hold(file)
            self.outputs[epoch] += ((done.lane, file),)

    def _advanced(self, done: LaneCommit, who: str) -> dict[SlotId, Advance]:
        """Bring the slots to their new versions and return the ways there; each must be where the lane took it up.

        This is what makes a commit count once: whoever folded a slot from another version than the committed one
        has missed input, or has folded some that another lane has committed.
        """
        advanced: dict[SlotId, Advance] = {}
        for advance in done.advances:
            if advance.version not in self.pending or not advance.since < advance.version <= done.epoch:
                state = self._state_of(advance.version)
                raise ProtocolError(f"{who}: it goes from {advance.since} to {advance.version}, which is {state}")
            for slot in advance.slots:
                if not 0 <= slot < self.slot_versions.size or slot in advanced:
                    raise ProtocolError(f"{who}: it names slot {slot}, which does not exist or was named before")
                advanced[slot] = advance
            where = np.array(advance.slots, dtype=np.int64)
            elsewhere = where[self.slot_versions[where] != advance.since]
            if elsewhere.size:
                raise ProtocolError(
                    f"{who}: it took slot {elsewhere[0]} up at version {advance.since}, "
                    f"the committed one is {self.slot_versions[elsewhere[0]]}"
                )
            self.slot_versions[where] = advance.version
        return advanced

    def _commit_changes(self, done: LaneCommit, who: str, advanced: Mapping[SlotId, Advance]) -> None:
        if done.changes is None:
            if done.change_slots:
                raise ProtocolError(f"{who}: it names changed slots and no changes file")
            return
        _check_name(done.changes, done.epoch, CHANGES)
        for slot, start, rows in done.change_slots:
            if slot not in advanced:
                raise ProtocolError(f"{who}: it has changes of slot {slot}, which it has not advanced")
            if rows:
                self._add_change(slot, SlotRef(done.changes, advanced[slot].version, start, rows))
        self._discard_unless_held(done.changes)

    def _commit_snapshots(self, done: LaneCommit, who: str, advanced: Mapping[SlotId, Advance]) -> None:
        for slot, ref in done.snapshots:
            # One of an older version may lie in a file that is swept already.
            if slot not in advanced or not advanced[slot].since <= ref.version <= advanced[slot].version:
                raise ProtocolError(
                    f"{who}: it has a snapshot of slot {slot} at {ref.version}, where it has not taken the slot"
                )
            _check_snapshot_name(ref, done.epoch)
            self._set_snapshot(slot, ref)
        for _, ref in done.snapshots:
            self._discard_unless_held(ref.file)

    def _state_of(self, epoch: Epoch) -> str:
        if epoch in self.pending:
            return "open"
        return "finished" if epoch <= self.frontier else "not accepted"

    def _add_change(self, slot: SlotId, ref: SlotRef) -> None:
        self._hold(ref.file)
        self.changes[slot] = (*self.changes.get(slot, ()), ref)

    def _set_snapshot(self, slot: SlotId, ref: SlotRef) -> None:
        """Let a newer snapshot replace the one before and all changes up to it."""
        old = self.snapshots.get(slot)
        if old is not None and ref.version <= old.version:
            return
        self._hold(ref.file)
        self.snapshots[slot] = ref
        changes = self.changes.pop(slot, ())
        kept = tuple(change for change in changes if change.version > ref.version)
        if kept:
            self.changes[slot] = kept
        for change in changes[: len(changes) - len(kept)]:
            self._free(change.file)
        if old is not None:
            self._free(old.file)

    def _advance_frontier(self) -> None:
        lowest = int(self.slot_versions.min())
        for epoch in [epoch for epoch in self.pending if epoch <= lowest]:
            self.frontier = epoch
            for block in self.pending.pop(epoch).blocks:
                self._free(block.file)

    def _hold(self, file: FileRef) -> None:
        self.holders[file.name] += 1

    def _free(self, file: FileRef) -> None:
        self.holders[file.name] -= 1
        self._discard_unless_held(file)

    def _discard_unless_held(self, file: FileRef) -> None:
        if self.holders[file.name] <= 0:
            del self.holders[file.name]
            self.garbage.append(file.name)


def replayed(base: Base, records: Sequence[EpochRecord], entries: Iterable[CommitEntry]) -> Ledger:
    """Return the ledger of a base and of all that was written after it.

    Epochs first: a commit says the same whether later epochs were accepted before it or after.
    """
    ledger = Ledger.from_base(base)
    ledger.accepted = base.frontier
    for record in records:
        if record.epoch > base.frontier:
            ledger.accept(record)
    if records:
        ledger.newest, ledger.accepted = records[-1], records[-1].epoch
    for entry in entries:
        ledger.commit(entry)
    return ledger


def _check_name(file: FileRef, epoch: Epoch, *folders: str) -> None:
    """Refuse a file that does not bear the epoch of the record: sweeping goes by that."""
    if epoch_of(file.name) != epoch or file.name.partition("/")[0] not in folders:
        raise ProtocolError(f"{file.name} is no name for a file of {' or '.join(folders)} of epoch {epoch}")


def _check_snapshot_name(ref: SlotRef, epoch: Epoch) -> None:
    """Refuse a snapshot in a file that may be swept before this record: a handoff bears its newest slot's version."""
    if ref.file.name.startswith(f"{HANDOFFS}/"):
        _check_name(ref.file, max(ref.version, epoch_of(ref.file.name) or 0), HANDOFFS)
    else:
        _check_name(ref.file, epoch, SNAPSHOTS)
