"""A function for `applyInPandasWithState` that does all it may, and what comes of it by Spark's rules."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from evenflow.model import EpochTime
from tests.operators.dedup_oracle import Event

OUT = "key long, kind string, n long, total long, state string, now_ms long"
STATE = "calls long, total long"
EVENT, PROCESSING = GroupStateTimeout.EventTimeTimeout, GroupStateTimeout.ProcessingTimeTimeout
Called = tuple[int | None, str, int, int, str, int]  # a row of OUT
Kept = tuple[tuple[int, int] | None, int | None]  # state and timeout of a key


def decide(key: int | None, n: int, state: tuple[int, int] | None, *, timed_out: bool) -> tuple[str, int | None]:
    """Return what a call does with its state, and how many milliseconds later it wants to be called, if at all."""
    dice = zlib.crc32(repr((key, n, state, timed_out)).encode())
    does = ("update", "update", "update", "remove", "nothing")[dice % 5]
    wait = (None, 1, 4000, 15_000, 60_000)[dice // 5 % 5]
    if timed_out and does == "nothing" and wait is None and dice % 3:
        does = "remove"  # else few calls would be left but those of timeouts that stay
    return does, wait


def by_event_time(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    return _call(key, frames, state, state.getCurrentWatermarkMs(), event=True)


def by_the_clock(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    return _call(key, frames, state, state.getCurrentProcessingTimeMs(), event=False)


def _call(
    keys: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState, now_ms: int, *, event: bool
) -> Iterator[pd.DataFrame]:
    given = list(frames)
    assert [list(frame.columns) for frame in given] == [["key", "at", "value"]]
    assert state.oldTimeoutTimestamp == -1
    n, total = len(given[0]), int(given[0]["value"].sum())
    key = None if pd.isna(keys[0]) else int(keys[0])
    before: Any = None if not state.exists else tuple(state.get)
    does, wait = decide(key, n, before, timed_out=state.hasTimedOut)
    if does == "update":
        state.update(_updated(before, total))
    elif does == "remove":
        state.remove()
    if wait is not None and event:
        state.setTimeoutTimestamp(now_ms + wait)
    elif wait is not None:
        state.setTimeoutDuration(wait)
    kind = "timeout" if state.hasTimedOut else "data"
    columns: dict[str, Any] = {"key": pd.array([key], "Int64"), "kind": kind, "n": n, "total": total}
    yield pd.DataFrame({**columns, "state": str(before), "now_ms": now_ms})


def _updated(state: tuple[int, int] | None, total: int) -> tuple[int, int]:
    calls, before = state or (0, 0)
    return calls + 1, before + total


def called(kept: dict[int | None, Kept], rows: list[Event], time: EpochTime, *, event: bool) -> Iterator[Called]:
    """Yield the calls of an epoch, and change what is kept."""
    now_ms = (time.before_us if event else time.processing_us) // 1000  # type: ignore[operator]
    in_time = [(key, value) for key, at, value in rows if not event or at is None or at > (time.late_us or 0)]
    for key in dict.fromkeys(key for key, _ in in_time):
        yield _one(kept, key, [value for each, value in in_time if each == key], now_ms, timed_out=False)
    over = [key for key, (_, timeout) in kept.items() if timeout is not None and timeout < now_ms]
    for key in over:
        yield _one(kept, key, [], now_ms, timed_out=True)


def _one(kept: dict[int | None, Kept], key: int | None, values: list[int], now_ms: int, *, timed_out: bool) -> Called:
    state, old = kept.pop(key, (None, None))
    does, wait = decide(key, len(values), state, timed_out=timed_out)
    total = sum(values)
    timeout = None if wait is None else now_ms + wait
    if does == "nothing" and wait is None:
        timeout = old
    left = {"update": _updated(state, total), "remove": None, "nothing": state}[does]
    if left is not None or timeout is not None:
        kept[key] = left, timeout
    return key, "timeout" if timed_out else "data", len(values), total, str(state), now_ms
