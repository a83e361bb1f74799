"""What a run gave, row by row: throughput and backlog per lane, latencies, moves, imbalance; and the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import numpy as np

from evenflow.control import Journal
from evenflow.errors import InputError
from evenflow.model import RoutingTable
from evenflow.model.slots import FloatArray, IntArray, frozen_array
from evenflow.sim.quantum.counts import sum_by

_BINS_PER_DECADE = 50  # latencies are kept to within 2.4 %
_SHORTEST_S, _DECADES = 1e-7, 13


@cache
def _bins() -> FloatArray:
    """Return the upper edges of the bins that latencies are sorted into."""
    edges = _SHORTEST_S * np.logspace(0, _DECADES, _DECADES * _BINS_PER_DECADE + 1)
    return frozen_array(edges, np.float64)


@dataclass(frozen=True, eq=False)
class Timeline:
    """One entry per row; a row covers `row_s` seconds and `time_s` is its end.

    `served`, `backlog`, `busy_s` have a column per lane number. `latency_*` are of the records that were served in the
    row, NaN if there were none. `imbalance` is max / mean of the lanes' busy time. `lost` is always 0: if not,
    the run would have failed.
    """

    row_s: float
    time_s: FloatArray
    served: FloatArray
    backlog: FloatArray
    busy_s: FloatArray
    idle_s: FloatArray
    latency_mean_s: FloatArray
    latency_p50_s: FloatArray
    latency_p99_s: FloatArray
    latency_max_s: FloatArray
    moves: IntArray
    moves_settled: IntArray
    bytes_moved: FloatArray
    imbalance: FloatArray
    lanes: IntArray
    arrived: FloatArray
    refused: FloatArray
    spilled: IntArray
    histogram: FloatArray = field(repr=False)
    table: RoutingTable = field(repr=False)
    journal: Journal = field(repr=False)
    merge_bytes: float = 0.0
    lost: float = 0.0

    @property
    def throughput(self) -> FloatArray:
        """Records per second of all lanes together."""
        total: FloatArray = self.served.sum(axis=1) / self.row_s
        return total

    @property
    def first_move_s(self) -> float | None:
        """The end of the row in which the first move was announced."""
        at = np.flatnonzero(self.moves)
        return float(self.time_s[at[0]]) if at.size else None

    @property
    def last_move_s(self) -> float | None:
        """The end of the row in which the last move settled."""
        at = np.flatnonzero(self.moves_settled)
        return float(self.time_s[at[-1]]) if at.size else None

    def rows(self, since_s: float = 0.0, until_s: float = float("inf")) -> Any:
        """Return the index of the rows that lie between two moments."""
        slack = self.row_s * 1e-6
        return np.flatnonzero((self.time_s > since_s + slack) & (self.time_s <= until_s + slack))

    def latency_s(self, quantile: float, since_s: float = 0.0, until_s: float = float("inf")) -> float:
        """Return a quantile of the latency of all records served between two moments, within 2.4 %."""
        counts = self.histogram[self.rows(since_s, until_s)].sum(axis=0)
        return quantile_of(counts, quantile)

    def mean_latency_s(self, since_s: float = 0.0, until_s: float = float("inf")) -> float:
        """Return the mean latency of all records served between two moments."""
        at = self.rows(since_s, until_s)
        weights = self.served[at].sum(axis=1)
        some = weights > 0
        if not some.any():
            return float("nan")
        return float(np.average(self.latency_mean_s[at][some], weights=weights[some]))

    def as_dict(self) -> dict[str, Any]:
        """Return the columns as plain lists for JSON; NaN becomes None."""
        skipped = {"histogram", "table", "journal"}
        plain: dict[str, Any] = {}
        for part in fields(self):
            if part.name not in skipped:
                value = getattr(self, part.name)
                plain[part.name] = _listed(value) if isinstance(value, np.ndarray) else value
        return plain


def _listed(values: Any) -> Any:
    plain = values.astype(object)
    plain[~np.isfinite(values)] = None
    return plain.tolist()


def quantile_of(counts: FloatArray, quantile: float) -> float:
    """Return a quantile from a histogram over the latency bins, NaN if it is empty."""
    if not 0 <= quantile <= 1:
        raise InputError(f"a quantile is from 0 to 1, got {quantile}")
    total = counts.sum()
    if total <= 0:
        return float("nan")
    at = int(np.searchsorted(np.cumsum(counts), quantile * total * (1 - 1e-12)))
    return float(_bins()[min(at, counts.size - 1)])


class Recorder:
    """Gathers what happens and cuts it into rows."""

    def __init__(self, row_s: float, lanes: int) -> None:
        """Start the first row."""
        self.row_s = row_s
        self._bins = _bins()
        self._rows: list[dict[str, Any]] = []
        self._lanes = lanes
        self._begin()

    def _begin(self) -> None:
        self._served, self._busy = np.zeros(self._lanes), np.zeros(self._lanes)
        self._idle = np.zeros(self._lanes)
        self._latencies: list[FloatArray] = []
        self._weights: list[FloatArray] = []
        self._moves = self._settled = 0
        self._arrived = self._refused = 0.0

    def grow(self, lanes: int) -> None:
        """Make room for lanes up to number `lanes` - 1."""
        more = np.zeros(max(0, lanes - self._lanes))
        self._lanes += more.size
        self._served, self._busy = np.append(self._served, more), np.append(self._busy, more)
        self._idle = np.append(self._idle, more)

    def served(self, lanes: IntArray, records: FloatArray, latency_s: FloatArray) -> None:
        """Lanes have served records with a latency."""
        np.add.at(self._served, lanes, records)  # a lane may be there once per cohort
        self._latencies.append(latency_s)
        self._weights.append(records)

    def worked(self, busy_s: FloatArray, idle_s: FloatArray) -> None:
        """Lanes have been busy and idle."""
        self._busy += busy_s
        self._idle += idle_s

    def came(self, arrived: float, refused: float) -> None:
        """Records came, or were turned away."""
        self._arrived += arrived
        self._refused += refused

    def moved(self, announced: int, settled: int) -> None:
        """Moves were announced or have settled."""
        self._moves += announced
        self._settled += settled

    def end_row(
        self, time_s: float, backlog: FloatArray, bytes_moved: float, lanes: Sequence[int], spilled: int
    ) -> None:
        """Close the row; `bytes_moved` counts from the start of the run."""
        latency = np.concatenate(self._latencies) if self._latencies else np.zeros(0)
        weight = np.concatenate(self._weights) if self._weights else np.zeros(0)
        place = np.searchsorted(self._bins, latency * (1 - 1e-12))
        place = np.minimum(place, self._bins.size - 1)
        counts = sum_by(place, weight, self._bins.size)
        busy, records = self._busy[list(lanes)], float(weight.sum())
        self._rows.append(
            {
                "time_s": time_s,
                "served": self._served,
                "backlog": backlog,
                "busy_s": self._busy,
                "idle_s": self._idle,
                "latency_mean_s": float((latency * weight).sum()) / records if records > 0 else np.nan,
                "latency_p50_s": quantile_of(counts, 0.5),
                "latency_p99_s": quantile_of(counts, 0.99),
                "latency_max_s": float(latency[weight > 0].max()) if records > 0 else np.nan,
                "moves": self._moves,
                "moves_settled": self._settled,
                "bytes_moved": bytes_moved,
                "imbalance": float(busy.max() / busy.mean()) if busy.sum() > 0 else 1.0,
                "lanes": len(lanes),
                "arrived": self._arrived,
                "refused": self._refused,
                "spilled": spilled,
                "histogram": counts,
            }
        )
        self._begin()

    def timeline(self, table: RoutingTable, journal: Journal, merge_bytes: float, lost: float) -> Timeline:
        """Return all rows."""
        columns: dict[str, Any] = {name: [row[name] for row in self._rows] for name in self._rows[0]}
        for name in ("served", "backlog", "busy_s", "idle_s"):
            columns[name] = _padded(columns[name], self._lanes)
        arrays = {name: np.array(values) for name, values in columns.items()}
        arrays["bytes_moved"] = np.diff(arrays["bytes_moved"], prepend=0.0)
        return Timeline(row_s=self.row_s, table=table, journal=journal, merge_bytes=merge_bytes, lost=lost, **arrays)


def _padded(rows: list[FloatArray], length: int) -> FloatArray:
    """Return the rows as one array, short ones filled up with zeros."""
    whole = np.zeros((len(rows), length))
    for at, row in enumerate(rows):
        whole[at, : row.size] = row
    return whole
