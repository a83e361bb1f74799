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

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field

import msgspec

from evenflow.errors import ProtocolError
from evenflow.model import Epoch, LaneId, SlotId
from evenflow.model.slots import IntArray
from evenflow.state import naming
from evenflow.state.files import FileRef, Folder
from evenflow.state.holdings import SlotSources
from evenflow.state.ledger import Ledger
from evenflow.state.loading import load
from evenflow.state.naming import (
    BASE,
    COMMITS,
    EPOCHS,
    IDENTITY,
    PUBLISHED,
    RECORDS,
    Run,
    record_name,
    record_of,
)
from evenflow.state.ownership import SUBFOLDER, as_of, refuse_other, refuse_strangers
from evenflow.state.power_cut import SourceLog, loss_in
from evenflow.state.records import (
    Accepted,
    Base,
    Block,
    CommitEntry,
    EpochRecord,
    Identity,
    LaneCommit,
    Published,
    Record,
)
from evenflow.state.recovery import Recovery
from evenflow.state.retrying import Retries
from evenflow.state.runs import claimed, refuse_if_taken_over
from evenflow.state.snapshots import SnapshotOptions
from evenflow.state.storage import TEMPORARY, NameTakenError, below
from evenflow.state.succession import remarks, succeeded
from evenflow.state.written import WrittenRecords


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """How a checkpoint is kept. Records are summed up in a base when they take more bytes than `base_bytes` and than
    `base_ratio` times the base before: so it costs a part of what the records cost, however many slots there are.
    """

    snapshots: SnapshotOptions = field(default_factory=SnapshotOptions)
    base_bytes: int = 1 << 16
    base_ratio: float = 2.0


class Checkpoint:
    """The records of one query: to look at, and, once taken over, to write."""

    def __init__(self, folder: Folder, identity: Identity, ledger: Ledger, options: CheckpointOptions) -> None:
        """Use `open`."""
        self.folder = folder
        self.identity = identity  # until the checkpoint is taken over, `contents` are those that are wanted
        self.options = options
        self._run: Run | None = None
        self._ledger = ledger
        self._records = WrittenRecords()
        self._strays: list[Epoch] = []  # somebody has died who may have written files, up to these epochs
        # What guards the ledger where several threads look at it. It is held only for what is done in memory.
        self.lock: AbstractContextManager[object] = nullcontext()
        self._writing = threading.Lock()  # one record at a time, whichever thread writes it

    @classmethod
    def open(
        cls,
        location: str,
        identity: Identity,
        *,
        durable: bool = True,
        options: CheckpointOptions | None = None,
        retries: Retries | None = None,
    ) -> Checkpoint:
        """Look at the checkpoint below `location`, or create it where there is nothing. `take_over` lets it be written.

        What belongs to another query is refused and not touched. `durable`: records survive a power cut, not only
        the end of the process (local folders).
        """
        options = options or CheckpointOptions()
        folder = Folder.at(below(location, SUBFOLDER), durable=durable, retries=retries)
        if not folder.exists(IDENTITY):
            refuse_strangers(Folder.at(location, retries=retries), folder)
            with suppress(NameTakenError):  # whoever was faster; it is compared below
                folder.write_json(IDENTITY, identity, exclusive=True)
        stored = folder.read_json(IDENTITY, Identity)
        ledger = load(folder, stored.units, options.snapshots)
        refuse_other(folder, as_of(stored, ledger), identity)
        return cls(folder, stored.holding(identity.contents), ledger, options)

    def refuse_if_lost(self, source: SourceLog) -> None:
        """Raise if input is gone that nobody can hand over again; nothing is changed."""
        loss_in(self.folder, self._ledger, source)

    def take_over(self, source: SourceLog | None = None) -> list[str]:
        """Begin a run: from here on this one writes, and whoever has written until now is stopped by its next step.

        Epochs whose input is not whole any more are given back: `source` hands them over again. Return what is to be
        said of that, and if the query was changed since the run before.
        """
        run = claimed(self.folder)
        created = self.folder.read_json(IDENTITY, Identity)
        ledger = load(self.folder, created.units, self.options.snapshots)
        stored = as_of(created, ledger)
        refuse_other(self.folder, stored, self.identity)
        loss = None if source is None else loss_in(self.folder, ledger, source)
        if loss is not None and source is not None:
            # In this order: whoever dies in between finds the same loss again.
            source.hand_over_again(loss.batch)
            ledger.give_back(loss.first)
        pairs = list(zip(stored.contents, self.identity.contents, strict=True))
        ledger.contents = tuple(succeeded(held, wanted, ledger.accepted + 1) for held, wanted in pairs)
        written = WrittenRecords()
        for folder, number, record in _first_records(ledger):
            name = record_name(folder, number, run)
            written.add(folder, number, name, self.folder.write_json(name, record, exclusive=True).size)
        refuse_if_taken_over(self.folder, run)
        self.identity, self._run = stored.holding(ledger.contents), run
        self._ledger, self._records = ledger, written
        self._strays = [ledger.accepted + 1]  # the run before may not be dead yet
        changed = (remarks(held, now) for held, now in zip(stored.contents, ledger.contents, strict=True))
        return [*([] if loss is None else [loss.remark]), *(remark for each in changed for remark in each)]

    def refuse_if_taken_over(self) -> None:
        """Raise TakenOverError if a later run has taken the checkpoint over: then this one must end."""
        refuse_if_taken_over(self.folder, self._owner())

    @property
    def frontier(self) -> Epoch:
        """The last epoch that every slot has reached, -1 if there is none."""
        return self._ledger.frontier

    @property
    def last_accepted(self) -> Epoch:
        """The newest accepted epoch, -1 if there is none."""
        return self._ledger.accepted

    def sources(self, slot: SlotId) -> SlotSources:
        """Return what it takes to rebuild a slot at its committed version."""
        return self._ledger.sources(slot)

    @property
    def pending(self) -> Mapping[Epoch, EpochRecord]:
        """The accepted epochs that some slot has not reached, oldest first."""
        return self._ledger.pending

    def fed(self, epoch: Epoch) -> tuple[Block, ...]:
        """Return what stages have put out as input of others in a pending epoch."""
        return self._ledger.fed.get(epoch, ())

    @property
    def unpublished(self) -> int:
        """The number of accepted epochs that the sink does not have."""
        return len(self._ledger.outputs)

    @property
    def slot_versions(self) -> IntArray:
        """The committed version of each slot, -1 for none; not to be changed."""
        return self._ledger.slot_versions

    @property
    def newest(self) -> EpochRecord | None:
        """The record of the newest accepted epoch."""
        return self._ledger.newest

    def has_batch(self, batch: int) -> bool:
        """Return whether a micro-batch of Spark's is in an accepted epoch, so that a replay of it must be skipped."""
        newest = self._ledger.newest
        return newest is not None and batch <= newest.batch

    def accept(self, record: EpochRecord) -> None:
        """Make an epoch count; its blocks must have been written."""
        with self._writing:
            with self.lock:
                self._ledger.check_record(record)
                before = self._ledger.newest
                stored = _without_known_owners(record, before.owners if before is not None else ())
                accepted = Accepted(self._ledger.accepted, stored)
            self._write_new(EPOCHS, record.epoch, accepted)
            with self.lock:
                self._ledger.accept(record)

    def commit(self, lanes: Sequence[LaneCommit]) -> None:
        """Make what lanes did count, all of it or nothing; their files must have been written."""
        if not lanes:
            return
        with self._writing:
            with self.lock:
                entry = CommitEntry(self._ledger.sequence + 1, tuple(lanes))
                steps = self._ledger.checked(entry.lanes)
            self.folder.settle(_files_of(lanes))
            self._write_new(COMMITS, entry.sequence, entry)
            with self.lock:
                self._ledger.commit(entry.sequence, steps)

    def publish(self, epoch: Epoch, then: Callable[[], object] = lambda: None) -> None:
        """Note that the sink has everything up to an epoch, and do `then` with it; noting it again is fine."""
        with self._writing:
            with self.lock:
                if epoch == self._ledger.published:
                    return
                self._ledger.check_publish(epoch)
            self._write(PUBLISHED, epoch, Published(epoch))
            with self.lock:
                self._ledger.publish(epoch)
                then()

    def recover(self) -> Recovery:
        """Return where the query stands now."""
        return Recovery(self._ledger)

    def due_snapshots(self, slots: IntArray, lanes: int) -> list[SlotId]:
        """Return which of the slots that a lane takes further it is to write out; `lanes` share what may be written."""
        return self._ledger.due_snapshots(slots, lanes)

    def discard(self, files: Iterable[FileRef]) -> None:
        """Take files for useless that were written, and that no record names or will name."""
        with self.lock:
            self._ledger.files.discard(file.name for file in files)

    def expect_strays(self) -> None:
        """Have files that nobody names looked for, once: someone has died who may have written some."""
        with self.lock:
            self._strays.append(self._ledger.accepted)

    def sweep(self) -> int:
        """Remove what no record needs any more; cheap enough for every epoch. Return the number of files."""
        with self.lock:
            base = self._due_base()
            later = [epoch for epoch in self._strays if epoch >= self._ledger.frontier]
            looks, self._strays = len(later) < len(self._strays), later
        if base is not None:
            self._write(BASE, base.sequence, base)
        there = [name for folder in (*naming.DATA, *RECORDS) for name in self.folder.names(folder)] if looks else []
        with self.lock:
            if base is not None:
                self._records.summed_up(base.frontier, self._ledger.accepted)
                self._ledger.planner.look_at_files(self._ledger.frontier)
            names = [
                *self._records.take_useless(),
                *self._useless_data(),
                *self._nameless(there, self._ledger.frontier),
                *self._foreign_records(there),
            ]
        return self._remove(names)

    def sweep_orphans(self) -> int:
        """Remove everything that no record names. Only before lanes run: what they are writing is not named yet."""
        there = [name for folder in ("", *naming.DATA, *RECORDS) for name in self.folder.names(folder)]
        temporary = [name for name in there if name.endswith(TEMPORARY) and naming.epoch_of(name) is None]
        self._ledger.settle()
        self._ledger.files.garbage.clear()  # it is among what is there
        return self._remove([*temporary, *self._foreign_records(there), *self._nameless(there, None)])

    def _due_base(self) -> Base | None:
        """Return the sum of all records if those since the last one have become many."""
        options, since = self.options, self._records.bytes_since_base
        if self._ledger.sequence == self._records.base or since < options.base_bytes:
            return None
        return self._ledger.to_base() if since >= options.base_ratio * self._records.base_size else None

    def _useless_data(self) -> list[str]:
        """Return what records have freed, unless a lane that lags behind may still read or name it; forget it."""
        ledger = self._ledger
        ledger.settle()
        names = [name for name in ledger.files.garbage if _is_over(name, ledger.frontier)]
        for name in names:
            del ledger.files.garbage[name]
        return names

    def _remove(self, names: Sequence[str]) -> int:
        """Remove files that were found to be useless; what a later run has written cannot be among them.

        They are found first, then it is made sure that there is no later run: so none of them is one of its files.
        """
        if names:
            self.refuse_if_taken_over()
        return self.folder.delete(names)

    def _foreign_records(self, there: Sequence[str]) -> Iterator[str]:
        """Yield the records of older runs."""
        for name in there:
            found = record_of(name)
            if found is not None and found[0] < self._owner():
                yield name

    def _nameless(self, there: Sequence[str], up_to: Epoch | None) -> Iterator[str]:
        """Yield the data files that no record names, and none ever will; with None, all that are not named."""
        for name in there:
            if naming.epoch_of(name) is not None and not self._ledger.needs(name) and _is_over(name, up_to):
                yield name

    def _write_new(self, folder: str, number: int, record: Record) -> None:
        """Write a numbered record; what is there already is from a try that failed, and need not say the same."""
        name = record_name(folder, number, self._owner())
        try:
            size = self.folder.write_json(name, record, exclusive=True).size
        except NameTakenError as error:
            raise ProtocolError(
                f"checkpoint {self.folder.storage.address(name)} was written by a step that failed all the same: stop "
                f"the query, then start it again"
            ) from error
        self.refuse_if_taken_over()
        with self.lock:
            self._records.add(folder, number, name, size)

    def _write(self, folder: str, number: int, record: Record) -> None:
        """Write a numbered record of which no two can differ: a try that failed half-way may have written it."""
        name, size = record_name(folder, number, self._owner()), 0
        with suppress(NameTakenError):
            size = self.folder.write_json(name, record, exclusive=True).size
        self.refuse_if_taken_over()
        with self.lock:
            self._records.add(folder, number, name, size)

    def _owner(self) -> Run:
        if self._run is None:
            raise ProtocolError(
                f"checkpoint {self.folder.storage.address('')} was opened to look at it: take it over before you write"
            )
        return self._run


def _files_of(lanes: Sequence[LaneCommit]) -> Iterator[str]:
    """Yield the names of all files that commits make count."""
    for lane in lanes:
        yield from (changes.file.name for changes in lane.changes)
        yield from (file.name for _, file in lane.outputs)
        yield from (block.file.name for _, block in lane.feeds)
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


def _first_records(ledger: Ledger) -> Iterator[tuple[str, int, Record]]:
    """Yield what a run takes over, as records of its own; they count as soon as the last one, its base, is there."""
    previous, owners = ledger.frontier, () if ledger.reached is None else ledger.reached.owners
    for record in ledger.pending.values() or ([ledger.newest] if ledger.newest else []):
        yield EPOCHS, record.epoch, Accepted(previous, _without_known_owners(record, owners))
        previous, owners = record.epoch, record.owners
    yield PUBLISHED, ledger.published, Published(ledger.published)
    yield BASE, ledger.sequence, ledger.to_base()


def _without_known_owners(record: EpochRecord, before: tuple[LaneId, ...]) -> EpochRecord:
    """Return a record as it is stored: without the routing table if it is that of the record before."""
    return msgspec.structs.replace(record, owners=()) if record.owners == before else record
