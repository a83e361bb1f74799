"""The Spark jobs in which lanes run: one job of one task per lane, submitted again until the lane is retired.

Spark retries a task a few times; when its patience ends, only that lane's job fails and is submitted again: its next
*incarnation*. The job of a lane that is lost without having ended is cancelled: it would hold its task slot for ever,
and the next incarnation needs one. Spark kills a worker that does not end `spark.python.task.killTimeout` after that.
If the whole executor is stopped or cut off, the slot comes free only when Spark gives up the executor.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from evenflow.log import QueryLog

_RESUBMIT_PAUSE_S = 0.2
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")

lanes_running: Counter[str] = Counter()  # by job group: a lane holds its task slot for as long as it lives


class LaneJobs:
    """Keeps a job running for each lane."""

    def __init__(
        self,
        context: SparkContext,
        task_of: Callable[[int, int], Callable[..., Any]],
        group: str,
        log: QueryLog,
        prepare_thread: Callable[[], None] = lambda: None,
    ) -> None:
        """Run `task_of(lane, incarnation)` in each lane's task; no lane is started yet."""
        self._context, self._task_of, self._group, self._log = context, task_of, group, log
        self._prepare_thread = prepare_thread
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failed: dict[int, tuple[int, str]] = {}  # how often in a row, and what Spark said last
        self._retired: dict[int, threading.Event] = {}  # of each lane's present life: a number may be used again
        self._incarnations = itertools.count()

    def start(self, lane: int) -> None:
        """Submit the job of one lane."""
        retired = threading.Event()
        name = f"evenflow-lane-{lane}"
        thread = threading.Thread(target=self._keep_running, args=(lane, retired), name=name, daemon=True)
        with self._lock:
            self._retired[lane] = retired
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            lanes_running[self._group] += 1
            thread.start()

    def retire(self, lane: int) -> None:
        """Do not start a lane again; its task is to be ended by who knows it."""
        self.let_rest(lane)
        lanes_running[self._group] -= 1

    def let_rest(self, lane: int) -> None:
        """Do not start a lane again that holds its place all the same: the query is about to end."""
        with self._lock:
            self._retired[lane].set()

    def is_over(self, lane: int) -> bool:
        """Return whether a lane is not to run any more."""
        with self._lock:
            return self._stopping.is_set() or (lane in self._retired and self._retired[lane].is_set())

    def cancel(self, lane: int, incarnation: int) -> None:
        """Cancel a job whose lane is lost, so that its task slot comes free; does not wait for Spark."""
        tag = self._tag(lane, incarnation)
        threading.Thread(
            target=self._context.cancelJobsWithTag, args=(tag,), name=f"evenflow-cancel-{lane}", daemon=True
        ).start()

    def came_up(self, lane: int) -> None:
        """Forget how often a lane's job has failed."""
        with self._lock:
            self._failed.pop(lane, None)

    def last_failure(self, lane: int) -> str | None:
        """Return what Spark said when the lane's job failed last."""
        with self._lock:
            return self._failed.get(lane, (0, None))[1]

    def failures_in_a_row(self, lane: int) -> int:
        """Return how often the lane's job has failed since the lane came up last."""
        with self._lock:
            return self._failed.get(lane, (0, ""))[0]

    def missing_module(self, lane: int) -> str | None:
        """Return the module that is not there where the lane's job ran, if that is what it failed of."""
        found = _MISSING.search(self.last_failure(lane) or "")
        return found[1] if found else None

    def submit_no_more(self) -> None:
        """Start no lane again."""
        self._stopping.set()

    def end(self, patience_s: float) -> None:
        """Wait for the jobs to end; cancel those that do not in time."""
        with self._lock:
            threads = list(self._threads)
        deadline = time.monotonic() + patience_s
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            self._context.cancelJobGroup(self._group)
        lanes_running.pop(self._group, None)

    def _keep_running(self, lane: int, retired: threading.Event) -> None:
        """Run the lane's job, again and again, until the query stops or the lane is retired."""
        self._prepare_thread()
        while not self._stopping.is_set() and not retired.is_set():
            incarnation = next(self._incarnations)
            tag = self._tag(lane, incarnation)
            self._context.setJobGroup(self._group, f"evenflow lane {lane}", interruptOnCancel=True)
            self._context.addJobTag(tag)
            try:
                task = self._task_of(lane, incarnation)
                self._context.parallelize([lane], 1).mapPartitionsWithIndex(task).collect()
            except Exception as error:  # noqa: BLE001 - a lost task; the next incarnation takes over
                with self._lock:
                    self._failed[lane] = self._failed.get(lane, (0, ""))[0] + 1, str(error)
                self._log.debug("its job failed: %s", error, lane=lane)
            self._context.removeJobTag(tag)
            self._stopping.wait(_RESUBMIT_PAUSE_S)

    def _tag(self, lane: int, incarnation: int) -> str:
        return f"{self._group}-lane-{lane}-{incarnation}"
