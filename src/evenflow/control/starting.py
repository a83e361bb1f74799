"""Which of the steps that wait may begin now, and what each of the others waits for. Pure.

A plan has one step under way at a time: what its strategy promises (one move at a time, so many bytes, no lane twice)
holds for the plan. Steps of different plans overlap unless a lane is in the way: one that still gives or takes a slot,
or that an earlier step waits for. So each lane gets its steps in the order in which they were planned, none waits for a
lane that it has nothing to do with, and none waits for ever while others pass it. Slots of a lane that is gone wait for
nothing: nobody serves them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evenflow.control.plan_queue import Origin, WaitingStep
from evenflow.control.under_way import MovesUnderWay
from evenflow.migration import Step
from evenflow.model import LaneId, Move, SlotId


@dataclass(frozen=True, slots=True)
class Wait:
    """A step, or the rest of one, cannot begin yet."""

    plan: int
    moves: Step
    why: str
    for_bytes: bool = False


@dataclass
class Starting:
    """What may begin beside what is under way; filled step by step.

    `overlap`: whether a step may begin beside others at all. `most_bytes`: of state that may be in flight, one slot may
    always go. `size` tells the bytes of a slot, `is_ready` whether a move need not wait for a copy of its slot.
    """

    overlap: bool
    most_bytes: int | None
    size: Callable[[SlotId], int]
    is_ready: Callable[[Move], bool]
    begun: list[tuple[WaitingStep, Step]] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    _taken: dict[LaneId, str] = field(default_factory=dict)  # lanes in the way, and what they still do
    _bytes: int | None = None  # in flight; None as long as nothing is

    def choose(self, steps: Sequence[WaitingStep], under_way: MovesUnderWay) -> None:
        """Go through the next steps of all plans, in order."""
        self._taken, unfinished = under_way.busy, under_way.plans
        self._count([life.move for life in under_way.lives])
        for step in (step for step in steps if step.origin is Origin.GONE):
            self._now(step, step.moves)
        for step in (step for step in steps if step.origin is not Origin.GONE):
            if step.plan in unfinished:
                continue
            if not self.overlap and (under_way or self.begun or self.waits):
                return
            moves = self._begin(step)
            if moves:
                self._now(step, moves)
            else:
                self._occupy(step.moves, "is first to give", "is first to take")

    def _now(self, step: WaitingStep, moves: Step) -> None:
        self.begun.append((step, moves))
        self._occupy(moves, "still gives", "still takes")
        self._count(moves)

    def _begin(self, step: WaitingStep) -> Step:
        """Return the moves of a step that may be announced now: all, none, or as many as may be in flight."""
        lane = min((lane for lane in lanes_of(step.moves) if lane in self._taken), default=None)
        if lane is not None:
            self.waits.append(Wait(step.plan, step.moves, f"waits for lane {lane}, which {self._taken[lane]}"))
            return ()
        copied_first = next((move for move in step.moves if not self.is_ready(move)), None)
        if copied_first is not None:
            why = f"waits until lane {copied_first.target} has loaded slot {copied_first.slot} ahead"
            self.waits.append(Wait(step.plan, step.moves, why))
            return ()
        now = self._within_bytes(step.moves)
        if len(now) < len(step.moves):
            why = f"at most {self.most_bytes} bytes may be in flight"
            self.waits.append(Wait(step.plan, step.moves[len(now) :], why, for_bytes=True))
        return now

    def _within_bytes(self, moves: Step) -> Step:
        if self.most_bytes is None:
            return moves
        used, now = self._bytes, 0
        for move in moves:
            size = self.size(move.slot)
            if used is not None and used + size > self.most_bytes:
                break
            used, now = (used or 0) + size, now + 1
        return moves[:now]

    def _count(self, moves: Collection[Move]) -> None:
        if moves and self.most_bytes is not None:
            self._bytes = (self._bytes or 0) + sum(self.size(move.slot) for move in moves)

    def _occupy(self, moves: Iterable[Move], gives: str, takes: str) -> None:
        for move in moves:
            self._taken.setdefault(move.source, f"{gives} slot {move.slot}")
            self._taken.setdefault(move.target, f"{takes} slot {move.slot}")


def to_copy_ahead(steps: Sequence[WaitingStep], under_way: MovesUnderWay, *, overlap: bool) -> list[Move]:
    """Return the moves of the steps that come next and can begin beside each other: their slots may be copied ahead."""
    coming: list[Move] = []
    taken: set[LaneId] = set()
    steps = [step for step in steps if step.origin is not Origin.GONE]  # these wait for no copy
    for step in steps if overlap else steps[:1]:
        lanes = lanes_of(step.moves)
        if taken.isdisjoint(lanes):
            coming += step.moves
        if step.plan not in under_way.plans:  # else who knows when it begins: nobody waits for it
            taken |= lanes
    return coming


def lanes_of(moves: Iterable[Move]) -> set[LaneId]:
    """Return the lanes that give or take in moves."""
    return {lane for move in moves for lane in (move.source, move.target)}


def newly(waits: Iterable[Wait], said: Mapping[int, str]) -> list[Wait]:
    """Return the waits that have not been spoken of: each is told once, and again when its reason changes."""
    return [wait for wait in waits if said.get(wait.plan) != wait.why]
