"""What users say to `keyed(...).dedup(...)`, and the operator that runs it."""

from __future__ import annotations

from collections.abc import Sequence

from evenflow.errors import InputError
from evenflow.operators import Dedup
from evenflow.spark.columns import Chosen, StreamColumns
from evenflow.spark.durations import duration_us
from evenflow.spark.watermarks import event_time, has_mark, marked_columns

_WHO = "dedup"


def dedup_of(
    columns: StreamColumns, keys: Sequence[Chosen], within: str | None, on: str | None
) -> tuple[Dedup, list[Chosen]]:
    """Return the operator, and the columns that it needs besides the keys: all there are."""
    schema = columns.stream.schema
    time = None
    if within is not None or on is not None or marked_columns(schema):
        time = event_time(_WHO, schema, on)
        if not has_mark(schema[time]):
            raise InputError(
                f"{_WHO}: {time!r} has no watermark, so nobody knows when a key may be forgotten: call "
                f"withWatermark({time!r}, '1 hour') before keyed(), or leave on= and within= out to keep keys for ever"
            )
    within_us = None if within is None else duration_us(_WHO, "within", within)
    values = columns.wanted(_WHO, None, keys)
    of_key = {columns.folded(key.name): key.name for key in keys}
    known = {name: of_key.get(columns.folded(name), name) for name in columns.names}  # keys go by their own name
    return Dedup(tuple(known.values()), None if time is None else known[time], within_us), values
