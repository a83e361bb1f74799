"""What AutoFlow compares itself with: a migration that halts the whole dataflow, and one that blocks channels.

Both use AutoFlow's control messages. *Halt all* (Spark, Flink): from the first marker of a migration every record
waits at the mappers until the state is where it belongs. *Block channels* (Chi): an operator that takes part blocks
each channel that has delivered the marker until all have, and the receiver until it has the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evenflow.migration import Event
from evenflow.model import ControlMessage, Epoch, SlotId
from papers.autoflow.protocol.channels import AutoFlowLane, AutoFlowMapper
from papers.autoflow.protocol.run import AutoFlowRun, autoflow_run
from papers.messages.decider import Decider
from papers.messages.lane import Handoff
from papers.messages.plant import Plant
from papers.messages.stream import RecordStream
from papers.messages.world import World


@dataclass(frozen=True, slots=True)
class Resume:
    """All moves of a control message have settled."""

    epoch: Epoch


class HaltingMapper(AutoFlowMapper):
    """Holds every record, whatever its slot, from the first marker of a migration to the word to resume."""

    def __init__(self, world: World, mapper: int, ports: int) -> None:
        """Begin with everything running."""
        super().__init__(world, mapper, ports)
        self.halted: dict[Epoch, ControlMessage] = {}
        self.stalled: list[int] = []

    def begin(self, message: ControlMessage) -> None:
        """Halt if anything moves."""
        super().begin(message)
        if message.migration:
            self.halted[message.event_time] = message

    def control(self, port: int, message: Any) -> None:
        """Resume, or go on as AutoFlow does."""
        if isinstance(message, Resume):
            if message.epoch in self.halted:
                self.resume(self.halted.pop(message.epoch))
        else:
            super().control(port, message)

    def resume(self, message: ControlMessage) -> None:
        """Let all records go on, unless the next migration has begun already."""
        super().forget(message)
        if not self.halted:
            stalled, self.stalled = self.stalled, []
            for record in stalled:
                self.route(record)

    def waits(self, port: int, record: int, slot: int) -> bool:
        """Put everything aside while halted."""
        if not self.halted:
            return super().waits(port, record, slot)
        self.stalled.append(record)
        return True

    def forget(self, message: ControlMessage) -> None:
        """Keep holding until the word to resume."""
        if message.event_time not in self.halted:
            super().forget(message)


class BlockingMapper(AutoFlowMapper):
    """Holds all records of channels that have delivered the marker of a migration, until all have."""

    def waits(self, port: int, record: int, slot: int) -> bool:  # noqa: ARG002 - the interface
        """Put aside whatever comes behind a marker."""
        past = [epoch for epochs in self.held.values() for epoch in epochs if epoch <= self.port_epoch[port]]
        if past:
            self.buffers[max(past)].append(record)
        return bool(past)


class BlockingLane(AutoFlowLane):
    """Blocks channels that have delivered the marker of a migration it takes part in."""

    def __init__(self, world: World, lane: int, ports: int, service: int) -> None:
        """Begin with open channels."""
        super().__init__(world, lane, ports, service)
        self.blocked: set[int] = set()
        self.aside: list[tuple[int, Any]] = []
        self.awaited: set[tuple[SlotId, Epoch]] = set()
        self.arrived: set[tuple[SlotId, Epoch]] = set()

    def admits(self, port: int, record: int, slot: int) -> bool:
        """Put aside what comes by a blocked channel."""
        if port not in self.blocked:
            return True
        self.aside.append((port, record))
        self.world.trace.held_by_lane[slot] += 1
        return False

    def control(self, port: int, message: Any) -> int:
        """Block behind a migration's marker; later markers of a blocked channel wait, too."""
        if port in self.blocked and isinstance(message, ControlMessage):
            self.aside.append((port, message))
            return 0
        if isinstance(message, ControlMessage) and any(self.lane in (m.source, m.target) for m in message.moves):
            self.blocked.add(port)
        return super().control(port, message)

    def begin(self, message: ControlMessage) -> None:
        """Note the states to wait for; records wait with their channels."""
        super().begin(message)
        self.awaited = {(move.slot, message.event_time) for move in message.moves if move.target == self.lane}

    def complete(self, message: ControlMessage) -> int:
        """Open the channels again, unless a state is awaited."""
        busy = super().complete(message)
        self._open()
        return busy

    def after_install(self, handoff: Handoff) -> None:
        """Open the channels again once the last state is here; one may come before its marker."""
        super().after_install(handoff)
        self.arrived.add((handoff.move.slot, handoff.epoch))
        self._open()

    def _open(self) -> None:
        if self.awaited <= self.arrived and len(self.blocked) == len(self.port_epoch):
            self.blocked = set()
            self.queue.extendleft(reversed(self.aside))
            self.aside = []


def halt_all_run(stream: RecordStream, plant: Plant, decider: Decider) -> AutoFlowRun:
    """Wire AutoFlow's dataflow with mappers that halt; the scheduler says when to resume."""
    run = autoflow_run(stream, plant, decider, HaltingMapper)
    world, scheduler = run.world, run.scheduler
    wires = [world.channel(mapper.receive, 0, plant.timing.control) for mapper in run.mappers]
    pass_on = scheduler.hear_ack

    def hear_ack(port: int, word: tuple[int, Epoch, Event]) -> None:
        pass_on(port, word)
        epoch = word[1]
        if all(trace.installed >= 0 for (_, at), trace in world.trace.moves.items() if at == epoch):
            for wire in wires:
                wire.send(Resume(epoch))

    for lane in run.lanes:
        lane.acks = world.channel(hear_ack, lane.lane, plant.timing.metric)
    return run


def block_channels_run(stream: RecordStream, plant: Plant, decider: Decider) -> AutoFlowRun:
    """Wire AutoFlow's dataflow with operators that block."""
    return autoflow_run(stream, plant, decider, BlockingMapper, BlockingLane)
