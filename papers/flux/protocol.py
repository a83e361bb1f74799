"""Flux's state movement (section 5.2): pause, acknowledge, extract, move, install, restart.

::

    controller ─▶ old consumer ─ pause ─▶ all producers ─ ack, behind the data ─▶ old consumer: quiesced
    old consumer ─ state, in the background ─▶ new consumer ─ restart ─▶ all producers: new map, stalled input drained

An acknowledgement proves that nothing is in flight only if it shares the ordered channel of the data (FX-A14);
`acks_in_order=False` sends it another way, and the checker finds what that breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenflow.control import Ack
from evenflow.migration import Event
from evenflow.model import Epoch, Move, SlotId
from papers.messages.decider import Decider, Script
from papers.messages.lane import Handoff, Lane, LetGo
from papers.messages.loop import Channel
from papers.messages.mapper import Mapper, Source
from papers.messages.plant import Plant
from papers.messages.run import Result, connect, finish
from papers.messages.stream import RecordStream
from papers.messages.world import MoveTrace, World


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop sending records of a slot, and say so."""

    order: LetGo


@dataclass(frozen=True, slots=True)
class Paused:
    """A producer's acknowledgement."""

    order: LetGo


@dataclass(frozen=True, slots=True)
class Restart:
    """A slot is served elsewhere now."""

    move: Move


class Producer(Mapper):
    """Flux-Prod: keeps records of stalled slots in its transient skew buffer."""

    acks: Sequence[Channel] = ()
    """Where acknowledgements go; the data channels unless told otherwise."""

    def waits(self, port: int, record: int, slot: SlotId) -> bool:  # noqa: ARG002 - the interface
        """Put records of a stalled slot aside."""
        if slot in self.held:
            self.held[slot].append(record)
        return slot in self.held

    def control(self, port: int, message: Any) -> None:  # noqa: ARG002 - the interface
        """Stall a slot and acknowledge, or go on with it at its new place."""
        if isinstance(message, Pause):
            slot, consumer = message.order.move.slot, message.order.move.source
            self.held.setdefault(slot, [])
            self.world.trace.messages["ack"] += 1
            (self.acks or self.outs)[consumer].send(Paused(message.order))
            return
        self.owners[message.move.slot] = message.move.target
        for record in self.held.pop(message.move.slot):
            self.route(record)


class Consumer(Lane):
    """Flux-Cons: quiesces what leaves, installs what comes."""

    def __init__(self, world: World, lane: int, ports: int, service: int) -> None:
        """Begin with nothing to move."""
        super().__init__(world, lane, ports, service)
        self.producers: list[Channel] = []
        self._acks: dict[LetGo, int] = {}

    def ordered(self, _: int, order: LetGo) -> None:
        """Act on the controller's order at once: messages of the controller are looked at before data."""
        self._acks[order] = 0
        self._to_producers(Pause(order))

    def control(self, port: int, message: Any) -> int:  # noqa: ARG002 - the interface
        """Count acknowledgements; with the last one the slot is quiesced and leaves."""
        self._acks[message.order] += 1
        if self._acks[message.order] < len(self.producers):
            return 0
        del self._acks[message.order]
        return self.let_go(message.order)

    def ack_apart(self, port: int, message: Paused) -> None:
        """Take an acknowledgement that came by another way than the data: right when it arrives."""
        self.control(port, message)

    def after_install(self, handoff: Handoff) -> None:
        """Restart the input of the slot."""
        self._to_producers(Restart(handoff.move))

    def _to_producers(self, message: Any) -> None:
        for channel in self.producers:
            self.world.trace.messages["control"] += 1
            channel.send(message)


@dataclass(slots=True)
class FluxRun:
    """A Flux stage, wired and ready."""

    world: World
    decider: Decider
    producers: list[Producer]
    consumers: list[Consumer]
    orders: list[Channel]

    def tick(self, epoch: Epoch) -> None:
        """End a round of statistics, and order the moves that the controller wants."""
        for consumer in self.consumers:
            for port in range(len(consumer.port_epoch)):
                consumer.close_tally(port, epoch - 1)
            self.decider.report(consumer.load_report(epoch - 1))
        for move in self.decider.next_epoch(epoch, self.world.now_s).moves:
            self.world.trace.moves[move.slot, epoch] = MoveTrace(move, epoch, self.world.loop.now)
            self.orders[move.source].send(LetGo(move, epoch))

    def hear(self, _: int, word: tuple[SlotId, Epoch, Event]) -> None:
        """Pass a consumer's word on a move on."""
        self.decider.acknowledge(Ack(*word, at_s=self.world.now_s))

    def run(self) -> Result:
        """Run to the end and check everything."""
        return finish(self.world, self.consumers, self.producers[0].owners)


def flux_run(
    stream: RecordStream, plant: Plant, decider: Decider | None = None, *, acks_in_order: bool = True
) -> FluxRun:
    """Wire producers and consumers, every one of them to every other."""
    world = World(stream, plant)
    producers = [Producer(world, at, stream.sources) for at in range(stream.mappers)]
    consumers = [Consumer(world, at, stream.mappers, plant.service) for at in plant.table.lanes]
    connect(world, producers, consumers)
    control = plant.timing.control
    run = FluxRun(world, decider or Script(), producers, consumers, [])
    for consumer in consumers:
        consumer.producers = [world.channel(producer.receive, 0, control) for producer in producers]
        consumer.acks = world.channel(run.hear, consumer.lane, control)
    run.orders = [world.channel(consumer.ordered, 0, control) for consumer in consumers]
    if not acks_in_order:
        for producer in producers:
            producer.acks = [world.channel(consumer.ack_apart, producer.mapper, control) for consumer in consumers]
    for at in range(stream.sources):
        Source(world, at, [world.channel(producer.receive, at) for producer in producers])
    world.every(plant.period, run.tick)
    return run
