"""Watches over the user's code in a lane: a call that does not come back is told of, with where it hangs.

The thread that hangs cannot be ended from within Python, so the lane says that it has failed from another one; the
query ends, and the driver cancels the lane's job. What the call was to fold is not committed: mended code gets it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evenflow.lane.messages import Failed
from evenflow.operators.under_way import Call, calls_under_way

_LOOKS = 10  # per timeout


@contextmanager
def watchdog(timeout_s: float | None, tell: Callable[[Failed], None]) -> Iterator[None]:
    """Call `tell`, once, if a call of the user's code takes longer than `timeout_s`; None: it may take for ever."""
    if timeout_s is None:
        yield
        return
    over = threading.Event()

    def watch(timeout_s: float) -> None:
        seen: dict[Call, int] = {}
        # Looks are counted and not seconds, so that a process which was itself stopped has its time forgiven.
        while not over.wait(timeout_s / _LOOKS):
            seen = {call: seen.get(call, 0) + 1 for call in calls_under_way()}
            for call, looks in seen.items():
                if looks > _LOOKS:
                    tell(failure_of(call, timeout_s))
                    return

    threading.Thread(target=watch, args=(timeout_s,), name="evenflow-watchdog", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def failure_of(call: Call, timeout_s: float) -> Failed:
    """Return what a lane says of a call that hangs."""
    error = call.error(
        f"it has not come back for {timeout_s:g} s (operator_timeout_s): mend where it hangs, or raise the timeout; "
        "no state is lost"
    )
    return Failed(type(error).__name__, str(error), call.stack())
