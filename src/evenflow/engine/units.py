"""Where each unit is: one table of places and of what may happen in each drives moves, losses, copies and restarts.

::

              load              loaded              let go
    ABSENT ─────────▶ LOADING ─────────▶ RESIDENT ─────────▶ LEAVING
     │  ▲                │                  │                   │
     │  └── called off ──┤                  │                   │ left
     │  └── lost ────────┴──────────────────┴───────────────────┤
     │  └──────────────────────────────────────────────────────┘
     └── lost, called off: it stays absent

*ABSENT*: nobody serves it. Its input waits where it is, as references into the block log: its committed version, and
its blocks after that, are all its next lane needs, whoever folded it before. *LOADING*: its lane was told to load it.
*RESIDENT*: its lane serves it. *LEAVING*: its lane was told to let go of it, and serves it no more.

`lane` holds the unit, or is the next to. A move *at the timestamp* lets the source fold the unit up to the epoch before
the move; a move *at once* lets it stop where it is. A crash is a move at once whose source says nothing, and a restart,
with as many lanes as there may be then, is that for all units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from evenflow.errors import ProtocolError
from evenflow.model import Epoch, LaneId, Move, RoutingTable, SlotId
from evenflow.model.slots import IntArray

NO_LIMIT: Epoch = np.iinfo(np.int64).max


class Place(IntEnum):
    """Where a unit is."""

    ABSENT = 0
    LOADING = 1
    RESIDENT = 2
    LEAVING = 3


class Turn(IntEnum):
    """What can happen to a unit."""

    LOAD = 0
    LOADED = 1
    CALLED_OFF = 2
    LET_GO = 3
    LEFT = 4
    LOST = 5


TRANSITIONS: dict[tuple[Place, Turn], Place] = {
    (Place.ABSENT, Turn.LOAD): Place.LOADING,
    (Place.LOADING, Turn.LOADED): Place.RESIDENT,
    (Place.LOADING, Turn.CALLED_OFF): Place.ABSENT,
    (Place.ABSENT, Turn.CALLED_OFF): Place.ABSENT,
    (Place.RESIDENT, Turn.LET_GO): Place.LEAVING,
    (Place.LEAVING, Turn.LEFT): Place.ABSENT,
    **{(place, Turn.LOST): Place.ABSENT for place in Place},
}
_ILLEGAL = -1
_AFTER = np.full((len(Place), len(Turn)), _ILLEGAL, np.int8)
for (_place, _turn), _next in TRANSITIONS.items():
    _AFTER[_place, _turn] = _next


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A move that lanes were told of, and the epoch at which it takes effect."""

    move: Move
    epoch: Epoch


class Units:
    """The places of all units, and the moves under way."""

    def __init__(self, table: RoutingTable) -> None:
        """Start with all units absent, to be held by the lanes of a table."""
        self.lane: IntArray = table.owners.copy()
        self._places: npt.NDArray[np.int8] = np.full(table.slots, Place.ABSENT, np.int8)
        self._moves: dict[SlotId, UnderWay] = {}
        self._limits: IntArray = np.full(table.slots, NO_LIMIT)
        self._of: dict[LaneId, IntArray] = {}
        self._regroup()
        self._with_absent: set[LaneId] = set(self._of)

    # --- looking -------------------------------------------------------------------------------------------------

    def place(self, unit: SlotId) -> Place:
        """Return where a unit is."""
        return Place(self._places[unit])

    def of(self, lane: LaneId) -> IntArray:
        """Return the units that a lane holds, or is to hold, ascending."""
        found = self._of.get(lane)
        if found is None:
            found = self._of[lane] = np.flatnonzero(self.lane == lane)
        return found

    def at(self, lane: LaneId, place: Place) -> IntArray:
        """Return the units of a lane that are at a place, ascending."""
        units = self.of(lane)
        found: IntArray = units[self._places[units] == place]
        return found

    def lanes_with_absent(self) -> list[LaneId]:
        """Return the lanes for which some unit waits that nobody holds."""
        return sorted(self._with_absent)

    def is_loading(self, lane: LaneId) -> bool:
        """Tell whether a lane has yet to load units of its own: epochs wait for these, not for those that move here."""
        units = self.of(lane)
        return bool(((self._places[units] < Place.RESIDENT) & (self._limits[units] == NO_LIMIT)).any())

    def is_complete(self, lane: LaneId) -> bool:
        """Tell whether a lane holds all that it is to hold."""
        return bool((self._places[self.of(lane)] >= Place.RESIDENT).all())

    def limits(self, units: IntArray) -> IntArray:
        """Return up to which epoch their present lane may take units; a move ends that."""
        return self._limits[units]

    def are_moving(self, units: IntArray) -> npt.NDArray[np.bool_]:
        """Tell which units have a move under way."""
        moving: npt.NDArray[np.bool_] = self._limits[units] != NO_LIMIT
        return moving

    @property
    def moves(self) -> Mapping[SlotId, UnderWay]:
        """The moves that were told and have not ended, by unit."""
        return self._moves

    # --- changing ------------------------------------------------------------------------------------------------

    def happens(self, turn: Turn, units: Sequence[SlotId] | IntArray) -> None:
        """Let something happen to units; what cannot happen where a unit is, is a defect."""
        where = np.asarray(units, dtype=np.int64)
        after = _AFTER[self._places[where], turn]
        if (after == _ILLEGAL).any():
            unit = int(where[after == _ILLEGAL][0])
            raise ProtocolError(f"unit {unit} is {self.place(unit).name}: {turn.name} cannot happen to it")
        self._places[where] = after
        if turn is Turn.LOAD:
            self._forget_absent({int(lane) for lane in self.lane[where]})
        elif (after == Place.ABSENT).any():
            self._with_absent.update(self.lane[where].tolist())

    def begins(self, move: Move, epoch: Epoch) -> None:
        """A move takes effect at an epoch. A unit that nobody holds is its target's from now on."""
        self._moves[move.slot] = UnderWay(move, epoch)
        self._limits[move.slot] = epoch - 1

    def ends(self, unit: SlotId) -> None:
        """A unit's move is over: its target serves it."""
        del self._moves[unit]
        self._limits[unit] = NO_LIMIT

    def give(self, units: Iterable[SlotId], lane: LaneId) -> None:
        """Let absent units be a lane's."""
        for unit in units:
            if self._places[unit] != Place.ABSENT:
                raise ProtocolError(f"unit {unit} is {self.place(unit).name}: it cannot be given to lane {lane}")
            before = int(self.lane[unit])
            if before != lane:
                self._of.pop(before, None)
                self._of.pop(lane, None)
                self.lane[unit] = lane
                self._forget_absent({before})
            self._with_absent.add(lane)

    def _forget_absent(self, lanes: set[LaneId]) -> None:
        """Note which lanes have no absent units any more."""
        for lane in lanes & self._with_absent:
            if not self.at(lane, Place.ABSENT).size:
                self._with_absent.discard(lane)

    def _regroup(self) -> None:
        order = np.argsort(self.lane, kind="stable")
        for lane, units in _runs(self.lane[order], order):
            self._of[lane] = units


def _runs(lanes: IntArray, units: IntArray) -> Iterator[tuple[LaneId, IntArray]]:
    """Yield the units of each lane, of arrays that are sorted by lane."""
    starts = [0, *(np.flatnonzero(np.diff(lanes)) + 1).tolist(), lanes.size]
    for low, high in pairwise(starts):
        if low < high:
            yield int(lanes[low]), units[low:high]
