"""A balancer with lanes that do as they are told, for stories about it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from evenflow.control import Ack, Balancer, BalancerOptions, Journal, LaneWish
from evenflow.control.journal import Entry, Refusal, Refused
from evenflow.migration import Event, Phase, strategy_named
from evenflow.model import LaneLoad, LoadReport, LoadView, Move, SlotLoads
from evenflow.policies import Proposal
from tests.strategies import runs

AnyEntry = TypeVar("AnyEntry", bound=Entry)

SLOTS = 8


class Scripted:
    """A policy that answers as the test says, then with nothing; `asked` keeps the views it was shown."""

    name = "scripted"

    def __init__(self, *answers: Any) -> None:
        self.answers = deque(answers)
        self.asked: list[LoadView] = []

    def propose(self, view: LoadView) -> Proposal | Iterable[Move]:
        self.asked.append(view)
        answer = self.answers.popleft() if self.answers else Proposal()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Story:
    """A balancer with 8 slots on 4 lanes, two each, and lanes that do as they are told; slot 0 is the hottest."""

    def __init__(self, *answers: Any, strategy: str = "sudden", lanes: int = 4, **options: Any) -> None:
        self.policy = Scripted(*answers)
        self.strategy = strategy_named(strategy)
        self.options = BalancerOptions(**options)
        self.journal = Journal()
        self.balancer = Balancer(runs(SLOTS, lanes), self.policy, self.strategy, self.options, self.journal)
        self.epoch = -1

    def begin(self, at_s: float = 0.0) -> tuple[Move, ...]:
        """Begin the next epoch and return the moves it announces."""
        self.epoch += 1
        message = self.balancer.next_epoch(self.epoch, at_s)
        assert message.event_time == self.epoch
        return message.moves

    def report(self, lane: int, epoch: int | None = None, size: int = 100) -> LaneWish | None:
        slots = self.balancer.table.slots_of(lane)
        counts = SLOTS - slots
        loads = SlotLoads.of(counts, busy_s=0.01 * counts, state_bytes=np.full(slots.size, size))
        return self.balancer.report(LoadReport(self.epoch if epoch is None else epoch, LaneLoad(lane), slots, loads))

    def report_all(self, size: int = 100) -> LaneWish | None:
        wishes = [self.report(lane, size=size) for lane in self.balancer.table.lanes]
        return next((wish for wish in wishes if wish), None)

    def run(self, epochs: int = 1, size: int = 100) -> list[tuple[Move, ...]]:
        """Run whole epochs in which all lanes report; return what each announced."""
        announced = []
        for _ in range(epochs):
            announced.append(self.begin())
            self.report_all(size)
        return announced

    def ack(self, slot: int, event: Event, epoch: int | None = None, at_s: float = 0.0) -> LaneWish | None:
        return self.balancer.acknowledge(Ack(slot, self.epoch if epoch is None else epoch, event, at_s))

    def settle(self, at_s: float = 0.0) -> LaneWish | None:
        """Let the lanes finish all that is in flight."""
        wish = None
        for life in self.balancer.in_flight:
            self.ack(life.move.slot, Event.HANDED_OFF, life.epoch)
            wish = self.ack(life.move.slot, Event.INSTALLED, life.epoch, at_s) or wish
        return wish

    def restart(self) -> None:
        """The balancer dies; another one goes on from what it left."""
        self.balancer = Balancer.restored(self.balancer.state, self.policy, self.strategy, self.options, self.journal)

    @property
    def phases(self) -> dict[int, Phase]:
        return {life.move.slot: life.phase for life in self.balancer.in_flight}

    @property
    def owners(self) -> list[int]:
        return [int(lane) for lane in self.balancer.table.owners]

    def of(self, kind: type[AnyEntry]) -> list[AnyEntry]:
        return self.journal.of(kind)

    @property
    def refusals(self) -> list[Refusal]:
        return [entry.refusal for entry in self.of(Refused)]


HOT = Move(0, 0, 3, "hot")
WARM = Move(1, 0, 2, "warm")
