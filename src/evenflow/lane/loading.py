"""From files to what operators take: the rows of an epoch, the state of slots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from evenflow.lane.config import LaneStage
from evenflow.lane.feeding import order_of, units_in
from evenflow.lane.messages import BlockPart, SlotToLoad
from evenflow.model.slots import IntArray
from evenflow.operators import HASH, by_slot
from evenflow.operators.arrays import fitted
from evenflow.state import FileRef, Folder, Recovery


def rows_of(folder: Folder, parts: Sequence[BlockPart], stage: LaneStage) -> tuple[pa.Table, IntArray]:
    """Return the rows of all parts ordered by unit, and the unit of each.

    Within a unit those of a source are in the order of the parts; those that other units have put out are in the order
    of these units, whatever lanes they were on.
    """
    is_fed = stage.units.fed_by is not None
    read: list[tuple[pa.Table, IntArray]] = []
    for file, of_file in groupby(parts, key=lambda part: part.file):
        there = list(of_file)
        batches = folder.read_batches(file, [part.segment.batch for part in there])
        for part, batch in zip(there, batches, strict=True):
            table = pa.Table.from_batches([batch])
            units = np.repeat(np.array(part.segment.slots), np.array(part.segment.counts))
            if part.slots is not None:
                chosen = np.isin(units, part.slots)
                table, units = table.filter(pa.array(chosen)), units[chosen]
            order = order_of(table, units) if is_fed else units
            read.append((_as_today(table, stage.schema), order))
    if not read:
        return stage.schema.empty_table(), np.empty(0, dtype=np.int64)
    rows, order = by_slot(read)
    return rows, units_in(order) if is_fed else order


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
