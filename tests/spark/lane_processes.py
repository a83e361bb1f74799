"""Lanes in processes of their own, without Spark: what stands for a SparkContext starts one per job."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle

_RUN = "import cloudpickle, sys; task = cloudpickle.load(sys.stdin.buffer); list(task(0, iter([0])))"


@dataclass
class Processes:
    """As much of a SparkContext as lanes need. A cancelled job is over for the driver; its process goes on, as one
    that Spark cannot reach would."""

    master: str = "local[2]"
    conf: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    _tag: threading.local = field(default_factory=threading.local)

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's names, here and below
        return self.conf

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802
        """Take it as said."""

    def addJobTag(self, tag: str) -> None:  # noqa: N802
        self._tag.name = tag

    def removeJobTag(self, tag: str) -> None:  # noqa: N802
        assert self._tag.name == tag

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        self.cancelled.add(tag)

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.add(group)

    def parallelize(self, _lanes: list[int], _parts: int) -> Job:
        return Job(self, self._tag.name)

    def kill(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()


@dataclass(frozen=True)
class Job:
    context: Processes
    tag: str
    task: Callable[..., Any] | None = None

    def mapPartitionsWithIndex(self, task: Callable[..., Any]) -> Job:  # noqa: N802
        return replace(self, task=task)

    def collect(self) -> None:
        process = subprocess.Popen([sys.executable, "-c", _RUN], stdin=subprocess.PIPE)
        self.context.started.append(process)
        assert process.stdin is not None
        with process.stdin as task:
            cloudpickle.dump(self.task, task)
        while process.poll() is None:
            # The group's name is the beginning of the tag's.
            if any(self.tag.startswith(name) for name in self.context.cancelled):
                raise RuntimeError("cancelled")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        if process.returncode:
            raise RuntimeError(f"the process ended with {process.returncode}")
