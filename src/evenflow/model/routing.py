"""The routing table: which lane owns which slot, at which version; and the moves between two tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from evenflow.errors import InputError
from evenflow.model.slots import FloatArray, IntArray, LaneId, SlotId, frozen_array
from evenflow.model.values import ArrayValue


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """One slot changes its lane; `reason` says why, for people."""

    slot: SlotId
    source: LaneId
    target: LaneId
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Print as ``slot 7: lane 0 -> lane 3``."""
        return f"slot {self.slot}: lane {self.source} -> lane {self.target}"


@dataclass(frozen=True, eq=False, slots=True)
class RoutingTable(ArrayValue):
    """An immutable, versioned map from every slot to the lane that owns it.

    `owners[slot]` is the lane of the slot; `lanes` are all lanes that exist, sorted, also those without a slot.
    """

    owners: IntArray
    lanes: tuple[LaneId, ...]
    version: int = 0

    def __post_init__(self) -> None:
        """Freeze the array and refuse tables that break the one-owner rule."""
        owners = frozen_array(self.owners, np.int64)
        lanes = tuple(sorted({int(lane) for lane in self.lanes}))
        if owners.ndim != 1 or owners.size == 0:
            raise InputError("a routing table needs at least 1 slot; it got none")
        if not lanes:
            raise InputError("a routing table needs at least 1 lane; it got none")
        if len(lanes) != len(self.lanes):
            raise InputError(f"a routing table names each lane once, got {sorted(self.lanes)}")
        if lanes[0] < 0:
            raise InputError(f"lane numbers start at 0, got {lanes[0]}")
        unknown = np.setdiff1d(owners, np.array(lanes))
        if unknown.size:
            raise InputError(f"slots are owned by lanes {unknown.tolist()}, but the lanes are {list(lanes)}")
        object.__setattr__(self, "owners", owners)
        object.__setattr__(self, "lanes", lanes)

    @classmethod
    def even(cls, slots: int, lanes: int | Iterable[LaneId]) -> RoutingTable:
        """Return the table a query starts with: the slots dealt out in turn, as `hash % lanes` would.

        Twice the lanes then take over every second slot and leave the others where they are.
        """
        ids = np.arange(lanes) if isinstance(lanes, int) else np.array(sorted(lanes))
        if slots < 1 or ids.size < 1:
            raise InputError(f"a routing table needs at least 1 slot and 1 lane, got {slots} and {ids.size}")
        return cls(ids[np.arange(slots) % ids.size], tuple(ids.tolist()))

    @property
    def slots(self) -> int:
        """The number of slots."""
        return int(self.owners.size)

    def lanes_of(self, slots: npt.NDArray[np.integer]) -> IntArray:
        """Return the owner of each slot of an array, in one look-up."""
        owners: IntArray = self.owners[slots]
        return owners

    def slots_of(self, lane: LaneId) -> IntArray:
        """Return the slots that `lane` owns, ascending."""
        return np.flatnonzero(self.owners == lane)

    def lane_positions(self) -> IntArray:
        """Return for each slot the position of its lane in `lanes`, for use as an index."""
        return np.searchsorted(np.array(self.lanes), self.owners)

    def sum_by_lane(self, per_slot: npt.ArrayLike) -> FloatArray:
        """Add up a per-slot quantity for each lane, in the order of `lanes`."""
        weights = np.asarray(per_slot, dtype=np.float64)
        return np.bincount(self.lane_positions(), weights=weights, minlength=len(self.lanes)).astype(np.float64)

    def apply(self, moves: Iterable[Move]) -> RoutingTable:
        """Return the next version, after `moves`; each must start at the slot's owner and name a known lane."""
        owners = self.owners.copy()
        moved: set[SlotId] = set()
        known = set(self.lanes)
        for move in moves:
            if not 0 <= move.slot < self.slots:
                raise InputError(f"{move}: there is no slot {move.slot}; slots are 0 to {self.slots - 1}")
            if move.slot in moved:
                raise InputError(f"slot {move.slot} is moved twice in one step")
            if owners[move.slot] != move.source:
                raise InputError(f"{move}: the slot is owned by lane {owners[move.slot]}")
            if move.target not in known:
                raise InputError(f"{move}: there is no lane {move.target}; lanes are {list(self.lanes)}")
            moved.add(move.slot)
            owners[move.slot] = move.target
        return RoutingTable(owners, self.lanes, self.version + 1)

    def with_lanes(self, lanes: Sequence[LaneId]) -> RoutingTable:
        """Return the next version with other lanes; a lane that still owns slots cannot go."""
        return RoutingTable(self.owners, tuple(lanes), self.version + 1)

    def difference(self, wanted: RoutingTable) -> tuple[Move, ...]:
        """Return the moves that lead from this table to `wanted`, by slot."""
        if wanted.slots != self.slots:
            raise InputError(f"tables of {self.slots} and {wanted.slots} slots cannot be compared")
        changed = np.flatnonzero(self.owners != wanted.owners)
        return tuple(
            Move(slot, source, target)
            for slot, source, target in zip(
                changed.tolist(), self.owners[changed].tolist(), wanted.owners[changed].tolist(), strict=True
            )
        )

    def __str__(self) -> str:
        """Print the version and how many slots each lane owns."""
        counts = self.sum_by_lane(np.ones(self.slots)).astype(int)
        shares = ", ".join(f"lane {lane}: {count}" for lane, count in zip(self.lanes, counts, strict=True))
        return f"routing table v{self.version} ({self.slots} slots; {shares})"
