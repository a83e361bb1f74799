"""Runs Spark's `StatefulProcessor` of pandas frames: what Spark's workers do for `transformWithStateInPandas`.

These make frames of Python values, so that integers are of 64 bits, whatever the column's type, and floats as well. A
column of integers becomes one of floats where the key has nulls in it; in Spark, also where a key beside it has.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkValueError
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues
from pyspark.sql.types import Row

from evenflow.operators.frames import Frames
from evenflow.operators.key_groups import Key, plain_value

if TYPE_CHECKING:
    import pandas as pd

_WIDE = {"i": "int64", "u": "int64", "f": "float64"}


class RunningFrames:
    """A processor of frames in one epoch."""

    def __init__(
        self,
        processor: StatefulProcessor,
        columns: tuple[str, ...],
        keys: tuple[str, ...],
        times: TimerValues,
        frames: Frames,
    ) -> None:
        """Be ready to call it."""
        import pandas as pd  # only who takes frames needs it

        self._user, self._columns, self._keys, self._times = processor, list(columns), keys, times
        self._pandas, self._frames, self._key_row = pd, frames, Row(*keys)
        self._whole = pd.DataFrame()
        self._nullable: list[str] = []
        self._key_values: list[Key] = []
        self._out: list[pd.DataFrame] = []

    def take(self, rows: pa.Table) -> None:
        frame = self._frames.frame(rows)
        self._key_values = list(zip(*(self._key_column(frame[name]) for name in self._keys), strict=True))
        wide = {
            name: _WIDE[kind.kind]
            for name, kind in frame.dtypes.items()
            if getattr(kind, "kind", "") in _WIDE and not _is_nullable(kind)
        }
        self._whole = frame.astype(wide)[self._columns]
        self._nullable = [name for name in self._columns if _is_nullable(self._whole[name].dtype)]

    def handle_rows(self, low: int, high: int) -> int:
        frame = self._whole.iloc[low:high].reset_index(drop=True)
        for name in self._nullable:
            frame[name] = frame[name].astype("float64" if frame[name].isna().any() else "int64")
        return self._put_out(self._user.handleInputRows(self._key_values[low], iter((frame,)), self._times))

    def handle_timer(self, key: Key, at_ms: int) -> int:
        shown = key_of_timer(self._key_row, key)
        return self._put_out(self._user.handleExpiredTimer(shown, self._times, ExpiredTimerInfo(at_ms)))

    def output(self) -> pa.Table:
        """Return all frames as one table: one conversion for those with the same columns, as nearly all are."""
        frames, self._out = self._out, []
        tables, at = list[pa.Table](), 0
        while at < len(frames):
            first = at
            while at < len(frames) and frames[at].columns.equals(frames[first].columns):
                at += 1
            tables.append(self._frames.table(self._pandas.concat(frames[first:at], ignore_index=True)))
        return pa.concat_tables(tables) if tables else self._frames.table(self._pandas.DataFrame())

    def close(self) -> None:
        self._user.close()

    def _put_out(self, answer: Any) -> int:
        rows = 0
        for frame in answer:
            if not isinstance(frame, self._pandas.DataFrame):
                raise PySparkValueError(f"expected an iterator of pandas.DataFrame, got one of {type(frame).__name__}")
            if len(frame):
                self._out.append(frame)
                rows += len(frame)
        return rows

    def _key_column(self, values: pd.Series) -> list[Any]:
        missing = self._pandas.NA
        return [float("nan") if value is missing else value for value in values.tolist()]


def _is_nullable(kind: Any) -> bool:
    """Tell whether a column is of pandas' integers, which know nulls."""
    return type(kind).__module__.startswith("pandas.core.arrays.integer")


def key_of_timer(make: Row, key: Key) -> Row:
    """Return the key of a timer as Spark hands it over: with names, and instants in the local time zone."""
    made: Row = make(*(_in_local_time(plain_value(value)) for value in key))
    return made


def _in_local_time(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    return value
