"""Guo and Zhou's eager load balancing (Algorithm 1): lanes above the mean shed to those below it.

Three phases: how many lanes the load needs (pi) and which of them are overloaded; which slots those give
away; to whom they go, the heaviest to the least loaded. Loads are the records per slot of the newest
window.

Readings: one pass per lane, heaviest first (GZ-A2); the threshold is computed afresh after every choice (A3); a
slot of exactly (u-v)/2 may go, as the assumption allows, one of exactly the surplus stays, as in the listing (A3's
420), and so does an idle one (A4); the head of the queue is removed (A5). The listing's set of underloaded lanes
needs no upkeep in phase 3 (A6, A7): while a record waits, the lanes together carry less than pi times the mean, so
the least loaded of all is below the mean, and that one takes it. By the listing every lane above the mean sheds; with
`only_outside_range` only those above u, unless a lane is below v and needs the load (A8). The surplus lanes are the
least loaded; pi is clamped (A10), also to the number of slots. Slots above (u-v)/2 are named (A11). Without bounds
(u+v)/2 is the mean and (u-v)/2 the larger of a fifth of it and the heaviest slot (GZ-P9), so that pi = n; a slot above
the mean is named then.

On a load that does not change it stops after about one round per lane: a lane at or above the mean never
takes anything, and one that has shed all it can stays there.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenflow.errors import InputError
from evenflow.model import LoadView, Move, RoutingTable, SlotId
from evenflow.model.slots import IntArray
from evenflow.policies.base import Proposal

_SHARE_OF_MEAN = 0.2  # (u-v)/2 in shares of the mean, where the user gives no bounds (GZ-P9)


@dataclass(frozen=True, slots=True)
class Elb:
    """Bring every lane close to (u+v)/2 records, with as many lanes as that takes."""

    name: ClassVar[str] = "elb"
    paper: ClassVar[str] = "Stateful load balancing (Guo, Zhou)"
    summary: ClassVar[str] = "lanes above the mean shed to those below; adds and retires lanes"

    lower: float | None = None
    upper: float | None = None
    min_lanes: int = 1
    max_lanes: int | None = None
    hysteresis: float = 0.0
    only_outside_range: bool = False

    def __post_init__(self) -> None:
        """Refuse bounds that enclose nothing."""
        if (self.lower is None) != (self.upper is None):
            raise InputError(f"elb: give both lower and upper, or neither; got lower={self.lower}, upper={self.upper}")
        if self.bounds is not None and not 0 <= self.bounds[0] < self.bounds[1] < math.inf:
            raise InputError(
                f"elb: records per lane must satisfy 0 <= lower < upper, got {self.lower} and {self.upper}"
            )
        if self.min_lanes < 1:
            raise InputError(f"elb: min_lanes must be at least 1, got {self.min_lanes}")
        if self.max_lanes is not None and self.max_lanes < self.min_lanes:
            raise InputError(f"elb: max_lanes must be at least min_lanes = {self.min_lanes}, got {self.max_lanes}")
        if not 0 <= self.hysteresis < math.inf:
            raise InputError(f"elb: hysteresis is a share of the lanes, 0 or more, got {self.hysteresis}")

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The paper's v and u as the user gave them, or None."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)

    def propose(self, view: LoadView) -> Proposal:
        """Apply Algorithm 1 to the newest window."""
        loads = view.last.slots.records
        total = int(loads.sum())
        if total == 0:
            return Proposal(note="there is no load to balance")
        present = view.lane_sums(loads)
        count = self._lane_count(total, len(present), len(loads))
        mean = total / count
        middle, half = self._range(mean, int(loads.max()))

        new = view.new_lanes(max(0, count - len(present)))
        ids = (*view.table.lanes, *new)
        lane_loads: list[float] = [*present.tolist(), *(0.0 for _ in new)]
        by_load = np.argsort(-present, kind="stable").tolist()
        surplus, kept = by_load[count:], [*by_load[:count], *range(len(present), len(ids))]

        shed_above = self._shed_above(mean, middle, half, min(lane_loads[lane] for lane in kept))
        slots_of = _heaviest_first(view.table, loads)
        pool: list[SlotId] = [slot for lane in surplus for slot in slots_of[lane].tolist()]
        for lane in kept:
            if lane_loads[lane] > shed_above:
                shed = _shed(slots_of[lane], loads, lane_loads[lane], mean, half)
                lane_loads[lane] -= float(loads[shed].sum())
                pool += shed
        targets = _reassign(pool, loads, {lane: lane_loads[lane] for lane in kept})

        too_hot = np.flatnonzero(loads > min(half, middle))
        source = view.table.lane_positions()
        reasons = [
            f"lane {lane} served {served:.0f} records, {mean:.0f} would be even"
            for lane, served in zip(view.table.lanes, present, strict=True)
        ]
        for lane in surplus:
            reasons[lane] = f"lane {ids[lane]} is drained: {count} lanes are enough"
        return Proposal(
            moves=tuple(
                Move(slot, ids[source[slot]], ids[target], reasons[source[slot]])
                for slot, target in sorted(targets.items())
            ),
            add_lanes=len(new),
            retire=tuple(sorted(ids[lane] for lane in surplus)),
            not_curable=tuple(too_hot.tolist()),
            note=f"{total} records on {count} lanes: {len(targets)} slots go to lanes below {mean:.0f}",
        )

    def _lane_count(self, total: int, lanes: int, slots: int) -> int:
        """Return pi, the number of lanes that the load needs (L4, A10)."""
        wanted = lanes if self.bounds is None else math.ceil(2 * total / sum(self.bounds))
        if abs(wanted - lanes) <= self.hysteresis * lanes:
            wanted = lanes
        wanted = min(wanted, max(lanes, slots))  # a new lane could not even get one slot
        return max(self.min_lanes, min(wanted, self.max_lanes or wanted))

    def _range(self, mean: float, heaviest: int) -> tuple[float, float]:
        """Return (u+v)/2 and (u-v)/2."""
        if self.bounds is None:
            return mean, max(_SHARE_OF_MEAN * mean, float(heaviest))
        lower, upper = self.bounds
        return (upper + lower) / 2, (upper - lower) / 2

    def _shed_above(self, mean: float, middle: float, half: float, least: float) -> float:
        """Return the load above which a lane sheds (A8)."""
        all_have_enough = least >= middle - half
        return max(mean, middle + half) if self.only_outside_range and all_have_enough else mean


def _heaviest_first(table: RoutingTable, loads: IntArray) -> list[IntArray]:
    """Return the slots of each lane by descending load; one sort serves all lanes, however many there are."""
    position = table.lane_positions()
    order = np.lexsort((-loads, position))
    return np.split(order, np.searchsorted(position[order], np.arange(1, len(table.lanes))))


def _shed(slots: IntArray, loads: IntArray, lane_load: float, mean: float, half: float) -> list[SlotId]:
    """Return what an overloaded lane gives away; it ends above the mean (phase 2).

    One pass is enough: the threshold only falls, so that a slot passed over would not fit later either.
    """
    shed: list[SlotId] = []
    for slot, load in zip(slots.tolist(), loads[slots].tolist(), strict=True):
        if load == 0 or lane_load <= mean:
            break
        if load < lane_load - mean and load <= half:
            shed.append(slot)
            lane_load -= load
    return shed


def _reassign(pool: list[SlotId], loads: IntArray, lane_loads: dict[int, float]) -> dict[SlotId, int]:
    """Give each slot of `pool`, heaviest first, to the lane that is least loaded then (phase 3)."""
    ready = [(load, lane) for lane, load in lane_loads.items()]
    heapq.heapify(ready)
    targets: dict[SlotId, int] = {}
    for slot in sorted(pool, key=lambda slot: (-loads[slot], slot)):
        load, targets[slot] = ready[0]
        heapq.heapreplace(ready, (load + float(loads[slot]), targets[slot]))
    return targets
