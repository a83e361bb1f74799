"""`foreach`: each output row goes to a function, or to an object with open, process and close, on an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, Row

from evenflow.errors import InputError


def row_by_row(user: Any) -> Callable[[DataFrame, int], None]:
    """Return what hands one epoch's rows over, as Spark does: a partition has the same rows in the same order again.

    `user` is a function of a row, or has `process(row)` and perhaps `open(partition_id, epoch_id)` and `close(error)`.
    """
    if not callable(user):
        for name in ("process", "open", "close"):
            if not callable(getattr(user, name, None)) and (name == "process" or hasattr(user, name)):
                raise InputError(
                    f"writeStream: foreach takes a function of a row, or an object with a method process(row) and "
                    f"perhaps open(partition_id, epoch_id) and close(error); {name} of {user!r} is no method"
                )

    def write(frame: DataFrame, epoch: int) -> None:
        frame.rdd.mapPartitionsWithIndex(_handing_to(user, epoch)).count()

    return write


def _handing_to(user: Any, epoch: int) -> Callable[[int, Iterable[Row]], Iterator[Any]]:
    def hand_over(partition: int, rows: Iterable[Row]) -> Iterator[Any]:
        if callable(user):
            for row in rows:
                user(row)
            return iter(())
        wanted = user.open(partition, epoch) if hasattr(user, "open") else True
        error: Exception | None = None
        try:
            for row in rows if wanted else ():
                user.process(row)
        except Exception as raised:
            error = raised
            raise
        finally:
            if hasattr(user, "close"):
                user.close(error)
        return iter(())

    return hand_over
