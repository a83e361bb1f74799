"""What lanes and slots cost: the report of one lane, the window over all lanes, the view a policy decides on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from evenflow.errors import InputError
from evenflow.model.routing import RoutingTable
from evenflow.model.slots import (
    BoolArray,
    Epoch,
    FloatArray,
    IntArray,
    LaneId,
    SlotId,
    frozen_array,
)
from evenflow.model.values import ArrayValue

_DTYPES: dict[str, type[Any]] = {
    "records": np.int64,
    "busy_s": np.float64,
    "state_bytes": np.int64,
    "pending": np.int64,
    "spilled": np.bool_,
}


@dataclass(frozen=True, eq=False, slots=True)
class SlotLoads(ArrayValue):
    """Columns, one entry per slot: what each slot cost and what it holds."""

    records: IntArray
    busy_s: FloatArray
    state_bytes: IntArray
    pending: IntArray
    spilled: BoolArray

    def __post_init__(self) -> None:
        """Freeze the columns; refuse negative, infinite or missing numbers and columns of unequal length."""
        length = len(self.records)
        for name, dtype in _DTYPES.items():
            column = np.asarray(getattr(self, name))
            if column.shape != (length,):
                raise InputError(f"slot loads: {name} has shape {column.shape}, records has ({length},)")
            refuse_bad_numbers(f"slot loads: {name}", column)
            object.__setattr__(self, name, frozen_array(column, dtype))

    @classmethod
    def of(
        cls,
        records: npt.ArrayLike,
        busy_s: npt.ArrayLike | None = None,
        state_bytes: npt.ArrayLike | None = None,
        pending: npt.ArrayLike | None = None,
        spilled: npt.ArrayLike | None = None,
    ) -> SlotLoads:
        """Build the columns from any sequences; what is left out is zero."""
        counts = np.asarray(records)

        def column(values: npt.ArrayLike | None) -> npt.NDArray[Any]:
            return np.zeros(counts.shape) if values is None else np.asarray(values)

        return cls(counts, column(busy_s), column(state_bytes), column(pending), column(spilled))

    def __len__(self) -> int:
        """Return the number of slots."""
        return len(self.records)


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """What one lane did in a span of time: how long it waited for input, and what it still has to do.

    `crowded_s`: how long it had work and could not, since other work had its core.
    """

    lane: LaneId
    idle_s: float = 0.0
    window_s: float = 1.0
    memory_budget: int | None = None
    queue: int = 0
    crowded_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that no clock or counter gives."""
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None and not 0 <= value < inf:  # the reason is looked for only when there is one
                refuse_bad_numbers(f"lane {self.lane}: {part.name}", np.asarray(value))
        if self.window_s <= 0:
            raise InputError(f"lane {self.lane}: window_s must be above 0, got {self.window_s}")

    @property
    def utilisation(self) -> float:
        """The share of the span in which the lane had work: 1 - idle / span (FX 5.3)."""
        return min(1.0, max(0.0, 1.0 - self.idle_s / self.window_s))


@dataclass(frozen=True, eq=False, slots=True)
class LoadReport(ArrayValue):
    """What one lane reports for one epoch: its own load and that of the slots it served.

    `all_served`: see `LoadWindow`.
    """

    epoch: Epoch
    lane: LaneLoad
    slots: IntArray
    loads: SlotLoads
    all_served: bool = False

    def __post_init__(self) -> None:
        """Freeze the slot numbers and refuse repeated ones."""
        slots = frozen_array(self.slots, np.int64)
        if slots.shape != (len(self.loads),):
            raise InputError(f"report of lane {self.lane.lane}: {slots.size} slots, {len(self.loads)} loads")
        if np.unique(slots).size != slots.size or (slots.size and slots.min() < 0):
            raise InputError(f"report of lane {self.lane.lane}: slot numbers must be distinct and not negative")
        object.__setattr__(self, "slots", slots)


@dataclass(frozen=True, eq=False, slots=True)
class LoadWindow(ArrayValue):
    """The load of all slots and all lanes over one span of time; entry i of each column is slot i.

    What is pending waited when the slot's lane reported, at the end of its span. `all_served`: an epoch is reported
    once all of it is served, as on Spark. Then `records` are all that came in the window's epochs, what is pending came
    after them, and each lane has a span of its own. Else `records` are what was served in a span that all lanes share,
    and what more is pending than before came in it.
    """

    slots: SlotLoads
    lanes: tuple[LaneLoad, ...]
    epochs: tuple[Epoch, Epoch] = (0, 0)
    all_served: bool = False

    def __post_init__(self) -> None:
        """Sort the lanes; refuse an empty window and a lane named twice."""
        lanes = tuple(sorted(self.lanes, key=lambda load: load.lane))
        if len(self.slots) == 0 or not lanes:
            raise InputError(f"a load window needs at least 1 slot and 1 lane, got {len(self.slots)} and {len(lanes)}")
        ids = [load.lane for load in lanes]
        if len(set(ids)) != len(ids):
            raise InputError(f"a load window names each lane once, got {ids}")
        object.__setattr__(self, "lanes", lanes)

    @classmethod
    def from_reports(cls, reports: Iterable[LoadReport], slots: int) -> LoadWindow:
        """Sum the reports of some epochs: counts and times add up, sizes and queues are the newest ones."""
        ordered = sorted(reports, key=lambda report: report.epoch)
        if not ordered:
            raise InputError("a load window needs at least 1 report, got none")
        columns = {name: np.zeros(slots, dtype) for name, dtype in _DTYPES.items()}
        newest = {report.lane.lane: report for report in ordered}
        lanes: dict[LaneId, LaneLoad] = {}
        for report in ordered:
            where, loads = report.slots, report.loads
            if where.size and where.max() >= slots:
                raise InputError(f"report of lane {report.lane.lane}: slot {where.max()} of {slots} does not exist")
            columns["records"][where] += loads.records
            columns["busy_s"][where] += loads.busy_s
            columns["spilled"][where] = loads.spilled
            holds = (loads.records > 0) | (loads.state_bytes > 0)  # who has but rows waiting knows no size
            columns["state_bytes"][where[holds]] = loads.state_bytes[holds]
            if report is newest[report.lane.lane]:
                columns["pending"][where] = loads.pending
            lanes[report.lane.lane] = _later(lanes.get(report.lane.lane), report.lane)
        all_served = all(report.all_served for report in ordered)
        return cls(SlotLoads(**columns), tuple(lanes.values()), (ordered[0].epoch, ordered[-1].epoch), all_served)

    @property
    def lane_ids(self) -> tuple[LaneId, ...]:
        """The lanes of this window, ascending."""
        return tuple(load.lane for load in self.lanes)

    def lane_column(self, name: str) -> FloatArray:
        """Return one quantity of all lanes as an array, in the order of `lanes`; no budget is infinite."""
        values = [getattr(load, name) for load in self.lanes]
        return np.array([np.inf if value is None else value for value in values], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class MoveCost:
    """What it takes to move state, in seconds of work: measured by the engine, or these defaults.

    `stops_all`: no lane serves anything while a slot moves (Guo and Zhou's pause), not only that slot.
    """

    seconds_per_byte: float = 1e-8
    seconds_per_move: float = 1e-3
    stops_all: bool = False


@dataclass(frozen=True, slots=True)
class LoadView:
    """All that a policy may look at: the newest windows, oldest first, and the routing table in force.

    All windows are of the table's slots, the newest one of its lanes as well; older ones may be of other lanes.
    `memory` is what the policy itself returned the last time, None at first; policies keep nothing else.
    `last_move_s` is how long the moves decided last took, 0 if there were none. `whole_epochs`: rows come an epoch at a
    time, so each waits for all that its lane has to do in it; where they come one by one, nobody waits for a lane that
    is idle now and then.
    """

    windows: tuple[LoadWindow, ...]
    table: RoutingTable
    memory: Any = None
    last_move_s: float = 0.0
    move_cost: MoveCost = field(default_factory=MoveCost)
    whole_epochs: bool = True

    def __post_init__(self) -> None:
        """Refuse windows that do not fit the table."""
        if not self.windows:
            raise InputError("a policy needs at least 1 load window, got none")
        for window in self.windows:
            if len(window.slots) != self.table.slots:
                raise InputError(f"a window of {len(window.slots)} slots does not fit a table of {self.table.slots}")
        if self.last.lane_ids != self.table.lanes:
            raise InputError(f"the window has lanes {list(self.last.lane_ids)}, the table {list(self.table.lanes)}")

    @property
    def last(self) -> LoadWindow:
        """The newest window."""
        return self.windows[-1]

    def lane_sums(self, per_slot: npt.ArrayLike) -> FloatArray:
        """Add up a per-slot quantity by present owner, in the order of the table's lanes."""
        return self.table.sum_by_lane(per_slot)

    def new_lanes(self, count: int) -> tuple[LaneId, ...]:
        """Return the numbers that the next `count` lanes would get."""
        first = self.table.lanes[-1] + 1
        return tuple(range(first, first + count))

    def biggest_first(self, lane: LaneId, per_slot: npt.NDArray[Any]) -> list[SlotId]:
        """Return the slots of `lane` by descending quantity, the lower number first among equals."""
        slots = self.table.slots_of(lane)
        order = np.lexsort((slots, -per_slot[slots].astype(np.float64)))
        return [int(slot) for slot in slots[order]]


def refuse_bad_numbers(who: str, values: npt.NDArray[Any]) -> None:
    """Raise if any number is negative, infinite or not a number; the message says which."""
    if values.size == 0:
        return
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(f"{who} must be finite, got {values[~np.isfinite(values)].flat[0]}")
    if values.dtype.kind in "if" and values.min() < 0:
        raise InputError(f"{who} must not be negative, got {values.min()}")


def _later(before: LaneLoad | None, now: LaneLoad) -> LaneLoad:
    """Return the load of a lane over two spans in a row."""
    if before is None:
        return now
    return replace(
        now,
        idle_s=before.idle_s + now.idle_s,
        window_s=before.window_s + now.window_s,
        crowded_s=before.crowded_s + now.crowded_s,
    )


def window_of(table: RoutingTable, loads: SlotLoads, lanes: Sequence[LaneLoad] | None = None) -> LoadWindow:
    """Return the window that `loads` make under `table`; lanes left out are derived from their slots.

    A derived lane is as idle as its slots leave it in a span of 1 s, and its queue is what pends on its slots.
    """
    if lanes is None:
        busy, queue = table.sum_by_lane(loads.busy_s), table.sum_by_lane(loads.pending)
        lanes = [
            LaneLoad(lane, idle_s=max(0.0, 1.0 - float(used)), queue=int(waiting))
            for lane, used, waiting in zip(table.lanes, busy, queue, strict=True)
        ]
    return LoadWindow(loads, tuple(lanes))
