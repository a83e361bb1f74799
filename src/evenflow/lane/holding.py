"""The units that a lane holds: the state of each stage, and how far each unit that it serves has come."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa

from evenflow.errors import ProtocolError
from evenflow.lane.config import LaneStage
from evenflow.lane.messages import BlockPart, SlotToLoad
from evenflow.model import Due, Epoch, LaneId, SlotId
from evenflow.model.slots import IntArray
from evenflow.operators import SLOT, Resident


@dataclass
class HeldStage:
    """What a lane holds of one stage. Operators and files know slots; messages and records know units."""

    number: int
    stage: LaneStage
    resident: Resident = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.resident = self.stage.empty()

    def slots(self, units: Iterable[SlotId]) -> list[int]:
        """Return the slots of some units of the stage."""
        return [unit - self.stage.units.first for unit in units]

    def drop(self, units: Iterable[SlotId]) -> None:
        """Forget the state of units."""
        self.resident.drop(self.slots(units))

    def places(self, state: pa.Table, units: Sequence[SlotId] | None = None) -> tuple[tuple[SlotId, int, int], ...]:
        """Return (unit, first row, rows) for each unit of a table sorted by slot; of `units`, also those without."""
        column, first = state[SLOT].to_numpy(), self.stage.units.first
        listed = np.unique(column) if units is None else np.array(sorted(self.slots(units)), dtype=np.int64)
        starts, ends = np.searchsorted(column, listed), np.searchsorted(column, listed, side="right")
        return tuple(zip((listed + first).tolist(), starts.tolist(), (ends - starts).tolist(), strict=True))


class Holding:
    """See the module. `versions` are those of the units that the lane serves."""

    def __init__(self, lane: int, stages: Sequence[LaneStage]) -> None:
        """Begin with no unit."""
        self._lane = lane
        self.stages = [HeldStage(number, stage) for number, stage in enumerate(stages)]
        self.versions: dict[SlotId, Epoch] = {}
        self._firsts = [stage.units.first for stage in stages]

    def of(self, unit: SlotId) -> HeldStage:
        """Return the stage of a unit."""
        return self.stages[bisect_right(self._firsts, unit) - 1]

    def by_stage(self, units: Iterable[SlotId]) -> Iterator[tuple[HeldStage, list[SlotId]]]:
        """Yield the units of each stage that has some of these, in the order given."""
        found: defaultdict[int, list[SlotId]] = defaultdict(list)
        for unit in units:
            found[self.of(unit).number].append(unit)
        yield from ((self.stages[number], found[number]) for number in sorted(found))

    def entries_by_stage(self, entries: Iterable[SlotToLoad]) -> list[tuple[HeldStage, list[SlotToLoad]]]:
        """Return what is to be loaded, stage by stage."""
        known = {entry.slot: entry for entry in entries}
        return [(held, [known[unit] for unit in units]) for held, units in self.by_stage(known)]

    def parts_by_stage(self, parts: Iterable[BlockPart]) -> dict[int, list[BlockPart]]:
        """Return the input of each stage by its number; a segment holds rows for units of one."""
        found: defaultdict[int, list[BlockPart]] = defaultdict(list)
        for part in parts:
            found[self.of(part.segment.slots[0]).number].append(part)
        return found

    def drop(self, units: Iterable[SlotId]) -> None:
        """Forget the state of units."""
        for held, mine in self.by_stage(units):
            held.drop(mine)

    def due(self) -> Due | None:
        """Return when something is to be done next in the units that are served here."""
        found = [held.resident.due(held.slots(units)) for held, units in self.by_stage(self.versions)]
        known = [due for due in found if due is not None]
        return reduce(Due.or_earlier, known) if known else None

    def unit_bytes(self) -> IntArray:
        """Return about how much memory each unit takes."""
        return np.concatenate([held.resident.slot_bytes() for held in self.stages])

    def unit_rows(self) -> IntArray:
        """Return how many rows of state each unit has."""
        return np.concatenate([held.resident.slot_rows() for held in self.stages])

    def must_serve(self, units: Iterable[SlotId], what: str) -> None:
        """Refuse to take a unit that is elsewhere for an empty one."""
        must_hold(self._lane, self.versions.keys(), units, what)

    def must_not_serve(self, units: Iterable[SlotId]) -> None:
        """Refuse to take an older copy for a unit that is served here."""
        must_not_hold(self._lane, self.versions.keys(), units)


def must_hold(lane: LaneId, held: AbstractSet[SlotId], slots: Iterable[SlotId], what: str) -> None:
    """Refuse to take a slot that is elsewhere for an empty one."""
    absent = sorted(set(slots) - held)
    if absent:
        raise ProtocolError(f"lane {lane} was told to {what} slots {absent}, which it does not hold")


def must_not_hold(lane: LaneId, held: AbstractSet[SlotId], slots: Iterable[SlotId]) -> None:
    """Refuse to take an older copy for a slot that is served here: what was folded since would be lost."""
    served = sorted(held & set(slots))
    if served:
        raise ProtocolError(f"lane {lane} was told to copy slots {served}, which it serves")
