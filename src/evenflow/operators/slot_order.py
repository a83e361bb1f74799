"""Tables of rows or of state that are sorted by slot, joined into one or cut into parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from evenflow.model.slots import IntArray
from evenflow.operators import arrays


def by_slot(parts: Sequence[tuple[pa.Table, IntArray]]) -> tuple[pa.Table, IntArray]:
    """Join tables that are sorted by slot into one that is, within a slot in the order of the tables; and its slots.

    What is more than one array of strings can hold is joined a range of slots at a time; rows of one slot need no sort.
    """
    if len(parts) == 1:
        return parts[0]
    tables, slots = [table for table, _ in parts], np.concatenate([slots for _, slots in parts])
    lowest = int(slots.min()) if len(slots) else 0
    if (slots == lowest).all():
        return pa.concat_tables(tables), slots
    if sum(table.nbytes for table in tables) <= arrays.JOINED:
        narrow = slots.astype(np.uint16) if int(slots.max()) < 1 << 16 else slots  # 16 bits: a radix sort
        order = np.argsort(narrow, kind="stable")
        return pa.concat_tables(tables).combine_chunks().take(pa.array(order)), slots[order]
    cut = max(lowest + 1, int(np.median(slots)))
    cuts = [(table, part, int(np.searchsorted(part, cut))) for table, part in parts]
    below = by_slot([(table.slice(0, at), part[:at]) for table, part, at in cuts if at])
    above = by_slot([(table.slice(at), part[at:]) for table, part, at in cuts if at < len(part)])
    return pa.concat_tables([below[0], above[0]]), np.concatenate([below[1], above[1]])


def parts_by_slot(rows: pa.Table, slots: IntArray) -> Iterator[tuple[pa.Table, IntArray]]:
    """Yield rows in parts of which each column fits one array, where slots can be told apart."""
    if rows.nbytes <= arrays.JOINED or slots[0] == slots[-1]:
        yield rows, slots
        return
    cut = int(np.searchsorted(slots, slots[len(slots) // 2]))
    cut = cut or int(np.searchsorted(slots, slots[0], side="right"))
    yield from parts_by_slot(rows.slice(0, cut), slots[:cut])
    yield from parts_by_slot(rows.slice(cut), slots[cut:])
