"""Memory in a lane: what does not fit is spilled to disk, and what is on disk takes its turn in memory (FX 6.1).

Each lane has two queues, first in first out: slots in memory and slots on disk. A lane that holds too much writes
the first slot in memory; one with room reads the first on disk; else, once the slot that came in last has
worked off its input and has been in for `gap_s`, the two change places. Disk work keeps the lane from serving.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from evenflow.errors import InputError
from evenflow.model import LaneId, SlotId
from evenflow.model.slots import BoolArray, FloatArray
from evenflow.sim.quantum.counts import sum_by
from evenflow.sim.quantum.lanes import Chores
from evenflow.sim.quantum.placement import Placement

_ROUNDING = 1e-6  # records: sums of parts of cohorts


class Budgets(Protocol):
    """Anything that knows how much memory lanes have."""

    def at(self, at_s: float, lanes: int) -> FloatArray:
        """Return the bytes that lanes 0 to `lanes` - 1 may hold at a moment."""


@dataclass(frozen=True)
class Fixed:
    """`bytes_each` for every lane, but `pressed_bytes` for the lanes in `pressed` from `start_s` on."""

    bytes_each: float
    pressed: tuple[LaneId, ...] = ()
    pressed_bytes: float = 0.0
    start_s: float = 0.0

    def at(self, at_s: float, lanes: int) -> FloatArray:
        """Return the budgets."""
        budgets = np.full(lanes, self.bytes_each)
        if at_s >= self.start_s:
            budgets[[lane for lane in self.pressed if lane < lanes]] = self.pressed_bytes
        return budgets


@dataclass(frozen=True, slots=True)
class Disk:
    """Rates in bytes per second and the time to find the place."""

    read: float = 20e6
    write: float = 20e6
    seek_s: float = 0.005

    def __post_init__(self) -> None:
        """Refuse a disk that never ends."""
        if not (self.read > 0 and self.write > 0 and self.seek_s >= 0):
            raise InputError(f"disk: rates must be above 0 and the seek time not negative, got {self}")

    def read_s(self, size: float) -> float:
        """Return the seconds to read one run."""
        return self.seek_s + size / self.read

    def write_s(self, size: float) -> float:
        """Return the seconds to write one run."""
        return self.seek_s + size / self.write


@dataclass(frozen=True, slots=True)
class Memory:
    """How much lanes may hold, and the disk for the rest.

    `gap_s` is how long a slot stays in memory at least before the next swap (Flux's t_gap); None is the time
    it took to read it (FX-P13). `spool_s` is what a lane pays to put one record of a spilled slot on disk; None
    leaves such records where they wait, as references into the block log.
    """

    budgets: Budgets
    disk: Disk = field(default_factory=Disk)
    gap_s: float | None = None
    spool_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse a stay that is no time, and spooling that takes none: a lane spools by the time it has."""
        if self.gap_s is not None and not self.gap_s >= 0:
            raise InputError(f"memory: gap_s is None or not negative, got {self.gap_s}")
        if self.spool_s is not None and not 0 < self.spool_s < float("inf"):
            raise InputError(f"memory: spool_s is None (do not spool) or above 0, got {self.spool_s}")


@dataclass
class _Lane:
    """One lane's queues, and what its disk is doing: bringing in `coming`, to be done at `mark`."""

    active: deque[SlotId]
    on_disk: deque[SlotId] = field(default_factory=deque)
    mark: float | None = None
    coming: SlotId | None = None
    newest: SlotId | None = None
    since_s: float = 0.0
    gap_s: float = 0.0


class Spiller:
    """The memory of all lanes."""

    def __init__(self, memory: Memory, placement: Placement, chores: Chores, sizes: FloatArray) -> None:
        """Start with every slot in memory; what does not fit goes out in the first steps."""
        self.memory, self.placement, self.chores, self.sizes = memory, placement, chores, sizes
        self._lanes: dict[LaneId, _Lane] = {}
        self._fetching: dict[SlotId, tuple[LaneId, float]] = {}
        self._member: dict[SlotId, LaneId] = {}
        for slot, lane in enumerate(placement.owner.tolist()):
            self._join(slot, lane)
        self.rotations = 0

    def budgets(self, at_s: float, lanes: int) -> FloatArray:
        """Return what each lane may hold now."""
        return self.memory.budgets.at(at_s, lanes)

    def leave(self, slot: SlotId) -> None:
        """A slot is about to move: take it out of its lane's queues; if it is on disk, it is read first."""
        number = self._member.pop(slot)
        lane = self._lanes[number]
        for queue in (lane.active, lane.on_disk):
            if slot in queue:
                queue.remove(slot)
        if self.placement.spilled[slot] and lane.coming != slot:
            self._fetching[slot] = (number, self.chores.give(number, self.memory.disk.read_s(self.sizes[slot])))
        elif lane.coming == slot and lane.mark is not None:
            self._fetching[slot] = (number, lane.mark)
        if lane.newest == slot:
            lane.newest = None

    def arrive(self, slot: SlotId) -> None:
        """A slot has been installed at its owner."""
        self._join(slot, int(self.placement.owner[slot]))

    def step(self, now_s: float, span_s: float, pending: FloatArray, lanes: int) -> None:
        """Start and end disk work; `pending` is the spooled input of each slot that is still to be served.

        A lane that holds too much goes on to the next slot without a pause, so it is told a step ahead.
        """
        for slot, (number, mark) in list(self._fetching.items()):
            if self.chores.is_done(number, mark):
                self.placement.spill(slot, out=False)
                del self._fetching[slot]
        held = sum_by(self.placement.owner, np.where(self._in_memory(), self.sizes, 0.0), lanes)
        budgets = self.budgets(now_s, lanes)
        for number, lane in self._lanes.items():
            if lane.mark is not None:
                ahead_s = span_s if lane.coming is None and held[number] > budgets[number] else 0.0
                if not self.chores.is_done(number, lane.mark - ahead_s):
                    continue
                self._end_io(lane, now_s)
            elif not lane.on_disk and held[number] <= budgets[number]:
                continue
            self._next_io(number, lane, float(budgets[number] - held[number]), now_s, pending)

    def _in_memory(self) -> BoolArray:
        """Tell of each slot whether it takes up memory at its owner; one being read in does."""
        coming = np.zeros_like(self.placement.spilled)
        coming[[lane.coming for lane in self._lanes.values() if lane.coming is not None]] = True
        inside: BoolArray = ~self.placement.absent & (~self.placement.spilled | coming)
        return inside

    def _join(self, slot: SlotId, number: LaneId) -> None:
        self._lanes.setdefault(number, _Lane(deque())).active.append(slot)
        self._member[slot] = number

    def _end_io(self, lane: _Lane, now_s: float) -> None:
        """What was read is in memory; its input comes first from now on."""
        slot, lane.coming, lane.mark = lane.coming, None, None
        if slot is None or slot not in self._member:
            return
        self.placement.spill(slot, out=False)
        lane.active.append(slot)
        lane.newest, lane.since_s = slot, now_s

    def _next_io(self, number: LaneId, lane: _Lane, free: float, now_s: float, pending: FloatArray) -> None:
        """Write what is too much, read what fits, or let two slots change places when it is time."""
        if free < 0:
            if lane.active:
                lane.mark = self._write(number, lane)
            return
        if not lane.on_disk:
            return
        fits = self.sizes[lane.on_disk[0]] <= free
        at_rest = lane.newest is None or pending[lane.newest] <= _ROUNDING
        if not fits and not (lane.active and at_rest and now_s - lane.since_s >= lane.gap_s - 1e-9):
            return
        if not fits:
            self.rotations += 1
            self._write(number, lane)
        lane.coming = lane.on_disk.popleft()
        read_s = self.memory.disk.read_s(float(self.sizes[lane.coming]))
        lane.gap_s = read_s if self.memory.gap_s is None else self.memory.gap_s
        lane.mark = self.chores.give(number, read_s)

    def _write(self, number: LaneId, lane: _Lane) -> float:
        slot = lane.active.popleft()
        if lane.newest == slot:
            lane.newest = None
        self.placement.spill(slot, out=True)
        lane.on_disk.append(slot)
        return self.chores.give(number, self.memory.disk.write_s(float(self.sizes[slot])))
