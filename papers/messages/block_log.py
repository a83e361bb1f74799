"""evenflow's own protocol: records reach the lanes in epochs, over a shared log, and waiting input moves as references.

At the end of a period the records that came in are accepted as one epoch: the controller gives its control message,
the table in force routes them, and each lane is told its part. A move takes effect at its epoch t in one of two ways.
*At the timestamp*: the source serves the slot up to t - 1 and lets go. *At once*: the source lets go after the record
in hand; the state goes to the target together with references to what of the slot it had not served.
Either way the target lets records of the slot wait until it has it, and both serve everything else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenflow.control import Ack
from evenflow.migration import Event
from evenflow.model import Epoch, LoadReport, Move, SlotId
from papers.messages.decider import Decider, Script
from papers.messages.lane import Handoff, Lane, LetGo
from papers.messages.loop import Channel
from papers.messages.plant import Plant
from papers.messages.run import Result, finish
from papers.messages.stream import RecordStream
from papers.messages.world import MoveTrace, World

_LOOKS_PER_PERIOD = 10  # how often accept looks whether a lane that held it up has caught up


@dataclass(frozen=True, slots=True)
class Block:
    """A lane's part of an epoch: its records, and the moves that take effect."""

    epoch: Epoch
    records: list[int]
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Stands in a lane's queue behind the records of an epoch."""

    epoch: Epoch


class LogLane(Lane):
    """A lane that reads blocks; with `at_once` what leaves takes its waiting input along."""

    def __init__(self, world: World, lane: int, service: int, *, at_once: bool) -> None:
        """Begin before the first epoch."""
        super().__init__(world, lane, 1, service)
        self.at_once = at_once
        self.finished: Epoch = -1
        self.reports: Channel | None = None
        self._leaving: list[LetGo] = []

    def take_block(self, _: int, block: Block) -> None:
        """Take in an epoch: begin to wait for what comes, let go of what leaves, queue the rest."""
        for move in block.moves:
            order = LetGo(move, block.epoch)
            if move.target == self.lane:
                self.expect(move.slot, block.epoch)
            elif move.source == self.lane and self.at_once:
                self._leaving.append(order)
            elif move.source == self.lane:
                self.queue.append((0, order))
        self._let_all_go()
        self.queue.extend((0, record) for record in block.records)
        self.queue.append((0, EpochEnd(block.epoch)))
        self.wake()

    def _let_all_go(self) -> None:
        """Hand off all that leaves at once, but for the slot of the record in hand."""
        now = {order.move.slot: order for order in self._leaving if order.move.slot != self.slot_in_hand}
        self._leaving = [order for order in self._leaving if order.move.slot == self.slot_in_hand]
        if not now:
            return
        backlog: dict[SlotId, list[tuple[int, int]]] = {slot: [] for slot in now}
        kept: deque[tuple[int, Any]] = deque()
        for port, message in self.queue:
            slot = self.world.slot_of[message] if isinstance(message, int) else -1
            if slot in backlog:
                backlog[slot].append((0, message))
            else:
                kept.append((port, message))
        self.queue = kept
        for slot, order in now.items():
            self.world.trace.messages["reference"] += len(backlog[slot])
            self.send_state(Handoff(order.move, order.epoch, self.take_out(slot), tuple(backlog[slot])))

    def after_record(self, record: int) -> None:  # noqa: ARG002 - the interface
        """Let go of the slot that was in hand."""
        if self._leaving:
            self._let_all_go()

    def control(self, port: int, message: Any) -> int:
        """Hand off in the order of the queue, or close an epoch."""
        if isinstance(message, LetGo):
            return self.let_go(message)
        self.finished = message.epoch
        self.close_tally(port, message.epoch)
        if self.reports is not None:
            self.reports.send(self.load_report(message.epoch))
        return 0

    def epoch_of(self, port: int) -> Epoch:  # noqa: ARG002 - the interface
        """Return the newest: of a slot that is awaited, nothing older can be in this lane's queue."""
        return 1 << 60


@dataclass(slots=True)
class LogRun:
    """An evenflow query, wired and ready. `max_lag` bounds how many epochs a lane may be behind, None for no bound."""

    world: World
    decider: Decider
    lanes: list[LogLane]
    blocks: list[Channel]
    max_lag: int | None
    owners: list[int]
    accepted: Epoch = -1
    taken: int = 0

    def accept(self, _: Any = None, __: Any = None) -> None:
        """Accept what has come in as the next epoch, if no lane is too far behind."""
        world, period = self.world, self.world.plant.period
        behind = self.accepted - min(lane.finished for lane in self.lanes)
        if self.max_lag is not None and behind > self.max_lag:
            world.trace.messages["waited"] += 1
            world.loop.at(world.loop.now + period // _LOOKS_PER_PERIOD, self.accept)
            return
        self.accepted += 1
        self._route(self.accepted)
        if world.goes_on:
            world.loop.at(world.loop.now + period, self.accept)

    def _route(self, epoch: Epoch) -> None:
        world = self.world
        message = self.decider.next_epoch(epoch, world.now_s)
        for move in message.moves:
            world.trace.moves[move.slot, epoch] = MoveTrace(move, epoch, world.loop.now)
            self.owners[move.slot] = move.target
        world.checker.table_in_force(epoch, self.owners)
        upto = int(np.searchsorted(world.stream.due, world.loop.now, side="left"))
        parts: list[list[int]] = [[] for _ in self.lanes]
        for record in range(self.taken, upto):
            world.epoch_of[record] = epoch
            parts[self.owners[world.slot_of[record]]].append(record)
        self.taken = upto
        for channel, part in zip(self.blocks, parts, strict=True):
            channel.send(Block(epoch, part, message.moves))

    def hear_report(self, _: int, report: LoadReport) -> None:
        """Pass a load report on."""
        self.decider.report(report)

    def hear_ack(self, _: int, word: tuple[SlotId, Epoch, Event]) -> None:
        """Pass a lane's word on a move on."""
        self.decider.acknowledge(Ack(*word, at_s=self.world.now_s))

    def run(self) -> Result:
        """Run to the end and check everything."""
        return finish(self.world, self.lanes, self.owners)


def log_run(
    stream: RecordStream,
    plant: Plant,
    decider: Decider | None = None,
    *,
    at_once: bool = True,
    max_lag: int | None = None,
) -> LogRun:
    """Wire a query: one log that all lanes read."""
    world = World(stream, plant)
    lanes = [LogLane(world, at, plant.service, at_once=at_once) for at in plant.table.lanes]
    blocks = [world.channel(lane.take_block) for lane in lanes]
    run = LogRun(world, decider or Script(), lanes, blocks, max_lag, list(world.owners))
    for lane in lanes:
        lane.peers = list(lanes)
        lane.reports = world.channel(run.hear_report, lane.lane, plant.timing.metric)
        lane.acks = world.channel(run.hear_ack, lane.lane, plant.timing.metric)
    world.loop.at(plant.period, run.accept)
    return run
