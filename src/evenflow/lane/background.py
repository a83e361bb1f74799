"""Work beside the lane's own thread: reading and writing state that moves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

_Result = TypeVar("_Result")


class Background(Protocol):
    """Runs jobs; `concurrent.futures.ThreadPoolExecutor` is one."""

    def submit(self, job: Callable[[], _Result], /) -> Future[_Result]:
        """Start a job and return its future result."""
        ...


class Inline:
    """Runs each job at once, in the caller's thread."""

    def submit(self, job: Callable[[], _Result], /) -> Future[_Result]:
        """Return the job's result."""
        future: Future[_Result] = Future()
        try:
            future.set_result(job())
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)
        return future


__all__ = ["Background", "Future", "Inline"]
