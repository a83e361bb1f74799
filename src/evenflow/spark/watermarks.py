"""Event time is not there yet: a stream with a watermark is refused, since its promise could not be kept."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from evenflow.errors import InputError

_MARK = "spark.watermarkDelayMs"  # in the metadata of the column, by withWatermark


def refuse_watermark(stream: DataFrame) -> None:
    """Refuse a stream one of whose columns carries a watermark."""
    for path in _marked(stream.schema):
        column = path[0]
        drop = f".withMetadata({column!r}, {{}})" if len(path) == 1 else f" before it becomes part of {column!r}"
        raise InputError(
            f"keyed: column {'.'.join(path)!r} has a watermark (withWatermark), and event time is not there yet: late "
            "rows would count, and no state would be dropped. Remove withWatermark; if one of Spark's own operators "
            f"before keyed() needs it, take the mark off the column after that operator: df{drop}"
        )


def _marked(kind: DataType) -> Iterator[tuple[str, ...]]:
    """Yield the paths to all columns with a watermark."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            if _MARK in (field.metadata or {}):
                yield (field.name,)
            yield from ((field.name, *below) for below in _marked(field.dataType))
    elif isinstance(kind, ArrayType):
        yield from _marked(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _marked(kind.keyType)
        yield from _marked(kind.valueType)
