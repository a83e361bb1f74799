"""What the driver keeps is bounded: after many epochs it holds no more than after a few hundred."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.driver import Stage
from evenflow.lane.messages import Done, EpochLoad, SlotColumns
from evenflow.spark import latencies, progress
from evenflow.spark.progress import EpochTimes, Progress
from evenflow.state import Advance, EpochRecord, LaneCommit


@dataclass
class Counted:
    """Counts what can be reached from the driver's objects, by where it hangs."""

    sizes: dict[str, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def walk(self, thing: Any, where: str) -> None:
        if id(thing) in self.seen:
            return
        self.seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            self._add(where, thing.size)
        elif isinstance(thing, Mapping):
            self._add(where, len(thing))
            for value in list(thing.values()):
                self.walk(value, where)
        elif isinstance(thing, list | tuple | set | frozenset | deque):
            self._add(where, len(thing))
            for value in list(thing):
                self.walk(value, where)
        elif type(thing).__module__.startswith("evenflow") and not isinstance(thing, type):
            for name in _fields(thing):
                self.walk(getattr(thing, name, None), f"{type(thing).__name__}.{name}")

    def _add(self, where: str, size: int) -> None:
        self.sizes[where] = self.sizes.get(where, 0) + size


def _fields(thing: Any) -> set[str]:
    slots = {name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())}
    structs = set(thing.__struct_fields__) if isinstance(thing, msgspec.Struct) else set()
    return slots | structs | set(getattr(thing, "__dict__", {}))


def test_the_driver_keeps_no_more_after_many_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rings are made small for it, so that they are full early."""
    monkeypatch.setattr(progress, "_STEPS", 100)
    monkeypatch.setattr(latencies, "_KEPT", 100)
    stage = Stage(lanes=3, slots=12)
    engine = stage.shell
    engine.journal.keep, engine.journal.keep_slots = 30, 240
    kept = []
    try:
        for _ in range(4):
            stage.run(150)
            counted = Counted()
            with engine._lock:
                counted.walk(engine, "engine")
            kept.append(counted.sizes)
    finally:
        engine.stop()
    early, late = kept[1], kept[3]
    grown = {
        where: (early.get(where, 0), size) for where, size in late.items() if size > 1.5 * early.get(where, 0) + 60
    }
    assert grown == {}
    assert sum(late.values()) < 1.1 * sum(early.values()) + 200


def _published(progress_of: Progress, epoch: int, lanes: int) -> None:
    """Let an epoch pass: each lane does its part of the rows, then all of it is published."""
    record = EpochRecord(epoch, epoch, 0, tuple(range(lanes)), tuple(range(lanes)), (), (), (), 10 * lanes, 100.0)
    progress_of.accepted(record, EpochTimes(began_s=100.0, ready_s=100.1, routed_s=100.2, waited_s=100.2))
    for lane in range(lanes):
        commit = LaneCommit(lane, f"a{epoch}", epoch, (Advance(epoch - 1, epoch, (lane,)),))
        load = EpochLoad(epoch, SlotColumns((lane,), (10,), (0.1 + 0.001 * epoch,), (64,)), 10, 0.1)
        progress_of.lane_done(Done(commit, (load,), 0.0, 3, 64))
    progress_of.committed(epoch)
    progress_of.published(epoch, 0)


def test_figures_and_latencies_take_no_more_after_many_times_as_many_epochs() -> None:
    """With the sizes that users have: what is kept is full after 2,000 epochs of two lanes."""
    told, kept = Progress("id", None), []
    tracemalloc.start()
    try:
        for epoch in range(8_000):
            _published(told, epoch, lanes=2)
            if epoch + 1 in (2_000, 8_000):
                kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert kept[1] <= 1.1 * kept[0]
