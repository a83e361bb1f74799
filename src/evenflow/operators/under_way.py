"""Which calls of the user's code are under way, thread by thread: what a watchdog looks at.

To note a call costs no more than a dictionary's entry: the clock is read by the watchdog, not by the call.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from evenflow.errors import OperatorError

KeyText: TypeAlias = str | Callable[[], str] | None  # a function where the key changes, or its text costs too much

_calls: dict[int, Call] = {}
_epochs: dict[int, int] = {}


class Call:
    """One call of the user's code in some thread."""

    __slots__ = ("_key", "_operator", "_slot", "_thread")

    def __init__(self, operator: str, slot: int | None, key: KeyText, thread: int) -> None:
        """Say what is called, and for whom."""
        self._operator, self._slot, self._key, self._thread = operator, slot, key, thread

    def error(self, problem: str) -> OperatorError:
        """Return the error that says where this call is."""
        return OperatorError(self._operator, self._slot, problem, text_of(self._key), epoch=_epochs.get(self._thread))

    def stack(self) -> str:
        """Return where in the code this call is now, as tracebacks show it, the innermost call last."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented, and the only way
        return (
            "" if frame is None else "".join(["Traceback (most recent call last):\n", *traceback.format_stack(frame)])
        )


def text_of(key: KeyText) -> str | None:
    """Return a key as messages show it."""
    return key() if callable(key) else key


@contextmanager
def under_way(operator: str, slot: int | None = None, key: KeyText = None) -> Iterator[None]:
    """Let whoever looks know that this thread is in the user's code."""
    thread = threading.get_ident()
    outer = _calls.get(thread)
    _calls[thread] = Call(operator, slot, key, thread)
    try:
        yield
    finally:
        if outer is None:
            _calls.pop(thread, None)
        else:
            _calls[thread] = outer


@contextmanager
def in_epoch(epoch: int) -> Iterator[None]:
    """Let whoever looks know which epoch this thread is at."""
    thread = threading.get_ident()
    _epochs[thread] = epoch
    try:
        yield
    finally:
        _epochs.pop(thread, None)


def calls_under_way() -> list[Call]:
    """Return the calls of all threads as of now."""
    return list(_calls.values())
