"""What users say to `transformWithState`, and the operator that runs it."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from evenflow.errors import InputError
from evenflow.operators.processor import Processing, TimeMode
from evenflow.spark.internals import SparkProcessor, arrow_schema, schema_of_ddl
from evenflow.spark.watermarks import event_time, marked_columns

_MODES = ("append", "update")
_CLOCKS: dict[str, TimeMode] = {"none": "none", "processingtime": "processing", "eventtime": "event"}


def processing(  # noqa: PLR0913, PLR0917 - Spark's own arguments
    who: str,
    processor: Any,
    output: Any,
    mode: Any,
    time_mode: Any,
    initial: Any,
    event_column: Any,
    *,
    schema: StructType,
    in_frames: bool,
) -> Processing:
    """Return the operator of a call of Spark's; what Spark would refuse is refused."""
    if not isinstance(processor, StatefulProcessor):
        raise InputError(
            f"{who}: statefulProcessor is an object of a class of yours, a StatefulProcessor; got {processor!r}"
        )
    if not isinstance(mode, str) or mode.lower() not in _MODES:
        raise InputError(f"{who}: outputMode is Append or Update, got {mode!r}")
    clock = _CLOCKS.get(time_mode.lower()) if isinstance(time_mode, str) else None
    if clock is None:
        raise InputError(f"{who}: timeMode is None, ProcessingTime or EventTime, as text; got {time_mode!r}")
    if initial is not None:
        raise InputError(f"{who}: initialState is not there yet: use Spark's own groupBy, or begin without")
    if event_column:
        raise InputError(
            f"{who}: eventTimeColumnName is for a stateful operator that follows, and none can: leave it out"
        )
    time = event_time(who, schema, None) if clock == "event" and marked_columns(schema) else None
    put_out = arrow_schema(_struct(who, output))
    try:
        made = SparkProcessor.of(processor, clock, tuple(schema.names), put_out, in_frames=in_frames)
    except Exception as error:  # whatever the user's init() or close() raises, or pickling says against it
        raise InputError(f"{who}: {type(processor).__qualname__}.init(): {type(error).__name__}: {error}") from error
    return Processing(who, made, put_out, mode.lower(), clock, time)


def _struct(who: str, given: Any) -> StructType:
    if isinstance(given, str):
        try:
            given = schema_of_ddl(given)
        except InputError as error:
            raise InputError(f"{who}: outputStructType: {error}") from error
    if not isinstance(given, StructType) or not given.names:
        raise InputError(f"{who}: outputStructType is a StructType or a text such as 'n long', got {given!r}")
    return given
