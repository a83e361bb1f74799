"""Running aggregates whose keys go when they have had no rows for some time: what `.agg(...).expire(...)` runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from evenflow.model import Contents, Due, EpochTime
from evenflow.model.slots import IntArray
from evenflow.operators.accumulators import Extreme
from evenflow.operators.aggregate import Aggregate, AggregateState
from evenflow.operators.arrays import array_of, validity, values_of, whole
from evenflow.operators.base import GONE, SLOT, Folded
from evenflow.operators.column import Block
from evenflow.operators.key_timers import KeyTimers, now_of

_NEWEST = "__newest"  # microseconds: the time of a key's newest row


@dataclass(frozen=True)
class ExpiringAggregate:
    """Aggregates of keys that go once it is `after_us` later than their newest row; the next row starts afresh.

    `time` is the column with the event time, by the watermark of the epoch; None: processing time. A row without a time
    counts as one of the watermark's time.
    """

    aggregate: Aggregate
    after_us: int
    time: str | None = None

    def __str__(self) -> str:
        """Look as the user wrote it."""
        return f"{self.aggregate}.expire({self.after_us / 1e6:g} s)"

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        return self.aggregate.needs_hash(schema, keys)

    def columns(self) -> tuple[str, ...]:
        own = () if self.time is None else (self.time,)
        return tuple(dict.fromkeys((*self.aggregate.columns(), *own)))

    def output_modes(self) -> tuple[str, ...]:
        return self.aggregate.output_modes()

    def uses_event_time(self) -> bool:
        return False  # there is no such operator of Spark's: keys go by the watermark of the epoch itself

    def in_mode(self, mode: str) -> ExpiringAggregate:
        return replace(self, aggregate=self.aggregate.in_mode(mode))

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        clock = "processing time" if self.time is None else "event time"
        return replace(self.aggregate.contents(schema, keys), operator=f"aggregates that expire by {clock}")

    def resumed(self, contents: Contents) -> ExpiringAggregate:
        return replace(self, aggregate=self.aggregate.resumed(contents))

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return self.aggregate.output_schema(schema, keys)

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        held = self.aggregate.state_schema(schema, keys)
        return held.insert(held.get_field_index(GONE), pa.field(_NEWEST, pa.int64()))

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return self.output_schema(schema, keys)

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> ExpiringState:
        return ExpiringState(self, schema, keys, slots)


class ExpiringState(AggregateState):
    """The state of `ExpiringAggregate`: that of the aggregates, and when each key had its newest row."""

    def __init__(self, operator: ExpiringAggregate, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        super().__init__(operator.aggregate, schema, keys, slots)
        self._operator, self._newest = operator, Extreme(_NEWEST, "max", pa.int64())
        self._held = (*self._columns, self._newest)
        self._state_schema = operator.state_schema(schema, keys)
        self._timers = KeyTimers({_NEWEST: "processing" if operator.time is None else "event"}, slots)

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:
        looked_at, now = self._timers.reached(slots, time), now_of(self._timers.timers[_NEWEST], time)
        if not looked_at or now is None:
            return None
        rows = self.rows_of(looked_at)
        ends, homes = self._ends(rows), self._keys.index.slots(rows)
        over = ends <= now
        self._timers.forget(looked_at)
        self._timers.note(_NEWEST, homes, ends, ~over)
        if not over.any():
            return None
        return Folded(self.remove(rows[over]), self._output_schema.empty_table(), np.empty(0, np.int64))

    def due(self, slots: Sequence[int]) -> Due | None:
        return self._timers.due(slots)

    def drop(self, slots: Sequence[int]) -> None:
        super().drop(slots)
        self._timers.forget(slots)

    def _absorbed(self, block: Block, rows: pa.Table, time: EpochTime) -> None:
        self._newest.fold(block, self._times(rows, time))
        self._timers.note(_NEWEST, block.slots[block.starts], self._ends(block.touched), None)

    def _install(self, state: pa.Table) -> None:
        super()._install(state)
        homes, newest = whole(state, SLOT, pa.int32()).to_numpy(), whole(state, _NEWEST, pa.int64())
        ends = values_of(newest) + self._operator.after_us
        self._timers.note(_NEWEST, homes, ends, validity(newest))  # tombstones have none

    def _ends(self, rows: IntArray) -> IntArray:
        """Return when the keys of state rows go."""
        ends: IntArray = values_of(self._newest.read(rows)[0]) + self._operator.after_us
        return ends

    def _times(self, rows: pa.Table, time: EpochTime) -> pa.Array:
        """Return when each row happened, in microseconds."""
        name = self._operator.time
        if name is None:
            return array_of(np.full(rows.num_rows, time.processing_us), pa.int64())
        times = whole(rows, name, rows.schema.field(name).type)
        valid, values = validity(times), values_of(times)
        now = 0 if time.watermark_us is None else time.watermark_us
        return array_of(values if valid is None else np.where(valid, values, now), pa.int64())
