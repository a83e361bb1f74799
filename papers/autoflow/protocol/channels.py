"""AutoFlow's protocol: control messages in the stream, implicit barriers, and records of moved slots that wait.

Algorithm 1 is `AutoFlowMapper`, Algorithm 2 `AutoFlowLane`, the timer and the way to Algorithm 3 `Scheduler`.
Readings: a record waits if its slot moves and its channel has delivered the control message (AF-A1); the table is
changed, the message broadcast, then the buffer flushed (A2); what has moved is forgotten (A3); a message without
moves is empty (A4); one buffer per control message, so that several may be under way (A5); only the order of
channels counts, records carry no time (A6); finished channels have delivered everything (A7); on arrival state is
installed, then what waited is served in order (A9), whenever that is (A10); load reports travel by themselves (A14).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from evenflow.control import Ack
from evenflow.migration import Event
from evenflow.model import ControlMessage, Epoch, LoadReport
from papers.messages.decider import Decider
from papers.messages.lane import Lane, LetGo
from papers.messages.loop import Channel
from papers.messages.mapper import FINISHED, Finished, Mapper
from papers.messages.world import MoveTrace, World


class AutoFlowMapper(Mapper):
    """Algorithm 1."""

    def __init__(self, world: World, mapper: int, ports: int) -> None:
        """Begin with no migration under way."""
        super().__init__(world, mapper, ports)
        self.seen: list[Epoch] = []
        self.buffers: dict[Epoch, list[int]] = {}
        self._waiting: list[ControlMessage] = []

    def control(self, port: int, message: Any) -> None:
        """Note a marker; when it has come in by all channels, it is a barrier."""
        if isinstance(message, Finished):
            self.port_epoch[port] = FINISHED
        else:
            self.port_epoch[port] = message.event_time
            if message.event_time not in self.buffers:
                self.begin(message)
        while self._waiting and min(self.port_epoch) >= self._waiting[0].event_time:
            self.complete(self._waiting.pop(0))

    def begin(self, message: ControlMessage) -> None:
        """Register the slots that move, at the first marker (lines 4 to 8)."""
        self._waiting.append(message)
        self.buffers[message.event_time] = []
        for move in message.moves:
            self.held.setdefault(move.slot, []).append(message.event_time)

    def waits(self, port: int, record: int, slot: int) -> bool:
        """Put a record aside if its slot moves and its channel is past the marker (line 26 as AF-A1 reads it)."""
        past = [epoch for epoch in self.held.get(slot, ()) if epoch <= self.port_epoch[port]]
        if past:
            self.buffers[max(past)].append(record)
        return bool(past)

    def complete(self, message: ControlMessage) -> None:
        """All channels have delivered the message (lines 12 to 21, in the order of the text)."""
        self.seen.append(message.event_time)
        self.switch(message)
        self.to_all(message)
        self.forget(message)
        self.flush(message)

    def switch(self, message: ControlMessage) -> None:
        """Change the routing table."""
        self.epoch = message.event_time
        if message.migration:
            for move in message.moves:
                self.owners[move.slot] = move.target
            self.world.checker.table_in_force(self.epoch, self.owners)

    def flush(self, message: ControlMessage) -> None:
        """Route what waited by the new table."""
        for record in self.buffers.pop(message.event_time):
            self.route(record)

    def forget(self, message: ControlMessage) -> None:
        """Let the slots' records pass again (AF-A3)."""
        for move in message.moves:
            self.held[move.slot].remove(message.event_time)
            if not self.held[move.slot]:
                del self.held[move.slot]


class AutoFlowLane(Lane):
    """Algorithm 2, and the counts per slot that go back to the scheduler at each barrier."""

    def __init__(self, world: World, lane: int, ports: int, service: int) -> None:
        """Begin with no migration under way."""
        super().__init__(world, lane, ports, service)
        self.seen: list[Epoch] = []
        self.reports: Channel | None = None
        self._newest = 0

    def control(self, port: int, message: Any) -> int:
        """Note a marker; at the barrier report, and hand off what leaves."""
        if isinstance(message, LetGo):
            return self.let_go(message)
        epoch: Epoch = message.event_time
        self.close_tally(port, epoch - 1)
        self.port_epoch[port] = epoch
        if epoch > self._newest:
            self._newest = epoch
            self.begin(message)
        cost = self.world.timing.marker
        return cost + self.complete(message) if min(self.port_epoch) >= epoch else cost

    def begin(self, message: ControlMessage) -> None:
        """At the first marker, let records of slots that will come wait (lines 4 to 10)."""
        for move in message.moves:
            if move.target == self.lane:
                self.expect(move.slot, message.event_time)

    def complete(self, message: ControlMessage) -> int:
        """All channels have delivered the message (lines 14 to 23): nothing of the old epoch will come."""
        epoch = message.event_time
        self.seen.append(epoch)
        if self.reports is not None:
            self.reports.send(self.load_report(epoch - 1))
        leaving = [move for move in message.moves if move.source == self.lane]
        return sum(self.let_go(LetGo(move, epoch)) for move in leaving)


@dataclass
class Scheduler:
    """The operator that sends control messages to all sources and hears from all lanes (section III-A)."""

    world: World
    decider: Decider
    outs: list[Channel] = field(default_factory=list)
    sent: list[Epoch] = field(default_factory=list)
    replies: dict[Epoch, set[int]] = field(default_factory=dict)

    def tick(self, epoch: Epoch) -> None:
        """Send the control message of an epoch to every source."""
        message = self.decider.next_epoch(epoch, self.world.now_s)
        self.sent.append(epoch)
        for move in message.moves:
            self.world.trace.moves[move.slot, epoch] = MoveTrace(move, epoch, self.world.loop.now)
        for out in self.outs:
            self.world.trace.messages["control"] += 1
            out.send(message)

    def hear_report(self, _: int, report: LoadReport) -> None:
        """Pass a load report on."""
        self.world.trace.messages["report"] += 1
        self.replies.setdefault(report.epoch, set()).add(report.lane.lane)
        self.decider.report(report)

    def hear_ack(self, _: int, word: tuple[int, Epoch, Event]) -> None:
        """Pass a lane's word on a move on."""
        self.world.trace.messages["ack"] += 1
        self.decider.acknowledge(Ack(*word, at_s=self.world.now_s))
