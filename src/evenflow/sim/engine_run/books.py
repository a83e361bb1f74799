"""What a run came to, as a timeline of the same kind as the quantum level's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from evenflow.control.journal import Entry, PhaseChanged
from evenflow.migration import Phase
from evenflow.model import Epoch, LaneId, SlotId
from evenflow.model.slots import FloatArray, IntArray
from evenflow.sim.engine_run.query import PlayedQuery
from evenflow.sim.engine_run.watching import Piece, Watcher
from evenflow.sim.quantum.timeline import Recorder, Timeline
from evenflow.state import EpochRecord

_POINTS = 20  # of the rows of a piece, to tell when each came and when it was folded


@dataclass(frozen=True, slots=True)
class _Row:
    """What is known at the end of a row of the timeline, and not afterwards."""

    lanes: tuple[LaneId, ...]
    owners: IntArray
    arrived: IntArray


@dataclass
class Books(Watcher):
    """Keeps what it sees. A row has come when it was drawn, and is served when it has been folded."""

    slots: int
    spans: dict[Epoch, tuple[float, float]] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    busy: list[tuple[LaneId, float, float]] = field(default_factory=list)
    bytes_moved: list[tuple[float, float]] = field(default_factory=list)
    moves: list[tuple[float, float]] = field(default_factory=list)
    settled: list[tuple[float, float]] = field(default_factory=list)
    _rows: list[_Row] = field(default_factory=list)
    _arrived: IntArray = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing seen."""
        self._arrived = np.zeros(self.slots, np.int64)

    def accepted(self, record: EpochRecord, since_s: float, until_s: float) -> None:
        """An epoch was accepted."""
        self.spans[record.epoch] = (since_s, until_s)
        self.moves.append((until_s, len(record.moves)))
        self._arrived += record.slot_rows

    def folded(self, pieces: Sequence[Piece]) -> None:
        """Rows were folded."""
        self.pieces += pieces

    def worked(self, lane: LaneId, since_s: float, until_s: float) -> None:
        """A lane was busy."""
        self.busy.append((lane, since_s, until_s))

    def released(self, lane: LaneId, versions: Mapping[SlotId, Epoch], size: int, now_s: float) -> None:  # noqa: ARG002
        """State has left a lane."""
        self.bytes_moved.append((now_s, size))

    def hears(self, query: PlayedQuery) -> None:
        """Hear what the balancer writes down, from now on."""

        def heard(entry: Entry) -> None:
            if isinstance(entry, PhaseChanged) and entry.after is Phase.SETTLED:
                self.settled.append((query.now_s, 1))

        query.balancer.journal.heard = heard

    def end_row(self, query: PlayedQuery) -> None:
        """Note what is known now."""
        table = query.balancer.table
        self._rows.append(_Row(table.lanes, table.owners, self._arrived.copy()))

    def timeline(self, query: PlayedQuery, row_s: float) -> Timeline:
        """Return the rows that have ended."""
        now_s = query.now_s
        for lane in query.lanes.values():
            self.folded(lane.in_hand)
            if lane.in_hand:
                self.worked(lane.lane, lane.in_hand[0].since_s, lane.in_hand[-1].until_s)
        lanes = 1 + max(lane for row in self._rows for lane in row.lanes)
        recorder, folds = Recorder(row_s, lanes), _Folds.of(self.pieces, self.spans)
        moved, came = 0.0, 0
        for at, row in enumerate(self._rows):
            begin_s, end_s = at * row_s, min(now_s, (at + 1) * row_s)
            arrived = int(row.arrived.sum())
            recorder.came(float(arrived - came), 0.0)
            recorder.moved(int(_between(self.moves, begin_s, end_s)), int(_between(self.settled, begin_s, end_s)))
            moved += _between(self.bytes_moved, begin_s, end_s)
            busy = self._busy_s(lanes, begin_s, end_s)
            recorder.worked(busy, np.maximum(0.0, row_s - busy))
            here = folds.between(begin_s, end_s)
            recorder.served(folds.lane[here], folds.rows[here], folds.latency_s[here], important=False)
            waiting = row.arrived - folds.folded_by(end_s, self.slots)
            backlog = np.bincount(row.owners, waiting, lanes).astype(np.float64)
            recorder.end_row((at + 1) * row_s, np.maximum(0.0, backlog), moved, row.lanes, 0)
            came = arrived
        return recorder.timeline(query.balancer.table, query.balancer.journal, 0.0, 0.0)

    def _busy_s(self, lanes: int, begin_s: float, end_s: float) -> FloatArray:
        busy = np.zeros(lanes)
        for lane, since_s, until_s in self.busy:
            busy[lane] += max(0.0, min(until_s, end_s) - max(since_s, begin_s))
        return busy


def _between(what: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Add up what happened after one moment and up to another."""
    return sum(amount for at_s, amount in what if begin_s < at_s <= end_s)


@dataclass(frozen=True, eq=False, slots=True)
class _Folds:
    """The rows of all pieces, in a few points each: first come, first folded."""

    lane: IntArray
    slot: IntArray
    rows: FloatArray
    folded_s: FloatArray
    latency_s: FloatArray

    @classmethod
    def of(cls, pieces: Sequence[Piece], spans: Mapping[Epoch, tuple[float, float]]) -> _Folds:
        columns: defaultdict[str, list[float]] = defaultdict(list)
        for piece in pieces:
            came = spans[piece.epoch]
            row = (piece.lane, piece.slot, piece.rows, piece.since_s, piece.until_s, *came)
            for name, value in zip(("lane", "slot", "rows", "since", "until", "from", "to"), row, strict=True):
                columns[name].append(value)
        whole = {name: np.array(values, dtype=np.float64)[:, None] for name, values in columns.items()}
        if not whole:
            nothing = np.zeros(0)
            return cls(nothing.astype(np.int64), nothing.astype(np.int64), nothing, nothing, nothing)
        shares = (np.arange(_POINTS) + 0.5)[None, :] / _POINTS
        folded_s = (whole["since"] + shares * (whole["until"] - whole["since"])).ravel()
        came_s = (whole["from"] + shares * (whole["to"] - whole["from"])).ravel()
        repeated = {name: np.repeat(whole[name].ravel(), _POINTS) for name in ("lane", "slot", "rows")}
        return cls(
            repeated["lane"].astype(np.int64),
            repeated["slot"].astype(np.int64),
            repeated["rows"] / _POINTS,
            folded_s,
            folded_s - came_s,
        )

    def between(self, begin_s: float, end_s: float) -> IntArray:
        """Return which points were folded after one moment and up to another."""
        return np.flatnonzero((self.folded_s > begin_s) & (self.folded_s <= end_s))

    def folded_by(self, end_s: float, slots: int) -> FloatArray:
        """Return how many rows of each slot were folded up to a moment."""
        done = self.folded_s <= end_s
        return np.bincount(self.slot[done], self.rows[done], slots).astype(np.float64)
