"""Reads back what counts: the records of the newest run that has begun. What does not fit together is damage.

Those of older runs do not count any more, whenever they were written: a run begins by writing down what it has taken
over, its base last.

Another run may be writing meanwhile. Folders are listed in an order in which nothing that is seen needs anything that
is not: what was published was committed before, what was committed was accepted before, and commits and epochs are
removed after the base that sums them up is there. If something vanishes between listing and reading, all is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from evenflow.errors import DamagedFileError, ProtocolError
from evenflow.state.files import Folder
from evenflow.state.ledger import NEVER, Ledger, replayed
from evenflow.state.naming import BASE, COMMITS, EPOCHS, PUBLISHED, Run, record_name, record_of
from evenflow.state.records import Accepted, Base, CommitEntry, EpochRecord, Published
from evenflow.state.snapshots import SnapshotOptions

_ORDER = (PUBLISHED, COMMITS, EPOCHS, BASE)
_Listing: TypeAlias = dict[str, dict[Run, list[int]]]


def load(folder: Folder, slots: int, options: SnapshotOptions) -> Ledger:
    """Return what the records that count come to; of a checkpoint without any, the ledger of the beginning."""
    while True:
        listing = _listed(folder)
        try:
            return _loaded(folder, listing, slots, options)
        except DamagedFileError:
            if _listed(folder) == listing:
                raise


def _listed(folder: Folder) -> _Listing:
    """Return the numbers of all records there are, ascending, by kind and by run."""
    listing: _Listing = {}
    for kind in _ORDER:
        found = (record_of(name) for name in folder.names(kind))
        listing[kind] = {}
        for run, number in sorted(record for record in found if record is not None):
            listing[kind].setdefault(run, []).append(number)
    return listing


def _loaded(folder: Folder, listing: _Listing, slots: int, options: SnapshotOptions) -> Ledger:
    run = max(listing[BASE], default=None)
    later = [other for other in listing[COMMITS] if run is None or other > run]
    if later or (run is None and listing[EPOCHS]):
        raise folder.damaged(f"{BASE}/", f"it holds no record{f' of run {later[-1]}' if later else ''}")
    if run is None:
        return Ledger.empty(slots, options)
    base = folder.read_json(record_name(BASE, listing[BASE][run][-1], run), Base)
    published = _published(folder, run, listing[PUBLISHED].get(run, []))
    records = _epochs(folder, run, listing[EPOCHS].get(run, []), base)
    entries = list(_commits(folder, run, listing[COMMITS].get(run, []), base.sequence))
    try:
        ledger = replayed(base, records, entries, options)
    except ProtocolError as error:
        raise folder.damaged(f"{COMMITS}/", f"its entries do not fit the epochs: {error}") from error
    if published.epoch > ledger.frontier:
        missing = record_name(COMMITS, ledger.sequence + 1, run)
        raise folder.damaged(missing, f"it is missing, although epoch {published.epoch} was published")
    ledger.check_publish(published.epoch)
    ledger.publish(published.epoch)
    return ledger


def _published(folder: Folder, run: Run, numbers: list[int]) -> Published:
    if not numbers:
        raise folder.damaged(f"{PUBLISHED}/", f"it holds no record of run {run}")
    return folder.read_json(record_name(PUBLISHED, numbers[-1], run), Published)


def _commits(folder: Folder, run: Run, numbers: list[int], after: int) -> Iterator[CommitEntry]:
    for expected, number in enumerate((number for number in numbers if number > after), after + 1):
        if number != expected:
            missing = record_name(COMMITS, expected, run)
            raise folder.damaged(missing, "it is missing, although later entries are there")
        yield folder.read_json(record_name(COMMITS, number, run), CommitEntry)


def _epochs(folder: Folder, run: Run, numbers: list[int], base: Base) -> list[EpochRecord]:
    """Return the records after the frontier of the base, and the newest one in any case."""
    newest = numbers[-1] if numbers else NEVER
    if newest < base.accepted:
        raise folder.damaged(record_name(EPOCHS, base.accepted, run), "it is missing, although it was accepted")
    records: list[EpochRecord] = []
    last, owners = base.frontier, () if base.reached is None else base.reached.owners
    for number in numbers:
        if number <= base.frontier and number != newest:
            continue
        accepted = folder.read_json(record_name(EPOCHS, number, run), Accepted)
        if accepted.previous > last:
            missing = record_name(EPOCHS, accepted.previous, run)
            raise folder.damaged(missing, "it is missing, although later ones are there")
        owners = accepted.record.owners or owners
        records.append(msgspec.structs.replace(accepted.record, owners=owners))
        last = number
    return records
