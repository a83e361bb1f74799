"""Slots in files: several slots' rows, one after the other, in one table; and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from evenflow.model import Epoch, SlotId
from evenflow.state.files import FileRef, Folder
from evenflow.state.records import SlotRef


def write_slots(
    folder: Folder, name: str, version: Epoch, tables: Mapping[SlotId, pa.Table]
) -> tuple[tuple[SlotId, SlotRef], ...]:
    """Write the rows of some slots, all at `version`, into one file; nothing is written for no slots."""
    if not tables:
        return ()
    file = folder.write_table(name, pa.concat_tables(tables.values()))
    refs, start = [], 0
    for slot, table in tables.items():
        refs.append((slot, SlotRef(file, version, start, table.num_rows)))
        start += table.num_rows
    return tuple(refs)


def read_slots(folder: Folder, refs: Iterable[SlotRef], *, verify: bool = True) -> list[pa.Table]:
    """Return the rows that each reference means; every file is opened and checked once."""
    files: dict[FileRef, pa.Table] = {}
    tables = []
    for ref in refs:
        if ref.file not in files:
            files[ref.file] = folder.read_table(ref.file, verify=verify)
        tables.append(files[ref.file].slice(ref.start, ref.rows))
    return tables
