"""What lanes did when, and what waited for them: work spread over the time it took, backlog slot by slot.

Commits come in bunches, so rows per difference of commit times say nothing. A lane's rows are spread over the time it
worked on them instead, and counted in spans of fixed length: no rate is above what the lane did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from evenflow.demo.record import Piece, Record
from evenflow.model.slots import FloatArray, IntArray

_INSTANT_S = 1e-6  # the least that a piece of work takes


@dataclass(frozen=True)
class Work:
    """What lanes did: the rows of each piece lie evenly over the time in which its lane worked on them."""

    lanes: int
    lane: IntArray
    began_s: FloatArray
    ended_s: FloatArray
    rows: FloatArray

    @classmethod
    def of(cls, pieces: Iterable[Piece], lanes: int) -> Work:
        """Place the pieces in time. A lane does one at a time: one whose commit came late ended when the next began."""
        placed: list[tuple[int, float, float, int]] = []
        next_s: dict[int, float] = {}
        for piece in sorted(pieces, key=lambda piece: -piece.committed_s):
            ended_s = min(piece.committed_s, next_s.get(piece.lane, piece.committed_s))
            next_s[piece.lane] = ended_s - max(_INSTANT_S, piece.busy_s)
            placed.append((piece.lane, next_s[piece.lane], ended_s, piece.rows))
        columns = np.array(placed, dtype=np.float64).reshape(-1, 4).T
        return cls(lanes, columns[0].astype(np.int64), *columns[1:])

    def rates(self, edges_s: FloatArray) -> FloatArray:
        """Return the rows per second of each lane between the edges: a row per span, a column per lane."""
        rates: FloatArray = self._between(edges_s, self.rows) / np.diff(edges_s)[:, None]
        return rates

    def busy_s(self, edges_s: FloatArray) -> FloatArray:
        """Return how long each lane worked between the edges: a row per span, a column per lane."""
        return self._between(edges_s, self.ended_s - self.began_s)

    def _between(self, edges_s: FloatArray, amounts: FloatArray) -> FloatArray:
        spans = np.zeros((edges_s.size - 1, self.lanes))
        for at, (low, high) in enumerate(pairwise(edges_s)):
            inside_s = np.clip(np.minimum(self.ended_s, high) - np.maximum(self.began_s, low), 0.0, None)
            share = inside_s / (self.ended_s - self.began_s)
            spans[at] = np.bincount(self.lane, weights=amounts * share, minlength=self.lanes)
        return spans


@dataclass
class Backlog:
    """Walks through a run and tells the rows that have arrived for a lane and are not done.

    A row waits for the lane that owns its slot at that moment, until its slot has passed the row's epoch.
    """

    record: Record
    _reached: IntArray = field(init=False)  # the epoch that each slot has passed
    _taken: int = 0  # pieces

    def __post_init__(self) -> None:
        """Begin where no slot has passed any epoch."""
        self._reached = np.full(self.record.arrivals.slots, -1, dtype=np.int64)

    def at(self, now_s: float) -> FloatArray:
        """Return the rows that wait for each lane, at a moment no earlier than the one asked for last."""
        pieces, arrivals = self.record.pieces, self.record.arrivals
        while self._taken < len(pieces) and pieces[self._taken].committed_s <= now_s:
            for epoch, slots in pieces[self._taken].reached:
                self._reached[list(slots)] = epoch
            self._taken += 1
        passed = np.searchsorted(list(self.record.taken), self._reached, side="right")
        files = self._files_of_epochs()[passed]
        done = np.array([arrivals.of_files(count)[slot] for slot, count in enumerate(files)])
        waiting = np.clip(arrivals.by(now_s) - done, 0.0, None)
        return np.bincount(self._owners(now_s), weights=waiting, minlength=self.record.lanes).astype(np.float64)

    def _files_of_epochs(self) -> IntArray:
        """Return how many files the first 0, 1, 2, ... epochs took: whole files, in the order in which they came."""
        written = np.cumsum([0, *(int(rows.sum()) for rows in self.record.arrivals.files)])
        taken = np.cumsum([0, *(one.rows for one in self.record.taken.values())])
        return np.minimum(np.searchsorted(written, taken), written.size - 1)

    def _owners(self, now_s: float) -> IntArray:
        owners, taken = self.record.table.owners.copy(), self.record.taken
        for move in self.record.moves:
            if move.epoch in taken and taken[move.epoch].began_s <= now_s:
                owners[move.slot] = move.target
        return owners
