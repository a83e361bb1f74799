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
_ROUNDING = 1e-9  # records: sums of parts of cohorts, relative


@cache
def _bins() -> FloatArray:
    """Return the upper edges of the bins that latencies are sorted into."""
    edges = _SHORTEST_S * np.logspace(0, _DECADES, _DECADES * _BINS_PER_DECADE + 1)
    return frozen_array(edges, np.float64)


@dataclass(frozen=True, eq=False)
class ServiceClass:
    """What came of some of the slots and what became of it, one entry per row of the timeline (FX-F4)."""

    row_s: float
    time_s: FloatArray
    arrived: FloatArray
    refused: FloatArray
    histogram: FloatArray = field(repr=False)

    @property
    def served(self) -> FloatArray:
        """Records that were served."""
        total: FloatArray = self.histogram.sum(axis=1)
        return total

    def latency_s(self, quantile: float, since_s: float = 0.0, until_s: float = float("inf")) -> float:
        """Return a quantile of the latency of its records served between two moments, within 2.4 %."""
        return quantile_of(self.histogram[_between(self.time_s, self.row_s, since_s, until_s)].sum(axis=0), quantile)

    def without(self, part: ServiceClass) -> ServiceClass:
        """Return the rest."""
        rest = self.histogram - part.histogram
        rest[rest < _ROUNDING * self.histogram] = 0.0  # sums of the same numbers, not in the same order
        return ServiceClass(self.row_s, self.time_s, self.arrived - part.arrived, self.refused - part.refused, rest)

    def as_dict(self) -> dict[str, Any]:
        """Return the columns as plain lists for JSON."""
        latency = np.array([quantile_of(row, 0.99) for row in self.histogram])
        columns = {"arrived": self.arrived, "refused": self.refused, "served": self.served, "latency_p99_s": latency}
        return {name: _listed(values) for name, values in columns.items()}


@dataclass(frozen=True, eq=False)
class Timeline:
    """One entry per row; a row covers `row_s` seconds and `time_s` is its end.

    `served`, `backlog`, `busy_s` have a column per lane number. `latency_*` are of the records that were served in the
    row, NaN if there were none. `imbalance` is max / mean of the lanes' busy time. `lost` is always 0: if not,
    the run would have failed. `important` is set if the scenario says which slots are, and `others` is the rest.
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
    important: ServiceClass | None = field(default=None, repr=False)

    @property
    def others(self) -> ServiceClass:
        """What became of all slots that are not important."""
        whole = ServiceClass(self.row_s, self.time_s, self.arrived, self.refused, self.histogram)
        return whole if self.important is None else whole.without(self.important)

    @property
    def throughput(self) -> FloatArray:
        """Records per second of all lanes together."""
        total: FloatArray = self.served.sum(axis=1) / self.row_s
        return total

    @property
    def last_move_s(self) -> float | None:
        """The end of the row in which the last move settled."""
        at = np.flatnonzero(self.moves_settled)
        return float(self.time_s[at[-1]]) if at.size else None

    def rows(self, since_s: float = 0.0, until_s: float = float("inf")) -> Any:
        """Return the index of the rows that lie between two moments."""
        return _between(self.time_s, self.row_s, since_s, until_s)

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
        skipped = {"histogram", "table", "journal", "important"}
        plain: dict[str, Any] = {}
        for part in fields(self):
            if part.name not in skipped:
                value = getattr(self, part.name)
                plain[part.name] = _listed(value) if isinstance(value, np.ndarray) else value
        if self.important is not None:
            plain["important"] = self.important.as_dict()
        return plain


def _between(time_s: FloatArray, row_s: float, since_s: float, until_s: float) -> Any:
    """Return the index of the rows that lie between two moments."""
    slack = row_s * 1e-6
    return np.flatnonzero((time_s > since_s + slack) & (time_s <= until_s + slack))


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


@dataclass
class _Tally:
    """Records of a row: those that came, those that were refused, and those served, with their latencies."""

    arrived: float = 0.0
    refused: float = 0.0
    latencies: list[FloatArray] = field(default_factory=list)
    weights: list[FloatArray] = field(default_factory=list)

    def served(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return latencies, how many records had each of them, and the histogram."""
        latency = np.concatenate(self.latencies) if self.latencies else np.zeros(0)
        weight = np.concatenate(self.weights) if self.weights else np.zeros(0)
        place = np.searchsorted(_bins(), latency * (1 - 1e-12))
        place = np.minimum(place, _bins().size - 1)
        return latency, weight, sum_by(place, weight, _bins().size)


class Recorder:
    """Gathers what happens and cuts it into rows; `classed` keeps books of the important slots as well."""

    def __init__(self, row_s: float, lanes: int, *, classed: bool = False) -> None:
        """Start the first row."""
        self.row_s, self.classed = row_s, classed
        self.important_arrived = self.important_served = 0.0  # from the start of the run
        self._rows: list[dict[str, Any]] = []
        self._important_rows: list[tuple[float, float, FloatArray]] = []
        self._lanes = lanes
        self._begin()

    def _begin(self) -> None:
        self._served, self._busy = np.zeros(self._lanes), np.zeros(self._lanes)
        self._idle = np.zeros(self._lanes)
        self._all, self._important = _Tally(), _Tally()
        self._moves = self._settled = 0

    def grow(self, lanes: int) -> None:
        """Make room for lanes up to number `lanes` - 1."""
        more = np.zeros(max(0, lanes - self._lanes))
        self._lanes += more.size
        self._served, self._busy = np.append(self._served, more), np.append(self._busy, more)
        self._idle = np.append(self._idle, more)

    def served(self, lanes: IntArray, records: FloatArray, latency_s: FloatArray, *, important: bool) -> None:
        """Lanes have served records with a latency."""
        np.add.at(self._served, lanes, records)  # a lane may be there once per cohort
        for tally in (self._all, self._important) if important else (self._all,):
            tally.latencies.append(latency_s)
            tally.weights.append(records)
        if important:
            self.important_served += float(records.sum())

    def worked(self, busy_s: FloatArray, idle_s: FloatArray) -> None:
        """Lanes have been busy and idle."""
        self._busy += busy_s
        self._idle += idle_s

    def came(self, arrived: float, refused: float) -> None:
        """Records came, or were turned away."""
        self._all.arrived += arrived
        self._all.refused += refused

    def important_came(self, arrived: float, refused: float) -> None:
        """Tell of the important ones how many of them came, or were turned away."""
        self._important.arrived += arrived
        self._important.refused += refused
        self.important_arrived += arrived

    def moved(self, announced: int, settled: int) -> None:
        """Moves were announced or have settled."""
        self._moves += announced
        self._settled += settled

    def end_row(
        self, time_s: float, backlog: FloatArray, bytes_moved: float, lanes: Sequence[int], spilled: int
    ) -> None:
        """Close the row; `bytes_moved` counts from the start of the run."""
        latency, weight, counts = self._all.served()
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
                "arrived": self._all.arrived,
                "refused": self._all.refused,
                "spilled": spilled,
                "histogram": counts,
            }
        )
        if self.classed:
            self._important_rows.append((self._important.arrived, self._important.refused, self._important.served()[2]))
        self._begin()

    def timeline(self, table: RoutingTable, journal: Journal, merge_bytes: float, lost: float) -> Timeline:
        """Return all rows."""
        columns: dict[str, Any] = {name: [row[name] for row in self._rows] for name in self._rows[0]}
        for name in ("served", "backlog", "busy_s", "idle_s"):
            columns[name] = _padded(columns[name], self._lanes)
        arrays: dict[str, Any] = {name: np.array(values) for name, values in columns.items()}
        arrays["bytes_moved"] = np.diff(arrays["bytes_moved"], prepend=0.0)
        arrays["important"] = self._important_class(arrays["time_s"])
        return Timeline(row_s=self.row_s, table=table, journal=journal, merge_bytes=merge_bytes, lost=lost, **arrays)

    def _important_class(self, time_s: FloatArray) -> ServiceClass | None:
        if not self.classed:
            return None
        arrived, refused, histogram = (np.array(column) for column in zip(*self._important_rows, strict=True))
        return ServiceClass(self.row_s, time_s, arrived, refused, histogram)


def _padded(rows: list[FloatArray], length: int) -> FloatArray:
    """Return the rows as one array, short ones filled up with zeros."""
    whole = np.zeros((len(rows), length))
    for at, row in enumerate(rows):
        whole[at, : row.size] = row
    return whole
