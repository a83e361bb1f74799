"""Runs any operator batch by batch in this process: no Spark, no lanes, no files; time is what the test says."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import InputError
from evenflow.model import Due, EpochTime
from evenflow.model.slots import IntArray, slots_of_hashes
from evenflow.operators import HASH, Apply, ApplyKeys, Folded, KeyOperator, Operator, Resident, SlotOperator
from evenflow.operators.arrays import fitted
from evenflow.operators.ddl import schema_of_text
from evenflow.operators.key_hash import hashes_of

if TYPE_CHECKING:
    import pandas as pd

SLOTS = 8
_MICROSECOND = timedelta(microseconds=1)

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pd.DataFrame | Sequence[dict[str, Any]]"
Time: TypeAlias = datetime | str | int  # text is ISO 8601; without a zone it is UTC; a number: microseconds since 1970


@dataclass(frozen=True)
class Batch:
    """The rows of one epoch and its time; without rows it is a tick.

    `watermark` is that of the input with these rows, `processing_time` when they were accepted; None: as before. Both
    begin unknown: no watermark, and 1970.
    """

    rows: Rows | None = None
    watermark: Time | None = None
    processing_time: Time | None = None


@dataclass(frozen=True)
class Given:
    """The rows of one epoch as a lane gets them: sorted by slot, with the hash of the key; and its time."""

    rows: pa.Table
    slots: IntArray
    time: EpochTime

    def of(self, slots: Iterable[int]) -> Given:
        """Return the rows of some slots."""
        chosen = np.isin(self.slots, list(slots))
        return Given(self.rows.filter(pa.array(chosen)), self.slots[chosen], self.time)


@dataclass(frozen=True)
class BatchRun:
    """What has come of some batches.

    `outputs` and `changes` have a table per batch: what was put out, and the state rows that were written. `state` is
    what is kept in the end, as `query.state()` shows it, `due` when something is to happen next.
    """

    outputs: list[pa.Table]
    changes: list[pa.Table]
    state: pa.Table
    due: Due | None

    def rows(self, batch: int | None = None) -> list[dict[str, Any]]:
        """Return the rows that a batch put out, or all of them, as dictionaries."""
        tables = self.outputs if batch is None else [self.outputs[batch]]
        return [row for table in tables for row in table.to_pylist()]


def run_batches(  # noqa: PLR0913 - all but two by name, all with defaults
    operator: Any,
    batches: Iterable[Rows | Batch | None],
    *,
    keys: str | Sequence[str],
    schema: pa.Schema | str | None = None,
    watermark: tuple[str, timedelta] | None = None,
    slots: int = SLOTS,
) -> BatchRun:
    """Run an operator over batches of rows, one after the other, as lanes would; return what it put out and keeps.

    `operator` is what `ef.keyed(...).apply()` takes, or any operator of evenflow's. A batch is a table, a pandas frame
    or a list of dictionaries; None, or `Batch()`, for one without rows; `Batch(rows, watermark=..., ...)` to say what
    time it is. `schema` names the columns where the first rows do not show their types. `watermark`, such as
    ``("at", timedelta(seconds=10))``, derives the watermark from a column, as `df.withWatermark` does.
    """
    plan = Plan.of(operator, batches, keys=keys, schema=schema, watermark=watermark, slots=slots)
    resident, every = plan.opened(), range(slots)
    folded = [step(resident, given, every) for given in plan.given]
    empty = plan.operator.output_schema(plan.schema, plan.keys).empty_table()
    nothing = plan.operator.state_schema(plan.schema, plan.keys).empty_table()
    return BatchRun(
        [empty if each is None else each.output for each in folded],
        [nothing if each is None else each.changes for each in folded],
        resident.view(every),
        resident.due(every),
    )


def step(resident: Resident, given: Given, slots: Sequence[int]) -> Folded | None:
    """Fold one epoch and fire what it makes due, as a lane does; None if there was nothing to do."""
    folded = resident.fold(given.rows, given.slots, given.time) if given.rows.num_rows else None
    fired = resident.fire(slots, given.time)
    return folded if fired is None else fired if folded is None else folded.then(fired)


@dataclass(frozen=True)
class Plan:
    """An operator with all that it is to be given."""

    operator: Operator
    schema: pa.Schema
    keys: tuple[str, ...]
    slots: int
    given: tuple[Given, ...]

    @classmethod
    def of(  # noqa: PLR0913 - the arguments of `run_batches`
        cls,
        operator: Any,
        batches: Iterable[Rows | Batch | None],
        *,
        keys: str | Sequence[str],
        schema: pa.Schema | str | None,
        watermark: tuple[str, timedelta] | None,
        slots: int,
    ) -> Plan:
        """Bring what a test says into the form in which lanes get it."""
        listed = [each if isinstance(each, Batch) else Batch(each) for each in batches]
        tables = [None if each.rows is None else table_of(each.rows) for each in listed]
        columns: pa.Schema | None = schema_of_text(schema) if isinstance(schema, str) else schema
        if columns is None:
            columns = next((table.schema for table in tables if table is not None and len(table.schema)), None)
        if columns is None:
            raise InputError("run_batches: no batch has rows: say which columns there are, schema='user string, ...'")
        names = (keys,) if isinstance(keys, str) else tuple(keys)
        wrapped = operator_of(operator)
        hashed = wrapped.needs_hash(columns, names)  # refuses keys that are not there
        rows = [fitted(columns.empty_table() if table is None else table, columns) for table in tables]
        times = list(_times(listed, rows, watermark))
        given = tuple(_given(*each, names, slots, hashed=hashed) for each in zip(rows, times, strict=True))
        return cls(wrapped, columns, names, slots, given)

    def opened(self, operator: Operator | None = None) -> Resident:
        """Return an empty state."""
        return (operator or self.operator).open(self.schema, self.keys, self.slots)


def operator_of(given: Any) -> Operator:
    """Return what a lane runs for an operator as users write it."""
    if isinstance(given, SlotOperator | KeyOperator):
        for attribute in ("output", "state"):
            if isinstance(declared := getattr(given, attribute, None), str):
                setattr(given, attribute, schema_of_text(declared))
        return Apply(given) if isinstance(given, SlotOperator) else ApplyKeys(given)
    if not hasattr(given, "open") or isinstance(given, type):
        made = " (the class itself: call it)" if isinstance(given, type) else ""
        raise InputError(f"run_batches: expected an operator such as apply() takes, got {given!r}{made}")
    operator: Operator = given
    return operator


def table_of(rows: Any) -> pa.Table:
    """Return rows in whatever form as a table; times without a zone are UTC, as in a session of that zone."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    pandas = sys.modules.get("pandas")  # who has a frame has imported it
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata()
    elif isinstance(rows, Sequence) and all(isinstance(row, dict) for row in rows):
        table = pa.Table.from_pylist(list(rows))
    else:
        raise InputError(
            "run_batches: a batch is a table, a pandas frame, a list of dictionaries or None, got "
            f"{type(rows).__name__}"
        )
    return table.cast(pa.schema([pa.field(each.name, _as_in_spark(each.type), each.nullable) for each in table.schema]))


def _as_in_spark(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    return pa.string() if pa.types.is_large_string(kind) else kind


def _given(rows: pa.Table, time: EpochTime, keys: tuple[str, ...], slots: int, *, hashed: bool) -> Given:
    hashes = hashes_of(rows, keys)
    at = slots_of_hashes(hashes, slots)
    order = np.argsort(at, kind="stable")
    ordered = rows.take(pa.array(order)).combine_chunks()
    return Given(ordered.append_column(HASH, pa.array(hashes[order])) if hashed else ordered, at[order], time)


def _times(
    batches: Sequence[Batch], rows: Sequence[pa.Table], watermark: tuple[str, timedelta] | None
) -> Iterator[EpochTime]:
    """Yield the time of each epoch: what was said, or follows from the rows; else that of the one before."""
    now: int | None = None
    before: int | None = None
    processing = 0
    for number, (batch, table) in enumerate(zip(batches, rows, strict=True)):
        late, before = before, now
        if watermark is not None and (latest := _latest(table, watermark[0])) is not None:
            reached = latest - watermark[1] // _MICROSECOND
            now = reached if now is None else max(now, reached)
        if batch.watermark is not None:
            now = _microseconds(batch.watermark)
        if batch.processing_time is not None:
            processing = _microseconds(batch.processing_time)
        yield EpochTime(number, now, processing, before, late)


def _latest(rows: pa.Table, column: str) -> int | None:
    if column not in rows.column_names:
        raise InputError(
            f"run_batches: no column {column!r} for the watermark; the rows have {', '.join(rows.column_names)}"
        )
    latest: int | None = pc.max(rows[column].cast(pa.timestamp("us", "UTC")).cast(pa.int64())).as_py()
    return latest


def _microseconds(time: Time) -> int:
    if isinstance(time, int):
        return time
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND
