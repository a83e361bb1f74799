"""Aggregates with a timer per key: one for each clock. What fires is put out, and its key is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.model import Due, EpochTime
from evenflow.model.slots import IntArray
from evenflow.operators import LATEST, SLOT, Agg, Aggregate, Folded
from evenflow.operators.aggregate import AggregateState

AT = "at"


@dataclass(frozen=True)
class Timers(Aggregate):
    """Counts the rows of a key until the latest time that one of them has asked for, then puts the count out.

    `value` of a row is an event time, or how long to wait from the time of its epoch on.
    """

    clock: Literal["watermark", "processing"] = "watermark"

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> TimersState:
        return TimersState(self, schema, keys, slots)


def timers(clock: Literal["watermark", "processing"]) -> Timers:
    return Timers({AT: Agg("max", "value"), "n": Agg("count")}, clock=clock)


class TimersState(AggregateState):
    """The state of `Timers`."""

    def __init__(self, operator: Timers, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        super().__init__(operator, schema, keys, slots)
        self._clock = operator.clock

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:
        if self._clock == "processing":
            at = rows.column_names.index("value")
            rows = rows.set_column(at, rows.schema.field(at), pc.add(rows["value"], time.processing_us))
        folded = super().fold(rows, slots, time)
        # Nothing is put out before it fires.
        return Folded(folded.changes, folded.output.slice(0, 0), folded.output_slots[:0])

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:
        now = time.watermark_us if self._clock == "watermark" else time.processing_us
        if now is None:
            return None
        rows = self.rows_of(slots)
        rows = rows[self._times(rows) <= now]
        if not len(rows):
            return None
        changes, output = self.read(rows)
        return Folded(self.remove(rows), output, changes[SLOT].to_numpy())

    def due(self, slots: Sequence[int]) -> Due | None:
        times = self._times(self.rows_of(slots))
        if not len(times):
            return None
        first = int(times.min())
        return Due(watermark_us=first) if self._clock == "watermark" else Due(processing_us=first)

    def _times(self, rows: IntArray) -> IntArray:
        times: IntArray = self.read(rows)[1][AT].to_numpy()
        return np.asarray(times, np.int64)
