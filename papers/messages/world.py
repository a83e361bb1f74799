"""What all parts of one run share: the clock, the records as plain lists, the checker, and what was seen on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evenflow.errors import InputError
from evenflow.model import Epoch, LaneId, Move, SlotId
from papers.messages.checker import Checker
from papers.messages.folds import KeyState
from papers.messages.loop import Channel, Handler, Loop, drawn_delays
from papers.messages.plant import Plant
from papers.messages.stream import RecordStream

_SETTLING_PERIODS = 200  # control messages after which a run that does not end is taken for stuck


@dataclass(slots=True)
class MoveTrace:
    """One move as it happened, in microseconds; -1 is not yet. `buffered` records waited for it."""

    move: Move
    epoch: Epoch
    announced: int
    handed_off: int = -1
    installed: int = -1
    keys: int = 0
    buffered: int = 0


@dataclass(slots=True)
class Trace:
    """What was seen on the way, for experiments: counts of messages, moves, and records that had to wait by slot."""

    moves: dict[tuple[SlotId, Epoch], MoveTrace] = field(default_factory=dict)
    held_by_mapper: Counter[SlotId] = field(default_factory=Counter)
    held_by_lane: Counter[SlotId] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)

    @property
    def held(self) -> Counter[SlotId]:
        """How many records of each slot waited anywhere."""
        return self.held_by_mapper + self.held_by_lane

    @property
    def settled(self) -> bool:
        """Whether no announced move is under way."""
        return all(move.installed >= 0 for move in self.moves.values())


class World:
    """One run's surroundings."""

    def __init__(
        self,
        stream: RecordStream,
        plant: Plant,
        *,
        ordered: bool = True,
    ) -> None:
        """Lay out `stream` for a run on `plant`; without `ordered` no order per key is promised."""
        if plant.table.slots != stream.slots:
            raise InputError(f"a stream of {stream.slots} slots needs as many owners, got {plant.table.slots}")
        self.loop = Loop()
        self.stream, self.plant, self.fold, self.timing = stream, plant, plant.fold, plant.timing
        self.rng = np.random.default_rng(plant.seed)
        self.owners: list[LaneId] = plant.table.owners.tolist()
        self.checker = Checker(stream, self.owners, ordered=ordered)
        self.trace = Trace()
        self._left, self._idle_periods = self.checker.remaining, 0
        self.due: list[int] = stream.due.tolist()
        self.mapper_of: list[int] = stream.mapper.tolist()
        self.key_of: list[int] = stream.key.tolist()
        self.slot_of: list[int] = stream.slot.tolist()
        self.value_of: list[int] = stream.value.tolist()
        self.epoch_of: list[int] = [0] * len(stream)

    def channel(self, handler: Handler, port: int = 0, delay: tuple[int, int] | None = None) -> Channel:
        """Return a channel with the delays of `timing.data`, or those given."""
        low, high = self.timing.data if delay is None else delay
        return Channel(self.loop, handler, port, self._delays(low, high), reorder=self.timing.reorder)

    def _delays(self, low: int, high: int) -> Iterator[int] | int:
        return low if low == high else drawn_delays(self.rng, low, high)

    @property
    def now_s(self) -> float:
        """The time in seconds."""
        return self.loop.now / 1e6

    @property
    def over(self) -> bool:
        """Whether every record is served and every announced move is settled."""
        return self.checker.remaining == 0 and self.trace.settled

    @property
    def goes_on(self) -> bool:
        """Whether there is still something to do; asked once per period, it notices when nothing happens for long."""
        due = self.due and self.loop.now <= self.due[-1]
        self._idle_periods = 0 if due or self.checker.remaining != self._left else self._idle_periods + 1
        self._left = self.checker.remaining
        # A run that is stuck ends, and the checker tells what was never served.
        return not self.over and self._idle_periods <= _SETTLING_PERIODS

    def every(self, period: int, tick: Callable[[int], None]) -> None:
        """Call `tick(n)` at n periods, n = 1, 2, ..., until the run is over, or stuck for long."""

        def again(count: int, _: Any) -> None:
            if self.goes_on:
                tick(count)
                self.loop.at(self.loop.now + period, again, count + 1)

        self.loop.at(period, again, 1)


def whole_state(parts: Sequence[dict[SlotId, KeyState]], merge: Callable[[Any, Any], Any] | None) -> KeyState:
    """Join the states of all lanes. Without a `merge`, a key held twice becomes a list, which no oracle says."""
    whole: KeyState = {}
    for part in parts:
        for states in part.values():
            for key, state in states.items():
                if key not in whole:
                    whole[key] = state
                else:
                    whole[key] = [whole[key], state] if merge is None else merge(whole[key], state)
    return whole
