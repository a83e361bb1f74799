"""DPA's protocol: a ring says who owns a key, reducers forward what is not theirs, partial states merge at the end.

Every key is a slot of its own. Readings: a reducer reports its queue at every 20th message it takes, before it
handles it, and only the reporter is tested, against what the others said last, 0 if nothing (DP-A3, A4, P8); the
limit on rounds is exact (M11); the run stops when as many items are processed as were sent (A16).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from evenflow.errors import InputError
from evenflow.model import LaneId, Move, RoutingTable, SlotId
from evenflow.policies.ring import DpaDoubling, DpaHalving, Ring, RingMemory, overloaded
from papers.messages.folds import SUM, Fold
from papers.messages.lane import Lane
from papers.messages.loop import Channel
from papers.messages.mapper import Mapper, Source
from papers.messages.plant import Plant, Timing
from papers.messages.run import Result, connect, finish
from papers.messages.stream import RecordStream
from papers.messages.world import World

RingPolicy: TypeAlias = DpaHalving | DpaDoubling
Listener: TypeAlias = Callable[[int, Sequence[Move]], None]
"""Hears of a new version of the ring, and of the keys that change their owner."""


@dataclass(frozen=True, slots=True)
class DpaOptions:
    """The parameters of section 6 as DP-P1 to P13 give them; times are in microseconds.

    `rounds_per_lane` and `rounds_total` of the policy limit the rounds. `ties`: the order of reducers that are ready
    at the same instant. `data_delay`, `data_jitter`: of items on their way to a reducer, and how much it may be more.
    `ring_delay`: until mappers know of a new ring. `forward_delay`: from reducer to reducer. `joins`: (time, reducer)
    for those that come later. `load`: what a reducer reports, its queue length unless told otherwise (DP-F6).
    """

    policy: RingPolicy = field(default_factory=DpaHalving)
    reducers: int = 4
    tau: float = 0.2
    service: int = 200_000
    report_every: int = 20
    ties: tuple[int, ...] | None = None
    ring_delay: int = 0
    forward_delay: int = 0
    data_delay: int = 0
    data_jitter: int = 0
    joins: tuple[tuple[int, LaneId], ...] = ()
    load: Callable[[Reducer], int] | None = None
    fold: Fold = SUM
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse an order of ties that is none."""
        if self.ties is not None and sorted(self.ties) != list(range(self.lanes)):
            raise InputError(f"ties must order the reducers 0 to {self.lanes - 1}, got {self.ties}")

    @property
    def lanes(self) -> int:
        """How many reducers there are in the end."""
        return self.reducers + len(self.joins)


class Balancer:
    """Holds the ring and what each reducer said last; all read it, nobody else writes it (DP-M9).

    With `rests` the ring stays as it is until every key on its way has settled.
    """

    def __init__(self, options: DpaOptions, names: Sequence[str], *, rests: bool = False) -> None:
        """Begin with the ring of the policy."""
        self.options, self.names, self.rests = options, list(names), rests
        self.memory = RingMemory(options.policy.initial_ring(range(options.reducers)))
        self.owners: list[LaneId] = self.memory.ring.owners(self.names).tolist()
        self.reports: dict[LaneId, int] = {}
        self.version = 0
        self.listeners: list[Listener] = []
        self._open: set[SlotId] = set()
        self._joining: list[LaneId] = []

    @property
    def ring(self) -> Ring:
        """The ring in force."""
        return self.memory.ring

    @property
    def rounds(self) -> dict[LaneId, int]:
        """How often the ring was changed for the sake of each reducer."""
        return dict(self.memory.rounds)

    def report(self, reducer: LaneId, load: int) -> None:
        """Take a report, and relieve the reporter if equation 1 holds and its rounds are not used up."""
        self.reports[reducer] = load
        policy = self.options.policy
        if overloaded(self.reports, self.options.tau, reporter=reducer, min_queue=policy.min_queue) is None:
            return
        if self._open or self._used_up(reducer):
            return
        ring = policy.redistribute(self.ring, reducer)
        if ring != self.ring:
            self._publish(self.memory.after_round(reducer, ring))

    def join(self, reducer: LaneId) -> None:
        """Let a new reducer claim its tokens, once the ring may change (DP-F1)."""
        if self._open:
            self._joining.append(reducer)
            return
        joined = self.ring.joined([*self.ring.nodes, reducer], self.options.policy.tokens)
        self._publish(replace(self.memory, ring=joined))

    def settled(self, slot: SlotId) -> None:
        """A key is where the ring has it."""
        self._open.discard(slot)
        while self._joining and not self._open:
            self.join(self._joining.pop(0))

    def _used_up(self, reducer: LaneId) -> bool:
        policy, rounds = self.options.policy, self.rounds
        own, total = rounds.get(reducer, 0), sum(rounds.values())
        return (policy.rounds_per_lane is not None and own >= policy.rounds_per_lane) or (
            policy.rounds_total is not None and total >= policy.rounds_total
        )

    def _publish(self, memory: RingMemory) -> None:
        self.memory = memory
        self.version += 1
        before, self.owners = self.owners, memory.ring.owners(self.names).tolist()
        pairs = enumerate(zip(before, self.owners, strict=True))
        moves = [Move(slot, old, new) for slot, (old, new) in pairs if old != new]
        if self.rests:
            self._open = {move.slot for move in moves}
        for tell in self.listeners:
            tell(self.version, moves)


class RingMapper(Mapper):
    """Asks the balancer where a key goes; with a delay, it goes by the ring it heard of last."""

    def control(self, _: int, message: Any) -> None:
        """Take over a new ring."""
        self.owners = message


class Reducer(Lane):
    """Takes, reports, checks that the key is its own, serves or forwards (section 3)."""

    def __init__(self, world: World, lane: LaneId, options: DpaOptions, balancer: Balancer) -> None:
        """Begin with an empty queue."""
        super().__init__(world, lane, world.stream.mappers + options.lanes, options.service)
        self.options, self.balancer = options, balancer
        self.rank = 1 + (options.ties.index(lane) if options.ties else lane)
        self.taken = self.forwarded = 0
        self.stopped = False
        self.forwards: list[Channel] = []

    def receive(self, port: int, message: Any) -> None:
        """Take in an item; a reducer that was stopped loses it, for the checker to find."""
        if not self.stopped:
            super().receive(port, message)

    def admits(self, port: int, record: int, slot: int) -> bool:  # noqa: ARG002 - the interface
        """Count and report, then see who owns the key now."""
        self.taken += 1
        if self.taken % self.options.report_every == 0:
            measure = self.options.load
            self.balancer.report(self.lane, len(self.queue) if measure is None else measure(self))
        return self.owns(record, slot)

    def owns(self, record: int, slot: int) -> bool:
        """Whether the key is this reducer's; if not, it has been forwarded."""
        owner = self.balancer.owners[slot]
        if owner != self.lane:
            self.forward(record, owner)
        return owner == self.lane

    def forward(self, record: int, owner: LaneId) -> None:
        """Send an item on to its owner."""
        self.forwarded += 1
        self.world.trace.messages["forwarded"] += 1
        self.forwards[owner].send(record)

    def ring_changed(self, version: int, moves: Sequence[Move]) -> None:
        """The ring has changed; where inputs are forwarded and states merged, there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What becomes of inputs and state when a key changes its owner.

    `merges`: partial states are joined at the end and no order is promised. `tells_mappers`: mappers follow the ring.
    `rests`: the ring does not change while keys are on their way. `ordered`: inputs of a key keep their order.
    """

    name: str
    reducer: type[Reducer]
    mapper: type[RingMapper] = RingMapper
    merges: bool = False
    tells_mappers: bool = True
    rests: bool = False
    ordered: bool = True


MERGE = Variant("forward inputs, merge at the end", Reducer, merges=True, ordered=False)


@dataclass(slots=True)
class DpaRun:
    """A run, wired and ready; tests look at its parts."""

    world: World
    balancer: Balancer
    mappers: list[RingMapper]
    reducers: list[Reducer]
    sources: list[Source]
    variant: Variant

    def run(self) -> Result:
        """Run to the end, merge partial states if that is the way, and check everything."""
        return finish(self.world, self.reducers, self.balancer.owners, merged=self.variant.merges)


def dpa_run(stream: RecordStream, names: Sequence[str], options: DpaOptions, variant: Variant = MERGE) -> DpaRun:
    """Wire mappers, reducers and the balancer; key i of the stream is called `names[i]`."""
    balancer = Balancer(options, names, rests=variant.rests)
    table = RoutingTable(np.array(balancer.owners), tuple(range(options.lanes)))
    timing = Timing(data=(options.data_delay, options.data_delay + options.data_jitter))
    plant = Plant(table, options.service, timing=timing, fold=options.fold, seed=options.seed)
    world = World(stream, plant, ordered=variant.ordered)
    mappers = [variant.mapper(world, at, stream.sources) for at in range(stream.mappers)]
    reducers = [variant.reducer(world, at, options, balancer) for at in range(options.lanes)]
    connect(world, mappers, reducers)
    for reducer in reducers:
        port = stream.mappers + reducer.lane
        delay = (options.forward_delay,) * 2
        reducer.forwards = [world.channel(other.receive, port, delay) for other in reducers]
    if variant.merges:
        # A key may be served by its owner of the moment; its state is wherever it was served before.
        balancer.listeners.append(lambda *_: world.checker.holder.__setitem__(slice(None), balancer.owners))
    balancer.listeners.extend(reducer.ring_changed for reducer in reducers)
    if variant.tells_mappers:
        balancer.listeners.extend(_told(world, balancer, mapper, options.ring_delay) for mapper in mappers)
    for time, lane in options.joins:
        world.loop.at(time, lambda joining, _: balancer.join(joining), lane)
    wires = [[world.channel(mapper.receive, at) for mapper in mappers] for at in range(stream.sources)]
    sources = [Source(world, at, outs) for at, outs in enumerate(wires)]
    return DpaRun(world, balancer, mappers, reducers, sources, variant)


def _told(world: World, balancer: Balancer, mapper: RingMapper, delay: int) -> Listener:
    """Return how a mapper hears of a new ring: at once, as it asks the balancer itself, or after `delay`."""
    if delay == 0:
        return lambda *_: mapper.control(0, balancer.owners)
    channel = world.channel(mapper.receive, 0, (delay, delay))
    return lambda *_: channel.send(balancer.owners)
