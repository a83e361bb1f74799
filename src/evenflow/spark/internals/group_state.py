"""Spark's own `GroupState`, made without Spark's workers.

The class is public; its constructor and its fields are what Spark's own Python worker uses, and not promised.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkRuntimeError, PySparkTypeError
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

from evenflow.model import EpochTime

_NONE = GroupState.NO_TIMESTAMP


@dataclass(frozen=True)
class SparkStates:
    """Makes Spark's `GroupState` of stored bytes: the state's fields, as Spark's `toInternal` has them."""

    kept: StructType
    columns: int

    @property
    def schema(self) -> str:
        return self.kept.simpleString()

    def of(self, stored: bytes | None, time: EpochTime) -> SparkState:
        has_watermark = time.before_us is not None
        state = GroupState(
            optionalValue=None if stored is None else self._value(stored),  # type: ignore[arg-type]
            batchProcessingTimeMs=time.processing_us // 1000,
            eventTimeWatermarkMs=_NONE if time.before_us is None else time.before_us // 1000,
            timeoutConf=GroupStateTimeout.NoTimeout,
            hasTimedOut=False,
            watermarkPresent=has_watermark,
            defined=stored is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=_NONE,
            keyAsUnsafe=b"",
            valueSchema=self.kept,
        )
        return SparkState(state, self.kept)

    def shown(self, stored: bytes) -> str:
        return str(tuple(self._value(stored)))

    def _value(self, stored: bytes) -> Any:
        return self.kept.fromInternal(pickle.loads(stored))  # noqa: S301 - of our own checkpoint

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
            if len(frame.columns) != self.columns and not (len(frame.columns) == 0 and frame.empty):
                raise PySparkRuntimeError(
                    errorClass="RESULT_COLUMN_SCHEMA_MISMATCH",
                    messageParameters={"expected": str(self.columns), "actual": str(len(frame.columns))},
                )
            yield frame


@dataclass
class SparkState:
    """The state of one key during a call."""

    given: GroupState
    kept: StructType

    @property
    def is_changed(self) -> bool:
        return bool(self.given._updated or self.given._removed)  # noqa: SLF001 - as Spark's worker asks

    def after(self) -> bytes | None:
        if not self.given.exists:
            return None
        value = self.given.get
        if len(value) != len(self.kept):
            raise ValueError(
                f"state.update: expected {len(self.kept)} values, {self.kept.simpleString()}; got {value!r}"
            )
        return pickle.dumps(self.kept.toInternal(value), protocol=pickle.HIGHEST_PROTOCOL)


def _wrong(expected: str, actual: str) -> PySparkTypeError:
    return PySparkTypeError(errorClass="UDF_RETURN_TYPE", messageParameters={"expected": expected, "actual": actual})
