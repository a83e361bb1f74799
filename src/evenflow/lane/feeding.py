"""What a stage puts out becomes input of the next: a block of rows, each in the slot of its new key.

Which lane has put out what must not be seen. So rows say which unit has: a unit's rows of an epoch are put out in one
piece, in an order that only depends on the unit, and whoever takes them in goes by unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from evenflow.lane.config import LaneStage
from evenflow.model.slots import IntArray
from evenflow.operators import HASH
from evenflow.operators.arrays import pieces
from evenflow.operators.key_hash import hashes_of
from evenflow.state import Block, FileRef, Segment

PRODUCER = "__unit"  # int32, the unit that has put a row out: a column of what one stage feeds another


@dataclass(frozen=True)
class Feed:
    """Rows for another stage, one batch per segment: by the unit that they are for, then by the one they are from."""

    rows: pa.Table
    segments: tuple[Segment, ...]

    def block(self, file: FileRef) -> Block:
        """Return what the records say of the rows once they are in a file."""
        return Block(file, self.segments)


def feed_of(output: pa.Table, producers: IntArray, target: LaneStage, lane: int) -> Feed:
    """Return what some units have put out in an epoch as input of another stage; `producers[i]`: who has row i."""
    sorted_rows, segments = list[pa.Table](), list[Segment]()
    for piece, rows, units in _sorted_pieces(output, producers, target):
        there, counts = np.unique(units, return_counts=True)
        segments.append(Segment(lane, len(segments), piece, tuple(there.tolist()), tuple(counts.tolist())))
        sorted_rows.append(rows)
    return Feed(pa.concat_tables(sorted_rows), tuple(segments))


def _sorted_pieces(
    output: pa.Table, producers: IntArray, target: LaneStage
) -> Iterator[tuple[int, pa.Table, IntArray]]:
    """Yield (rows, the rows in their order, the unit that each is for): as much as fits one array at a time."""
    at = 0
    for piece in pieces(output):
        mine = producers[at : at + piece.num_rows]
        at += piece.num_rows
        hashes = hashes_of(piece, target.keys)
        units = hashes % target.units.slots + target.units.first
        rows = piece.select(target.schema.names).append_column(PRODUCER, pa.array(mine, pa.int32()))
        if target.needs_hash:
            rows = rows.append_column(HASH, pa.array(hashes))
        order = np.lexsort((mine, units))
        yield piece.num_rows, rows.combine_chunks().take(pa.array(order)), units[order]


def order_of(rows: pa.Table, units: IntArray) -> IntArray:
    """Return by what rows that a stage was fed are to be sorted: the unit that each is for, then who has put it out."""
    order: IntArray = units << 32 | rows[PRODUCER].to_numpy().astype(np.int64)
    return order


def units_in(order: IntArray) -> IntArray:
    """Return the unit that each row is for."""
    units: IntArray = order >> 32
    return units
