"""What each accepted epoch has for whom: an index of its blocks, made once when the epoch is accepted."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from evenflow.lane.messages import BlockPart, EpochInput
from evenflow.model import LaneId
from evenflow.model.slots import IntArray
from evenflow.state import EpochRecord, FileRef, Segment


@dataclass(frozen=True)
class _Piece:
    """A segment, where it stands in the record, and the units in it."""

    at: tuple[int, int]
    file: FileRef
    segment: Segment
    units: IntArray


class EpochIndex:
    """The rows of one epoch, by the lane that they were routed to and by unit."""

    def __init__(self, record: EpochRecord) -> None:
        """Look through a record once."""
        self._record = record
        self.rows: IntArray = record.slot_rows  # of each unit
        self.rows_of: Counter[LaneId] = Counter()  # routed to each lane
        self._owners: IntArray = record.owner_of
        self._pieces: defaultdict[LaneId, list[_Piece]] = defaultdict(list)
        for at, block in enumerate(record.blocks):
            for nth, segment in enumerate(block.segments):
                piece = _Piece((at, nth), block.file, segment, np.array(segment.slots, dtype=np.int64))
                self._pieces[segment.lane].append(piece)
                self.rows_of[segment.lane] += segment.rows

    def input_of(self, wanted: IntArray) -> EpochInput:
        """Return what the epoch has for some units, wherever it was routed to, in the order of the record."""
        return EpochInput.of(self._record, self._parts(wanted))

    def _parts(self, wanted: IntArray) -> tuple[BlockPart, ...]:
        mask = np.zeros(self._owners.size, dtype=bool)
        mask[wanted] = True
        found = []
        for lane in np.unique(self._owners[wanted]).tolist():
            for piece in self._pieces.get(lane, ()):
                chosen = piece.units[mask[piece.units]]
                if chosen.size:
                    every = chosen.size == piece.units.size
                    part = BlockPart(piece.file, piece.segment, None if every else tuple(chosen.tolist()))
                    found.append((piece.at, part))
        return tuple(part for _, part in sorted(found, key=lambda each: each[0]))
