"""Watermarks of a query's inputs, and what they come to: Spark's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

_START = 0  # in 1970, where Spark begins too


class Watermarks(NamedTuple):
    """The watermark of each input, and of the query with an epoch's rows, before them, and an epoch earlier still.

    In microseconds. `late_us` is by which rows are late: see `EpochTime`.
    """

    inputs: tuple[int, ...] = ()
    now_us: int | None = None  # None: no input has any
    before_us: int | None = None
    late_us: int | None = None


_NONE_YET = Watermarks()


@dataclass(frozen=True, slots=True)
class Heard:
    """What the rows of one epoch say: a watermark per input, None for one without rows.

    `choose` is Spark's `multipleWatermarkPolicy`: the lowest of all inputs counts, or the highest.
    """

    inputs: tuple[int | None, ...] = ()
    choose: Callable[[Sequence[int]], int] = min

    def after(self, were: Watermarks = _NONE_YET) -> Watermarks:
        """Return what they are in the epoch after the one in which they `were`; they never go back."""
        known = ([mark for mark in pair if mark is not None] for pair in zip_longest(self.inputs, were.inputs))
        now = tuple(max(marks, default=_START) for marks in known)
        if not self.inputs:  # nothing was heard: a tick
            return Watermarks(now, were.now_us, were.now_us, were.before_us)
        before = _START if were.now_us is None else were.now_us
        return Watermarks(
            now, max(before, self.choose(now)), before, _START if were.before_us is None else were.before_us
        )
