"""A clock that stands still while other work has the core, so that no slot is charged for what its neighbours do.

Without it, slots that happened to be served while all lanes were at work look dearer than those served at quiet
moments, and a lane with little to do looks slow. Sleeping and waiting for files still count: only time in which the
thread could have run and had no core is left out. The kernel counts that for each thread; where it does not tell, this
is an ordinary clock.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_SCHEDSTAT = "/proc/thread-self/schedstat"  # Linux: nanoseconds run, nanoseconds waited for a core, turns


class NeededTime:
    """Seconds of time needed by the calling thread; only differences mean anything."""

    def __init__(self) -> None:
        """Look up nothing yet: the thread that calls may be another one, in another process."""
        self._thread: int | None = None
        self._file: int | None = None
        self._close: Callable[[], object] = lambda: None
        self._last = 0.0

    def __call__(self) -> float:
        """Return the time now. It never goes back, whatever the kernel's own clock thinks of ours."""
        if self._thread != threading.get_native_id():
            self._open()
        while True:  # the core may be lost between two readings
            waited = self._waited_s()
            now = time.perf_counter() - waited
            if self._waited_s() == waited:
                self._last = max(self._last, now)
                return self._last

    def _waited_s(self) -> float:
        return 0.0 if self._file is None else int(os.pread(self._file, 64, 0).split()[1]) * 1e-9

    def _open(self) -> None:
        """Look at the counts of the calling thread; reading them is quick as long as the file stays open."""
        self._close()
        self._thread, self._file, self._last = threading.get_native_id(), None, 0.0
        with suppress(OSError):
            self._file = os.open(_SCHEDSTAT, os.O_RDONLY)
            self._close = weakref.finalize(self, partial(os.close, self._file))

    def __reduce__(self) -> tuple[type[NeededTime], tuple[()]]:
        """Travel without the file."""
        return NeededTime, ()
