"""Loads: columns that cannot lie, reports that add up to windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.errors import InputError
from evenflow.model import LaneLoad, LoadReport, LoadView, LoadWindow, RoutingTable, SlotLoads, window_of
from tests.strategies import slot_loads, tables


def report(epoch: int, lane: int, counts: dict[int, int], idle_s: float = 0.0, queue: int = 0) -> LoadReport:
    loads = SlotLoads.of(list(counts.values()), np.array(list(counts.values())) * 1e-3, [100 + epoch] * len(counts))
    return LoadReport(epoch, LaneLoad(lane, idle_s, queue=queue), np.array(list(counts), dtype=int), loads)


def test_counts_and_times_add_up_and_sizes_are_the_newest() -> None:
    window = LoadWindow.from_reports(
        [
            report(8, 0, {0: 5, 1: 1}, idle_s=0.5, queue=9),
            report(7, 0, {0: 10}, idle_s=0.25, queue=3),
            report(7, 1, {2: 4}),
            report(8, 1, {1: 2}),  # slot 1 changed its lane within the window
        ],
        slots=4,
    )
    assert window.slots.records.tolist() == [15, 3, 4, 0]
    assert window.slots.busy_s == pytest.approx([0.015, 0.003, 0.004, 0])
    assert window.slots.state_bytes.tolist() == [108, 108, 107, 0]
    assert window.lanes[0] == LaneLoad(0, idle_s=0.75, window_s=2.0, queue=9)
    assert window.epochs == (7, 8)


def test_what_is_pending_is_what_each_lane_said_last() -> None:
    def waiting(epoch: int, lane: int, pending: dict[int, int], *, all_served: bool = True) -> LoadReport:
        loads = SlotLoads.of([0] * len(pending), pending=list(pending.values()))
        return LoadReport(epoch, LaneLoad(lane), np.array(list(pending), dtype=int), loads, all_served)

    reports = [waiting(7, 0, {0: 5, 1: 6}), waiting(7, 1, {2: 7}), waiting(8, 0, {0: 4}), waiting(8, 1, {})]
    window = LoadWindow.from_reports(reports, slots=3)
    assert window.slots.pending.tolist() == [4, 0, 0]
    assert window.all_served
    assert not LoadWindow.from_reports([*reports, waiting(9, 0, {}, all_served=False)], slots=3).all_served


@given(tables(), st.data())
def test_one_report_per_lane_gives_the_whole_window_back(table: RoutingTable, data: st.DataObject) -> None:
    loads = data.draw(slot_loads(table.slots))
    reports = []
    for lane in table.lanes:
        own = table.slots_of(lane)
        part = SlotLoads.of(
            loads.records[own], loads.busy_s[own], loads.state_bytes[own], loads.pending[own], loads.spilled[own]
        )
        reports.append(LoadReport(0, LaneLoad(lane), own, part))
    assert LoadWindow.from_reports(reports, table.slots).slots == loads


def test_loads_are_values() -> None:
    one, same, other = SlotLoads.of([1, 2]), SlotLoads.of([1, 2]), SlotLoads.of([1, 3])
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    with pytest.raises(ValueError, match="read-only"):
        one.records[0] = 7


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SlotLoads.of([1], [np.nan]), "busy_s must be finite, got nan"),
        (lambda: SlotLoads.of([1], [np.inf]), "busy_s must be finite, got inf"),
        (lambda: SlotLoads.of([-1]), "records must not be negative, got -1"),
        (lambda: SlotLoads.of([1, 2], [0.1]), r"busy_s has shape \(1,\)"),
        (lambda: LaneLoad(3, window_s=0), "lane 3: window_s must be above 0"),
        (lambda: LaneLoad(3, idle_s=-1), "lane 3: idle_s must not be negative"),
        (lambda: LaneLoad(3, idle_s=float("nan")), "lane 3: idle_s must be finite"),
        (lambda: LoadWindow(SlotLoads.of([]), (LaneLoad(0),)), "at least 1 slot and 1 lane, got 0 and 1"),
        (lambda: LoadWindow(SlotLoads.of([1]), ()), "at least 1 slot and 1 lane, got 1 and 0"),
        (lambda: LoadWindow.from_reports([], 4), "at least 1 report"),
        (lambda: LoadWindow.from_reports([report(0, 0, {9: 1})], 4), "slot 9 of 4 does not exist"),
        (lambda: LoadReport(0, LaneLoad(0), np.array([1, 1]), SlotLoads.of([1, 1])), "distinct"),
        (lambda: LoadReport(0, LaneLoad(0), np.array([1]), SlotLoads.of([1, 1])), "1 slots, 2 loads"),
    ],
)
def test_impossible_loads_are_refused(build: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()  # type: ignore[operator]


def test_utilisation_is_the_share_of_time_with_work() -> None:
    assert LaneLoad(0, idle_s=0.25, window_s=1.0).utilisation == 0.75
    assert LaneLoad(0, idle_s=3.0, window_s=1.0).utilisation == 0.0


def test_a_view_adds_up_by_lane_and_numbers_new_lanes() -> None:
    table = RoutingTable(np.array([2, 2, 5]), (2, 5))
    view = LoadView((window_of(table, SlotLoads.of([3, 9, 4])),), table)
    assert view.lane_sums(view.last.slots.records).tolist() == [12, 4]
    assert view.biggest_first(2, view.last.slots.records) == [1, 0]
    assert view.new_lanes(2) == (6, 7)
    assert view.last.lane_column("memory_budget").tolist() == [np.inf, np.inf]
