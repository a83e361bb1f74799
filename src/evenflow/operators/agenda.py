"""What is to happen when: items by time, the earliest first."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Agenda(Generic[Item]):
    """Items by time. To remove one leaves its time in the heap, which is found empty later."""

    __slots__ = ("_heap", "_items")

    def __init__(self) -> None:
        """Start with nothing to happen."""
        self._heap: list[int] = []
        self._items: dict[int, dict[Item, None]] = {}

    def put(self, at: int, item: Item) -> None:
        items = self._items.get(at)
        if items is None:
            items = self._items[at] = {}
            heappush(self._heap, at)
        items[item] = None

    def remove(self, at: int, item: Item) -> None:
        items = self._items.get(at)
        if items is not None:
            items.pop(item, None)
            if not items:
                del self._items[at]

    def first(self) -> int | None:
        """Return the earliest time; None if there is nothing."""
        while self._heap and self._heap[0] not in self._items:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def take(self, now: int) -> list[tuple[int, Item]]:
        """Remove and return what is due, by time, and at one time in an order that does not depend on the history."""
        taken: list[tuple[int, Item]] = []
        while self._heap and self._heap[0] <= now:
            at = heappop(self._heap)
            taken += ((at, item) for item in sorted(self._items.pop(at, ()), key=repr))
        return taken
