"""Hypothesis strategies for evenflow's values, in one place."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from evenflow.model import LaneLoad, LoadView, LoadWindow, RoutingTable, SlotLoads, window_of

Value = TypeVar("Value")


def runs(slots: int, lanes: int) -> RoutingTable:
    """A table with each lane's slots in a row, easier to read in a test than slots dealt out in turn."""
    return RoutingTable(np.arange(slots) * lanes // slots, tuple(range(lanes)))


@st.composite
def tables(draw: st.DrawFn, max_slots: int = 24, max_lanes: int = 6, min_lanes: int = 1) -> RoutingTable:
    """Any routing table: lane numbers may have holes, lanes may own nothing."""
    lanes = draw(st.lists(st.integers(0, 12), min_size=min_lanes, max_size=max_lanes, unique=True))
    owners = draw(st.lists(st.sampled_from(lanes), min_size=1, max_size=max_slots))
    return RoutingTable(np.array(owners), tuple(lanes))


@st.composite
def slot_loads(draw: st.DrawFn, slots: int) -> SlotLoads:
    """Loads from nothing to heavily skewed; 1 ms of busy time per record, give or take a factor of 4."""

    def column(values: st.SearchStrategy[Value]) -> list[Value]:
        return draw(st.lists(values, min_size=slots, max_size=slots))

    records = column(st.integers(0, 60) | st.integers(0, 2_000))
    cost = column(st.sampled_from([0.25e-3, 1e-3, 4e-3]))
    sizes = column(st.integers(0, 1 << 20))
    pending = column(st.just(0) | st.integers(0, 500))
    spilled = column(st.sampled_from([False, False, False, True]))
    busy = np.array(records) * np.array(cost)
    return SlotLoads.of(records, busy, sizes, pending, spilled)


@st.composite
def lane_loads(draw: st.DrawFn, table: RoutingTable, loads: SlotLoads) -> tuple[LaneLoad, ...]:
    """Lanes that fit their slots: busy and idle time fill the span, the queue is what pends."""
    span = max(1.0, float(table.sum_by_lane(loads.busy_s).max()))
    budget = draw(st.none() | st.integers(0, 8 << 20))
    derived = window_of(table, loads).lanes
    busy = table.sum_by_lane(loads.busy_s)
    return tuple(
        LaneLoad(lane.lane, max(0.0, span - float(used)), span, budget, lane.queue)
        for lane, used in zip(derived, busy, strict=True)
    )


@st.composite
def views(draw: st.DrawFn, max_windows: int = 3, max_slots: int = 24, min_lanes: int = 1) -> LoadView:
    """What a policy may be shown: any table, and some windows over it."""
    table = draw(tables(max_slots, min_lanes=min_lanes))
    count = draw(st.integers(1, max_windows))
    loads = [draw(slot_loads(table.slots)) for _ in range(count)]
    return LoadView(tuple(LoadWindow(load, draw(lane_loads(table, load))) for load in loads), table)
