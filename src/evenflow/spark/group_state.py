"""What users say to `applyInPandasWithState`, and the operator that runs it."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.model.signatures import takes
from evenflow.operators.group_state import GroupStates, Timeout
from evenflow.spark.internals import SparkStates, arrow_schema, schema_of_ddl
from evenflow.spark.watermarks import event_time, marked_columns

_WHO = "applyInPandasWithState"
_MODES = ("append", "update")
_TIMEOUTS: dict[str, Timeout] = {
    GroupStateTimeout.NoTimeout: "none",
    GroupStateTimeout.ProcessingTimeTimeout: "processing",
    GroupStateTimeout.EventTimeTimeout: "event",
}


def group_states(  # noqa: PLR0913, PLR0917 - Spark's own arguments
    func: Any, output: Any, state: Any, mode: Any, timeout: Any, stream: StructType
) -> GroupStates:
    """Return the operator of a call of Spark's; what Spark would refuse is refused."""
    if not callable(func) or not takes(func, 3):
        raise InputError(f"{_WHO}: func takes (key, frames, state), got {func!r}")
    if timeout not in _TIMEOUTS:
        raise InputError(f"{_WHO}: timeoutConf is one of {', '.join(_TIMEOUTS)}, got {timeout!r}")
    if not isinstance(mode, str) or mode.lower() not in _MODES:
        raise InputError(f"{_WHO}: outputMode is append or update, got {mode!r}")
    kept = _struct("stateStructType", state)
    put_out = arrow_schema(_struct("outputStructType", output))
    states = SparkStates(kept, len(put_out), timeout)
    late_by = _event_time(stream) if timeout == GroupStateTimeout.EventTimeTimeout else None
    return GroupStates(func, put_out, states, mode.lower(), tuple(stream.names), _TIMEOUTS[timeout], late_by)


def _event_time(stream: StructType) -> str:
    """Return the column by which rows are late."""
    marked = marked_columns(stream)
    if not marked:
        raise InputError(f"{_WHO}: EventTimeTimeout needs a watermark: df.withWatermark('at', '10 seconds')")
    return event_time(_WHO, stream, None)


def _struct(what: str, given: Any) -> StructType:
    if isinstance(given, str):
        try:
            given = schema_of_ddl(given)
        except InputError as error:
            raise InputError(f"{_WHO}: {what}: {error}") from error
    if not isinstance(given, StructType) or not given.names:
        raise InputError(f"{_WHO}: {what} is a StructType or a text such as 'n long', got {given!r}")
    return given
