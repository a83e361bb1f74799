"""A user's processor with variables and timers per key: Spark's `transformWithState`.

It is called for each key that has rows in an epoch, then for each timer that is due. Rows become Python values once per
epoch, and variables are kept as Python values: a call costs what the user's code costs, and little more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from evenflow.errors import InputError
from evenflow.model import Contents, Due, EpochTime
from evenflow.model.slots import FloatArray, IntArray
from evenflow.operators.arrays import validity, values_of, whole
from evenflow.operators.base import HASH, LATEST, SLOT, Folded
from evenflow.operators.calling import calling, key_text
from evenflow.operators.clock import NeededTime
from evenflow.operators.collecting import collecting_seldom
from evenflow.operators.frames import Frames
from evenflow.operators.key_groups import Key, groups_of
from evenflow.operators.key_variables import TIMERS, KeyVariables, variables_schema
from evenflow.operators.keys import check_keys
from evenflow.operators.output import conform
from evenflow.operators.readable import VIEW_SCHEMA
from evenflow.operators.under_way import under_way

TimeMode: TypeAlias = Literal["none", "processing", "event"]


class Running(Protocol):
    """A user's processor in one epoch: a copy of its own, as Spark makes one for each batch."""

    def take(self, rows: pa.Table) -> None:
        """Take in the rows of an epoch, those of a key together."""
        ...

    def handle_rows(self, low: int, high: int) -> int:
        """Call it with some of the rows, all of one key; return how many rows it puts out."""
        ...

    def handle_timer(self, key: Key, at_ms: int) -> int:
        """Call it for a timer; return how many rows it puts out."""
        ...

    def output(self) -> pa.Table:
        """Return the rows that were put out since this was asked last."""
        ...

    def close(self) -> None:
        """Let it clean up."""
        ...


class Processor(Protocol):
    """Where the engine has a class for processors, it supplies this."""

    @property
    def name(self) -> str:
        """The name of the user's class."""
        ...

    @property
    def variables(self) -> str:
        """What it keeps per key, as text."""
        ...

    def start(self, state: KeyVariables, time: EpochTime, frames: Frames, keys: tuple[str, ...]) -> Running:
        """Make the processor of an epoch ready."""
        ...


@dataclass(frozen=True)
class Processing:
    """Runs a processor; `frames` are set when the query starts.

    `clock` is what its timers go by, and `time` the column with the event time: with timers by event time, late rows
    are dropped.
    """

    call: str  # Spark's name for it
    processor: Processor
    output: pa.Schema
    mode: str
    clock: TimeMode
    time: str | None = None
    frames: Frames | None = None

    def __str__(self) -> str:
        """Name the processor."""
        return f"{self.call}({self.processor.name})"

    def seeing(self, frames: Frames) -> Processing:
        """Return this operator with another view of its rows."""
        return replace(self, frames=frames)

    def needs_hash(self, schema: pa.Schema, keys: tuple[str, ...]) -> bool:
        check_keys(schema, keys)
        return False

    def columns(self) -> tuple[str, ...] | None:
        return None

    def output_modes(self) -> tuple[str, ...]:
        return ("update", "append") if self.mode == "update" else ("append", "update")  # Spark takes both

    def uses_event_time(self) -> bool:
        return self.clock == "event"

    def in_mode(self, mode: str) -> Processing:
        if mode == "complete":
            raise InputError(f"writeStream: complete mode needs aggregates; {self} only knows the rows of each epoch")
        return self

    def contents(self, schema: pa.Schema, keys: tuple[str, ...]) -> Contents:
        check_keys(schema, keys)
        return Contents(f"{self.call} with {self.processor.variables}, time mode {self.clock}")

    def resumed(self, contents: Contents) -> Processing:  # noqa: ARG002 - other variables are refused before
        return self

    def output_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        check_keys(schema, keys)
        return self.output

    def state_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return variables_schema(schema, keys)

    def view_schema(self, schema: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:  # noqa: ARG002 - the same for all
        return VIEW_SCHEMA

    def open(self, schema: pa.Schema, keys: tuple[str, ...], slots: int) -> ProcessedKeys:
        if self.frames is None:
            raise InputError(f"{self} runs in a query only: its rows are made as the Spark session makes them")
        return ProcessedKeys(self, self.frames, KeyVariables(self.state_schema(schema, keys), keys, slots), keys, slots)


class ProcessedKeys:
    """The variables of a lane's keys, and the processor that works on them."""

    def __init__(
        self, operator: Processing, frames: Frames, state: KeyVariables, keys: tuple[str, ...], slots: int
    ) -> None:
        """Start empty."""
        self._operator, self._frames, self._state, self._keys, self._slots = operator, frames, state, keys, slots
        self._name = operator.processor.name
        self._clock = NeededTime()
        self._running: Running | None = None
        self._epoch: int | None = None
        self._key: Key = ()

    def fold(self, rows: pa.Table, slots: IntArray, time: EpochTime = LATEST) -> Folded:
        with collecting_seldom():
            return self._fold(*self._timely(rows, slots, time), time)

    def _fold(self, rows: pa.Table, slots: IntArray, time: EpochTime) -> Folded:
        if not rows.num_rows:
            return Folded(self._state.changes(), self._operator.output.empty_table(), np.empty(0, np.int64))
        order, starts, identities = groups_of(rows, self._keys, slots)
        shown = rows.drop_columns([name for name in (SLOT, HASH) if name in rows.column_names]).take(order)
        running = self._ready(time)
        with calling(self._name):
            running.take(self._frames.shown(shown))
        homes = slots[order][starts].tolist()
        ends = [*starts[1:], len(order)]
        counts: list[int] = []
        busy: FloatArray = np.zeros(self._slots)
        handle, go_to, last, began = running.handle_rows, self._state.go_to, -1, self._clock()
        with under_way(self._name, None, self._key_text):
            for slot, key, low, high in zip(homes, identities, starts, ends, strict=True):
                if slot != last:
                    now = self._clock()
                    busy[last] += now - began if last >= 0 else 0.0
                    last, began = slot, now
                self._key = key
                go_to(slot, key)
                try:
                    counts.append(handle(low, high))
                except (Exception, SystemExit):
                    with calling(self._name, slot, self._key_text()):
                        raise
        busy[last] += self._clock() - began
        return self._folded(running, np.repeat(np.array(homes, np.int64), counts), busy)

    def fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:
        """Call the processor for timers that are due by Spark's rule, and let go what has outlived its time."""
        if self._operator.clock == "none":
            self._close()
            return None
        with collecting_seldom():
            return self._fire(slots, time)

    def _fire(self, slots: Sequence[int], time: EpochTime) -> Folded | None:
        clock = self._operator.clock
        now_us = time.processing_us if clock == "processing" else time.before_us or 0  # Spark's without a watermark
        due = self._state.due_timers(slots, now_us // 1000)
        output, homes = self._operator.output.empty_table(), list[int]()
        if due:
            running = self._ready(time)
            with under_way(self._name, None, self._key_text):
                for slot, at_ms, key in due:
                    self._key = key
                    self._state.go_to(slot, key)
                    try:
                        homes += [slot] * running.handle_timer(key, at_ms)
                    except (Exception, SystemExit):
                        with calling(self._name, slot, self._key_text()):
                            raise
                    self._state.remove(TIMERS, at_ms)
            output = self._put_out(running)
        self._close()
        if clock == "processing":
            self._state.now_ms = time.processing_us // 1000
            self._state.expire(slots)
        changes = self._state.changes()
        if not due and not changes.num_rows:
            return None
        return Folded(changes, output, np.array(homes, np.int64))

    def due(self, slots: Sequence[int]) -> Due | None:
        if self._operator.clock != "processing":
            return None  # with event time it waits for the epoch that Spark would run
        first = self._state.first_ms(slots)
        return None if first is None else Due(processing_us=first * 1000)

    def install(self, state: pa.Table) -> None:
        with collecting_seldom():
            self._state.install(state)

    def snapshot(self, slots: Sequence[int]) -> pa.Table:
        return self._state.snapshot(slots)

    def drop(self, slots: Sequence[int]) -> None:
        self._state.drop(slots)

    def output(self, slots: Sequence[int]) -> pa.Table:  # noqa: ARG002 - there is none
        raise InputError(f"complete mode needs aggregates; {self._operator} only knows the rows of each epoch")

    def view(self, slots: Sequence[int]) -> pa.Table:
        return self._state.view(slots)

    def slot_rows(self) -> IntArray:
        return self._state.slot_rows()

    def slot_bytes(self) -> IntArray:
        return self._state.slot_bytes()

    def _ready(self, time: EpochTime) -> Running:
        """Return the processor of an epoch."""
        if self._running is None or self._epoch != time.epoch:
            self._close()
            self._state.now_ms = time.processing_us // 1000
            with calling(self._name):
                self._running = self._operator.processor.start(self._state, time, self._frames, self._keys)
            self._epoch = time.epoch
        return self._running

    def _close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            with calling(self._name):
                running.close()

    def _folded(self, running: Running, homes: IntArray, busy: FloatArray) -> Folded:
        return Folded(self._state.changes(), self._put_out(running), homes, busy)

    def _put_out(self, running: Running) -> pa.Table:
        with calling(self._name):
            return conform(running.output(), self._operator.output, self._frames)

    def _key_text(self) -> str:
        return key_text(self._keys, self._key)

    def _timely(self, rows: pa.Table, slots: IntArray, time: EpochTime) -> tuple[pa.Table, IntArray]:
        """Return the rows that are not late; one without a time never is."""
        name = self._operator.time
        if name is None or time.late_us is None:
            return rows, slots
        times = whole(rows, name, rows.schema.field(name).type)
        timely, valid = values_of(times) > time.late_us, validity(times)
        kept = np.flatnonzero(timely if valid is None else timely | ~valid)
        return (rows, slots) if len(kept) == rows.num_rows else (rows.take(pa.array(kept)), slots[kept])
