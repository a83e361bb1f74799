"""Spans of time as users write them, '10 minutes', in microseconds."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException

from evenflow.errors import InputError
from evenflow.spark.internals import interval_us


def duration_us(who: str, what: str, given: Any) -> int:
    """Return how long a span of time is; `who` and `what` stand in messages."""
    wanted = f"{who}: {what} is a span of time such as '10 minutes' or '7 days', got {given!r}"
    if not isinstance(given, str):
        raise InputError(wanted)
    try:
        found = interval_us(given)
    except PySparkException as error:
        raise InputError(wanted) from error
    if found <= 0:  # months have no fixed length and count for nothing
        raise InputError(f"{wanted}: it must be more than none, and months have no fixed length")
    return found
