"""Fewer runs of Python's garbage collector while many small objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG, _MIDDLE, _OLD = 100_000, 20, 1000  # objects made, runs over the young, runs over those that survived them


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Look for cycles among new objects seldom, among all objects hardly ever.

    A state of Python values is millions of objects, none of them garbage. To look at them again and again, as Python
    does by default, takes half of the time.
    """
    before = gc.get_threshold()
    if before[0]:  # else whoever runs us has turned it off
        gc.set_threshold(max(_YOUNG, before[0]), max(_MIDDLE, before[1]), max(_OLD, before[2]))
    try:
        yield
    finally:
        gc.set_threshold(*before)
