"""Virtual time: what is to happen, by the moment at which it does."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf


class Agenda:
    """What happens at the same moment happens in the order in which it was put down."""

    def __init__(self) -> None:
        """Begin at 0 with nothing to do."""
        self.now_s = 0.0
        self.events = 0
        self._count = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time_s: float, happens: Callable[[], None]) -> None:
        """Put something down; what should have happened already happens now."""
        self._count += 1
        heappush(self._heap, (max(time_s, self.now_s), self._count, happens))

    def run(self, until_s: float = inf) -> None:
        """Let time pass up to and including a moment, or until nothing is left to do."""
        while self._heap and self._heap[0][0] <= until_s:
            self.now_s, _, happens = heappop(self._heap)
            self.events += 1
            happens()
        if until_s < inf:
            self.now_s = until_s


class Line:
    """A connection: what is sent on it arrives later, in the order in which it was sent."""

    def __init__(self, agenda: Agenda, delay_s: Callable[[], float]) -> None:
        """Begin with nothing on the way; each message takes as long as `delay_s` says, or until the one before."""
        self._agenda, self._delay_s = agenda, delay_s
        self._last_s = 0.0

    def send(self, arrives: Callable[[], None]) -> None:
        """Put a message on its way."""
        self._last_s = max(self._last_s, self._agenda.now_s + self._delay_s())
        self._agenda.at(self._last_s, arrives)
