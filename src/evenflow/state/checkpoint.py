"""The checkpoint of one query: its records decide what counts, after any crash, at any point.

::

    accept ──▶ epochs/e.json          the epoch survives from here on; its blocks are held
    commit ──▶ commits/s.json         what lanes did counts from here on, all of it or nothing
    publish ─▶ published/e.json       the sink has it; the outputs are free
    sweep ───▶ removes what no record needs; now and then base/s.json, then removes the records it sums up

Each step is one new file that appears whole or not at all; no file is ever written twice. Data is removed only after
the record that stops needing it is on disk, so a crash in between leaves files nobody needs, never the reverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evenflow.errors import CheckpointMismatchError, ProtocolError
from evenflow.model import Epoch, RoutingTable, SlotId
from evenflow.model.slots import IntArray, frozen_array
from evenflow.state import naming
from evenflow.state.files import FileRef, Folder
from evenflow.state.ledger import NEVER, Ledger, SlotSources, replayed
from evenflow.state.naming import BASE, COMMITS, EPOCHS, IDENTITY, PUBLISHED, record_name, record_number
from evenflow.state.records import (
    Accepted,
    Base,
    CommitEntry,
    EpochRecord,
    Identity,
    LaneCommit,
    Published,
    Record,
)
from evenflow.state.storage import TEMPORARY

SUBFOLDER = "evenflow"
FOLD_EVERY = 16

# What must be as it was when a query starts again from its checkpoint: what to call it, and how to change it back.
_COMPARED = {
    "keys": ("key columns", "give keyed() the same columns in the same order"),
    "key_types": ("types of the key columns", "cast the keys to the types they had"),
    "slots": ("number of slots", "give balance() the same slots"),
    "operator": ("operator", "use the operator of before"),
    "input_schema": ("schema of the input", "select the same columns with the same types"),
    "output_mode": ("output mode", "give outputMode() the mode of before"),
}


@dataclass(frozen=True, slots=True)
class Recovery:
    """Where the query stands, by its records; a value that later steps do not change."""

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

    def sources(self, slot: SlotId) -> SlotSources:
        """Return what it takes to rebuild a slot at its committed version."""
        return self.ledger.sources(slot)


class Checkpoint:
    """The records of one query, and the only one to write them."""

    def __init__(self, folder: Folder, identity: Identity, base: Base, ledger: Ledger, fold_every: int) -> None:
        """Use `open`."""
        self.folder = folder
        self.identity = identity
        self._base = (base.sequence, base.frontier)
        self._ledger = ledger
        self._fold_every = fold_every

    @classmethod
    def open(
        cls, location: str, identity: Identity, *, durable: bool = True, fold_every: int = FOLD_EVERY
    ) -> Checkpoint:
        """Open the checkpoint below `location`, or create it where there is nothing.

        What belongs to another query is refused and not touched. `durable`: records survive a power cut, not only
        the end of the process (local folders). `fold_every`: so many commit entries are kept before they are summed up.
        """
        folder = Folder.at(_below(location, SUBFOLDER), durable=durable)
        if not folder.exists(IDENTITY):
            _refuse_strangers(Folder.at(location), folder)
            _create(folder, identity)
        stored = folder.read_json(IDENTITY, Identity)
        _refuse_other(folder, stored, identity)
        base, ledger = _load(folder)
        return cls(folder, stored, base, ledger, fold_every)

    @property
    def frontier(self) -> Epoch:
        """The last epoch that every slot has reached, -1 if there is none."""
        return self._ledger.frontier

    @property
    def pending(self) -> Mapping[Epoch, EpochRecord]:
        """The accepted epochs that some slot has not reached, oldest first."""
        return self._ledger.pending

    @property
    def unpublished(self) -> int:
        """The number of accepted epochs that the sink does not have."""
        return len(self._ledger.outputs)

    @property
    def slot_versions(self) -> IntArray:
        """The committed version of each slot, -1 for none; not to be changed."""
        return self._ledger.slot_versions

    def accepted(self, epoch: Epoch) -> bool:
        """Return whether an epoch is already accepted, so that a replay of it must be skipped."""
        return epoch <= self._ledger.accepted

    def accept(self, record: EpochRecord) -> None:
        """Make an epoch count; its blocks must have been written."""
        draft = self._ledger.copy()
        draft.accept(record)
        self._write_new(EPOCHS, record.epoch, Accepted(self._ledger.accepted, record))
        self._ledger = draft

    def commit(self, lanes: Sequence[LaneCommit]) -> None:
        """Make what lanes did count, all of it or nothing; their files must have been written."""
        if not lanes:
            return
        entry = CommitEntry(self._ledger.sequence + 1, tuple(lanes))
        draft = self._ledger.copy()
        draft.commit(entry)
        self.folder.settle(_files_of(lanes))
        self._write_new(COMMITS, entry.sequence, entry)
        self._ledger = draft

    def publish(self, epoch: Epoch) -> None:
        """Note that the sink has everything up to an epoch; noting it again is fine."""
        if epoch == self._ledger.published:
            return
        draft = self._ledger.copy()
        draft.publish(epoch)
        name = record_name(PUBLISHED, epoch)
        if not self.folder.exists(name):  # a try that failed half-way may have written it
            self.folder.write_json(name, Published(epoch))
        draft.garbage.append(record_name(PUBLISHED, self._ledger.published))
        self._ledger = draft

    def recover(self) -> Recovery:
        """Return where the query stands now."""
        return Recovery(self._ledger)

    def due_snapshots(self, budget_slots: int) -> list[SlotId]:
        """Return up to so many slots to snapshot next, so that the changes to read after a crash stay bounded."""
        return self._ledger.due_snapshots(budget_slots)

    def sweep(self) -> int:
        """Remove what no record needs any more; cheap enough for every epoch. Return the number of files."""
        count = self._sweep_garbage(self._ledger.frontier)
        if self._ledger.sequence - self._base[0] >= self._fold_every:
            self._fold()
            count += self.folder.delete(self._obsolete_records())
            count += self.folder.delete(self._strays(self._ledger.frontier))
        return count

    def sweep_orphans(self) -> int:
        """Remove everything that no record names. Only before lanes run: what they are writing is not named yet."""
        temporary = [
            name for folder in ("", *naming.RECORDS) for name in self.folder.names(folder) if name.endswith(TEMPORARY)
        ]
        count = self._sweep_garbage(None)
        return count + self.folder.delete([*temporary, *self._obsolete_records(), *self._strays(None)])

    def _sweep_garbage(self, up_to: Epoch | None) -> int:
        """Remove what records have freed, unless a lane that lags behind may still read or name it."""
        garbage = [name for name in self._ledger.garbage if _is_over(name, up_to)]
        count = self.folder.delete(garbage)
        draft = self._ledger.copy()
        draft.garbage = [name for name in draft.garbage if not _is_over(name, up_to)]
        self._ledger = draft
        return count

    def _fold(self) -> None:
        """Sum up all commit entries; the entries themselves can go afterwards."""
        base = self._ledger.to_base()
        name = record_name(BASE, base.sequence)
        if not self.folder.exists(name):
            self.folder.write_json(name, base)
        self._base = (base.sequence, base.frontier)

    def _obsolete_records(self) -> Iterator[str]:
        """Yield the records that the newest base sums up, and those that newer ones replace."""
        sequence, frontier = self._base
        limits = {BASE: sequence - 1, COMMITS: sequence, EPOCHS: frontier, PUBLISHED: self._ledger.published - 1}
        for folder, limit in limits.items():
            for name in self.folder.names(folder):
                number = record_number(name)
                newest = folder == EPOCHS and number == self._ledger.accepted  # it holds the routing table
                if number is not None and number <= limit and not newest:
                    yield name

    def _strays(self, up_to: Epoch | None) -> Iterator[str]:
        """Yield the data files that no record names, and none ever will; with None, all that are not named."""
        for folder in naming.DATA:
            for name in self.folder.names(folder):
                ours = naming.epoch_of(name) is not None
                if ours and name not in self._ledger.holders and _is_over(name, up_to):
                    yield name

    def _write_new(self, folder: str, number: int, record: Record) -> None:
        """Write a numbered record; if it is there already, someone else writes to this checkpoint."""
        name = record_name(folder, number)
        if self.folder.exists(name):
            raise ProtocolError(
                f"checkpoint {self.folder.storage.address(name)} was written by someone else: see that only one query "
                f"uses this checkpoint, then start it again"
            )
        self.folder.write_json(name, record)


def _files_of(lanes: Sequence[LaneCommit]) -> Iterator[str]:
    """Yield the names of all files that commits make count."""
    for lane in lanes:
        yield from () if lane.changes is None else (lane.changes.name,)
        yield from (file.name for _, file in lane.outputs)
        yield from (ref.file.name for _, ref in lane.snapshots)


def _is_over(name: str, frontier: Epoch | None) -> bool:
    """Return whether all lanes are past the epoch of a data file; a handoff is read in the epoch after its own."""
    epoch = naming.epoch_of(name)
    if epoch is None or frontier is None:
        return True
    return epoch + name.startswith(f"{naming.HANDOFFS}/") <= frontier


def _below(location: str, name: str) -> str:
    """Return the location of a folder in another one; a URI may end in options."""
    path, mark, options = location.partition("?") if "://" in location else (location, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{options}"


def _create(folder: Folder, identity: Identity) -> None:
    """Write an empty checkpoint; it is one from the moment its identity is there."""
    base = Ledger.empty(identity.slots).to_base()
    for name, record in _first_records(base).items():
        if not folder.exists(name):
            folder.write_json(name, record)
    folder.write_json(IDENTITY, identity)


def _first_records(base: Base) -> dict[str, Record]:
    return {record_name(BASE, 0): base, record_name(PUBLISHED, NEVER): Published(NEVER)}


def _refuse_strangers(location: Folder, folder: Folder) -> None:
    """Refuse a location without an identity that holds anything but the beginnings of a checkpoint."""
    inside = [name for top in ("", *naming.RECORDS, *naming.DATA) for name in folder.names(top)]
    began = {record_name(BASE, 0), record_name(PUBLISHED, NEVER)}
    files = [name for name in inside if not name.endswith(("/", TEMPORARY)) and name not in began]
    if any(record_number(name) is not None for name in files):
        raise folder.damaged(IDENTITY, "it is missing, although the checkpoint holds records")
    outside = [name for name in location.names() if name != f"{SUBFOLDER}/" and not name.startswith(".")]
    if files or outside:
        found = ", ".join(sorted([f"{SUBFOLDER}/{name}" for name in files] + outside)[:5])
        raise CheckpointMismatchError(
            f"checkpoint location {location.storage.address('')} belongs to something else: it holds {found} and no "
            f"checkpoint of evenflow. Choose an empty or new location; this one was not touched."
        )


def _refuse_other(folder: Folder, stored: Identity, identity: Identity) -> None:
    """Refuse a query that is not the one that wrote the checkpoint, field by field."""
    changed = [name for name in _COMPARED if getattr(stored, name) != getattr(identity, name)]
    if not changed:
        return
    differences = "; ".join(
        f"{_COMPARED[name][0]}: was {_shown(getattr(stored, name))}, is {_shown(getattr(identity, name))}"
        for name in changed
    )
    remedies = ", ".join(_COMPARED[name][1] for name in changed)
    raise CheckpointMismatchError(
        f"checkpoint {folder.storage.address('')} is of another query, or of this one before it was changed "
        f"({differences}). To go on from it, {remedies}; or start with a new checkpoint location. It was not touched."
    )


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _load(folder: Folder) -> tuple[Base, Ledger]:
    """Read all records that count; what does not fit together is damage."""
    base = folder.read_json(_newest(folder, BASE), Base)
    published = folder.read_json(_newest(folder, PUBLISHED), Published)
    records = _load_epochs(folder, base)
    entries = list(_load_commits(folder, base.sequence))
    try:
        ledger = replayed(base, records, entries)
    except ProtocolError as error:
        raise folder.damaged(f"{COMMITS}/", f"its entries do not fit the epochs: {error}") from error
    if published.epoch > ledger.frontier:
        missing = record_name(COMMITS, ledger.sequence + 1)
        raise folder.damaged(missing, f"it is missing, although epoch {published.epoch} was published")
    ledger.publish(published.epoch)
    return base, ledger


def _newest(folder: Folder, records: str) -> str:
    numbers = _numbers(folder, records)
    if not numbers:
        raise folder.damaged(f"{records}/", "it holds no record")
    return record_name(records, numbers[-1])


def _numbers(folder: Folder, records: str) -> list[int]:
    found = (record_number(name) for name in folder.names(records))
    return sorted(number for number in found if number is not None)


def _load_commits(folder: Folder, after: int) -> Iterator[CommitEntry]:
    numbers = [number for number in _numbers(folder, COMMITS) if number > after]
    for expected, number in enumerate(numbers, after + 1):
        if number != expected:
            raise folder.damaged(record_name(COMMITS, expected), "it is missing, although later entries are there")
        yield folder.read_json(record_name(COMMITS, number), CommitEntry)


def _load_epochs(folder: Folder, base: Base) -> list[EpochRecord]:
    """Return the records after the frontier of the base, and the newest one in any case."""
    numbers = _numbers(folder, EPOCHS)
    newest = numbers[-1] if numbers else NEVER
    if newest < base.accepted:
        raise folder.damaged(record_name(EPOCHS, base.accepted), "it is missing, although it was accepted")
    records: list[EpochRecord] = []
    last = base.frontier
    for number in numbers:
        if number <= base.frontier and number != newest:
            continue
        accepted = folder.read_json(record_name(EPOCHS, number), Accepted)
        if accepted.previous > last:
            raise folder.damaged(record_name(EPOCHS, accepted.previous), "it is missing, although later ones are there")
        records.append(accepted.record)
        last = number
    return records
