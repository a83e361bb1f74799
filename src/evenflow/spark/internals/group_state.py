"""Spark's own `GroupState`, made without Spark's workers.

The class is public; its constructor and its fields are what Spark's own Python worker uses, and not promised.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.errors import PySparkRuntimeError, PySparkTypeError
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StructType

from evenflow.model import EpochTime
from evenflow.operators.group_held import NOTHING, Entry

_NONE = GroupState.NO_TIMESTAMP


@dataclass(frozen=True)
class SparkStates:
    """Makes Spark's `GroupState` of stored bytes: the state's fields, as Spark's `toInternal` has them."""

    kept: StructType
    columns: int  # of the output
    timeout: str

    @property
    def schema(self) -> str:
        return self.kept.simpleString()

    def at(self, time: EpochTime) -> SparkEpochStates:
        return SparkEpochStates(self, time)

    def shown(self, entry: Entry) -> str:
        state = None if entry.state is None else dict(zip(self.kept.names, self.value(entry.state), strict=True))
        both = state if entry.timeout_ms is None else {"state": state, "timeout_ms": entry.timeout_ms}
        return msgspec.json.encode(both, enc_hook=str).decode()

    def value(self, stored: bytes) -> Any:
        """Return the fields of a state."""
        return self.kept.fromInternal(pickle.loads(stored))  # noqa: S301 - of our own checkpoint


class SparkEpochStates:
    """State objects of one epoch: a call sees the watermark of before it."""

    def __init__(self, states: SparkStates, time: EpochTime) -> None:
        """Work out what is the same for all calls."""
        self._states, self._kept, self._columns = states, states.kept, states.columns
        self._is_plain = not any(field.dataType.needConversion() for field in states.kept.fields)
        self._now_ms = time.processing_us // 1000
        self._watermark_ms = _NONE if time.before_us is None else time.before_us // 1000
        self._has_watermark = time.before_us is not None

    def given(self, stored: bytes | None, *, timed_out: bool) -> GroupState:
        value: Any = None
        if stored is not None:
            value = pickle.loads(stored) if self._is_plain else self._states.value(stored)  # noqa: S301 - our own
        return GroupState(
            value,
            self._now_ms,
            self._watermark_ms,
            self._states.timeout,
            timed_out,
            self._has_watermark,
            stored is not None,
            False,  # noqa: FBT003 - not updated
            False,  # noqa: FBT003 - not removed
            _NONE,  # no call is told of the timeout that it had
            b"",
            self._kept,
        )

    def left(self, given: GroupState) -> Entry | None:
        timeout_ms: int | None = given._timeout_timestamp  # noqa: SLF001 - as Spark's worker asks
        if timeout_ms == _NONE:
            if not (given._updated or given._removed):  # noqa: SLF001 - likewise
                return None
            timeout_ms = None
        if given.exists:
            return Entry(self._stored(given.get), None if timeout_ms is None else int(timeout_ms))
        return NOTHING if timeout_ms is None else Entry(None, int(timeout_ms))

    def _stored(self, value: tuple[Any, ...]) -> bytes:
        if len(value) != len(self._kept):
            raise ValueError(
                f"state.update: expected {len(self._kept)} values, {self._kept.simpleString()}; got {value!r}"
            )
        plain = value if self._is_plain else self._kept.toInternal(value)
        return pickle.dumps(plain, protocol=pickle.HIGHEST_PROTOCOL)

    def frames(self, answer: Any) -> Iterator[Any]:
        """Yield the frames that a call has returned, or what Spark says against it."""
        import pandas as pd  # only who runs user code on frames needs it

        if isinstance(answer, pd.DataFrame):
            raise _wrong("iterable of pandas.DataFrame", type(answer).__name__)
        try:
            found = iter(answer)
        except TypeError:
            raise _wrong("iterable", type(answer).__name__) from None
        for frame in found:
            if not isinstance(frame, pd.DataFrame):
                raise _wrong("iterator of pandas.DataFrame", f"iterator of {type(frame).__name__}")
            if len(frame.columns) != self._columns and not (len(frame.columns) == 0 and frame.empty):
                raise PySparkRuntimeError(
                    errorClass="RESULT_COLUMN_SCHEMA_MISMATCH",
                    messageParameters={"expected": str(self._columns), "actual": str(len(frame.columns))},
                )
            yield frame


def _wrong(expected: str, actual: str) -> PySparkTypeError:
    return PySparkTypeError(errorClass="UDF_RETURN_TYPE", messageParameters={"expected": expected, "actual": actual})
