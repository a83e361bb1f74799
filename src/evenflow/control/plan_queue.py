"""Plans that wait to be carried out: steps by the epochs they may begin at; newer plans supersede older ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile

from evenflow.errors import InputError
from evenflow.migration import QueuedStep, Step
from evenflow.model import Epoch, LaneId, Move, RoutingTable, SlotId


class Origin(Enum):
    """Whose plan it is."""

    POLICY = "decided by the policy"
    BY_HAND = "asked for by hand"
    RESIZE = "other lanes were asked for"
    GONE = "a lane does not come back"


@dataclass(frozen=True, slots=True)
class WaitingStep:
    """A step of a plan that has not begun, and must not before an epoch."""

    plan: int
    origin: Origin
    moves: Step
    not_before: Epoch

    @property
    def to_do(self) -> Step:
        """Its moves without those of slots that have come there by another one since."""
        return tuple(move for move in self.moves if move.source != move.target)

    def less(self, slots: set[SlotId]) -> WaitingStep:
        """Return the step without the moves of `slots`."""
        return replace(self, moves=tuple(move for move in self.moves if move.slot not in slots))


class PlanQueue:
    """All steps that wait, by the epochs they may begin at; those of one plan keep their order."""

    def __init__(self) -> None:
        """Start with nothing planned."""
        self._steps: list[WaitingStep] = []
        self._plans = 0

    def __iter__(self) -> Iterator[WaitingStep]:
        """Go through the steps in the order in which they may begin."""
        return iter(tuple(self._steps))

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves that wait, in order."""
        return tuple(move for step in self._steps for move in step.moves)

    @property
    def slots(self) -> set[SlotId]:
        """The slots that are planned to move."""
        return {move.slot for step in self._steps for move in step.moves}

    def slots_for(self, origin: Origin) -> set[SlotId]:
        """Return the slots that are planned to move for one reason."""
        return {move.slot for step in self._steps if step.origin is origin for move in step.moves}

    def add(self, plan: Sequence[QueuedStep], origin: Origin, earliest: Epoch) -> int:
        """Put steps behind those that may begin as early, none before the one before it; return the plan's number."""
        self._plans += 1
        for step in plan:
            earliest = max(earliest, step.not_before)
            if step.moves:
                self._steps.append(WaitingStep(self._plans, origin, step.moves, earliest))
        self._steps.sort(key=lambda step: step.not_before)
        return self._plans

    def next_steps(self, epoch: Epoch) -> list[WaitingStep]:
        """Return the next step of each plan that has something to do and may begin by an epoch, in order."""
        first: dict[int, WaitingStep] = {}
        for step in takewhile(lambda step: step.not_before <= epoch, self._steps):
            if step.plan not in first and (moves := step.to_do):
                first[step.plan] = replace(step, moves=moves)
        return list(first.values())

    def lanes_by(self, epoch: Epoch) -> set[LaneId]:
        """Return the lanes of all steps that have something to do and may begin by an epoch."""
        early = takewhile(lambda step: step.not_before <= epoch, self._steps)
        return {lane for step in early for move in step.to_do for lane in (move.source, move.target)}

    def drop_done(self, epoch: Epoch) -> None:
        """Drop the steps that may begin by an epoch and have nothing to do: their slots are there."""
        self._steps = [step for step in self._steps if step.not_before > epoch or step.to_do]

    def take(self, step: WaitingStep, moves: Step) -> None:
        """Take these moves out of the next step of a plan; what is left of it stays where it is."""
        at = next(at for at, other in enumerate(self._steps) if other.plan == step.plan)
        rest = step.less({move.slot for move in moves})
        self._steps[at : at + 1] = [rest] if rest.moves else []

    def drop(self, slots: set[SlotId]) -> list[tuple[Move, int]]:
        """Drop all that is planned for `slots`, since later moves of a slot build on the earlier ones.

        Return what was dropped, each move with the number of its plan.
        """
        dropped = [(move, step.plan) for step in self._steps for move in step.moves if move.slot in slots]
        if dropped:
            kept = (step.less(slots) for step in self._steps)
            self._steps = [step for step in kept if step.moves]
        return dropped

    def moved_before(self, moves: Iterable[Move]) -> None:
        """Other moves of the same slots go first: what waits begins where they lead, and ends where it did."""
        where = {move.slot: move.target for move in moves}
        for at, step in enumerate(self._steps):
            if where.keys().isdisjoint(move.slot for move in step.moves):
                continue
            # Further moves of a slot build on the first.
            begun = (replace(move, source=where.pop(move.slot, move.source)) for move in step.moves)
            self._steps[at] = replace(step, moves=tuple(begun))


def moves_of(plan: Iterable[QueuedStep]) -> tuple[Move, ...]:
    """Return all moves of a plan, in order."""
    return tuple(move for step in plan for move in step.moves)


def check_plan(
    plan: Sequence[QueuedStep], table: RoutingTable, leaving: Collection[LaneId], gone: Collection[LaneId]
) -> None:
    """Raise unless each move goes from where the ones before it leave the slot to another lane that stays."""
    for moves in _rounds(plan):
        table = table.apply(moves)
    for move in moves_of(plan):
        if move.source == move.target:
            raise InputError(f"{move}: the slot is there already")
        if move.target in leaving:
            raise InputError(f"{move}: lane {move.target} is being stopped")
        if move.source in gone or move.target in gone:
            lane = move.source if move.source in gone else move.target
            raise InputError(f"{move}: lane {lane} is gone; its slots go to other lanes with the next epoch")


def _rounds(plan: Iterable[QueuedStep]) -> list[list[Move]]:
    """Return the first moves of all slots, then the second ones, and so on: far fewer than there are steps."""
    rounds: list[list[Move]] = []
    before: Counter[SlotId] = Counter()
    for step in plan:
        slots = Counter(move.slot for move in step.moves)
        if len(slots) < len(step.moves):
            raise InputError(f"slot {slots.most_common(1)[0][0]} is moved twice in one step")
        for move in step.moves:
            if before[move.slot] == len(rounds):
                rounds.append([])
            rounds[before[move.slot]].append(move)
        before.update(slots)
    return rounds
