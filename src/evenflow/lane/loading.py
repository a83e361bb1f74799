"""From files to what operators take: the rows of an epoch, the state of slots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from evenflow.lane.messages import BlockPart, SlotToLoad
from evenflow.model.slots import IntArray
from evenflow.operators import HASH, SLOT, by_slot
from evenflow.operators.arrays import fitted
from evenflow.state import FileRef, Folder, Recovery


def rows_of(folder: Folder, parts: Sequence[BlockPart], schema: pa.Schema) -> tuple[pa.Table, IntArray]:
    """Return the rows of all parts ordered by slot, within a slot in the order of the parts; and their slots."""
    read: list[tuple[pa.Table, IntArray]] = []
    for file, of_file in groupby(parts, key=lambda part: part.file):
        there = list(of_file)
        batches = folder.read_batches(file, [part.segment.batch for part in there])
        for part, batch in zip(there, batches, strict=True):
            table = _as_today(pa.Table.from_batches([batch]), schema)
            slots = np.repeat(np.array(part.segment.slots), np.array(part.segment.counts))
            if part.slots is not None:
                chosen = np.isin(slots, part.slots)
                table, slots = table.filter(pa.array(chosen)), slots[chosen]
            read.append((table, slots))
    return by_slot(read) if read else (schema.empty_table(), np.empty(0, dtype=np.int64))


def _as_today(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows that may have been accepted before the query was changed in the columns of today."""
    return fitted(rows, pa.schema([*schema, pa.field(HASH, pa.int64())]) if HASH in rows.column_names else schema)


def tables_of(folder: Folder, slots: Sequence[SlotToLoad]) -> list[pa.Table]:
    """Return the tables to install: all snapshots first, then changes by version; each file is read once."""
    wanted: dict[tuple[int, str, int], tuple[FileRef, list[tuple[int, int]]]] = {}
    for entry in slots:
        refs = [*([(-1, entry.snapshot)] if entry.snapshot else []), *((ref.version, ref) for ref in entry.changes)]
        for order, ref in refs:
            _, parts = wanted.setdefault((order, ref.file.name, ref.file.start), (ref.file, []))
            parts.append((ref.start, ref.rows))
    tables = []
    for _, (file, parts) in sorted(wanted.items()):
        whole = folder.read_table(file)
        if sum(rows for _, rows in parts) == whole.num_rows:
            tables.append(whole)
        else:
            tables.append(pa.concat_tables([whole.slice(start, rows) for start, rows in sorted(parts)]))
    return [table for table in tables if table.num_rows]


def committed_slot(recovery: Recovery, slot: int) -> SlotToLoad:
    """Return where the checkpoint has a slot, at its committed version."""
    sources = recovery.sources(slot)
    return SlotToLoad(slot, int(recovery.ledger.slot_versions[slot]), sources.snapshot, sources.changes)


def places_of(state: pa.Table, slots: Sequence[int] | None) -> tuple[tuple[int, int, int], ...]:
    """Return (slot, first row, rows) for each slot of a table sorted by slot; of `slots`, also those without rows."""
    column = state[SLOT].to_numpy()
    listed = np.flatnonzero(np.bincount(column)) if slots is None else np.array(sorted(slots), dtype=np.int64)
    starts, ends = np.searchsorted(column, listed), np.searchsorted(column, listed, side="right")
    return tuple(zip(listed.tolist(), starts.tolist(), (ends - starts).tolist(), strict=True))
