"""The first row of each key passes, the others are dropped: what `.dedup(...)` runs on a lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model import Contents, Due, EpochTime
from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import pieces, validity, values_of, whole
from evenflow.operators.base import LATEST, SLOT, Folded
from evenflow.operators.chosen import Last
from evenflow.operators.key_timers import KeyTimers
from evenflow.operators.keyed_state import KeyedState, key_fields, state_schema_of
from evenflow.operators.keys import check_keys, is_direct

_EXPIRES = "__expires"  # microseconds of event time from which on a key is as if it had never come
_NEVER = np.iinfo(np.int64).max
_NO_TIME = 0  # of a row without a time: Spark takes it for 1970


@dataclass(frozen=True)
class Dedup:
    """Passes the first row of each key, with the columns `passes` in this order.

    `time` is a column with a watermark: rows at or before it are late and are dropped. `within_us`: a key is forgotten
    once the watermark is so far past its first row. Without it, a key that has the time in it is forgotten once the
    watermark has reached that time, since whatever comes for it then is late; any other key is never forgotten.
    """

    passes: tuple[str, ...]
    time: str | None = None
    within_us: int | None = None

    def __str__(self) -> str:
        """Look as contents of a checkpoint name it."""
        return "dedup" if self.within_us is None else f"dedup within {self.within_us / 1e6:g} s"

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        check_keys(schema, keys)
        return not is_direct(schema, keys)

    def columns(self) -> tuple[str, ...]:
        return self.passes

    def output_modes(self) -> tuple[str, ...]:
        return "append", "update"

    def uses_event_time(self) -> bool:
        return self.time is not None

    def in_mode(self, mode: str) -> Dedup:
        if mode == "complete":
            raise InputError(
                "writeStream: complete mode needs aggregates, and dedup keeps no rows: use outputMode('append')"
            )
        return self

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        check_keys(schema, keys)
        return Contents(str(self))

    def resumed(self, contents: Contents) -> Dedup:  # noqa: ARG002 - there is nothing that began later
        return self

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        check_keys(schema, keys)
        return pa.schema([schema.field(name) for name in self.passes])

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return state_schema_of(schema, keys, [pa.field(_EXPIRES, pa.int64())] if self.forgets(keys) else [])

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return pa.schema(key_fields(schema, keys))

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> DedupState:
        return DedupState(self, schema, keys, slots)

    def forgets(self, keys: tuple[str, ...]) -> bool:
        """Tell whether keys are forgotten some time."""
        return self.within_us is not None or self.time in keys


class DedupState(KeyedState):
    """The keys that have come, and until when each is remembered."""

    def __init__(self, operator: Dedup, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> None:
        """Start empty."""
        self._expires = Last(_EXPIRES, pa.int64()) if operator.forgets(keys) else None
        super().__init__(schema, keys, slots, () if self._expires is None else (self._expires,))
        self._operator, self._output_schema = operator, operator.output_schema(schema, keys)
        self._view_schema = operator.view_schema(schema, keys)
        self._timers = KeyTimers({_EXPIRES: "event"}, slots)

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:
        folded, at = [], 0
        for piece in pieces(rows):
            folded.append(self._fold(piece, slots[at : at + piece.num_rows], time))
            at += piece.num_rows
        found = folded[0]
        for each in folded[1:]:
            found = found.then(each)
        return found

    def _fold(self, rows: pa.Table, slots: IntArray, time: EpochTime) -> Folded:
        times, valid = self._times(rows)
        if times is not None and time.late_us is not None:
            timely = times > time.late_us
            kept = np.flatnonzero(timely if valid is None else timely | ~valid)
            if len(kept) < rows.num_rows:
                rows, slots, times = rows.take(pa.array(kept)), slots[kept], times[kept]
                valid = None if valid is None else valid[kept]
        index, born = self._keys.index, self._keys.index.rows
        found = self._keys.find(rows, slots)
        self._start(born)
        first = np.flatnonzero((found >= born) & (index.first_positions(found) == np.arange(len(found))))
        new, homes = found[first], slots[first]
        if self._expires is not None and times is not None:
            expires = self._ends(times[first], None if valid is None else valid[first])
            self._expires.write(new, [pa.array(expires)])
            self._timers.note(_EXPIRES, homes, expires, None)
        output = rows.select(self._output_schema.names).take(pa.array(first)).cast(self._output_schema)
        return Folded(self.state(new), output, homes)

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:
        """Forget keys by the watermark of before the epoch, as Spark does: see `EpochTime`."""
        if self._expires is None or time.before_us is None:
            return None
        looked_at = self._timers.reached(slots, replace(time, watermark_us=time.before_us))
        if not looked_at:
            return None
        rows = self.rows_of(looked_at)
        ends, homes = values_of(self._expires.read(rows)[0]), self._keys.index.slots(rows)
        over = ends <= time.before_us
        self._timers.forget(looked_at)
        self._timers.note(_EXPIRES, homes, ends, ~over)
        if not over.any():
            return None
        return Folded(self.remove(rows[over]), self._output_schema.empty_table(), np.empty(0, np.int64))

    def due(self, slots: Sequence[int]) -> Due | None:  # noqa: ARG002 - it waits for the epoch that Spark would run
        return None

    def drop(self, slots: Sequence[int]) -> None:
        super().drop(slots)
        self._timers.forget(slots)

    def output(self, slots: Sequence[int]) -> pa.Table:  # noqa: ARG002 - rows that have passed are not kept
        return self._output_schema.empty_table()

    def view(self, slots: Sequence[int]) -> pa.Table:
        return self.snapshot(slots).select(self._view_schema.names).cast(self._view_schema)

    def _install(self, state: pa.Table) -> None:
        super()._install(state)
        if self._expires is not None:
            homes, ends = whole(state, SLOT, pa.int32()).to_numpy(), whole(state, _EXPIRES, pa.int64())
            self._timers.note(_EXPIRES, homes, values_of(ends), validity(ends))  # tombstones have none

    def _ends(self, times: IntArray, valid: BoolArray | None) -> IntArray:
        """Return until when the keys of new rows are remembered."""
        within = self._operator.within_us
        if within is None:
            return times if valid is None else np.where(valid, times, _NEVER)
        return (times if valid is None else np.where(valid, times, _NO_TIME)) + within

    def _times(self, rows: pa.Table) -> tuple[IntArray | None, BoolArray | None]:
        """Return when each row happened, in microseconds, and which rows have a time; None: all."""
        name = self._operator.time
        if name is None:
            return None, None
        times = whole(rows, name, rows.schema.field(name).type)
        return values_of(times), validity(times)
