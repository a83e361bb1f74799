"""Runs Spark's `StatefulProcessor` without Spark's workers: what these do for `transformWithState`, on a lane.

`Row` is public; how rows of given fields are made quickly is not promised, nor is Spark's copy of cloudpickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkTypeError
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues
from pyspark.sql.types import Row, StructType

from evenflow.model import EpochTime
from evenflow.operators.frames import Frames
from evenflow.operators.key_groups import Key
from evenflow.operators.key_variables import KeyVariables, variables_schema
from evenflow.operators.processor import Running, TimeMode
from evenflow.spark.internals.processor_frames import RunningFrames, key_of_timer
from evenflow.spark.internals.processor_handle import Handle


@dataclass(frozen=True)
class SparkProcessor:
    """A processor as the user made it, pickled: each epoch gets a fresh copy, as each batch does in Spark."""

    name: str
    pickled: bytes
    variables: str
    schemas: dict[str, StructType]
    clock: TimeMode
    columns: tuple[str, ...]  # of its rows
    output: pa.Schema
    in_frames: bool = False  # it takes and returns pandas frames

    @classmethod
    def of(
        cls,
        processor: StatefulProcessor,
        clock: TimeMode,
        columns: tuple[str, ...],
        output: pa.Schema,
        *,
        in_frames: bool = False,
    ) -> SparkProcessor:
        """Let a copy of it declare its variables, as Spark does before a query starts."""
        pickled: bytes = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call]
        handle, copy = (
            Handle(KeyVariables(variables_schema(pa.schema([]), ()), (), 1), clock),
            cloudpickle.loads(pickled),
        )
        copy.init(handle)
        copy.close()
        text = ", ".join(f"{name} {what}" for name, what in sorted(handle.declared.items())) or "no variables"
        return cls(type(processor).__qualname__, pickled, text, handle.schemas, clock, columns, output, in_frames)

    def start(self, state: KeyVariables, time: EpochTime, frames: Frames, keys: tuple[str, ...]) -> Running:
        copy: StatefulProcessor = cloudpickle.loads(self.pickled)
        handle = Handle(state, self.clock, self.schemas)
        copy.init(handle)
        handle.is_open = False
        times = timer_values(self.clock, time)
        if self.in_frames:
            return RunningFrames(copy, self.columns, keys, times, frames)
        return RunningRows(copy, self.columns, self.output, keys, times)


def timer_values(clock: TimeMode, time: EpochTime) -> TimerValues:
    if clock == "none":
        return TimerValues(-1, -1)
    return TimerValues(time.processing_us // 1000, (time.before_us or 0) // 1000)


class RunningRows:
    """A processor of rows in one epoch."""

    def __init__(
        self,
        processor: StatefulProcessor,
        columns: tuple[str, ...],
        output: pa.Schema,
        keys: tuple[str, ...],
        times: TimerValues,
    ) -> None:
        """Be ready to call it."""
        self._user, self._columns, self._schema, self._keys, self._times = processor, columns, output, keys, times
        self._make, self._key_row = row_maker(columns), Row(*keys)
        self._rows: list[tuple[Any, ...]] = []
        self._key_values: list[Key] = []
        self._out: list[Row] = []

    def take(self, rows: pa.Table) -> None:
        values = {name: rows[name].to_pylist() for name in rows.column_names}
        self._rows = list(zip(*(values[name] for name in self._columns), strict=True))
        self._key_values = list(zip(*(values[name] for name in self._keys), strict=True))

    def handle_rows(self, low: int, high: int) -> int:
        answer = self._user.handleInputRows(self._key_values[low], map(self._make, self._rows[low:high]), self._times)
        return self._put_out(answer)

    def handle_timer(self, key: Key, at_ms: int) -> int:
        shown = key_of_timer(self._key_row, key)
        return self._put_out(self._user.handleExpiredTimer(shown, self._times, ExpiredTimerInfo(at_ms)))

    def output(self) -> pa.Table:
        rows, self._out = self._out, []
        return table_of_rows(rows, self._schema)

    def close(self) -> None:
        self._user.close()

    def _put_out(self, answer: Any) -> int:
        before = len(self._out)
        self._out += _rows_in(answer)
        return len(self._out) - before


def _rows_in(answer: Iterable[Any]) -> Iterable[Row]:
    for row in answer:
        if not isinstance(row, Row):
            raise PySparkTypeError(
                errorClass="UDF_RETURN_TYPE",
                messageParameters={"expected": "iterator of Row", "actual": f"iterator of {type(row).__name__}"},
            )
        if not hasattr(row, "__fields__"):
            raise PySparkTypeError(
                errorClass="UDF_RETURN_TYPE",
                messageParameters={"expected": "Row with names, Row(n=1)", "actual": f"a Row without, {row!r}"},
            )
        yield row


def row_maker(names: Sequence[str]) -> Callable[[tuple[Any, ...]], Row]:
    """Return a function that makes a Row of values; it does what `Row(*names)(*values)` does, in half the time."""
    fields, new = list(names), tuple.__new__

    def make(values: tuple[Any, ...]) -> Row:
        row = new(Row, values)
        row.__fields__ = fields
        return row

    return make


def table_of_rows(rows: list[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as a table: by name, null where a row has no such field, as Spark reads them."""
    if not rows:
        return schema.empty_table()
    fields = list(rows[0].__fields__)
    flat = not any(pa.types.is_nested(field.type) for field in schema) and len(set(fields)) == len(fields)
    if flat and all(row.__fields__ == fields for row in rows):
        found = dict(zip(fields, zip(*rows, strict=True), strict=True))
        columns = [
            pa.array(found[each.name], each.type) if each.name in found else pa.nulls(len(rows), each.type)
            for each in schema
        ]
        return pa.table(columns, schema)
    return pa.Table.from_pylist([row.asDict(recursive=True) for row in rows], schema)
