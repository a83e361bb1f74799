"""The checkpoint of one query: its records decide what counts, after any crash, at any point.

::

    accept ──▶ epochs/e.json          the epoch survives from here on; its blocks are held
    commit ──▶ commits/s.json         what lanes did counts from here on, all of it or nothing
    publish ─▶ published/e.json       the sink has it; the outputs are free
    sweep ───▶ removes what no record needs; now and then base/s.json, then removes the records it sums up

Each step is one new file that appears whole or not at all; no file is ever written twice. Data is removed only after
the record that stops needing it is on disk, so a crash in between leaves files nobody needs, never the reverse.

Anyone may look; to write, a run takes the checkpoint over from the one before (`runs`). After every record, and before
every removal, it makes sure that no later one has done the same: so what a step has returned from counts for ever, and
what is removed is needed by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from evenflow.errors import CheckpointMismatchError, ProtocolError
from evenflow.model import Epoch, RoutingTable, SlotId
from evenflow.model.slots import IntArray, frozen_array
from evenflow.state import naming
from evenflow.state.files import FileRef, Folder
from evenflow.state.ledger import Ledger, SlotSources
from evenflow.state.loading import load
from evenflow.state.naming import (
    BASE,
    COMMITS,
    EPOCHS,
    IDENTITY,
    PUBLISHED,
    RECORDS,
    RUNS,
    Run,
    claim_of,
    record_name,
    record_of,
)
from evenflow.state.records import (
    Accepted,
    CommitEntry,
    EpochRecord,
    Identity,
    LaneCommit,
    Published,
    Record,
)
from evenflow.state.retrying import Retries
from evenflow.state.runs import claimed, refuse_if_taken_over
from evenflow.state.storage import TEMPORARY, NameTakenError, below
from evenflow.state.succession import Difference, differences, remarks, succeeded

SUBFOLDER = "evenflow"
FOLD_EVERY = 16

# What must be as it was when a query starts again from its checkpoint: what to call it, and how to change it back.
_COMPARED = {
    "keys": ("key columns", "give keyed() the same columns in the same order"),
    "key_types": ("types of the key columns", "cast the keys to the types they had"),
    "slots": ("number of slots", "give balance() the same slots"),
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
    """The records of one query: to look at, and, once taken over, to write."""

    def __init__(self, folder: Folder, identity: Identity, ledger: Ledger, fold_every: int) -> None:
        """Use `open`."""
        self.folder = folder
        self.identity = identity  # until the checkpoint is taken over, `contents` are those that are wanted
        self._run: Run | None = None
        self._base = (ledger.sequence, ledger.frontier)
        self._ledger = ledger
        self._fold_every = fold_every

    @classmethod
    def open(
        cls,
        location: str,
        identity: Identity,
        *,
        durable: bool = True,
        fold_every: int = FOLD_EVERY,
        retries: Retries | None = None,
    ) -> Checkpoint:
        """Look at the checkpoint below `location`, or create it where there is nothing. `take_over` lets it be written.

        What belongs to another query is refused and not touched. `durable`: records survive a power cut, not only
        the end of the process (local folders). `fold_every`: so many commit entries are kept before they are summed up.
        """
        folder = Folder.at(below(location, SUBFOLDER), durable=durable, retries=retries)
        if not folder.exists(IDENTITY):
            _refuse_strangers(Folder.at(location, retries=retries), folder)
            with suppress(NameTakenError):  # whoever was faster; it is compared below
                folder.write_json(IDENTITY, identity, exclusive=True)
        stored = folder.read_json(IDENTITY, Identity)
        ledger = load(folder, stored.slots)
        _refuse_other(folder, _as_of(stored, ledger), identity)
        return cls(folder, msgspec.structs.replace(stored, contents=identity.contents), ledger, fold_every)

    def take_over(self) -> list[str]:
        """Begin a run: from here on this one writes, and whoever has written until now is stopped by its next step.

        Return what is to be said if the query was changed since the run before.
        """
        run = claimed(self.folder)
        created = self.folder.read_json(IDENTITY, Identity)
        ledger = load(self.folder, created.slots)
        stored = _as_of(created, ledger)
        _refuse_other(self.folder, stored, self.identity)
        ledger.contents = succeeded(stored.contents, self.identity.contents, ledger.accepted + 1)
        for name, record in _first_records(ledger, run):
            self.folder.write_json(name, record, exclusive=True)
        refuse_if_taken_over(self.folder, run)
        self.identity, self._run = msgspec.structs.replace(stored, contents=ledger.contents), run
        self._ledger, self._base = ledger, (ledger.sequence, ledger.frontier)
        return list(remarks(stored.contents, ledger.contents))

    def refuse_if_taken_over(self) -> None:
        """Raise TakenOverError if a later run has taken the checkpoint over: then this one must end."""
        refuse_if_taken_over(self.folder, self._owner())

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
        self._write(PUBLISHED, epoch, Published(epoch))
        draft.garbage.append(record_name(PUBLISHED, self._ledger.published, self._owner()))
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
            count += self._remove([*self._obsolete_records(), *self._strays(self._ledger.frontier)])
        return count

    def sweep_orphans(self) -> int:
        """Remove everything that no record names. Only before lanes run: what they are writing is not named yet."""
        temporary = [name for top in ("", *RECORDS) for name in self.folder.names(top) if name.endswith(TEMPORARY)]
        count = self._sweep_garbage(None)
        return count + self._remove([*temporary, *self._obsolete_records(), *self._strays(None)])

    def _sweep_garbage(self, up_to: Epoch | None) -> int:
        """Remove what records have freed, unless a lane that lags behind may still read or name it."""
        count = self._remove([name for name in self._ledger.garbage if _is_over(name, up_to)])
        draft = self._ledger.copy()
        draft.garbage = [name for name in draft.garbage if not _is_over(name, up_to)]
        self._ledger = draft
        return count

    def _remove(self, names: Sequence[str]) -> int:
        """Remove files that were found to be useless; what a later run has written cannot be among them.

        They are found first, then it is made sure that there is no later run: so none of them is one of its files.
        """
        if names:
            self.refuse_if_taken_over()
        return self.folder.delete(names)

    def _fold(self) -> None:
        """Sum up all commit entries; the entries themselves can go afterwards."""
        base = self._ledger.to_base()
        self._write(BASE, base.sequence, base)
        self._base = (base.sequence, base.frontier)

    def _obsolete_records(self) -> Iterator[str]:
        """Yield the records that the newest base sums up, those that newer ones replace, and those of older runs."""
        owner, (sequence, frontier) = self._owner(), self._base
        limits = {BASE: sequence - 1, COMMITS: sequence, EPOCHS: frontier, PUBLISHED: self._ledger.published - 1}
        for folder, limit in limits.items():
            for name in self.folder.names(folder):
                run, number = record_of(name) or (owner, limit + 1)
                newest = folder == EPOCHS and number == self._ledger.accepted  # it holds the routing table
                if run < owner or (run == owner and number <= limit and not newest):
                    yield name

    def _strays(self, up_to: Epoch | None) -> Iterator[str]:
        """Yield the data files that no record names, and none ever will; with None, all that are not named."""
        for folder in naming.DATA:
            for name in self.folder.names(folder):
                ours = naming.epoch_of(name) is not None
                if ours and name not in self._ledger.holders and _is_over(name, up_to):
                    yield name

    def _write_new(self, folder: str, number: int, record: Record) -> None:
        """Write a numbered record; what is there already is from a try that failed, and need not say the same."""
        name = record_name(folder, number, self._owner())
        try:
            self.folder.write_json(name, record, exclusive=True)
        except NameTakenError as error:
            raise ProtocolError(
                f"checkpoint {self.folder.storage.address(name)} was written by a step that failed all the same: stop "
                f"the query, then start it again"
            ) from error
        self.refuse_if_taken_over()

    def _write(self, folder: str, number: int, record: Record) -> None:
        """Write a numbered record of which no two can differ: a try that failed half-way may have written it."""
        with suppress(NameTakenError):
            self.folder.write_json(record_name(folder, number, self._owner()), record, exclusive=True)
        self.refuse_if_taken_over()

    def _owner(self) -> Run:
        if self._run is None:
            raise ProtocolError(
                f"checkpoint {self.folder.storage.address('')} was opened to look at it: take it over before you write"
            )
        return self._run


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


def query_at(location: str, retries: Retries | None = None) -> str | None:
    """Return the id of the query whose checkpoint is at `location`, None if there is none; nothing is created."""
    folder = Folder.at(below(location, SUBFOLDER), retries=retries)
    return folder.read_json(IDENTITY, Identity).query_id if folder.exists(IDENTITY) else None


def home_of(location: str) -> str:
    """Return where the folder of the checkpoint at `location` is, or would be; nothing is created."""
    return Folder.at(below(location, SUBFOLDER)).location


def _first_records(ledger: Ledger, run: Run) -> Iterator[tuple[str, Record]]:
    """Yield what a run takes over, as records of its own; they count as soon as the last one, its base, is there."""
    previous = ledger.frontier
    for record in ledger.pending.values() or ([ledger.newest] if ledger.newest else []):
        yield record_name(EPOCHS, record.epoch, run), Accepted(previous, record)
        previous = record.epoch
    yield record_name(PUBLISHED, ledger.published, run), Published(ledger.published)
    yield record_name(BASE, ledger.sequence, run), ledger.to_base()


def _refuse_strangers(location: Folder, folder: Folder) -> None:
    """Refuse a location without an identity that holds anything."""
    inside = [name for top in ("", RUNS, *RECORDS, *naming.DATA) for name in folder.names(top)]
    files = [name for name in inside if not name.endswith(("/", TEMPORARY))]
    outside = [name for name in location.names() if name != f"{SUBFOLDER}/" and not name.startswith(".")]
    if folder.exists(IDENTITY):  # another driver has just created the checkpoint
        return
    if any(record_of(name) or claim_of(name) for name in files):
        raise folder.damaged(IDENTITY, "it is missing, although the checkpoint holds records")
    if files or outside:
        found = ", ".join(sorted([f"{SUBFOLDER}/{name}" for name in files] + outside)[:5])
        raise CheckpointMismatchError(
            f"checkpoint location {location.storage.address('')} belongs to something else: it holds {found} and no "
            f"checkpoint of evenflow. Choose an empty or new location; this one was not touched."
        )


def _refuse_other(folder: Folder, stored: Identity, identity: Identity) -> None:
    """Refuse a query that is not the one that wrote the checkpoint, field by field."""
    found = [
        Difference(f"{what}: was {_shown(getattr(stored, name))}, is {_shown(getattr(identity, name))}", remedy)
        for name, (what, remedy) in _COMPARED.items()
        if getattr(stored, name) != getattr(identity, name)
    ]
    found += differences(stored.contents, identity.contents)
    if not found:
        return
    whats, remedies = "; ".join(each.what for each in found), ", ".join(dict.fromkeys(each.remedy for each in found))
    raise CheckpointMismatchError(
        f"checkpoint {folder.storage.address('')} is of another query, or of this one before it was changed "
        f"({whats}). To go on from it, {remedies}; or start with a new checkpoint location. It was not touched."
    )


def _as_of(created: Identity, ledger: Ledger) -> Identity:
    """Return the identity as it is now: the contents are those of the run that wrote last."""
    return created if ledger.contents is None else msgspec.structs.replace(created, contents=ledger.contents)


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
