"""Connects mappers and lanes, lets a run go to its end, checks every invariant, and returns what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenflow.model import LaneId
from evenflow.model.slots import FloatArray, IntArray
from papers.messages.folds import KeyState
from papers.messages.lane import Lane
from papers.messages.loop import SECOND
from papers.messages.mapper import Mapper
from papers.messages.stream import RecordStream
from papers.messages.world import Trace, World, whole_state


@dataclass(frozen=True, eq=False, slots=True)
class Result:
    """What a run gave: when and where each record was served, the state of all keys, and the trace of the protocol."""

    stream: RecordStream
    served_at: IntArray
    served_by: IntArray
    state: KeyState
    trace: Trace
    owners: tuple[LaneId, ...]
    events: int
    overtaken: int

    @property
    def latency_s(self) -> FloatArray:
        """Seconds from the moment each record was due to the end of its service."""
        return (self.served_at - self.stream.due) / SECOND

    @property
    def end_s(self) -> float:
        """When the last record was served."""
        return float(self.served_at.max()) / SECOND if self.served_at.size else 0.0

    def counts(self, lanes: int) -> IntArray:
        """How many records each lane served."""
        return np.bincount(self.served_by, minlength=lanes)


def finish(world: World, lanes: Sequence[Lane], owners: Sequence[LaneId], *, merged: bool = False) -> Result:
    """Let the run go to its end and check it; a broken invariant raises ProtocolError."""
    world.loop.run()
    state = whole_state([lane.state for lane in lanes], world.fold.merge if merged else None)
    world.checker.require(state, world.fold)
    served_at, served_by = world.checker.columns()
    return Result(
        world.stream,
        served_at,
        served_by,
        state,
        world.trace,
        tuple(owners),
        world.loop.events,
        world.checker.overtaken,
    )


def connect(world: World, mappers: Sequence[Mapper], lanes: Sequence[Lane]) -> None:
    """Connect every mapper to every lane, and lanes to each other."""
    for mapper in mappers:
        mapper.outs = [world.channel(lane.receive, mapper.mapper) for lane in lanes]
    for lane in lanes:
        lane.peers = list(lanes)
