"""DPA's alternatives of section 7 that move the state of a key before any of its inputs, so that nothing is merged.

*State forwarding* (DP-F2): mappers follow the ring at once. The old owner sends the state, forwards what it still
finds in its queue, and says when no more can come; the new owner serves what was forwarded and keeps what comes from
the mappers until then. The ring rests meanwhile. *Simple variant* (DP-F3): mappers are never told. The first owner of
a key hands each input on to the present one, with an order to hand over the state in between when that changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenflow.model import LaneId, Move, SlotId
from papers.dpa.protocol.forwarding import Reducer, RingMapper, Variant
from papers.messages.folds import KeyState
from papers.messages.lane import LetGo


@dataclass(frozen=True, slots=True)
class NewRing:
    """Behind this message a mapper routes by version `version` of the ring."""

    version: int


@dataclass(frozen=True, slots=True)
class StateOf:
    """The state of a key, on the channel that its forwarded inputs take."""

    slot: SlotId
    state: KeyState


@dataclass(frozen=True, slots=True)
class NoMore:
    """All inputs of a key that its old owner had are forwarded."""

    slot: SlotId
    version: int


@dataclass(frozen=True, slots=True)
class Settled:
    """What had waited for a key has been served: the ring may change again."""

    slot: SlotId


@dataclass(frozen=True, slots=True)
class Expect:
    """The inputs behind this message wait until the state of the key is here."""

    slot: SlotId
    version: int


class MarkingMapper(RingMapper):
    """Tells all reducers, in the stream, from where on it goes by a new ring."""

    def control(self, port: int, message: Any) -> None:
        """Take over a new ring and mark the place."""
        super().control(port, message)
        self.epoch += 1
        self.to_all(NewRing(self.epoch))


class StateForwardingReducer(Reducer):
    """The reducer of DP-F2."""

    def __init__(self, *parts: Any) -> None:
        """Begin with nothing on its way."""
        super().__init__(*parts)
        self.leaving: dict[SlotId, LaneId] = {}
        self.left_at = 0
        self.unsent: set[SlotId] = set()

    def ring_changed(self, version: int, moves: Sequence[Move]) -> None:
        """The balancer has changed the ring: expect what comes, send the state of what goes."""
        for move in moves:
            if move.target == self.lane:
                self.expect(move.slot, version)
            if move.source == self.lane:
                self.leaving[move.slot], self.left_at = move.target, version
                self.unsent.add(move.slot)
        self._send_states()

    def _send_states(self) -> None:
        for slot in sorted(self.unsent - {self.slot_in_hand}):
            self.unsent.remove(slot)
            self.forwards[self.leaving[slot]].send(StateOf(slot, self.take_out(slot)))

    def after_record(self, record: int) -> None:  # noqa: ARG002 - the interface
        """What was in service when the ring changed can go now."""
        if self.unsent:
            self._send_states()

    def control(self, port: int, message: Any) -> int:
        """Install a state, go on where no more is forwarded, or note a mapper's mark."""
        if isinstance(message, StateOf):
            self.world.checker.installed(message.slot, self.lane)
            self.state[message.slot] = message.state
        elif isinstance(message, NoMore):
            waited = self.absent[message.slot].pop(message.version)
            del self.absent[message.slot]
            self.queue.appendleft((port, Settled(message.slot)))  # once what waited is served
            self.queue.extendleft((~port, record) for port, record in reversed(waited))
        elif isinstance(message, Settled):
            self.balancer.settled(message.slot)
        else:
            self.port_epoch[port] = message.version
            self._say_what_is_done()
        return 0

    def _say_what_is_done(self) -> None:
        """Once every mapper goes by the new ring, no more input of a key that left can come."""
        if self.leaving and min(self.port_epoch[: self.world.stream.mappers]) >= self.left_at:
            for slot, target in self.leaving.items():
                self.forwards[target].send(NoMore(slot, self.left_at))
            self.leaving = {}


class SimpleReducer(Reducer):
    """The reducer of DP-F3: the first owner of a key is its home and passes its inputs on."""

    def __init__(self, *parts: Any) -> None:
        """Begin as the present owner of all keys whose home this is."""
        super().__init__(*parts)
        self.current = dict.fromkeys(self.state, self.lane)
        self.to_leave: list[LetGo] = []

    def ring_changed(self, version: int, moves: Sequence[Move]) -> None:
        """Redirect the keys whose home this is, and have their state follow."""
        for move in moves:
            if move.slot not in self.current:
                continue
            order = LetGo(Move(move.slot, self.current[move.slot], move.target), version)
            self.current[move.slot] = move.target
            if order.move.target == self.lane:
                self.expect(move.slot, version)
            else:
                self.forwards[order.move.target].send(Expect(move.slot, version))
            if order.move.source == self.lane:
                self.to_leave.append(order)
            else:
                self.forwards[order.move.source].send(order)
        self._let_all_go()

    def _let_all_go(self) -> None:
        now = [order for order in self.to_leave if order.move.slot != self.slot_in_hand]
        self.to_leave = [order for order in self.to_leave if order.move.slot == self.slot_in_hand]
        for order in now:
            self._let_go_behind_its_own(order)

    def _let_go_behind_its_own(self, order: LetGo) -> None:
        """Hand over now, or behind what has waited for the key here and is still in the queue."""
        slot_of = self.world.slot_of
        own = [
            at
            for at, (port, message) in enumerate(self.queue)
            if port < 0 and isinstance(message, int) and slot_of[message] == order.move.slot
        ]
        if own:
            self.queue.insert(own[-1] + 1, (0, order))
        else:
            self.let_go(order)

    def after_record(self, record: int) -> None:  # noqa: ARG002 - the interface
        """What was in service when the ring changed can go now."""
        if self.to_leave:
            self._let_all_go()

    def owns(self, record: int, slot: SlotId) -> bool:
        """Pass on what has its home here and lives elsewhere; what was passed on to this reducer is its own."""
        owner = self.current.get(slot, self.lane)
        if owner != self.lane:
            self.forward(record, owner)
        return owner == self.lane

    def control(self, port: int, message: Any) -> int:  # noqa: ARG002 - the interface
        """Wait for a state, or hand one over, as the home of the key says."""
        if isinstance(message, Expect):
            self.expect(message.slot, message.version)
            return 0
        return self.let_go(message)

    def epoch_of(self, port: int) -> int:  # noqa: ARG002 - the interface
        """Return the newest: all inputs of a key come through its home, in order with what it says."""
        return self.balancer.version


STATE_FORWARDING = Variant("forward the state, then inputs", StateForwardingReducer, MarkingMapper, rests=True)
SIMPLE = Variant("mappers are never told", SimpleReducer, tells_mappers=False)
