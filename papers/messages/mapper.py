"""Sources and mappers: records enter at a source when they are due, a mapper sends each to the lane of its slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.messages.loop import Channel
from papers.messages.world import World

FINISHED = 1 << 60
"""The epoch of a channel on which nothing more will come: it has delivered every control message (AF-A7)."""


class Finished:
    """The last message of a source that closes."""


class Source:
    """Sends its records when they are due, and every other message to all mappers, in between (AF-A17)."""

    def __init__(self, world: World, source: int, outs: Sequence[Channel], *, closes: bool = False) -> None:
        """Take the records of `source`; with `closes` it says so after the last one and forwards nothing any more."""
        self.world, self.outs, self.closes = world, outs, closes
        self.seen: list[Any] = []
        self.emitted = 0
        self._records: list[int] = np.flatnonzero(world.stream.source == source).tolist()
        if self._records:
            world.loop.at(world.due[self._records[0]], self._emit, 0)
        elif closes:
            self._to_all(Finished())

    def _emit(self, at: int, _: Any) -> None:
        record, world = self._records[at], self.world
        self.emitted += 1
        self.outs[world.mapper_of[record]].send(record)
        if at + 1 < len(self._records):
            world.loop.at(world.due[self._records[at + 1]], self._emit, at + 1)
        elif self.closes:
            self._to_all(Finished())

    def receive(self, _: int, message: Any) -> None:
        """Put a control message into the stream of data."""
        self.seen.append(message)
        if not (self.closes and self.is_done):
            self._to_all(message)

    @property
    def is_done(self) -> bool:
        """Whether every record has been sent."""
        return self.emitted == len(self._records)

    def _to_all(self, message: Any) -> None:
        for out in self.outs:
            self.world.trace.messages["control"] += 1
            out.send(message)


class Mapper:
    """Routes each record by its own copy of the table; `held` are slots whose records may have to wait."""

    def __init__(self, world: World, mapper: int, ports: int) -> None:
        """Begin with the table of the run."""
        self.world, self.mapper = world, mapper
        self.owners = list(world.owners)
        self.outs: list[Channel] = []
        self.port_epoch = [0] * ports
        self.epoch = 0
        self.held: dict[int, Any] = {}
        world.checker.table_in_force(0, self.owners)

    def receive(self, port: int, message: Any) -> None:
        """Route a record, or let `control` act on anything else."""
        if type(message) is int:
            slot = self.world.slot_of[message]
            if self.held and self.waits(port, message, slot):
                self.world.trace.held_by_mapper[slot] += 1
                return
            self.world.epoch_of[message] = self.epoch
            self.outs[self.owners[slot]].send(message)
        else:
            self.control(port, message)

    def route(self, record: int) -> None:
        """Send a record to the lane that owns its slot now."""
        self.world.epoch_of[record] = self.epoch
        self.outs[self.owners[self.world.slot_of[record]]].send(record)

    def waits(self, port: int, record: int, slot: int) -> bool:
        """Whether a record has to wait; the protocol has put it aside then. Asked only while `held` is not empty."""
        raise NotImplementedError

    def control(self, port: int, message: Any) -> None:
        """Act on a message that is no record."""
        raise NotImplementedError

    def to_all(self, message: Any) -> None:
        """Send a message to all lanes, behind the records sent so far."""
        for out in self.outs:
            self.world.trace.messages["control"] += 1
            out.send(message)
