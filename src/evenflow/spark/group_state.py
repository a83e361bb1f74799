"""What users say to `applyInPandasWithState`, and the operator that runs it."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.model.signatures import takes
from evenflow.operators.group_state import GroupStates
from evenflow.spark.internals import SparkStates, arrow_schema, schema_of_ddl

_WHO = "applyInPandasWithState"
_MODES = ("append", "update")
_TIMEOUTS = (
    GroupStateTimeout.NoTimeout,
    GroupStateTimeout.ProcessingTimeTimeout,
    GroupStateTimeout.EventTimeTimeout,
)


def group_states(  # noqa: PLR0913, PLR0917 - Spark's own arguments
    func: Any, output: Any, state: Any, mode: Any, timeout: Any, columns: tuple[str, ...]
) -> GroupStates:
    """Return the operator of a call of Spark's; what Spark would refuse is refused."""
    if not callable(func) or not takes(func, 3):
        raise InputError(f"{_WHO}: func takes (key, frames, state), got {func!r}")
    if timeout not in _TIMEOUTS:
        raise InputError(f"{_WHO}: timeoutConf is one of {', '.join(_TIMEOUTS)}, got {timeout!r}")
    if timeout != GroupStateTimeout.NoTimeout:
        raise InputError(f"{_WHO}: timeouts are not there yet: use GroupStateTimeout.NoTimeout, or Spark's own groupBy")
    if not isinstance(mode, str) or mode.lower() not in _MODES:
        raise InputError(f"{_WHO}: outputMode is append or update, got {mode!r}")
    kept = _struct("stateStructType", state)
    put_out = arrow_schema(_struct("outputStructType", output))
    return GroupStates(func, put_out, SparkStates(kept, len(put_out)), mode.lower(), columns)


def _struct(what: str, given: Any) -> StructType:
    if isinstance(given, str):
        try:
            given = schema_of_ddl(given)
        except InputError as error:
            raise InputError(f"{_WHO}: {what}: {error}") from error
    if not isinstance(given, StructType) or not given.names:
        raise InputError(f"{_WHO}: {what} is a StructType or a text such as 'n long', got {given!r}")
    return given
