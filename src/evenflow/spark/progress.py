"""What a query tells about itself, epoch by epoch: rates, lanes, balance, moves, state, latency."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from evenflow.control.journal import Journal, PhaseChanged
from evenflow.lane.messages import Done
from evenflow.migration import Phase
from evenflow.model import LaneId
from evenflow.model.balance import max_over_mean, spread
from evenflow.state import EpochRecord

_KEPT = 100  # as many as Spark's recentProgress keeps
_LATENCIES = 20_000


@dataclass
class EpochTimes:
    """When an epoch passed which point, in seconds of the wall clock; 0 if it did not."""

    began_s: float = 0.0
    routed_s: float = 0.0
    accepted_s: float = 0.0
    moved_s: float = 0.0
    worked_s: float = 0.0
    committed_s: float = 0.0
    published_s: float = 0.0
    arrivals: tuple[tuple[float, float], ...] = ()  # sampled: when a row arrived, how many rows it stands for

    def durations_ms(self) -> dict[str, float]:
        """Return how long each part took."""
        points = [
            ("route", self.began_s, self.routed_s),
            ("accept", self.routed_s, self.accepted_s),
            ("move", self.accepted_s, self.moved_s),
            ("work", self.moved_s, self.worked_s),
            ("commit", self.worked_s, self.committed_s),
            ("publish", self.committed_s, self.published_s),
        ]
        return {name: round(1e3 * max(0.0, end - start), 3) for name, start, end in points if start and end}


@dataclass
class Progress:
    """Collects the figures of a query; read by other threads."""

    query_id: str
    name: str | None
    _recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _lanes: dict[LaneId, Done] = field(default_factory=dict)
    _latency_s: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=_LATENCIES))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lanes_done(self, record: EpochRecord, done: dict[LaneId, Done]) -> None:  # noqa: ARG002 - one epoch's lanes
        """Keep what the lanes said last."""
        with self._lock:
            self._lanes = dict(done)

    def finish(self, record: EpochRecord, times: EpochTimes, journal: Journal) -> None:
        """Sum up one epoch."""
        span = max(1e-9, times.published_s - times.began_s)
        arrivals = times.arrivals or ((times.began_s, float(record.rows)),)
        with self._lock:
            self._latency_s.extend((record.epoch, times.committed_s - at, rows) for at, rows in arrivals)
            busy = [answer.busy_s for answer in self._lanes.values()]
            moves = [
                entry
                for entry in journal.of(PhaseChanged)
                if entry.epoch == record.epoch and entry.after is Phase.ANNOUNCED
            ]
            self._recent.append(
                {
                    "id": self.query_id,
                    "name": self.name,
                    "epoch": record.epoch,
                    "batchId": record.epoch,
                    "timestamp": datetime.fromtimestamp(times.began_s, UTC).isoformat(),
                    "numInputRows": record.rows,
                    "processedRowsPerSecond": record.rows / span,
                    "durationMs": times.durations_ms(),
                    "lanes": self._lane_rows(),
                    "imbalance": {"maxOverMean": max_over_mean(busy), "spread": spread(busy)} if busy else {},
                    "moves": len(moves),
                    "tableVersion": record.table_version,
                    "state": {
                        "rows": sum(answer.state_rows for answer in self._lanes.values()),
                        "bytes": sum(answer.state_bytes for answer in self._lanes.values()),
                    },
                    "latency": self._latency(record.epoch, record.epoch),
                }
            )

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The newest epochs, oldest first."""
        with self._lock:
            return list(self._recent)

    @property
    def last(self) -> dict[str, Any] | None:
        """The newest epoch."""
        with self._lock:
            return self._recent[-1] if self._recent else None

    def latency(self, first: int = 0, last: int | None = None) -> dict[str, float]:
        """Return percentiles of the latency over the epochs from `first` to `last`; empty if none is remembered."""
        with self._lock:
            return self._latency(first, last)

    def lane_rows(self) -> list[dict[str, Any]]:
        """Return what each lane did in the newest epoch."""
        with self._lock:
            return self._lane_rows()

    def slot_rows(self) -> list[dict[str, Any]]:
        """Return what each slot cost in the newest epoch."""
        with self._lock:
            return [
                {"slot": slot, "lane": lane, "records": records, "busy_s": busy_s, "state_bytes": size}
                for lane, answer in sorted(self._lanes.items())
                for slot, records, busy_s, size in zip(
                    answer.load.slots, answer.load.records, answer.load.busy_s, answer.load.state_bytes, strict=True
                )
            ]

    def _lane_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "lane": lane,
                "rows": answer.rows,
                "busy_s": answer.busy_s,
                "idle_s": answer.idle_s,
                "slots": len(answer.load.slots),
                "state_rows": answer.state_rows,
                "state_bytes": answer.state_bytes,
                "attempt": answer.commit.attempt,
            }
            for lane, answer in sorted(self._lanes.items())
        ]

    def _latency(self, first: int, last: int | None) -> dict[str, float]:
        """Return percentiles of the time from a row's arrival to its commit.

        A row arrives when its arrival column says so; without one, when its micro-batch begins.
        """
        chosen = [
            (latency, max(1.0, rows))
            for epoch, latency, rows in self._latency_s
            if first <= epoch and (last is None or epoch <= last)
        ]
        if not chosen:
            return {}
        values, weights = np.array(chosen).T
        order = np.argsort(values)
        share = np.cumsum(weights[order]) / weights.sum()
        percentile = {
            f"p{level}_s": float(values[order][min(values.size - 1, int(np.searchsorted(share, level / 100)))])
            for level in (50, 95, 99)
        }
        return {**percentile, "max_s": float(values.max())}
