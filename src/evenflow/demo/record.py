"""What was seen of a run: what arrived, what lanes did, the epochs, the moves. Seconds count from the first bid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray, IntArray


@dataclass(frozen=True)
class Taken:
    """An epoch, under way or over: when it began, and how many rows it took, in the order in which they came."""

    began_s: float
    rows: int

    @classmethod
    def of(cls, told: Mapping[str, Any], zero_s: float) -> Taken:
        """Read one entry of `recentProgress` or `under_way`; `zero_s` is the wall-clock time of the first bid."""
        return cls(datetime.fromisoformat(told["timestamp"]).timestamp() - zero_s, told["numInputRows"])


@dataclass(frozen=True)
class EpochFigures:
    """An epoch that is over."""

    epoch: int
    began_s: float
    committed_s: float
    latency_p50_s: float
    latency_p99_s: float

    @classmethod
    def of(cls, progress: Mapping[str, Any], zero_s: float) -> EpochFigures:
        """Read one entry of `recentProgress`; `zero_s` is the wall-clock time of the first bid."""
        began_s = Taken.of(progress, zero_s).began_s
        took_ms = sum(ms for part, ms in progress["durationMs"].items() if part != "publish")
        return cls(
            progress["epoch"],
            began_s,
            began_s + took_ms / 1e3,
            progress["latency"]["p50_s"],
            progress["latency"]["p99_s"],
        )


@dataclass(frozen=True)
class Piece:
    """A piece of work that a lane did and committed: how long it worked, and how far that took which slots."""

    lane: int
    committed_s: float
    rows: int
    busy_s: float
    reached: tuple[tuple[int, tuple[int, ...]], ...] = ()  # epoch, slots


@dataclass(frozen=True)
class Moved:
    """A slot goes to another lane from an epoch on."""

    epoch: int
    slot: int
    source: int
    target: int

    def __str__(self) -> str:
        """Say it as the live view does."""
        return f"epoch {self.epoch}: slot {self.slot}, lane {self.source} to lane {self.target}"


@dataclass(frozen=True)
class Arrivals:
    """What arrived for each slot: the rows of file n arrive evenly from ``n * file_s`` on, for `file_s` seconds."""

    slots: int
    file_s: float
    files: list[IntArray] = field(default_factory=list)  # rows by slot
    _sums: list[IntArray] = field(default_factory=list)

    def add(self, rows: IntArray) -> None:
        """Add the next file."""
        self._sums.append(self.of_files(len(self.files)) + rows)
        self.files.append(rows)

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return int(self.of_files(len(self.files)).sum())

    def of_files(self, count: int) -> IntArray:
        """Return the rows by slot of the first files."""
        return self._sums[count - 1] if count else np.zeros(self.slots, dtype=np.int64)

    def by(self, at_s: float) -> FloatArray:
        """Return how many rows had arrived for each slot at a moment, of the files that are known."""
        position = min(float(len(self.files)), max(0.0, at_s / self.file_s))
        whole = int(position)
        arrived: FloatArray = self.of_files(whole).astype(np.float64)
        return arrived if position == whole else arrived + (position - whole) * self.files[whole]


@dataclass
class Record:
    """The run so far; everything in it only grows."""

    table: RoutingTable  # that the query started with
    arrivals: Arrivals
    taken: dict[int, Taken] = field(default_factory=dict)  # by epoch, oldest first
    epochs: list[EpochFigures] = field(default_factory=list)  # those of them that are over
    pieces: list[Piece] = field(default_factory=list)  # in the order of their commits
    moves: list[Moved] = field(default_factory=list)

    @property
    def lanes(self) -> int:
        """How many lanes there are."""
        return len(self.table.lanes)

    def moved_s(self) -> list[float]:
        """Return when each move took effect; one whose epoch has not begun is not among them."""
        return [self.taken[move.epoch].began_s for move in self.moves if move.epoch in self.taken]
