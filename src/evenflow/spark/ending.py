"""How Spark's query underneath ends: with our error, told once and everywhere, or stopped in good order, without any.

Spark's thread may be in our hands then (it has brought a batch and waits for lanes). It must not come back before Spark
knows that the query is stopped, else whatever we raise is an error of its own; and it must never come back as if all
were well, for Spark would take the rows of that batch for delivered::

    tell Spark of the error, if there is one ──▶ stop Spark's query, in a thread ──▶ it knows ──▶ give its thread back
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from evenflow.errors import EvenflowError
from evenflow.spark.internals import InterruptedBySpark, carry_error

_LOOK_S = 0.2  # how often to look whether someone has stopped Spark's query
_SOON_S = 0.01
_HAS_LOOKED = ("Waiting for data to arrive", "Waiting for next trigger", "Stopped")  # what Spark says after that


class SparkRun:
    """Spark's part of a running query."""

    def __init__(self, writer: DataStreamWriter, on_batch: Callable[[DataFrame, int], None]) -> None:
        """Start Spark's query; it brings its batches to `on_batch`."""
        self._on_batch = on_batch
        self._in_hand = threading.Event()
        self._may_go = threading.Event()
        self._stop_failed: Exception | None = None
        self.query: StreamingQuery = writer.foreachBatch(self._take).start()
        self.run_id = str(self.query.runId)

    def _take(self, batch: DataFrame, epoch: int) -> None:
        """Take a batch from Spark's thread; whatever goes wrong is told to Spark by `end`, not by this thread."""
        self._in_hand.set()
        try:
            self._on_batch(batch, epoch)
        except BaseException:  # noqa: BLE001 - the engine keeps it
            self._may_go.wait()
            raise InterruptedBySpark from None
        finally:
            self._in_hand.clear()

    @property
    def is_active(self) -> bool:
        """Whether Spark's query runs: it was not stopped, has not failed and is not at the end of its input."""
        return bool(self.query.isActive)

    @property
    def rests(self) -> bool:
        """Whether Spark has found no new rows since its last batch; not while it is looking."""
        status = self.query.status
        return status["message"] in _HAS_LOOKED and not status["isDataAvailable"]

    @property
    def was_stopped(self) -> bool:
        """Whether someone has stopped Spark's query while it had a batch to hand over: it has not come to its end."""
        return not self.is_active and self._in_hand.is_set()

    def wait(self) -> bool:
        """Wait a moment for the end of Spark's query; return whether it has come."""
        try:
            return bool(self.query.awaitTermination(_LOOK_S))  # type: ignore[arg-type]  # it takes parts of seconds
        except Exception:  # noqa: BLE001 - whoever asks for Spark's exception gets it
            return True

    def end(self, error: BaseException | None, patience_s: float) -> bool:
        """Stop Spark's query, with `error` as what has ended it; return whether its thread has ended.

        Spark waits for its thread for as long as it takes, or for `spark.sql.streaming.stopTimeout`. While a batch is
        in our hands, which a disk may hold up for ever, that is `patience_s` at most.
        """
        if error is not None and self.query.exception() is None:
            carry_error(self.query, told(error))
        stopping = threading.Thread(target=self._stop, name="evenflow-stop", daemon=True)
        stopping.start()
        while stopping.is_alive() and self.is_active:
            stopping.join(_SOON_S)
        self._may_go.set()
        deadline = time.monotonic() + patience_s
        while stopping.is_alive() and not (self._in_hand.is_set() and time.monotonic() > deadline):
            stopping.join(_LOOK_S)
        return not stopping.is_alive()

    def refuse_if_alive(self) -> None:
        """Raise what Spark has said if its thread did not end within `spark.sql.streaming.stopTimeout`."""
        if self._stop_failed is not None:
            raise self._stop_failed

    def _stop(self) -> None:
        try:
            self.query.stop()
        except Exception as error:  # noqa: BLE001 - raised again by the query's stop
            self._stop_failed = error


def told(error: BaseException) -> str:
    """Return an error in words: first what it is, then where in the user's code it came from."""
    headline = f"{type(error).__name__}: {error}"
    if isinstance(error, EvenflowError):  # says all itself; what lanes have to add is in its notes
        return "\n".join([headline, *getattr(error, "__notes__", ())])
    return f"{headline}\n{''.join(traceback.format_exception(error))}"
