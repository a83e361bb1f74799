"""Wires AutoFlow's sources, mappers, lanes and scheduler to a dataflow that is ready to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from papers.autoflow.protocol.channels import AutoFlowLane, AutoFlowMapper, Scheduler
from papers.messages.decider import Decider, Script
from papers.messages.mapper import Source
from papers.messages.plant import Plant
from papers.messages.run import Result, connect, finish
from papers.messages.stream import RecordStream
from papers.messages.world import World


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
