"""What each accepted epoch has for whom: an index of its blocks, and of what stages put out for others on the way."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from evenflow.lane.messages import BlockPart, EpochInput
from evenflow.model import LaneId
from evenflow.model.slots import IntArray
from evenflow.state import Block, EpochRecord, FileRef, Segment


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
        self._fed: list[_Piece] = []
        for at, block in enumerate(record.blocks):
            for nth, segment in enumerate(block.segments):
                piece = _Piece((at, nth), block.file, segment, np.array(segment.slots, dtype=np.int64))
                self._pieces[segment.lane].append(piece)
                self.rows_of[segment.lane] += segment.rows

    def feed(self, block: Block) -> None:
        """Take in what a stage has put out for units of another; rows of theirs wait wherever the units are."""
        rows = self.rows.copy()
        for nth, segment in enumerate(block.segments):
            units = np.array(segment.slots, dtype=np.int64)
            self._fed.append(_Piece((len(self._record.blocks) + len(self._fed), nth), block.file, segment, units))
            np.add.at(rows, units, np.array(segment.counts, dtype=np.int64))
        self.rows = rows

    def input_of(self, wanted: IntArray) -> EpochInput:
        """Return what the epoch has for some units, wherever it was routed to, in the order of the record."""
        return EpochInput.of(self._record, self._parts(wanted))

    def _parts(self, wanted: IntArray) -> tuple[BlockPart, ...]:
        mask = np.zeros(self._owners.size, dtype=bool)
        mask[wanted] = True
        found = []
        lanes = np.unique(self._owners[wanted]).tolist()
        routed = (piece for lane in lanes for piece in self._pieces.get(lane, ()))
        for piece in (*routed, *self._fed):
            chosen = piece.units[mask[piece.units]]
            if chosen.size:
                every = chosen.size == piece.units.size
                part = BlockPart(piece.file, piece.segment, None if every else tuple(chosen.tolist()))
                found.append((piece.at, part))
        return tuple(part for _, part in sorted(found, key=lambda each: each[0]))
