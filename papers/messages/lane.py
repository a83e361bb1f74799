"""A lane: one server with one queue, the state of its slots, and records of absent slots that wait for theirs.

Protocols are subclasses: they say what a control message means. A lane takes its queue in order, whatever is in it,
so a control message waits behind the records that came before it. That is what makes it a barrier.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenflow.migration import Event
from evenflow.model import Epoch, LaneId, LaneLoad, LoadReport, Move, SlotId, SlotLoads
from papers.messages.folds import KeyState
from papers.messages.loop import Channel
from papers.messages.world import World

BYTES_PER_KEY = 100
NOTHING = -1
_LATER = 1 << 20


@dataclass(frozen=True, slots=True)
class LetGo:
    """An order to let go of a slot, in the queue of the lane that has it, behind all it still has to serve."""

    move: Move
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Handoff:
    """The state of a slot on its way; `backlog` are records that travel with it, with the port they came in by."""

    move: Move
    epoch: Epoch
    state: KeyState
    backlog: tuple[tuple[int, int], ...] = ()


class Lane:
    """See the module. `ports` is the number of mappers that send to this lane."""

    holds_slots = True

    def __init__(self, world: World, lane: LaneId, ports: int, service: int) -> None:
        """Begin with empty state for each slot that the lane owns; a record takes `service` microseconds."""
        self.world, self.lane, self.service = world, lane, service
        self.rank = 0  # among lanes that finish a record at the same instant
        self.state: dict[SlotId, KeyState] = {slot: {} for slot, owner in enumerate(world.owners) if owner == lane}
        self.queue: deque[tuple[int, Any]] = deque()
        self.absent: dict[SlotId, dict[Epoch, list[tuple[int, Any]]]] = {}
        self.port_epoch = [0] * ports
        self.peers: list[Lane] = []
        self.served = 0
        self._early: set[tuple[SlotId, Epoch]] = set()
        self.acks: Channel | None = None
        self._busy = False
        self._in_hand = NOTHING
        self._tally = [[0] * world.stream.slots for _ in range(ports)]
        self._closed: dict[Epoch, Any] = {}
        self._epoch_began = 0
        self._step, self._initial = world.fold.step, world.fold.initial

    # --- the server -----------------------------------------------------------------------------------------------

    def receive(self, port: int, message: Any) -> None:
        """Take in a message: a record (a number) or anything else, which `control` will understand."""
        self.queue.append((port, message))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        """Take messages from the queue until one keeps the lane busy."""
        queue, slot_of, world = self.queue, self.world.slot_of, self.world
        holder = world.checker.holder
        while queue:
            port, message = queue.popleft()
            if type(message) is int:
                slot = slot_of[message]
                if port < 0:
                    port = ~port  # it has been admitted and has waited already
                elif not self.admits(port, message, slot):
                    self._busy = True  # whoever else is ready at this instant goes first
                    world.loop.at(world.loop.now, self._free, rank=_LATER + self.rank)
                    return
                elif slot in self.absent and self._wait(port, message, slot):
                    continue
                if self.holds_slots and holder[slot] != self.lane:
                    world.checker.found["a slot was served by a lane that does not hold it"] += 1
                self._busy, self._in_hand = True, message
                world.loop.at(world.loop.now + self.service, self._done, port, message, self.rank)
                return
            busy = self.control(port, message)
            if busy:
                self._busy = True
                world.loop.at(world.loop.now + busy, self._free, None, None)
                return
        self._busy = False

    def _done(self, port: int, record: int) -> None:
        world = self.world
        slot, key = world.slot_of[record], world.key_of[record]
        states = self.state.get(slot)
        if states is None:
            states = self.state[slot] = {}  # what code without a checker would do; the checker sees it
        states[key] = self._step(states.get(key, self._initial), world.value_of[record])
        self._tally[port][slot] += 1
        self.served += 1
        world.checker.served(record, self.lane, world.loop.now)
        self._in_hand = NOTHING
        self.after_record(record)
        self._next()

    def _free(self, _: Any, __: Any) -> None:
        self._next()

    @property
    def slot_in_hand(self) -> SlotId:
        """The slot of the record that is being served, -1 if there is none."""
        return NOTHING if self._in_hand == NOTHING else self.world.slot_of[self._in_hand]

    def wake(self) -> None:
        """Go on if there is something to do and nothing is being done."""
        if not self._busy:
            self._next()

    # --- what protocols decide ------------------------------------------------------------------------------------

    def admits(self, port: int, record: int, slot: SlotId) -> bool:  # noqa: ARG002 - the interface
        """Whether a record is this lane's to serve; a protocol that says no has put it elsewhere."""
        return True

    def control(self, port: int, message: Any) -> int:
        """Act on a message that is no record; return for how long it keeps the lane busy."""
        raise NotImplementedError

    def after_record(self, record: int) -> None:
        """A record has been served."""

    # --- absent slots ---------------------------------------------------------------------------------------------

    def expect(self, slot: SlotId, epoch: Epoch) -> None:
        """Let records of `slot` from `epoch` on wait until its state is here; one buffer per epoch (AF-A5)."""
        if (slot, epoch) in self._early:
            self._early.remove((slot, epoch))
            return
        self.absent.setdefault(slot, {}).setdefault(epoch, [])

    def epoch_of(self, port: int) -> Epoch:
        """Return the epoch of the records that come in by a port now."""
        return self.port_epoch[port]

    def _wait(self, port: int, message: Any, slot: SlotId) -> bool:
        """Put a record of an absent slot aside; those routed before the move are not concerned."""
        reached = [epoch for epoch in self.absent[slot] if epoch <= self.epoch_of(port)]
        if not reached:
            return False
        self.absent[slot][max(reached)].append((port, message))
        self.world.trace.held_by_lane[slot] += 1
        return True

    def let_go(self, order: LetGo) -> int:
        """Hand the slot to its next lane, now or once it has come and been served. Return the time it costs."""
        slot = order.move.slot
        waiting = [epoch for epoch in self.absent.get(slot, {}) if epoch < order.epoch]
        if waiting:
            self.absent[slot][max(waiting)].append((0, order))
            return 0
        return self.send_state(Handoff(order.move, order.epoch, self.take_out(slot)))

    def take_out(self, slot: SlotId) -> KeyState:
        """Remove the state of a slot."""
        self.world.checker.released(slot, self.lane)
        return self.state.pop(slot, {})

    def send_state(self, handoff: Handoff) -> int:
        """Send a slot on its way in the background; return what it costs the lane itself."""
        world, timing = self.world, self.world.timing
        own = timing.hand_over_per_key * len(handoff.state)
        trip = own + timing.transfer + timing.transfer_per_key * len(handoff.state)
        trace = world.trace.moves.get((handoff.move.slot, handoff.epoch))
        if trace is not None:
            trace.handed_off, trace.keys = world.loop.now, len(handoff.state)
        world.trace.messages["state"] += 1
        self._acknowledge(handoff, Event.HANDED_OFF)
        world.loop.at(world.loop.now + trip, self.peers[handoff.move.target].state_arrives, self.lane, handoff)
        return own

    def state_arrives(self, _: int, handoff: Handoff) -> None:
        """Install a slot and put what waited for it in front of the queue, in the order of arrival (AF-A9, A10)."""
        slot, world = handoff.move.slot, self.world
        world.checker.installed(slot, self.lane)
        self.state[slot] = handoff.state
        buffers = self.absent.get(slot, {})
        if handoff.epoch not in buffers:
            self._early.add((slot, handoff.epoch))  # the lane has not come to the order to wait for it (AF-A10)
        waited = buffers.pop(handoff.epoch, [])
        if not buffers:
            self.absent.pop(slot, None)
        self.queue.extendleft((~port, message) for port, message in reversed([*handoff.backlog, *waited]))
        trace = world.trace.moves.get((slot, handoff.epoch))
        if trace is not None:
            trace.installed, trace.buffered = world.loop.now, len(waited)
        self._acknowledge(handoff, Event.INSTALLED)
        self.after_install(handoff)
        self.wake()

    def _acknowledge(self, handoff: Handoff, event: Event) -> None:
        if self.acks is not None:
            self.acks.send((handoff.move.slot, handoff.epoch, event))

    def after_install(self, handoff: Handoff) -> None:
        """A slot has been installed."""

    # --- what the lane measures -----------------------------------------------------------------------------------

    def close_tally(self, port: int, epoch: Epoch) -> None:
        """Count what came in by `port` since its last marker as load of `epoch`."""
        counts = np.array(self._tally[port], np.int64)
        self._closed[epoch] = self._closed.get(epoch, 0) + counts
        self._tally[port] = [0] * counts.size

    def load_report(self, epoch: Epoch) -> LoadReport:
        """Return what `epoch` cost, once all its tallies are closed."""
        counts, now = self._closed.pop(epoch), self.world.loop.now
        mine = np.flatnonzero((counts > 0) | np.isin(np.arange(counts.size), list(self.state)))
        busy = counts[mine] * (self.service / 1e6)
        span = max(now - self._epoch_began, 1) / 1e6
        self._epoch_began = now
        keys = [len(self.state.get(slot, ())) for slot in mine.tolist()]
        load = LaneLoad(self.lane, max(0.0, span - float(busy.sum())), span, queue=len(self.queue))
        return LoadReport(epoch, load, mine, SlotLoads.of(counts[mine], busy, np.array(keys) * BYTES_PER_KEY))
