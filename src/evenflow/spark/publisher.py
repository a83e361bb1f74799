"""The publisher: brings what is committed to the sink, in the order of epochs, each once.

A sink may hang, and so may the disk. Nobody waits for it but the epochs that are accepted later, once `max_lag` are not
published: neither the sink nor a file is touched while the lock is held. The query can end without it, and whatever the
sink does later does not count: the epoch is published again after a restart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from evenflow.lane.faults import Faults
from evenflow.log import QueryLog, Slow
from evenflow.model import Epoch
from evenflow.spark.progress import Progress
from evenflow.spark.sink import Sink
from evenflow.state import Checkpoint, FileRef

_SLOW_S = 10.0  # what is told of: the next epochs wait for the sink
_POLL_S = 0.2  # how often a wait looks at the stop flag


@dataclass
class Publisher:
    """Publishes in a thread of its own; what it shares with the engine is guarded by the lock of `changed`."""

    checkpoint: Checkpoint
    sink: Sink
    progress: Progress
    log: QueryLog
    faults: Faults
    changed: threading.Condition
    reading: threading.Lock  # files that are read must not be swept
    stop: threading.Event
    before: Callable[[int], None] = lambda _epoch: None  # in the publishing thread, before each epoch
    up_to: Epoch = -1  # what lanes have done up to here is known to all who look
    _given_up: bool = False
    _slow: Slow = field(init=False)

    def __post_init__(self) -> None:
        """Watch how long the sink takes."""
        self.up_to = self.checkpoint.frontier
        self._slow = Slow(self.log, "publishing an epoch", _SLOW_S)

    def keep_publishing(self) -> None:
        """Publish what comes until the query stops."""
        while not self.stop.is_set():
            with self.changed:
                self.changed.wait_for(lambda: self._ready() or self.stop.is_set(), _POLL_S)
            self.publish_ready()

    def publish_ready(self) -> bool:
        """Bring committed outputs to the sink, in the order of their epochs; return whether there were any."""
        with self.changed:
            ready = self._ready()
        for epoch, files in ready:
            if self.stop.is_set():
                return True
            self.checkpoint.refuse_if_taken_over()
            self._bring(epoch, files)
            self.faults.reach("driver.during-publish", epoch=epoch)
            if self._given_up:
                return True
            self.checkpoint.publish(epoch, partial(self._tell, epoch))
            self._sweep()
        return bool(ready)

    def _ready(self) -> list[tuple[Epoch, tuple[FileRef, ...]]]:
        """Return the epochs to publish, oldest first, with their outputs."""
        return [(epoch, files) for epoch, files in self.checkpoint.recover().unpublished if epoch <= self.up_to]

    def _tell(self, epoch: int) -> None:
        """Let all know that an epoch is published; under the lock, with the checkpoint's own account of it."""
        self.progress.published(epoch, self.checkpoint.unpublished)
        self.changed.notify_all()

    def _sweep(self) -> None:
        """Remove what nobody needs any more, unless files are being read; nobody waits for it."""
        if self.reading.acquire(blocking=False):
            try:
                self.checkpoint.sweep()
            finally:
                self.reading.release()

    def give_up(self, patience_s: float) -> None:
        """Let nothing count any more that the sink may still be at."""
        held = self.changed.acquire(timeout=patience_s)  # whoever holds it longer hangs, and looks at the flag after
        self._given_up = True
        if held:
            self.changed.release()

    def _bring(self, epoch: int, files: Sequence[FileRef]) -> None:
        began_s = time.monotonic()
        try:
            self.before(epoch)
            self.sink.publish(epoch, files)
        except Exception as error:
            error.add_note(f"This was when epoch {epoch} was published; after a restart it is published again.")
            raise
        self._slow.took(time.monotonic() - began_s, epoch)
