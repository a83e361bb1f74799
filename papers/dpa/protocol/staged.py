"""DPA's staged synchronisation (section 7, DP-F4, F5): all reducers agree on a ring, exchange state, then forward data.

::

    leader    PROPOSE ─▶ all stop and say so ─▶ COMMIT ─▶ all exchange state ─▶ all have all of it ─▶ FREE
    reducer   (as before)   synchronizing: nothing      substage 1: no forwarding          substage 2: forwards

In substage 1 a reducer serves keys that are its own before and after; what it would have to forward goes back into
its queue (DP-A14). Between PROPOSE and COMMIT it does nothing at all (A15). So in substage 2 the state of a key is at
its owner, however old the ring by which a record was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from evenflow.model import LaneId, Move, SlotId
from papers.dpa.protocol.forwarding import Reducer, Variant
from papers.messages.folds import KeyState
from papers.messages.loop import Channel


class Stage(Enum):
    """What a reducer may do."""

    SYNCHRONIZING = "nothing"
    EXCHANGING = "serve what is its own and was before"
    FREE = "serve and forward"


@dataclass(frozen=True, slots=True)
class States:
    """All states that one reducer has for another in a stage; also sent if there are none."""

    version: int
    sender: LaneId
    states: dict[SlotId, KeyState]


class StagedReducer(Reducer):
    """A reducer that acts on the ring of its stage only; reducer 0 also leads the agreement."""

    def __init__(self, *parts: Any) -> None:
        """Begin in the second substage of version 0, where all agree."""
        super().__init__(*parts)
        self.stage = Stage.FREE
        self.version = 0
        self.ring_owners = list(self.balancer.owners)
        self.moving: set[SlotId] = set()
        self.aside: list[tuple[int, int]] = []
        self.stages: list[tuple[int, tuple[LaneId, ...]]] = []
        self._proposed: tuple[int, tuple[LaneId, ...]] | None = None
        self._came: set[LaneId] = set()
        self._ahead: list[States] = []
        self._votes: set[LaneId] = set()
        self._ready: set[LaneId] = set()
        self._wires: list[Channel] | None = None

    # --- the leader -----------------------------------------------------------------------------------------------

    def ring_changed(self, version: int, moves: Sequence[Move]) -> None:
        """Reducer 0 proposes the ring to all, if any key changes its owner."""
        if self.lane == 0 and moves:
            self._votes, self._ready = set(), set()
            self._to_all(("propose", version, tuple(self.balancer.owners)))

    def _to_all(self, word: tuple[Any, ...]) -> None:
        for wire in self.wires:
            self.world.trace.messages["agreement"] += 1
            wire.send(word)

    @property
    def wires(self) -> list[Channel]:
        """Channels for agreement, apart from those of data."""
        if self._wires is None:
            delay = (self.options.forward_delay,) * 2
            self._wires = [self.world.channel(other.hear, self.lane, delay) for other in self._others()]
        return self._wires

    def _others(self) -> list[StagedReducer]:
        return [peer for peer in self.peers if isinstance(peer, StagedReducer)]

    def hear(self, sender: int, word: Any) -> None:
        """Act on a word of the agreement, at once: it does not queue behind data."""
        if isinstance(word, States):
            self._take_in(word)
            return
        kind, version, *rest = word
        if kind == "propose":
            self.stage, self._proposed = Stage.SYNCHRONIZING, (version, rest[0])
            self._agree_when_idle()
        elif kind == "agree":
            self._votes.add(sender)
            if len(self._votes) == len(self.peers):
                self._to_all(("commit", version))
        elif kind == "commit":
            self._exchange()
        elif kind == "exchanged":
            self._ready.add(sender)
            if len(self._ready) == len(self.peers):
                self._to_all(("free", version))
        else:
            self._go_free()

    # --- every reducer --------------------------------------------------------------------------------------------

    def _agree_when_idle(self) -> None:
        """Stop after the record in hand, then say so."""
        if self._proposed is not None and self.slot_in_hand < 0:
            self.wires[0].send(("agree", self._proposed[0]))

    def after_record(self, record: int) -> None:  # noqa: ARG002 - the interface
        """A record in hand was waited for."""
        if self.stage is Stage.SYNCHRONIZING:
            self._agree_when_idle()

    def _exchange(self) -> None:
        """Substage 1: send every state to its owner in the new ring."""
        assert self._proposed is not None  # noqa: S101 - commit follows propose
        before = self.ring_owners
        self.version, owners = self._proposed
        self.ring_owners = list(owners)
        self.stages.append((self.version, owners))
        self.moving = {slot for slot, owner in enumerate(owners) if owner != before[slot]}
        self.stage, self._came = Stage.EXCHANGING, set()
        for other in range(len(self.peers)):
            slots = [slot for slot in self.moving if slot in self.state and self.ring_owners[slot] == other]
            states = {slot: self.take_out(slot) for slot in slots}
            self.wires[other].send(States(self.version, self.lane, states))
        ahead, self._ahead = self._ahead, []
        for word in ahead:
            self._take_in(word)
        self.wake()

    def _take_in(self, word: States) -> None:
        if word.version != self.version:
            self._ahead.append(word)
            return
        for slot, state in word.states.items():
            self.world.checker.installed(slot, self.lane)
            self.state[slot] = state
        self._came.add(word.sender)
        if len(self._came) == len(self.peers):
            self.wires[0].send(("exchanged", self.version))

    def _go_free(self) -> None:
        """Substage 2: what was put back may be forwarded now."""
        self.stage, self.moving = Stage.FREE, set()
        self.queue.extend(self.aside)
        self.aside = []
        if self.lane == 0:  # what it proposes next reaches the others behind the word that they are free
            for slot in range(len(self.ring_owners)):
                self.balancer.settled(slot)
        self.wake()

    def admits(self, port: int, record: int, slot: SlotId) -> bool:
        """While synchronizing do nothing, not even count."""
        if self.stage is Stage.SYNCHRONIZING:
            self.aside.append((port, record))
            return False
        return super().admits(port, record, slot)

    def owns(self, record: int, slot: SlotId) -> bool:
        """Serve what is its own; forward the rest in substage 2 only, put it back before."""
        if self.stage is Stage.FREE:
            owner = self.ring_owners[slot]
            if owner != self.lane:
                self.forward(record, owner)
            return owner == self.lane
        if self.stage is Stage.EXCHANGING and self.ring_owners[slot] == self.lane and slot not in self.moving:
            return True
        self.aside.append((0, record))
        return False


STAGED = Variant("staged synchronisation", StagedReducer, rests=True, ordered=False)
