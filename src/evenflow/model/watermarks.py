"""Watermarks of a query's inputs, and what they come to: Spark's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

_START = 0  # in 1970, where Spark begins too


class Watermarks(NamedTuple):
    """The watermark of each input, of the query with an epoch's rows, and of the query before them, in microseconds."""

    inputs: tuple[int, ...] = ()
    now_us: int | None = None  # None: no input has any
    before_us: int | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What the rows of one epoch say: a watermark per input, None for one without rows.

    `choose` is Spark's `multipleWatermarkPolicy`: the lowest of all inputs counts, or the highest.
    """

    inputs: tuple[int | None, ...] = ()
    choose: Callable[[Sequence[int]], int] = min

    def after(self, inputs: Sequence[int], before_us: int | None) -> Watermarks:
        """Return what they are now; they were `inputs` and `before_us`, and never go back."""
        known = ([mark for mark in pair if mark is not None] for pair in zip_longest(self.inputs, inputs))
        now = tuple(max(marks, default=_START) for marks in known)
        if not self.inputs:  # nothing was heard: a tick
            return Watermarks(now, before_us, before_us)
        before = _START if before_us is None else before_us
        return Watermarks(now, max(before, self.choose(now)), before)
