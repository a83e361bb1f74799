"""The static answers to a hot key that AutoFlow's Fig. 1 names: pre-aggregation in the mappers, and rehashing.

*Pre-aggregation*: a mapper folds what comes in during a batch and sends one partial state per key. *Rehashing*: a
first layer of lanes takes records of any key in turn, folds them, and sends partial states to the lanes that own the
keys. Both need a function whose partial states merge, and both add the time of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenflow.errors import InputError
from evenflow.model import SlotId
from papers.messages.folds import Fold
from papers.messages.lane import Lane
from papers.messages.mapper import Mapper, Source
from papers.messages.plant import Plant
from papers.messages.run import Result, connect, finish
from papers.messages.stream import RecordStream
from papers.messages.world import World


@dataclass(frozen=True, slots=True)
class Partial:
    """What a batch gave for one key, and the records that are in it."""

    slot: SlotId
    key: int
    state: Any
    records: list[int]


class Batch:
    """Partial states of the keys that came in since the last flush."""

    def __init__(self, world: World) -> None:
        """Begin empty."""
        self.world = world
        self.partials: dict[int, Partial] = {}

    def add(self, record: int) -> None:
        """Fold a record into the partial state of its key."""
        world, key = self.world, self.world.key_of[record]
        before = self.partials.get(key)
        state = world.fold.initial if before is None else before.state
        records = [record] if before is None else [*before.records, record]
        self.partials[key] = Partial(
            world.slot_of[record], key, world.fold.step(state, world.value_of[record]), records
        )

    def flushed(self) -> list[Partial]:
        """Return all partial states and begin anew."""
        partials, self.partials = list(self.partials.values()), {}
        return partials


class MergingLane(Lane):
    """Merges partial states into the state of its slots; each costs as much as a record."""

    def control(self, port: int, message: Any) -> int:  # noqa: ARG002 - the interface
        """Serve one partial state."""
        self.world.loop.at(self.world.loop.now + self.service, self._merge, message)
        return self.service

    def _merge(self, partial: Partial, _: Any) -> None:
        world, states = self.world, self.state[partial.slot]
        merge = world.fold.merge
        assert merge is not None  # noqa: S101 - refused at the start
        states[partial.key] = merge(states[partial.key], partial.state) if partial.key in states else partial.state
        self.served += 1
        for record in partial.records:
            world.checker.served(record, self.lane, world.loop.now)


class BatchingMapper(Mapper):
    """Folds records before it sends them."""

    def __init__(self, world: World, mapper: int, ports: int) -> None:
        """Begin with an empty batch."""
        super().__init__(world, mapper, ports)
        self.batch = Batch(world)

    def receive(self, port: int, message: Any) -> None:  # noqa: ARG002 - the interface
        """Put a record into the batch."""
        self.batch.add(message)

    def flush(self) -> None:
        """Send the batch."""
        for partial in self.batch.flushed():
            self.world.trace.messages["to reducers"] += 1
            self.outs[self.owners[partial.slot]].send(partial)


class ScatteringMapper(Mapper):
    """Sends records to the lanes of the first layer in turn, whatever their key."""

    _next_lane = 0

    def receive(self, port: int, message: Any) -> None:  # noqa: ARG002 - the interface
        """Send a record to the next lane."""
        self.outs[self._next_lane].send(message)
        self._next_lane = (self._next_lane + 1) % len(self.outs)


class FirstLayerLane(Lane):
    """Folds records of any key into partial states for the second layer; it holds no slot."""

    holds_slots = False

    def __init__(self, world: World, lane: int, ports: int, service: int) -> None:
        """Begin with an empty batch."""
        super().__init__(world, lane, ports, service)
        self.state = {}
        self.batch = Batch(world)
        self.second: list[Any] = []

    def _done(self, port: int, record: int) -> None:  # noqa: ARG002 - the interface
        self.batch.add(record)
        self.served += 1
        self._next()

    def flush(self) -> None:
        """Send the batch to the second layer."""
        for partial in self.batch.flushed():
            self.world.trace.messages["to reducers"] += 1
            self.second[self.world.owners[partial.slot]].send(partial)


@dataclass(slots=True)
class StaticRun:
    """A dataflow with a static answer, wired and ready."""

    world: World
    lanes: list[MergingLane]

    def run(self) -> Result:
        """Run to the end and check everything."""
        return finish(self.world, self.lanes, self.world.owners)


def refuse_unmergeable(technique: str, fold: Fold) -> None:
    """Refuse a function whose partial states do not merge: a join, an event-time window."""
    if fold.merge is None:
        raise InputError(
            f"{technique} needs an operator whose partial results merge (count, sum, min, max); {fold.name} has none"
        )


def pre_aggregation_run(stream: RecordStream, plant: Plant, batch: int) -> StaticRun:
    """Wire mappers that fold for `batch` microseconds before they send."""
    refuse_unmergeable("pre-aggregation", plant.fold)
    world = World(stream, plant, ordered=True)
    mappers = [BatchingMapper(world, at, stream.sources) for at in range(stream.mappers)]
    lanes = [MergingLane(world, at, stream.mappers, plant.service) for at in plant.table.lanes]
    connect(world, mappers, lanes)
    _sources(world, mappers)
    _flush_every(world, batch, mappers)
    return StaticRun(world, lanes)


def rehashing_run(stream: RecordStream, plant: Plant, batch: int) -> StaticRun:
    """Wire two layers of lanes; the first sends on its partial states every `batch` microseconds."""
    refuse_unmergeable("rehashing", plant.fold)
    world = World(stream, plant, ordered=False)  # records of a key take several lanes of the first layer
    mappers = [ScatteringMapper(world, at, stream.sources) for at in range(stream.mappers)]
    first = [FirstLayerLane(world, at, stream.mappers, plant.service) for at in plant.table.lanes]
    second = [MergingLane(world, at, len(first), plant.service) for at in plant.table.lanes]
    connect(world, mappers, first)
    for lane in first:
        lane.second = [world.channel(other.receive, lane.lane) for other in second]
    _sources(world, mappers)
    _flush_every(world, batch, first)
    return StaticRun(world, second)


def _flush_every(world: World, batch: int, parts: Sequence[BatchingMapper | FirstLayerLane]) -> None:
    def flush(_: int) -> None:
        for part in parts:
            part.flush()

    world.every(batch, flush)


def _sources(world: World, mappers: list[Any]) -> None:
    for at in range(world.stream.sources):
        Source(world, at, [world.channel(mapper.receive, at) for mapper in mappers])
