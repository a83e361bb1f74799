"""Virtual time: an event loop over integer microseconds, and the channels that messages travel on.

An event is a plain tuple and a record is a plain number, because a run has millions of them. Two events of the
same instant happen in the order of their rank, then in the order in which they were scheduled: a run depends on
nothing but its input and its seed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np

from evenflow.errors import InputError

SECOND = 1_000_000
"""Microseconds per second."""

Handler: TypeAlias = Callable[[Any, Any], None]
"""What happens at an event; most take the port a message came in by, and the message."""

_DRAWN_DELAYS = 4096  # a channel draws this many delays and goes through them again and again


class Loop:
    """The clock and all events to come."""

    __slots__ = ("_count", "_heap", "events", "now")

    def __init__(self) -> None:
        """Start at time 0 with nothing to do."""
        self.now = 0
        self.events = 0
        self._count = 0
        self._heap: list[tuple[int, int, int, Handler, Any, Any]] = []

    def at(self, time: int, handler: Handler, first: Any = None, second: Any = None, rank: int = 0) -> None:
        """Call `handler(first, second)` at `time`; a lower `rank` goes first among the events of an instant."""
        self._count += 1
        heappush(self._heap, (time, rank, self._count, handler, first, second))

    def run(self, until: int | None = None) -> None:
        """Let time pass until nothing is left to do, or up to and including the instant `until`."""
        with _no_garbage_collection():
            self._run(until)

    def _run(self, until: int | None) -> None:
        heap = self._heap
        while heap:
            if until is not None and heap[0][0] > until:
                self.now = until
                return
            self.now, _, _, handler, first, second = heappop(heap)
            self.events += 1
            handler(first, second)


class Channel:
    """A one-way connection to `handler`: first in, first out, after a delay that may vary.

    With `reorder` a message may overtake those sent before it, as over several connections or with retries.
    """

    __slots__ = ("_delays", "_fixed", "_handler", "_last", "_loop", "_port", "_reorder", "sent")

    def __init__(
        self, loop: Loop, handler: Handler, port: int = 0, delays: Iterator[int] | int = 0, *, reorder: bool = False
    ) -> None:
        """Connect to `handler`, which sees messages come in by `port`."""
        self._loop, self._handler, self._port = loop, handler, port
        self._fixed = delays if isinstance(delays, int) else -1
        self._delays: Iterator[int] = iter(()) if isinstance(delays, int) else delays
        self._reorder = reorder
        self._last = 0
        self.sent = 0

    def send(self, message: Any) -> None:
        """Put a message on its way."""
        self.sent += 1
        loop = self._loop
        arrival = loop.now + (self._fixed if self._fixed >= 0 else next(self._delays))
        if not self._reorder:
            self._last = arrival = max(arrival, self._last)
        loop.at(arrival, self._handler, self._port, message)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Stop looking for cycles: millions of short-lived tuples make Python look often, and they form none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def drawn_delays(rng: np.random.Generator, low: int, high: int) -> Iterator[int]:
    """Return delays in microseconds, drawn evenly from `low` to `high`."""
    if not 0 <= low <= high:
        raise InputError(f"a delay lies between 0 and more microseconds, got {low} to {high}")
    return cycle(rng.integers(low, high + 1, _DRAWN_DELAYS).tolist())
