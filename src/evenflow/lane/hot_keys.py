"""Which key of a slot comes most often: looked at only where the driver asks, for slots that no move can cure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from evenflow.lane.messages import HotKey, KeyValue
from evenflow.model.slots import IntArray

_SAMPLE = 1 << 16  # rows looked at per slot and epoch: it takes a few milliseconds, and a hot key shows in far fewer


@dataclass
class KeyCounter:
    """Takes the rows of some epochs in, then tells the most frequent key of each slot that was asked for."""

    keys: Sequence[str]
    slots: Sequence[int]
    _seen: dict[int, list[pa.Table]] = field(default_factory=dict)

    def add(self, rows: pa.Table, slots: IntArray) -> None:
        """Take in the rows of an epoch, ordered by slot; of many, some at even distances."""
        for slot in self.slots:
            start, end = np.searchsorted(slots, [slot, slot + 1]).tolist()
            if end > start:
                own = rows.select(list(self.keys)).slice(start, end - start)
                step = -(-own.num_rows // _SAMPLE)
                self._seen.setdefault(slot, []).append(own if step == 1 else own.take(np.arange(0, own.num_rows, step)))

    def hottest(self) -> tuple[HotKey, ...]:
        """Return the most frequent key of each slot that had rows; among equals, the first that came."""
        return tuple(_hottest(slot, pa.concat_tables(seen)) for slot, seen in self._seen.items())


def _hottest(slot: int, keys: pa.Table) -> HotKey:
    names = keys.column_names
    counts = keys.group_by(names, use_threads=False).aggregate([([], "count_all")])
    times = counts["count_all"].to_numpy()
    top = int(times.argmax())
    key = {name: _plain(counts[name][top].as_py()) for name in names}
    return HotKey(slot, key, int(times[top]) / keys.num_rows, counts.num_rows)


def _plain(value: Any) -> KeyValue:
    """Return a value as JSON can have it: numbers, text, true, false and null as they are, all else as text."""
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
