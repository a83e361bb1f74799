"""When timers that are columns of a keyed state are due: a bound per slot, so that no epoch looks at all keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evenflow.model import Due, EpochTime
from evenflow.model.slots import BoolArray, IntArray
from evenflow.operators.arrays import Array
from evenflow.operators.key_operator import Clock

_NEVER = np.iinfo(np.int64).max


class KeyTimers:
    """Of each slot a time before which none of its timers fires, by each clock.

    The bound may be too early, since a timer that is put off or removed does not raise it: who finds nothing due at it
    makes it exact again.
    """

    def __init__(self, timers: Mapping[str, Clock], slots: int) -> None:
        """Start with no timer set."""
        self.timers = dict(timers)
        self._bounds: dict[Clock, IntArray] = {
            clock: np.full(slots, _NEVER, np.int64) for clock in dict.fromkeys(timers.values())
        }

    def note(self, timer: str, slots: Array, times: IntArray, valid: BoolArray | None) -> None:
        """Take in that keys of these slots have a timer set."""
        if valid is not None:
            slots, times = slots[valid], times[valid]
        np.minimum.at(self._bounds[self.timers[timer]], slots, times)

    def forget(self, slots: Sequence[int]) -> None:
        """Take in that these slots have no timer set."""
        for bounds in self._bounds.values():
            bounds[list(slots)] = _NEVER

    def reached(self, slots: Sequence[int], time: EpochTime) -> list[int]:
        """Return those slots in which something may be due."""
        if not self._bounds or not len(slots):
            return []
        listed = np.asarray(slots, np.int64)
        may_be = np.zeros(len(listed), np.bool_)
        for clock, bounds in self._bounds.items():
            now = now_of(clock, time)
            if now is not None:
                may_be |= bounds[listed] <= now
        reached: list[int] = listed[may_be].tolist()
        return reached

    def due(self, slots: Sequence[int]) -> Due | None:
        """Return when something may be due next in these slots."""
        listed = list(slots)
        first = {clock: int(bounds[listed].min()) for clock, bounds in self._bounds.items()} if listed else {}
        times = {clock: time for clock, time in first.items() if time != _NEVER}
        return Due(times.get("event"), times.get("processing")) if times else None


def now_of(clock: Clock, time: EpochTime) -> int | None:
    """Return what time it is by a clock."""
    return time.watermark_us if clock == "event" else time.processing_us
