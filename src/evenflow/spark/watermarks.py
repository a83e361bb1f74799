"""The event time of a stream: columns with a watermark, by `withWatermark`."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from evenflow.errors import InputError

_MARK = "spark.watermarkDelayMs"  # in the metadata of the column


def has_mark(field: StructField) -> bool:
    """Tell whether a column carries a watermark."""
    return _MARK in (field.metadata or {})


def marked_columns(schema: StructType) -> list[str]:
    """Return the names of the columns that carry a watermark."""
    return [field.name for field in schema.fields if has_mark(field)]


def runs_without_rows(spark: SparkSession) -> bool:
    """Tell whether Spark runs a batch without rows once the watermark has moved and no rows come; so do we then."""
    return spark.conf.get("spark.sql.streaming.noDataMicroBatches.enabled", "true") == "true"


def event_time(who: str, schema: StructType, on: str | None) -> str:
    """Return the column that says when a row happened: `on`, or else the one with a watermark."""
    marked = [name for name in marked_columns(schema) if _is_instant(schema[name])]
    if on is None:
        if len(marked) != 1:
            several = f"several have a watermark, {', '.join(marked)}" if marked else "none has a watermark"
            raise InputError(f"{who}: say which column has the event time, on='...': {several}")
        return marked[0]
    if on not in schema.names:
        raise InputError(f"{who}: on names a column, the stream has {', '.join(schema.names)}; got {on!r}")
    if not _is_instant(schema[on]):
        kind = schema[on].dataType.simpleString()
        raise InputError(
            f"{who}: on names a timestamp, and {on!r} is a {kind}: cast it, F.col({on!r}).cast('timestamp')"
        )
    return on


def _is_instant(field: StructField) -> bool:
    return isinstance(field.dataType, TimestampType | TimestampNTZType)
