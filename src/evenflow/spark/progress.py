"""What a query tells about itself, epoch by epoch: rates, lanes, balance, moves, state, latency."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from evenflow.lane.messages import Done, EpochLoad, SlotColumns
from evenflow.model import Epoch, LaneId, RoutingTable, SlotId
from evenflow.model.balance import max_over_mean, spread
from evenflow.model.slots import FloatArray, IntArray
from evenflow.spark.latencies import Latencies
from evenflow.state import Advance, EpochRecord

_KEPT = 100  # as many as Spark's recentProgress keeps
_STEPS = 4_000
_SLOTS_OF_STEPS = 1 << 18  # that steps name in all


@dataclass
class EpochTimes:
    """When an epoch passed which point, in seconds of the wall clock; 0 if it did not."""

    began_s: float = 0.0
    ready_s: float = 0.0
    routed_s: float = 0.0
    waited_s: float = 0.0
    accepted_s: float = 0.0
    committed_s: float = 0.0
    published_s: float = 0.0
    arrivals: tuple[tuple[float, float], ...] = ()  # sampled: when a row arrived, how many rows it stands for

    def durations_ms(self) -> dict[str, float]:
        """Return how long each part took; `wait` is for lanes that are too far behind, before and after routing."""
        points = [
            ("wait", self.began_s, self.ready_s),
            ("route", self.ready_s, self.routed_s),
            ("wait", self.routed_s, self.waited_s),
            ("accept", self.waited_s, self.accepted_s),
            ("work", self.accepted_s, self.committed_s),
            ("publish", self.committed_s, self.published_s),
        ]
        durations: dict[str, float] = {}
        for name, start, end in points:
            if start and end:
                durations[name] = round(durations.get(name, 0.0) + 1e3 * max(0.0, end - start), 3)
        return durations


@dataclass
class LaneFigures:
    """What one lane did, in an epoch or last."""

    rows: int = 0
    busy_s: float = 0.0

    def add(self, load: EpochLoad) -> None:
        """Add a part of an epoch."""
        self.rows += load.rows
        self.busy_s += load.busy_s


@dataclass(frozen=True)
class Step:
    """One commit of a lane: when it was, which slots came how far, how many rows that took and how long it worked.

    Benchmarks read latencies of slots off these, the demo what a lane did when.
    """

    at_s: float
    lane: LaneId
    advances: tuple[Advance, ...]
    rows: int
    busy_s: float

    @property
    def slots(self) -> int:
        """How many slots it names."""
        return sum(len(advance.slots) for advance in self.advances)


@dataclass
class _Open:
    """An epoch under way."""

    record: EpochRecord
    times: EpochTimes
    lanes: dict[LaneId, LaneFigures]


@dataclass
class Progress:
    """Collects the figures of a query; read by other threads."""

    query_id: str
    name: str | None
    clock: Callable[[], float] = time.time
    lanes_why: str = "as asked"  # why it was started with so many lanes
    not_curable: Callable[[], list[dict[str, Any]]] = list  # the slots that no move can help
    _recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _open: dict[Epoch, _Open] = field(default_factory=dict)
    _lanes: dict[LaneId, Done] = field(default_factory=dict)
    _slots: dict[LaneId, SlotColumns] = field(default_factory=dict)  # of each lane the newest, the newest at the end
    _latencies: Latencies = field(default_factory=Latencies)
    _steps: deque[Step] = field(default_factory=deque)
    _slots_of_steps: int = 0
    _published_s: float = 0.0  # when the newest epoch was published
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def accepted(self, record: EpochRecord, times: EpochTimes) -> None:
        """An epoch is under way."""
        with self._lock:
            lanes = {lane: LaneFigures() for lane in record.lanes}
            self._open[record.epoch] = _Open(record, times, lanes)

    def lane_done(self, done: Done) -> None:
        """A lane's work was committed."""
        lane, now = done.commit.lane, self.clock()
        with self._lock:
            self._lanes[lane] = done
            rows, busy_s = sum(load.rows for load in done.loads), sum(load.busy_s for load in done.loads)
            self._keep_step(Step(now, lane, done.commit.advances, rows, busy_s))
            for load in done.loads:
                if load.epoch in self._open:
                    self._add(self._open[load.epoch], lane, load, now)
            if done.loads:
                self._slots.pop(lane, None)
                self._slots[lane] = done.loads[-1].load

    def _keep_step(self, step: Step) -> None:
        """Keep as many of the newest steps as there is room for, by their number and by the slots they name."""
        self._steps.append(step)
        self._slots_of_steps += step.slots
        while len(self._steps) > 1 and (len(self._steps) > _STEPS or self._slots_of_steps > _SLOTS_OF_STEPS):
            self._slots_of_steps -= self._steps.popleft().slots

    def lanes_are(self, lanes: Iterable[LaneId]) -> None:
        """Forget lanes that are gone."""
        with self._lock:
            self._lanes = {lane: done for lane, done in self._lanes.items() if lane in set(lanes)}

    def published(self, epoch: Epoch, lag: int) -> None:
        """Sum up one epoch that is over."""
        with self._lock:
            if epoch not in self._open:
                return  # of an earlier run of the query
            over = self._open.pop(epoch)
            over.times.published_s = self.clock()
            record, times = over.record, over.times
            busy = [figures.busy_s for figures in over.lanes.values()]
            self._recent.append(
                {
                    "id": self.query_id,
                    "name": self.name,
                    "epoch": epoch,
                    "batchId": record.batch,
                    "timestamp": _timestamp(times),
                    "numInputRows": record.rows,
                    "eventTime": _event_time(record),
                    "processedRowsPerSecond": record.rows / max(1e-9, self._span(times)),
                    "durationMs": times.durations_ms(),
                    "lag": lag,
                    "lanes": self._lane_rows(over.lanes),
                    "lanesWhy": self.lanes_why,
                    "imbalance": {"maxOverMean": max_over_mean(busy), "spread": spread(busy)} if busy else {},
                    "notCurable": self.not_curable(),
                    "moves": len(record.moves),
                    "tableVersion": record.table_version,
                    "state": {
                        "rows": sum(answer.state_rows for answer in self._lanes.values()),
                        "bytes": sum(answer.state_bytes for answer in self._lanes.values()),
                    },
                    "latency": self._latencies.percentiles(epoch, epoch),
                }
            )
            self._published_s = times.published_s

    def committed(self, frontier: Epoch) -> None:
        """All slots have reached an epoch."""
        with self._lock:
            now = self.clock()
            for epoch, under_way in self._open.items():
                if epoch <= frontier and not under_way.times.committed_s:
                    under_way.times.committed_s = now

    def _span(self, times: EpochTimes) -> float:
        """Return the time that an epoch took of the query's: epochs overlap when lanes may lag."""
        return times.published_s - max(times.began_s, self._published_s)

    def _add(self, epoch: _Open, lane: LaneId, load: EpochLoad, now: float) -> None:
        epoch.lanes.setdefault(lane, LaneFigures()).add(load)
        arrivals = epoch.times.arrivals or ((epoch.times.began_s, float(epoch.record.rows)),)
        if load.rows:
            share = load.rows / max(1, epoch.record.rows)
            self._latencies.add(load.epoch, now, arrivals, share, len(epoch.lanes))

    @property
    def steps(self) -> list[Step]:
        """The newest commits of lanes, oldest first."""
        with self._lock:
            return list(self._steps)

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The newest epochs, oldest first."""
        with self._lock:
            return list(self._recent)

    @property
    def under_way(self) -> list[dict[str, Any]]:
        """The epochs that were accepted and are not published yet, oldest first, in the words of `recent`."""
        with self._lock:
            return [
                {"epoch": epoch, "timestamp": _timestamp(one.times), "numInputRows": one.record.rows}
                for epoch, one in sorted(self._open.items())
            ]

    @property
    def last(self) -> dict[str, Any] | None:
        """The newest epoch."""
        with self._lock:
            return self._recent[-1] if self._recent else None

    def latency(self, first: int = 0, last: int | None = None) -> dict[str, float]:
        """Return percentiles of the time from a row's arrival to its commit, over the epochs from `first` to `last`.

        A row arrives when its arrival column says so; without one, when its micro-batch begins. Empty if none of the
        epochs is remembered.
        """
        with self._lock:
            return self._latencies.percentiles(first, last)

    def lane_rows(self) -> list[dict[str, Any]]:
        """Return what each lane did last."""
        with self._lock:
            last = {lane: LaneFigures() for lane in self._lanes}
            for lane, done in self._lanes.items():
                for load in done.loads[-1:]:
                    last[lane].add(load)
            return self._lane_rows(last)

    def slot_rows(self, pending: IntArray, table: RoutingTable) -> list[dict[str, Any]]:
        """Return what each slot cost last, with the rows that wait for it; all that have anything of either."""
        with self._lock:
            costs = self._slot_costs()
        for slot in np.flatnonzero(pending).tolist():
            costs.setdefault(slot, _slot_row(slot, int(table.owners[slot]), 0, 0.0, 0))
        return [{**row, "pending": int(pending[slot])} for slot, row in sorted(costs.items())]

    def unit_weights(self, units: int) -> FloatArray:
        """Return what each unit cost lately, in records of middling cost on its lane.

        One epoch of a lane may take twice as long as another's for no reason of its units: lanes' paces are left out.
        """
        with self._lock:
            loads = list(self._slots.values())
        weights = np.zeros(units)
        for load in loads:
            slots, records, busy_s = np.array(load.slots, np.int64), np.array(load.records), np.array(load.busy_s)
            total_s = float(busy_s.sum())
            weights[slots] = busy_s * (records.sum() / total_s) if total_s else records
        return weights

    def _slot_costs(self) -> dict[SlotId, dict[str, Any]]:
        return {row["slot"]: row for lane, load in self._slots.items() for row in _slot_rows(lane, load)}

    def _lane_rows(self, figures: Mapping[LaneId, LaneFigures]) -> list[dict[str, Any]]:
        return [
            {
                "lane": lane,
                "epoch": done.commit.epoch,
                "rows": figures[lane].rows,
                "busy_s": figures[lane].busy_s,
                "idle_s": done.idle_s,
                "slots": len(done.loads[-1].load.slots) if done.loads else 0,
                "state_rows": done.state_rows,
                "state_bytes": done.state_bytes,
                "attempt": done.commit.attempt,
            }
            for lane, done in sorted(self._lanes.items())
            if lane in figures
        ]


def _event_time(record: EpochRecord) -> dict[str, str]:
    """Return the watermark before an epoch and with it, empty for a stream without any."""
    if record.watermark_us is None or record.before_us is None:
        return {}
    return {"watermark": _instant(record.before_us), "watermarkWithRows": _instant(record.watermark_us)}


def _instant(at_us: int) -> str:
    """Return an instant as Spark's progress writes it."""
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at_us)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timestamp(times: EpochTimes) -> str:
    return datetime.fromtimestamp(times.began_s, UTC).isoformat()


def _slot_rows(lane: LaneId, load: SlotColumns) -> Iterator[dict[str, Any]]:
    for slot, records, busy_s, size in zip(load.slots, load.records, load.busy_s, load.state_bytes, strict=True):
        yield _slot_row(slot, lane, records, busy_s, size)


def _slot_row(slot: SlotId, lane: LaneId, records: int, busy_s: float, state_bytes: int) -> dict[str, Any]:
    return {"slot": slot, "lane": lane, "records": records, "busy_s": busy_s, "state_bytes": state_bytes}
