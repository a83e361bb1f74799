"""AutoFlow's control messages on a graph with a loop (its future work, III-B): logical timestamps on data.

A record that a lane has served may come back to the head of the loop as another record. The implicit barrier alone
deadlocks there: the head waits for the marker on the feedback channels, which get it only from the head. With the
extension a record carries the epoch it entered in, what it causes inherits it, and lanes tell the head of every
record that is done: the barrier of epoch t is complete once all sources have delivered it and nothing older is in
the loop. Data of the new epoch go on meanwhile, but for those of slots that move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenflow.model import ControlMessage, Epoch
from papers.autoflow.protocol.channels import AutoFlowLane, AutoFlowMapper, Scheduler
from papers.messages.decider import Decider
from papers.messages.lane import NOTHING
from papers.messages.loop import Channel
from papers.messages.mapper import Source
from papers.messages.plant import Plant
from papers.messages.run import Result, connect, finish
from papers.messages.stream import RecordStream
from papers.messages.world import World


@dataclass(frozen=True, slots=True)
class Done:
    """A record was served and causes nothing more."""

    record: int


class LoopHead(AutoFlowMapper):
    """Where records enter the loop and come back to it; the first `sources` ports are from outside."""

    def __init__(self, world: World, sources: int, lanes: int, *, timestamps: bool) -> None:
        """Begin with an empty loop."""
        super().__init__(world, 0, sources + lanes)
        self.sources, self.timestamps = sources, timestamps
        self.stamp = [0] * len(world.stream)
        self.inside: Counter[Epoch] = Counter()

    def receive(self, port: int, message: Any) -> None:
        """Note the epoch of a record and let it in; or note that one is done."""
        if isinstance(message, tuple):
            parent, child = message
            self.stamp[child] = self.stamp[parent]
            self._leaves(parent)
            self._let_in(port, child)
        elif isinstance(message, Done):
            self._leaves(message.record)
        elif isinstance(message, int):
            self.stamp[message] = self.port_epoch[port]
            self._let_in(port, message)
        else:
            self.control(port, message)
            return
        self._complete_what_may()

    def _let_in(self, port: int, record: int) -> None:
        slot = self.world.slot_of[record]
        if self.held and self.waits(port, record, slot):
            self.world.trace.held_by_mapper[slot] += 1
        else:
            self.route(record)

    def _leaves(self, record: int) -> None:
        self.inside[self.stamp[record]] -= 1

    def route(self, record: int) -> None:
        """Send a record into the loop."""
        self.inside[self.stamp[record]] += 1
        super().route(record)

    def waits(self, port: int, record: int, slot: int) -> bool:
        """With timestamps, records of the new epoch wait whichever way they come."""
        if not self.timestamps:
            return super().waits(port, record, slot)
        past = [epoch for epoch in self.held.get(slot, ()) if epoch <= self.stamp[record]]
        if past:
            self.buffers[max(past)].append(record)
        return bool(past)

    def control(self, port: int, message: ControlMessage) -> None:
        """Note a marker."""
        self.port_epoch[port] = message.event_time
        if message.event_time not in self.buffers and message.event_time not in self.seen:
            self.begin(message)
        self._complete_what_may()

    def _complete_what_may(self) -> None:
        while self._waiting and self._is_complete(self._waiting[0].event_time):
            self.complete(self._waiting.pop(0))

    def _is_complete(self, epoch: Epoch) -> bool:
        if not self.timestamps:
            return min(self.port_epoch) >= epoch
        older = any(count for stamp, count in self.inside.items() if stamp < epoch)
        return min(self.port_epoch[: self.sources]) >= epoch and not older


class LoopLane(AutoFlowLane):
    """Sends what a record causes back to the head, and every marker."""

    feedback: Channel
    next_of: Sequence[int]
    timestamps = True

    def after_record(self, record: int) -> None:
        """Feed back the next record, or the word that there is none."""
        child = self.next_of[record]
        self.feedback.send(Done(record) if child == NOTHING else (record, child))

    def complete(self, message: ControlMessage) -> int:
        """Send the marker round the loop, too; a head with timestamps does not wait for it."""
        busy = super().complete(message)
        if not self.timestamps:
            self.feedback.send(message)
        return busy


@dataclass(slots=True)
class LoopRun:
    """A graph with a loop, wired and ready."""

    world: World
    head: LoopHead
    lanes: list[LoopLane]
    scheduler: Scheduler

    def run(self) -> Result:
        """Run to the end and check everything."""
        return finish(self.world, self.lanes, self.head.owners)


def loop_run(
    stream: RecordStream, next_of: Sequence[int], plant: Plant, decider: Decider, *, timestamps: bool = True
) -> LoopRun:
    """Wire sources, one head, lanes and the way back. Record i causes record `next_of[i]`, or nothing (-1).

    Records that are caused have the last source of the stream, which sends nothing of its own.
    """
    world = World(stream, plant, ordered=False)
    sources = stream.sources - 1
    head = LoopHead(world, sources, len(plant.table.lanes), timestamps=timestamps)
    lanes = [LoopLane(world, at, 1, plant.service) for at in plant.table.lanes]
    connect(world, [head], lanes)
    scheduler = Scheduler(world, decider)
    for lane in lanes:
        lane.next_of, lane.timestamps = next_of, timestamps
        lane.feedback = world.channel(head.receive, sources + lane.lane)
        lane.reports = world.channel(scheduler.hear_report, lane.lane, plant.timing.metric)
        lane.acks = world.channel(scheduler.hear_ack, lane.lane, plant.timing.metric)
    entries = [Source(world, at, [world.channel(head.receive, at)]) for at in range(sources)]
    scheduler.outs = [world.channel(source.receive, 0, plant.timing.control) for source in entries]
    world.every(plant.period, scheduler.tick)
    return LoopRun(world, head, lanes, scheduler)
