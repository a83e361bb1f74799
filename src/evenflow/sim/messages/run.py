"""Wires operators to a dataflow, lets it run to the end, checks every invariant, and returns what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenflow.model import LaneId
from evenflow.model.slots import FloatArray, IntArray
from evenflow.sim.messages.autoflow import AutoFlowLane, AutoFlowMapper, Scheduler
from evenflow.sim.messages.decider import Decider, Script
from evenflow.sim.messages.folds import KeyState
from evenflow.sim.messages.lane import Lane
from evenflow.sim.messages.loop import SECOND
from evenflow.sim.messages.mapper import Mapper, Source
from evenflow.sim.messages.plant import Plant
from evenflow.sim.messages.stream import RecordStream
from evenflow.sim.messages.world import Trace, World, whole_state


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


@dataclass(slots=True)
class AutoFlowRun:
    """An AutoFlow dataflow, wired and ready; `run()` lets time pass. Tests look at its parts."""

    world: World
    sources: list[Source]
    mappers: list[Any]
    lanes: list[Any]
    scheduler: Scheduler

    def run(self) -> Result:
        """Run to the end and check everything."""
        return finish(self.world, self.lanes, self.mappers[0].owners)


def autoflow_run(
    stream: RecordStream,
    plant: Plant,
    decider: Decider | None = None,
    mapper_type: type[AutoFlowMapper] = AutoFlowMapper,
    lane_type: type[AutoFlowLane] = AutoFlowLane,
) -> AutoFlowRun:
    """Wire sources, mappers, lanes and the scheduler: every source to every mapper to every lane."""
    world = World(stream, plant)
    scheduler = Scheduler(world, decider or Script())
    mappers = [mapper_type(world, at, stream.sources) for at in range(stream.mappers)]
    lanes = [lane_type(world, at, stream.mappers, plant.service) for at in plant.table.lanes]
    connect(world, mappers, lanes)
    for lane in lanes:
        lane.reports = world.channel(scheduler.hear_report, lane.lane, plant.timing.metric)
        lane.acks = world.channel(scheduler.hear_ack, lane.lane, plant.timing.metric)
    sources = [
        Source(world, at, [world.channel(mapper.receive, at) for mapper in mappers], closes=plant.sources_close)
        for at in range(stream.sources)
    ]
    scheduler.outs = [world.channel(source.receive, 0, plant.timing.control) for source in sources]
    if plant.control:
        world.every(plant.period, scheduler.tick)
    return AutoFlowRun(world, sources, mappers, lanes, scheduler)


def connect(world: World, mappers: Sequence[Mapper], lanes: Sequence[Lane]) -> None:
    """Connect every mapper to every lane, and lanes to each other."""
    for mapper in mappers:
        mapper.outs = [world.channel(lane.receive, mapper.mapper) for lane in lanes]
    for lane in lanes:
        lane.peers = list(lanes)
