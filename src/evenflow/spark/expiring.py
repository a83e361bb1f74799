"""What users say to `agg(...).expire(...)`: the operator, and the column with the time that it needs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from evenflow.errors import InputError
from evenflow.operators import Aggregate, ExpiringAggregate
from evenflow.spark.columns import quoted
from evenflow.spark.durations import duration_us
from evenflow.spark.watermarks import event_time, has_mark

_WHO = "expire"


def expiring(
    stream: DataFrame, taken: Collection[str], operator: Any, after: str, on: str | None
) -> tuple[ExpiringAggregate, tuple[Column, ...]]:
    """Return the operator that lets keys go, and the columns to select besides, under names that are not `taken`."""
    if not isinstance(operator, Aggregate):
        raise InputError(f"{_WHO}: it comes once, after agg(...) of running aggregates; here are {operator}")
    after_us = duration_us(_WHO, "after", after)
    if on is None:
        return ExpiringAggregate(operator, after_us), ()
    time = event_time(_WHO, stream.schema, on)
    if not has_mark(stream.schema[time]):
        raise InputError(
            f"{_WHO}: {time!r} has no watermark, so nobody knows how late it is: call withWatermark({time!r}, '1 hour')"
            " before keyed(), or leave on= out to go by processing time"
        )
    name = time
    while name in taken:
        name = quoted(name)  # lanes know columns by name, and nobody else sees this one
    return ExpiringAggregate(operator, after_us, name), (F.col(quoted(time)).alias(name),)
